"""Texts as tables of words in their places, which is what the compiled loop of EDA works on.

The pieces between two blanks repeat all the time, so each piece is split once and then known by a number.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from epida_ray.core.sample import Sample
from epida_ray.generate.synonyms import Lexicon
from epida_ray.generate.words import Span, is_spaced, split, touching

_BEFORE_BLANK = re.compile("(?= )")
# What needs no closer look: letters with at most a blank before and marks after; no smiley ("xD"), no address.
_PLAIN = re.compile(r"( ?)(?![xX]D|www)([A-Za-z]+)([.,!?]*)")
_MOST_BYTES = 1 << 26
_MOST_UNITS = 1 << 19
_LONGEST_KEY = 64
_FIELDS = 10


class Piece(NamedTuple):
    """A piece with protected spans in it, or with synonyms that were chosen for its words in their context."""

    text: str
    protected: tuple[Span, ...] = ()
    keep: bool = False
    """Whether a deletion must leave all white space."""
    synonyms: tuple[tuple[str, ...], ...] | None = None


Key = str | Piece


class Tables(NamedTuple):
    """All that is known of the pieces so far; the columns of `units` are named in eda_kernel."""

    units: np.ndarray
    pool: np.ndarray
    word_at: np.ndarray
    word_size: np.ndarray
    longest_word: int


class Units:
    """Numbers for the pieces of texts, and tables of what is behind the numbers.

    A unit is a word with what stands before it (lead) and, if it is the last of its piece, after it (tail); its stub is
    what deleting the word leaves. Where there is nothing to change, the core is empty.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._clear()

    def read(self, sample: Sample) -> tuple[list[int], bool]:
        """Return the text's units, and whether to strip white space from the front of a candidate, because it was
        left there by a word that stood before it."""
        text = sample.text
        if self._lexicon.careful:
            return self._read_in_context(text, sample.protected)
        if sample.protected:
            return self._read_protected(text, sample.protected)
        pieces = text.replace(" ", "\n ").split("\n") if "\n" not in text else _BEFORE_BLANK.split(text)
        numbers = list(map(self._numbers.__getitem__, pieces))
        if min(numbers) < 0:
            numbers = self._spread(numbers)
        return numbers, not text[:1].isspace()

    def tables(self) -> Tables:
        return Tables(
            np.array(self._units, dtype=np.int32).reshape(-1, _FIELDS),
            np.frombuffer(bytes(self._pool), dtype=np.uint8),
            np.array(self._word_at, dtype=np.int32),
            np.array(self._word_size, dtype=np.int32),
            max(self._word_size, default=0),
        )

    def forget_if_large(self) -> bool:
        """Start anew when the tables have grown too large; numbers given out before are void then."""
        if len(self._pool) < _MOST_BYTES and len(self._units) < _MOST_UNITS * _FIELDS:
            return False
        self._clear()
        return True

    @property
    def version(self) -> tuple[int, int]:
        """Return a value that changes whenever the tables do."""
        return self._generation, len(self._units)

    def _clear(self) -> None:
        self._generation = getattr(self, "_generation", 0) + 1
        self._pool = bytearray()
        self._units = array("i")
        self._word_at = array("i")
        self._word_size = array("i")
        self._lists: dict[tuple[str, ...], int] = {}
        self._shared: dict[tuple[str, str, str, str, tuple[str, ...]], int] = {}
        self._several: list[list[int]] = []
        self._numbers = _Numbers(self)

    def _spread(self, numbers: list[int]) -> list[int]:
        return [unit for number in numbers for unit in ([number] if number >= 0 else self._several[-number - 1])]

    def _read_protected(self, text: str, protected: Sequence[Span]) -> tuple[list[int], bool]:
        pieces, keep = _pieces(text, protected)
        numbers = [self._numbers[piece if keep or piece.protected else piece.text] for piece in pieces]
        return self._spread(numbers), not keep and not text[:1].isspace()

    def _read_in_context(self, text: str, protected: Sequence[Span]) -> tuple[list[int], bool]:
        """Read a text whose synonyms depend on the words around them."""
        pieces, keep = _pieces(text, protected)
        apart = [split(piece.text, piece.protected, self._lexicon.tokenizer) for piece in pieces]
        glue, cores = [""], []
        for between, words in apart:
            glue[-1] += between[0]
            glue += between[1:]
            cores += words
        chosen = iter(self._lexicon.in_context(glue, cores))
        numbers = [
            self._numbers[piece._replace(synonyms=tuple(next(chosen) for _ in words)) if words else piece]
            for piece, (_, words) in zip(pieces, apart, strict=True)
        ]
        return self._spread(numbers), not keep and not text[:1].isspace()

    def number(self, key: Key) -> int:
        """Take a piece apart, enter it and return the number of its unit, or below 0 that of a list of several."""
        if isinstance(key, str) and (plain := _PLAIN.fullmatch(key)):
            lead, core, tail = plain.groups()
            return self._enter(lead, core, tail, tail, *_in_case(core, self._lexicon.of(core)), " ")
        piece, protected, keep, synonyms = Piece(key) if isinstance(key, str) else key
        glue, cores = split(piece, protected, self._lexicon.tokenizer)
        chosen = synonyms or [self._lexicon.of(core) for core in cores]
        units = []
        last = len(cores) - 1
        spaces = [" " if is_spaced(core) else "" for core in cores]
        for i, core in enumerate(cores):
            lead, tail = glue[i], glue[i + 1] if i == last else ""
            stub = (lead if keep else lead.rstrip()) + tail
            if 0 < i < last and not glue[i] and not glue[i + 1]:
                stub = spaces[i - 1]
            place = lead, core, tail, stub, chosen[i]
            if last and place in self._shared:
                units.append(self._shared[place])
                continue
            units.append(self._enter(lead, core, tail, stub, *_in_case(core, chosen[i]), spaces[i]))
            if last:
                self._shared[place] = units[-1]
        if not cores:
            units.append(self._enter(piece, "", "", piece, (), (), ""))
        if len(units) == 1:
            return units[0]
        self._several.append(units)
        return -len(self._several)

    def _enter(
        self,
        lead: str,
        core: str,
        tail: str,
        stub: str,
        synonyms: tuple[str, ...],
        insertions: tuple[str, ...],
        space: str,
    ) -> int:
        parts = lead, core, tail, stub
        data = "".join(parts).encode("utf-8", "surrogatepass")
        sizes = map(len, parts) if len(data) == sum(map(len, parts)) else map(_size, parts)
        before, word, after, left = sizes
        at = len(self._pool)
        self._pool += data
        where = self._list(synonyms)
        other = where if insertions is synonyms else self._list(insertions)
        self._units.extend(
            (at, before, word, after, at + before + word + after, left, where, len(synonyms), other, len(space))
        )
        return len(self._units) // _FIELDS - 1

    def _list(self, words: tuple[str, ...]) -> int:
        where = self._lists.get(words)
        if where is None:
            where = self._lists[words] = len(self._word_at)
            at = len(self._pool)
            for word in words:
                data = word.encode("utf-8", "surrogatepass")
                self._pool += data
                self._word_at.append(at)
                self._word_size.append(len(data))
                at += len(data)
        return where


