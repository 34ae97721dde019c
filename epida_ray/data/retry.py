"""Retry storage that fails for a moment, and tell its failures from damaged files."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from epida_ray.core.errors import RunError, TransientError

T = TypeVar("T")

WAITS = (0.2, 0.4, 0.8, 1.6)
"""Seconds before each further attempt, give or take half."""

_REMOTE_LIBRARIES = {"aiohttp", "azure", "botocore", "gcsfs", "google", "paramiko", "requests", "urllib3"}
"""What fsspec's filesystems are built on; not all of their errors are OSErrors."""


class Damaged(ValueError):
    """The bytes of a file can be read, but their content is damaged."""


def one_line(error: BaseException) -> str:
    """Return what an error says, on one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def is_storage_failure(error: Exception) -> bool:
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _REMOTE_LIBRARIES


def with_retries(
    action: Callable[[], T],
    what: str,
    examine: Callable[[], T] | None = None,
    final: Callable[[Exception], bool] = lambda _: False,
) -> T:
    """Return what `action` returns; after several failures of the storage raise a TransientError.

    A failure that is `final` is raised as it is. Of Parquet and Arrow files, an OSError without a number can mean a
    failing store or damaged content. Then `examine` does the same with the file `watched`, which tells them apart.
    """
    for wait in (*WAITS, None):
        try:
            return action()
        except Exception as error:
            if not is_storage_failure(error) or final(error):
                raise
            if isinstance(error, PermissionError):
                raise RunError(f"{what}: {one_line(error)}; allow this user to read it") from error
            failure = error
        if examine is not None and getattr(failure, "errno", None) is None:
            try:
                return examine()
            except Exception as error:
                if not is_storage_failure(error):
                    raise
        if wait is not None:
            time.sleep(wait * random.uniform(0.5, 1.5))
    raise TransientError(f"{what}: {one_line(failure)}; run the same command again once the storage works") from failure


class _Watched(io.RawIOBase):
    """A file that notes whether a read of it failed, or gave less than there is."""

    def __init__(self, file: Any) -> None:
        self.file, self.bytes, self.failed = file, file.size(), False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self.file.tell())

    def seek(self, offset: int, whence: int = 0) -> int:
        self.file.seek(offset, whence)
        return self.tell()

    def read(self, count: int = -1) -> bytes:
        left = self.bytes - self.tell()
        self.failed = True
        data = bytes(self.file.read(left if count < 0 else count))
        self.failed = len(data) < (left if count < 0 else min(count, left))
        return data


@contextmanager
def watched(file: Any) -> Iterator[pa.NativeFile]:
    """Give the file; raise Damaged if the block fails like a store although it could read all that it asked for."""
    watch = _Watched(file)
    try:
        yield pa.PythonFile(watch, "r")
    except Exception as error:
        if watch.failed or not is_storage_failure(error):
            raise
        raise Damaged(one_line(error)) from error
