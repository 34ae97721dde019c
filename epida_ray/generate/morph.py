"""Crop and rotate sentences around their verb (Şahin and Steedman, 2018), by phrases instead of a dependency tree."""

from __future__ import annotations

from collections.abc import Sequence

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import draws
from epida_ray.generate.chunks import KINDS, chunks, tagged
from epida_ray.generate.draws import Draw
from epida_ray.generate.library import Collector, unusable
from epida_ray.generate.words import Span

CROP, ROTATE = "crop", "rotate"
PAUSES, ENDS = ",;:", ".!?"
CLOSING = (*PAUSES, *ENDS, ")", "]", "”", "’")
PAIRS = {("(", ")"), ("[", "]"), ("“", "”"), ('"', '"')}
_NP, _PP, _VP = (KINDS.index(kind) for kind in ("NP", "PP", "VP"))


class Morph:
    """Leave out or move phrases of an English text; the verb and what belongs to no phrase stay.

    `action=crop` leaves out prepositional, adverb and adjective phrases and noun phrases behind the verb, but never all
    of them. `action=rotate` lets phrases behind the verb change places. `both` does now one and now the other.
    """

    longest = 20_000

    def __init__(self, action: str = "both") -> None:
        if action not in (CROP, ROTATE, "both"):
            raise RequestError(f"action is crop, rotate or both, not {action!r}")
        self._actions = (CROP, ROTATE) if action == "both" else (action,)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        streams = draws.streams(seeds, 8 * n)
        return [self._one(sample, n, draw) for sample, draw in zip(samples, streams, strict=True)]

    def _one(self, sample: Sample, n: int, draw: Draw) -> Candidates | Rejected:
        if problem := unusable(sample.text, self.longest, encoded=True):
            return Rejected(problem)
        loose, behind = fragments(sample.text, sample.protected)
        possible = [a for a in self._actions if (len(loose) if a == CROP else len(behind) - 1) > 0]
        if not possible:
            return Rejected("the text has no phrase that could be left out or moved")
        collector = Collector(sample, n)
        for _ in range(4 * n + 16):
            action = possible[draw() % len(possible)]
            if action == CROP:
                count = 1 + draw() % max(1, min(3, len(loose) - 1))
                gone = {loose[k] for k in draws.pick(len(loose), count, draw)}
                text = cropped(sample.text, gone)
            else:
                a, b = draws.pick(len(behind), 2, draw)
                text = _exchanged(sample.text, *sorted((behind[a], behind[b])))
            if any(c.isalnum() for c in text):
                collector.add(text, action)
            if collector.full:
                break
        return collector.answer()


def fragments(text: str, protected: Sequence[Span]) -> tuple[list[Span], list[Span]]:
    """Return the phrases that may be left out, and those behind the verb, which may change places; none overlap."""
    words = tagged(text)
    verbs = [stop for (_, stop), tag in zip(words.spans, words.tags, strict=True) if tag.startswith("VB")]
    after = verbs[0] if verbs else len(text)
    behind_prepositions = {
        start for (start, _), tag in zip(words.spans[1:], words.tags, strict=False) if tag in ("IN", "TO")
    }
    loose: list[Span] = []
    behind: list[Span] = []
    end = 0
    found = [c for c in chunks(words, protected) if c.kind != _VP]
    for chunk in sorted(found, key=lambda c: (c.start, -c.stop)):  # a PP comes before the NP in it
        if chunk.start < end:
            continue
        end = chunk.stop
        span = chunk.start, chunk.stop
        if chunk.start >= after and not _begins(text, chunk.start):
            behind.append(span)
        if (chunk.kind != _NP or chunk.start >= after) and chunk.start not in behind_prepositions:
            loose.append(span)
    if len(loose) == 1 and text[: loose[0][0]].strip() == "" and text[loose[0][1] :].strip() == "":
        return [], []
    return loose, behind


def cropped(text: str, gone: set[Span]) -> str:
    """Return a text without these phrases and the marks that belonged to them."""
    spans = sorted(gone)
    ends = [*(a for a, _ in spans[1:]), len(text)]
    left = text[: spans[0][0]]
    capital = False
    for (a, b), end in zip(spans, ends, strict=True):
        capital = capital or (text[a].isupper() and _begins(text, a))
        left = _joined(left, text[b:end], capital, end == len(text))
        capital = capital and not any(c.isalnum() for c in text[b:end])
    return left.strip()


def _joined(left: str, right: str, capital: bool, last: bool) -> str:
    """Return what stood before and behind a phrase, without the marks that belonged to it."""
    head, tail = left.rstrip(), right.lstrip()
    between = right[: len(right) - len(tail)] or ("" if tail[:1] in CLOSING else left[len(head) :])
    if (head[-1:], tail[:1]) in PAIRS:
        head, tail, between = head[:-1].rstrip(), tail[1:].lstrip(), " "
    if not head or (head[-1] in ENDS and tail[:1] in PAUSES + ENDS):
        tail, between = tail.lstrip(PAUSES + ENDS + " "), between or " "
    elif (tail[:1] in PAUSES + ENDS) if tail else last:
        head = head.rstrip(PAUSES + " ")
    if capital:
        tail = tail[:1].upper() + tail[1:]
    return head + between + tail if head else tail


def _begins(text: str, place: int) -> bool:
    """Return whether a sentence begins here."""
    before = text[:place].rstrip()
    return not before or before[-1] in ENDS


def _exchanged(text: str, first: Span, second: Span) -> str:
    (a, b), (c, d) = first, second
    return text[:a] + text[c:d] + text[b:c] + text[a:b] + text[d:]
