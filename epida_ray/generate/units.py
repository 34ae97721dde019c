"""A text as editable units, read once per sample: a rewrite replaces pieces of the list and joins it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from epida_ray.generate.synonyms import Lexicon
from epida_ray.generate.words import Span, is_spaced, split, touching
from epida_ray.sample import Sample

_WHITE_SPACE = re.compile(r"(\s+)")
_CACHED_PIECES = 1 << 18
_CACHED_LENGTH = 40

T = TypeVar("T")
_FIXED, _PLAIN, _RICH, _MIXED = range(4)


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


class Reading(NamedTuple):
    """A text taken apart: unit i is units[keys[i]], so that only the units which are edited are looked up."""

    pieces: list[str]
    """Joined, they are the text."""
    cores: Sequence[int]
    """Which pieces have a word."""
    rich: Sequence[int]
    """Which of those have synonyms."""
    units: Mapping[str, Unit] | Sequence[Unit]
    keys: Sequence[Any]
    folded: bool
    """White space is folded in the text and in whatever is made of it, but for one blank in front."""
    strip: bool
    """White space in front of a candidate was left by the word that stood before it."""


class Units:
    """Reads samples. What stands between two blanks repeats all the time, so each such piece is taken apart only once.

    For a piece the common path needs one small number; that it touches nothing else is what makes it fast.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self._kinds: _Memo[int] = _Memo(self._kind)
        self._singles: _Memo[Unit] = _Memo(lambda piece: self._apart[piece][0])
        self._apart: _Memo[list[Unit]] = _Memo(self._take_apart)

    def read(self, sample: Sample) -> Reading:
        text = sample.text
        if sample.protected or "\n" in text:
            return self._read_exactly(text, sample.protected)
        pieces = text.replace(" ", "\n ").split("\n")
        kinds = list(map(self._kinds.__getitem__, pieces))
        if _MIXED in kinds:
            return self._read_exactly(text, ())
        cores = [i for i, kind in enumerate(kinds) if kind] if _FIXED in kinds else range(len(kinds))
        rich = [i for i, kind in enumerate(kinds) if kind == _RICH]
        return Reading(pieces, cores, rich, self._singles, pieces, True, True)

    def _read_exactly(self, text: str, protected: Sequence[Span]) -> Reading:
        """For texts with protected spans, other white space than single blanks, or several words between two blanks."""
        touches = touching(protected)
        # A protected span that begins or ends with white space: even a deletion must leave all of it.
        keep = any(text[a:b].strip() != text[a:b] for a, b in protected)
        units: list[Unit] = []
        parts = _WHITE_SPACE.split(text)
        stop = 0
        for i in range(0, len(parts), 2):
            space = parts[i - 1] if i else ""
            start, stop = stop + len(space), stop + len(space) + len(parts[i])
            if touches(start, stop):
                first, *rest = self._take_apart(" " + parts[i], [(a - start + 1, b - start + 1) for a, b in protected])
            else:
                first, *rest = self._apart[" " + parts[i]]
            if space != " " or keep:
                lead = space + first.lead[1:]
                stub = (lead.rstrip() if first.core and not keep else lead) + first.tail
                first = first._replace(piece=lead + first.core + first.tail, lead=lead, stub=stub)
            units.append(first)
            units.extend(rest)
        cores = [i for i, unit in enumerate(units) if unit.core]
        return Reading(
            pieces=[unit.piece for unit in units],
            cores=cores,
            rich=[i for i in cores if units[i].synonyms],
            units=units,
            keys=range(len(units)),
            folded=not keep
            and "" not in parts[::2]
            and all(space == " " for space in parts[1::2])
            and all(unit.stub != " " for unit in units),
            strip=not keep and parts[0] != "",
        )

    def _take_apart(self, piece: str, protected: Sequence[Span] = ()) -> list[Unit]:
        glue, cores = split(piece, protected, self._lexicon.tokenizer)
        if not cores:
            return [Unit(piece, piece, "", "", piece, (), (), "")]
        units = []
        last = len(cores) - 1
        spaces = [" " if is_spaced(core) else "" for core in cores]
        for i, core in enumerate(cores):
            lead, tail = glue[i], glue[i + 1] if i == last else ""
            stub = lead.rstrip() + tail
            if 0 < i < last and not glue[i] and not glue[i + 1]:
                stub = spaces[i - 1]
            lower = self._lexicon.of(core)
            shouted = len(core) > 1 and core.isupper()
            insertions = tuple(word.upper() for word in lower) if shouted else lower
            synonyms = tuple(word[0].upper() + word[1:] for word in insertions) if core[0].isupper() else insertions
            units.append(Unit(lead + core + tail, lead, core, tail, stub, synonyms, insertions, spaces[i]))
        return units

    def _kind(self, piece: str) -> int:
        if piece.strip() != piece.removeprefix(" ") or piece in ("", " ") or _WHITE_SPACE.search(piece, 1):
            return _MIXED
        units = self._apart[piece]
        if len(units) > 1:
            return _MIXED
        return (_RICH if units[0].synonyms else _PLAIN) if units[0].core else _FIXED


class _Memo(dict[str, T], Generic[T]):
    def __init__(self, make: Callable[[str], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, piece: str) -> T:
        value = self._make(piece)
        if len(piece) <= _CACHED_LENGTH:
            if len(self) >= _CACHED_PIECES:
                self.clear()
            self[piece] = value
        return value
