"""How strongly a generator rewrites: in a curriculum, a share of its full strength that grows from round to round."""

from __future__ import annotations

from typing import Any

from epida_ray.core.errors import RequestError

FIRST = 0.2
"""The share of its strength that a generator has in the first round of a curriculum."""


def strength(round_: int, rounds: int) -> float:
    """Return the share of a round: FIRST in round 1, all of it in the last one. It depends on nothing else."""
    return 1.0 if rounds < 2 else FIRST + (1 - FIRST) * min(1.0, (round_ - 1) / (rounds - 1))


def set_strength(name: str, generator: Any, share: float) -> None:
    """Let the generator rewrite with this share of its strength; raise RequestError if it has none to set."""
    if not hasattr(generator, "set_strength"):
        raise RequestError(
            f"--curriculum: {name} has no strength that could grow; eda, aeda, synonym, spelling, masked-lm, policy "
            "and mixes of them have"
        )
    generator.set_strength(share)
