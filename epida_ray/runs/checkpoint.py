"""Checkpoints of a training run: safetensors files, written whole or not at all, after each round and inside long ones.

What is not an array is JSON in the file's header. The last two checkpoints are kept: if the newer one is damaged, at
most a round is lost, not the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as tensors

from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.runs.layout import CHECKPOINTS, checkpoint_file

KEPT = 2


class Checkpoint(NamedTuple):
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        """Return the arrays whose names begin with `prefix/`, without it."""
        return {k.removeprefix(f"{prefix}/"): v for k, v in self.arrays.items() if k.startswith(f"{prefix}/")}


def save(
    storage: Storage, round_: int, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any], epochs: int = 0
) -> None:
    """Write the state after a round, or after some `epochs` of the round that follows it."""
    data = tensors.save(dict(arrays), metadata={"facts": json.dumps(facts, sort_keys=True)})
    storage.write(checkpoint_file(round_, epochs), data)
    _remove(storage, _names(storage)[:-KEPT])


def remove_all(storage: Storage) -> None:
    """Remove the checkpoints of a finished run; with the optimiser's state each is several times the model's size."""
    _remove(storage, _names(storage))


def load(storage: Storage) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint that can be read, or None, and the names of damaged ones."""
    damaged: list[str] = []
    for name in _newest_first(storage):
        try:
            data = storage.read(f"{CHECKPOINTS}/{name}")
        except FileNotFoundError:
            continue
        try:
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            return Checkpoint(tensors.load(data), json.loads(header["__metadata__"]["facts"])), damaged
        except (SafetensorError, ValueError, KeyError, TypeError):
            damaged.append(name)
    if damaged:
        raise RunError(
            f"{storage.location}/{CHECKPOINTS}: {' and '.join(damaged)} are damaged and there is no other checkpoint; "
            "augmented/ and metrics.jsonl are kept, but training must start again in another --output"
        )
    return None, damaged


def newest_facts(storage: Storage) -> dict[str, Any] | None:
    """Return the facts of the newest whole checkpoint, or None; its arrays are not read."""
    for name in _newest_first(storage):
        facts = None
        with suppress(FileNotFoundError):
            facts = storage.retried(partial(_facts, storage, name), "read from")
        if facts is not None:
            return facts
    return None


def _facts(storage: Storage, name: str) -> dict[str, Any] | None:
    """Return the facts of a checkpoint; None if it is damaged."""
    with storage.open(f"{CHECKPOINTS}/{name}") as file:
        try:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            facts: dict[str, Any] = json.loads(header.pop("__metadata__")["facts"])
            end = max((array["data_offsets"][1] for array in header.values()), default=0)
        except (ValueError, KeyError, TypeError, MemoryError, OverflowError):
            return None
        return facts if file.size() == 8 + length + end else None


def pack(weights: Mapping[str, np.ndarray]) -> bytes:
    """Pack weights into one message."""
    return tensors.save(dict(weights))


def unpack(data: bytes) -> dict[str, np.ndarray]:
    return tensors.load(data)


def _remove(storage: Storage, names: list[str]) -> None:
    for name in names:
        with suppress(FileNotFoundError):  # a worker that was replaced removes it, too
            storage.remove(f"{CHECKPOINTS}/{name}")


def _newest_first(storage: Storage) -> Iterator[str]:
    """Yield the checkpoints, the newest first, each once.

    It lists them anew each time, because a worker may save another one and remove the one that was listed.
    """
    tried: set[str] = set()
    while left := [name for name in _names(storage) if name not in tried]:
        tried.add(left[-1])
        yield left[-1]


def _names(storage: Storage) -> list[str]:
    return sorted(n for n in storage.names(CHECKPOINTS) if n.endswith(".safetensors"))
