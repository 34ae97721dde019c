"""Mixup: learn from mixtures of two examples (Zhang et al., 2018).

h = λ h_i + (1 - λ) h_j and y = λ y_i + (1 - λ) y_j, with λ from Beta(A, A) and at least one half. h is the vector below
the logits (Verma et al., 2019), or the vector of each word or token that the network reads.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from epida_ray.classify import FittedClassifier, TorchClassifier
from epida_ray.core.errors import RequestError

Inputs = dict[str, torch.Tensor]
"""The arguments of a network, by name."""
Layer = Literal["hidden", "input"]
"""What is mixed: the vector below the logits, or the vectors of words or tokens."""
COPIES = 4
"""Mixtures of each row that a head is fitted on, if it is fitted in one go."""


class Mixer:
    """Mixes the rows of a batch in front of the network's last linear layer, or in front of the network."""

    def __init__(
        self, module: nn.Module, classes: int, alpha: float, mix_inputs: Callable[..., Inputs] | None = None
    ) -> None:
        """With `mix_inputs`, a classifier's own, mix what the network reads."""
        self.alpha, self._module, self._mix_inputs = alpha, module, mix_inputs
        self._head = last_linear(module, classes, "--mixup")
        self._share = 1.0
        self._partner = torch.empty(0, dtype=torch.int64)
        self._hooks: list[Any] = []

    def draw(self, rows: int, seed: tuple[int, ...], device: torch.device) -> None:
        """Draw λ and every row's partner for the next forward pass."""
        self._share, partner = drawn(rows, self.alpha, np.random.default_rng([*seed, 5]))
        self._partner = torch.from_numpy(partner).to(device)
        self._hooks = [self._head.register_forward_pre_hook(self._mix_vectors)]
        if self._mix_inputs is not None:
            self._hooks.append(self._module.register_forward_pre_hook(self._mix_words, with_kwargs=True))

    def _mix_words(self, _module: nn.Module, _args: Any, inputs: Inputs) -> tuple[tuple[()], Inputs]:
        assert self._mix_inputs is not None
        return (), self._mix_inputs(inputs, self._share, self._partner)

    def _mix_vectors(self, _module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        if inputs[0].ndim != 2:
            raise RequestError("--mixup needs a network whose last layer sees one vector a text; leave it out")
        if self._mix_inputs is not None:
            return inputs
        return self._share * inputs[0] + (1 - self._share) * inputs[0][self._partner], *inputs[1:]

    def losses(self, logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of every mixture, and mix no more until the next `draw`."""
        for hook in self._hooks:
            hook.remove()
        own = nn.functional.cross_entropy(logits, y, reduction="none")
        other = nn.functional.cross_entropy(logits, y[self._partner], reduction="none")
        return self._share * own + (1 - self._share) * other


def last_linear(module: nn.Module, classes: int, option: str) -> nn.Linear:
    """Return the layer that makes the logits; raise RequestError, which names the `option`, if there is none."""
    found = [part for part in module.modules() if isinstance(part, nn.Linear) and part.out_features == classes]
    if not found:
        raise RequestError(f"{option} needs a network that ends in a linear layer, and this one does not")
    return found[-1]


def drawn(rows: int, alpha: float, random: np.random.Generator) -> tuple[float, np.ndarray]:
    """Return λ, at least one half, so that a row's weight belongs to its own label, and the partners of all rows."""
    share = float(random.beta(alpha, alpha))
    return max(share, 1 - share), random.permutation(rows)


def mixed_rows(x: np.ndarray, a: np.ndarray, alpha: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return COPIES mixtures of every row. `a` [N, C] has targets times weights; a row keeps its weight."""
    random = np.random.default_rng([seed, 5])
    weights = a.sum(axis=1, keepdims=True)
    targets = a / np.maximum(weights, 1e-12)
    rows, masses = [], []
    for _ in range(COPIES):
        share, partner = drawn(len(x), alpha, random)
        rows.append(share * x + (1 - share) * x[partner])
        masses.append((share * targets + (1 - share) * targets[partner]) * weights / COPIES)
    return np.concatenate(rows), np.concatenate(masses)


def check_mixup(classifier: Any, layer: Layer = "hidden") -> None:
    """Raise RequestError if this classifier cannot learn from mixtures in this layer."""
    name = getattr(classifier, "name", type(classifier).__name__)
    fits = isinstance(classifier, FittedClassifier) and "mixup" in signature(classifier.fit).parameters
    if not isinstance(classifier, TorchClassifier) and not fits:
        raise RequestError(
            f"--mixup mixes vectors of texts, and {name} has none; use cnn, bilstm, encoder or transformer"
        )
    if layer == "input" and not hasattr(classifier, "mix_inputs"):
        raise RequestError(
            f"--mixup-layer input mixes the vectors of words, which {name} does not learn from; leave it out, or use "
            "cnn, bilstm or transformer"
        )
    if layer == "input" and reads_tokens_only(classifier):
        raise RequestError(
            "--mixup-layer input mixes the vectors of tokens, and an encoder–decoder takes tokens only; leave it out"
        )


def reads_tokens_only(classifier: Any) -> bool:
    """Return whether this is an encoder–decoder: to classify, those of transformers need to see the last token."""
    return bool(getattr(getattr(classifier.module(), "config", None), "is_encoder_decoder", False))
