"""What stands between the real code and this machine: the clock, pids, random names. And old bugs, put back."""

from __future__ import annotations

import json
import random
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from epida_ray.core import steps
from epida_ray.data import atomic, retry, storage
from epida_ray.data.storage import Storage
from epida_ray.method import round_worker
from epida_ray.runs import commit, lease, run
from epida_ray.runs.counts import ShardCounts
from epida_ray.runs.run import Run
from tests.simulator.world import World

DIRECTORY = "sim://run"


class _Pool:
    """An executor that does everything at once and in order."""

    def __init__(self, threads: int) -> None:
        pass

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], values: Any) -> list[Any]:
        return [function(value) for value in values]


def _pid_of(world: World) -> int:
    assert world.current is not None
    process = world.current
    while process.parent is not None:
        process = process.parent
    return process.pid


def _started(world: World, pid: int) -> str | None:
    process = world.processes[pid - 1]
    return None if process.ended or process.killed else "then"


def _keep(world: World, held: lease.Lease) -> None:
    """Renew a lease now and then while its process runs, as a thread does in the real one."""
    assert world.current is not None
    world.current.beat, world.current.next_beat = held.renew, world.now + lease.BEAT


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Let the real code live in this world."""
    clock = types.SimpleNamespace(
        time=lambda: world.now, monotonic=lambda: world.now, perf_counter=lambda: world.now, sleep=world.sleep,
        process_time=lambda: 0.0,
        strftime=lambda *_: "2026", gmtime=lambda: None,
    )  # fmt: skip
    chance = types.SimpleNamespace(uniform=world.choose.uniform)

    def unique() -> Any:
        world.names += 1
        return types.SimpleNamespace(hex=f"{random.Random(world.names).getrandbits(128):032x}")

    def here() -> str:
        return world.current.host if world.current else "controller"

    with ExitStack() as stack:
        for module in (lease, retry, steps, round_worker):
            stack.enter_context(mock.patch.object(module, "time", clock))
        for module in (lease, retry):
            stack.enter_context(mock.patch.object(module, "random", chance))
        for target, name, value in (
            (lease, "os", types.SimpleNamespace(getpid=lambda: _pid_of(world))),
            (lease, "machine", here),
            (lease, "process_start", lambda pid: _started(world, pid)),
            (lease.Lease, "keep", lambda self: _keep(world, self)),
            (storage, "open_filesystem", lambda location: (world.filesystem, location.removeprefix("sim://"))),
            (atomic, "uuid", types.SimpleNamespace(uuid4=unique)),
            (storage, "uuid", types.SimpleNamespace(uuid4=unique)),
            (run, "ThreadPoolExecutor", _Pool),
            (commit, "ThreadPoolExecutor", _Pool),
            (run, "versions", dict),
            (Storage, "local_copy", lambda self, folder: folder),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield


# Old bugs. Each is what the code did before it was mended.


class _NoLease:
    number = 0

    def check(self) -> None: ...
    def keep(self) -> None: ...
    def release(self) -> None: ...


def _guess_number(where: Storage, folder: str, content: dict[str, Any]) -> int:
    """Read the number before and write the next, as if nobody else did."""
    name = f"{folder}/attempt.json"
    number = json.loads(where.read(name))["attempt"] + 1 if where.exists(name) else 1
    where.write(name, json.dumps({"attempt": number}).encode())
    return number


class _ImpatientPatience:
    def __init__(self, limit: float, _: Any) -> None:
        self.deadline = steps.time.monotonic() + limit

    def over(self) -> bool:
        return steps.time.monotonic() > self.deadline


def _counts_or_traceback(self: Run, shard: Any) -> ShardCounts:
    import pyarrow.parquet as pq

    with self.storage.open(f"{self.committed}/{self.file_name(shard)}") as file:
        return ShardCounts.from_metadata(pq.ParquetFile(file).metadata.metadata)


class _OldNumbers(lease.Numbers):
    """The newest number, as one file had it."""

    def newest(self) -> tuple[int, list[str]]:
        name = f"{self.folder}/attempt.json"
        return (json.loads(self.storage.read(name))["attempt"], [name]) if self.storage.exists(name) else (0, [])


def _unowned(*_: Any, **__: Any) -> Any:
    return _NoLease()


BUGS: dict[int, list[tuple[Any, str, Any]]] = {
    2: [(Run, "check_complete", lambda self: None)],
    4: [(lease, "claim", _unowned), (Run, "_remove_strangers", lambda self: None)],
    6: [(steps, "Patience", _ImpatientPatience), (round_worker, "Patience", _ImpatientPatience)],
    17: [(Run, "_read_counts", _counts_or_traceback)],
    18: [
        (lease, "claim", _unowned),
        (round_worker, "take_number", _guess_number),
        (round_worker, "Numbers", _OldNumbers),
    ],
}
"""By their number in the list of what was found: the functions that make each of them come back."""


@contextmanager
def with_bug(number: int | None) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, value in BUGS.get(number or 0, []):
            stack.enter_context(mock.patch.object(target, name, value))
        yield
