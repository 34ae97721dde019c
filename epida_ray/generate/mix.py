"""Several generators in given proportions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.library import Collector


class Mix:
    """`mix` with an argument for each part, `NAME=PROPORTION`: eda=2, aeda=1, nlpaug:SynonymAug=1.

    In Python and in a configuration file, a proportion may be a mapping with `proportion` and the part's own arguments.
    A part that falls short is made up for by the others. `language` goes to all parts.
    """

    def __init__(self, language: str | None = None, **parts: Any) -> None:
        from epida_ray.generate import GENERATORS, with_language

        if not parts:
            raise RequestError("mix needs its parts, such as eda=2 and aeda=1")
        self._parts: dict[str, Any] = {}
        self._proportions: dict[str, float] = {}
        for name, value in parts.items():
            arguments = dict(value) if isinstance(value, Mapping) else {"proportion": value}
            proportion = arguments.pop("proportion", 1)
            if isinstance(proportion, bool) or not isinstance(proportion, int | float) or not proportion > 0:
                raise RequestError(f"the proportion of {name} in a mix is a number above 0, not {proportion!r}")
            self._parts[name] = GENERATORS.create(name, **with_language(name, arguments, language))
            self._proportions[name] = proportion
        self.needs_classifier = any(getattr(part, "needs_classifier", False) for part in self._parts.values())

    def bind(self, predict_proba: Callable[[Sequence[str]], np.ndarray], labels: Sequence[str]) -> None:
        for part in self._parts.values():
            if getattr(part, "needs_classifier", False):
                part.bind(predict_proba, labels)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        collectors = [Collector(sample, n) for sample in samples]
        reasons: list[list[str]] = [[] for _ in samples]
        shares = [self._shares(n, seed) for seed in seeds]
        # Every sample is asked for the most that any could need: what a part makes may depend on that number.
        total = sum(self._proportions.values())
        most = {name: math.ceil(n * proportion / total) for name, proportion in self._proportions.items()}
        for _ in range(2):  # the second time around, whoever can makes up for a shortfall
            for name, part in self._parts.items():
                asked = [i for i, c in enumerate(collectors) if not c.full and shares[i][name]]
                if not asked:
                    continue
                own_seeds = [_seed(seeds[i], name) for i in asked]
                answers = part.generate([samples[i] for i in asked], most[name], own_seeds)
                for i, answer in zip(asked, answers, strict=True):
                    if isinstance(answer, Rejected):
                        reasons[i].append(f"{name}: {answer.reason}")
                        continue
                    for text, operation in list(zip(*answer, strict=True))[: shares[i][name]]:
                        collectors[i].add(text, f"{name}/{operation}")
            most = dict.fromkeys(self._parts, n)
            shares = [most] * len(samples)
        return [
            collector.answer() if collector.texts or not why else Rejected("; ".join(dict.fromkeys(why)))
            for collector, why in zip(collectors, reasons, strict=True)
        ]

    def _shares(self, n: int, seed: int) -> dict[str, int]:
        """How many of the n candidates come from each part; what does not divide evenly is drawn."""
        total = sum(self._proportions.values())
        exact = {name: n * proportion / total for name, proportion in self._proportions.items()}
        shares = {name: int(share) for name, share in exact.items()}
        by_lot = sorted(exact, key=lambda name: (shares[name] - exact[name], _seed(seed, name)))
        for name in by_lot[: n - sum(shares.values())]:
            shares[name] += 1
        return shares


def _seed(seed: int, name: str) -> int:
    return int.from_bytes(blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest(), "little")
