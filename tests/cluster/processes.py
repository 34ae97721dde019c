"""Runs of the command line as real processes, to be killed, and the account of all kills in a session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

LIMIT = 300.0
WORDS = ["green", "river", "quick", "stone", "letter", "yellow", "market", "window", "winter", "garden", "bright"]


@dataclass
class Tally:
    """What was killed, stopped and made to fail in this session, and what came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    jumps: int = 0
    """Of the clock."""
    faults: int = 0
    """Of an object store: answers that said to come later, lost requests and answers, delays."""
    runs: int = 0
    """Whose rows were counted at their end."""
    lost: int = 0
    twice: int = 0
    hangs: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills.total()} kills ({_kinds(self.kills)}), {self.pauses.total()} pauses ({_kinds(self.pauses)}), "
            f"{self.jumps} jumps of the clock and {self.faults} faults of a store in {self.runs} runs: "
            f"{self.lost} rows lost, {self.twice} rows twice, {self.hangs} hangs"
        )


def _kinds(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "none"


TALLY = Tally()


def epida(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "epida_ray.cli", *arguments]


@contextmanager
def running(arguments: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The process, which does not outlive the block: one that still works at its end is a driver killed."""
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            TALLY.kills["driver"] += 1
            process.kill()
        process.wait(LIMIT)


def finish(process: subprocess.Popen[str], status: int = 0, limit: float = LIMIT) -> str:
    """Its output at its end, which has to come, with this status. A finished run's rows are counted."""
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        TALLY.hangs += 1
        process.kill()
        pytest.fail(f"not done after {limit} s: {process.communicate()[0]}")
    assert process.returncode == status, output
    arguments = list(map(str, process.args))  # type: ignore[arg-type]
    kind = next((word for word in arguments if word in ("augment", "train")), None)
    if status == 0 and kind and "--output" in arguments and "://" not in " ".join(arguments):
        source = Path(arguments[arguments.index(kind) + 1])
        count_rows(
            Path(arguments[arguments.index("--output") + 1]),
            pq.read_metadata(source).num_rows if kind == "augment" and source.suffix == ".parquet" else None,
        )
    return output


def wait_until(process: subprocess.Popen[str], what: str, condition: Callable[[], bool]) -> None:
    """Until the condition holds, while the process lives."""
    deadline = time.monotonic() + LIMIT
    while True:
        ended = process.poll() is not None  # before the condition, which may come true with the end
        if condition():
            return
        assert not ended, f"ended before {what}: {process.communicate()[0]}"
        if time.monotonic() > deadline:
            TALLY.hangs += 1
            pytest.fail(f"not within {LIMIT} s: {what}")
        time.sleep(0.005)


def children(pid: int, title: str) -> list[psutil.Process]:
    """The processes below this one whose title has these words."""
    found = []
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    for child in below:
        try:
            if title in " ".join(child.cmdline()):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def kill_child(process: subprocess.Popen[str], title: str) -> bool:
    """kill -9 one of the Ray processes below `process` whose title has these words; False when there is none."""
    for child in children(process.pid, title):
        try:
            child.kill()
            TALLY.kills[title.strip("_").lower()] += 1
            return True
        except psutil.NoSuchProcess:
            continue
    return False


@contextmanager
def paused(process: subprocess.Popen[str], title: str = "driver") -> Iterator[None]:
    """Stop a Ray process below `process` with these words in its title, or the driver; wake it at the end."""
    if title == "driver":
        one = psutil.Process(process.pid)
    else:
        found = children(process.pid, title)
        assert found, f"no process is called {title}"
        one = found[0]
    one.suspend()
    TALLY.pauses[title.strip("_").lower()] += 1
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            one.resume()


def write_corpus(path: Path, rows: int, shortest: int = 16) -> None:
    """Texts of two classes; equal for equal arguments."""
    texts = [
        " ".join(WORDS[(i * 7 + j * (i % 5 + 1)) % 11] for j in range(shortest + i % 9))
        + (" please" if i % 2 else " now")
        for i in range(rows)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts, "label": ["ask" if i % 2 else "tell" for i in range(rows)]}), path)


def committed(run: Path) -> int:
    """Finished shards."""
    return len([p for p in (run / "augmented").glob("*.parquet") if not p.name.startswith(".")])


def content(run: Path, *parts: str) -> dict[str, str]:
    """Name and hash of every file in these folders of a run, else in all.

    Not of its manifest, its owners and its model's card, which tell of times and processes.
    """
    folders = [run / part for part in parts] or [run]
    files = [p for folder in folders for p in folder.rglob("*") if p.is_file() and p.parent != run / "owner"]
    files = [p for p in files if p.name not in ("manifest.json", "README.md")]
    return {p.relative_to(run).as_posix(): sha256(p.read_bytes()).hexdigest() for p in files}


def trained(run: Path, rounds: int) -> dict[str, str]:
    """The model and the rows of a finished training run, which has each round once."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(range(rounds + 1))
    return content(run, "model", "augmented")


def count_rows(run: Path, samples: int | None = None) -> None:
    """Every sample is kept or rejected, in every round, and no row is there twice.

    `samples` is how many there were; without it, those of any round must be in each.
    """
    TALLY.runs += 1
    augmented = run / "augmented"
    rounds = sorted(p.name for p in augmented.glob("round=*")) or [""]
    present: list[set[str]] = []
    for name in rounds:
        rows = _rows(augmented / name, ["sample_id", "rank"])
        TALLY.twice += len(rows) - len(set(rows))
        aside = _rows(run / "rejected" / name, ["sample_id"])
        TALLY.twice += len(aside) - len(set(aside))
        present.append({row[0] for row in rows} | {row[0] for row in aside})
    wanted = len(set().union(*present)) if samples is None else samples
    TALLY.lost += sum(wanted - len(found) for found in present)
    assert TALLY.lost == 0 and TALLY.twice == 0, str(TALLY)


def _rows(folder: Path, columns: list[str]) -> list[tuple]:
    if not folder.is_dir():
        return []
    table = ds.dataset(folder, format="parquet").to_table(columns=columns)
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))
