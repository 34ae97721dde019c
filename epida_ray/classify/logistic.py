"""Multinomial logistic regression on dense rows: convex, deterministic, with soft targets and row weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from epida_ray.classify.threads import torch_threads

TOLERANCE = 1e-6


class Head(NamedTuple):
    """Logits are x · weightᵀ + bias."""

    weight: np.ndarray
    """[C, D]"""
    bias: np.ndarray
    """[C]"""


@torch_threads(1)  # a sum's last bits depend on the number of threads
def fit_head(x: np.ndarray, a: np.ndarray, strength: float) -> Head:
    """Return W, b that minimise -Σ_ic a_ic log softmax(W x_i + b)_c + |W|² / (2 strength)."""
    rows = torch.from_numpy(np.asarray(x, np.float64))
    target = torch.from_numpy(np.ascontiguousarray(a))
    # Shifting and rotating the rows changes neither the optimum nor |W|². In these coordinates the problem has at most
    # N dimensions and its curvature is nearly diagonal, so L-BFGS needs few steps.
    mean = rows.mean(dim=0)
    axes = _principal_axes(rows - mean)
    z = torch.cat([(rows - mean) @ axes, torch.ones(len(rows), 1, dtype=torch.float64)], dim=1)
    theta = _optimum(z, target, strength)
    weight = theta[:, :-1] @ axes.T
    return Head(weight.float().numpy(), (theta[:, -1] - weight @ mean).float().numpy())


def _principal_axes(rows: torch.Tensor) -> torch.Tensor:
    """Return [D, min(N, D)] orthonormal columns that span the rows."""
    if len(rows) <= rows.shape[1]:
        return torch.linalg.svd(rows, full_matrices=False).Vh.T
    return torch.linalg.eigh(rows.T @ rows).eigenvectors


def _optimum(z: torch.Tensor, a: torch.Tensor, strength: float) -> torch.Tensor:
    """Return [C, columns of z]; the last column of z is 1, and its coefficient, the bias, is not regularised."""
    from scipy.optimize import minimize

    classes = a.shape[1]
    mass = a.sum(dim=1, keepdim=True)
    total = max(float(mass.sum()), 1e-12)
    ridge = torch.full((z.shape[1],), 1 / strength, dtype=torch.float64)
    ridge[-1] = 0
    # L-BFGS sees φ = θ · scale, with scale² near the curvature Σ_i m_i p (1 - p) z² + 1 / strength
    scale = ((mass * z.square()).sum(dim=0) * (classes - 1) / classes**2 + ridge).clamp(min=1e-12).sqrt()

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(flat).view(classes, -1) / scale
        log_p = torch.log_softmax(z @ theta.T, dim=1)
        gradient = (log_p.exp() * mass - a).T @ z + theta * ridge
        value = -(a * log_p).sum() + 0.5 * (theta.square() * ridge).sum()
        return float(value) / total, (gradient / scale / total).numpy().ravel()

    options = {"maxiter": 500, "maxcor": 10, "gtol": TOLERANCE / total**0.5, "ftol": TOLERANCE**2}
    with threadpool_limits(1, user_api="blas"):  # of scipy, which torch's own limit does not reach
        found = minimize(loss, np.zeros(classes * z.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    return torch.from_numpy(found).view(classes, -1) / scale
