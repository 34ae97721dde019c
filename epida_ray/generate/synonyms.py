"""Where a word's synonyms come from: WordNet for English, a user's own table for any language."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from epida_ray.core.errors import RequestError
from epida_ray.generate import careful, languages, wordnet
from epida_ray.generate.stopwords import STOP_WORDS
from epida_ray.generate.words import Tokenizer, is_spaced


class Lexicon(NamedTuple):
    """What a generator knows of a language."""

    synonyms: wordnet.Lookup
    stop_words: frozenset[str]
    tokenizer: Tokenizer | None
    careful: bool = False
    """Whether synonyms depend on the context."""

    def of(self, core: str) -> tuple[str, ...]:
        """Return the synonyms of a word in lower case; none for a stop word."""
        word = core.lower().replace("’", "'")
        return () if word in self.stop_words else self.synonyms(word)

    def in_context(self, glue: Sequence[str], cores: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the synonyms of every word of a text, which `words.split` took apart."""
        return careful.in_context(glue, cores)


def lexicon(
    language: str = "en", table: str | None = None, tokenizer: str | None = None, in_context: bool = False
) -> Lexicon:
    """Return what is known of a language.

    `table` is a two-column file; `tokenizer` is a `module:function` that splits text written without spaces. With
    `in_context`, synonyms depend on the words around them.

    Without a tokenizer, such text is split into the table's words where they occur (the longest first) and single
    character clusters elsewhere.
    """
    spoken = languages.base(language)
    stop_words = STOP_WORDS.get(spoken, frozenset())
    split = import_tokenizer(tokenizer) if tokenizer else None
    if in_context:
        if spoken != "en" or table is not None:
            raise RequestError("careful=true chooses among WordNet's synonyms: it takes English and no synonyms=FILE")
        careful.check()
        return Lexicon(_none, stop_words, split, careful=True)
    if table is None:
        return Lexicon(wordnet.lookup() if spoken == "en" else _none, stop_words, split)
    words = read_table(Path(table))
    unspaced = {word for word in words if not is_spaced(word)}
    if split is None and unspaced:
        split = _longest_match(unspaced)
    return Lexicon(lambda word: words.get(word, ()), stop_words, split)


def read_table(path: Path) -> dict[str, tuple[str, ...]]:
    """Read a UTF-8 file with a word and a synonym per line, by tab, else comma or semicolon; words may repeat."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the synonym table {path} cannot be read: {error}") from error
    delimiter = next((mark for mark in "\t,;" if any(mark in line for line in lines)), "\t")
    pairs: dict[str, dict[str, None]] = {}
    for number, row in enumerate(csv.reader(lines, delimiter=delimiter), 1):
        fields = [field.strip() for field in row]
        if not any(fields):
            continue
        if len(fields) != 2 or not all(fields):
            raise RequestError(f"{path}, line {number}: two columns are needed, a word and a synonym, not {row!r}")
        word, synonym = fields
        if word.lower() != synonym.lower():
            pairs.setdefault(word.lower(), {})[synonym] = None
    if not pairs:
        raise RequestError(f"the synonym table {path} is empty")
    return {word: tuple(synonyms) for word, synonyms in pairs.items()}


def _none(word: str) -> tuple[str, ...]:
    return ()


def import_tokenizer(name: str) -> Tokenizer:
    """Return the function that `MODULE:FUNCTION` names."""
    module, _, attribute = name.partition(":")
    try:
        function: Tokenizer = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise RequestError(f"the tokenizer {name!r} cannot be imported (it is MODULE:FUNCTION): {error}") from error
    return function


def _longest_match(words: set[str]) -> Tokenizer:
    import regex

    longest_first = sorted(words, key=lambda word: (-len(word), word))
    pattern = regex.compile("|".join(map(regex.escape, longest_first)) + r"|\X", regex.IGNORECASE)
    return lambda run: pattern.findall(run)
