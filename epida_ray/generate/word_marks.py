"""Which words of a rewrite are new, and which words of its original are gone."""

from __future__ import annotations

from difflib import SequenceMatcher

import regex

from epida_ray.generate.words import NO_SPACES

SAME, NEW, REMOVED = 0, 1, 2

_PIECE = regex.compile(rf"(?V1)\s+|{NO_SPACES}\p{{M}}*|(?:(?!{NO_SPACES})\S)+")
"""White space, a word, or a character of a script without spaces."""


def mark_words(source: str, text: str) -> list[tuple[str, int]]:
    """Return pieces of both texts, each marked SAME, NEW or REMOVED; all but the removed ones, joined, are `text`."""
    old, new = (_PIECE.findall(t) for t in (source, text))
    before = [piece for piece in old if not piece.isspace()]
    words = [i for i, piece in enumerate(new) if not piece.isspace()]
    flags = [SAME] * len(new)
    removed: dict[int, str] = {}
    matcher = SequenceMatcher(None, before, [new[i] for i in words], autojunk=False)
    for what, start, end, first, last in matcher.get_opcodes():
        if what == "delete":
            removed[words[first] if first < len(words) else len(new)] = " ".join(before[start:end])
        elif what != "equal":
            for i in words[first:last]:
                flags[i] = NEW
    pieces: list[tuple[str, int]] = []
    for i, piece in enumerate([*new, ""]):
        if i in removed:
            pieces.append((removed[i], REMOVED))
        if i < len(new):
            if pieces and pieces[-1][1] == flags[i]:
                pieces[-1] = (pieces[-1][0] + piece, flags[i])
            else:
                pieces.append((piece, flags[i]))
    return pieces
