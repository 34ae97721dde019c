"""A saved or trained model as a Python user holds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError


class Model:
    """A trained classifier: texts in, labels or probabilities out."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier
        """The classifier itself, with `state`, `embed` and whatever else its kind has."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.classifier.labels)

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """Return the probability of every class [texts, classes], in the order of `labels`."""
        if isinstance(texts, str):
            raise RequestError("give a list of texts, even for one text: [text]")
        texts = list(texts)
        for text in texts:
            if not isinstance(text, str):
                raise RequestError(f"every text must be a string, not {type(text).__name__}")
        if not texts:
            return np.zeros((0, len(self.labels)), np.float32)
        return np.asarray(self.classifier.predict_proba(texts), np.float32)

    def predict(self, texts: Sequence[str]) -> list[str]:
        """Return the most likely label of every text."""
        return [self.labels[i] for i in self.predict_proba(texts).argmax(axis=1).tolist()]

    def save(self, directory: str | Path) -> None:
        """Write the model to a directory that `epida_ray.load` and every command of `epida` take."""
        self.classifier.save(directory)

    def __repr__(self) -> str:
        return f"<Model: {self.classifier.describe()}; classes {', '.join(self.labels)}>"
