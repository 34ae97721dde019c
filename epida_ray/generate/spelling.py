"""Spelling noise: slips of the finger inside words."""

from __future__ import annotations

from collections.abc import Sequence

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Candidates, Rejected, Sample
from epida_ray.generate import draws, languages
from epida_ray.generate.draws import Draw, pick
from epida_ray.generate.library import Collector
from epida_ray.generate.words import is_spaced, split

NEIGHBOUR, SWAP, DROP, DOUBLE = "neighbour", "swap", "drop", "double"

_ROWS = {
    "en": ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    "fr": ("azertyuiop", "qsdfghjklm", "wxcvbn"),
    "de": ("qwertzuiopü", "asdfghjklöä", "yxcvbnm"),
    "es": ("qwertyuiop", "asdfghjklñ", "zxcvbnm"),
    "ru": ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
}


def keyboard(language: str) -> dict[str, str]:
    """Return for each letter those on the keys around it; languages without a layout here have QWERTY."""
    rows = _ROWS.get(languages.base(language), _ROWS["en"])
    near: dict[str, str] = {}
    for r, row in enumerate(rows):
        for c, letter in enumerate(row):
            around = [(r, c - 1), (r, c + 1), (r - 1, c), (r - 1, c + 1), (r + 1, c - 1), (r + 1, c)]
            near[letter] = "".join(rows[i][j] for i, j in around if 0 <= i < len(rows) and 0 <= j < len(rows[i]))
    return near


class Spelling:
    """max(1, int(alpha · l)) of a text's l words get one slip each: a neighbouring key, two letters swapped, one
    dropped or one doubled. Words of `shortest` letters or more are touched; in text written without spaces, a slip
    swaps, drops or doubles a character."""

    distinct = True
    slips: tuple[str, ...] = (NEIGHBOUR, SWAP, DROP, DOUBLE)

    def __init__(self, alpha: float = 0.1, shortest: int = 3, language: str = "en") -> None:
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= 1:
            raise RequestError(f"alpha is a share of a text's words, above 0 and up to 1, not {alpha!r}")
        if isinstance(shortest, bool) or not isinstance(shortest, int) or shortest < 2:
            raise RequestError(f"shortest is a number of letters from 2 on, not {shortest!r}")
        self.alpha, self._strength = alpha, 1.0
        self.shortest = shortest
        self._near = keyboard(language)

    def set_strength(self, share: float) -> None:
        self._strength = share

    def generate(self, samples: Sequence[Sample], n: int, seeds: Sequence[int]) -> list[Candidates | Rejected]:
        drawn = draws.streams(seeds, 3 * n + 8)
        return [self._rewrite(sample, n, draw) for sample, draw in zip(samples, drawn, strict=True)]

    def _rewrite(self, sample: Sample, n: int, draw: Draw) -> Candidates | Rejected:
        text = sample.text
        if not text.strip():
            return Rejected("the text is empty")
        glue, cores = split(text, sample.protected)
        pieces = [part for pair in zip(glue, cores, strict=False) for part in pair] + [glue[-1]]
        unspaced = {i for i, core in enumerate(cores) if not is_spaced(core)}
        usable = [
            i for i, core in enumerate(cores) if i in unspaced or (len(core) >= self.shortest and not core.isnumeric())
        ]
        if not usable:
            return Rejected(f"there is no word of {self.shortest} letters or more that may be changed")
        edits = min(max(1, int(self.alpha * self._strength * len(cores))), len(usable))
        collector = Collector(sample, n)
        for _ in range(6 * n + 24):
            if collector.full:
                break
            out = pieces[:]
            operation = ""
            for k in pick(len(usable), edits, draw):
                i = usable[k]
                if i in unspaced:
                    operation = _slip_between(out, glue, cores, i, unspaced, draw)
                else:
                    out[2 * i + 1], operation = self._slip(cores[i], draw)
            collector.add("".join(out), operation)
        return collector.answer()

    def _slip(self, word: str, draw: Draw) -> tuple[str, str]:
        """Return the word with one slip, and its operation. Only a neighbour key changes the first letter."""
        operation = self.slips[draw() % len(self.slips)]
        place = draw() % len(word)
        letter = word[place]
        if operation == NEIGHBOUR:
            near = self._near.get(letter.lower(), "")
            if near:
                new = near[draw() % len(near)]
                return word[:place] + (new.upper() if letter.isupper() else new) + word[place + 1 :], NEIGHBOUR
            operation = DOUBLE
        if operation == SWAP:
            place = 1 + draw() % (len(word) - 2) if len(word) > 2 else 0
            return word[:place] + word[place + 1] + word[place] + word[place + 2 :], SWAP
        if operation == DROP:
            place = 1 + draw() % (len(word) - 1)
            return word[:place] + word[place + 1 :], DROP
        return word[:place] + letter + word[place:], DOUBLE


class Keyboard(Spelling):
    """Spelling with neighbouring keys only; what has no neighbour is doubled."""

    slips = (NEIGHBOUR,)


def _slip_between(out: list[str], glue: list[str], cores: list[str], i: int, unspaced: set[int], draw: Draw) -> str:
    """Make one slip on character i of a run without spaces, and return its operation."""
    operation = (SWAP, DROP, DOUBLE)[draw() % 3]
    place = 2 * i + 1
    if operation == SWAP and i + 1 in unspaced and not glue[i + 1]:
        out[place], out[place + 2] = out[place + 2], out[place]
        return SWAP
    if operation == DROP and len(cores) > 1:
        out[place] = ""
        return DROP
    out[place] = cores[i] + cores[i]
    return DOUBLE
