"""Scores of cross-validated recipes and their paired differences.

A recipe's predictions are votes [N, C]: how often each row was taken for each class, over the folds that tested it. A
score is the macro-F1 of all of them together, so that a fold without a rare class does no harm.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

DRAWS = 1000
_AT_ONCE = 200
PERMUTATIONS = 1000


class Interval(NamedTuple):
    """A difference of two scores with its 95% confidence interval and its standard error."""

    mean: float
    low: float
    high: float
    error: float

    @property
    def verdict(self) -> str:
        if self.low <= 0.0 <= self.high:
            return "no clear difference"
        return "better" if self.mean > 0 else "worse"

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def macro_f1(tables: np.ndarray) -> np.ndarray:
    """Return macro-F1 [...] of confusion tables [..., C, C]; a class that occurs nowhere does not count."""
    hits = np.diagonal(tables, axis1=-2, axis2=-1)
    total = tables.sum(axis=-1) + tables.sum(axis=-2)
    f1 = 2 * hits / np.where(total > 0, total, 1)
    return np.asarray(f1.sum(axis=-1) / np.maximum((total > 0).sum(axis=-1), 1))


def confusion(votes: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return [C, C], or with `weights` [B, N] a table for each of B samples of the rows."""
    one_hot = np.eye(votes.shape[1])[y]
    if weights is None:
        return np.asarray(one_hot.T @ votes)
    tables = [weights[:, y == c] @ votes[y == c] for c in range(votes.shape[1])]
    return np.stack(tables, axis=1)


def score(votes: np.ndarray, y: np.ndarray) -> float:
    return float(macro_f1(confusion(votes, y)))


def widening(folds: int) -> float:
    """Return the factor for intervals of cross-validation.

    The training sets of two folds overlap, so their results are not independent. Nadeau and Bengio (2003) put the
    variance of the mean over k folds at 1 + k n_test / n_train = 1 + k / (k − 1) times that of independent ones.
    """
    return math.sqrt(1 + folds / (folds - 1))


def difference(a: np.ndarray, b: np.ndarray, y: np.ndarray, wider: float = 1.0, seed: int = 0) -> Interval:
    """Return score(a) − score(b) with an interval; both have votes [N, C] for the same rows.

    Each row is drawn a Poisson(1) number of times (bootstrap), together with all its votes in both. Votes [S, N, C] are
    those of S runs: runs are drawn, too, so that the interval says what other seeds may give. The interval is `wider`
    times as wide as the draws alone would make it.
    """
    a, b = (one if one.ndim == 3 else one[None] for one in (a, b))
    tested = np.flatnonzero(a.sum(axis=(0, 2)) > 0)
    a, b, y = a[:, tested], b[:, tested], y[tested]
    random, of_runs = np.random.default_rng([seed, 22]), np.random.default_rng([seed, 24])
    n, runs = len(y), len(a)
    draws = []
    for _ in range(DRAWS // _AT_ONCE):
        weights = random.poisson(1.0, size=(_AT_ONCE, n)).astype(np.float64)
        times = of_runs.multinomial(runs, np.full(runs, 1 / runs), size=_AT_ONCE)
        of_a, of_b = (
            sum(times[:, r, None, None] * confusion(votes[r], y, weights) for r in range(runs)) for votes in (a, b)
        )
        draws.append(macro_f1(np.asarray(of_a)) - macro_f1(np.asarray(of_b)))
    drawn = np.concatenate(draws)
    mean = score(a.sum(axis=0), y) - score(b.sum(axis=0), y)
    low, high = np.quantile(drawn, [0.025, 0.975])
    error = wider * float(drawn.std())
    return Interval(mean, mean - wider * max(0.0, mean - low), mean + wider * max(0.0, high - mean), error)


def chance(votes: np.ndarray, y: np.ndarray, seed: int = 0) -> float:
    """Return how likely a score as high as this one is when texts and labels have nothing to do with each other.

    The labels of the tested rows are permuted; the predictions stay.
    """
    tested = np.flatnonzero(votes.sum(axis=1) > 0)
    votes, y = votes[tested], y[tested]
    random = np.random.default_rng([seed, 23])
    seen = score(votes, y)
    as_high = sum(score(votes, random.permutation(y)) >= seen for _ in range(PERMUTATIONS))
    return (1 + as_high) / (1 + PERMUTATIONS)
