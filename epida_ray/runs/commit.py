"""committed.json: the files of a finished run with their sizes and digests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, NamedTuple

from epida_ray.classify.model import CARD
from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.runs import layout
from epida_ray.runs.manifest import read_manifest


class Committed(NamedTuple):
    size: int
    sha256: str | None
    """None in a file of an earlier version."""


def commit(storage: Storage, with_model: bool, digests: Mapping[str, str]) -> None:
    """Write the list of all files of shards, and of those of the model.

    `digests` has those of the files that this attempt wrote; those of earlier attempts are read.
    """
    sizes = _sizes(storage, with_model)
    others = sorted(sizes.keys() - digests.keys())
    with ThreadPoolExecutor(8) as pool:
        read = dict(zip(others, pool.map(lambda name: sha256(storage.read(name)).hexdigest(), others), strict=True))
    before = listed(storage) or {}
    for name, digest in read.items():
        if name in before and before[name].sha256 not in (None, digest):
            raise RunError(_changed_since(storage, name))
    found = {**digests, **read}
    files = {name: Committed(size, found[name])._asdict() for name, size in sizes.items()}
    storage.write(layout.COMMITTED, json.dumps(files, sort_keys=True).encode())


def listed(storage: Storage) -> dict[str, Committed] | None:
    """Return the files on the list; None when there is no list, or it is damaged."""
    try:
        found = json.loads(storage.read(layout.COMMITTED))
        return {name: _entry(value) for name, value in found.items()}
    except (FileNotFoundError, ValueError, AttributeError, KeyError, TypeError):
        return None


def _entry(value: Any) -> Committed:
    size, digest = (value, None) if isinstance(value, int) else (value["size"], value["sha256"])
    if not isinstance(size, int) or not isinstance(digest, str | None):
        raise TypeError("not a size and a digest")
    return Committed(size, digest)


def committed(storage: Storage) -> dict[str, Committed] | None:
    """Return the files of a finished run; None when one is missing, has another size or is not its own."""
    return None if changed(storage) else listed(storage)


def changed(storage: Storage) -> list[str]:
    """Return what is not as committed.json says, as far as names and sizes show it."""
    files = listed(storage)
    if files is None:
        return [layout.COMMITTED]
    trained = any(name.startswith(f"{layout.MODEL}/") for name in files)
    there = _sizes(storage, trained)
    names = files.keys() if trained else files.keys() | there.keys()  # what somebody puts beside a model does no harm
    return sorted(name for name in names if name not in files or files[name].size != there.get(name))


def read_committed(storage: Storage, name: str, file: Committed | None) -> bytes:
    """Return the content of a file; RunError unless it is the one that the run committed."""
    try:
        data = storage.read(name)
    except FileNotFoundError:
        raise RunError(f"{storage.path(name)} is missing; put it back, or {_again(storage)}") from None
    if file is not None and file.sha256 is not None and sha256(data).hexdigest() != file.sha256:
        raise RunError(_changed_since(storage, name))
    return data


def _changed_since(storage: Storage, name: str) -> str:
    again = _again(storage, "delete it and ")
    return f"{storage.path(name)} has changed since the run was finished; put it back, or {again}"


def _again(storage: Storage, first: str = "") -> str:
    """Return what makes a file again that is lost, after what has to be done `first`; a training has to begin anew."""
    trained = read_manifest(storage).kind == "train"
    return "train again in another --output" if trained else f"{first}run the run's command again"


def _sizes(storage: Storage, with_model: bool) -> dict[str, int]:
    """Return the sizes of all files of shards, and of those of the model, without its card."""
    found = {folder: storage.sizes(folder, below=True) for folder in (*layout.PER_SHARD, layout.LABELLED)}
    files = {f"{folder}/{n}": size for folder, sizes in found.items() for n, size in sizes.items()}
    sizes = {name: size for name, size in files.items() if layout.is_shard_file(name)}
    if with_model:
        model = storage.sizes(layout.MODEL, below=True)
        sizes |= {f"{layout.MODEL}/{name}": size for name, size in model.items() if name != CARD}
    return sizes
