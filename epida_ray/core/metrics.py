"""Accuracy and F1 of class predictions. Plain NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def confusion(classes: int, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """Return int64 [C, C]: rows are the true classes, columns the predicted ones."""
    pairs = np.asarray(y_true, np.int64) * classes + np.asarray(y_pred, np.int64)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def scores(labels: Sequence[str], y_true: np.ndarray, y_pred: np.ndarray) -> dict[str, Any]:
    """Return accuracy, macro_f1 and per_class (precision, recall, f1, support) from class numbers.

    macro_f1 is the mean over the classes that occur in the truth or in the predictions; a ratio without cases is 0.
    """
    table = confusion(len(labels), y_true, y_pred)
    hits, support, predicted = table.diagonal(), table.sum(axis=1), table.sum(axis=0)
    precision = hits / np.maximum(predicted, 1)
    recall = hits / np.maximum(support, 1)
    f1 = 2 * hits / np.maximum(support + predicted, 1)
    occurs = support + predicted > 0
    return {
        "accuracy": float(hits.sum() / max(1, table.sum())),
        "macro_f1": float(f1[occurs].mean()) if occurs.any() else 0.0,
        "per_class": {
            label: {
                "precision": float(precision[i]),
                "recall": float(recall[i]),
                "f1": float(f1[i]),
                "support": int(support[i]),
            }
            for i, label in enumerate(labels)
        },
    }


def macro_f1(classes: int, y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float(scores([str(c) for c in range(classes)], y_true, y_pred)["macro_f1"])


BINS = 10


def reliability(hits: np.ndarray, confidence: np.ndarray) -> list[dict[str, float]]:
    """Return the reliability diagram: for each tenth of confidence, the rows, their mean confidence and accuracy."""
    number = np.minimum((np.asarray(confidence) * BINS).astype(int), BINS - 1)
    found = []
    for i in range(BINS):
        inside = number == i
        if inside.any():
            found.append(
                {
                    "rows": int(inside.sum()),
                    "confidence": float(np.mean(np.asarray(confidence)[inside])),
                    "accuracy": float(np.mean(np.asarray(hits)[inside])),
                }
            )
    return found
