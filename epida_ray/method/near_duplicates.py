"""Texts that are almost the same, found exactly and without comparing all pairs.

Two texts are near-duplicates when the sets of their letter sequences of length 5 have a Jaccard similarity of at least
t = 0.8. If the sequences of all texts are put into one order, rarest first, then two such texts share at least one of
the first |x| - ceil(t |x|) + 1 sequences of each (prefix filtering; Chaudhuri et al., 2006). So only texts that share
a rare sequence are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import regex

LETTERS = 5
SIMILARITY = 0.8
LONGEST = 5000
"""How many characters of a longer text are compared."""
_MARKS = regex.compile(r"[^\w\s]+")
_LETTER = regex.compile(r"[\p{L}\p{N}]")


class Pair(NamedTuple):
    """Rows a (of the first texts) and b (of the second), and how similar they are, from 0 to 1."""

    a: int
    b: int
    similarity: float


def near_duplicates(first: Sequence[str], second: Sequence[str] | None = None) -> list[Pair]:
    """Return pairs of near-duplicates between two lists, or within one; each b with its most similar a.

    Case, punctuation and white space do not count; in a text without letters and digits the marks do. Within one list,
    a comes before b and is no b itself: many texts of one template are all pairs with its first, which takes linear
    time.
    """
    within = second is None
    sets_a = [_sequences(text) for text in first]
    sets_b = sets_a if second is None else [_sequences(text) for text in second]
    counts = Counter(s for one in (sets_a if within else [*sets_a, *sets_b]) for s in one)
    rank = {s: i for i, (s, _) in enumerate(sorted(counts.items(), key=lambda item: (item[1], item[0])))}
    index: dict[int, list[int]] = {}
    found = []
    if not within:
        for a, one in enumerate(sets_a):
            for s in _prefix(one, rank):
                index.setdefault(s, []).append(a)
    for b, one in enumerate(sets_b):
        prefix = _prefix(one, rank)
        candidates = {a for s in prefix for a in index.get(s, ())}
        best = max(((_jaccard(sets_a[a], one), -a) for a in candidates), default=(0.0, 0))
        if best[0] >= SIMILARITY:
            found.append(Pair(-best[1], b, best[0]))
        elif within:
            for s in prefix:
                index.setdefault(s, []).append(b)
    return found


def _sequences(text: str) -> frozenset[str]:
    plain = text[:LONGEST].lower()
    if _LETTER.search(plain):  # else there is nothing but marks, such as emojis, and they are the text
        plain = _MARKS.sub(" ", plain)
    plain = " ".join(plain.split())
    return frozenset(plain[i : i + LETTERS] for i in range(max(1, len(plain) - LETTERS + 1)))


def _prefix(one: frozenset[str], rank: dict[str, int]) -> list[int]:
    ranks = sorted(rank[s] for s in one)
    return ranks[: len(ranks) - math.ceil(SIMILARITY * len(ranks)) + 1]


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    small, large = sorted((len(a), len(b)))
    if small < SIMILARITY * large:
        return 0.0
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)
