"""`epida augment` killed while it works: nothing lost, nothing twice, and the bytes of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LIMIT = 240.0
ROWS = 30_000


def command(folder: Path, name: str, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "epida_ray.cli", "augment", str(folder / "in.parquet"), "--output", str(folder / name),
        "--address", "local", "--train-rows", "300", *more,
    ]  # fmt: skip


STARTED: list[subprocess.Popen[str]] = []


def start(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
    )
    STARTED.append(process)
    return process


@pytest.fixture(autouse=True)
def leave_nothing_behind() -> Iterator[None]:
    yield
    for process in STARTED:
        process.kill()
        process.wait(LIMIT)
    STARTED.clear()


def finish(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"not done after {LIMIT} s: {process.communicate()[0]}")
    assert process.returncode == 0, output
    return output


def committed(folder: Path, name: str) -> int:
    return len([p for p in (folder / name / "augmented").glob("*.parquet") if not p.name.startswith(".")])


def wait_until_committed(process: subprocess.Popen[str], folder: Path, name: str, count: int) -> None:
    deadline = time.monotonic() + LIMIT
    while committed(folder, name) < count:
        assert process.poll() is None, f"ended before shard {count}: {process.communicate()[0]}"
        assert time.monotonic() < deadline, f"no shard {count} within {LIMIT} s"
        time.sleep(0.005)


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
    finish(start(command(folder, "undisturbed"), PYTHONHASHSEED="1"))
    return folder


def check_equal(folder: Path, name: str) -> None:
    assert content(folder, name) == content(folder, "undisturbed")
    table = pq.read_table(folder / name / "augmented", columns=["sample_id", "rank"])
    counts = table.group_by("sample_id").aggregate([("rank", "count")])
    assert counts.num_rows == ROWS and set(counts["rank_count"].to_pylist()) == {3}


def test_an_actor_of_each_kind_killed_in_the_middle_changes_nothing(corpus: Path) -> None:
    process = start(command(corpus, "actors", "--generators", "1"), PYTHONHASHSEED="2")
    killed = []
    for count, kind in enumerate(("Generate", "Score"), start=1):
        wait_until_committed(process, corpus, "actors", count)
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                if kind in " ".join(child.cmdline()):
                    child.kill()
                    killed.append(kind)
                    break
            except psutil.NoSuchProcess:
                continue
    assert killed == ["Generate", "Score"]
    finish(process)
    check_equal(corpus, "actors")


@pytest.mark.chaos
def test_the_driver_killed_at_five_moments_and_started_again(corpus: Path) -> None:
    shards = committed(corpus, "undisturbed")
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        process = start(command(corpus, "driver"), PYTHONHASHSEED=str(int(share * 100)))
        wait_until_committed(process, corpus, "driver", max(1, int(share * shards)))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(LIMIT)
        assert committed(corpus, "driver") < shards
    assert "resuming" in finish(start(command(corpus, "driver")))
    check_equal(corpus, "driver")


def test_sigterm_keeps_what_is_done_and_says_how_to_go_on(corpus: Path) -> None:
    process = start(command(corpus, "term"))
    wait_until_committed(process, corpus, "term", 2)
    process.terminate()
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and "run the same command again to resume" in output and "Traceback" not in output
    finish(start(command(corpus, "term")))
    check_equal(corpus, "term")
