"""What a selector takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from epida_ray.core.errors import RequestError


@dataclass(frozen=True)
class ScoredBatch:
    """Samples with any number of scored candidates each; sample s owns the candidates offsets[s] to offsets[s + 1].

    Give `labels`, or `targets` for soft labels. With a `teacher` there are two judges: the teacher's probabilities
    give the quality, and `probabilities` and `originals`, those of the learner, give the diversity.
    """

    probabilities: NDArray[np.floating]
    """[N, C], all candidates in order."""
    offsets: NDArray[np.int64]
    """[S + 1], from 0 to N."""
    originals: NDArray[np.floating]
    """[S, C]"""
    labels: NDArray[np.integer] | None = None
    """[S], class numbers; with `targets` alone, the largest of each."""
    texts: Sequence[str] | None = None
    """N candidate texts; only `ppl` reads them."""
    original_texts: Sequence[str] | None = None
    """S texts; only `ppl` reads them."""
    seeds: NDArray[np.uint64] | None = None
    """[S]; only `random` reads them."""
    targets: NDArray[np.floating] | None = None
    """[S, C], soft labels: rows that sum to 1. They take the place of `labels` in every score."""
    candidate_targets: NDArray[np.floating] | None = None
    """[N, C], soft labels of candidates that have their own; the originals keep `labels` or `targets`."""
    teacher: NDArray[np.floating] | None = None
    """[N, C], the teacher's probabilities of the candidates."""
    teacher_originals: NDArray[np.floating] | None = None
    """[S, C], the teacher's probabilities of the originals."""

    def __post_init__(self) -> None:
        p, o, offsets = self.probabilities, self.originals, self.offsets
        if p.ndim != 2 or o.ndim != 2 or p.shape[1] != o.shape[1] or not p.shape[1]:
            raise RequestError(f"probabilities [N, C] and originals [S, C] do not fit: {p.shape} and {o.shape}")
        if offsets.shape != (len(o) + 1,) or offsets[0] != 0 or offsets[-1] != len(p) or (np.diff(offsets) < 0).any():
            raise RequestError(f"offsets must be {len(o) + 1} numbers that rise from 0 to {len(p)}")
        self._check_targets()
        self._check_teacher()
        if self.texts is not None and len(self.texts) != len(p):
            raise RequestError(f"there are {len(self.texts)} texts for {len(p)} candidates")
        if self.original_texts is not None and len(self.original_texts) != len(o):
            raise RequestError(f"there are {len(self.original_texts)} original texts for {len(o)} samples")
        if self.seeds is not None and (self.seeds.shape != (len(o),) or self.seeds.dtype != np.uint64):
            raise RequestError(f"seeds must be {len(o)} numbers of type uint64, one per sample")

    def _check_targets(self) -> None:
        samples, classes = self.originals.shape
        t = self.targets
        if t is not None:
            if t.shape != (samples, classes) or t.dtype.kind != "f":
                raise RequestError(
                    f"soft labels must be floats [{samples}, {classes}], one row per sample, not {t.dtype} {t.shape}"
                )
            if not ((t >= 0).all() and (np.abs(t.sum(axis=1) - 1.0) <= 0.01).all()):
                raise RequestError("soft labels must be probabilities; each row must sum to 1")
            if self.labels is None:
                object.__setattr__(self, "labels", t.argmax(axis=1))
        own = self.candidate_targets
        if own is not None and (own.shape != self.probabilities.shape or own.dtype.kind != "f"):
            raise RequestError(
                f"soft labels of candidates must be floats of the shape {self.probabilities.shape} of probabilities, "
                f"not {own.dtype} {own.shape}"
            )
        y = self.labels
        if y is None:
            raise RequestError("labels are missing; give class numbers as labels, or soft labels as targets")
        if y.shape != (samples,) or (y.dtype.kind not in "iu" and len(y)):
            raise RequestError(f"labels must be {samples} class numbers, one per sample, not {y.dtype} {y.shape}")
        if len(y) and not (y.min() >= 0 and y.max() < classes):
            raise RequestError(f"labels must lie in 0 … {classes - 1}, found {y.min()} … {y.max()}")

    def _check_teacher(self) -> None:
        if self.teacher is None and self.teacher_originals is None:
            return
        if self.teacher is None or self.teacher_originals is None:
            raise RequestError("a teacher needs both teacher and teacher_originals")
        found, needed = (
            (self.teacher.shape, self.teacher_originals.shape),
            (self.probabilities.shape, self.originals.shape),
        )
        if found != needed:
            raise RequestError(
                f"teacher and teacher_originals must have the shapes {needed[0]} and {needed[1]} of probabilities and "
                f"originals, not {found[0]} and {found[1]}"
            )

    @property
    def owner(self) -> NDArray[np.int64]:
        """Return the sample of every candidate, [N]."""
        return np.repeat(np.arange(len(self.originals)), np.diff(self.offsets))


@dataclass(frozen=True)
class Selection:
    """The scores of every candidate, and the candidates to keep. All numbers are finite."""

    s_div: NDArray[np.float64]
    """[N], normalised unless that is turned off; 0 if the selector has no such score."""
    s_qua: NDArray[np.float64]
    """[N], likewise."""
    s_tot: NDArray[np.float64]
    """[N]; the largest win, and of equal ones the earlier."""
    kept: NDArray[np.int64]
    """Candidates by their number in the batch, sample after sample, best first; a short sample has fewer than m."""
    counts: NDArray[np.int64]
    """[S], how many of `kept` belong to each sample."""
    valid: NDArray[np.bool_]
    """[S]; False where a classifier returned anything but probabilities: the scores are 0 and nothing is kept."""
    offsets: NDArray[np.int64]
    """[S + 1], those of the batch."""

    @property
    def rank(self) -> NDArray[np.int64]:
        """Return the rank of each of `kept` within its sample, from 1."""
        starts = np.cumsum(self.counts) - self.counts
        return np.arange(1, len(self.kept) + 1) - np.repeat(starts, self.counts)

    def picks(self) -> list[NDArray[np.int64]]:
        """Return for every sample the positions of its kept candidates among its own, best first."""
        within = self.kept - np.repeat(self.offsets[:-1], self.counts)
        return np.split(within, np.cumsum(self.counts)[:-1]) if len(self.counts) else []


class Selector(Protocol):
    def select(self, batch: ScoredBatch, m: int) -> Selection:
        """Keep m candidates of every sample, or all of them if there are fewer."""
        ...
