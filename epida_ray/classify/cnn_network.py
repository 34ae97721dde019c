"""The CNN in torch: what training differentiates, and the plain convolution that the compiled loops must equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from epida_ray.classify import kernels


class Network(nn.Module):
    """Logits from word ids of all texts one after the other, their offsets [N + 1] and the words' vectors.

    On a CPU the features and their gradient come from compiled loops, elsewhere from a convolution. The weights have no
    values until `load_arrays`.
    """

    def __init__(self, dimension: int, filters: Sequence[int], channels: int, dropout: float, classes: int) -> None:
        super().__init__()
        self.filters = tuple(filters)
        self.channels = channels
        for width in self.filters:
            self.add_module(f"conv{width}", nn.Conv1d(dimension, channels, width, device="meta"))
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(channels * len(self.filters), classes, device="meta")

    def load_arrays(self, state: Mapping[str, np.ndarray]) -> None:
        self.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in state.items()}, assign=True)

    def forward(self, words: torch.Tensor, offsets: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        pooled = self.pooled if words.device.type == "cpu" else self.convolved
        logits: torch.Tensor = self.linear(self.dropout(F.relu(pooled(words, offsets, vectors))))
        return logits

    def pooled(self, words: torch.Tensor, offsets: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        parameters = [p for w in self.filters for p in self.get_submodule(f"conv{w}").parameters()]
        apply: Any = _Pooled.apply
        features: torch.Tensor = apply(words, offsets, vectors, self.filters, self.channels, *parameters)
        return features

    def convolved(self, words: torch.Tensor, offsets: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        x, lengths = _padded(words, offsets, vectors, max(self.filters))
        x = x.transpose(1, 2)
        at = torch.arange(x.shape[2], device=words.device)
        features = []
        for width in self.filters:
            y = self.get_submodule(f"conv{width}")(x)
            last = lengths.clamp(min=max(self.filters)) - width
            outside = at[: y.shape[2]] > last[:, None]
            features.append(y.masked_fill(outside[:, None, :], float("-inf")).amax(dim=2))
        return torch.cat(features, dim=1)


def mixed(
    words: torch.Tensor, offsets: torch.Tensor, vectors: torch.Tensor, share: float, partner: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the network's arguments for mixtures of texts: each as long as its longer part, every word a new one."""
    x, lengths = _padded(words, offsets, vectors)
    x = share * x + (1 - share) * x[partner]
    lengths = torch.maximum(lengths, lengths[partner])
    inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    vectors = torch.cat([torch.zeros_like(vectors[:1]), x[inside]])
    words = torch.arange(1, len(vectors), dtype=words.dtype, device=words.device)
    return {"words": words, "offsets": F.pad(lengths.cumsum(0), (1, 0)), "vectors": vectors}


def _padded(
    words: torch.Tensor, offsets: torch.Tensor, vectors: torch.Tensor, shortest: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vectors of each text's words [N, L, D], zero behind its end, and the texts' lengths."""
    lengths = offsets[1:] - offsets[:-1]
    at = torch.arange(max(shortest, int(lengths.max())), device=words.device)
    ids = words.new_zeros((len(lengths), len(at)))
    ids[at < lengths[:, None]] = words
    return vectors[ids.long()], lengths


class _Pooled(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        words: torch.Tensor,
        offsets: torch.Tensor,
        vectors: torch.Tensor,
        filters: tuple[int, ...],
        channels: int,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:
        kernel = torch.cat([p.permute(1, 2, 0).flatten(1) for p in parameters[::2]], dim=1)
        projected = vectors @ kernel
        bias = torch.cat(parameters[1::2])
        widths = np.array(filters, np.int64)
        features = torch.empty((len(offsets) - 1, len(bias)))
        where = torch.empty(features.shape, dtype=torch.int32)
        inputs = (words.numpy(), offsets.numpy(), projected.numpy(), widths, channels, bias.numpy())
        kernels.pool_where(*inputs, features.numpy(), where.numpy())
        ctx.save_for_backward(words, offsets, vectors, where)
        ctx.filters, ctx.channels = filters, channels
        return features

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        words, offsets, vectors, where = ctx.saved_tensors
        dimension = vectors.shape[1]
        gradient = torch.zeros((sum(ctx.filters) * ctx.channels, dimension))
        kernels.pool_gradient(
            words.numpy(),
            offsets.numpy(),
            vectors.numpy(),
            np.array(ctx.filters, np.int64),
            ctx.channels,
            where.numpy(),
            upstream.contiguous().numpy(),
            gradient.numpy(),
        )
        bias = list(upstream.sum(dim=0).reshape(len(ctx.filters), -1))
        ends = np.cumsum([w * ctx.channels for w in ctx.filters])
        result: list[torch.Tensor | None] = [None] * 5
        for width, end, b in zip(ctx.filters, ends, bias, strict=True):
            weight = gradient[end - width * ctx.channels : end].view(ctx.channels, width, dimension)
            result += [weight.transpose(1, 2).contiguous(), b]
        return tuple(result)
