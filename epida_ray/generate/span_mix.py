"""Put a span of another sample into a text and mix the labels by length (after SSMix, Yoon et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample, SoftLabel
from epida_ray.generate import draws
from epida_ray.generate.corpus import CORPUS_ROWS, READ, checked_rows
from epida_ray.generate.draws import Draw
from epida_ray.generate.library import Collector, unusable
from epida_ray.generate.words import Span, split, touching

_INDEX = pa.schema([("id", pa.string()), ("label", pa.string()), ("text", pa.string())])


class SpanMix:
    """Replace some words in a row by as many words in a row of another sample, of any class.

    Up to `share` of the words are replaced, less than half. A candidate has the label of the other sample with the
    share of the words that come from it, and its own with the rest. SSMix replaces the words that matter least to a
    classifier; here any may go, and the selector chooses. At most `rows` samples are indexed.
    """

    needs_corpus = True
    soft_labels = True
    longest = 20_000

    def __init__(self, share: float = 0.3, rows: int = CORPUS_ROWS) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 0.5:
            raise RequestError(f"share is the largest share of another text, above 0 and below 0.5, not {share!r}")
        self._share = share
        self.corpus_rows = checked_rows(rows)
        self._ids = self._labels = self._texts = pa.array([], pa.string())

    def index(self, samples: Sequence[Sample]) -> pa.Table:
        """Return the labelled samples that have words, ordered by id; of long ones, the beginning.

        A first word that other samples write small is written small, as it stands inside a sentence.
        """
        small = {word for sample in samples for word in split(sample.text[:READ])[1] if word.islower()}
        found = []
        for sample in samples:
            if sample.label and not unusable(sample.text, self.longest, encoded=True):
                words = [span for span in word_spans(sample.text) if span[1] <= READ]
                if words:
                    text = _lowered(sample.text, words[0], small)
                    found.append((sample.id, sample.label, text[: words[-1][1]]))
        return pa.Table.from_pylist([dict(zip(_INDEX.names, row, strict=True)) for row in sorted(found)], _INDEX)

    def bind_corpus(self, index: pa.Table) -> None:
        if len(index):
            index = index.combine_chunks()  # copies nothing if there is one chunk, unlike that of a column
            self._ids, self._labels, self._texts = (index[name].chunk(0) for name in _INDEX.names)
        else:
            self._ids = self._labels = self._texts = pa.array([], pa.string())

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        streams = draws.streams(seeds, 8 * n)
        return [self._one(sample, n, draw) for sample, draw in zip(samples, streams, strict=True)]

    def _one(self, sample: Sample, n: int, draw: Draw) -> Candidates | Rejected:
        text = sample.text
        if problem := unusable(text, self.longest, encoded=True):
            return Rejected(problem)
        if not sample.label:
            return Rejected("span-mix mixes labels, and the text has none")
        words, touches = word_spans(text), touching(sample.protected)
        if len(words) < 3:
            return Rejected(
                "the text has fewer than three words, so a span of another text would be at least half of it"
            )
        collector = Collector(sample, n)
        for _ in range(6 * n + 24 if len(self._ids) else 0):
            row = draw() % len(self._ids)
            if self._ids[row].as_py() == sample.id:
                continue
            other = self._texts[row].as_py()
            theirs = word_spans(other)
            count = min(1 + draw() % max(1, int(self._share * len(words))), len(theirs))
            (a, b), (c, d) = _drawn(words, count, draw), _drawn(theirs, count, draw)
            if touches(a, b):
                continue
            label = _mixed(sample.label, self._labels[row].as_py(), count / len(words))
            new = other[c:d]
            if a == words[0][0] and text[a].isupper():
                new = new[0].upper() + new[1:]
            collector.add(text[:a] + new + text[b:], "span", label)
            if collector.full:
                break
        if not collector.texts:
            return Rejected("no other sample has a span that can be put into this text")
        return collector.answer()


def word_spans(text: str) -> list[Span]:
    """Return where the words of a text are."""
    spans, end = [], 0
    for glue, word in zip(*split(text), strict=False):
        start = end + len(glue)
        end = start + len(word)
        spans.append((start, end))
    return spans


def _lowered(text: str, first: Span, small: set[str]) -> str:
    a, b = first
    word = text[a:b]
    if word == "I" or word.lower() not in small or (len(word) > 1 and not word[1:].islower()):
        return text
    return text[:a] + word[0].lower() + word[1:] + text[b:]


def _drawn(words: Sequence[Span], count: int, draw: Draw) -> Span:
    """Return a random stretch of `count` words."""
    first = draw() % (len(words) - count + 1)
    return words[first][0], words[first + count - 1][1]


def _mixed(own: str, other: str, share: float) -> SoftLabel:
    return {own: 1.0} if own == other else {own: 1.0 - share, other: share}
