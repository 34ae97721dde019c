"""Train workers that follow one another in the same directory."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from epida_ray.classify import create
from epida_ray.core.errors import TakenOver
from epida_ray.data.storage import Storage
from epida_ray.method import round_worker
from epida_ray.method.round_worker import Replaced, Task, Worker
from epida_ray.method.schedule import Schedule
from epida_ray.method.trainer import LearnOptions
from epida_ray.runs.lease import claim


class Lost(Exception):
    pass


class Transport:
    """Keeps the numbers of what is published; a worker that publishes the version `lost` ends with it."""

    staleness = 0

    def __init__(self, lost: int | None = None) -> None:
        self.lost, self.published = lost, list[int]()

    def publish(self, version: int, weights: dict[str, np.ndarray]) -> None:
        if version == self.lost:
            raise Lost
        self.published.append(version)

    def is_published(self, version: int) -> bool:
        return version in self.published

    def fetch(self, version: int, limit: float) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def step(self) -> None:
        pass

    def steps(self) -> int:
        return len(self.published)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = Storage(str(tmp_path / "run"))
    texts = [f"{'buy' if i % 2 else 'sell'} the lamp number {i}" for i in range(12)]
    rows = pa.table({"sample_id": list(map(str, range(12))), "text": texts, "label": ["b", "s"] * 6})
    for name in ("train", "dev"):
        storage.write_table(f"prepared/{name}.parquet", rows)
    create("linear", ("b", "s")).save(tmp_path / "model")
    storage.upload(tmp_path / "model", "initial")
    return storage


def worker(storage: Storage, transport: Any, driver: str = "one") -> Worker:
    options = LearnOptions(Schedule(1, (1, 1, 1)), loss="original")
    return Worker(Task(driver, storage, transport, options, limit=60.0), rank=0, world=1)


def test_weights_that_a_lost_worker_saved_but_did_not_publish_are_published_by_the_next(storage: Storage) -> None:
    with pytest.raises(Lost):
        worker(storage, Transport(lost=3)).run()
    transport = Transport()
    worker(storage, transport).run()
    assert transport.published == [3, 4]


def test_a_worker_that_was_replaced_writes_nothing(storage: Storage) -> None:
    first = worker(storage, Transport())
    worker(storage, Transport()).run()
    before = {name: storage.read(f"checkpoint/{name}") for name in storage.names("checkpoint")}
    with pytest.raises(Replaced):
        first.run()
    assert {name: storage.read(f"checkpoint/{name}") for name in storage.names("checkpoint")} == before


def test_a_worker_of_a_command_that_another_one_follows_says_so(storage: Storage) -> None:
    storage.guard = claim(storage.location).check
    first = worker(pickle.loads(pickle.dumps(storage)), Transport())
    storage.guard = claim(storage.location, take_over=True).check
    worker(storage, Transport(), driver="two").run()
    with pytest.raises(TakenOver, match=f"process {os.getpid()} on .* has taken over"):
        first.run()


class TakesOver(Transport):
    """Takes the directory over when the first step is reported, and counts the steps."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self.location, self.count = location, 0

    def step(self) -> None:
        self.count += 1
        claim(self.location, take_over=True)
        time.sleep(5.1)  # the next step is reported, too


def test_a_worker_whose_driver_has_lost_the_directory_stops_in_the_middle_of_a_round(
    storage: Storage, tmp_path: Path
) -> None:
    create("cnn", ("b", "s")).save(tmp_path / "cnn")
    storage.upload(tmp_path / "cnn", "initial")
    storage.guard = claim(storage.location).check
    transport = TakesOver(storage.location)
    options = LearnOptions(Schedule(9, (1,)), loss="original")
    with pytest.raises(TakenOver):
        Worker(Task("one", storage, transport, options, limit=60.0)).run()
    assert transport.count == 1


def cnn(storage: Storage, folder: Path) -> Worker:
    """A worker that trains two rounds of four epochs."""
    create("cnn", ("b", "s")).save(folder)
    storage.upload(folder, "initial")
    return Worker(Task("one", storage, Transport(), LearnOptions(Schedule(4, (4,)), loss="original"), limit=60.0))


def test_a_worker_that_dies_inside_a_long_round_loses_an_epoch(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = cnn(Storage(shutil.copytree(storage.location, tmp_path / "calm").as_posix()), tmp_path / "cnn")
    calm.run()

    monkeypatch.setattr(round_worker, "SAVE_EVERY", -1.0)
    lost = cnn(storage, tmp_path / "cnn")
    save, epochs = lost.trainer.after_epoch, list[int]()

    def save_and_die_in_round_1() -> None:
        save()
        epochs.append(lost.trainer.progress.epochs)
        if len(epochs) == 5:
            raise Lost

    lost.trainer.after_epoch = save_and_die_in_round_1
    with pytest.raises(Lost):
        lost.run()
    assert epochs == [1, 2, 3, 1, 2]

    after = cnn(storage, tmp_path / "cnn")
    trained = after.trainer.learner._trainer  # type: ignore[union-attr]
    assert (after.trainer.progress.round, after.trainer.progress.epochs, trained.epoch) == (0, 2, 6)
    after.run()
    assert trained.epoch == 8
    for one, other in zip(*(w.trainer.state().items() for w in (calm, after)), strict=True):
        assert one[0] == other[0] and np.array_equal(one[1], other[1])
    lines = [
        [{k: v for k, v in m.items() if k != "seconds"} for m in w.trainer.progress.metrics] for w in (calm, after)
    ]
    assert lines[0] == lines[1] and len(lines[0]) == 2


def test_no_two_workers_have_the_same_number(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: worker(storage, Transport()).attempt, range(16)))
    assert len(set(numbers)) == 16