def _pieces(text: str, protected: Sequence[Span]) -> tuple[list[Piece], bool]:
    """Return what stands between blanks, and whether a protected span begins or ends with white space: even a
    deletion must leave all of it."""
    touches = touching(protected)
    keep = any(text[a:b].strip() != text[a:b] for a, b in protected)
    pieces = []
    start = 0
    for piece in _BEFORE_BLANK.split(text):
        stop = start + len(piece)
        inside: tuple[Span, ...] = ()
        if touches(start, stop):
            inside = tuple((a - start, b - start) for a, b in protected if a < stop and start < b)
        pieces.append(Piece(piece, inside, keep))
        start = stop
    return pieces, keep


def _in_case(core: str, lower: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what may stand in the word's place, in its case, and what may be inserted for it elsewhere."""
    if not lower or core.islower():
        return lower, lower
    shouted = len(core) > 1 and core.isupper()
    insertions = tuple(word.upper() for word in lower) if shouted else lower
    return tuple(word[0].upper() + word[1:] for word in insertions) if core[0].isupper() else insertions, insertions


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class _Numbers(dict[Key, int]):
    def __init__(self, units: Units) -> None:
        super().__init__()
        self._units = units

    def __missing__(self, key: Key) -> int:
        number = self._units.number(key)
        if not isinstance(key, str) or len(key) <= _LONGEST_KEY:
            self[key] = number
        return number
