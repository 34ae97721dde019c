"""Parts of a run that are stopped and wake up late, as in a machine that swaps or sleeps: the bytes stay the same."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from epida_ray.runs.lease import EXPIRY
from tests.cluster import test_augment_kills, test_train_kills
from tests.cluster.processes import (
    LIMIT,
    children,
    committed,
    content,
    finish,
    paused,
    running,
    trained,
    wait_until,
    write_corpus,
)
from tests.cluster.test_train_kills import ROUNDS, rounds_done

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1500)]

SHORT = 10.0
"""Seconds. A renewal of the lease falls into it, and more work than a part has waiting."""
STORE = 65.0
"""Longer than anyone waits for an answer of the store before asking again."""


def augmenting(folder: Path, name: str, *more: str) -> list[str]:
    actors = ("--generator-actors", "1", "--scorer-actors", "1")
    return test_augment_kills.command(folder, name, *actors, *more)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pauses")
    write_corpus(folder / "in.parquet", 20_000)
    with running(augmenting(folder, "undisturbed")) as process:
        finish(process)
    return folder


def check_equal(folder: Path, name: str) -> None:
    assert content(folder / name) == content(folder / "undisturbed")


def test_each_part_of_augment_paused_and_woken(corpus: Path) -> None:
    with running(augmenting(corpus, "parts")) as process:
        for count, part in enumerate(("Generate", "Score", "driver"), start=1):
            wait_until(process, f"shard {count}", lambda n=count: committed(corpus / "parts") >= n)
            with paused(process, part):
                time.sleep(SHORT)
        finish(process)
    check_equal(corpus, "parts")


def test_an_actor_that_wakes_after_another_command_did_its_work_writes_nothing(corpus: Path) -> None:
    """The first command gives up on it; the actor outlives that command, since it cannot hear of its end."""
    with running(augmenting(corpus, "late", "--stall-timeout", "15")) as process:
        wait_until(process, "a shard", lambda: committed(corpus / "late") >= 1)
        (actor,) = children(process.pid, "Score")
        with paused(process, "Score"):
            output = finish(process, status=1)
            assert "--stall-timeout" in output and "run the same command again to resume" in output
            with running(augmenting(corpus, "late")) as second:
                assert "resuming" in finish(second)
            before = {p: p.stat().st_mtime_ns for p in (corpus / "late").rglob("*")}
        psutil.wait_procs([actor], timeout=LIMIT)
        assert not actor.is_running()
    assert {p: p.stat().st_mtime_ns for p in (corpus / "late").rglob("*")} == before
    check_equal(corpus, "late")


def test_a_driver_that_wakes_after_its_claim_expired_says_who_has_the_run_and_writes_nothing(corpus: Path) -> None:
    with running(augmenting(corpus, "expired")) as process:
        wait_until(process, "a shard", lambda: committed(corpus / "expired") >= 1)
        with paused(process):
            time.sleep(EXPIRY)
            with running(augmenting(corpus, "expired")) as second:
                assert "resuming" in finish(second)
        output = finish(process, status=1)
        assert "Traceback" not in output and ("has taken over" in output or "has ended" in output), output
    check_equal(corpus, "expired")


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paused-train")
    write_corpus(folder / "in.parquet", 400, shortest=8)
    with running(test_train_kills.command(folder, "undisturbed", 1)) as process:
        finish(process)
    return folder


def test_each_part_of_train_paused_and_woken(trainings: Path) -> None:
    with running(test_train_kills.command(trainings, "parts", 1)) as process:
        for round_, part in enumerate(("GenerateAhead", "Scorer", "RayTrainWorker", "driver")):
            wait_until(process, f"round {round_}", lambda at=round_: rounds_done(trainings, "parts") >= at)
            with paused(process, part):
                time.sleep(SHORT)
        finish(process)
    assert trained(trainings / "parts", ROUNDS) == trained(trainings / "undisturbed", ROUNDS)


def test_the_store_paused_for_longer_than_anyone_waits_for_its_answer(trainings: Path) -> None:
    with running(test_train_kills.command(trainings, "store", 1)) as process:
        wait_until(process, "round 2", lambda: rounds_done(trainings, "store") >= 2)
        with paused(process, "_Store"):
            time.sleep(STORE)
        finish(process)
    assert trained(trainings / "store", ROUNDS) == trained(trainings / "undisturbed", ROUNDS)
