"""A row that kills its process is found by those that come after, whatever stage it kills."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.runs.crashes import Crashes


class Killed(BaseException):
    pass


def attempt(storage: Storage, rows: int, deadly: set[int], whole: bool = False, watching: bool = True) -> list[int]:
    """What one process does; a deadly row is its end, and with `whole` so is the shard without those."""

    def work(start: int, stop: int) -> None:
        if deadly & set(range(start, stop)):
            raise Killed

    with Crashes(storage, "generate", watching).survived("shard", rows, work) as bad:
        if whole or deadly - set(bad):
            raise Killed
        return bad


def until_done(storage: Storage, rows: int, deadly: set[int], whole: bool = False) -> tuple[list[int], int]:
    for deaths in range(1000):
        try:
            return attempt(storage, rows, deadly, whole), deaths
        except Killed:
            continue
    pytest.fail("it never ends")


@pytest.mark.parametrize("seed", range(20))
def test_exactly_the_deadly_rows_are_found(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    rows = choose.choice([1, 2, 3, 7, 64, 100])
    deadly = set(choose.sample(range(rows), choose.randint(0, min(3, rows))))
    storage = Storage(str(tmp_path))
    bad, deaths = until_done(storage, rows, deadly)
    assert set(bad) == deadly and len(bad) == len(deadly)
    assert deaths <= 2 + len(deadly) * (rows.bit_length() + 2)
    assert not storage.names("crashes/generate"), "a shard that is done leaves no trace"


def test_one_death_rejects_nothing(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for _ in range(2):
        with pytest.raises(Killed):
            attempt(storage, 8, {3})
    assert attempt(storage, 8, set()) == []


def test_a_shard_that_only_kills_as_a_whole_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"works on 8 rows \(shard\) dies each time.*more memory"):
        until_done(Storage(str(tmp_path)), 8, set(), whole=True)


def test_an_undisturbed_process_writes_nothing_and_a_resumed_one_remembers(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    assert attempt(storage, 8, set(), watching=False) == [] and not list(tmp_path.iterdir())
    with pytest.raises(Killed):
        attempt(storage, 8, {1})
    for _ in range(20):  # started anew by the same command, not by Ray
        try:
            assert attempt(storage, 8, {1}, watching=False) == [1]
            return
        except Killed:
            continue
    pytest.fail("what was known is forgotten")
