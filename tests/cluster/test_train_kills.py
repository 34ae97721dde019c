"""`epida train` with its parts killed: every round once, and the weights of an undisturbed run, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.cluster.processes import epida, finish, kill_child, running, trained, wait_until, write_corpus

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1500)]

ROUNDS = 6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    write_corpus(folder / "in.parquet", 400, shortest=8)
    for workers in (0, 1):
        with running(command(folder, f"undisturbed{workers}", workers)) as process:
            finish(process)
    return folder


def command(folder: Path, name: str, workers: int) -> list[str]:
    return epida(
        "train", str(folder / "in.parquet"), "--classifier", "cnn",
        "--output", str(folder / name), "--address", "local", "--rounds",
        str(ROUNDS), "--pretrain-epochs", "1", "--epochs-per-round", "2", "--workers", str(workers),
        "--generator-actors", "1", "--scorer-actors", "1", "--stall-timeout", "200", "--keep-checkpoints",
    )  # fmt: skip


def rounds_done(folder: Path, name: str) -> int:
    """The newest round with a checkpoint; -1 before the first."""
    return max((int(p.stem[-5:]) for p in (folder / name / "checkpoint").glob("round-*.safetensors")), default=-1)


def check_equal(folder: Path, name: str, workers: int) -> None:
    assert trained(folder / name, ROUNDS) == trained(folder / f"undisturbed{workers}", ROUNDS)


@pytest.mark.parametrize("title", ["GenerateAhead", "Scorer", "RayTrainWorker", "_Store"])
def test_a_part_killed_at_a_random_moment(corpus: Path, title: str) -> None:
    name = title.strip("_").lower()
    moment = random.Random(title).randrange(1, ROUNDS - 2)
    with running(command(corpus, name, 1)) as process:
        wait_until(process, f"round {moment}", lambda: rounds_done(corpus, name) >= moment)
        assert kill_child(process, title), f"no process is called {title}"
        finish(process)
    check_equal(corpus, name, 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_driver_killed_and_started_again(corpus: Path, workers: int) -> None:
    name = f"driver{workers}"
    for moment in (0, 2, ROUNDS - 1):
        with running(command(corpus, name, workers)) as process:
            wait_until(process, f"round {moment}", lambda at=moment: rounds_done(corpus, name) >= at)
    with running(command(corpus, name, workers)) as process:
        assert "resuming after round" in finish(process)
    check_equal(corpus, name, workers)
