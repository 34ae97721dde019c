"""TextAttack's texts, made faster: the same texts and attributes for less work.

For every replacement that a recipe considers, and it considers hundreds to take one, TextAttack takes each word of the
text apart again, and then the new text. Where words are exchanged one for one, only these change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from epida_ray.generate.library import remembered

_LONGEST_WORD = 40
_CHINESE = re.compile("[\u4e00-\u9fff]")
"""Where these end depends on their neighbours."""


def make_fast() -> None:
    """Once for each process; calling it again changes nothing."""
    from textattack.shared import AttackedText, attacked_text, utils

    if attacked_text.words_from_text is not utils.words_from_text:
        return
    plain: Callable[[str], list[str]] = utils.words_from_text
    known = remembered(plain, 65_536)
    replace = AttackedText.replace_words_at_indices

    def words_from_text(text: str) -> list[str]:
        return known(text) if len(text) <= _LONGEST_WORD else plain(text)

    def simple(word: str) -> bool:
        return words_from_text(word) == [word]

    def replace_words(self: Any, indices: Sequence[int], new_words: Sequence[str]) -> Any:
        if not hasattr(self, "_places"):
            self._places = _places(self, simple)
        places = self._places
        if (
            places is None
            or len(indices) != len(new_words)
            or len(set(indices)) != len(indices)
            or not all(isinstance(word, str) and simple(word) and not _CHINESE.search(word) for word in new_words)
            or not all(0 <= i < len(places) for i in indices)
        ):
            return replace(self, indices, new_words)
        changed = {i for i, word in zip(indices, new_words, strict=True) if self.words[i] != word}
        words, pieces, end = self.words[:], [], 0
        for i, word in sorted(zip(indices, new_words, strict=True)):
            start, stop = places[i]
            pieces += [self.text[end:start], word]
            words[i], end = word, stop
        pieces.append(self.text[end:])
        attributes: dict[str, Any] = {
            "newly_modified_indices": changed,
            "previous_attacked_text": self,
            "modified_indices": self.attack_attrs["modified_indices"] | changed,
            "original_index_map": self.attack_attrs["original_index_map"].copy(),
        }
        if "label_names" in self.attack_attrs:
            attributes["label_names"] = self.attack_attrs["label_names"]
        new = AttackedText.__new__(AttackedText)
        new._text_input = type(self._text_input)([(self.column_labels[0], "".join(pieces))])
        new._words, new._words_per_input, new._pos_tags, new._ner_tags = words, None, None, None
        new.attack_attrs = attributes
        return new

    attacked_text.words_from_text = words_from_text
    AttackedText.replace_words_at_indices = replace_words


def _places(text: Any, simple: Callable[[str], bool]) -> list[tuple[int, int]] | None:
    """Where the words of a text are; None where TextAttack's own way has to be taken."""
    whole = text.text
    if len(text.column_labels) != 1 or text.SPLIT_TOKEN in whole or _CHINESE.search(whole):
        return None
    places, at = [], 0
    for word in text.words:
        if not simple(word):
            return None
        at = whole.index(word, at)
        places.append((at, at + len(word)))
        at += len(word)
    return places
