"""EDA: synonym replacement, random insertion, random swap and random deletion (Wei and Zou, 2019)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, combinations, islice
from math import exp, lgamma, log, log1p, sqrt

from epida_ray.errors import RequestError
from epida_ray.generate import draws
from epida_ray.generate.draws import Draw
from epida_ray.generate.synonyms import lexicon
from epida_ray.generate.units import Unit, Units
from epida_ray.sample import Candidates, Rejected, Sample, fold_space

SYNONYM, INSERT, SWAP, DELETE = "synonym", "insert", "swap", "delete"

_SEARCH_CHARACTERS = 400_000
"""How much text the search for the last distinct candidates may build for one sample."""


class EDA:
    """Word-level edits that keep case, punctuation, hashtags, URLs, emoji and protected spans.

    A text of l words gets max(1, int(alpha · l)) replacements, insertions or swaps, or loses each word with probability
    `p_rd`; 0 turns an operation off. `synonyms` is a two-column file, a word and a synonym a line, which is used in
    place of WordNet; languages other than English have synonyms only from there. `tokenizer` is a `module:function`
    that splits text written without spaces into words (jieba:lcut); otherwise its character clusters are the words.
    """

    distinct = True

    def __init__(
        self,
        alpha_sr: float = 0.1,
        alpha_ri: float = 0.1,
        alpha_rs: float = 0.1,
        p_rd: float = 0.1,
        language: str = "en",
        synonyms: str | None = None,
        tokenizer: str | None = None,
    ) -> None:
        for name, value in (("alpha_sr", alpha_sr), ("alpha_ri", alpha_ri), ("alpha_rs", alpha_rs), ("p_rd", p_rd)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise RequestError(f"{name} is a share of a text's words, from 0 to 1, not {value!r}")
        if not (alpha_sr or alpha_ri or alpha_rs or p_rd):
            raise RequestError("all four operations are turned off; give one of alpha_sr, alpha_ri, alpha_rs, p_rd")
        self.alpha_sr, self.alpha_ri, self.alpha_rs, self.p_rd = alpha_sr, alpha_ri, alpha_rs, p_rd
        self._units = Units(lexicon(language, synonyms, tokenizer))

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        """n distinct candidates of each sample where that many exist, else all that a bounded search finds."""
        rows = draws.rows(seeds, 2 * n + 8)
        return [
            self._rewrite(sample, n, draws.endless(seed, row))
            for sample, seed, row in zip(samples, seeds, rows, strict=True)
        ]

    def _rewrite(self, sample: Sample, n: int, draw: Draw) -> Candidates | Rejected:
        text = sample.text
        units, folded, strip = self._units.read(sample)
        cores = [i for i, unit in enumerate(units) if unit[2]]
        if not cores:
            return Rejected("there is no word in the text that may be changed" if text.strip() else "the text is empty")
        rich = [i for i in cores if units[i][5]]
        count = len(cores)
        operations = []
        if rich and self.alpha_sr:
            operations.append(SYNONYM)
        if rich and self.alpha_ri:
            operations.append(INSERT)
        if count > 1 and self.alpha_rs:
            operations.append(SWAP)
        if count > 1 and self.p_rd:
            operations.append(DELETE)
        if not operations:
            return Rejected("no word of the text has a synonym, and one word can be neither swapped nor deleted")

        pieces = [unit[0] for unit in units]
        replaced = min(max(1, int(self.alpha_sr * count)), len(rich))
        inserted = min(max(1, int(self.alpha_ri * count)), count + 1)
        swapped = max(1, int(self.alpha_rs * count))
        deleted = _deletions(count, self.p_rd) if DELETE in operations else ()
        seen = {text if folded else fold_space(text)}
        texts: list[str] = []
        names: list[str] = []
        turn = draw()
        misses = 0
        while len(texts) < n:
            operation = operations[turn % len(operations)]
            turn += 1
            out = pieces[:]
            if operation is SYNONYM:
                for k in _pick(len(rich), replaced, draw):
                    unit = units[rich[k]]
                    synonyms = unit[5]
                    out[rich[k]] = unit[1] + synonyms[draw() % len(synonyms)] + unit[3]
            elif operation is INSERT:
                for k in _pick(count + 1, inserted, draw):
                    synonyms = units[rich[draw() % len(rich)]][6]
                    _insert(out, units, cores, k, synonyms[draw() % len(synonyms)])
            elif operation is SWAP:
                order: dict[int, int] = {}
                for _ in range(swapped):
                    a, b = _pick(count, 2, draw)
                    order[a], order[b] = order.get(b, b), order.get(a, a)
                _reorder(out, units, cores, order)
            else:
                for k in _pick(count, 1 + bisect_right(deleted, draw()), draw):
                    out[cores[k]] = units[cores[k]][4]
            candidate = "".join(out)
            if strip:
                candidate = candidate.lstrip()
            key = candidate if folded else fold_space(candidate)
            if key not in seen and key:
                seen.add(key)
                texts.append(candidate)
                names.append(operation)
            elif (misses := misses + 1) > n + 8:
                break
        if len(texts) < n:
            budget = _SEARCH_CHARACTERS // (len(text) + 16)
            for operation, out in islice(_single_edits(units, cores, rich, operations), budget):
                candidate = "".join(out).lstrip() if strip else "".join(out)
                key = fold_space(candidate)
                if key not in seen and key:
                    seen.add(key)
                    texts.append(candidate)
                    names.append(operation)
                    if len(texts) == n:
                        break
        if not texts:
            return Rejected("every rewrite of the text is the text itself")
        return Candidates(texts, names)


def _insert(out: list[str], units: list[Unit], cores: list[int], place: int, word: str) -> None:
    """Before word number `place`, or after the last one."""
    if place < len(cores):
        i = cores[place]
        lead = units[i][1]
        out[i] = f"{lead}{word}{units[i][7]}{out[i][len(lead) :]}"
    else:
        i = cores[-1]
        cut = len(out[i]) - len(units[i][3])
        out[i] = f"{out[i][:cut]}{units[i][7]}{word}{out[i][cut:]}"


def _reorder(out: list[str], units: list[Unit], cores: list[int], order: dict[int, int]) -> None:
    for place, source in order.items():
        unit = units[cores[place]]
        out[cores[place]] = unit[1] + units[cores[source]][2] + unit[3]


def _pick(size: int, count: int, draw: Draw) -> Sequence[int]:
    """`count` different numbers below `size`."""
    if count == 1:
        return (draw() % size,)
    if count == 2:
        a = draw() % size
        b = draw() % (size - 1)
        return (a, b + 1) if b >= a else (a, b)
    if 4 * count <= size:
        few: dict[int, None] = {}
        while len(few) < count:
            few[draw() % size] = None
        return list(few)
    order = list(range(size))
    for i in range(count):
        j = i + draw() % (size - i)
        order[i], order[j] = order[j], order[i]
    return order[:count]


@lru_cache(maxsize=4096)
def _deletions(count: int, p: float) -> tuple[int, ...]:
    """P(k deletions | 1 ≤ k < count) for k = 1, 2, …, cumulated, as bounds for a draw; the last bound is left out."""
    if p == 1:
        return (0,) * (count - 2)
    most = min(count - 1, int(count * p + 10 * sqrt(count * p) + 10))
    ways = [
        exp(lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) + k * log(p) + (count - k) * log1p(-p))
        for k in range(1, most + 1)
    ]
    total = sum(ways) or 1.0
    return tuple(int(part / total * (1 << draws.BITS)) for part in accumulate(ways))[:-1]


def _single_edits(
    units: list[Unit], cores: list[int], rich: list[int], operations: list[str]
) -> Iterator[tuple[str, list[str]]]:
    """Every candidate that is one edit away, deletions of any number of words: what chance may miss in a short text."""
    pieces = [unit[0] for unit in units]
    count = len(cores)
    if SYNONYM in operations:
        for i in rich:
            for word in units[i][5]:
                out = pieces[:]
                out[i] = units[i][1] + word + units[i][3]
                yield SYNONYM, out
    if SWAP in operations:
        for a, b in combinations(range(count), 2):
            out = pieces[:]
            _reorder(out, units, cores, {a: b, b: a})
            yield SWAP, out
    if INSERT in operations:
        for place in range(count + 1):
            for i in rich:
                for word in units[i][6]:
                    out = pieces[:]
                    _insert(out, units, cores, place, word)
                    yield INSERT, out
    if DELETE in operations:
        runs = (cores[start : start + size] for size in range(1, count) for start in range(count - size + 1))
        subsets = (subset for size in range(2, count) for subset in combinations(cores, size))
        for gone in chain(runs, subsets):
            out = pieces[:]
            for i in gone:
                out[i] = units[i][4]
            yield DELETE, out
