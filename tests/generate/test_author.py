"""`author` and the client of endpoints: prompts, answers, what is paid for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import GENERATORS, identifying, propose
from epida_ray.generate.author import REQUESTS
from epida_ray.generate.corpus import bind_samples

SAMPLES = [Sample("a", "I lost my card", "cards"), Sample("b", "My money did not arrive", "transfers")]
OTHERS = [
    Sample("c", "When will my new card come?", "cards"),
    Sample("d", "The machine kept my card", "cards"),
    Sample("e", "The transfer is late", "transfers"),
]


class Server:
    """Answers as `reply` says, and remembers the requests."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.reply: Callable[[int], str] = lambda i: "\n".join(f"text number {i} {c * 5}" for c in "abcd")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                content = {"choices": [{"message": {"content": outer.reply(len(outer.asked))}}]}
                content["usage"] = {"total_tokens": 100}
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(content).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def author(server: Server, cache: Path, **arguments: Any) -> Any:
    generator = GENERATORS.create(
        "author", endpoint=server.url, model="m", cache=str(cache), **{"parallel": 1, "checked": False} | arguments
    )
    bind_samples(generator, OTHERS)
    return generator


def test_the_prompt_has_the_class_its_description_examples_attributes_and_what_was_written(
    server: Server, tmp_path: Path
) -> None:
    generator = author(
        server, tmp_path, examples=3, descriptions={"cards": "about bank cards"}, attributes={"agency": ["NASA"]}
    )
    (answer,) = generator.generate(SAMPLES[:1], 6, [3])
    assert isinstance(answer, Candidates) and answer.operations == ["write"] * 6
    first, second = (body["messages"][0]["content"] for body in server.asked)
    for part in (
        '"cards" (about bank cards)',
        "- I lost my card",
        "- When will",
        "- The machine",
        "\nAgency: NASA.",
        "6 more",
    ):
        assert part in first
    assert "The transfer is late" not in first and "Do not repeat" not in first
    assert "Do not repeat:\n- text number 1 aaaaa" in second and "2 more" in second
    assert server.asked[0]["seed"] == 3


def test_near_duplicates_copies_and_labels_are_dropped(server: Server, tmp_path: Path) -> None:
    lines = ["I lost my card!", "cards", "a b c d e f g h i", "a b c d e f g h i j", 'Texts of the class "cards"']
    server.reply = lambda i: "\n".join(lines)
    (answer,) = author(server, tmp_path).generate(SAMPLES[:1], 5, [3])
    assert answer == Candidates(["a b c d e f g h i"], ["write"])


def test_near_duplicates_of_samples_that_the_prompt_does_not_show_are_dropped(server: Server, tmp_path: Path) -> None:
    server.reply = lambda i: "The machine has kept my card\nThe transfer is late!\nmy card is new"
    (answer,) = author(server, tmp_path, examples=1).generate(SAMPLES[:1], 5, [3])
    assert "The machine" not in server.asked[0]["messages"][0]["content"]
    assert answer == Candidates(["The transfer is late!", "my card is new"], ["write"] * 2)


def test_hard_examples_are_those_that_the_classifier_gets_wrong(server: Server, tmp_path: Path) -> None:
    generator = author(server, tmp_path, hard=True, examples=2)
    assert generator.needs_classifier
    right = np.array([[1.0, 0.0]], np.float32)

    def predict(texts: Any) -> np.ndarray:
        return np.concatenate([right[:, ::-1] if "machine" in text else right for text in texts])

    generator.bind(predict, ("cards", "transfers"))
    generator.generate(SAMPLES[:1], 1, [3])
    assert "The machine kept" in server.asked[0]["messages"][0]["content"]
    assert "When will" not in server.asked[0]["messages"][0]["content"]


