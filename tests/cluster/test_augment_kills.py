"""`epida augment` killed while it works: nothing lost, nothing twice, and the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster.processes import epida, finish, kill_child, running, wait_until

pytestmark = pytest.mark.chaos

ROWS = 30_000


def command(folder: Path, name: str, *more: str) -> list[str]:
    where = str(folder / name)
    return epida(
        "augment", str(folder / "in.parquet"), "--output", where, "--address", "local", "--train-rows", "300", *more
    )


def committed(folder: Path, name: str) -> int:
    return len([p for p in (folder / name / "augmented").glob("*.parquet") if not p.name.startswith(".")])


def wait_until_committed(process: subprocess.Popen[str], folder: Path, name: str, count: int) -> None:
    wait_until(process, f"shard {count}", lambda: committed(folder, name) >= count)


def content(folder: Path, name: str) -> dict[str, str]:
    files = sorted((folder / name / "augmented").iterdir()) + sorted((folder / name).glob("rejected/*"))
    return {f"{p.parent.name}/{p.name}": sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    words = ["green", "river", "quick", "stone", "letter", "yellow", "market", "window", "winter", "garden", "bright"]
    texts = [
        " ".join(words[(i * 7 + j * (i % 5 + 1)) % 11] for j in range(16 + i % 9)) + (" please" if i % 2 else " now")
        for i in range(ROWS)
    ]
    table = pa.table({"text": texts, "label": ["ask" if i % 2 else "tell" for i in range(ROWS)]})
    pq.write_table(table, folder / "in.parquet")
    with running(command(folder, "undisturbed"), PYTHONHASHSEED="1") as process:
        finish(process)
    return folder


def check_equal(folder: Path, name: str) -> None:
    assert content(folder, name) == content(folder, "undisturbed")
    table = pq.read_table(folder / name / "augmented", columns=["sample_id", "rank"])
    counts = table.group_by("sample_id").aggregate([("rank", "count")])
    assert counts.num_rows == ROWS and set(counts["rank_count"].to_pylist()) == {3}


def test_an_actor_of_each_kind_killed_in_the_middle_changes_nothing(corpus: Path) -> None:
    with running(command(corpus, "actors", "--generators", "1"), PYTHONHASHSEED="2") as process:
        for count, kind in enumerate(("Generate", "Score"), start=1):
            wait_until_committed(process, corpus, "actors", count)
            assert kill_child(process, kind), f"no process is called {kind}"
        finish(process)
    check_equal(corpus, "actors")


def test_the_driver_killed_at_five_moments_and_started_again(corpus: Path) -> None:
    shards = committed(corpus, "undisturbed")
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        with running(command(corpus, "driver"), PYTHONHASHSEED=str(int(share * 100))) as process:
            wait_until_committed(process, corpus, "driver", max(1, int(share * shards)))
        assert committed(corpus, "driver") < shards
    with running(command(corpus, "driver")) as process:
        assert "resuming" in finish(process)
    check_equal(corpus, "driver")


def test_sigterm_keeps_what_is_done_and_says_how_to_go_on(corpus: Path) -> None:
    with running(command(corpus, "term")) as process:
        wait_until_committed(process, corpus, "term", 2)
        process.terminate()
        output = finish(process, status=1)
        assert "run the same command again to resume" in output and "Traceback" not in output
    with running(command(corpus, "term")) as process:
        finish(process)
    check_equal(corpus, "term")
