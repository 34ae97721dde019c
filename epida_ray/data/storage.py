"""Open paths and URLs, and write files that are there whole or not at all."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.arrow import open_own, open_parquet
from epida_ray.data.atomic import aside, by_renaming, delete, may_step_aside, new_file, recovered
from epida_ray.data.retry import one_line, watched, with_retries

T = TypeVar("T")

_SECRET = re.compile(
    r"(^|[_-])(sig|sas|auth|key|pwd|pw|pass|jwt)($|[_-])|secret|passw|token|signature|credential|passphr|passcode|key(id)?$",
    re.IGNORECASE,
)
"""Names of URL options whose values nobody should read in a manifest."""

_NO_USERS = {"http", "https", "s3", "s3a", "gs", "gcs"}
"""Schemes in whose URLs a user name alone is a token or a key."""


def check_url(location: str) -> None:
    """Refuse a URL with a password or a secret, since a run writes URLs down; a user's name alone is fine."""
    advice = "out of URLs, which a run writes down; set them in the environment, such as AWS_ACCESS_KEY_ID"
    for link in location.split("::"):
        try:
            parts = urlsplit(link)
        except ValueError:
            raise RequestError(
                f"the URL of {link.split(':')[0]}:// is wrong: brackets hold no IPv6 address; give the host by name"
            ) from None
        user = unquote(parts.netloc.rpartition("@")[0])
        host, colon, port = parts.netloc.rpartition(":")
        cut = colon and not port.isdecimal() and not host.startswith("[") and "@" in link  # by a / or # of a password
        if ":" in user or cut or (user and parts.scheme in _NO_USERS):
            raise RequestError(f"keep credentials {advice}")
        for name, _ in parse_qsl(parts.query.replace(";", "&"), keep_blank_values=True):
            if _SECRET.search(name):
                raise RequestError(f"keep credentials such as {name}= {advice}")


def open_filesystem(location: str) -> tuple[pafs.FileSystem, str]:
    """Return the filesystem of a path or URL, and the path on it. Local paths become absolute."""
    local = "://" not in location
    path = os.path.abspath(os.path.expanduser(location)) if local else location
    try:
        path.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{path!r} is not valid UTF-8; rename it, or choose another name") from None
    if local:
        return pafs.LocalFileSystem(), path
    check_url(location)
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
    """Return the URL of a path on the filesystem that the URL `location` is on, with the options of its query."""
    parts = urlsplit(location)
    host = "" if path.split("/", 1)[0] == parts.netloc else parts.netloc
    return f"{parts.scheme}://{host}{quote(path)}" + (f"?{parts.query}" if parts.query else "")


def folder_url(filesystem: pafs.FileSystem, location: str, path: str, folder: str) -> str:
    """Return the URL of `folder`, which is `path` or above it, where `location` is the URL of `path`."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return folder
    if not isinstance(filesystem, pafs.PyFileSystem):
        return url_of(location, folder)
    # Each of fsspec's filesystems decides for itself which part of a URL is the path; with all of them its end is.
    url, chain, rest = location, "", ""
    if not url.endswith(path[len(folder) :]):
        url, chain, rest = location.partition("::")
    url = url.removesuffix(path[len(folder) :])
    return f"{url if '://' in url else url.rstrip('/') + '//'}{chain}{rest}"


def below(location: str, name: str) -> str:
    """Return the path or URL of `name` in the directory `location`."""
    if "://" not in location:
        return f"{location.rstrip('/')}/{name}"
    head, mark, query = location.partition("?")
    return f"{head.rstrip('/')}/{name}{mark}{query}"


def refusal(error: OSError) -> str | None:
    """Return why a disk takes no more: full, over quota, read-only or not ours; None for other errors."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
        return None
    return os.strerror(error.errno)


_PASSING = {
    errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH,
    errno.EINTR, errno.EIO, errno.ENETUNREACH, errno.EPIPE, errno.ESTALE, errno.ETIMEDOUT,
}  # fmt: skip
"""Failures of a disk that may pass. Those of object stores have no number."""


def _is_final(error: Exception) -> bool:
    """Return whether trying again is in vain: the file is not there, the disk is full, the place is no directory."""
    number = getattr(error, "errno", None)
    return isinstance(error, FileNotFoundError) or (number is not None and number not in _PASSING)


