"""Noise for tests: texts as careless writers type them."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Rejected, Sample, sample_seeds
from epida_ray.generate import GENERATORS, propose
from epida_ray.generate.corpus import needs_corpus

Noise = Callable[[Sequence[str], Sequence[str]], list[str]]
"""(ids, texts) → noisy texts; a text's noise depends on its id alone."""


def parse_noise(spec: str, seed: int = 0) -> Noise:
    """Return the noise that `--noise` names: case, punctuation, or a generator with an optional share of the words.

    `spelling:0.3` misspells three words in ten. `case` writes every word in capitals or in small letters, and
    `punctuation` leaves all punctuation marks out.
    """
    if spec == "punctuation":
        table = str.maketrans("", "", string.punctuation)
        return lambda ids, texts: [text.translate(table) for text in texts]
    if spec == "case":
        return lambda ids, texts: [_mixed_case(t, s) for t, s in zip(texts, _seeds(seed, ids), strict=True)]
    name, _, share = spec.rpartition(":")
    try:
        strength: dict[str, Any] = {"alpha": float(share)}
    except ValueError:
        name, strength = spec, {}
    try:
        generator = GENERATORS.create(name or spec, **strength)
    except RequestError as error:
        raise RequestError(f"--noise {spec}: {error}") from error
    if getattr(generator, "needs_classifier", False):
        raise RequestError(f"--noise {spec} attacks a classifier; `epida preview` shows such attacks")

    if needs_corpus(generator):
        raise RequestError(
            f"--noise {spec} cannot be used: it takes parts of other samples, and a test has only the text itself"
        )

    def rewrite(ids: Sequence[str], texts: Sequence[str]) -> list[str]:
        samples = [Sample(i, text, "", ()) for i, text in zip(ids, texts, strict=True)]
        made = propose(generator, samples, 1, run_seed=seed, round_=0, name=name or spec)
        return [t if isinstance(m, Rejected) or not m.texts else m.texts[0] for t, m in zip(texts, made, strict=True)]

    return rewrite


def noise_of(generator: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return how `--noise` names what a generator does; nothing where a test cannot have it or no name says it."""
    made = GENERATORS.create(generator, **arguments)
    if set(arguments) - {"alpha"} or getattr(made, "needs_classifier", False) or needs_corpus(made):
        return []
    alpha = getattr(made, "alpha", None)
    return [generator if alpha is None else f"{generator}:{alpha:g}"]


def _seeds(seed: int, ids: Sequence[str]) -> list[int]:
    return sample_seeds(seed, 0, ids, "noise", 0)


def _mixed_case(text: str, seed: int) -> str:
    words = text.split(" ")
    upper = np.random.default_rng(seed).random(len(words)) < 0.5
    return " ".join(word.upper() if up else word.lower() for word, up in zip(words, upper.tolist(), strict=True))
