"""Independent calls of one function, side by side as Ray tasks."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayError

from epida_ray.core.errors import EpidaError, RequestError, RunError
from epida_ray.stream.pipeline import cause

RETRIES = 3
"""How often Ray repeats a task whose worker died."""
FETCH_LIMIT = 60.0
"""Seconds that the result of a finished task may take to arrive."""


class Outcome(NamedTuple):
    """How one task ended: with a value, or with the reason why it failed."""

    key: str
    value: Any
    failure: str | None = None


def share(value: Any) -> Any:
    """Store a value once for all tasks; tasks get the value where their arguments have what this returns."""
    return ray.put(value)


def run_tasks(
    function: Callable[..., Any], tasks: Mapping[str, tuple[Any, ...]], *, what: str, stall_timeout: float,
    cpus: float = 1, until: float | None = None, hint: str = "",
) -> Iterator[Outcome]:  # fmt: skip
    """Call `function` with each tuple of arguments and yield the outcomes in the order in which they arrive.

    A task that raises, or whose worker dies, yields a failure and leaves the others alone. RunError says that no task
    ended within `stall_timeout` seconds; `hint` says what to do about it, such as which option sets the limit. `what`
    names a task in messages. At the time `until`, of the monotonic clock, tasks that have not ended are cancelled.
    """
    total, largest = _cpus(what)
    remote = ray.remote(num_cpus=min(cpus, largest), max_retries=RETRIES)(_call)
    waiting = list(tasks.items())[::-1]
    running: dict[Any, str] = {}
    try:
        while waiting or running:
            while waiting and len(running) < 2 * total:
                key, arguments = waiting.pop()
                running[remote.remote(function, *arguments)] = key
            left = float("inf") if until is None else max(0.0, until - time.monotonic())
            ended, _ = ray.wait(list(running), num_returns=1, timeout=min(stall_timeout, left))
            if not ended and left < stall_timeout:
                return
            if not ended:
                done = len(tasks) - len(waiting) - len(running)
                raise RunError(
                    f"no {what} ended for {stall_timeout:.0f} s; {done} of {len(tasks)} {what}s ended; `ray status` "
                    f"shows what is pending{hint and '; '}{hint}"
                )
            for task in ended:
                yield _outcome(task, running.pop(task))
    finally:
        for task in running:
            ray.cancel(task, force=True)


def _cpus(what: str) -> tuple[int, int]:
    """Return the CPUs of the cluster and of its largest node."""
    nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    if not any(nodes):
        raise RequestError(f"this Ray has no CPU; a {what} needs at least one")
    return sum(nodes), max(nodes)


def _outcome(task: Any, key: str) -> Outcome:
    try:
        value, failure = ray.get(task, timeout=FETCH_LIMIT)
    except RayError as error:  # the worker died more often than Ray repeats a task
        return Outcome(key, None, cause(error))
    return Outcome(key, value, failure)


def _call(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
    try:
        return function(*arguments), None
    except EpidaError as error:
        return None, str(error)
    except Exception as error:  # plug-ins may raise anything
        return None, f"{type(error).__name__}: {error}"
    finally:
        _trim_heap()


def _trim_heap() -> None:
    """Return freed memory to the system: glibc keeps it, gigabytes after training a few transformers."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        gc.collect()
        libc.malloc_trim(0)
