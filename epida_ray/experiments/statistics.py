"""Differences between methods over paired seeds, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Two-sided 95% points of Student's t for 1, 2, … degrees of freedom."""
FEW_SEEDS = 5
"""With fewer seeds than this, a confidence interval is meaningless."""
COVERAGE = (
    "The confidence intervals cover the choice of the seed, not that of the test set. In simulations with normally "
    "distributed differences they miss the true difference in about 9% of the cases with 5 seeds, in 7% with 8 and in "
    "5% with 10 or more. They are not corrected for multiple comparisons."
)


class Difference(NamedTuple):
    """The mean difference of two methods over paired seeds, with a 95% confidence interval."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> str:
        if self.seeds < FEW_SEEDS:
            return "too few seeds"
        if self.low <= 0.0 <= self.high:
            return "no clear difference"
        return "better" if self.mean > 0 else "worse"

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}] {self.verdict}"


def paired_difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    """Return the mean of a − b with a bootstrap confidence interval over the seeds.

    The plain percentile interval of five numbers covers the true difference too rarely. So its quantiles are moved
    outward until, for normally distributed differences, it is as wide as Student's: the expanded percentile interval of
    Hesterberg (2015).
    """
    differences = np.asarray(a, float) - np.asarray(b, float)
    n = len(differences)
    draws = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    reach = math.sqrt(n / (n - 1)) * STUDENT[min(n - 1, len(STUDENT)) - 1]
    tail = 0.5 * math.erfc(reach / math.sqrt(2))
    low, high = np.quantile(differences[draws].mean(axis=1), [tail, 1 - tail])
    return Difference(float(differences.mean()), float(low), float(high), n)


def mean_and_error(values: Sequence[float]) -> str:
    """Return the mean and its standard error as text, or nothing for fewer than two values."""
    if len(values) < 2:
        return ""
    return f"{np.mean(values):+.3f} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"
