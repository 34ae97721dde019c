"""Retry storage that fails for a moment, and tell its failures from damaged files."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

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
    intact: Callable[[], bool] = lambda: False,
    final: Callable[[Exception], bool] = lambda _: False,
) -> T:
    """Return what `action` returns; after several failures of the storage raise a TransientError.

    A failure that is `final` is raised as it is. Arrow raises an OSError without a number both for a failing store and
    for damaged content. `intact` says whether the raw bytes can be read: if they can and `action` fails twice, the
    content is at fault and Damaged is raised.
    """
    failed_on_intact_bytes = False
    for wait in (*WAITS, None):
        try:
            return action()
        except Exception as error:
            if not is_storage_failure(error) or final(error):
                raise
            if isinstance(error, PermissionError):
                raise RunError(f"{what}: {one_line(error)}; allow this user to read it") from error
            if getattr(error, "errno", None) is None and _holds(intact):
                if failed_on_intact_bytes:
                    raise Damaged(one_line(error)) from error
                failed_on_intact_bytes = True
            elif wait is not None:
                time.sleep(wait * random.uniform(0.5, 1.5))
            if wait is None:
                raise TransientError(
                    f"{what}: {one_line(error)}; run the same command again once the storage works"
                ) from error
    raise AssertionError("unreachable")


def _holds(intact: Callable[[], bool]) -> bool:
    try:
        return intact()
    except Exception as error:
        if not is_storage_failure(error):
            raise
        return False
