"""A saved classifier: `config.json` and `model.safetensors`. No pickles, and equal bytes for equal weights."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epida_ray.core.errors import RequestError

if TYPE_CHECKING:
    from epida_ray.data.storage import Storage

CONFIG = "config.json"
TENSORS = "model.safetensors"
OPTIONS = "epida.json"
"""Our options beside the files of a Hugging Face checkpoint."""
PICKLES = {".bin", ".pt", ".pth", ".pkl", ".ckpt"}


def write(directory: Path, state: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> None:
    """Write the configuration last: a directory without one is not a model."""
    from safetensors.numpy import save

    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / TENSORS, save({key: np.ascontiguousarray(state[key]) for key in sorted(state)}))
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=True)
    write_atomically(directory / CONFIG, (text + "\n").encode())


def has_model(storage: Storage, folder: str = "") -> bool:
    """Return whether a place that a request names, or a folder of it, is a saved classifier."""
    return storage.given(f"{folder}/{CONFIG}" if folder else CONFIG)


def write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    if not directory.is_dir():
        raise RequestError(f"there is no model directory {directory}")
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RequestError(f"{directory} is not a saved classifier: it has no {CONFIG}") from None
    except (ValueError, OSError) as error:
        raise RequestError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise RequestError(f"{path} is not the configuration of a classifier")
    return config


def read_tensors(directory: Path, name: str = TENSORS) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = directory / name
    check_safetensors(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise RequestError(f"{path} is damaged or cut short ({error}); save or train the model again") from error


def check_safetensors(path: Path) -> None:
    """Refuse a missing file, and a pickle under this name, before anything reads it."""
    if not path.is_file():
        pickles = [p.name for p in sorted(path.parent.glob("*")) if p.suffix in PICKLES]
        reason = f"only {pickles[0]}, which is a pickle and is not loaded" if pickles else "no weights"
        raise RequestError(f"{path} is missing ({reason}); save the model as safetensors")
    with path.open("rb") as file:
        head = file.read(9)
    # safetensors begin with the length of a JSON header, which may have the first bytes of a pickle: 128 is b"\x80"
    if (head[:2] == b"PK" or head[:1] == b"\x80") and head[8:] != b"{":
        raise RequestError(f"{path} is a pickle, not safetensors, and is not loaded; save the model as safetensors")


def checked_labels(labels: Sequence[str] | None) -> tuple[str, ...]:
    if labels is None:
        raise RequestError("this classifier needs to know its classes; declare the labels")
    names = tuple(labels)
    if isinstance(labels, str) or not all(isinstance(label, str) for label in names):
        raise RequestError("class labels must be a sequence of strings")
    if len(names) < 2:
        raise RequestError(f"a classifier needs at least two classes, not {len(names)}")
    if len(set(names)) < len(names):
        twice = next(label for label in names if names.count(label) > 1)
        raise RequestError(f"the label {twice!r} is declared twice")
    return names


def checked_state(state: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return copies of the arrays as float32; raise a RequestError that names what does not fit."""
    if state.keys() != shapes.keys():
        different = ", ".join(sorted(state.keys() ^ shapes.keys()))
        raise RequestError(f"these weights are of another model: {different}")
    checked = {}
    for key, shape in shapes.items():
        array = np.array(state[key], np.float32, order="C")
        if array.shape != shape:
            raise RequestError(f"the weights' {key} has shape {array.shape}, not {shape}: another label set?")
        if not np.isfinite(array).all():
            raise RequestError(f"the weights' {key} has values that are not finite; lower the learning rate")
        checked[key] = array
    return checked
