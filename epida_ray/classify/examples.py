"""What a classifier learns from in one round: texts with labels and weights, and the term of the loss they belong to.

L = L_o + L_g + λ L_u: the mean loss of the originals, of their kept rewrites, and of unlabelled texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from epida_ray.classify.targets import balanced_weights, distributions
from epida_ray.core.labels import hard

Loss = Literal["sum", "original", "augmented", "multi-task"]
"""Which of L_o and L_g count; with `multi-task` both do, and L_g has a head of its own (`two_heads.py`)."""
TERMS = ("original", "augmented", "unlabelled")
ORIGINAL, AUGMENTED, UNLABELLED = range(len(TERMS))


class Kept(NamedTuple):
    """The rewrites that were kept of every original, best first."""

    texts: Sequence[Sequence[str]]
    soft: Sequence[np.ndarray] | None = None
    """Of every original [rewrites, C]: a teacher's labels of its rewrites. Without them, they have its label."""

    def followed_by_originals(self, count: int) -> Kept:
        """Return the same rewrites, followed by that many originals without any."""
        soft = None if self.soft is None else [*self.soft, *[np.zeros((0, 0), np.float32)] * count]
        return Kept([*self.texts, *[()] * count], soft)


class PoolTexts(NamedTuple):
    """Unlabelled texts with soft labels."""

    texts: Sequence[str]
    soft: np.ndarray
    """float32 [U, C]"""
    weights: np.ndarray
    """float32 [U], from 0 to 1"""
    share: float = 1.0
    """λ, the weight of L_u."""


class Examples(NamedTuple):
    """Rows in groups, one after another: an original, its rewrites, and its share of the unlabelled texts."""

    texts: list[str]
    y: np.ndarray
    """int64 [N] class numbers, or float32 [N, C] where any label is soft."""
    weights: np.ndarray
    """float32 [N]; the loss is Σ weight · cross-entropy / groups."""
    groups: np.ndarray
    """int64 [N]; ascending."""
    terms: np.ndarray
    """int64 [N]; positions in TERMS."""

    def offsets(self) -> np.ndarray:
        """Return where each group begins, and the end."""
        count = int(self.groups[-1]) + 1 if len(self.groups) else 0
        return np.concatenate(([0], np.cumsum(np.bincount(self.groups, minlength=count)))).astype(np.int64)


def make_examples(
    texts: Sequence[str],
    y: np.ndarray,
    classes: int,
    kept: Kept | None = None,
    loss: Loss = "sum",
    *,
    pool: PoolTexts | None = None,
    balance: bool = False,
) -> Examples:
    """Put together what one round learns from. `y` has class numbers, or soft labels [N, C].

    The weights make the mean over groups L_o + L_g + λ L_u, or with another `loss` only one of the first two. L_g is
    the mean over originals of the mean over their rewrites; L_u is the weighted mean over unlabelled texts. With
    `balance`, an original and its rewrites weigh N / (C · N_c), so that every class counts the same.
    """
    if loss == "augmented" and not (kept is not None and any(kept.texts)):
        loss = "original"  # there are no rewrites to learn from
    soft = y.ndim == 2 or pool is not None or (kept is not None and kept.soft is not None)
    labels = distributions(y, classes) if soft else y
    weight_of = np.ones(len(texts))
    if balance:
        weight_of = balanced_weights(distributions(hard(y), classes), weight_of)
    rows: list[str] = []
    targets, weights, groups, terms = [], [], [], []
    for i, text in enumerate(texts):
        rewrites = kept.texts[i] if kept is not None and loss != "original" else ()
        if loss != "augmented" or not rewrites:
            rows.append(text)
            targets.append(labels[i])
            weights.append(0.0 if loss == "augmented" else weight_of[i])
            groups.append(i)
            terms.append(ORIGINAL)
        count = len(rewrites)
        rows.extend(rewrites)
        targets.extend(kept.soft[i] if kept is not None and kept.soft is not None and count else [labels[i]] * count)
        weights.extend([weight_of[i] / count] * count if count else ())
        groups.extend([i] * count)
        terms.extend([AUGMENTED] * count)
    examples = Examples(
        rows, np.array(targets, np.float32 if soft else np.int64).reshape(len(rows), *labels.shape[1:]),
        np.array(weights, np.float32), np.array(groups, np.int64), np.array(terms, np.int64),
    )  # fmt: skip
    return examples if pool is None else _with_pool(examples, len(texts), pool)


def _with_pool(examples: Examples, originals: int, pool: PoolTexts) -> Examples:
    """Deal the unlabelled texts to the groups, in turn, so that every step has its share of them."""
    total = float(pool.weights.sum())
    if not len(pool.texts) or total <= 0:
        return examples
    weights = pool.weights * (pool.share * originals / total)
    groups = np.concatenate([examples.groups, np.arange(len(pool.texts)) % originals])
    order = np.argsort(groups, kind="stable")
    texts = [*examples.texts, *pool.texts]
    return Examples(
        [texts[i] for i in order.tolist()],
        np.concatenate([examples.y, pool.soft.astype(np.float32)])[order],
        np.concatenate([examples.weights, weights.astype(np.float32)])[order],
        groups[order],
        np.concatenate([examples.terms, np.full(len(pool.texts), UNLABELLED)])[order],
    )
