"""English synonyms from the WordNet tables that ship with the package (built by scripts/build_wordnet.py and
scripts/build_careful_synonyms.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import as_file, files
from typing import Any

Lookup = Callable[[str], tuple[str, ...]]
"""Lower-case word → its synonyms, none of which is the word itself; empty when it has none."""


@cache
def lookup(name: str = "wordnet") -> Lookup:
    """Return a lookup of the synonyms of all senses of a word or of its base forms, the most frequent sense first.

    In the table `careful`, a word has its part of speech behind a slash, and synonyms of common senses only.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with as_file(files(__package__) / "data" / f"{name}.parquet") as path:
        table = pq.ParquetFile(path).read(use_threads=False)

    def column(name: str) -> list[str]:
        # One joined string and one split: ten times as fast as to_pylist on this many short strings.
        values = pc.drop_null(table[name]).combine_chunks()
        rows: Any = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        joined: Any = pc.binary_join(rows, "\n")
        return str(joined[0].as_py()).split("\n")

    groups = column("synonyms")
    group_of = dict(zip(column("word"), table["group"].to_numpy().tolist(), strict=True))

    def synonyms(word: str) -> tuple[str, ...]:
        group = group_of.get(word)
        return () if group is None else tuple(s for s in groups[group].split("|") if s != word)

    return synonyms
