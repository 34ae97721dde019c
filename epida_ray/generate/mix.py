"""Several generators in given proportions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.ask import ATTEMPTS
from epida_ray.generate.corpus import from_bytes, needs_corpus, to_bytes
from epida_ray.generate.library import Collector
from epida_ray.generate.strength import set_strength


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
        self._with_corpus = {name: part for name, part in self._parts.items() if needs_corpus(part)}
        self.needs_corpus = bool(self._with_corpus)
        self.corpus_rows = max((part.corpus_rows for part in self._with_corpus.values()), default=0)
        self.soft_labels = any(getattr(part, "soft_labels", False) for part in self._parts.values())
        self.needs_classifier = any(getattr(part, "needs_classifier", False) for part in self._parts.values())
        self.attempts = min(getattr(part, "attempts", ATTEMPTS) for part in self._parts.values())
        notices = {name: getattr(part, "notice", "") for name, part in self._parts.items()}
        self.notice = "; ".join(f"{name}: {notice}" for name, notice in notices.items() if notice)

    def bind(self, predict_proba: Callable[[Sequence[str]], np.ndarray], labels: Sequence[str]) -> None:
        for part in self._parts.values():
            if getattr(part, "needs_classifier", False):
                part.bind(predict_proba, labels)

    def index(self, samples: Sequence[Sample]) -> pa.Table:
        """Return the indexes of all parts that need one, each as the bytes of an Arrow file."""
        made = [to_bytes(part.index(samples[: part.corpus_rows])).to_pybytes() for part in self._with_corpus.values()]
        return pa.table({"part": list(self._with_corpus), "index": pa.array(made, pa.large_binary())})

    def bind_corpus(self, index: pa.Table) -> None:
        for name, data in zip(index["part"].to_pylist(), index["index"], strict=True):
            self._with_corpus[name].bind_corpus(from_bytes(data.as_buffer()))

    def set_strength(self, share: float) -> None:
        for name, part in self._parts.items():
            set_strength(name, part, share)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        collectors = [Collector(sample, n) for sample in samples]
        reasons: list[list[str]] = [[] for _ in samples]
        shares = [self._shares(n, seed) for seed in seeds]
        # Ask for the same number for every sample, the most that any could need: what a part makes may depend on it.
        total = sum(self._proportions.values())
        most = {name: math.ceil(n * proportion / total) for name, proportion in self._proportions.items()}
        for again in (False, True):  # in the second pass, other parts make up for a shortfall
            for name, part in self._parts.items():
                if again and getattr(part, "attempts", ATTEMPTS) == 1:
                    continue
                open_ = [i for i, c in enumerate(collectors) if not c.full and shares[i][name]]
                if not open_:
                    continue
                own_seeds = [_seed(seeds[i], name) for i in open_]
                answers = part.generate([samples[i] for i in open_], most[name], own_seeds)
                for i, answer in zip(open_, answers, strict=True):
                    if isinstance(answer, Rejected):
                        reasons[i].append(f"{name}: {answer.reason}")
                        continue
                    soft = answer.soft or [None] * len(answer.texts)
                    made = list(zip(answer.texts, answer.operations, soft, strict=True))
                    for text, operation, label in made[: shares[i][name]]:
                        collectors[i].add(text, f"{name}/{operation}", label)
            most = dict.fromkeys(self._parts, n)
            shares = [most] * len(samples)
        return [
            collector.answer() if collector.texts or not why else Rejected("; ".join(dict.fromkeys(why)))
            for collector, why in zip(collectors, reasons, strict=True)
        ]

    def _shares(self, n: int, seed: int) -> dict[str, int]:
        """Return how many of the n candidates come from each part; what does not divide evenly is drawn."""
        total = sum(self._proportions.values())
        exact = {name: n * proportion / total for name, proportion in self._proportions.items()}
        shares = {name: int(share) for name, share in exact.items()}
        by_lot = sorted(exact, key=lambda name: (shares[name] - exact[name], _seed(seed, name)))
        for name in by_lot[: n - sum(shares.values())]:
            shares[name] += 1
        return shares


def _seed(seed: int, name: str) -> int:
    return int.from_bytes(blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest(), "little")
