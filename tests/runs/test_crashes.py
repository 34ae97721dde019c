"""A row that kills its process is found by those that come after, whatever stage it kills."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.runs.crashes import Crashes


class Killed(BaseException):
    pass


def attempt(
    storage: Storage, rows: int, deadly: set[int], whole: bool = False, watching: bool = True, owner: int = 0
) -> list[int]:
    """What one process does; a deadly row is its end, and with `whole` so is the shard without those."""

    def work(start: int, stop: int) -> None:
        if deadly & set(range(start, stop)):
            raise Killed

    with Crashes(storage, "generate", watching, owner).survived("shard", rows, work) as bad:
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


def test_a_shard_that_only_kills_as_a_whole_ends_the_run_and_is_tried_again_by_the_next(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    for _ in range(2):
        with pytest.raises(RunError, match=r"works on 8 rows \(shard\) dies each time.*more memory"):
            until_done(storage, 8, set(), whole=True)
    assert attempt(storage, 8, set()) == [], "with fewer actors there is enough memory"


def test_what_is_no_death_of_the_process_is_not_counted(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    with pytest.raises(Killed):
        attempt(storage, 8, {3})
    for _ in range(10):
        with (
            pytest.raises(RunError, match="endpoint"),
            Crashes(storage, "generate", True).survived("shard", 8, lambda *_: None),
        ):
            raise RunError("the endpoint is down")
    assert json.loads(storage.read("crashes/generate/shard.json"))["deaths"] == 0
    for owner in range(1, 11):  # each time the driver ends, and its processes with it
        with pytest.raises(Killed):
            attempt(storage, 8, {3}, owner=owner)
    with Crashes(storage, "generate", True, 11).survived("shard", 8, pytest.fail) as bad:
        assert bad == []
    with pytest.raises(RunError), Crashes(storage, "generate", True).survived("new", 8, pytest.fail):
        raise RunError("the endpoint is down")
    assert not storage.names("crashes/generate")


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
