"""`author` and `language-model` through a real OpenAI-compatible server, which is also killed in the middle."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epida_ray.core.errors import TransientError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS, endpoint, propose
from epida_ray.generate.corpus import bind_samples
from tests.llama_server import LlamaServer

TEXTS = {
    "cards": ["I lost my card", "When will my new card come?", "The machine kept my card", "My card is broken"],
    "transfers": ["My money did not arrive", "The transfer is late", "Where is my transfer?", "I sent it twice"],
}
SAMPLES = [Sample(f"{label}{i}", text, label) for label, texts in TEXTS.items() for i, text in enumerate(texts)]


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[LlamaServer]:
    server = LlamaServer(tmp_path)
    server.start()
    yield server
    server.kill()


def ask(server: LlamaServer, cache: Path, name: str = "author", count: int = 2, **arguments: Any) -> Any:
    if name == "author":
        arguments |= {"checked": False}
    generator = GENERATORS.create(
        name, endpoint=server.url, model="smollm2", cache=str(cache), **{"parallel": 1} | arguments
    )
    if name == "author":
        bind_samples(generator, SAMPLES)
    return propose(generator, SAMPLES[:: 8 // count], 2, run_seed=0, round_=0, name=name, attempts=1)


def paid(cache: Path) -> int:
    """Return the number of answers in the folder; each was added to the sum of tokens once."""
    answers = [json.loads(file.read_text()) for file in cache.glob("*.json")]
    assert sorted(map(int, (cache / "tokens").read_text().split())) == sorted(answer["tokens"] for answer in answers)
    return len(answers)


@pytest.mark.parametrize("name", ["author", "language-model"])
def test_a_real_server_is_asked_each_question_once(llama: LlamaServer, tmp_path: Path, name: str) -> None:
    cache = tmp_path / "answers"
    made = ask(llama, cache, name)
    assert any(isinstance(answer, Candidates) for answer in made)
    assert llama.answered(expected=paid(cache)) == paid(cache) > 0
    assert ask(llama, cache, name, parallel=3) == made
    assert llama.answered() == paid(cache)


def test_a_real_server_answers_by_the_schema(llama: LlamaServer, tmp_path: Path) -> None:
    """Also of an answer that was cut off, the texts are what the schema calls texts."""
    made = ask(llama, tmp_path, structured=True)
    answers = [text for file in tmp_path.glob("*.json") for text in json.loads(file.read_text())["answers"]]
    assert answers and all(re.match(r'\{\s*"texts"\s*:\s*\[', answer) for answer in answers)
    texts = [text for one in made if isinstance(one, Candidates) for text in one.texts]
    assert texts and all(any(json.dumps(text) in answer for answer in answers) for text in texts)


def test_a_prompt_beyond_the_context_costs_its_row(llama: LlamaServer, tmp_path: Path) -> None:
    generator = GENERATORS.create(
        "language-model", endpoint=llama.url, model="smollm2", cache=str(tmp_path / "answers"), prompt="{text} " * 8
    )
    long = Sample("long", "one of the very many words " * 100, "cards")
    refused, good = propose(generator, [long, SAMPLES[0]], 1, run_seed=0, round_=0, name="language-model", attempts=1)
    assert isinstance(refused, Rejected) and "no answer" in refused.reason and "HTTP 400" in refused.reason
    assert llama.answered(expected=1) > 0 and not (isinstance(good, Rejected) and "HTTP" in good.reason)


def test_a_server_that_is_killed_and_started_again_answers_nothing_twice(
    llama: LlamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "WAITS", (0.1, 0.1))
    cache = tmp_path / "answers"
    killer = threading.Thread(target=llama.kill_in_the_middle, args=(2,))
    killer.start()
    with pytest.raises(TransientError, match="run the same command again"):
        ask(llama, cache, count=8)
    killer.join()
    kept = paid(cache)
    assert 2 <= kept <= llama.answered() <= kept + 1  # one answer at most was on its way
    llama.start()
    made = ask(llama, cache, count=8)
    assert llama.answered(expected=paid(cache) - kept) == paid(cache) - kept > 0
    assert ask(llama, cache, count=8) == made
    assert llama.answered() == paid(cache) - kept
