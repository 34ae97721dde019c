"""Rows whose label is denied by a classifier trained on the other rows: likely mistakes in the labels.

The count follows confident learning (Northcutt et al., 2021): a row is suspicious when another class than its label
is as likely as that class is, on average, for the rows that have it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from epida_ray.classify import CLASSIFIERS, FittedClassifier, create
from epida_ray.classify.training import TrainingOptions
from epida_ray.method.folds import stratified_folds
from epida_ray.method.trainer import LabelledRows, fit

FOLDS = 5
ENCODER_ROWS = 20_000
"""With more rows, a linear classifier judges them: embedding each text would take minutes."""


class Denied(NamedTuple):
    """A suspicious row: its label's probability, and the class that the classifier takes it for."""

    row: int
    probability: float
    instead: int
    confidence: float


def judge_of(rows: int) -> str:
    """Return the classifier that judges the labels of a file with `rows` rows."""
    missing = any(row.name == "encoder" and row.missing for row in CLASSIFIERS.listing())
    return "linear" if missing or rows > ENCODER_ROWS else "encoder"


def out_of_fold(rows: LabelledRows, labels: tuple[str, ...], classifier: str, seed: int) -> np.ndarray:
    """Return float [N, C]: each row's probabilities by a classifier that was trained on the other folds."""
    fold = stratified_folds(rows.texts, rows.y, FOLDS, seed)
    p = np.zeros((len(rows), len(labels)))
    for number in range(FOLDS):
        test = fold == number
        if not test.any() or test.all():
            continue
        learn, judged = rows.take(np.flatnonzero(~test)), rows.take(np.flatnonzero(test))
        model = create(classifier, labels, seed=seed)
        if isinstance(model, FittedClassifier):
            model.fit(learn.texts, learn.y, np.ones(len(learn), np.float32), seed)
        else:
            fit(model, learn.texts, learn.y, training=TrainingOptions(seed=seed))
        p[test] = model.predict_proba(judged.texts)
    return p


def denied(p: np.ndarray, y: np.ndarray) -> list[Denied]:
    """Return the suspicious rows, the least probable label first."""
    n, classes = p.shape
    # t_c: mean probability of class c over the rows with that label
    usual = np.array([p[y == c, c].mean() if (y == c).any() else np.inf for c in range(classes)])
    sure = np.where(p >= usual, p, -1.0)
    instead = sure.argmax(axis=1)
    suspicious = np.flatnonzero((sure.max(axis=1) > 0) & (instead != y))
    own = p[np.arange(n), y]
    return [
        Denied(int(i), float(own[i]), int(instead[i]), float(p[i, instead[i]]))
        for i in suspicious[np.argsort(own[suspicious], kind="stable")]
    ]
