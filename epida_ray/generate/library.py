"""What the adapters of other libraries share: seeds for global RNGs, distinct candidates, protected spans, bounds."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from epida_ray.core.sample import Candidates, Rejected, Sample, SoftLabel, fold_space
from epida_ray.core.steps import made_step
from epida_ray.generate.words import Span, split

Item = TypeVar("Item")
Result = TypeVar("Result")

ROUNDS = 3
"""How often a library is asked for one sample before its candidates are taken as they are."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed `random`, NumPy's and torch's global generators, and put their states back afterwards."""
    state = random.getstate()
    numpy_state = np.random.get_state()
    torch = sys.modules.get("torch")
    torch_state = torch.get_rng_state() if torch else None
    gpu_state = torch.cuda.get_rng_state() if torch and torch.cuda.is_initialized() else None
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    if torch:
        torch.random.default_generator.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
        if gpu_state is not None:
            torch.cuda.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
        if torch:
            torch.set_rng_state(torch_state)
            if gpu_state is not None:
                torch.cuda.set_rng_state(gpu_state)


def remembered(function: Callable[..., Any], size: int) -> Callable[..., list[Any]]:
    """Return a function that remembers its last answers: libraries ask again for each candidate."""

    @lru_cache(maxsize=size)
    def answer(*arguments: Any, **options: Any) -> tuple[Any, ...]:
        return tuple(function(*(list(a) if isinstance(a, tuple) else a for a in arguments), **options))

    def ask(*arguments: Any, **options: Any) -> list[Any]:
        return list(answer(*(tuple(a) if isinstance(a, list) else a for a in arguments), **options))

    return ask


def one_by_one(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of slow work on each item, and make a step before each, so that whoever waits hears of it."""
    results = []
    for item in items:
        made_step()
        results.append(work(item))
    return results


def keeps(candidate: str, sample: Sample) -> bool:
    """Return whether every protected span is in the candidate, whole and in its order."""
    place = 0
    for a, b in sorted(sample.protected):
        place = candidate.find(sample.text[a:b], place)
        if place < 0:
            return False
        place += b - a
    return True


class Collector:
    """Distinct candidates of one sample: never the original, never empty, protected spans in place."""

    def __init__(self, sample: Sample, n: int) -> None:
        self._sample = sample
        self._n = n
        self._seen = {fold_space(sample.text), ""}
        self._broken = False
        self.texts: list[str] = []
        self.operations: list[str] = []
        self.soft: list[SoftLabel | None] = []

    @property
    def full(self) -> bool:
        return len(self.texts) >= self._n

    def add(self, text: str, operation: str, soft: SoftLabel | None = None) -> None:
        key = fold_space(text)
        if self.full or key in self._seen:
            return
        if self._sample.protected and not keeps(text, self._sample):
            self._broken = True
            return
        self._seen.add(key)
        self.texts.append(text)
        self.operations.append(operation)
        self.soft.append(soft)

    def answer(self) -> Candidates | Rejected:
        if self.texts:
            return Candidates(self.texts, self.operations, self.soft if any(self.soft) else None)
        if self._broken:
            return Rejected("every candidate changed a protected word or phrase")
        return Rejected("no candidate differs from the text")


class OneByOne:
    """A generator around a library that rewrites one text at a time and draws from global RNGs.

    Protected spans never reach the library: it sees the stretches between them.
    """

    name = ""
    longest = 20_000
    """Characters; longer texts would keep the library busy for minutes."""

    def rewrite(self, text: str, n: int) -> list[tuple[str, str]]:
        """Return about n candidates and their operations, drawn from the global RNGs; copies are allowed."""
        raise NotImplementedError

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        return [self._one(sample, n, seed) for sample, seed in zip(samples, seeds, strict=True)]

    def _one(self, sample: Sample, n: int, seed: int) -> Candidates | Rejected:
        if problem := unusable(sample.text, self.longest):
            return Rejected(problem)
        collector = Collector(sample, n)
        try:
            with seeded(seed):
                for _ in range(ROUNDS):
                    for text, operation in self._around(sample, n):
                        collector.add(text, operation)
                    if collector.full:
                        break
        except Exception as error:  # a library may fail on a text in any way
            if not collector.texts:
                return Rejected(f"{self.name} raised {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        return collector.answer()

    def _around(self, sample: Sample, n: int) -> list[tuple[str, str]]:
        text = sample.text
        if not sample.protected:
            return self.rewrite(text, n)
        stretches = between(text, sample.protected)
        if not stretches:
            return []
        weights = [len(split(text[a:b])[1]) for a, b in stretches]
        found = []
        for index in sorted(random.choices(range(len(stretches)), weights, k=n)):
            a, b = stretches[index]
            for new, operation in self.rewrite(text[a:b].strip(), 1):
                core = text[a:b]
                left = core[: len(core) - len(core.lstrip())]
                right = core[len(core.rstrip()) :]
                found.append((text[:a] + left + new.strip() + right + text[b:], operation))
        return found


def between(text: str, protected: Sequence[Span]) -> list[Span]:
    """Return the stretches of text outside the protected spans that have a word in them."""
    stretches = []
    start = 0
    for a, b in [*sorted(protected), (len(text), len(text))]:
        if start < a and split(text[start:a])[1]:
            stretches.append((start, a))
        start = max(start, b)
    return stretches


def unusable(text: str, longest: int, encoded: bool = False) -> str:
    """Return why a library cannot have this text, or nothing if it can. `encoded`: the library works on UTF-8."""
    if not text.strip():
        return "the text is empty"
    if len(text) > longest:
        return f"the text has {len(text):,} characters; this generator takes up to {longest:,}"
    if encoded and any("\ud800" <= c <= "\udfff" for c in text):
        return "the text has lone surrogates, which are not characters"
    return ""
