"""Find the files of an input: one file, a directory or a glob, on a disk or behind a URL."""

from __future__ import annotations

import json
import os
import posixpath
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pyarrow.fs as pafs

from epida_ray.core.errors import RequestError
from epida_ray.data.formats import KNOWN, format_of, how_to_convert
from epida_ray.data.retry import one_line, with_retries
from epida_ray.data.storage import folder_url, open_filesystem

_DATASET_FILES = {"state.json", "dataset_info.json", "dataset_dict.json"}
"""What Hugging Face's `save_to_disk` writes beside the rows."""


class Found(NamedTuple):
    filesystem: pafs.FileSystem
    root: str
    """The folder on the filesystem that ids are relative to."""
    url: str
    """What opens that folder from another process."""
    names: list[str]
    skipped: list[str]
    """Names of files that are left out, each with the reason."""
    notes: list[str]


def find(location: str, exclude: str | None = None) -> Found:
    """Find the files of `location`, without those below the directory `exclude`, which a run writes to."""
    filesystem, path = open_filesystem(location)
    skipped: list[str] = []
    notes: list[str] = []
    try:
        kind = with_retries(lambda: filesystem.get_file_info(path).type, f"cannot look into {location}")
        wild = [i for i, c in enumerate(path) if c in "*?["]
        if kind == pafs.FileType.NotFound and wild:
            folder = parent(path[: wild[0]])
            pattern = path[len(folder) :].strip("/").split("/")
            walked = _walk(filesystem, folder, skipped)
            names = [n for n in walked if _matches(n.split("/"), pattern)]
            names = _without_output(filesystem, folder, names, walked, exclude, skipped)
            if not names:
                raise RequestError(f"no file matches {location}" + (f"; {skipped[-1]}" if skipped else ""))
        elif kind == pafs.FileType.NotFound:
            raise RequestError(f"no such file or directory: {location}")
        elif kind == pafs.FileType.Directory:
            folder = path
            if exclude is not None and _same(filesystem, path, exclude):
                raise RequestError(f"{location} is the output directory as well; choose another --output")
            walked = _walk(filesystem, path, skipped)
            names = _without_output(filesystem, folder, walked, walked, exclude, skipped)
            notes += _splits(location, names)
            names = _data_files(filesystem, folder, names, skipped)
            if not names:
                raise RequestError(f"{location} does not hold {KNOWN}" + (f"; {skipped[0]}" if skipped else ""))
        else:
            folder, names = parent(path), [posixpath.basename(path)]
    except UnicodeError as error:
        raise RequestError(f"{location!r}: a file name there is not valid UTF-8; rename it") from error
    except OSError as error:
        raise RequestError(f"cannot look into {location}: {one_line(error)}") from error
    return Found(filesystem, folder, folder_url(filesystem, location, path, folder), names, skipped, notes)


def parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Match folder by folder, as a shell does; `**` is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _walk(filesystem: pafs.FileSystem, base: str, skipped: list[str]) -> list[str]:
    """List the files below `base`, sorted, without hidden ones."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return _walk_disk(base, skipped)
    selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
    infos = with_retries(lambda: filesystem.get_file_info(selector), f"cannot look into {base}")
    names = [posixpath.relpath(i.path, base) for i in infos if i.type == pafs.FileType.File]
    return sorted(n for n in names if not any(_hidden(part) for part in n.split("/")))


def _hidden(name: str) -> bool:
    return name[0] in "._"


def _walk_disk(base: str, skipped: list[str]) -> list[str]:
    """List each real file once, whatever links lead to it; by its own name if that is below `base`."""
    found: dict[str, str] = {}  # real path -> name
    folders: set[str] = set()
    links = [base]
    while links:
        here = links.pop(0)
        if os.path.realpath(here) in folders:
            skipped.append(f"{os.path.relpath(here, base)}: a link to a folder that is read already")
            continue
        more: list[str] = []
        for folder, inner, files in os.walk(here, onerror=_raise):
            folders.add(os.path.realpath(folder))
            inner[:] = sorted(n for n in inner if not _hidden(n))
            more += [p for n in inner if os.path.islink(p := os.path.join(folder, n))]
            for path in (os.path.join(folder, n) for n in files if not _hidden(n)):
                name, real = os.path.relpath(path, base), os.path.realpath(path)
                if not os.path.exists(path):
                    skipped.append(f"{name}: a link to {os.readlink(path)}, which does not exist")
                elif real not in found:
                    found[real] = name
                elif os.path.islink(path) or here != base:
                    skipped.append(f"{name}: the same file as {found[real]}")
                else:
                    skipped.append(f"{found[real]}: the same file as {name}")
                    found[real] = name
        links += sorted(more)
    for name in found.values():
        name.encode()  # a UnicodeError here is better than one when the name is written down
    return sorted(found.values())


def _raise(error: OSError) -> None:
    raise error


def _same(filesystem: pafs.FileSystem, folder: str, location: str) -> bool:
    return _inside(filesystem, folder, location) == "."


def _inside(filesystem: pafs.FileSystem, outer: str, location: str) -> str | None:
    """Return the path of `location` relative to the folder `outer`; None if it is not below it."""
    other, path = open_filesystem(location)
    if not other.equals(filesystem):
        return None
    if isinstance(filesystem, pafs.LocalFileSystem):
        outer, path = os.path.realpath(outer), os.path.realpath(path)
    name = posixpath.relpath(path.rstrip("/") or "/", outer.rstrip("/") or "/")
    return None if name == ".." or name.startswith("../") else name


def _without_output(
    filesystem: pafs.FileSystem, root: str, names: list[str], walked: list[str], exclude: str | None, skipped: list[str]
) -> list[str]:
    """Leave out what this run and other runs wrote, unless the input is a part of such a directory.

    `walked` are all files, whose manifests tell runs; `names` are those to be read.
    """
    outputs = {}
    output = None if exclude is None else _inside(filesystem, root, exclude)
    if output not in (None, "."):
        outputs[output] = "the output directory"
    for name in walked:
        folder, base = posixpath.split(name)
        if base != "manifest.json" or folder in outputs or (output == "." and not folder):
            continue
        if any(n.startswith(_below(folder)) for n in names) and _is_run(filesystem, posixpath.join(root, name)):
            if not folder:
                inner = posixpath.join(root, "augmented")
                raise RequestError(f"{root} is the directory of a run, not an input; did you mean {inner}?")
            outputs[folder] = "the directory of another run"
    for folder, what in outputs.items():
        kept = [n for n in names if not n.startswith(_below(folder))]
        if len(kept) < len(names):
            skipped.append(f"{folder}/: {what}, with {len(names) - len(kept):,} files")
        names = kept
    return names


def _below(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _is_run(filesystem: pafs.FileSystem, path: str) -> bool:
    found = _json(filesystem, path)
    return isinstance(found, dict) and {"kind", "status", "request"} <= set(found)


def _splits(location: str, names: list[str]) -> list[str]:
    """Return a line on the splits of a dataset that `save_to_disk` wrote, of which all are read."""
    if "dataset_dict.json" not in names:
        return []
    splits = sorted(n.split("/")[0] for n in names if n.count("/") == 1 and n.endswith("/state.json"))
    return [f"{location}: all splits are read ({', '.join(splits)}); for one of them name {location}/{splits[0]}"]


def _data_files(filesystem: pafs.FileSystem, root: str, names: list[str], skipped: list[str]) -> list[str]:
    """Keep the files of a known format; of a folder that `save_to_disk` wrote, those that its state.json lists."""
    datasets = {
        posixpath.dirname(n): _listed(filesystem, posixpath.join(root, n))
        for n in names
        if posixpath.basename(n) == "state.json"
    }
    kept = []
    for name in names:
        folder, base = posixpath.split(name)
        listed = datasets.get(folder)
        if base in _DATASET_FILES and (listed is not None or base == "dataset_dict.json"):
            continue
        if format_of(name) is None:
            skipped.append(f"{name}: not {KNOWN}; {how_to_convert(name)}")
        elif listed is not None and base not in listed and base.endswith(".arrow"):
            skipped.append(f"{name}: not listed in {posixpath.join(folder, 'state.json')}")
        else:
            kept.append(name)
    return kept


def _listed(filesystem: pafs.FileSystem, path: str) -> set[str] | None:
    """Return the data files that a state.json lists; None if it belongs to no dataset."""
    try:
        return {str(file["filename"]) for file in _json(filesystem, path)["_data_files"]}
    except (KeyError, TypeError):
        return None


def _json(filesystem: pafs.FileSystem, path: str) -> Any:
    """Return what a JSON file holds; None if it is not JSON."""

    def read() -> bytes:
        with filesystem.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    try:
        return json.loads(with_retries(read, f"cannot read {path}"))
    except (ValueError, RecursionError):
        return None
