"""How new weights get from training to the scorers.

The loop knows only `WeightTransfer`; another transport is another class with these methods.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import numpy as np
import ray

from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.runs import checkpoint

POLL = 2.0
"""Seconds that one call to the store waits; callers ask again until their own limit."""


class WeightTransfer(Protocol):
    """Versions of the weights, each a whole; they grow by one with every publish."""

    def publish(self, version: int, weights: dict[str, np.ndarray]) -> None: ...

    def fetch(self, version: int, limit: float) -> dict[str, np.ndarray]:
        """These weights, or a RunError after `limit` seconds that says who was waited for."""
        ...


class _Store:
    """Owns the published weights. All it knows can be had from the run's directory, so it may die and come back."""

    def __init__(self, storage: Storage) -> None:
        self.versions: dict[int, Any] = {}
        self.round = 0
        self.changed = asyncio.Condition()
        found, _ = checkpoint.load(storage)
        if found is not None:
            self.round = found.facts["round"]
            for version in found.facts["versions"]:
                self._keep(version, checkpoint.pack(found.part(f"version-{version}")), found.facts["max_staleness"])

    def _keep(self, version: int, data: bytes, staleness: int) -> None:
        self.versions[version] = ray.put(data)
        for old in [v for v in self.versions if v < max(self.versions) - staleness - 1]:
            del self.versions[old]

    async def publish(self, version: int, data: bytes, staleness: int) -> None:
        async with self.changed:
            self._keep(version, data, staleness)
            self.changed.notify_all()

    async def has(self, version: int) -> bool:
        await self._until(lambda: version in self.versions)
        return version in self.versions

    async def get(self, version: int) -> list[Any]:
        """[a reference to the weights], or [] when they are not there after a while."""
        await self._until(lambda: version in self.versions)
        return [self.versions[version]] if version in self.versions else []

    async def start_round(self, round_: int) -> None:
        async with self.changed:
            self.round = max(self.round, round_)
            self.changed.notify_all()

    async def reached(self, round_: int) -> bool:
        """Whether the loop has got to this round, after waiting a while for it."""
        await self._until(lambda: self.round >= round_)
        return self.round >= round_

    async def _until(self, condition: Any) -> None:
        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait_for(condition), POLL)
            except TimeoutError:
                return


class StoreTransfer:
    """`WeightTransfer` through an actor: by value to the store, by reference from there, one message a version."""

    def __init__(self, store: Any, staleness: int) -> None:
        self.store, self.staleness = store, staleness

    def publish(self, version: int, weights: dict[str, np.ndarray]) -> None:
        ray.get(self.store.publish.remote(version, checkpoint.pack(weights), self.staleness), timeout=300)

    def fetch(self, version: int, limit: float) -> dict[str, np.ndarray]:
        deadline = time.monotonic() + limit
        while True:
            try:
                found = ray.get(self.store.get.remote(version), timeout=POLL + 60)
                if found:
                    return checkpoint.unpack(ray.get(found[0], timeout=300))
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError, ray.exceptions.GetTimeoutError):
                pass  # the store died, and its objects with it; it comes back with what the checkpoint holds
            if time.monotonic() > deadline:
                raise RunError(f"version {version} of the weights was not published within {limit:.0f} s")

    def start_round(self, round_: int) -> None:
        self.store.start_round.remote(round_)

    def wait_for_round(self, round_: int, limit: float) -> None:
        deadline = time.monotonic() + limit
        while True:
            try:
                if ray.get(self.store.reached.remote(round_), timeout=POLL + 60):
                    return
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
                pass
            if time.monotonic() > deadline:
                raise RunError(f"the loop did not reach round {round_} within {limit:.0f} s")


def start_store(storage: Storage, staleness: int) -> StoreTransfer:
    """The store as an actor that takes no CPU and is restarted for ever."""
    remote: Any = ray.remote
    make_actor = remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=1000)
    return StoreTransfer(make_actor(_Store).remote(storage), staleness)
