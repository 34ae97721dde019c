"""A directory on a local disk or an object store, with writes that are there whole or not at all."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.core.errors import RequestError


def open_filesystem(location: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem of a path or URL, and the path on it. Local paths become absolute."""
    if "://" not in location:
        return pafs.LocalFileSystem(), os.path.abspath(os.path.expanduser(location))
    if any("@" in urlsplit(link).netloc for link in location.split("::")):
        raise RequestError(
            "keep credentials out of URLs, which a run writes down; AWS_ACCESS_KEY_ID and the like are read"
        )
    try:
        filesystem, path = pafs.FileSystem.from_uri(location)
        if isinstance(filesystem, pafs.S3FileSystem):
            rebuild, (options,) = filesystem.__reduce__()
            filesystem = rebuild(options | {"allow_delayed_open": True})  # a file of up to 5 MB is then one PUT
        return filesystem, path
    except (pa.ArrowInvalid, OSError) as error:
        scheme = location.split("://", 1)[0]
        try:
            import fsspec

            filesystem, path = fsspec.core.url_to_fs(location)
        except (ImportError, ValueError, OSError) as other:
            raise RequestError(f"cannot open {location}: {error or other}; is {scheme}:// supported here?") from other
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), path


def url_of(location: str, path: str) -> str:
    """The URL of a path on the filesystem that the URL `location` is on, with the options of its query."""
    parts = urlsplit(location)
    host = "" if path.split("/", 1)[0] == parts.netloc else parts.netloc
    return f"{parts.scheme}://{host}{quote(path)}" + (f"?{parts.query}" if parts.query else "")


def folder_url(filesystem: pafs.FileSystem, location: str, path: str, folder: str) -> str:
    """What opens `folder` anew, which is `path` or above it, where `location` opened `path` on this filesystem."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return folder
    if not isinstance(filesystem, pafs.PyFileSystem):
        return url_of(location, folder)
    # fsspec's filesystems each have their own idea of what of a URL is the path; its end is, with all of them.
    url, chain, rest = location, "", ""
    if not url.endswith(path[len(folder) :]):
        url, chain, rest = location.partition("::")
    url = url.removesuffix(path[len(folder) :])
    return f"{url if '://' in url else url.rstrip('/') + '//'}{chain}{rest}"


def below(location: str, name: str) -> str:
    """The path or URL of something in the directory `location`."""
    if "://" not in location:
        return f"{location.rstrip('/')}/{name}"
    head, mark, query = location.partition("?")
    return f"{head.rstrip('/')}/{name}{mark}{query}"


def refusal(error: OSError) -> str | None:
    """What to say of a disk that takes no more: full, over quota, read-only or not ours; None for other errors."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        return None
    return os.strerror(error.errno)


class Storage:
    """Files under one root. Names are relative and use forward slashes."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/") or "/"
        self._connect()

    @property
    def url(self) -> str:
        """The absolute location, for another process."""
        return self.root if self.is_local else self.location

    def _connect(self) -> None:
        self.filesystem, root = open_filesystem(self.location)
        self.root = root.rstrip("/") or "/"
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)

    def __getstate__(self) -> dict[str, str]:
        return {"location": self.url}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.location = state["location"]
        self._connect()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str) -> bool:
        try:
            return self.filesystem.get_file_info(self.path(name)).type != pafs.FileType.NotFound
        except OSError as error:
            raise RequestError(f"cannot look into {self.location}: {' '.join(str(error).split())[:300]}") from error

    def names(self, folder: str, folders: bool = False) -> set[str]:
        """The files directly in `folder`; none when it does not exist. Unfinished writes are left out."""
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True)
        infos = self.filesystem.get_file_info(selector)
        wanted = (pafs.FileType.File, pafs.FileType.Directory) if folders else (pafs.FileType.File,)
        return {i.base_name for i in infos if i.type in wanted and not i.base_name.startswith(".")}

    def read(self, name: str) -> bytes:
        with self.filesystem.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read())

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Whole or not at all: a temporary name and a rename on disks, one PUT on object stores."""
        target = self.path(name)
        data = pa.py_buffer(data)
        if not self.is_local:
            with self.filesystem.open_output_stream(target) as stream:
                stream.write(data)
            return
        folder = os.path.dirname(target)
        os.makedirs(folder, exist_ok=True)
        temporary = os.path.join(folder, f".{uuid.uuid4().hex}.part")
        try:
            with Path(temporary).open("wb") as file:
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

    def remove(self, name: str) -> None:
        self.filesystem.delete_file(self.path(name))

    def remove_unfinished(self) -> None:
        """Delete what killed writers left under temporary names."""
        if self.is_local:
            for entry in Path(self.root).rglob(".*.part"):
                entry.unlink(missing_ok=True)

    def upload(self, local: Path, folder: str) -> None:
        """Copy a local directory's files into `folder`, each atomically."""
        for file in sorted(p for p in local.rglob("*") if p.is_file()):
            self.write(str(PurePosixPath(folder) / file.relative_to(local).as_posix()), file.read_bytes())

    def local_copy(self, folder: str) -> Path:
        """`folder` as a local directory: itself on a disk, else a copy that is deleted when this process ends."""
        if self.is_local:
            return Path(self.path(folder))
        target = Path(tempfile.mkdtemp(prefix="epida-"))
        atexit.register(shutil.rmtree, target, ignore_errors=True)
        self._download(folder, target)
        return target

    @contextlib.contextmanager
    def local(self, folder: str) -> Iterator[Path]:
        """`folder` as a local directory for the length of a `with` block."""
        if self.is_local:
            yield Path(self.path(folder))
            return
        with tempfile.TemporaryDirectory(prefix="epida-") as target:
            self._download(folder, Path(target))
            yield Path(target)

    def _download(self, folder: str, target: Path) -> None:
        base = self.path(folder)
        for info in self.filesystem.get_file_info(pafs.FileSelector(base, recursive=True)):
            if info.type == pafs.FileType.File:
                file = target / PurePosixPath(info.path).relative_to(base)
                file.parent.mkdir(parents=True, exist_ok=True)
                with self.filesystem.open_input_stream(info.path) as stream:
                    file.write_bytes(stream.read())
