"""What a user sees while a run works: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY = 5.0
"""Seconds between plain progress lines."""
SILENCE = 30.0
"""Seconds without an update after which a plain line says that the run is still working."""
MESSAGE = 2000
"""Largest number of characters of a message; what it quotes from data or files may be of any length."""


def printable(text: str, limit: int = 80) -> str:
    """Return the text for a log or a terminal: one line, cut to `limit`, without control characters."""
    line = " ".join(text[: limit * 4].split())
    safe = "".join(c if c.isprintable() else "�" for c in line)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def in_notebook() -> bool:
    """Return whether the code runs in a Jupyter notebook."""
    return Console().is_jupyter


def plain_console(**options: Any) -> Console:
    """Return a console that shows texts as they are: rich itself takes [b] for markup and :tada: for an emoji."""
    return Console(markup=False, emoji=False, highlight=False, force_jupyter=False, **options)


class Reporter:
    """Messages and progress on standard error, so that standard output stays free for results.

    In a notebook they go to standard output, because a notebook shows standard error in red, as if it were a failure.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.console = plain_console(stderr=not in_notebook(), quiet=quiet, soft_wrap=True)

    def say(self, message: str) -> None:
        self.console.print(printable(message, MESSAGE))

    def warn(self, message: str) -> None:
        self.console.print(printable(f"warning: {message}", MESSAGE), style="yellow")

    def track(self, title: str, total: int, done: int = 0, unit: str = "rows") -> Tracker:
        return Tracker(self.console, title, total, done, unit)


def best_round(number: int, score: float) -> str:
    """Return the line that says how a training run ended."""
    before = "" if number else " (after pre-training: no rewrites were used)"
    return f"chosen round {number}{before}: dev macro-F1 {score:.4f}"


class Pace:
    """How fast units are done, measured over the latest ones only.

    The time before the first unit is start-up, not work: counting it would make the first estimates far too high.
    """

    APART = 1.0
    """Seconds between two marks, so that many small updates do not leave a window of milliseconds."""
    WINDOW = 30
    """Marks to look back: at least this many seconds or units, whichever is longer."""
    FEW, LONG = 3, 10.0
    """An estimate needs three marks, or two that are ten seconds apart."""

    def __init__(self, done: int) -> None:
        self._last = done
        self._marks: deque[tuple[float, int]] = deque(maxlen=self.WINDOW)

    def update(self, done: int, now: float) -> None:
        """Take note that `done` units are done at the time `now`, in seconds."""
        if done > self._last and (not self._marks or now - self._marks[-1][0] >= self.APART):
            self._last = done
            self._marks.append((now, done))

    def rate(self) -> float | None:
        """Return the units per second, or None while too little is known."""
        if len(self._marks) < 2:
            return None
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        if len(self._marks) < self.FEW and end - start < self.LONG:
            return None
        return (last - first) / (end - start)


class Tracker:
    """Progress over `total` rows or other units, of which an earlier attempt may have done some."""

    def __init__(self, console: Console, title: str, total: int, done: int, unit: str) -> None:
        self._unit = unit
        self._console = console
        self._title = title
        self._total = total
        self._done = done
        self._pace = Pace(done)
        self._started = self._printed = time.monotonic()
        self._over = threading.Event()
        self._bar: Progress | None = None
        if console.is_terminal and not console.quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(title, total=total, completed=done, note="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        elif not self._console.quiet:
            threading.Thread(target=self._reassure, daemon=True, name="epida-progress").start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        if self._bar:
            self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` units are done; `note` is shown beside the speed."""
        self._done = done
        now = time.monotonic()
        self._pace.update(done, now)
        parts = [note] if note else []
        if (rate := self._pace.rate()) is not None:
            parts.insert(0, speed(rate, self._unit))
            if done < self._total:
                parts.append(f"about {duration((self._total - done) / rate)} left")
        if self._bar:
            self._bar.update(self._task, completed=done, note=", ".join(parts))
        elif now - self._printed >= LINE_EVERY:
            self._printed = now
            self._console.print(f"{self._title}: {', '.join([f'{done:,} of {self._total:,} {self._unit}', *parts])}")

    def _reassure(self) -> None:
        while not self._over.wait(SILENCE / 10):
            now = time.monotonic()
            if now - self._printed >= SILENCE:
                self._printed = now
                spent = duration(now - self._started)
                self._console.print(
                    f"{self._title}: still working, {self._done:,} of {self._total:,} {self._unit} after {spent}"
                )


def speed(rate: float, unit: str) -> str:
    """Return units per second, or the time per unit where one takes longer than a second."""
    if rate < 1:
        return f"{duration(1 / rate)} per {unit.removesuffix('s')}"
    return f"{rate:,.{0 if rate >= 10 else 1}f} {unit}/s"


def duration(seconds: float) -> str:
    """Return a time in the unit that suits its length."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
