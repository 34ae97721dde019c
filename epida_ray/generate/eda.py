"""EDA: synonym replacement, random insertion, random swap and random deletion (Wei and Zou, 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import eda_kernel, languages
from epida_ray.generate.synonyms import lexicon
from epida_ray.generate.units import Tables, Units

OPERATIONS = ("synonym", "insert", "swap", "delete")

_REASONS = {
    eda_kernel.NO_WORD: "there is no word in the text that may be changed",
    eda_kernel.NO_OPERATION: "no word of the text has a synonym, and one word can be neither swapped nor deleted",
    eda_kernel.NOTHING_NEW: "every rewrite of the text is the text itself",
}
_BATCH_BYTES = 1 << 23


class EDA:
    """Word-level edits that keep case, punctuation, hashtags, URLs, emoji and protected spans.

    A text of l words gets max(1, int(alpha · l)) replacements, insertions or swaps, or loses each word with probability
    `p_rd`, but at least one; 0 turns an operation off. `synonyms` is a two-column file, a word and a synonym a line,
    which is used in place of WordNet; languages other than English have synonyms only from there. `tokenizer` is a
    `module:function` that splits text written without spaces into words (jieba:lcut); otherwise its character clusters
    are the words.
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
        self._shares = np.array([alpha_sr, alpha_ri, alpha_rs, p_rd], dtype=np.float64)
        self._units = Units(lexicon(language, synonyms, tokenizer))
        self._tables: Tables | None = None
        self._version: object = None

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        """n distinct candidates of each sample where that many exist, else all that a bounded search finds."""
        answers: list[Candidates | Rejected] = []
        for start, stop in _batches(samples, n):
            answers += self._batch(samples[start:stop], n, seeds[start:stop])
        return answers

    def _batch(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        self._units.forget_if_large()
        flat: list[int] = []
        offsets = [0]
        strip = []
        for sample in samples:
            numbers, stripped = self._units.read(sample)
            flat += numbers
            offsets.append(len(flat))
            strip.append(stripped)
        if self._tables is None or self._version != self._units.version:
            self._tables, self._version = self._units.tables(), self._units.version
        count = len(samples)
        seed = np.array([s & 0xFFFFFFFFFFFFFFFF for s in seeds], dtype=np.uint64)
        where = np.array(offsets, dtype=np.int64)
        ids = np.array(flat, dtype=np.int32)
        stripped_ = np.array(strip, dtype=np.bool_)
        starts, ends = np.zeros(count * n, np.int64), np.zeros(count * n, np.int64)
        operations, made, status = np.zeros(count * n, np.int8), np.zeros(count, np.int32), np.zeros(count, np.int8)
        out = np.empty(max(4 * n * sum(len(sample.text) + 64 for sample in samples), 4096), np.uint8)
        answers: list[Candidates | Rejected] = []
        first = 0
        while first < count:
            done, used = eda_kernel.rewrite(
                first, seed, where, ids, stripped_, n, self._shares, *self._tables,
                out, starts, ends, operations, made, status,
            )  # fmt: skip
            if done == first:
                out = np.empty(2 * out.size, np.uint8)
                continue
            written = out[:used].tobytes().decode("utf-8", "surrogatepass")
            a, b = starts[first * n : done * n].tolist(), ends[first * n : done * n].tolist()
            names = [OPERATIONS[operation] for operation in operations[first * n : done * n].tolist()]
            k = 0
            for size, problem in zip(made[first:done].tolist(), status[first:done].tolist(), strict=True):
                if problem:
                    text = samples[first + k // n].text if n else ""
                    answers.append(Rejected(_REASONS[problem] if text.strip() else "the text is empty"))
                else:
                    texts = [written[i:j] for i, j in zip(a[k : k + size], b[k : k + size], strict=True)]
                    answers.append(Candidates(texts, names[k : k + size]))
                k += n
            first = done
        return answers


class Synonym(EDA):
    """Synonym replacement alone: max(1, int(alpha · l)) of a text's l words."""

    def __init__(
        self, alpha: float = 0.1, language: str = "en", synonyms: str | None = None, tokenizer: str | None = None
    ) -> None:
        if not alpha:
            raise RequestError("alpha is the share of a text's words to replace, from 0 to 1; 0 replaces none")
        if synonyms is None and languages.base(language) != "en":
            raise RequestError(f"there are no synonyms for the language {language}; give a table with synonyms=FILE")
        super().__init__(alpha, 0, 0, 0, language=language, synonyms=synonyms, tokenizer=tokenizer)


def _batches(samples: Sequence[Sample], n: int) -> Iterator[tuple[int, int]]:
    """Ranges of samples whose candidates fit into memory with ease, however long the texts are."""
    start, size = 0, 0
    for i, sample in enumerate(samples):
        size += n * (len(sample.text) + 64)
        if size > _BATCH_BYTES:
            yield start, i + 1
            start, size = i + 1, 0
    if start < len(samples):
        yield start, len(samples)
