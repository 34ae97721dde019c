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
from epida_ray.generate.units import Reading, Units
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
        shares = {SYNONYM: alpha_sr, INSERT: alpha_ri, SWAP: alpha_rs, DELETE: p_rd}
        self._operations = [operation for operation, share in shares.items() if share]
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
        reading = self._units.read(sample)
        pieces, cores, rich, units, keys, folded, strip = reading
        count = len(cores)
        if not count:
            return Rejected("there is no word in the text that may be changed" if text.strip() else "the text is empty")
        operations = self._operations if rich and count > 1 else self._possible(count, bool(rich))
        if not operations:
            return Rejected("no word of the text has a synonym, and one word can be neither swapped nor deleted")
        replaced = min(max(1, int(self.alpha_sr * count)), len(rich))
        inserted = min(max(1, int(self.alpha_ri * count)), count + 1)
        swapped = max(1, int(self.alpha_rs * count))
        bounds = _deletions(count, self.p_rd)
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
                for k in pick(len(rich), replaced, draw):
                    i = rich[k]
                    unit = units[keys[i]]
                    synonyms = unit[5]
                    out[i] = unit[1] + synonyms[draw() % len(synonyms)] + unit[3]
                candidate = "".join(out)
            elif operation is INSERT:
                for k in pick(count + 1, inserted, draw):
                    synonyms = units[keys[rich[draw() % len(rich)]]][6]
                    _insert(out, reading, k, synonyms[draw() % len(synonyms)])
                candidate = "".join(out)
            elif operation is SWAP:
                order: dict[int, int] = {}
                for _ in range(swapped):
                    a, b = pick(count, 2, draw)
                    order[a], order[b] = order.get(b, b), order.get(a, a)
                _reorder(out, reading, order)
                candidate = "".join(out)
            else:
                for k in pick(count, 1 + bisect_right(bounds, draw()), draw):
                    i = cores[k]
                    out[i] = units[keys[i]][4]
                candidate = "".join(out).lstrip() if strip else "".join(out)
            key = candidate if folded else fold_space(candidate)
            if key not in seen and key:
                seen.add(key)
                texts.append(candidate)
                names.append(operation)
            elif (misses := misses + 1) > n + 8:
                break
        if len(texts) < n:
            budget = _SEARCH_CHARACTERS // (len(text) + 16)
            for operation, out in islice(_single_edits(reading, operations), budget):
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

    def _possible(self, count: int, rich: bool) -> list[str]:
        needed = {SYNONYM: rich, INSERT: rich, SWAP: count > 1, DELETE: count > 1}
        return [operation for operation in self._operations if needed[operation]]


class Synonym(EDA):
    """Synonym replacement alone: max(1, int(alpha · l)) of a text's l words."""

    def __init__(
        self, alpha: float = 0.1, language: str = "en", synonyms: str | None = None, tokenizer: str | None = None
    ) -> None:
        if not alpha:
            raise RequestError("alpha is the share of a text's words to replace, from 0 to 1; 0 replaces none")
        super().__init__(alpha, 0, 0, 0, language=language, synonyms=synonyms, tokenizer=tokenizer)


def _insert(out: list[str], reading: Reading, place: int, word: str) -> None:
    """Before word number `place`, or after the last one."""
    cores = reading.cores
    if place < len(cores):
        i = cores[place]
        unit = reading.units[reading.keys[i]]
        lead = unit[1]
        out[i] = f"{lead}{word}{unit[7]}{out[i][len(lead) :]}"
    else:
        i = cores[-1]
        unit = reading.units[reading.keys[i]]
        cut = len(out[i]) - len(unit[3])
        out[i] = f"{out[i][:cut]}{unit[7]}{word}{out[i][cut:]}"


def _reorder(out: list[str], reading: Reading, order: dict[int, int]) -> None:
    _, cores, _, units, keys, _, _ = reading
    for place, source in order.items():
        unit = units[keys[cores[place]]]
        out[cores[place]] = unit[1] + units[keys[cores[source]]][2] + unit[3]


def pick(size: int, count: int, draw: Draw) -> Sequence[int]:
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
    if p in (0, 1) or count < 2:
        return (0,) * int(p * (count - 2))
    most = min(count - 1, int(count * p + 10 * sqrt(count * p) + 10))
    ways = [
        exp(lgamma(count + 1) - lgamma(k + 1) - lgamma(count - k + 1) + k * log(p) + (count - k) * log1p(-p))
        for k in range(1, most + 1)
    ]
    total = sum(ways) or 1.0
    return tuple(int(part / total * (1 << draws.BITS)) for part in accumulate(ways))[:-1]


def _single_edits(reading: Reading, operations: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Every candidate that is one edit away, deletions of any number of words: what chance may miss in a short text."""
    pieces, cores, rich, units, keys, _, _ = reading
    count = len(cores)
    if SYNONYM in operations:
        for i in rich:
            unit = units[keys[i]]
            for word in unit.synonyms:
                out = pieces[:]
                out[i] = unit.lead + word + unit.tail
                yield SYNONYM, out
    if SWAP in operations:
        for a, b in combinations(range(count), 2):
            out = pieces[:]
            _reorder(out, reading, {a: b, b: a})
            yield SWAP, out
    if INSERT in operations:
        for place in range(count + 1):
            for i in rich:
                for word in units[keys[i]].insertions:
                    out = pieces[:]
                    _insert(out, reading, place, word)
                    yield INSERT, out
    if DELETE in operations:
        runs = (cores[start : start + size] for size in range(1, count) for start in range(count - size + 1))
        subsets = (subset for size in range(2, count) for subset in combinations(cores, size))
        for gone in chain(runs, subsets):
            out = pieces[:]
            for i in gone:
                out[i] = units[keys[i]].stub
            yield DELETE, out
