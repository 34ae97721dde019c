"""A text as words and what lies between them, so that a rewrite can touch the one and keep the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache

import regex

Span = tuple[int, int]
Tokenizer = Callable[[str], Sequence[str]]
"""Splits a run of text written without spaces; the parts, joined, must give the run."""

NO_SPACES = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30FC\uFF70]"
_LETTER = rf"[\w--{NO_SPACES}]"
_FIRST = rf"[[\p{{L}}\p{{N}}_]--{NO_SPACES}]"  # no word starts with a mark: an emoji's variation selector is one

# Fixed things come first: they contain letters, but belong to what lies between the words.
_UNITS = regex.compile(
    rf"""(?V1)
    (?P<fixed>
        (?:https?://|ftp://|www\.)\S++
      | \w[\w.+\-]{{0,63}}+@\w[\w.\-]*+
      | (?<![\w&])[@#＠＃]\w[\w\-]*+
      | &\#?\w{{1,10}}+;
      | [0-9#*]\uFE0F?\u20E3
      | (?<!\w)(?:[:;=][\-'^]?[DPpOoSsXx3]|[xX]D+|<3+)(?!\w)
    )
  | (?P<run>(?:(?={NO_SPACES})\X)++)
  | (?P<word>(?:\p{{Sc}}(?=\d))?{_FIRST}{_LETTER}*+(?:(?:['’.\-‐‑]|(?<=\d)[,:/](?=\d)){_LETTER}++)*+(?:(?<=\d)[%°])?)
    """,
    regex.VERBOSE,
)
_CLUSTER = regex.compile(r"\X")
_RUN = regex.compile(rf"(?V1)(?:{NO_SPACES}\p{{M}}*)+")


def split(text: str, protected: Sequence[Span] = (), tokenizer: Tokenizer | None = None) -> tuple[list[str], list[str]]:
    """Return `glue, cores` with glue[0] + cores[0] + glue[1] + … + cores[-1] + glue[-1] == text.

    A core is one word by Unicode's word boundaries, with its apostrophes and hyphens, a number, or, in scripts written
    without spaces, one character cluster (or what `tokenizer` makes of the run). Punctuation, emoji, URLs, addresses,
    #hashtags, @users and every word that a protected span touches are glue.
    """
    glue: list[str] = []
    cores: list[str] = []
    end = 0
    touches = touching(protected)
    for match in _UNITS.finditer(text):
        kind = match.lastgroup
        if kind == "fixed":
            continue
        start, stop = match.span()
        if kind == "word":
            core = match[0]
            if core.strip("_") == "" or touches(start, stop):
                continue
            glue.append(text[end:start])
            cores.append(core)
            end = stop
            continue
        for part in _parts(match[0], tokenizer):
            stop = start + len(part)
            if not touches(start, stop):
                glue.append(text[end:start])
                cores.append(part)
                end = stop
            start = stop
    glue.append(text[end:])
    return glue, cores


@lru_cache(maxsize=1 << 14)
def is_spaced(core: str) -> bool:
    """Return whether this word's script puts blanks between words."""
    return core.isascii() or _RUN.fullmatch(core) is None


def touching(protected: Sequence[Span]) -> Callable[[int, int], bool]:
    """Return a function that says whether a span shares a character with a protected one."""
    if not protected:
        return lambda start, stop: False
    merged: list[Span] = []
    for a, b in sorted(span for span in protected if span[0] < span[1]):
        if merged and a <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    starts = [a for a, _ in merged]
    ends = [b for _, b in merged]

    def touches(start: int, stop: int) -> bool:
        nearest = bisect_right(ends, start)
        return nearest < len(starts) and starts[nearest] < stop

    return touches


def _parts(run: str, tokenizer: Tokenizer | None) -> Sequence[str]:
    if tokenizer is not None:
        parts = [part for part in tokenizer(run) if part]
        if "".join(parts) == run:
            return parts
    clusters: list[str] = _CLUSTER.findall(run)
    return clusters
