"""A row that needs more memory than the machine has: the kernel ends its process, and the row alone is lost."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from epida_ray.core.sample import Candidates
from tests.cluster.nodes import ROOT
from tests.cluster.processes import LIMIT, TALLY, content, epida, finish, running, write_corpus

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

ROWS = 2
DEADLY = 1
ROOM = 4 << 30
"""Bytes that a run has in all: enough for Ray and the actors, and not for what the row asks for."""


class Hungry:
    """A generator that needs twice the room for one text."""

    def generate(self, samples: Any, n: int, seeds: Any) -> list[Candidates]:
        for sample in samples:
            if sample.id.endswith(f":{DEADLY}"):
                held = [bytes([1]) * (64 << 20) for _ in range(2 * ROOM >> 26)]
                del held
        return [Candidates([f"{s.text} {i}" for i in range(n)], ["mark"] * n) for s in samples]


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with little memory, of which processes become members by writing to its `cgroup.procs`."""
    first = Path("/sys/fs/cgroup/memory")
    place = (first if first.is_dir() else first.parent) / f"epida-{secrets.token_hex(4)}"
    try:
        place.mkdir()
        limit = next(p for name in ("memory.limit_in_bytes", "memory.max") if (p := place / name).exists())
        limit.write_text(str(ROOM))
    except (OSError, StopIteration):
        if place.exists():
            place.rmdir()
        pytest.skip("no control group with a limit of memory can be made here")
    yield place
    deadline = time.monotonic() + LIMIT
    while members := (place / "cgroup.procs").read_text().split():
        assert time.monotonic() < deadline, f"these do not end: {members}"
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.1)
    place.rmdir()


def kills(group: Path) -> int:
    """How often the kernel ended a process of the group for lack of memory."""
    for name in ("memory.oom_control", "memory.events"):
        if (group / name).exists():
            counts = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0


def command(folder: Path, name: str, generator: str) -> list[str]:
    return epida(
        "augment", str(folder / "in.parquet"), "--output", str(folder / name), "--address", "local", "--classifier",
        str(folder / "judge" / "model"), "--generator", generator, "--generator-actors", "1", "--scorer-actors", "1",
        "--max-rejected", "0.5",
    )  # fmt: skip


def test_a_row_for_which_the_memory_is_not_enough_is_rejected(tmp_path: Path, group: Path) -> None:
    write_corpus(tmp_path / "in.parquet", ROWS)
    write_corpus(tmp_path / "train.parquet", 64)
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    judge = ("--output", str(tmp_path / "judge"), "--address", "local")
    with running(epida("augment", str(tmp_path / "train.parquet"), *judge)) as process:
        finish(process)
    inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    with running([*inside, *command(tmp_path, "run", "tests.cluster.test_memory:Hungry")], **environment) as process:
        finish(process, limit=3 * LIMIT)  # each of the kills costs a new actor
    TALLY.kills["memory"] += kills(group)
    assert kills(group) > 3
    (file,) = (tmp_path / "run" / "rejected").iterdir()
    (row,) = pq.read_table(file).to_pylist()
    assert row["sample_id"] == f"in.parquet:{DEADLY}" and "its process died" in row["reason"]
    kept = content(tmp_path / "run", "augmented")
    with running([*inside, *command(tmp_path, "run", "tests.cluster.test_memory:Hungry")], **environment) as process:
        assert "finished already" in finish(process)
    assert content(tmp_path / "run", "augmented") == kept
