"""Temperature calibration: one number, found on dev, that makes probabilities say how often they are right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from epida_ray.core.errors import RequestError


class Calibration(NamedTuple):
    temperature: float
    ece_before: float
    """Expected calibration error on dev with temperature 1."""
    ece_after: float


def expected_calibration_error(p: np.ndarray, y: np.ndarray, bins: int = 15) -> float:
    """Return Σ over bins of confidence of (share of rows) · |accuracy - mean confidence| (Guo et al., 2017)."""
    confidence = p.max(axis=1).astype(np.float64)
    right = p.argmax(axis=1) == y
    at = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    gap = np.bincount(at, right - confidence, minlength=bins)
    return float(np.abs(gap).sum() / max(1, len(y)))


def tempered(p: np.ndarray, temperature: float) -> np.ndarray:
    """Return softmax(log p / temperature)."""
    log_p = np.log(np.maximum(p.astype(np.float64), 1e-30)) / temperature
    q = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    return q / q.sum(axis=1, keepdims=True)


def best_temperature(p: np.ndarray, y: np.ndarray) -> float:
    """Return the temperature in [0.05, 20] of the least negative log-likelihood, by golden section on its logarithm."""
    rows = np.arange(len(y))

    def loss(log_t: float) -> float:
        return float(-np.log(np.maximum(tempered(p, np.exp(log_t))[rows, y], 1e-30)).mean())

    low, high = np.log(0.05), np.log(20.0)
    ratio = (5**0.5 - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = loss(a), loss(b)
    while high - low > 1e-4:
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = loss(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = loss(b)
    return float(np.exp((low + high) / 2))


def calibrate(classifier: Any, texts: Sequence[str], y: np.ndarray) -> Calibration:
    """Set the classifier's temperature from the dev split; the order of classes and the accuracy do not change."""
    if not hasattr(classifier, "temperature"):
        raise RequestError(f"{type(classifier).__name__} has no temperature and cannot be calibrated")
    if not len(y):
        raise RequestError("calibration needs a dev split")
    classifier.temperature = 1.0
    p = classifier.predict_proba(texts)
    classifier.temperature = best_temperature(p, y)
    after = expected_calibration_error(classifier.predict_proba(texts), y)
    return Calibration(classifier.temperature, expected_calibration_error(p, y), after)
