"""Text → class probabilities. Plain Python: no Ray here, and nothing of generate/ or select/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from epida_ray.registry import Builtin, Registry


class Classifier(Protocol):
    """What a scorer needs: class probabilities of texts."""

    labels: tuple[str, ...]

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [N, C]; rows sum to 1, in the order of `texts`."""
        ...


CLASSIFIERS = Registry(
    "classifier",
    {
        "cnn": Builtin("epida_ray.classify.cnn:CNN", "the paper's CNN (Kim) over word vectors"),
    },
)
