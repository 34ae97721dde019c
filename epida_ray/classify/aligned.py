"""A classifier whose probabilities have the classes in another order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


class Aligned:
    """Scores as the classifier does, with its classes in the order of `labels`; it is saved as the classifier is."""

    def __init__(self, classifier: Any, labels: Sequence[str]) -> None:
        self.classifier, self.labels = classifier, tuple(labels)
        self._order = [tuple(classifier.labels).index(label) for label in labels]

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        return np.ascontiguousarray(self.classifier.predict_proba(texts)[:, self._order])

    def save(self, directory: str | Path) -> None:
        self.classifier.save(directory)


def aligned(classifier: Any, labels: Sequence[str]) -> Any:
    """Return the classifier, or where its classes are in another order one that has them in this order."""
    return classifier if tuple(classifier.labels) == tuple(labels) else Aligned(classifier, labels)
