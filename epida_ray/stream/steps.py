"""Count the steps of all actors of a run in one actor, so that the driver can tell slow work from work that hangs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray

LIMIT = 60.0
"""Seconds that the count may take to answer."""


class _Count:
    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1

    def count(self) -> int:
        return self.steps


class Steps:
    """`StepCount` on Ray."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def step(self) -> None:
        self._actor.step.remote()

    def steps(self) -> int | None:
        try:
            count: int = ray.get(self._actor.count.remote(), timeout=LIMIT)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):  # it comes back
            return None
        return count


@contextmanager
def counted_steps() -> Iterator[Steps]:
    """Start the count as an actor that takes no CPU, and end it afterwards."""
    remote: Any = ray.remote
    actor = remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Count).remote()
    try:
        yield Steps(actor)
    finally:
        with suppress(Exception):  # Ray may be gone already
            ray.kill(actor)
