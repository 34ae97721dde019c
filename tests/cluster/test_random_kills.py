"""Parts of runs killed again and again: a random part at a random moment, from a seed."""

from __future__ import annotations

import itertools
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.processes import (
    TALLY,
    children,
    content,
    epida,
    finish,
    kill_child,
    running,
    wait_until,
    write_corpus,
)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

SEED = 7
TOTAL = 100
"""Kills and pauses in the whole session at the least."""
ONLINE = ("GenerateAhead", "Scorer", "RayTrainWorker", "_Store", "driver")
OFFLINE = ("Generate", "Generate", "Score", "Score", "driver")


def augment(folder: Path, name: str) -> list[str]:
    return epida(
        "augment", str(folder / "in.parquet"), "--output", str(folder / name), "--address", "local", "--train-rows",
        "300", "--generator-actors", "1", "--scorer-actors", "1",
    )  # fmt: skip


def train(folder: Path, name: str) -> list[str]:
    return epida(
        "train", str(folder / "in.parquet"), "--classifier", "cnn",
        "--output", str(folder / name), "--address", "local", "--rounds", "6",
        "--pretrain-epochs", "1", "--epochs-per-round", "2", "--workers", "1",
        "--generator-actors", "1", "--scorer-actors", "1",
        "--stall-timeout", "200",
    )  # fmt: skip


def disturb(
    process: subprocess.Popen[str], kinds: tuple[str, ...], pause: float, moments: random.Random, until: int
) -> bool:
    """Kill parts, at most `pause` seconds after they are there, until the run ends or enough were killed.

    True when the driver is the next to be killed.
    """
    while process.poll() is None and TALLY.kills.total() < until:
        kind = moments.choice(kinds)
        if kind == "driver":
            time.sleep(moments.uniform(0.0, 20.0))
            return process.poll() is None
        wait_until(process, kind, lambda kind=kind: process.poll() is not None or bool(children(process.pid, kind)))
        time.sleep(moments.uniform(0.0, pause))
        kill_child(process, kind)
    return False


def kill_often(
    folder: Path,
    command: Callable[[Path, str], list[str]],
    kinds: tuple[str, ...],
    pause: float,
    kills: int,
    parts: tuple[str, ...],
) -> None:
    """Runs of `command` until `kills` were done; each one is finished and has the bytes of an undisturbed one."""
    with running(command(folder, "undisturbed")) as process:
        finish(process)
    moments, until = random.Random(SEED), TALLY.kills.total() + kills
    for number in itertools.count():
        name = f"run-{number}"
        for drivers in range(4):
            with running(command(folder, name)) as process:
                if drivers == 3 or not disturb(process, kinds, pause, moments, until):
                    finish(process)
                    break
        assert content(folder / name, *parts) == content(folder / "undisturbed", *parts)
        if TALLY.kills.total() >= until:
            return


def test_training(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.parquet", 400, shortest=8)
    kill_often(tmp_path, train, ONLINE, 15.0, 10, ("model", "augmented"))


def test_augmenting(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in.parquet", 30_000)
    kill_often(tmp_path, augment, OFFLINE, 3.0, max(18, TOTAL - TALLY.kills.total() - TALLY.pauses.total()), ())
