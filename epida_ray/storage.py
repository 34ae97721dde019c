"""A directory on a local disk or an object store, with writes that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.errors import RequestError


def open_filesystem(location: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem of a path or URL, and the path on it. Local paths become absolute."""
    if "://" not in location:
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(location))
    try:
        return pafs.FileSystem.from_uri(location)
    except (pa.ArrowInvalid, OSError) as error:
        scheme = location.split("://", 1)[0]
        try:
            import fsspec

            filesystem, path = fsspec.core.url_to_fs(location)
        except (ImportError, ValueError, OSError) as other:
            raise RequestError(f"cannot open {location}: {error or other}; is {scheme}:// supported here?") from other
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), path


class Storage:
    """Files under one root. Names are relative and use forward slashes."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/") or "/"
        self._connect()

    def _connect(self) -> None:
        self.filesystem, self.root = open_filesystem(self.location)
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)

    def __getstate__(self) -> dict[str, str]:
        return {"location": self.root if self.is_local else self.location}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.location = state["location"]
        self._connect()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str) -> bool:
        return self.filesystem.get_file_info(self.path(name)).type != pafs.FileType.NotFound

    def names(self, folder: str) -> set[str]:
        """The files directly in `folder`; none when it does not exist. Unfinished writes are left out."""
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True)
        infos = self.filesystem.get_file_info(selector)
        return {i.base_name for i in infos if i.type == pafs.FileType.File and not i.base_name.startswith(".")}

    def read(self, name: str) -> bytes:
        with self.filesystem.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Whole or not at all: a temporary name and a rename on disks, one PUT on object stores."""
        target = self.path(name)
        if not self.is_local:
            with self.filesystem.open_output_stream(target) as stream:
                stream.write(data)
            return
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        temporary = os.path.join(folder, f".{uuid.uuid4().hex}.part")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def write_table(self, name: str, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", compression_level=1)
        self.write(name, sink.getvalue())

    def remove_unfinished(self, folder: str) -> None:
        """Delete what a killed writer left under a temporary name."""
        if self.is_local and os.path.isdir(self.path(folder)):
            for entry in Path(self.path(folder)).glob(".*.part"):
                entry.unlink(missing_ok=True)

    def upload(self, local: Path, folder: str) -> None:
        """Copy a local directory's files into `folder`, each atomically."""
        for file in sorted(p for p in local.rglob("*") if p.is_file()):
            self.write(str(PurePosixPath(folder) / file.relative_to(local).as_posix()), file.read_bytes())

    def local_copy(self, folder: str) -> Path:
        """`folder` as a local directory: itself on a disk, else a copy in a temporary directory."""
        if self.is_local:
            return Path(self.path(folder))
        target = Path(tempfile.mkdtemp(prefix="epida-"))
        for name in self.names(folder):
            (target / name).write_bytes(self.read(f"{folder}/{name}"))
        return target
