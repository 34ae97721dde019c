"""The sample, what a generator makes of it, and the seed that fixes its randomness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple


class Sample(NamedTuple):
    """One labelled text with a stable id; one row from end to end."""

    id: str
    text: str
    label: str = ""
    protected: tuple[tuple[int, int], ...] = ()
    """Character spans [start, end) of `text` that no generator may change."""


SoftLabel = Mapping[str, float]
"""Shares of classes, by their labels: they sum to 1, and the sample's own label has the largest."""


class Candidates(NamedTuple):
    """Rewrites of one sample, each with the operation that made it. Fewer than requested is a shortfall, no error."""

    texts: list[str]
    operations: list[str]
    soft: Sequence[SoftLabel | None] | None = None
    """The soft label of each, where it has one; a generator that gives any says so: `soft_labels = True`."""


class Rejected(NamedTuple):
    """A sample that is rejected, and why."""

    reason: str


def sample_seeds(run_seed: int, round_: int, ids: Sequence[str], generator: str, attempt: int) -> list[int]:
    """Return 64-bit seeds that depend on (run seed, round, sample id, generator, attempt) and on nothing else."""
    prefix = blake2b(f"{run_seed}\0{round_}\0{generator}\0{attempt}\0".encode(), digest_size=8)
    seeds = []
    for sample_id in ids:
        h = prefix.copy()
        h.update(sample_id.encode("utf-8", "surrogatepass"))
        seeds.append(int.from_bytes(h.digest(), "little"))
    return seeds


def fold_space(text: str) -> str:
    """Return the text with white space trimmed and folded: two texts are the same candidate when these are equal."""
    return " ".join(text.split())
