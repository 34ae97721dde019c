"""Text → candidates. Plain Python: no Ray here, and nothing of classify/ or select/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from epida_ray.generate.ask import propose
from epida_ray.generate.protection import protect
from epida_ray.registry import Builtin, Registry
from epida_ray.sample import Candidates, Rejected, Sample

__all__ = ["GENERATORS", "Generator", "propose", "protect"]


class Generator(Protocol):
    """Rewrites samples. All randomness comes from `seeds`, one per sample, whatever the batch and the process.

    Optional attributes: `needs_classifier = True` asks for a call of `bind(predict_proba, labels)` before `generate`;
    `distinct = True` promises candidates that differ from the original and from each other by more than white space.
    """

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]: ...


GENERATORS = Registry(
    "generator",
    {
        "eda": Builtin("epida_ray.generate.eda:EDA", "synonym replacement, insertion, swap and deletion (EDA)"),
    },
)
