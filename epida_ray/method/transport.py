"""How new weights get from training to the scorers, and how everyone knows that the run makes progress.

The loop knows only these protocols; `stream/weights.py` implements them with an actor, and tests in other ways.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class StepCount(Protocol):
    """Counts the steps that anyone makes."""

    def step(self) -> None:
        """Tell everyone who waits that the run makes progress."""
        ...

    def steps(self) -> int | None:
        """Return the number of steps so far; another number than before means progress."""
        ...


class WeightTransport(StepCount, Protocol):
    """Carries versions of the weights, each a whole; they grow by one with every publish."""

    staleness: int
    """Rounds by which the weights of a judge may lag behind."""

    def publish(self, version: int, weights: dict[str, np.ndarray]) -> None: ...

    def is_published(self, version: int) -> bool:
        """Return whether these weights can be fetched, after waiting a moment for them."""
        ...

    def fetch(self, version: int, limit: float) -> dict[str, np.ndarray]:
        """Return these weights, or raise RunError after `limit` seconds in which no step is reported."""
        ...


class RoundClock(Protocol):
    """Says how far the loop has come, so that generation does not run too far ahead of it."""

    def start(self, round_: int) -> None: ...

    def wait(self, round_: int, limit: float) -> None:
        """Return when the loop has reached this round, or raise RunError as `fetch` does."""
        ...


def version_for(round_: int, staleness: int) -> int:
    """Return the weights that judge a round: version 1 is the pre-trained one, version r + 1 that after round r."""
    return max(1, round_ - staleness)
