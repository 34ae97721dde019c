"""Words and phrases that no generator may touch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import regex

from epida_ray.generate.words import NO_SPACES, Span

# A letter run, one character of a script without spaces, or one mark: phrases match whole words, token by token.
_TOKEN = regex.compile(rf"(?V1){NO_SPACES}|[\w--{NO_SPACES}]+|[^\w\s]")


def protect(texts: Sequence[str], phrases: Sequence[str]) -> list[tuple[Span, ...]]:
    """Return the spans of these words and phrases in each text, in any case and with any white space between words.

    Phrases that overlap become one span.
    """
    by_first = _index(tuple(phrases))
    return [_spans(text, by_first) for text in texts]


@lru_cache(maxsize=8)
def _index(phrases: tuple[str, ...]) -> dict[str, list[list[str]]]:
    by_first: dict[str, list[list[str]]] = {}
    for tokens in sorted((_TOKEN.findall(phrase.lower()) for phrase in phrases), key=len, reverse=True):
        if tokens:
            by_first.setdefault(tokens[0], []).append(tokens)
    return by_first


def _spans(text: str, by_first: dict[str, list[list[str]]]) -> tuple[Span, ...]:
    places = [match.span() for match in _TOKEN.finditer(text)]
    tokens = [text[a:b].lower() for a, b in places]
    spans: list[Span] = []
    for i, token in enumerate(tokens):
        for phrase in by_first.get(token, ()):
            if tokens[i : i + len(phrase)] == phrase:
                start, end = places[i][0], places[i + len(phrase) - 1][1]
                if spans and start < spans[-1][1]:
                    start, end = spans[-1][0], max(end, spans.pop()[1])
                spans.append((start, end))
                break
    return tuple(spans)
