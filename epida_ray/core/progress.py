"""What a person sees while a run works: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY = 5.0
"""Seconds between plain progress lines."""
SILENCE = 30.0
"""Seconds without news after which a plain line says that the work goes on."""

MESSAGE = 2000
"""Characters of a message; what it quotes from data or files may be of any length."""


def printable(text: str, limit: int = 80) -> str:
    """A text for a log or a terminal: one line, cut, without control characters."""
    line = " ".join(text[: limit * 4].split())
    safe = "".join(c if c.isprintable() else "�" for c in line)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def plain_console(**options: Any) -> Console:
    """A console that shows texts as they are: to rich alone, [b] in one would be markup and :tada: an emoji."""
    return Console(markup=False, emoji=False, highlight=False, **options)


class Reporter:
    """Messages and progress on standard error, so that standard output stays for results."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = plain_console(stderr=True, quiet=quiet, soft_wrap=True)

    def say(self, message: str) -> None:
        self.console.print(printable(message, MESSAGE))

    def warn(self, message: str) -> None:
        self.console.print(printable(f"warning: {message}", MESSAGE), style="yellow")

    def track(self, title: str, total: int, done: int = 0, unit: str = "rows") -> Tracker:
        return Tracker(self.console, title, total, done, unit)


def best_round(number: int, score: float) -> str:
    """What a training run says of its outcome."""
    before = "" if number else " (the pre-training: no rewrites were used)"
    return f"best round {number}{before}: dev macro-F1 {score:.4f}"


class Tracker:
    """Progress over `total` rows or other units, of which some may be done from an earlier attempt."""

    def __init__(self, console: Console, title: str, total: int, done: int, unit: str) -> None:
        self._unit = unit
        self._console = console
        self._title = title
        self._total = total
        self._start_done = self._done = done
        self._started = self._printed = time.monotonic()
        self._over = threading.Event()
        self._bar: Progress | None = None
        if console.is_terminal and not console.quiet:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
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
        self._done = done
        now = time.monotonic()
        rate = (done - self._start_done) / max(now - self._started, 1e-9)
        note = f"{rate:,.{0 if rate >= 10 else 1}f} {self._unit}/s{', ' + note if note else ''}"
        if self._bar:
            self._bar.update(self._task, completed=done, note=note)
        elif now - self._printed >= LINE_EVERY:
            self._printed = now
            left = f", about {_duration((self._total - done) / rate)} left" if rate > 0 else ""
            self._console.print(f"{self._title}: {done:,} of {self._total:,} {self._unit}, {note}{left}")

    def _reassure(self) -> None:
        while not self._over.wait(SILENCE / 10):
            now = time.monotonic()
            if now - self._printed >= SILENCE:
                self._printed = now
                spent = _duration(now - self._started)
                self._console.print(
                    f"{self._title}: at work, {self._done:,} of {self._total:,} {self._unit} after {spent}"
                )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
