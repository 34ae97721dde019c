"""A saved or trained model as a Python user holds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError

CARD = "README.md"
"""The card of a saved model. It describes the model and is no part of it."""


def saved_card(directory: Path) -> str:
    """Return the card beside a saved model."""
    path = directory / CARD
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


class Model:
    """A trained classifier: texts in, labels or probabilities out."""

    def __init__(self, classifier: Any, card: str = "") -> None:
        self.classifier = classifier
        """The classifier itself, with `state`, `embed` and whatever else its kind has."""
        self.card = card
        """Markdown: what it learned from, how good it is, how it was made."""

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
        """Write the model, with its card, to a directory that `epida_ray.load` and every command of `epida` take."""
        self.classifier.save(directory)
        if self.card:
            (Path(directory) / CARD).write_text(self.card, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Model: {self.classifier.describe()}; classes {', '.join(self.labels)}>"
