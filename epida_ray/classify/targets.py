"""What a classifier learns from: class numbers [N] or distributions over the classes [N, C], and a weight a row."""

from __future__ import annotations

import numpy as np

from epida_ray.core.errors import RequestError


def distributions(y: np.ndarray, classes: int) -> np.ndarray:
    """Return targets as float64 [N, C]: class numbers become one-hot rows, distributions are checked."""
    y = np.asarray(y)
    if y.ndim == 1:
        return np.eye(classes)[y]
    targets = y.astype(np.float64)
    if targets.shape != (len(y), classes) or not np.isfinite(targets).all() or (targets < 0).any():
        raise RequestError(f"soft targets must be finite, at least 0 and of shape (rows, {classes}), not {y.shape}")
    total = targets.sum(axis=1, keepdims=True)
    if (np.abs(total - 1) > 1e-3).any():
        raise RequestError("each row of soft targets must sum to 1")
    return targets / total


def balanced_weights(targets: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return w_i Σ_c t_ic M / (K M_c), where M_c = Σ_j w_j t_jc, M is their sum and K counts the classes with rows.

    With one-hot targets, every class then has the same total weight and the sum of all weights stays.
    """
    mass = weights @ targets
    factor = np.divide(mass.sum() / max(1, np.count_nonzero(mass)), mass, out=np.zeros_like(mass), where=mass > 0)
    return np.asarray(weights * (targets @ factor))


def cross_entropy(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return -Σ_c t_ic log p_ic for each row, as float64."""
    log_p = np.log(np.maximum(p.astype(np.float64), 1e-10))
    return np.asarray(-(distributions(y, p.shape[1]) * log_p).sum(axis=1))
