"""Constituents of English texts: noun, prepositional, verb, adjective and adverb phrases, from parts of speech."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from epida_ray.generate.tagger import tag
from epida_ray.generate.words import Span, split, touching

_LETTERS = {
    "DT": "d", "PDT": "d", "PRP$": "d", "JJ": "j", "JJR": "j", "JJS": "j", "CD": "j", "NN": "n", "NNS": "n",
    "NNP": "n", "NNPS": "n", "IN": "i", "TO": "i", "VB": "v", "VBD": "v", "VBG": "v", "VBN": "v", "VBP": "v",
    "VBZ": "v", "RB": "r", "RBR": "r", "RBS": "r",
}  # fmt: skip
_AUXILIARIES = {
    "be", "am", "is", "are", "was", "were", "been", "being", "do", "does", "did", "done", "doing", "have", "has", "had",
    "having",
}  # fmt: skip
_NO_PREPOSITIONS = {
    "although", "as", "because", "if", "since", "so", "than", "that", "though", "unless", "whether", "while",
}  # fmt: skip
_NP = "d?(?:r?j)*n+"
KINDS = ("NP", "PP", "VP", "ADJP", "ADVP")
_PATTERNS = [re.compile(pattern) for pattern in (_NP, f"i{_NP}", f"v+r?{_NP}", "r*j+(?!n)", "r+(?![jr])")]


class Tagged(NamedTuple):
    """A text's words with their places and tags."""

    text: str
    spans: list[Span]
    tags: list[str]
    letters: str
    """One letter a word, and a dot where punctuation or anything else comes between two words."""
    places: list[int]
    """The word behind each letter; -1 for a dot."""


class Chunk(NamedTuple):
    kind: int
    """Its position in KINDS."""
    length: int
    """In words."""
    start: int
    stop: int
    begins: bool
    """Whether the text's first word is in it."""
    named: bool
    """Whether its first word is a name, which keeps its capital wherever it moves."""


def tagged(text: str) -> Tagged:
    glue, cores = split(text)
    tokens: list[str] = []
    at = []
    for i, between in enumerate(glue):
        tokens += between.split()
        if i < len(cores):
            at.append(len(tokens))
            tokens.append(cores[i])
    all_tags = tag(tokens)
    spans, letters, places = [], [], []
    end = 0
    for i, core in enumerate(cores):
        attached = glue[i].endswith(("'", "’"))  # the s of it 's
        if i and glue[i].strip():
            letters.append(".")
            places.append(-1)
        start = end + len(glue[i])
        end = start + len(core)
        spans.append((start, end))
        letters.append("x" if attached else _letter(core.lower(), all_tags[at[i]]))
        places.append(i)
    return Tagged(text, spans, [all_tags[k] for k in at], "".join(letters), places)


def _letter(word: str, tag: str) -> str:
    letter = _LETTERS.get(tag, "x")
    if (letter == "v" and word in _AUXILIARIES) or (letter == "i" and word in _NO_PREPOSITIONS) or word == "n't":
        return "x"
    return letter


def chunks(words: Tagged, protected: Sequence[Span] = ()) -> list[Chunk]:
    """Return the constituents that no protected span touches; one may lie in another."""
    touches = touching(protected)
    found = []
    for kind, pattern in enumerate(_PATTERNS):
        for match in pattern.finditer(words.letters):
            first, last = words.places[match.start()], words.places[match.end() - 1]
            start, stop = words.spans[first][0], words.spans[last][1]
            if not touches(start, stop):
                named = words.tags[first].startswith("NNP") or words.text[start : start + 2].isupper()
                found.append(Chunk(kind, last - first + 1, start, stop, first == 0, named))
    return found
