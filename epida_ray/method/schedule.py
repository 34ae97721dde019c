"""How long to train: epochs of pre-training and of every round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from epida_ray.classify import Defaults

PRETRAIN_SHARE = 1 / 3


class Schedule(NamedTuple):
    pretrain: int
    """Epochs on the originals alone: round 0."""
    rounds: tuple[int, ...]
    """Epochs of round 1, round 2, …"""

    @property
    def epochs(self) -> int:
        return self.pretrain + sum(self.rounds)

    def of(self, round_: int) -> int:
        return self.rounds[round_ - 1] if round_ else self.pretrain


def make_schedule(
    rows: int,
    rounds: int,
    defaults: Defaults | None,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    pretrain_epochs: int | None = None,
    epochs_per_round: int | None = None,
) -> Schedule:
    """Return the schedule for `rows` rows; None means what suits the classifier.

    A classifier trains for `defaults.epochs` epochs, but large sets stop at the epoch that reaches `steps`. A third of
    them is pre-training and the rounds share the rest evenly. `defaults` is None for a classifier that is fitted in one
    go: every round is one fit.
    """
    if defaults is None:
        return Schedule(1 if pretrain_epochs is None else pretrain_epochs, (epochs_per_round or 1,) * rounds)
    per_epoch = -(-rows // (batch_size or defaults.batch_size))
    total = max(1, min(defaults.epochs, -(-(steps or defaults.steps) // per_epoch)))
    first = max(1, round(total * PRETRAIN_SHARE)) if pretrain_epochs is None else pretrain_epochs
    if epochs_per_round is not None:
        return Schedule(first, (epochs_per_round,) * rounds)
    ends = np.linspace(0, max(rounds, total - first), rounds + 1).round().astype(int)
    return Schedule(first, tuple(np.diff(ends).tolist()))
