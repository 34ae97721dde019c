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
    are the words. `careful` takes only synonyms of the word's part of speech and of a common sense that are close to
    the rest of the text, and none for names; it is slower.
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
        careful: bool = False,
    ) -> None:
        for name, value in (("alpha_sr", alpha_sr), ("alpha_ri", alpha_ri), ("alpha_rs", alpha_rs), ("p_rd", p_rd)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise RequestError(f"{name} is a share of a text's words, from 0 to 1, not {value!r}")
        if not (alpha_sr or alpha_ri or alpha_rs or p_rd):
            raise RequestError("all four operations are turned off; give one of alpha_sr, alpha_ri, alpha_rs, p_rd")
        self._shares = np.array([alpha_sr, alpha_ri, alpha_rs, p_rd], dtype=np.float64)
        self._strength = 1.0
        self._units = Units(lexicon(language, synonyms, tokenizer, careful))
        self._tables: Tables | None = None
        self._version: object = None

    def set_strength(self, share: float) -> None:
        self._strength = share

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        """Return n distinct candidates of each sample, or all that a bounded search finds if there are fewer."""
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
        batch = eda_kernel.Batch(
            np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], np.uint64),
            np.array(offsets, np.int64),
            np.array(flat, np.int32),
        )
        starts, ends = np.zeros(count * n, np.int64), np.zeros(count * n, np.int64)
        operations, made, status = np.zeros(count * n, np.int8), np.zeros(count, np.int32), np.zeros(count, np.int8)
        text = np.empty(self._room(n, batch, self._tables), np.uint8)
        output = eda_kernel.Output(text, starts, ends, operations, made, status)
        eda_kernel.rewrite(n, self._shares * self._strength, batch, self._tables, output)
        data = text[: ends.max(initial=0)].tobytes()
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        names = [OPERATIONS[operation] for operation in operations.tolist()]
        answers: list[Candidates | Rejected] = []
        for s, (size, problem) in enumerate(zip(made.tolist(), status.tolist(), strict=True)):
            if problem:
                empty = not samples[s].text.strip()
                answers.append(Rejected("the text is empty" if empty else _REASONS[problem]))
                continue
            texts = [data[a:b].decode("utf-8", "surrogatepass") for a, b in spans[s * n : s * n + size]]
            answers.append(Candidates([t.lstrip() for t in texts] if strip[s] else texts, names[s * n : s * n + size]))
        return answers

    def _room(self, n: int, batch: eda_kernel.Batch, tables: Tables) -> int:
        """Return a bound of the bytes of all candidates; memory that is not written to costs nothing."""
        size = int(tables.units[batch.flat][:, [eda_kernel.LEAD, eda_kernel.CORE, eda_kernel.TAIL]].sum())
        words = 2 * len(batch.seeds) + int(self._shares[:2].max() * len(batch.flat))
        return n * (size + words * (tables.longest_word + 1))


class Synonym(EDA):
    """Synonym replacement alone: max(1, int(alpha · l)) of a text's l words."""

    def __init__(
        self,
        alpha: float = 0.1,
        language: str = "en",
        synonyms: str | None = None,
        tokenizer: str | None = None,
        careful: bool = False,
    ) -> None:
        if not alpha:
            raise RequestError("alpha is the share of a text's words to replace, from 0 to 1; 0 replaces none")
        if synonyms is None and languages.base(language) != "en":
            raise RequestError(f"there are no synonyms for the language {language}; give a table with synonyms=FILE")
        super().__init__(alpha, 0, 0, 0, language=language, synonyms=synonyms, tokenizer=tokenizer, careful=careful)


def _batches(samples: Sequence[Sample], n: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of samples whose candidates fit into memory easily, however long the texts are."""
    start, size = 0, 0
    for i, sample in enumerate(samples):
        size += n * (len(sample.text) + 64)
        if size > _BATCH_BYTES:
            yield start, i + 1
            start, size = i + 1, 0
    if start < len(samples):
        yield start, len(samples)
