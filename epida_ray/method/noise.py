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
from epida_ray.generate.spelling import Keyboard
from epida_ray.method.stages import bind_generator, needs_classifier

Noise = Callable[..., list[str]]
"""(ids, texts) → noisy texts, or (ids, texts, labels, classifier) for an attack; a text's noise depends on its id alone
and, in an attack, on the classifier."""


def parse_noise(spec: str, seed: int = 0, attacks: bool = False) -> Noise:
    """Return the noise that `--noise` names, with an optional share of the words: case, punctuation or a generator.

    `spelling:0.3` misspells three words in ten, and `keyboard:0.3` does so by neighbouring keys only. `case` writes
    every word in capitals or in small letters, and `punctuation` leaves all punctuation marks out; with a share, so
    many words or marks. With `attacks`, an attack on a classifier is noise, too.
    """
    name, _, given = spec.rpartition(":")
    try:
        share: float | None = float(given)
    except ValueError:
        name, share = spec, None
    if name in PLAIN:
        if share is not None and not 0 < share <= 1:
            raise RequestError(f"--noise {spec}: the share is above 0 and up to 1")
        change, part = PLAIN[name], 1.0 if share is None else share
        return lambda ids, texts, *_: [change(t, s, part) for t, s in zip(texts, _seeds(seed, ids), strict=True)]
    strength: dict[str, Any] = {} if share is None else {"alpha": share}
    try:
        generator = Keyboard(**strength) if name == "keyboard" else GENERATORS.create(name or spec, **strength)
    except RequestError as error:
        raise RequestError(f"--noise {spec}: {error}") from error
    attack = needs_classifier(generator)
    if attack and not attacks:
        raise RequestError(f"--noise {spec} attacks a classifier; use it in `epida evaluate`")
    if needs_corpus(generator):
        raise RequestError(
            f"--noise {spec} cannot be used: it takes parts of other samples, and a test has only the text itself"
        )
    bound: list[Any] = []

    def rewrite(
        ids: Sequence[str], texts: Sequence[str], labels: Sequence[str] | None = None, classifier: Any = None
    ) -> list[str]:
        if attack and bound != [classifier]:
            bind_generator(generator, classifier)
            bound[:] = [classifier]
        names = [""] * len(texts) if labels is None else labels
        samples = [Sample(i, text, label, ()) for i, text, label in zip(ids, texts, names, strict=True)]
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


def _mixed_case(text: str, seed: int, share: float) -> str:
    words = text.split(" ")
    random = np.random.default_rng(seed)
    upper, changed = random.random(len(words)) < 0.5, random.random(len(words)) < share
    cased = zip(words, upper.tolist(), changed.tolist(), strict=True)
    return " ".join((word.upper() if up else word.lower()) if change else word for word, up, change in cased)


def _without_marks(text: str, seed: int, share: float) -> str:
    random = np.random.default_rng(seed)
    return "".join(c for c in text if c not in string.punctuation or random.random() >= share)


PLAIN: dict[str, Callable[[str, int, float], str]] = {"case": _mixed_case, "punctuation": _without_marks}
"""Noise that is no generator."""
