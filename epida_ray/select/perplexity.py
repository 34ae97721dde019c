"""Perplexity in an n-gram model of the training texts: modified Kneser-Ney (Chen and Goodman 1998), scored by KenLM.

The estimate is that of KenLM's `lmplz --discount_fallback`, without pruning.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from epida_ray.core.errors import RequestError

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
FALLBACK = (0.0, 0.5, 1.0, 1.5)
"""Discounts to use where there are too few counts to estimate them, or the estimates lie outside 0 … k."""

_TOKEN = re.compile(r"\w+|[^\w\s\x00]")

Gram = tuple[str, ...]
Counts = dict[Gram, int]


class Entry(NamedTuple):
    probability: float
    backoff: float


def tokens(text: str) -> list[str]:
    """Return words and single punctuation marks, in lower case."""
    return _TOKEN.findall(text.lower())


class LanguageModel:
    """Perplexities of texts. Pass it as `perplexity=` to `epida_ray.select.parse("ppl+cem")`."""

    def __init__(self, arpa: str | Path) -> None:
        try:
            import kenlm
        except ImportError as error:
            raise RequestError("perplexity needs kenlm; pip install 'epida-ray[ppl]'") from error
        options = kenlm.Config()
        options.show_progress = False
        options.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            self._model = kenlm.Model(str(arpa), options)
        except OSError as error:
            raise RequestError(f"{arpa} is not a language model that kenlm can read: {error}") from error

    @classmethod
    def estimate(cls, texts: Iterable[str], order: int = 5, keep: Path | None = None) -> Self:
        """Estimate the model of these texts; `keep` names a file to write it to, as ARPA."""
        with tempfile.TemporaryDirectory() as directory:
            path = keep or Path(directory) / "model.arpa"
            write_arpa(estimate((tokens(text) for text in texts), order), path)
            return cls(path)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float64]:
        out = np.empty(len(texts))
        for i, text in enumerate(texts):
            words = tokens(text)
            line = " ".join(words).encode("utf-8", "replace").decode()
            out[i] = -self._model.score(line) / (len(words) + 1)
        return np.power(10.0, out)


def estimate(sentences: Iterable[Sequence[str]], order: int = 5) -> list[dict[Gram, Entry]]:
    """Return interpolated probabilities and backoff weights, one table per order, by n-gram."""
    if order < 2:
        raise RequestError(f"the order of a language model must be at least 2, not {order}")
    adjusted = _adjusted_counts(sentences, order)
    if not adjusted[0]:
        raise RequestError("at least one text is required to estimate a language model")
    tables: list[dict[Gram, Entry]] = []
    for n, counts in enumerate(adjusted, 1):
        discount = _discounts(counts)
        weights, totals = _backoff_weights(counts, discount)
        if n == 1:
            # <unk> is a word that was never seen; <s> is given, never predicted
            uniform = weights[()] / (len(counts) + 1)
            table: dict[Gram, float] = {(UNKNOWN,): uniform, (BEGIN,): 1.0}
            table |= {gram: (c - discount[min(c, 3)]) / totals[()] + uniform for gram, c in counts.items()}
        else:
            lower = {gram: entry.probability for gram, entry in tables[-1].items()}
            table = {
                gram: (c - discount[min(c, 3)]) / totals[gram[:-1]] + weights[gram[:-1]] * lower[gram[1:]]
                for gram, c in counts.items()
            }
            tables[-1] = {gram: Entry(p, weights.get(gram, 1.0)) for gram, p in lower.items()}
        tables.append({gram: Entry(p, 1.0) for gram, p in table.items()})
    return tables


def write_arpa(tables: Sequence[dict[Gram, Entry]], path: str | Path) -> None:
    with Path(path).open("w", encoding="utf-8", errors="replace") as file:
        file.writelines(_arpa(tables))


def _arpa(tables: Sequence[dict[Gram, Entry]]) -> Iterator[str]:
    yield "\\data\\\n"
    for n, table in enumerate(tables, 1):
        yield f"ngram {n}={len(table)}\n"
    for n, table in enumerate(tables, 1):
        yield f"\n\\{n}-grams:\n"
        for gram, (probability, backoff) in table.items():
            line = f"{min(math.log10(probability), 0.0):.9g}\t{' '.join(gram)}"
            yield line + (f"\t{math.log10(backoff):.9g}\n" if n < len(tables) else "\n")
    yield "\n\\end\\\n"


def _adjusted_counts(sentences: Iterable[Sequence[str]], order: int) -> list[Counts]:
    """Count n-grams of the highest order or at the start of a text; of others, count the words that precede them."""
    occurrences: list[Counter[Gram]] = [Counter() for _ in range(order)]
    for sentence in sentences:
        words = (BEGIN, *sentence, END)
        for n in range(1, order + 1):
            occurrences[n - 1].update(zip(*(words[i:] for i in range(n)), strict=False))
    adjusted: list[Counts] = []
    for n, counts in enumerate(occurrences, 1):
        if n == order:
            adjusted.append(counts)
            continue
        before = Counter(gram[1:] for gram in occurrences[n])
        if n > 1:
            before.update({gram: c for gram, c in counts.items() if gram[0] == BEGIN})
        adjusted.append(before)
    return adjusted


def _discounts(counts: Counts) -> tuple[float, ...]:
    # Eq. 26 of Chen and Goodman: D_k = k − (k + 1) Y t_{k+1}/t_k, Y = t_1/(t_1 + 2 t_2), t_k n-grams that occur k times
    t = Counter(c for c in counts.values() if c < 5)
    if not (t[1] and t[2] and t[3]):
        return FALLBACK
    y = t[1] / (t[1] + 2 * t[2])
    found = [k - (k + 1) * y * t[k + 1] / t[k] for k in (1, 2, 3)]
    return (0.0, *found) if all(0.0 <= d <= k for k, d in enumerate(found, 1)) else FALLBACK


def _backoff_weights(counts: Counts, discount: Sequence[float]) -> tuple[dict[Gram, float], dict[Gram, int]]:
    # γ(context) = Σ_w D(c(context w)) / Σ_w c(context w)
    freed: defaultdict[Gram, float] = defaultdict(float)
    totals: defaultdict[Gram, int] = defaultdict(int)
    for gram, c in counts.items():
        freed[gram[:-1]] += discount[min(c, 3)]
        totals[gram[:-1]] += c
    return {context: mass / totals[context] for context, mass in freed.items()}, totals
