"""Train workers that follow one another in the same directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from epida_ray.classify import create
from epida_ray.classify.training import TrainingOptions
from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.stream.worker import Replaced, Task, Training


class Lost(Exception):
    pass


class Transfer:
    """Keeps the numbers of what is published; a worker that publishes the version `lost` ends with it."""

    def __init__(self, lost: int | None = None) -> None:
        self.lost, self.published = lost, list[int]()

    def publish(self, version: int, weights: dict[str, np.ndarray]) -> None:
        if version == self.lost:
            raise Lost
        self.published.append(version)

    def fetch(self, version: int, limit: float) -> dict[str, np.ndarray]:
        raise NotImplementedError


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


def worker(storage: Storage, transfer: Any, driver: str = "one") -> Training:
    task = Task(
        driver=driver, storage=storage, transfer=transfer, options=TrainingOptions(), loss="original", rounds=3,
        pretrain_epochs=1, epochs_per_round=1, online=True, patience=None, calibrate=False, max_staleness=0, limit=60.0,
    )  # fmt: skip
    return Training(task, rank=0, world=1)


def test_weights_that_a_lost_worker_saved_but_did_not_publish_are_published_by_the_next(storage: Storage) -> None:
    with pytest.raises(Lost):
        worker(storage, Transfer(lost=3)).run()
    transfer = Transfer()
    worker(storage, transfer).run()
    assert transfer.published == [3, 4]


def test_a_worker_that_was_replaced_writes_nothing(storage: Storage) -> None:
    first = worker(storage, Transfer())
    worker(storage, Transfer()).run()
    before = {name: storage.read(f"checkpoint/{name}") for name in storage.names("checkpoint")}
    with pytest.raises(Replaced):
        first.run()
    assert {name: storage.read(f"checkpoint/{name}") for name in storage.names("checkpoint")} == before


def test_a_worker_of_a_command_that_another_one_follows_says_so(storage: Storage) -> None:
    first = worker(storage, Transfer())
    worker(storage, Transfer(), driver="two").run()
    with pytest.raises(RunError, match="another command has taken over"):
        first.run()
