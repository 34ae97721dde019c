"""Files that appear whole: by a renaming, or by an upload that is complete."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from epida_ray.core.errors import RequestError

_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"}
"""fsspec's filesystems where a file appears when its upload is complete."""

_ASIDE = ".old"
"""How the name of a file ends, after a dot in front, while another one takes its place."""


def by_renaming(filesystem: pafs.FileSystem) -> bool:
    """Return whether a file is written under a temporary name; an object store shows it once it is complete."""
    if not isinstance(filesystem, pafs.PyFileSystem):
        return isinstance(filesystem, (pafs.LocalFileSystem, pafs.HadoopFileSystem))
    from fsspec import AbstractFileSystem

    protocols = _protocols(filesystem)
    if protocols & _OBJECT_STORES:
        return False
    if type(filesystem.handler.fs).mv is AbstractFileSystem.mv:  # which copies and deletes
        raise RequestError(
            f"files cannot be written atomically to {min(protocols)}://; choose a disk, an object store, hdfs or sftp"
        )
    return True


@contextlib.contextmanager
def new_file(filesystem: pafs.FileSystem, path: str, guard: Callable[[], None] | None = None) -> Iterator[Any]:
    check = guard or (lambda: None)
    if not by_renaming(filesystem):
        check()
        with filesystem.open_output_stream(path, compression=None) as sink:
            yield sink
        return
    folder = path.rpartition("/")[0]
    temporary = f"{folder}/.{uuid.uuid4().hex}.part"
    filesystem.create_dir(folder or "/", recursive=True)
    try:
        if isinstance(filesystem, pafs.LocalFileSystem):
            with Path(temporary).open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            check()
            os.replace(temporary, path)
        else:
            with filesystem.open_output_stream(temporary, compression=None) as sink:
                yield sink
            check()
            move(filesystem, temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(temporary)
        raise


def move(filesystem: pafs.FileSystem, source: str, target: str) -> None:
    """Rename a file. Where that refuses to replace another one, as HDFS does, the other steps aside until it is done;
    readers find it there."""
    inner = filesystem.handler.fs.mv if isinstance(filesystem, pafs.PyFileSystem) else filesystem.move
    try:
        inner(source, target)
    except OSError:
        # a source that is gone, because its run has ended, must not cost the file that another process put there
        if any(info.type != pafs.FileType.File for info in filesystem.get_file_info([source, target])):
            raise
        beside = aside(target)
        delete(filesystem, beside)  # of a writer that was killed after its renaming
        inner(target, beside)
        inner(source, target)
        delete(filesystem, beside)


def aside(path: str) -> str:
    """Return where a file is while another one takes its place."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}{_ASIDE}"


def delete(filesystem: pafs.FileSystem, path: str) -> bool:
    """Delete a file, if it is there; return whether it was."""
    there = bool(filesystem.get_file_info(path).type == pafs.FileType.File)
    if there:
        with contextlib.suppress(FileNotFoundError):
            filesystem.delete_file(path)
    return there


def may_step_aside(filesystem: pafs.FileSystem) -> bool:
    """Return whether a renaming may not replace a file here."""
    if not isinstance(filesystem, pafs.PyFileSystem):
        return isinstance(filesystem, pafs.HadoopFileSystem)
    return not _protocols(filesystem) & _OBJECT_STORES


def _protocols(filesystem: pafs.PyFileSystem) -> set[str]:
    protocol = filesystem.handler.fs.protocol
    return {protocol} if isinstance(protocol, str) else set(protocol)


def recovered(infos: list[pafs.FileInfo]) -> list[pafs.FileInfo]:
    """Return a listing with the files that stepped aside for others which never came, under their own names."""
    there = {info.path for info in infos}
    found = []
    for info in infos:
        if info.base_name.startswith(".") and info.base_name.endswith(_ASIDE):
            folder = info.path.removesuffix(info.base_name)
            name = folder + info.base_name[1:].removesuffix(_ASIDE)
            if name in there:
                continue  # it is deleted with the file, or when that is written again
            info = pafs.FileInfo(name, info.type, size=info.size)
        found.append(info)
    return found
