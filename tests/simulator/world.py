"""A world that is all in memory: files, a clock, and processes of which one runs at a time.

Every operation on a file is a point where another process may go on, and where this one may fail, be stopped or be
killed. All choices come from one source of randomness, so a schedule is a function of its seed.
"""

from __future__ import annotations

import errno
import io
import random
import threading
from collections.abc import Callable
from typing import Any

import pyarrow.fs as pafs
from fsspec import AbstractFileSystem

PER_OPERATION = 0.01
"""Seconds that an operation on a file takes."""
SWITCH = 0.3
"""How often another process goes on after an operation."""
_mine = threading.local()


def busy() -> OSError:
    """Return what may pass: a disk's error, or that of an object store, which has no number."""
    return OSError(errno.EIO, "Input/output error")


def slow_down() -> OSError:
    return OSError("AWS Error SLOW_DOWN during PutObject operation: please reduce your request rate")


def denied() -> OSError:
    """Return what no other attempt changes."""
    return OSError(errno.EROFS, "Read-only file system")


FAILURES = (busy, busy, slow_down, slow_down, denied)


class Killed(BaseException):
    """The end of a process, at any of its operations."""


class Process:
    """Real code in a thread that runs only while the others wait."""

    def __init__(self, world: World, name: str, main: Callable[[], None], host: str, parent: Process | None) -> None:
        self.world, self.name, self.main, self.host, self.parent = world, name, main, host, parent
        self.pid = len(world.processes) + 1
        self.baton = threading.Lock()
        self.baton.acquire()
        self.wake = 0.0
        self.paused = self.killed = self.ended = False
        self.failures = 0
        """So many of its next operations fail."""
        self.failure: Callable[[], OSError] = busy
        self.error: BaseException | None = None
        self.beat: Callable[[], None] | None = None
        self.next_beat = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.baton.acquire()
        _mine.process = self
        try:
            if not self.killed:
                self.main()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self.world.leave(self)

    def is_ready(self) -> bool:
        return not self.ended and not self.paused and self.wake <= self.world.now


class World:
    """The files, the clock and the processes of one schedule."""

    def __init__(self, choose: random.Random, store: bool = False) -> None:
        self.choose, self.store = choose, store
        self.now = 1e6
        self.files: dict[str, bytes] = {}
        self.processes: list[Process] = []
        self.budget = self.operations = self.names = 0
        self.full = False
        self._controller = threading.Lock()
        self._controller.acquire()
        kind = ObjectStore if store else Disk
        self.filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(kind(self)))

    def spawn(self, name: str, main: Callable[[], None], host: str = "") -> Process:
        parent = getattr(_mine, "process", None)
        process = Process(self, name, main, host or (parent.host if parent else "a"), parent)
        self.processes.append(process)
        return process

    @property
    def current(self) -> Process | None:
        process = getattr(_mine, "process", None)
        return process if process is not None and process.world is self else None

    def run(self, operations: int) -> None:
        """Let the processes do so many operations, or until none can go on."""
        self.budget = operations
        target = self._next()
        if target is not None:
            target.baton.release()
            self._controller.acquire()

    def _next(self) -> Process | None:
        """Choose who goes on; when all sleep, the time passes until one wakes."""
        ready = [p for p in self.processes if p.is_ready()]
        if not ready:
            asleep = [p for p in self.processes if not p.ended and not p.paused]
            if not asleep:
                return None
            self.now = min(p.wake for p in asleep)
            ready = [p for p in asleep if p.wake <= self.now]
        return ready[0] if len(ready) == 1 else self.choose.choice(ready)

    def _pass_on(self, process: Process, target: Process | None) -> None:
        if target is process:
            return
        (self._controller if target is None else target.baton).release()
        process.baton.acquire()

    def leave(self, process: Process) -> None:
        """Pass on for the last time."""
        target = self._next() if self.budget > 0 else None
        (self._controller if target is None else target.baton).release()

    def point(self) -> None:
        """Be where other processes may go on, before an operation."""
        process = self.current
        if process is None:  # the controller, or a thread of Arrow's
            return
        if process.killed:
            raise Killed
        self.now += PER_OPERATION
        self.operations += 1
        self.budget -= 1
        if self.budget <= 0:
            self._pass_on(process, None)
        elif self.choose.random() < SWITCH:
            self._pass_on(process, self._next())
        self._resumed(process)
        if process.failures:
            process.failures -= 1
            raise process.failure()

    def sleep(self, seconds: float) -> None:
        process = self.current
        assert process is not None
        process.wake = self.now + seconds
        self.budget -= 1
        self._pass_on(process, self._next() if self.budget > 0 else None)
        self._resumed(process)

    def _resumed(self, process: Process) -> None:
        if process.killed:
            raise Killed
        if process.beat is not None and self.now >= process.next_beat:
            beat, process.beat, process.next_beat = process.beat, None, self.now + 10
            try:
                beat()
            except OSError:
                pass
            except Exception:
                return  # as the thread that renews a lease, which ends when the lease is lost
            process.beat = beat

    def kill(self, process: Process) -> None:
        process.killed, process.paused, process.wake = True, False, 0.0

    def end(self) -> None:
        """End all processes."""
        while alive := [p for p in self.processes if not p.ended]:
            for process in alive:
                self.kill(process)
            self.run(1_000_000)

    def write(self, path: str, data: bytes) -> None:
        if self.full and data:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.files[path] = data

    def snapshot(self, *without: str) -> dict[str, bytes]:
        return {k: v for k, v in self.files.items() if not k.startswith(without)}


