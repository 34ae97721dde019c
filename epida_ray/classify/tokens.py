"""Text → words → small integers. Each white-space chunk is taken apart once and remembered."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from epida_ray.classify import kernels

# Scripts that are written without spaces are read a character at a time.
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_LETTER = rf"(?:(?![{_SPACELESS}])[\w{_MARKS}])"
_WORD = re.compile(
    r"\d+(?:[.,]\d+)+"
    rf"|{_LETTER}+?(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b"
    rf"|{_LETTER}+|\S"
)


def words(text: str) -> list[str]:
    """Return lower-case words; punctuation marks stand alone, English contractions are split as in GloVe (`do n't`)."""
    return _WORD.findall(text.lower().replace("\u2019", "'"))


class Vocabulary:
    """Words numbered from 1 as they are seen; 0 is the padding word. Forgets everything when it grows too large."""

    def __init__(self, max_words: int, capacity: int) -> None:
        self.max_words = max_words
        """Texts are cut after so many words."""
        self.capacity = capacity
        self.generation = 0
        """Grows by one whenever the numbers were given out anew."""
        self._forget()

    def _forget(self) -> None:
        self.generation += 1
        self.words: list[str] = [""]
        self._ids: dict[str, int] = {}
        self._chunks = _Chunks(self._take_apart)
        self._chunk_words = array("i")
        self._chunk_start = array("q", [0])
        self._characters = 0
        self._table: tuple[np.ndarray, np.ndarray] | None = None

    def _take_apart(self, chunk: str) -> int:
        ids = self._ids
        for word in words(chunk[: 64 * self.max_words])[: self.max_words]:
            number = ids.get(word)
            if number is None:
                number = ids[word] = len(self.words)
                self.words.append(word)
            self._chunk_words.append(number)
        self._chunk_start.append(len(self._chunk_words))
        self._characters += len(chunk)
        self._table = None
        return len(self._chunk_start) - 2

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the word ids (int32) of all texts in a row, and where each text begins and ends (int64 [N + 1])."""
        if len(self.words) > self.capacity or self._characters > 64 * self.capacity:
            self._forget()
        short = 2 * self.max_words
        limit = self.max_words
        split = [t.split() if len(t) < short else t.split(None, limit)[:limit] for t in texts]
        counts = np.fromiter(map(len, split), np.int64, len(split))
        chunks = np.fromiter(map(self._chunks.__getitem__, chain.from_iterable(split)), np.int32, int(counts.sum()))
        if self._table is None:
            self._table = np.array(self._chunk_start), np.array(self._chunk_words)
        start, members = self._table
        flat = np.empty(int((start[chunks + 1] - start[chunks]).sum()), np.int32)
        offsets = np.empty(len(split) + 1, np.int64)
        used = kernels.expand(chunks, counts, start, members, limit, flat, offsets)
        return flat[:used], offsets


class _Chunks(dict[str, int]):
    def __init__(self, make: Callable[[str], int]) -> None:
        self._make = make

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = self._make(chunk)
        return number
