"""Multi-task learning: a head for originals and one for rewrites, which share the rest of the network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from epida_ray.classify.mixup import last_linear


class TwoHeads(nn.Module):
    """A network in training with a second head for rewrites. Predictions use the network without it."""

    def __init__(self, network: nn.Module, classes: int) -> None:
        super().__init__()
        self.network = network
        head = last_linear(network, classes, "--loss multi-task")
        self._head = (head,)  # in a tuple, so that its parameters are not counted twice
        sizes = head.in_features, head.out_features, head.bias is not None
        self.rewrites: nn.Linear = nn.utils.skip_init(nn.Linear, *sizes, device=head.weight.device)
        self.follow()

    def follow(self) -> None:
        """Make the second head equal to the first: until there are rewrites, it has nothing of its own to learn."""
        self.rewrites.load_state_dict(self._head[0].state_dict())

    def join(self, groups: list[dict[str, Any]]) -> None:
        """Let the second head learn as the first does, in the same groups of the optimiser."""
        second = dict(self.rewrites.named_parameters())
        for name, parameter in self._head[0].named_parameters():
            for group in groups:
                if any(parameter is other for other in group["params"]):
                    group["params"].append(second[name])

    def forward(self, rewrites: torch.Tensor, **inputs: torch.Tensor) -> Any:
        """Return what the network returns; the logits of `rewrites`, bool [N], are the second head's."""

        def choose(_head: nn.Module, x: tuple[torch.Tensor, ...], logits: torch.Tensor) -> torch.Tensor:
            return torch.where(rewrites.view(-1, *[1] * (logits.ndim - 1)), self.rewrites(x[0]), logits)

        hook = self._head[0].register_forward_hook(choose)
        try:
            return self.network(**inputs)
        finally:
            hook.remove()
