"""Synonyms for a word in its context: of its part of speech, of a common sense, and close to the rest of the text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np

from epida_ray.generate import wordnet
from epida_ray.generate.glove import glove
from epida_ray.generate.stopwords import STOP_WORDS
from epida_ray.generate.tagger import tag

NEAREST = 0.35
"""Least cosine of a synonym and the word."""
SLACK = 0.2
"""By how much a synonym may be farther from the context than the word is, in cosine."""
VOCABULARY = 100_000

_PARTS = {"NN": "n", "VB": "v", "JJ": "a", "RB": "r"}


def in_context(glue: Sequence[str], cores: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the synonyms of every word of a text, which `words.split` took apart."""
    tokens: list[str] = []
    places = []
    for i, between in enumerate(glue):
        tokens += between.split()
        if i < len(cores):
            places.append(len(tokens))
            tokens.append(cores[i])
    tags = tag(tokens)
    unit = _unit_vectors()
    words = [core.lower().replace("’", "'") for core in cores]
    known = [unit.get(word) if word not in STOP_WORDS["en"] else None for word in words]
    total = sum((vector for vector in known if vector is not None), np.zeros(50, np.float32))
    found: list[tuple[str, ...]] = []
    for word, place, vector in zip(words, places, known, strict=True):
        part = _PARTS.get(tags[place][:2]) if not tags[place].startswith("NNP") else None
        if part is None or vector is None:
            found.append(())
            continue
        synonyms, vectors = _near(word, part)
        rest = total - vector
        length = max(1e-6, float(np.linalg.norm(rest)))
        # rounded, so that the last bits of a product on another processor decide nothing
        closeness = np.round((vectors - vector) @ (rest / length), 4).tolist()
        article = place > 0 and tokens[place - 1].lower() in ("a", "an")
        found.append(
            tuple(
                synonym
                for synonym, close in zip(synonyms, closeness, strict=True)
                if close >= -SLACK and not (article and (synonym[0] in "aeiou") != (word[0] in "aeiou"))
            )
        )
    return found


@lru_cache(maxsize=1 << 16)
def _near(word: str, part: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the synonyms that mean about the same by their vectors, and these vectors."""
    unit = _unit_vectors()
    kept = [
        synonym
        for synonym in wordnet.lookup("careful")(f"{word}/{part}")
        if synonym in unit and round(float(unit[synonym] @ unit[word]), 4) >= NEAREST
    ]
    return tuple(kept), np.array([unit[synonym] for synonym in kept], np.float32).reshape(-1, 50)


@cache
def _unit_vectors() -> dict[str, np.ndarray]:
    words, matrix = glove(VOCABULARY, "careful=true")
    lengths = np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-6)
    return dict(zip(words, matrix / lengths, strict=True))


def check() -> None:
    """Raise a RequestError if the word vectors are missing."""
    glove(1, "careful=true")
