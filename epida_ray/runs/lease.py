"""Who owns a run directory: one driver at a time, and it can prove it.

DIR/owner/ holds claims, numbered from 1. A claim is created so that of several processes at most one gets a number;
the newest belongs to the owner, who renews it every BEAT seconds while it lives. Every process that works for the owner
carries the number and compares it with the newest before each write: after a take-over, nothing of the earlier owner
is written any more. The last claim of an owner that ended in order says that the directory is free.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from epida_ray.core.errors import RequestError, RunError, TakenOver, TransientError
from epida_ray.data.retry import one_line
from epida_ray.data.storage import Storage
from epida_ray.runs.layout import OWNER

BEAT = 10.0
"""Seconds between two renewals of a claim."""
EXPIRY = 40.0
"""Seconds without a renewal after which an owner counts as dead."""
FORGOTTEN = 600.0
"""Seconds after which a claim is dead by the clock, without a look at whether it is renewed; clocks of machines differ
by less."""
_CLAIM_ATTEMPTS = 20


class Claim(NamedTuple):
    """The content of a claim."""

    host: str = "another machine"
    pid: int = 0
    started: str = ""
    """When the process was started, by the kernel's count: pids are used again."""
    machine: str = ""
    since: str = "a moment ago"
    renewed: float = 0.0
    beats: int = 0
    free: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class Numbers:
    """Files of one folder that are numbered, and of which each is created by one process alone."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self.storage, self.folder = storage, folder

    def newest(self) -> tuple[int, list[str]]:
        """Return the largest number and the files that have it, which are several while processes compete for it."""
        names = self.storage.names(self.folder)
        number = max((_number(name) for name in names), default=0)
        return number, sorted(name for name in names if _number(name) == number)

    def create(self, number: int, content: dict[str, Any]) -> str | None:
        """Create the file of this number and return its name; None when another process has it."""
        created = self.storage.create(f"{self.folder}/{number:06d}.json", json.dumps(content).encode())
        if created is None:
            return None
        if self.newest()[0] > number:  # it was taken, and forgotten, by others who were faster
            with contextlib.suppress(FileNotFoundError):
                self.storage.remove(created)
            return None
        return created.rpartition("/")[2]

    def forget_before(self, number: int) -> None:
        for name in self.storage.names(self.folder):
            if _number(name) < number:
                with contextlib.suppress(FileNotFoundError):
                    self.storage.remove(f"{self.folder}/{name}")


def take_number(storage: Storage, folder: str, content: dict[str, Any]) -> int:
    """Create the file of the next number, whatever that is, and return the number."""
    numbers = Numbers(storage, folder)
    while True:
        number = numbers.newest()[0] + 1
        if numbers.create(number, content) is not None:
            numbers.forget_before(number)
            return number
        time.sleep(random.uniform(0.01, 0.1))


class Lease:
    """The ownership of one directory. It travels to other processes with the storage that it guards."""

    def __init__(self, location: str, number: int, name: str, claim: Claim) -> None:
        self.location, self.number, self.name, self.claim = location, number, name, claim
        self._connect()

    def _connect(self) -> None:
        self._storage = Storage(self.location)  # without a guard: a claim is no output of the run
        self._numbers = Numbers(self._storage, OWNER)
        self._ended = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in ("location", "number", "name", "claim")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._connect()

    def check(self) -> None:
        """Raise TakenOver unless this lease is the newest."""
        number, names = self._numbers.newest()
        if number > self.number:
            newer = _read(self._storage, names[0])
            raise TakenOver(
                f"{newer} has taken over {self.location}; this command stops without writing"
                if not newer.free
                else f"the run in {self.location} has ended; what comes later is not written"
            )

    def keep(self) -> None:
        """Renew the claim from a thread until it is released or lost."""
        threading.Thread(target=self._renew_regularly, daemon=True, name="epida-lease").start()

    def _renew_regularly(self) -> None:
        while not self._ended.wait(BEAT):
            try:
                self.renew()
            except TakenOver:
                return  # the next write says so
            except (OSError, TransientError):
                continue  # a store that fails for a moment; the claim lasts for several beats

    def renew(self) -> None:
        self.check()
        self.claim = self.claim._replace(renewed=time.time(), beats=self.claim.beats + 1)
        self._storage.write(f"{OWNER}/{self.name}", _dump(self.claim))

    def release(self) -> None:
        """Declare the directory free, unless another one owns it by now."""
        self._ended.set()
        with contextlib.suppress(OSError, RunError):  # the disk may be full; the claim expires then
            self.check()
            if self._numbers.create(self.number + 1, self.claim._replace(free=True)._asdict()) is not None:
                self._numbers.forget_before(self.number + 1)


def claim(location: str, take_over: bool = False) -> Lease:
    """Claim this directory; raise a RequestError that names the owner, unless `take_over` is set."""
    storage = Storage(location)
    numbers = Numbers(storage, OWNER)
    for _ in range(_CLAIM_ATTEMPTS):
        before = storage.names(OWNER)
        number, names = numbers.newest()
        if not take_over:
            for name in names:
                owner = _live_owner(storage, name)
                if owner is not None:
                    raise RequestError(
                        f"{location} is in use by {owner}; wait for it or choose another --output. With --take-over "
                        "this command takes over the directory and the other one stops writing"
                    )
        mine = Claim(
            platform.node(), os.getpid(), process_start(os.getpid()) or "", machine(), _now(), time.time()
        )  # fmt: skip
        try:
            created = numbers.create(number + 1, mine._asdict())
        except (OSError, TransientError) as error:
            reason = getattr(error, "strerror", None) or error.__cause__ or error
            raise RequestError(f"cannot write to {location}: {one_line(reason)}") from error
        if created is not None and not take_over and _competitors(storage, number + 1, before):
            with contextlib.suppress(FileNotFoundError):
                storage.remove(f"{OWNER}/{created}")
            created = None
        if created is not None:
            numbers.forget_before(number + 1)
            return Lease(storage.url, number + 1, created, mine)
        time.sleep(random.uniform(0.05, 0.5))
    raise RequestError(f"{location} is being claimed by several commands at once; start one of them again")


def _competitors(storage: Storage, number: int, before: set[str]) -> bool:
    """Return whether somebody has claimed a smaller number since `before`: one that was withdrawn and looked free."""
    return any(0 < _number(name) < number for name in storage.names(OWNER) - before)


def was_last(storage: Storage, number: int) -> bool:
    """Return whether nobody has owned this directory since the claim of this number."""
    newest, names = Numbers(storage, OWNER).newest()
    return newest == number or (newest == number + 1 and all(_read(storage, name).free for name in names))


def _live_owner(storage: Storage, name: str) -> Claim | None:
    """Return the owner if it may still be alive; look for up to EXPIRY seconds whether it renews its claim."""
    owner = _read(storage, name)
    if owner.free:
        return None
    age = time.time() - owner.renewed
    if owner.machine == machine():
        if process_start(owner.pid) != owner.started:
            return None
        if age < EXPIRY:
            return owner
    if owner.renewed and age > FORGOTTEN:
        return None
    deadline = time.monotonic() + EXPIRY
    while time.monotonic() < deadline:
        time.sleep(1.0)
        newer = _read(storage, name)
        if newer.free:
            return None
        if newer != owner:  # renewed, or only now written to its end
            return newer
    return None


def _read(storage: Storage, name: str) -> Claim:
    """Return a claim; one that is being written or removed this moment says nothing yet."""
    try:
        return Claim(**json.loads(storage.read(f"{OWNER}/{name}")))
    except FileNotFoundError:
        return Claim(free=True)
    except (ValueError, TypeError):
        return Claim()


def _dump(claim: Claim) -> bytes:
    return json.dumps(claim._asdict()).encode()


def _number(name: str) -> int:
    digits = name[:6]
    return int(digits) if digits.isdigit() else 0


@cache
def machine() -> str:
    """Return what tells this machine, since it was started, from others; a container with its own pids is one too."""
    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(parts)


def process_start(pid: int) -> str | None:
    """Return when a process of this machine was started; None when it is gone."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state == "Z" else rest[18]
    except (FileNotFoundError, ProcessLookupError):
        if os.path.exists("/proc/self/stat"):
            return None
    try:  # not Linux: all that is known is whether there is one
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return ""


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
