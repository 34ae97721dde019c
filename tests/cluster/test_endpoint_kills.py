"""A real language model server killed while `epida augment` asks it: the run resumes and pays for nothing twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.processes import TALLY, epida, finish, running
from tests.llama_server import LlamaServer

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

TEXTS = {
    "cards": ["I lost my card", "When will my card come?", "The machine kept my card", "My card broke", "Which card?"],
    "transfers": ["My money did not arrive", "The transfer is late", "Where is my transfer?", "I sent it twice", "Hm"],
}


@pytest.mark.parametrize("generator", ["author", "language-model"])
def test_a_server_killed_in_the_middle_of_a_run(tmp_path: Path, generator: str) -> None:
    texts = [text for texts in TEXTS.values() for text in texts]
    labels = [label for label, texts in TEXTS.items() for _ in texts]
    pq.write_table(pa.table({"text": texts, "label": labels}), tmp_path / "in.parquet")
    cache = tmp_path / "answers"
    server = LlamaServer(tmp_path)
    command = epida(
        "augment", str(tmp_path / "in.parquet"), "--output", str(tmp_path / "run"), "--address", "local",
        "--classifier", "linear", "--generator", generator, "-m", "1", "-k", "2", "--max-rejected", "0.9",
        *(f"--generator-arg={one}" for one in (f"endpoint={server.url}", "model=smollm2", f"cache={cache}")),
        "--generator-arg", "parallel=1", "--generator-actors", "1",
    )  # fmt: skip
    server.start()
    try:
        killer = threading.Thread(target=server.kill_in_the_middle, args=(3,))
        killer.start()
        with running(command) as process:
            assert "run the same command again" in finish(process, status=1)
        killer.join()
        TALLY.kills["language model server"] += 1
        kept = len(list(cache.glob("*.json")))
        assert 3 <= kept <= server.answered() <= kept + 1, "one answer at most was on its way"
        server.start()
        with running(command) as process:
            finish(process)
        paid = len(list(cache.glob("*.json"))) - kept
        assert server.answered(expected=paid) == paid > 0
        assert len((cache / "tokens").read_text().split()) == kept + paid
    finally:
        server.kill()
