"""Report the steps of long work to whoever waits for it; a wait is over when nobody makes a step for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from epida_ray.core.errors import EpidaError

_NOBODY: Callable[[], None] = lambda: None  # noqa: E731
_listener: ContextVar[Callable[[], None]] = ContextVar("epida_steps", default=_NOBODY)


def made_step() -> None:
    """Tell whoever listens that one step of the work is done."""
    _listener.get()()


@contextmanager
def listening(listener: Callable[[], None], every: float = 5.0) -> Iterator[None]:
    """Call the listener when a step is made inside this block, at most once in `every` seconds."""
    heard = -every

    def call() -> None:
        nonlocal heard
        if time.monotonic() - heard >= every:
            heard = time.monotonic()
            listener()

    token = _listener.set(call)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def computing(every: float = 5.0) -> Iterator[None]:
    """Report a step now and then while this process computes: for one long call of a library, which reports none."""
    listener, done = _listener.get(), threading.Event()

    def watch() -> None:
        spent = time.process_time()
        while not done.wait(every):
            if (now := time.process_time()) - spent > every / 10:
                spent = now
                with suppress(EpidaError):  # the caller hears it when it writes
                    listener()

    threading.Thread(target=watch, daemon=True, name="epida-computing").start()
    try:
        yield
    finally:
        done.set()


class Patience:
    """A wait that is over after `limit` seconds in which `steps()` stayed the same."""

    def __init__(self, limit: float, steps: Callable[[], Any]) -> None:
        self._limit, self._steps = limit, steps
        self._seen: Any = self  # equal to nothing that is counted
        self._deadline = 0.0

    def over(self) -> bool:
        steps = self._steps()
        now = time.monotonic()
        if steps != self._seen:
            self._seen, self._deadline = steps, now + self._limit
        return now > self._deadline
