"""Replace a constituent by one of the same kind from another sample (SUB², Shi et al., 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import draws
from epida_ray.generate.chunks import KINDS, Chunk, chunks, tagged
from epida_ray.generate.corpus import CORPUS_ROWS, beginning, checked_rows
from epida_ray.generate.draws import Draw
from epida_ray.generate.library import Collector, unusable

LONGEST = 8
"""Words of the longest constituent."""

_INDEX = pa.schema([("label", pa.string()), ("kind", pa.int8()), ("length", pa.int16()), ("text", pa.string())])

Group = tuple[str, int, int]
"""Label, kind and length."""


class Substructure:
    """Replace one noun, prepositional, verb, adjective or adverb phrase of an English text.

    The replacement is of the same kind, of up to `slack` words more or fewer, and comes from another sample of the same
    class; with `label=any`, of any class. At most `rows` samples are indexed.
    """

    needs_corpus = True
    longest = 20_000

    def __init__(self, label: str = "same", slack: int = 1, rows: int = CORPUS_ROWS) -> None:
        if label not in ("same", "any"):
            raise RequestError(f"label is same or any, not {label!r}")
        if isinstance(slack, bool) or not isinstance(slack, int) or slack < 0:
            raise RequestError(f"slack is a number of words, 0 or more, not {slack!r}")
        self._same, self._slack = label == "same", slack
        self.corpus_rows = checked_rows(rows)
        self._texts = pa.array([], pa.string())
        self._groups: dict[Group, tuple[int, int]] = {}

    def index(self, samples: Sequence[Sample]) -> pa.Table:
        """Return the distinct constituents of these samples, ordered by label, kind and length."""
        found = {
            (sample.label if self._same else "", chunk.kind, chunk.length, _lowered(sample.text, chunk))
            for sample in samples
            if not unusable(sample.text, self.longest, encoded=True)
            for chunk in chunks(tagged(beginning(sample.text)))
            if chunk.length <= LONGEST
        }
        rows = [dict(zip(_INDEX.names, row, strict=True)) for row in sorted(found)]
        return pa.Table.from_pylist(rows, schema=_INDEX)

    def bind_corpus(self, index: pa.Table) -> None:
        if not len(index):
            self._groups, self._texts = {}, pa.array([], pa.string())
            return
        index = index.combine_chunks()
        encoded = index["label"].chunk(0).dictionary_encode()
        keys, labels = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
        kinds, lengths = index["kind"].to_numpy(), index["length"].to_numpy()
        changed = np.diff(keys) | np.diff(kinds) | np.diff(lengths)
        starts = np.concatenate(([0], np.flatnonzero(changed) + 1, [len(index)])).tolist()
        self._groups = {(labels[keys[a]], int(kinds[a]), int(lengths[a])): (a, b) for a, b in pairwise(starts) if a < b}
        self._texts = index["text"].chunk(0)

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        streams = draws.streams(seeds, 8 * n)
        return [self._one(sample, n, draw) for sample, draw in zip(samples, streams, strict=True)]

    def _one(self, sample: Sample, n: int, draw: Draw) -> Candidates | Rejected:
        if problem := unusable(sample.text, self.longest, encoded=True):
            return Rejected(problem)
        label = sample.label if self._same else ""
        words = tagged(sample.text)
        own = {_lowered(sample.text, chunk) for chunk in chunks(words)}
        found = [(chunk, ranges) for chunk in chunks(words, sample.protected)
                 if (ranges := self._ranges(label, chunk))]  # fmt: skip
        if not found:
            return Rejected("no other sample has a constituent like one of this text")
        collector = Collector(sample, n)
        for _ in range(6 * n + 24):
            chunk, ranges = found[draw() % len(found)]
            place = draw() % sum(b - a for a, b in ranges)
            for a, b in ranges:
                if place < b - a:
                    break
                place -= b - a
            if (new := self._texts[a + place].as_py()) in own:  # the sample itself is in the index
                continue
            collector.add(_replaced(sample.text, chunk, new), KINDS[chunk.kind])
            if collector.full:
                break
        return collector.answer()

    def _ranges(self, label: str, chunk: Chunk) -> list[tuple[int, int]]:
        """Return where the index has constituents that may stand in this one's place."""
        lengths = range(max(1, chunk.length - self._slack), min(chunk.length + self._slack, LONGEST) + 1)
        found = (self._groups.get((label, chunk.kind, length)) for length in lengths)
        return [rows for rows in found if rows is not None]


def _lowered(text: str, chunk: Chunk) -> str:
    """Return a constituent as it stands inside a sentence."""
    core = text[chunk.start : chunk.stop]
    return core[0].lower() + core[1:] if chunk.begins and not chunk.named else core


def _replaced(text: str, chunk: Chunk, new: str) -> str:
    if chunk.begins and text[chunk.start].isupper():
        new = new[0].upper() + new[1:]
    return text[: chunk.start] + new + text[chunk.stop :]
