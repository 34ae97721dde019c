"""Checkpoints are read while another process saves and removes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.runs import checkpoint
from epida_ray.runs.layout import checkpoint_file


def save(storage: Storage, round_: int) -> None:
    checkpoint.save(storage, round_, {"w": np.full(3, round_)}, {"round": round_})


class Busy(Storage):
    """Before the first file is opened, another process does something to the checkpoints."""

    meanwhile: Callable[[Storage], None] | None = None

    def _other(self) -> None:
        do, self.meanwhile = self.meanwhile, None
        if do is not None:
            do(Storage(self.location))

    def read(self, name: str) -> bytes:
        self._other()
        return super().read(name)

    def open(self, name: str) -> pa.NativeFile:
        self._other()
        return super().open(name)


def loaded(storage: Storage) -> dict[str, Any] | None:
    found, damaged = checkpoint.load(storage)
    assert not damaged
    return found and found.facts


READERS = (loaded, checkpoint.newest_facts)


def save_two(storage: Storage) -> None:
    save(storage, 2)
    save(storage, 3)


@pytest.mark.parametrize("read", READERS)
def test_a_checkpoint_that_is_removed_before_it_is_opened_gives_way_to_a_newer_one(
    tmp_path: Path, read: Callable[[Storage], dict[str, Any] | None]
) -> None:
    storage = Busy(str(tmp_path))
    save(storage, 1)
    storage.meanwhile = save_two
    assert read(storage) == {"round": 3}


@pytest.mark.parametrize("read", READERS)
def test_checkpoints_of_a_run_that_finishes_meanwhile_are_none(
    tmp_path: Path, read: Callable[[Storage], dict[str, Any] | None]
) -> None:
    storage = Busy(str(tmp_path))
    save_two(storage)
    storage.meanwhile = checkpoint.remove_all
    assert read(storage) is None


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    save_two(storage)
    storage.write(checkpoint_file(3), storage.read(checkpoint_file(3))[:-1])
    found, damaged = checkpoint.load(storage)
    assert found is not None and found.facts == {"round": 2} and damaged == ["round-00003.safetensors"]
    assert checkpoint.newest_facts(storage) == {"round": 2}
    storage.write(checkpoint_file(2), b"")
    assert checkpoint.newest_facts(storage) is None
    with pytest.raises(RunError, match="round-00003.safetensors and round-00002.safetensors are damaged"):
        checkpoint.load(storage)
