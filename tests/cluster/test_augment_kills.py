"""`epida augment` killed while it works: nothing lost, nothing twice, and the bytes of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.processes import committed, content, epida, finish, kill_child, running, wait_until, write_corpus

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

ROWS = 30_000


def command(folder: Path, name: str, *more: str) -> list[str]:
    return epida(
        "augment", str(folder / "in.parquet"), "--output", str(folder / name), "--address", "local", "--train-rows",
        "300", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    write_corpus(folder / "in.parquet", ROWS)
    with running(command(folder, "undisturbed"), PYTHONHASHSEED="1") as process:
        finish(process)
    return folder


def check_equal(folder: Path, name: str) -> None:
    assert content(folder / name) == content(folder / "undisturbed")


def test_an_actor_of_each_kind_killed_in_the_middle_changes_nothing(corpus: Path) -> None:
    with running(command(corpus, "actors", "--generator-actors", "1"), PYTHONHASHSEED="2") as process:
        for count, kind in enumerate(("Generate", "Score"), start=1):
            wait_until(process, f"shard {count}", lambda n=count: committed(corpus / "actors") >= n)
            assert kill_child(process, kind), f"no process is called {kind}"
        finish(process)
    check_equal(corpus, "actors")


def test_the_driver_killed_at_five_moments_and_started_again(corpus: Path) -> None:
    shards = committed(corpus / "undisturbed")
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        count = max(1, int(share * shards))
        with running(command(corpus, "driver"), PYTHONHASHSEED=str(int(share * 100))) as process:
            wait_until(process, f"shard {count}", lambda n=count: committed(corpus / "driver") >= n)
        assert committed(corpus / "driver") < shards
    with running(command(corpus, "driver")) as process:
        assert "resuming" in finish(process)
    check_equal(corpus, "driver")


def test_sigterm_keeps_what_is_done_and_says_how_to_go_on(corpus: Path) -> None:
    with running(command(corpus, "term")) as process:
        wait_until(process, "shard 2", lambda: committed(corpus / "term") >= 2)
        process.terminate()
        output = finish(process, status=1)
        assert "run the same command again to resume" in output and "Traceback" not in output
    with running(command(corpus, "term")) as process:
        finish(process)
    check_equal(corpus, "term")
