"""Normalise scores and pick the m candidates to keep, sample by sample, in compiled loops."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from epida_ray.core.splitmix import splitmix64


@njit(cache=True)
def valid_samples(p, originals, offsets):  # type: ignore[no-untyped-def]
    """Return which samples have only probabilities: finite, not negative, rows that sum to 1 within 1%."""
    out = np.ones(len(originals), np.bool_)
    for s in range(len(originals)):
        out[s] = _is_distribution(originals[s])
        for n in range(offsets[s], offsets[s + 1]):
            out[s] = out[s] and _is_distribution(p[n])
    return out


@njit(cache=True)
def _is_distribution(row):  # type: ignore[no-untyped-def]
    total = 0.0
    for c in range(len(row)):
        if not row[c] >= 0.0:
            return False
        total += row[c]
    return abs(total - 1.0) <= 0.01


@njit(cache=True)
def normalise(scores, originals, offsets, with_originals):  # type: ignore[no-untyped-def]
    """Scale to 0 … 1 per sample, over its candidates and, if wanted, its original; a range of 0 gives 0."""
    out = np.zeros(len(scores))
    for s in range(len(offsets) - 1):
        start, end = offsets[s], offsets[s + 1]
        if start == end:
            continue
        low = originals[s] if with_originals else scores[start]
        high = low
        for n in range(start, end):
            low, high = min(low, scores[n]), max(high, scores[n])
        if high > low:
            for n in range(start, end):
                out[n] = (scores[n] - low) / (high - low)
    return out


@njit(cache=True)
def largest(scores, offsets, eligible, m):  # type: ignore[no-untyped-def]
    """Return the m largest of every eligible sample, best first, ties in order: flat indices, and how many of each."""
    samples = len(offsets) - 1
    counts = np.zeros(samples, np.int64)
    for s in range(samples):
        if eligible[s]:
            counts[s] = min(m, offsets[s + 1] - offsets[s])
    kept = np.empty(counts.sum(), np.int64)
    base = 0
    for s in range(samples):
        room = counts[s]
        held = 0
        for n in range(offsets[s], offsets[s + 1] if room else offsets[s]):
            at = held
            while at > 0 and scores[n] > scores[kept[base + at - 1]]:
                at -= 1
            if at == room:
                continue
            held = min(held + 1, room)
            for i in range(held - 1, at, -1):
                kept[base + i] = kept[base + i - 1]
            kept[base + at] = n
        base += room
    return kept, counts


def draws(seeds: NDArray[np.uint64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Draw from [0, 1): candidate j of a sample gets number j + 1 of splitmix64 for the seed of the sample."""
    sizes = np.diff(offsets)
    place = np.arange(1, offsets[-1] + 1) - np.repeat(offsets[:-1], sizes)
    numbers = splitmix64(np.repeat(seeds, sizes), place.astype(np.uint64))
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
