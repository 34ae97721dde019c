"""SEAS, the paper's selection: a diversity and a quality score, each min-max normalised within a sample, combined."""

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
Perplexity = Callable[[Sequence[str]], Floats]
"""Texts → their perplexities."""

DIVERSITY = ("rem", "rem-linear", "ppl")
QUALITY = ("cem", "cem-agreement", "neg-entropy", "cosine")
COMBINE = ("add", "multiply", "weighted")


@dataclass(frozen=True)
class SEAS:
    """Keeps the m candidates with the largest s_tot.

    With one score alone s_tot is that score, and the other axis is reported as 0. `pool_original=False` leaves the
    original out of the range that scores are normalised over. `ppl` needs `perplexity` and the batch's texts.
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
                f"there is no selector {'+'.join(names)!r}; it is DIV+QUA with DIV one of {', '.join(DIVERSITY)} "
                f"and QUA one of {', '.join(QUALITY)}, or one of them alone, or random"
            )
        if self.combine not in COMBINE:
            raise RequestError(f"combine must be one of {', '.join(COMBINE)}, not {self.combine!r}")
        if not 0.0 <= self.alpha <= 1.0:
            raise RequestError(f"alpha must lie between 0 and 1, not {self.alpha}")

    def select(self, batch: ScoredBatch, m: int) -> Selection:
        _check(m)
        owner = batch.owner
        p, o, valid = _probabilities(batch, owner)
        s_div = self._axis(self.div, p, o, owner, batch, valid)
        s_qua = self._axis(self.qua, p, o, owner, batch, valid)
        s_tot = self._total(s_div, s_qua)
        if not valid.all():
            for axis in (s_div, s_qua, s_tot):
                axis[~valid[owner]] = 0.0
        kept, counts = pick.largest(s_tot, batch.offsets, valid, m)
        return Selection(s_div, s_qua, s_tot, kept, counts, valid, batch.offsets)

    def _axis(
        self,
        name: str | None,
        p: Probabilities,
        o: Probabilities,
        owner: scores.Ints,
        batch: ScoredBatch,
        valid: NDArray[np.bool_],
    ) -> Floats:
        if name is None:
            return np.zeros(len(p))
        if name == "ppl":
            values, originals = self._perplexities(batch)
            valid &= np.isfinite(originals)
            valid[owner[~np.isfinite(values)]] = False
            values[~valid[owner]] = originals[~valid] = 0.0
        elif name in _OF_LABEL:
            values, originals = _OF_LABEL[name](p, batch.labels[owner]), _OF_LABEL[name](o, batch.labels)
        else:
            values, originals = _OF_ORIGINAL[name](p, o, owner), _OF_ORIGINAL[name](o, o, None)
        if not self.normalize:
            return values
        normal: Floats = pick.normalise(values, originals, batch.offsets, self.pool_original)
        return normal

    def _perplexities(self, batch: ScoredBatch) -> tuple[Floats, Floats]:
        if self.perplexity is None:
            raise RequestError("the score ppl needs a language model: pass perplexity=, texts → perplexities")
        if batch.texts is None or batch.original_texts is None:
            raise RequestError("the score ppl needs the texts of the candidates and of the originals")
        both = np.array(self.perplexity([*batch.texts, *batch.original_texts]), np.float64)
        return both[: len(batch.texts)], both[len(batch.texts) :]

    def _total(self, s_div: Floats, s_qua: Floats) -> Floats:
        if self.div is None or self.qua is None:
            return s_div + s_qua
        if self.combine == "multiply":
            return s_div * s_qua
        if self.combine == "weighted":
            return self.alpha * s_div + (1.0 - self.alpha) * s_qua
        return s_div + s_qua


_OF_LABEL = {"rem": scores.rem, "rem-linear": scores.rem_linear, "cosine": scores.cosine}
_OF_ORIGINAL = {
    "cem": scores.cem,
    "cem-agreement": scores.cem_agreement,
    "neg-entropy": lambda p, _o, _owner: scores.neg_entropy(p),
}

rem, rem_linear, ppl = (partial(SEAS, name, None) for name in DIVERSITY)
cem, cem_agreement, neg_entropy, cosine = (partial(SEAS, None, name) for name in QUALITY)


@dataclass(frozen=True)
class RandomSelector:
    """Keeps m candidates by chance, fixed by the batch's seeds; s_tot is the number drawn, s_div and s_qua are 0."""

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


def _probabilities(batch: ScoredBatch, owner: scores.Ints) -> tuple[Probabilities, Probabilities, NDArray[np.bool_]]:
    """The batch's probabilities, with uniform ones in place of all those of a sample that has something else."""
    p, o = np.ascontiguousarray(batch.probabilities), np.ascontiguousarray(batch.originals)
    valid: NDArray[np.bool_] = pick.valid_samples(p, o, batch.offsets)
    if not valid.all():
        p = np.where(valid[owner, None], p, 1.0 / p.shape[1])
        o = np.where(valid[:, None], o, 1.0 / o.shape[1])
    return p, o, valid
