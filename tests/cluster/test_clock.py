"""Clocks that jump while a run works, by hours and both ways: the bytes stay the same, and nobody loses the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster import test_augment_kills, test_train_kills
from tests.cluster.nodes import ROOT
from tests.cluster.processes import TALLY, committed, content, finish, running, trained, wait_until, write_corpus
from tests.cluster.test_train_kills import ROUNDS, rounds_done

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]
JUMPS = (5.0, -26.0, 10_000.0, 0.0)


SHIFTED = """
import os, time

_file, _time = os.environ["SHIFTED_CLOCK"], time.time


def _shifted():
    with open(_file) as file:
        return _time() + float(file.read() or 0)


time.time, time.time_ns = _shifted, lambda: int(_shifted() * 1e9)
"""
"""What every Python process of a run starts with. Ray's own C++ keeps the true time: libfaketime would move that too,
but under it Python 3.11 cannot sleep."""


class Clock:
    """The time of day for the Python code of a run, Ray's included. Only it jumps, and not the time since the start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.file = folder / "offset"
        self.file.write_text("0")
        (folder / "sitecustomize.py").write_text(SHIFTED)
        self.environment = {"SHIFTED_CLOCK": str(self.file), "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}

    def jump(self, hours: float) -> None:
        TALLY.jumps += 1
        new = self.file.with_name("new")
        new.write_text(str(hours * 3600))
        new.replace(self.file)


def test_augmenting_while_the_clock_jumps(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.parquet", 20_000)
    with running(test_augment_kills.command(tmp_path, "undisturbed")) as process:
        finish(process)
    clock = Clock(tmp_path / "clock")
    with running(test_augment_kills.command(tmp_path, "run"), **clock.environment) as process:
        for count, hours in enumerate(JUMPS, start=1):
            wait_until(process, f"shard {count}", lambda n=count: committed(tmp_path / "run") >= n)
            clock.jump(hours)
        finish(process)
    assert content(tmp_path / "run") == content(tmp_path / "undisturbed")


def test_training_while_the_clock_jumps_killed_and_resumed_in_the_past(tmp_path: Path) -> None:
    """The claim of the driver that was killed is of a time that is still to come."""
    write_corpus(tmp_path / "in.parquet", 400, shortest=8)
    with running(test_train_kills.command(tmp_path, "undisturbed", 1)) as process:
        finish(process)
    clock = Clock(tmp_path / "clock")
    with running(test_train_kills.command(tmp_path, "run", 1), **clock.environment) as process:
        for round_, hours in enumerate(JUMPS[:3]):
            wait_until(process, f"round {round_}", lambda at=round_: rounds_done(tmp_path, "run") >= at)
            clock.jump(hours)
    clock.jump(-3.0)
    with running(test_train_kills.command(tmp_path, "run", 1), **clock.environment) as process:
        assert "resuming after round" in finish(process)
    assert trained(tmp_path / "run", ROUNDS) == trained(tmp_path / "undisturbed", ROUNDS)