class Storage:
    """Files under one root. Names are relative and use forward slashes.

    A failed operation is tried again; if it fails again and again, that is a TransientError.

    A `guard` is called before a file appears or is removed, and may raise: a run checks there that it still owns its
    directory. It travels with the storage to other processes.
    """

    def __init__(self, location: str, guard: Callable[[], None] | None = None) -> None:
        self.location, self.guard = location.rstrip("/") or "/", guard
        self._connect()

    @property
    def url(self) -> str:
        """Return the absolute location, for another process."""
        return self.root if self.is_local else self.location

    def _connect(self) -> None:
        self.filesystem, root = open_filesystem(self.location)
        self.root = root.rstrip("/") or "/"
        self.is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        self._steps_aside = may_step_aside(self.filesystem)

    def __getstate__(self) -> dict[str, Any]:
        return {"location": self.url, "guard": self.guard}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.location, self.guard = state["location"], state["guard"]
        self._connect()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def retried(self, action: Callable[[], T], what: str) -> T:
        """Return what `action` returns, which reads or writes files here, after some attempts if need be."""
        return with_retries(action, f"cannot {what} {self.location}", final=_is_final)

    def exists(self, name: str) -> bool:
        def look() -> bool:
            path = self.path(name)
            places = [path, aside(path), path] if self._steps_aside else [path]
            return any(self.filesystem.get_file_info(place).type != pafs.FileType.NotFound for place in places)

        try:
            return self.retried(look, "look into")
        except OSError as error:
            raise RunError(f"cannot look into {self.location}: {one_line(error)}") from error

    def given(self, name: str) -> bool:
        """Return whether a file exists in a place that a request names: one that cannot be asked is a wrong request."""
        try:
            return self.exists(name)
        except RunError as error:
            reason = one_line(error.__cause__ or error)
            raise RequestError(f"cannot look into {self.location}: {reason}") from error

    def _infos(self, folder: str, recursive: bool = False) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self.path(folder), recursive=recursive, allow_not_found=True)
        infos = self.retried(lambda: list(self.filesystem.get_file_info(selector)), "look into")
        return recovered(infos) if self._steps_aside else infos

    def _opened(self, open_file: Callable[[str], Any], name: str) -> Any:
        """Open a file, also one that is stepping aside."""
        path = self.path(name)
        for place in (path, aside(path)) if self._steps_aside else ():
            with contextlib.suppress(FileNotFoundError):
                return open_file(place)
        return open_file(path)

    def names(self, folder: str, folders: bool = False) -> set[str]:
        """Return the files directly in `folder`; none when it does not exist. Unfinished writes are left out."""
        infos = self._infos(folder)
        wanted = (pafs.FileType.File, pafs.FileType.Directory) if folders else (pafs.FileType.File,)
        return {i.base_name for i in infos if i.type in wanted and not i.base_name.startswith(".")}

    def files_below(self, *tops: str) -> list[str]:
        """Return those of these files that are there, and all files below these folders."""
        return sorted(name for name in self.sizes("", below=True) if name.split("/")[0] in tops)

    def sizes(self, folder: str, below: bool = False) -> dict[str, int]:
        """Return the files directly in `folder`, or also those further below, with their sizes in bytes."""
        infos = (i for i in self._infos(folder, recursive=below) if i.type == pafs.FileType.File)
        root = self.path(folder)
        return {str(PurePosixPath(i.path).relative_to(root)): i.size for i in infos if not i.base_name.startswith(".")}

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            with self._opened(partial(self.filesystem.open_input_stream, compression=None), name) as stream:
                return bytes(stream.read())

        return self.retried(read, "read from")

    def footer(self, name: str) -> pq.FileMetaData:
        """Return the footer of a Parquet file; a damaged one, or one that names an extension type, is a ValueError."""
        return self._from_file(name, lambda file: open_parquet(file, (), None).metadata)

    def from_own(self, name: str, use: Callable[[pq.ParquetFile], T]) -> T:
        """Return what `use` makes of a Parquet file that a run wrote; one that is damaged is a RunError."""
        try:
            return self._from_file(name, lambda file: use(open_own(file, self.path(name))))
        except ValueError as error:
            raise RunError(f"{self.location}/{name} cannot be read: {one_line(error)}; restore or remove it") from error

    def _from_file(self, name: str, use: Callable[[Any], T]) -> T:
        """Return what `use` makes of a file that is opened anew for every attempt."""

        def read(watch: Callable[[Any], Any] = contextlib.nullcontext) -> T:
            with self._opened(self.filesystem.open_input_file, name) as opened, watch(opened) as file:
                return use(file)

        return with_retries(read, f"cannot read from {self.location}", lambda: read(watched), final=_is_final)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Write a file whole or not at all: under a temporary name that is then changed, or with one PUT."""
        buffer = pa.py_buffer(data)

        def write() -> None:
            with new_file(self.filesystem, self.path(name), self.guard) as sink:
                sink.write(buffer)

        try:
            self.retried(write, "write to")
        except FileNotFoundError:  # an owner that was just replaced has removed the temporary file with its own
            if self.guard is not None:
                self.guard()
            self.retried(write, "write to")

    def create(self, name: str, data: bytes) -> str | None:
        """Create a file that one process alone may create; return its name, or None when another one was first.

        A disk refuses the second. Arrow cannot ask an object store for that, so there each process writes beside the
        others, under a name with an ending of its own, and withdraws unless it is alone. Their listings show every
        earlier write, so all may withdraw, but two never stay.
        """
        folder, _, last = name.rpartition("/")
        if self.is_local:
            if self.guard is not None:
                self.guard()
            Path(self.path(folder)).mkdir(parents=True, exist_ok=True)
            try:
                with Path(self.path(name)).open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except FileExistsError:
                return None
            return name
        stem, suffix = last.split(".", 1)
        mine = f"{stem}-{uuid.uuid4().hex[:12]}.{suffix}"
        self.write(f"{folder}/{mine}", data)
        if any(other.startswith(f"{stem}-") for other in self.names(folder) - {mine}):
            self.remove(f"{folder}/{mine}")
            return None
        return f"{folder}/{mine}"

    def write_table(self, name: str, table: pa.Table) -> str:
        """Write a Parquet file and return its SHA-256."""
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", compression_level=1)
        data = sink.getvalue()
        self.write(name, data)
        return sha256(data).hexdigest()

    def remove(self, name: str) -> None:
        if self.guard is not None:
            self.guard()
        tried = False

        def remove() -> None:
            nonlocal tried
            again, tried = tried, True
            if self._steps_aside and delete(self.filesystem, aside(self.path(name))):
                again = True  # the file may be only there
            try:
                self.filesystem.delete_file(self.path(name))
            except FileNotFoundError:
                if not again:  # else the attempt before has done it, and only its answer was lost
                    raise

        self.retried(remove, "delete from")

    def remove_folder(self, name: str) -> None:
        if self.guard is not None:
            self.guard()
        self.retried(lambda: self.filesystem.delete_dir(self.path(name)), "delete from")

    def open(self, name: str) -> pa.NativeFile:
        """Open a file to read parts of it. What fails then is not tried again."""
        return self.retried(lambda: self._opened(self.filesystem.open_input_file, name), "read from")

    def remove_unfinished(self) -> None:
        """Delete what killed writers left under temporary names."""
        if not by_renaming(self.filesystem):
            return
        for info in self._infos("", recursive=True):
            if info.type == pafs.FileType.File and info.base_name.startswith(".") and info.extension == "part":
                if self.guard is not None:
                    self.guard()
                self.retried(partial(delete, self.filesystem, info.path), "delete from")

    def upload(self, local: Path, folder: str) -> None:
        """Copy a local directory's files into `folder`, each atomically; its config.json, which says that a model is
        there, is the last."""
        marker = local / "config.json"
        for file in sorted((p for p in local.rglob("*") if p.is_file()), key=lambda p: (p == marker, p)):
            self.write(str(PurePosixPath(folder) / file.relative_to(local).as_posix()), file.read_bytes())

    def local_copy(self, folder: str) -> Path:
        """Return `folder` as a local directory: itself on a disk, else a copy for the life of this process."""
        if self.is_local:
            return Path(self.path(folder))
        target = Path(tempfile.mkdtemp(prefix="epida-"))
        atexit.register(shutil.rmtree, target, ignore_errors=True)
        self._download(folder, target)
        return target

    @contextlib.contextmanager
    def local(self, folder: str) -> Iterator[Path]:
        """Give `folder` as a local directory for the length of a `with` block."""
        if self.is_local:
            yield Path(self.path(folder))
            return
        with tempfile.TemporaryDirectory(prefix="epida-") as target:
            self._download(folder, Path(target))
            yield Path(target)

    def _download(self, folder: str, target: Path) -> None:
        for info in self._infos(folder, recursive=True):
            if info.type == pafs.FileType.File:
                name = PurePosixPath(info.path).relative_to(self.path(folder))
                file = target / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(self.read(f"{folder}/{name}" if folder else str(name)))


@contextlib.contextmanager
def whole_file(location: str) -> Iterator[Any]:
    """Give a stream to a file that is there when the block is done; nothing is left of a block that fails."""
    filesystem, path = open_filesystem(location)
    if by_renaming(filesystem):
        with new_file(filesystem, path) as sink:
            yield sink
        return
    with tempfile.TemporaryFile() as spool:  # closing a stream to an object store would keep what a failed block wrote
        yield spool

        def copy() -> None:
            spool.seek(0)
            with new_file(filesystem, path) as sink:
                shutil.copyfileobj(spool, sink, 1 << 23)

        try:
            with_retries(copy, f"cannot write {location}", final=_is_final)
        except BaseException:
            with contextlib.suppress(OSError):
                delete(filesystem, path)
            raise
