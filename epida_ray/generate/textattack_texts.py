"""TextAttack's texts, made faster: the same texts and attributes for less work.

A recipe considers hundreds of replacements to take one. For each of them, TextAttack splits every word of the text
again, and then the new text. Here, if a word is exchanged, deleted or gets a neighbour, only that word changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from epida_ray.generate.library import remembered

_LONGEST_WORD = 40
_ENTANGLED = re.compile("[\u4e00-\u9fff]|SPLIT")
"""Chinese words, whose ends depend on their neighbours, and what may become TextAttack's mark between two inputs."""


def make_fast() -> None:
    """Replace the slow parts of TextAttack in this process; calling it again changes nothing."""
    from textattack.shared import AttackedText, attacked_text, utils

    if attacked_text.words_from_text is not utils.words_from_text:
        return
    plain: Callable[[str], list[str]] = utils.words_from_text
    known = remembered(plain, 65_536)
    replace = AttackedText.replace_word_at_index

    def words_from_text(text: str) -> list[str]:
        return known(text) if len(text) <= _LONGEST_WORD else plain(text)

    def simple(word: str) -> bool:
        """Return whether TextAttack takes it for one word, which is then all of it."""
        return (word.isascii() and word.isalnum()) or words_from_text(word) == [word]

    def replace_word(self: Any, index: int, new_word: str) -> Any:
        places = _places(self, simple)
        if (
            places is None
            or not isinstance(new_word, str)
            or not 0 <= index < len(places)
            or _ENTANGLED.search(new_word)
        ):
            return replace(self, index, new_word)
        attributes = self.attack_attrs
        modified, index_map = attributes["modified_indices"], attributes["original_index_map"]
        start, stop = places[index]
        whole = self.text
        before, after = whole[:start], whole[stop:]
        new = AttackedText.__new__(AttackedText)
        new._words = new._words_per_input = new._pos_tags = new._ner_tags = None
        if simple(new_word):
            changed = {index} if self.words[index] != new_word else set()
            new._words = self.words[:]
            new._words[index] = new_word
            new._moved = places, index, len(new_word) - (stop - start)
        else:
            added = words_from_text(new_word)
            more = len(added) - 1
            if not more:
                return replace(self, index, new_word)
            changed = set(range(index, index + len(added)))
            modified = {i + more if i > index else i for i in modified if i != index}
            index_map = _moved_map(index_map, index, more, added[:1] == [self.words[index]])
            if not added and after:
                if index == 0:
                    after = after.removeprefix(" ")
                else:
                    before = before.removesuffix(" ")
        new._text_input = {next(iter(self._text_input)): before + new_word + after}
        new.attack_attrs = {
            "newly_modified_indices": changed,
            "previous_attacked_text": self,
            "modified_indices": modified | changed,
            "original_index_map": index_map.copy(),
        }
        if "label_names" in attributes:
            new.attack_attrs["label_names"] = attributes["label_names"]
        return new

    attacked_text.words_from_text = words_from_text
    AttackedText.replace_word_at_index = replace_word


def _moved_map(index_map: Any, index: int, more: int, stays: bool) -> Any:
    """Return where the words of the first text are now that `more` stand at `index`: −1 if deleted, else moved on.

    `stays`: the word at `index` is still the first of those there.
    """
    moved = index_map.copy()
    if more == -1:
        moved[moved == index] = -1
    moved[moved > index] += more
    if more > 0 and not stays:
        moved[moved == index] += more
    return moved


def _places(text: Any, simple: Callable[[str], bool]) -> Sequence[tuple[int, int]] | None:
    """Return where the words of a text are; None where TextAttack's own way has to be taken."""
    found: Sequence[tuple[int, int]] | None
    if "_places" in text.__dict__:
        return text._places  # type: ignore[no-any-return]
    if "_moved" in text.__dict__:
        before, index, by = text._moved
        start, stop = before[index]
        found = [*before[:index], (start, stop + by), *((a + by, b + by) for a, b in before[index + 1 :])]
    else:
        found = _find_places(text, simple)
    text._places = found
    return found


def _find_places(text: Any, simple: Callable[[str], bool]) -> list[tuple[int, int]] | None:
    whole = text.text
    if len(text.column_labels) != 1 or _ENTANGLED.search(whole):
        return None
    places, at = [], 0
    for word in text.words:
        if not simple(word):
            return None
        at = whole.index(word, at)
        places.append((at, at + len(word)))
        at += len(word)
    return places
