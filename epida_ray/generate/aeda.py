"""AEDA: punctuation marks at random places (Karimi et al., 2021). Without the marks, the text is the original."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, product

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import draws, languages
from epida_ray.generate.draws import Draw, pick
from epida_ray.generate.library import Collector
from epida_ray.generate.synonyms import import_tokenizer
from epida_ray.generate.words import is_spaced, split, touching

MARK = "mark"
MARKS = (".", ";", "?", ":", "!", ",")

_MARKS = {
    "zh": ("。", "；", "？", "：", "！", "，"),
    "ja": ("。", "；", "？", "：", "！", "、"),
    "ar": (".", "؛", "؟", ":", "!", "،"),
    "fa": (".", "؛", "؟", ":", "!", "،"),
    "ur": ("۔", "؛", "؟", ":", "!", "،"),
    "el": (".", "·", ";", ":", "!", ","),
    "hi": ("।", ";", "?", ":", "!", ","),
}
"""The marks of languages that use other ones."""

_CHUNK = re.compile(r"\S+")


class AEDA:
    """From one mark to one for every 1/`share` words, each before a word or at the end.

    The marks are those of `language`. Text written without spaces takes them between its character clusters (or what
    `tokenizer`, a `module:function`, makes of it).
    """

    distinct = True

    def __init__(self, share: float = 0.3, language: str = "en", tokenizer: str | None = None) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise RequestError(f"share is a share of a text's words, above 0 and up to 1, not {share!r}")
        self.share, self._strength = share, 1.0
        self._tokenizer = import_tokenizer(tokenizer) if tokenizer else None
        self._marks = _MARKS.get(languages.base(language), MARKS)

    def set_strength(self, share: float) -> None:
        self._strength = share

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        drawn = draws.streams(seeds, 2 * n + 8)
        return [self._rewrite(sample, n, draw) for sample, draw in zip(samples, drawn, strict=True)]

    def _rewrite(self, sample: Sample, n: int, draw: Draw) -> Candidates | Rejected:
        text = sample.text
        if not text.strip():
            return Rejected("the text is empty")
        places = self._places(sample)
        if not places:
            return Rejected("there is no place in the text that is not protected")
        most = min(max(1, int(self.share * self._strength * len(places))), len(places))
        collector = Collector(sample, n)
        marks = self._marks
        for _ in range(2 * n + 8):
            if collector.full:
                break
            chosen = sorted(pick(len(places), 1 + draw() % most, draw))
            collector.add(_with_marks(text, [(places[k], marks[draw() % len(marks)]) for k in chosen]), MARK)
        for place, mark in islice(product(places, marks), 400_000 // (len(text) + 16)):
            if collector.full:
                break
            collector.add(_with_marks(text, [(place, mark)]), MARK)
        return collector.answer()

    def _places(self, sample: Sample) -> list[tuple[int, str, str]]:
        """Return offsets for a mark, each with the blank that goes before and after it."""
        text = sample.text
        inside = touching([(a + 1, b) for a, b in sample.protected])
        places = []
        end = 0
        for match in _CHUNK.finditer(text):
            start, end = match.span()
            places.append((start, "", " "))
            if match[0].isascii():
                continue
            glue, cores = split(match[0], (), self._tokenizer)
            place = start
            for i, core in enumerate(cores):
                place += len(glue[i])
                if place > start and not glue[i] and not is_spaced(core):
                    places.append((place, "", ""))
                place += len(core)
        places.append((end, " ", ""))
        return [place for place in places if not inside(place[0], place[0] + 1)]


def _with_marks(text: str, marks: list[tuple[tuple[int, str, str], str]]) -> str:
    parts = []
    start = 0
    for (place, before, after), mark in marks:
        parts += [text[start:place], before, mark, after]
        start = place
    parts.append(text[start:])
    return "".join(parts)
