"""Stratified folds for cross-validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from epida_ray.method.pool import text_hash


def first_of_text(texts: Sequence[str]) -> np.ndarray:
    """Return int [N]: the first row with the text of each row."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(text_hash(text), i) for i, text in enumerate(texts)], np.int64)


def stratified_folds(texts: Sequence[str], y: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Return int [N]: the fold of each row. Classes are spread evenly, and equal texts share a fold.

    A text in two folds would be both learned from and tested on.
    """
    leader = first_of_text(texts)
    random = np.random.default_rng([seed, 21])
    fold = np.zeros(len(texts), np.int64)
    start = 0
    for label in np.unique(y):
        rows = random.permutation(np.flatnonzero((y == label) & (leader == np.arange(len(y)))))
        fold[rows] = (start + np.arange(len(rows))) % folds  # where one class ends, the next one continues
        start += len(rows)
    return np.asarray(fold[leader])
