"""The weights, the round and the count of steps in one actor: `WeightTransport` and `RoundClock` on Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import ray

from epida_ray.core.errors import RunError
from epida_ray.core.steps import Patience
from epida_ray.data.storage import Storage
from epida_ray.runs import checkpoint

POLL = 2.0
"""Seconds that one call to the store waits; callers ask again until their own limit."""


class _Store:
    """Owns the published weights. The run's directory has all that it knows, so it can be restarted."""

    def __init__(self, storage: Storage) -> None:
        self.versions: dict[int, Any] = {}
        self.round = 0
        self.steps = 0
        self.changed = asyncio.Condition()
        found, _ = checkpoint.load(storage)
        if found is not None:
            self.round = max(0, found.facts["round"])
            for version in found.facts["versions"]:
                self._keep(version, checkpoint.pack(found.part(f"version-{version}")), found.facts["max_staleness"])

    def _keep(self, version: int, data: bytes, staleness: int) -> None:
        self.versions[version] = ray.put(data)
        for old in [v for v in self.versions if v < max(self.versions) - staleness - 1]:
            del self.versions[old]

    async def publish(self, version: int, data: bytes, staleness: int) -> None:
        self.steps += 1
        async with self.changed:
            self._keep(version, data, staleness)
            self.changed.notify_all()

    async def has(self, version: int) -> bool:
        await self._until(lambda: version in self.versions)
        return version in self.versions

    async def get(self, version: int) -> list[Any]:
        """Return [a reference to the weights], or [] when they are not there after a while."""
        await self._until(lambda: version in self.versions)
        return [self.versions[version]] if version in self.versions else []

    async def start_round(self, round_: int) -> None:
        self.steps += 1
        async with self.changed:
            self.round = max(self.round, round_)
            self.changed.notify_all()

    async def step(self) -> None:
        self.steps += 1

    async def count(self, _: int) -> int:
        return self.steps

    async def reached(self, round_: int) -> bool:
        """Return whether the loop has reached this round, after waiting a while for it."""
        await self._until(lambda: self.round >= round_)
        return self.round >= round_

    async def _until(self, condition: Any) -> None:
        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait_for(condition), POLL)
            except TimeoutError:
                return


class StoreTransport:
    """Carry weights through an actor: by value to the store, by reference from there, one message per version."""

    def __init__(self, store: Any, staleness: int) -> None:
        self._store, self.staleness = store, staleness

    def publish(self, version: int, weights: dict[str, np.ndarray]) -> None:
        ray.get(self._store.publish.remote(version, checkpoint.pack(weights), self.staleness), timeout=300)

    def is_published(self, version: int) -> bool:
        return bool(_ask(self._store.has, version))

    def fetch(self, version: int, limit: float) -> dict[str, np.ndarray]:
        patience = Patience(limit, self.steps)
        while True:
            with suppress(ray.exceptions.ObjectLostError, ray.exceptions.GetTimeoutError):
                if found := _ask(self._store.get, version):
                    return checkpoint.unpack(ray.get(found[0], timeout=300))
            if patience.over():
                raise RunError(
                    f"version {version} of the weights was not published, and no progress was reported for "
                    f"{limit:.0f} s; --stall-timeout sets the limit"
                )

    def step(self) -> None:
        self._store.step.remote()

    def steps(self) -> int | None:
        count: int | None = _ask(self._store.count, 0)
        return count


class StoreClock:
    """Tell the round through the same actor."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def start(self, round_: int) -> None:
        self._store.start_round.remote(round_)

    def wait(self, round_: int, limit: float) -> None:
        patience = Patience(limit, lambda: _ask(self._store.count, 0))
        while not _ask(self._store.reached, round_):
            if patience.over():
                raise RunError(
                    f"training did not reach round {round_}, and no progress was reported for "
                    f"{limit:.0f} s; --stall-timeout sets the limit"
                )


def _ask(method: Any, argument: int) -> Any:
    """Return the store's answer, or None when it died; it comes back with what the checkpoint holds."""
    try:
        return ray.get(method.remote(argument), timeout=POLL + 60)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
        return None


@contextmanager
def started_store(storage: Storage, staleness: int) -> Iterator[tuple[StoreTransport, StoreClock]]:
    """Start the store as an actor that takes no CPU and that Ray restarts when it dies; end it afterwards."""
    remote: Any = ray.remote
    make_actor = remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=1000)
    store = make_actor(_Store).remote(storage)
    try:
        yield StoreTransport(store, staleness), StoreClock(store)
    finally:
        with suppress(Exception):  # Ray may be gone already
            ray.kill(store)
