"""A policy: operations that are applied one after another, each with a probability and a magnitude.

`epida tune` searches for policies; the idea is that of AutoAugment (Cubuk et al., 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate.draws import BITS, rows
from epida_ray.generate.library import Collector
from epida_ray.generate.protection import protect

OPERATIONS: dict[str, tuple[str, str, dict[str, float]]] = {
    "synonym": ("synonym", "alpha", {}),
    "insert": ("eda", "alpha_ri", {"alpha_sr": 0, "alpha_rs": 0, "p_rd": 0}),
    "swap": ("eda", "alpha_rs", {"alpha_sr": 0, "alpha_ri": 0, "p_rd": 0}),
    "delete": ("eda", "p_rd", {"alpha_sr": 0, "alpha_ri": 0, "alpha_rs": 0}),
    "punctuation": ("aeda", "share", {}),
    "spelling": ("spelling", "alpha", {}),
}
"""The generator of each operation, the argument that its magnitude becomes, and its other arguments."""
ATTEMPTS = 3
"""How often the missing candidates of a sample are tried again."""
_KEYS = {"operation", "probability", "magnitude"}


class Step(NamedTuple):
    operation: str
    probability: float
    generator: Any


def read_policy(path: str) -> list[dict[str, Any]]:
    """Return the operations of a policy file."""
    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise RequestError(f"the policy {path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("operations"), list):
        raise RequestError(f"the policy {path} has no list of operations; `epida tune` writes such files")
    return loaded["operations"]


class Policy:
    """`policy:FILE`, or `operations`: a list of mappings with `operation`, `probability` and `magnitude`.

    A candidate goes through all operations in their order; each changes it with its probability. If none is drawn, the
    likeliest one is applied. Magnitudes are shares of a text's words. `language` goes to every operation.
    """

    def __init__(
        self, file: str | None = None, operations: Sequence[Mapping[str, Any]] | None = None, language: str = "en"
    ) -> None:
        if (file is None) == (operations is None):
            raise RequestError("a policy comes from a file, policy:FILE, or has operations; give one of them")
        given = operations if operations is not None else read_policy(file or "")
        self._steps = [step for one in given if (step := _step(one, language)).probability > 0]
        if not self._steps:
            raise RequestError("the policy has no operation with a probability above 0")

    def set_strength(self, share: float) -> None:
        for step in self._steps:
            step.generator.set_strength(share)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        collectors = [Collector(sample, n) for sample in samples]
        for attempt in range(ATTEMPTS):
            wanted = [i for i, collector in enumerate(collectors) if not collector.full]
            own = [_seed(seeds[i], attempt, number) for i in wanted for number in range(n)]
            made = self._rewrite([samples[i] for i in wanted for _ in range(n)], own)
            for place, (text, operations) in enumerate(made):
                if operations:
                    collectors[wanted[place // n]].add(text, "+".join(operations))
        return [collector.answer() for collector in collectors]

    def _rewrite(self, samples: list[Sample], seeds: list[int]) -> list[tuple[str, list[str]]]:
        """Apply the operations to each sample once; its randomness depends on its seed alone."""
        if not samples:
            return []
        drawn = rows(seeds, (len(self._steps) + 1) // 2)
        likeliest = max(range(len(self._steps)), key=lambda k: self._steps[k].probability)
        hits = [[d < s.probability * 2**BITS for d, s in zip(row, self._steps, strict=False)] for row in drawn]
        for row in hits:
            row[likeliest] |= not any(row)
        texts = [sample.text for sample in samples]
        applied: list[list[str]] = [[] for _ in samples]
        for k, step in enumerate(self._steps):
            chosen = [i for i, row in enumerate(hits) if row[k]]
            parts = [_with_text(samples[i], texts[i]) for i in chosen]
            answers = step.generator.generate(parts, 1, [_seed(seeds[i], k, step.operation) for i in chosen])
            for i, answer in zip(chosen, answers, strict=True):
                if isinstance(answer, Candidates) and answer.texts:
                    texts[i] = answer.texts[0]
                    applied[i].append(step.operation)
        return list(zip(texts, applied, strict=True))


def _step(given: Any, language: str) -> Step:
    from epida_ray.generate import GENERATORS

    if not isinstance(given, Mapping) or not given.keys() <= _KEYS or given.get("operation") not in OPERATIONS:
        raise RequestError(
            f"an operation of a policy has the keys operation ({', '.join(OPERATIONS)}), probability and magnitude; "
            f"not {given!r}"
        )
    values = {name: given.get(name, 0.5 if name == "probability" else 0.1) for name in ("probability", "magnitude")}
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise RequestError(f"the {name} of {given['operation']} is a number from 0 to 1, not {value!r}")
    generator, argument, others = OPERATIONS[given["operation"]]
    probability = float(values["probability"]) if values["magnitude"] else 0.0
    if not probability:
        return Step(given["operation"], 0.0, None)
    made = GENERATORS.create(generator, **others | {argument: float(values["magnitude"])}, language=language)
    return Step(given["operation"], probability, made)


def _with_text(sample: Sample, text: str) -> Sample:
    """Return the sample with a rewritten text, and the protected spans where they are now."""
    if not sample.protected or text == sample.text:
        return sample._replace(text=text)
    phrases = [sample.text[a:b] for a, b in sample.protected]
    return sample._replace(text=text, protected=protect([text], phrases)[0])


def _seed(seed: int, *names: Any) -> int:
    return int.from_bytes(blake2b("\0".join(map(str, (seed, *names))).encode(), digest_size=8).digest(), "little")
