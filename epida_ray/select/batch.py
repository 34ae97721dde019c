"""What a selector is given and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epida_ray.core.errors import RequestError


@dataclass(frozen=True)
class ScoredBatch:
    """Samples with any number of scored candidates each; sample s owns the candidates offsets[s] to offsets[s + 1]."""

    probabilities: NDArray[np.floating]
    """[N, C], all candidates in order."""
    offsets: NDArray[np.int64]
    """[S + 1], from 0 to N."""
    originals: NDArray[np.floating]
    """[S, C]"""
    labels: NDArray[np.integer]
    """[S], class numbers."""
    texts: Sequence[str] | None = None
    """N candidate texts; only `ppl` reads them."""
    original_texts: Sequence[str] | None = None
    """S texts; only `ppl` reads them."""
    seeds: NDArray[np.uint64] | None = None
    """[S]; only `random` reads them."""

    def __post_init__(self) -> None:
        p, o, y, offsets = self.probabilities, self.originals, self.labels, self.offsets
        if p.ndim != 2 or o.ndim != 2 or p.shape[1] != o.shape[1] or not p.shape[1]:
            raise RequestError(f"probabilities [N, C] and originals [S, C] do not fit: {p.shape} and {o.shape}")
        if y.shape != (len(o),) or (y.dtype.kind not in "iu" and len(y)):
            raise RequestError(f"labels must be {len(o)} class numbers, one per sample, not {y.dtype} {y.shape}")
        if len(y) and not (y.min() >= 0 and y.max() < p.shape[1]):
            raise RequestError(f"labels must lie in 0 … {p.shape[1] - 1}, found {y.min()} … {y.max()}")
        if offsets.shape != (len(o) + 1,) or offsets[0] != 0 or offsets[-1] != len(p) or (np.diff(offsets) < 0).any():
            raise RequestError(f"offsets must be {len(o) + 1} numbers that rise from 0 to {len(p)}")
        if self.texts is not None and len(self.texts) != len(p):
            raise RequestError(f"there are {len(self.texts)} texts for {len(p)} candidates")
        if self.original_texts is not None and len(self.original_texts) != len(o):
            raise RequestError(f"there are {len(self.original_texts)} original texts for {len(o)} samples")
        if self.seeds is not None and (self.seeds.shape != (len(o),) or self.seeds.dtype != np.uint64):
            raise RequestError(f"seeds must be {len(o)} numbers of type uint64, one per sample")

    @property
    def owner(self) -> NDArray[np.int64]:
        """[N], the sample of every candidate."""
        return np.repeat(np.arange(len(self.originals)), np.diff(self.offsets))


@dataclass(frozen=True)
class Selection:
    """Every candidate's scores, and the ones to keep. All numbers are finite."""

    s_div: NDArray[np.float64]
    """[N], normalised unless that was turned off; 0 where the selector has no such score."""
    s_qua: NDArray[np.float64]
    """[N], likewise."""
    s_tot: NDArray[np.float64]
    """[N], what was compared: the largest win, and of equal ones the earlier."""
    kept: NDArray[np.int64]
    """Candidates by their number in the batch, sample after sample, best first; a short sample has fewer than m."""
    counts: NDArray[np.int64]
    """[S], how many of `kept` are of each sample."""
    valid: NDArray[np.bool_]
    """[S]; False where the classifier gave something other than probabilities: scores are 0 and nothing is kept."""
    offsets: NDArray[np.int64]
    """[S + 1], those of the batch."""

    @property
    def rank(self) -> NDArray[np.int64]:
        """Of each of `kept` in its sample, from 1."""
        starts = np.cumsum(self.counts) - self.counts
        return np.arange(1, len(self.kept) + 1) - np.repeat(starts, self.counts)

    def picks(self) -> list[NDArray[np.int64]]:
        """For every sample the positions of its kept candidates among its own, best first."""
        within = self.kept - np.repeat(self.offsets[:-1], self.counts)
        return np.split(within, np.cumsum(self.counts)[:-1]) if len(self.counts) else []


class Selector(Protocol):
    def select(self, batch: ScoredBatch, m: int) -> Selection:
        """Keep m candidates of every sample, or all it has where it has fewer."""
        ...
