"""Random numbers that depend on a sample's seed alone, drawn for a whole batch at once.

The numbers are the halves of splitmix64, so a row can be continued at any place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from epida_ray.core.splitmix import splitmix64

_MASK = (1 << 64) - 1
BITS = 30
"""Numbers are below 2^30, which Python holds in one digit: `%` on them is at its fastest."""

Draw = Callable[[], int]


def rows(seeds: Sequence[int], count: int, first: int = 0) -> list[list[int]]:
    """Return for each seed the 2·count numbers from number 2·first on."""
    state = np.array([seed & _MASK for seed in seeds], dtype=np.uint64)[:, None]
    drawn = splitmix64(state, np.arange(first + 1, first + count + 1, dtype=np.uint64))
    halves = drawn.view(np.uint32) >> np.uint32(32 - BITS)
    numbers: list[list[int]] = halves.tolist()
    return numbers


def streams(seeds: Sequence[int], count: int) -> list[Draw]:
    """Return for each seed all of its numbers; the first 2·count are drawn at once."""
    return [endless(seed, row) for seed, row in zip(seeds, rows(seeds, count), strict=True)]


def endless(seed: int, row: Sequence[int]) -> Draw:
    """Yield the numbers of `row`, the first ones of `seed`, and then those that follow."""
    return chain(row, _rest(seed, len(row) // 2)).__next__


def _rest(seed: int, first: int) -> Iterator[int]:
    count = max(64, first)
    while True:
        yield from rows([seed], count, first)[0]
        first += count
        count = min(2 * count, 1 << 16)


def pick(size: int, count: int, draw: Draw) -> Sequence[int]:
    """Return `count` different numbers below `size`."""
    if count == 1:
        return (draw() % size,)
    if 4 * count <= size:
        few: dict[int, None] = {}
        while len(few) < count:
            few[draw() % size] = None
        return list(few)
    order = list(range(size))
    for i in range(count):
        j = i + draw() % (size - i)
        order[i], order[j] = order[j], order[i]
    return order[:count]
