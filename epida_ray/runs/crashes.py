"""Rows that kill the process which works on them: found by halving the shard, from one process to the next.

A process that crashes or runs out of memory leaves no message. So it notes what it is about to do in a file of the
run's directory, and a process that finds such a file knows that the one before it died there. Undisturbed runs write no
such files: only restarted actors look.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field

from epida_ray.core.errors import RunError
from epida_ray.data.storage import Storage
from epida_ray.runs.layout import CRASHES

WHOLE = 2
"""How often a shard is tried as a whole before it is halved: most crashes are not its fault."""
SINGLE = 2
"""How often a single row must kill its process before it is rejected."""
REASON = "its process died each time it worked on this row: a native crash, or too little memory"


@dataclass
class _State:
    """What is known of a shard that killed a process."""

    doing: list[int] | None = None
    """The rows [start, stop) in work, or None for the shard as a whole."""
    deaths: int = 0
    """How often a process died doing just that."""
    halved: bool = False
    left: list[list[int]] = field(default_factory=list)
    """Ranges that are still to be tried alone."""
    bad: list[int] = field(default_factory=list)
    owner: int = 0
    """The number of the claim under which this was written: with its driver, healthy processes die too."""


class Crashes:
    """The memory of one stage of a run for shards that kill. `watching` says whether there is reason to write."""

    def __init__(self, storage: Storage, stage: str, watching: bool, owner: int = 0) -> None:
        self.storage, self.folder, self.owner = storage, f"{CRASHES}/{stage}", owner
        self.watching = watching or bool(storage.names(self.folder))

    @contextmanager
    def survived(self, name: str, rows: int, work: Callable[[int, int], object]) -> Iterator[list[int]]:
        """Yield the rows that kill the process working on them; the block then does the shard without them.

        `work(start, stop)` does a part of the shard; its result does not matter, only that it returns.
        """
        if not self.watching:
            yield []
            return
        file = f"{self.folder}/{name}.json"
        before = self._read(file)
        state = self._after_death(before, file, name, rows)
        try:
            while state.left:
                state.doing, state.deaths = state.left[-1], state.deaths if state.doing == state.left[-1] else 0
                self._save(file, state)
                work(*state.doing)
                state.left.pop()
                state.deaths = 0
            state.doing = None
            self._save(file, state)
            yield state.bad
        except Exception:  # the process lives: this was no death
            if before is None:
                self._remove(file)
            else:
                self.storage.write(file, before)
            raise
        self._remove(file)

    def _read(self, file: str) -> bytes | None:
        try:
            return self.storage.read(file)
        except FileNotFoundError:
            return None

    def _remove(self, file: str) -> None:
        with suppress(FileNotFoundError):
            self.storage.remove(file)

    def _after_death(self, before: bytes | None, file: str, name: str, rows: int) -> _State:
        """Return what to do next, where the process before died."""
        if before is None:
            return _State(owner=self.owner)
        state = _State(**json.loads(before))
        if state.owner != self.owner:
            state.owner = self.owner
            return state
        state.deaths += 1
        if state.doing is None:
            if state.deaths < WHOLE:
                return state
            if state.halved:
                state.deaths = 0  # when the command runs again, it is tried again, with fewer actors perhaps
                self._save(file, state)
                raise RunError(
                    f"the process that works on {rows:,} rows ({name}) dies each time, though it survives each part of "
                    "them alone; it may need more memory than there is: use fewer actors, or smaller -m and -k"
                )
            state.halved, state.deaths, state.left = True, 0, _halves(0, rows)
            return state
        start, stop = state.doing
        if stop - start > 1:
            state.left[-1:] = _halves(start, stop)
        elif state.deaths >= SINGLE:
            state.bad.append(start)
            state.left.pop()
        else:
            return state
        state.doing, state.deaths = None, 0
        return state

    def _save(self, file: str, state: _State) -> None:
        self.storage.write(file, json.dumps(asdict(state)).encode())


def _halves(start: int, stop: int) -> list[list[int]]:
    """Return both halves, the first one last, where it is taken from."""
    if stop - start < 2:
        return [[start, stop]]
    middle = (start + stop) // 2
    return [[middle, stop], [start, middle]]
