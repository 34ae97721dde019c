"""Checkpoints of a training run: one safetensors file a round, written whole or not at all.

What is not an array is JSON in the file's header. The last two are kept: should the newer be damaged, the older one
costs a round, not the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as tensors

from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage

FOLDER = "checkpoint"
KEPT = 2


class Checkpoint(NamedTuple):
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]

    def part(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays whose names begin with `prefix/`, without it."""
        return {k.removeprefix(f"{prefix}/"): v for k, v in self.arrays.items() if k.startswith(f"{prefix}/")}


def save(storage: Storage, round_: int, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
    data = tensors.save(dict(arrays), metadata={"facts": json.dumps(facts, sort_keys=True)})
    storage.write(f"{FOLDER}/{_name(round_)}", data)
    for name in _names(storage)[:-KEPT]:
        with suppress(FileNotFoundError):  # a worker that was replaced removes it, too
            storage.remove(f"{FOLDER}/{name}")


def load(storage: Storage) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be read, or None where there is none; and the names of damaged ones."""
    damaged: list[str] = []
    names = _names(storage)
    for name in reversed(names):
        data = storage.read(f"{FOLDER}/{name}")
        try:
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            return Checkpoint(tensors.load(data), json.loads(header["__metadata__"]["facts"])), damaged
        except (SafetensorError, ValueError, KeyError, TypeError):
            damaged.append(name)
    if damaged:
        raise RunError(
            f"{storage.location}/{FOLDER}: {' and '.join(damaged)} are damaged and there is no other checkpoint; "
            "augmented/ and metrics.jsonl are kept, but training has to start anew in another --output"
        )
    return None, damaged


def newest_facts(storage: Storage) -> dict[str, Any] | None:
    """The facts of the newest whole checkpoint, without reading its arrays; None where there is none."""
    for name in reversed(_names(storage)):
        with storage.filesystem.open_input_file(storage.path(f"{FOLDER}/{name}")) as file:
            try:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length))
                facts = json.loads(header.pop("__metadata__")["facts"])
                end = max((array["data_offsets"][1] for array in header.values()), default=0)
            except (ValueError, KeyError, TypeError, MemoryError, OverflowError):
                continue
            if file.size() == 8 + length + end:
                return facts
    return None


def pack(weights: Mapping[str, np.ndarray]) -> bytes:
    """Weights as one message."""
    return tensors.save(dict(weights))


def unpack(data: bytes) -> dict[str, np.ndarray]:
    return tensors.load(data)


def _names(storage: Storage) -> list[str]:
    return sorted(n for n in storage.names(FOLDER) if n.endswith(".safetensors"))


def _name(round_: int) -> str:
    return f"round-{round_:05d}.safetensors"
