"""Splitmix64 in counter mode: number i of a seed is mix(seed + i·γ), so any of them is had without those before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def splitmix64(seeds: NDArray[np.uint64], index: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return number `index` of each seed, counted from 1; the arrays are broadcast."""
    with np.errstate(over="ignore"):
        z = seeds + index * _GAMMA
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z
