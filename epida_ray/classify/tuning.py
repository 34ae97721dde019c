"""Tuning a sentence encoder on labelled texts, before a head is fitted on its embeddings.

`contrastive` pulls texts of one label together and pushes others apart, on all pairs of a batch; `full` trains the
encoder with a linear head by cross-entropy. Same seed and number of threads, same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from epida_ray.classify.sentence import SentenceEncoder
from epida_ray.classify.threads import torch_threads
from epida_ray.core.errors import RunError
from epida_ray.core.steps import made_step

BATCH = 32
WARM_UP = 0.1
CLIP = 1.0


def tune(
    encoder: SentenceEncoder,
    texts: Sequence[str],
    a: np.ndarray,
    how: str,
    *,
    steps: int,
    learning_rate: float,
    seed: Sequence[int],
    threads: int,
) -> None:
    """Change the encoder's weights. `a` is [N, C]: the targets of each text times its weight."""
    random = np.random.default_rng([*seed, 4])
    tokens = encoder.tokenize(texts)
    weights = a.sum(axis=1)
    targets = torch.from_numpy(a / np.maximum(weights, 1e-12)[:, None]).float().to(encoder.device)
    head = nn.Linear(encoder.width, a.shape[1]).to(encoder.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    groups = [{"params": encoder.network.parameters(), "lr": learning_rate}]
    if how == "full":
        groups.append({"params": head.parameters(), "lr": 10 * learning_rate})
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    encoder.network.train()
    gpus = [encoder.device] if encoder.device.type == "cuda" else []
    try:
        with torch_threads(threads), torch.random.fork_rng(devices=gpus):
            torch.manual_seed(int(random.integers(2**62)))
            for step in range(steps):
                rows = balanced_batch(a.argmax(axis=1), weights, random)
                vectors = encoder.pooled([tokens[i] for i in rows])
                if how == "contrastive":
                    loss = contrastive_loss(vectors, targets[rows])
                else:
                    loss = F.cross_entropy(head(F.normalize(vectors, dim=1) * vectors.shape[1] ** 0.5), targets[rows])
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                norm = nn.utils.clip_grad_norm_(parameters, CLIP, foreach=True)
                if not (math.isfinite(loss.item()) and math.isfinite(norm.item())):
                    raise RunError(
                        f"the loss is not finite at tuning step {step}; "
                        f"tune with a learning_rate below {learning_rate:g}"
                    )
                optimizer.step()
                schedule.step()
                made_step()
    finally:
        encoder.network.eval()
        encoder.changed()


def contrastive_loss(vectors: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return Σ s (1 - cos)² / Σ s + Σ (1 - s) cos² / Σ (1 - s) over pairs; s_ij = t_i · t_j is 1 for equal labels."""
    unit = F.normalize(vectors, dim=1)
    i, j = torch.triu_indices(len(unit), len(unit), 1, device=unit.device)
    cos = (unit @ unit.T)[i, j]
    same = (targets @ targets.T)[i, j]
    near = (same * (1 - cos).square()).sum() / same.sum().clamp(min=1e-6)
    far = ((1 - same) * cos.square()).sum() / (1 - same).sum().clamp(min=1e-6)
    return near + far


def balanced_batch(label: np.ndarray, weights: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return BATCH rows with as many of each class, drawn by weight; at most BATCH / 2 classes, so that pairs occur."""
    classes = random.permutation(np.unique(label[weights > 0]))[: BATCH // 2]
    rows = []
    for number, some in zip(classes, np.array_split(np.arange(BATCH), len(classes)), strict=True):
        members = np.flatnonzero((label == number) & (weights > 0))
        share = weights[members] / weights[members].sum()
        rows.append(random.choice(members, len(some), replace=len(some) > len(members), p=share))
    return np.concatenate(rows)


def _rate(step: int, steps: int) -> float:
    warm = round(WARM_UP * steps)
    if step < warm:
        return (step + 1) / (warm + 1)
    return (steps - step) / max(1, steps - warm)