def test_texts_that_the_classifier_takes_for_another_class_are_dropped(server: Server, tmp_path: Path) -> None:
    server.reply = lambda i: f"my card number {i}\na late transfer number {i}"

    def predict(texts: Any) -> np.ndarray:
        return np.array([[0.9, 0.1] if "card" in text else [0.1, 0.9] for text in texts], np.float32)

    generator = author(server, tmp_path, checked=True, parallel=2)
    assert generator.needs_classifier and GENERATORS.create("author", endpoint=server.url).needs_classifier
    generator.bind(predict, ("cards", "transfers"))
    cards, transfers = propose(generator, SAMPLES, 2, run_seed=0, round_=0, name="author")
    assert isinstance(cards, Candidates) and all("card" in text for text in cards.texts)
    assert isinstance(transfers, Candidates) and all("transfer" in text for text in transfers.texts)
    generator.bind(predict, ("transfers", "others"))
    assert isinstance(generator.generate(SAMPLES[:1], 2, [1])[0], Rejected)
    assert not author(server, tmp_path).needs_classifier


def test_a_text_without_a_label_is_rejected(server: Server, tmp_path: Path) -> None:
    (answer,) = author(server, tmp_path).generate([SAMPLES[0]._replace(label="")], 2, [1])
    assert isinstance(answer, Rejected) and not server.asked


def test_no_answer_is_paid_for_twice(server: Server, tmp_path: Path) -> None:
    made = author(server, tmp_path).generate(SAMPLES, 4, [1, 2])
    paid = len(server.asked)
    assert author(server, tmp_path, parallel=3).generate(SAMPLES, 4, [1, 2]) == made
    assert len(server.asked) == paid == 2
    author(server, tmp_path).generate(SAMPLES, 4, [7, 8])
    assert len(server.asked) > paid


def test_a_budget_ends_the_run_and_a_larger_one_continues_it(server: Server, tmp_path: Path) -> None:
    generator = author(server, tmp_path, budget=150)
    with pytest.raises(RequestError, match="200 tokens are spent, and the budget is 150"):
        propose(generator, [*SAMPLES, OTHERS[0]], 4, run_seed=0, round_=0, name="author")
    assert len(server.asked) == 2
    propose(author(server, tmp_path, budget=300), [*SAMPLES, OTHERS[0]], 4, run_seed=0, round_=0, name="author")
    assert len(server.asked) == 3
    assert identifying("author", {"budget": 1, "cache": "x", "endpoint": "e"}) == {"endpoint": "e"}


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_shortfall_costs_no_more_requests_than_are_promised(server: Server, tmp_path: Path, wrapped: bool) -> None:
    server.reply = lambda i: "always the same text"
    generator = author(server, tmp_path)
    if wrapped:
        own = {"endpoint": server.url, "model": "m", "cache": str(tmp_path), "checked": False}
        generator = GENERATORS.create("mix", author=own, eda=1)
        bind_samples(generator, OTHERS)
    (answer,) = propose(generator, SAMPLES[:1], 4, run_seed=0, round_=0, name="author")
    assert isinstance(answer, Candidates) and len(answer.texts) == (4 if wrapped else 1)
    assert len(server.asked) == REQUESTS


def test_structured_answers_are_requested_by_a_schema(server: Server, tmp_path: Path) -> None:
    server.reply = lambda i: json.dumps({"texts": ["alpha beta", "gamma delta"]})
    (answer,) = author(server, tmp_path, structured=True).generate(SAMPLES[:1], 2, [1])
    assert answer == Candidates(["alpha beta", "gamma delta"], ["write"] * 2)
    assert server.asked[0]["response_format"]["type"] == "json_schema"


def test_thoughts_fences_and_remarks_of_a_server_are_no_texts(server: Server, tmp_path: Path) -> None:
    listed = json.dumps(["alpha beta", "gamma delta"])
    server.reply = lambda i: f"<think>\n1. Two texts.\n</think>\nSure!\n```json\n{listed}\n```\nLet me know."
    (answer,) = author(server, tmp_path).generate(SAMPLES[:1], 4, [1])
    assert answer == Candidates(["alpha beta", "gamma delta"], ["write"] * 2)
