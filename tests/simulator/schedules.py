"""One schedule: commands that are started, stopped and killed by chance, then calm, then the account.

The invariant: *finished* means that every planned row is once in kept or rejected, with the bytes of an undisturbed
run, and once nothing disturbs any more, every run gets there. No two owners, and no two train workers, have the same
number; and whatever happens, a user sees a message and no traceback.
"""

from __future__ import annotations

import functools
import random
from contextlib import ExitStack
from typing import Any
from unittest import mock

from epida_ray.core.errors import EpidaError
from epida_ray.method import round_worker
from epida_ray.runs import lease
from tests.simulator import offline, online
from tests.simulator.patches import simulated, with_bug
from tests.simulator.world import FAILURES, Process, World

BESIDE = ("run/manifest.json", "run/owner/", "run/checkpoint/", "run/crashes/", "run/rounds/")
"""Files that may differ from one undisturbed run to the next."""
MOST_COMMANDS = 40
SLICE = 400
"""Most operations between two disturbances."""


class Violation(AssertionError):
    pass


class Schedule:
    """The actions that a seed, or Hypothesis, puts into an order."""

    def __init__(self, choose: random.Random, kind: str, store: bool, bug: int | None = None) -> None:
        self.world = World(choose, store)
        self.choose, self.kind, self.store, self.bug = choose, kind, store, bug
        self.commands: list[tuple[Process, dict[str, Any] | None]] = []
        self.attempts: list[int] = []
        self.owners: list[int] = []

    # actions

    def start(self, request: int = 0, take_over: bool = False) -> Process:
        """Start a command on one of two machines."""
        wanted = offline.REQUESTS[request] if self.kind == "augment" else None
        host = self.choose.choice("ab")
        process = self.world.spawn("driver", lambda: self._command(wanted, take_over), host)
        self.commands.append((process, wanted))
        return process

    def go_on(self, operations: int) -> None:
        self.world.run(operations)
        self.check_processes()

    def kill(self) -> None:
        if process := self._someone():
            self.world.kill(process)

    def pause(self) -> None:
        if process := self._someone():
            process.paused = True

    def resume(self) -> None:
        for process in self.world.processes:
            process.paused = False

    def fail(self) -> None:
        """Let a few operations of a process fail, as a store does that is busy or a disk that is taken away; five of
        those that pass, and one of the others, end a command."""
        if process := self._someone():
            process.failures, process.failure = self.choose.choice([1, 2, 5, 12]), self.choose.choice(FAILURES)

    def fill(self) -> None:
        self.world.full = not self.world.full

    def jump(self) -> None:
        """Let an hour pass for everyone, as when a machine sleeps."""
        self.world.now += 3600

    def damage(self) -> None:
        """Cut off the end of a shard, while no process works on the run."""
        files = sorted(f for f in self.world.files if f.startswith("run/augmented/") and "/." not in f)
        if self.kind == "augment" and files and not self._alive():
            path = self.choose.choice(files)
            self.world.files[path] = self.world.files[path][: self.choose.choice([0, 10, 200])]

    ACTIONS = (kill, kill, pause, resume, fail, fail, fill, jump, damage)

    # the account

    def calm(self) -> None:
        """Stop disturbing, and start the commands again until one of them has finished the run."""
        self.world.full = False
        for process in self.world.processes:
            process.failures = 0
        self.resume()
        self.go_on(100_000)
        requests = range(len(offline.REQUESTS)) if self.kind == "augment" else range(1)
        for _ in range(6):
            for request in requests:
                process = self.start(request)
                self.go_on(1_000_000)
                if process.error is None and process.ended:
                    self.check_finished(request)
                    return
        raise Violation(f"no command finishes the run: {process.error or 'it hangs'}")

    def check_processes(self) -> None:
        """Raise when a process ended with something that no user should see."""
        for process in self.world.processes:
            expected = (EpidaError,) if process.name == "driver" else (EpidaError, OSError, round_worker.Replaced)
            if process.error is not None and not isinstance(process.error, expected):
                raise Violation(f"a traceback: {process.error!r}") from process.error
        for numbers, what in ((self.owners, "owners"), (self.attempts, "train workers")):
            if len(set(numbers)) < len(numbers):
                raise Violation(f"two {what} have the same number: {numbers}")

    def check_finished(self, request: int) -> None:
        found = self.world.snapshot(*BESIDE)
        for name in [n for n in found if n.rpartition("/")[2].startswith(".")]:
            del found[name]  # what a process that was killed late left, which no reader sees
        wanted = undisturbed(self.kind, request)
        if found != wanted:
            names = sorted(n for n in found.keys() | wanted.keys() if found.get(n) != wanted.get(n))
            raise Violation(f"finished, but these files are not those of an undisturbed run: {names}")

    def _command(self, request: dict[str, Any] | None, take_over: bool) -> None:
        if request is None:
            online.command(self.world, self.attempts, take_over)
        else:
            offline.command(self.world, request, take_over, lossy=self.bug == 2)
            self.check_finished(offline.REQUESTS.index(request))

    def _alive(self) -> list[Process]:
        return [p for p in self.world.processes if not p.ended]

    def _someone(self) -> Process | None:
        alive = [p for p in self._alive() if not p.killed]
        return self.choose.choice(alive) if alive else None


