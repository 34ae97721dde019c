"""A text as editable units, read once per sample: a rewrite replaces pieces of the list and joins it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from epida_ray.generate.synonyms import Lexicon
from epida_ray.generate.words import Span, is_spaced, split, touching
from epida_ray.sample import Sample

_WHITE_SPACE = re.compile(r"(\s+)")
_CACHED_CHUNKS = 1 << 17
_CACHED_LENGTH = 40


class Unit(NamedTuple):
    """A word in its place."""

    piece: str
    """lead + core + tail, which is how the word stands in the text."""
    lead: str
    core: str
    """Empty where there is nothing that may be changed."""
    tail: str
    stub: str
    """What is left when the word is deleted."""
    synonyms: tuple[str, ...]
    """In the case of the word."""
    insertions: tuple[str, ...]
    """In lower case, unless the word is all capitals."""
    space: str
    """What this script puts between two words."""


class Units:
    """Reads samples into units. The chunks between blanks repeat all the time, so each is taken apart only once."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._chunks = _Chunks(self._take_apart)

    def read(self, sample: Sample) -> tuple[list[Unit], bool, bool]:
        """The units; whether the text and what is joined from them have folded white space; and whether white space in
        front of the joined text is to be stripped, because it is only there for the next word."""
        text = sample.text
        if len(self._chunks) > _CACHED_CHUNKS:
            self._chunks.clear()
        chunks = text.split()
        if not sample.protected and " ".join(chunks) == text:
            return list(chain.from_iterable(map(self._chunks.__getitem__, chunks))), True, True
        keep = any(text[a:b].strip() != text[a:b] for a, b in sample.protected)
        return self._read_exactly(text, sample.protected, keep), False, not keep and not text[:1].isspace()

    def _read_exactly(self, text: str, protected: Sequence[Span], keep: bool) -> list[Unit]:
        """Units of a text with protected spans, or with other white space than single blanks.

        `keep`: a protected span begins or ends with white space, so that even a deletion must leave all of it.
        """
        touches = touching(protected)
        units: list[Unit] = []
        parts = _WHITE_SPACE.split(text)
        stop = 0
        for i in range(0, len(parts), 2):
            space = parts[i - 1] if i else ""
            start, stop = stop + len(space), stop + len(space) + len(parts[i])
            if touches(start, stop):
                first, *rest = self._take_apart(parts[i], [(a - start, b - start) for a, b in protected])
            else:
                first, *rest = self._chunks[parts[i]]
            lead = space + first.lead[1:]
            stub = (lead.rstrip() if first.core and not keep else lead) + first.tail
            units.append(first._replace(piece=space + first.piece[1:], lead=lead, stub=stub))
            units.extend(rest)
        return units

    def _take_apart(self, chunk: str, protected: Sequence[Span] = ()) -> list[Unit]:
        glue, cores = split(chunk, protected, self._lexicon.tokenizer)
        if not cores:
            return [Unit(" " + chunk, " " + chunk, "", "", " " + chunk, (), (), "")]
        units = []
        last = len(cores) - 1
        spaces = [" " if is_spaced(core) else "" for core in cores]
        for i, core in enumerate(cores):
            lead = glue[i] if i else " " + glue[i]
            tail = glue[i + 1] if i == last else ""
            stub = lead.rstrip() + tail
            if i and not glue[i] and not glue[i + 1] and i < last:
                stub = spaces[i - 1]
            lower = self._lexicon.of(core)
            insertions = tuple(word.upper() for word in lower) if _is_shouted(core) else lower
            synonyms = tuple(word[0].upper() + word[1:] for word in insertions) if core[0].isupper() else insertions
            units.append(Unit(lead + core + tail, lead, core, tail, stub, synonyms, insertions, spaces[i]))
        return units


def _is_shouted(core: str) -> bool:
    return len(core) > 1 and core.isupper()


class _Chunks(dict[str, list[Unit]]):
    def __init__(self, take_apart: Callable[[str], list[Unit]]) -> None:
        super().__init__()
        self._take_apart = take_apart

    def __missing__(self, chunk: str) -> list[Unit]:
        units = self._take_apart(chunk)
        if len(chunk) <= _CACHED_LENGTH:
            self[chunk] = units
        return units