class _File(io.BytesIO):
    """A file that is being written."""

    def __init__(self, world: World, path: str) -> None:
        super().__init__()
        self.world, self.path = world, path

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            if self.world.store:
                self.world.point()
                self.world.write(self.path, data)
                return
            self.world.write(self.path, data[: len(data) // 2])  # a kill at the next point leaves half of it
            self.world.point()
            self.world.write(self.path, data)


class Disk(AbstractFileSystem):
    """Files that are written under a temporary name and renamed."""

    protocol = ("simulated",)
    cachable = False

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def _is_dir(self, path: str) -> bool:
        prefix = f"{path.rstrip('/')}/"
        return any(name.startswith(prefix) for name in self.world.files)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self.world.point()
        path = path.rstrip("/")
        if path in self.world.files:
            return {"name": path, "size": len(self.world.files[path]), "type": "file"}
        if self._is_dir(path):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def exists(self, path: str, **_: Any) -> bool:
        return path in self.world.files or self._is_dir(path)

    def isdir(self, path: str) -> bool:
        return self._is_dir(path)

    def isfile(self, path: str) -> bool:
        return path in self.world.files

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        self.world.point()
        prefix = f"{path.rstrip('/')}/"
        found = {}
        for name, data in self.world.files.items():
            if name.startswith(prefix):
                parts = name.removeprefix(prefix).split("/")
                if maxdepth is None or len(parts) <= maxdepth:
                    found[name] = {"name": name, "size": len(data), "type": "file"}
                elif withdirs:
                    folder = prefix + parts[0]
                    found[folder] = {"name": folder, "size": 0, "type": "directory"}
        return found if detail else sorted(found)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        pass

    def rm(self, path: str, recursive: bool = False, **_: Any) -> None:
        self.world.point()
        if recursive:
            for name in [n for n in self.world.files if n.startswith(f"{path}/")]:
                del self.world.files[name]
        else:
            self.world.files.pop(path, None)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        self.world.point()
        if path1 not in self.world.files:
            raise FileNotFoundError(path1)
        self.world.files[path2] = self.world.files.pop(path1)

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if "r" in mode:
            self.world.point()
            if path not in self.world.files:
                raise FileNotFoundError(path)
            return io.BytesIO(self.world.files[path])
        return _File(self.world, path)


class ObjectStore(Disk):
    """Files that appear when their upload is complete."""

    protocol = ("simulated", "memory")