class Machine:
    """A schedule in its world, with the real code inside; leave it to end all of its processes."""

    def __init__(self, choose: random.Random, kind: str, store: bool, bug: int | None = None) -> None:
        self.schedule = Schedule(choose, kind, store, bug)
        self.bug = bug

    def __enter__(self) -> Schedule:
        self._stack = ExitStack()
        self._stack.enter_context(simulated(self.schedule.world))
        self._stack.enter_context(with_bug(self.bug))
        claim = lease.claim

        def watched(*arguments: Any) -> Any:
            held = claim(*arguments)
            if held.number:
                self.schedule.owners.append(held.number)
            return held

        self._stack.enter_context(mock.patch.object(lease, "claim", watched))
        self._stack.enter_context(mock.patch.object(round_worker, "load", lambda *_, **__: online.Tiny()))
        self._stack.callback(self.schedule.world.end)
        return self.schedule

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


@functools.cache
def undisturbed(kind: str, request: int) -> dict[str, bytes]:
    """Return the files of a run that nothing disturbs."""
    with Machine(random.Random(0), kind, store=False) as schedule:
        world = schedule.world

        def command() -> None:
            if kind == "augment":
                offline.command(world, offline.REQUESTS[request])
            else:
                online.command(world, [])

        process = world.spawn("driver", command)
        world.run(1_000_000)
        assert process.ended and process.error is None, process.error
        return world.snapshot(*BESIDE)


KNOWN = (*(("augment", request) for request in range(len(offline.REQUESTS))), ("train", 0))
"""All requests of the simulator."""


def by_chance(schedule: Schedule) -> None:
    """Start one or two commands and disturb them, then calm."""
    choose = schedule.choose
    schedule.start()
    for _ in range(choose.randint(0, 8)):
        schedule.go_on(choose.choice([1, 3, 10, 30, 100, SLICE]))
        if choose.random() < 0.3 and len(schedule.commands) < MOST_COMMANDS:
            schedule.start(choose.choice([0, 0, 1, 2]), take_over=choose.random() < 0.2)
        else:
            choose.choice(Schedule.ACTIONS)(schedule)
    schedule.calm()


def seeded(seed: int, bug: int | None = None) -> int:
    """Play the schedule of this seed."""
    for known in KNOWN:
        undisturbed(*known)
    choose = random.Random(seed)
    kind = "train" if choose.random() < 0.2 else "augment"
    try:
        with Machine(choose, kind, choose.random() < 0.5, bug) as schedule:
            by_chance(schedule)
        return schedule.world.operations
    except Violation as violation:
        again = f"python -m tests.simulator --seed {seed}" + (f" --bug {bug}" if bug else "")
        raise Violation(f"{violation}\n  {again}") from violation
