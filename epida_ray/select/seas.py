"""Select as the paper does (SEAS): normalise a diversity and a quality score within each sample, and combine them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from epida_ray.core.errors import RequestError
from epida_ray.select import pick, scores
from epida_ray.select.batch import ScoredBatch, Selection

Floats = NDArray[np.float64]
Probabilities = NDArray[np.floating]
Judge = tuple[Probabilities, Probabilities]
"""One classifier's probabilities of the candidates [N, C] and of the originals [S, C]."""
Perplexity = Callable[[Sequence[str]], Floats]
"""Texts → their perplexities."""

DIVERSITY = ("rem", "rem-linear", "ppl", "divergence")
QUALITY = ("cem", "cem-agreement", "neg-entropy", "cosine")
COMBINE = ("add", "multiply", "weighted")


@dataclass(frozen=True)
class SEAS:
    """Keep the m candidates with the largest s_tot.

    With one score alone, s_tot is that score and the other axis is 0. `pool_original=False` leaves the original out of
    the range over which scores are normalised. `ppl` needs `perplexity` and the texts of the batch, `divergence` a
    teacher. If the batch has a teacher, quality is measured on the teacher's probabilities.
    """

    div: str | None = "rem"
    qua: str | None = "cem"
    combine: str = "add"
    alpha: float = 0.5
    normalize: bool = True
    pool_original: bool = True
    perplexity: Perplexity | None = None

    def __post_init__(self) -> None:
        names = [name for name in (self.div, self.qua) if name is not None]
        if not names or self.div not in (None, *DIVERSITY) or self.qua not in (None, *QUALITY):
            raise RequestError(
                f"there is no selector {'+'.join(names)!r}; give DIV+QUA with DIV one of {', '.join(DIVERSITY)} "
                f"and QUA one of {', '.join(QUALITY)}, or one of them alone, or random"
            )
        if self.combine not in COMBINE:
            raise RequestError(f"combine must be one of {', '.join(COMBINE)}, not {self.combine!r}")
        if not 0.0 <= self.alpha <= 1.0:
            raise RequestError(f"alpha must lie between 0 and 1, not {self.alpha}")

    def select(self, batch: ScoredBatch, m: int) -> Selection:
        _check(m)
        owner = batch.owner
        learner, valid = _judge(batch.probabilities, batch.originals, batch.offsets)
        teacher = None
        if batch.teacher is not None and batch.teacher_originals is not None:
            teacher, sound = _judge(batch.teacher, batch.teacher_originals, batch.offsets)
            valid &= sound
        s_div, s_qua = self._diversity(batch, learner, teacher, valid), self._quality(batch, teacher or learner)
        s_tot = self._total(s_div, s_qua)
        if not valid.all():
            for axis in (s_div, s_qua, s_tot):
                axis[~valid[owner]] = 0.0
        kept, counts = pick.largest(s_tot, batch.offsets, valid, m)
        return Selection(s_div, s_qua, s_tot, kept, counts, valid, batch.offsets)

    def _diversity(self, batch: ScoredBatch, learner: Judge, teacher: Judge | None, valid: NDArray[np.bool_]) -> Floats:
        if self.div is None:
            return np.zeros(len(batch.probabilities))
        if self.div == "ppl":
            return self._normalised(*self._perplexities(batch, valid), batch)
        if self.div == "divergence":
            if teacher is None:
                raise RequestError("the score divergence compares with a teacher; give one with --teacher")
            values, originals = (scores.divergence(p, q) for p, q in zip(learner, teacher, strict=True))
            return self._normalised(values, originals, batch)
        return self._normalised(*_against_target(self.div, learner, batch), batch)

    def _quality(self, batch: ScoredBatch, judge: Judge) -> Floats:
        if self.qua is None:
            return np.zeros(len(batch.probabilities))
        if self.qua == "cosine":
            return self._normalised(*_against_target(self.qua, judge, batch), batch)
        p, o = judge
        if self.qua == "neg-entropy":
            return self._normalised(scores.neg_entropy(p), scores.neg_entropy(o), batch)
        score = {"cem": scores.cem, "cem-agreement": scores.cem_agreement}[self.qua]
        return self._normalised(score(p, o, batch.owner), score(o, o), batch)

    def _normalised(self, values: Floats, originals: Floats, batch: ScoredBatch) -> Floats:
        if not self.normalize:
            return values
        normal: Floats = pick.normalise(values, originals, batch.offsets, self.pool_original)
        return normal

    def _perplexities(self, batch: ScoredBatch, valid: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return those of the candidates and of the originals; samples with one that is not finite become invalid."""
        if self.perplexity is None:
            raise RequestError(
                "the score ppl needs a language model; pass perplexity=, a function from texts to numbers"
            )
        if batch.texts is None or batch.original_texts is None:
            raise RequestError("the score ppl needs the texts of the candidates and of the originals")
        both = np.array(self.perplexity([*batch.texts, *batch.original_texts]), np.float64)
        values, originals = both[: len(batch.texts)], both[len(batch.texts) :]
        owner = batch.owner
        valid &= np.isfinite(originals)
        valid[owner[~np.isfinite(values)]] = False
        values[~valid[owner]] = originals[~valid] = 0.0
        return values, originals

    def _total(self, s_div: Floats, s_qua: Floats) -> Floats:
        if self.div is None or self.qua is None:
            return s_div + s_qua
        if self.combine == "multiply":
            return s_div * s_qua
        if self.combine == "weighted":
            return self.alpha * s_div + (1.0 - self.alpha) * s_qua
        return s_div + s_qua


rem, rem_linear, ppl, divergence = (partial(SEAS, name, None) for name in DIVERSITY)
cem, cem_agreement, neg_entropy, cosine = (partial(SEAS, None, name) for name in QUALITY)


@dataclass(frozen=True)
class RandomSelector:
    """Keep m random candidates, fixed by the seeds of the batch; s_tot is the number drawn, s_div and s_qua are 0."""

    def select(self, batch: ScoredBatch, m: int) -> Selection:
        _check(m)
        if batch.seeds is None:
            raise RequestError("the selector random needs seeds, one number of type uint64 per sample")
        none = np.zeros(len(batch.probabilities))
        valid = np.ones(len(batch.originals), np.bool_)
        s_tot = pick.draws(batch.seeds, batch.offsets)
        kept, counts = pick.largest(s_tot, batch.offsets, valid, m)
        return Selection(none, none.copy(), s_tot, kept, counts, valid, batch.offsets)


def _check(m: int) -> None:
    if m < 1:
        raise RequestError(f"m, the number of candidates to keep, must be at least 1, not {m}")


def _judge(p: Probabilities, o: Probabilities, offsets: scores.Ints) -> tuple[Judge, NDArray[np.bool_]]:
    """Return the probabilities and which samples are valid; those of an invalid sample become uniform."""
    p, o = np.ascontiguousarray(p), np.ascontiguousarray(o)
    valid: NDArray[np.bool_] = pick.valid_samples(p, o, offsets)
    if not valid.all():
        owner = np.repeat(np.arange(len(o)), np.diff(offsets))
        p = np.where(valid[owner, None], p, 1.0 / p.shape[1])
        o = np.where(valid[:, None], o, 1.0 / o.shape[1])
    return (p, o), valid


def _against_target(name: str, judge: Judge, batch: ScoredBatch) -> tuple[Floats, Floats]:
    """Return a score that compares predictions with the target, of the candidates and of the originals."""
    score = {"rem": scores.rem, "rem-linear": scores.rem_linear, "cosine": scores.cosine}[name]
    target = batch.labels if batch.targets is None else batch.targets
    assert target is not None
    p, o = judge
    own = batch.candidate_targets
    return score(p, target[batch.owner] if own is None else own), score(o, target)
