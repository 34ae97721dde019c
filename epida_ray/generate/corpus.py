"""What a generator knows of the other samples: an index that is built once, written as one file and shared.

A generator with `needs_corpus = True` has `index(samples)`, which makes an Arrow table of at most `corpus_rows`
samples, and `bind_corpus(index)`, which gets it, memory-mapped, before the first `generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from epida_ray.core.errors import RequestError
from epida_ray.core.sample import Sample

CORPUS_ROWS = 20_000
"""How many samples are indexed by default."""
READ = 1_000
"""Characters of another sample that parts are taken from, so that the index of long texts stays small."""


def needs_corpus(generator: Any) -> bool:
    return bool(getattr(generator, "needs_corpus", False))


def beginning(text: str) -> str:
    """Return the first READ characters of a text, without the word that ends behind them."""
    return text if len(text) <= READ else text[: READ + 1].rpartition(" ")[0] or text[:READ]


def to_bytes(index: pa.Table) -> pa.Buffer:
    """Return the index as an Arrow file, the same bytes for the same table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, index.schema) as writer:
        writer.write_table(index.combine_chunks())
    return sink.getvalue()


def from_bytes(data: pa.Buffer) -> pa.Table:
    return pa.ipc.open_file(data).read_all()


def from_file(path: Path) -> pa.Table:
    """Return the index in a file, memory-mapped: processes of one machine share it."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def bind_samples(generator: Any, samples: Sequence[Sample]) -> None:
    """Index these samples and give the index to the generator, in this process."""
    generator.bind_corpus(from_bytes(to_bytes(generator.index(samples))))


def checked_rows(rows: object) -> int:
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise RequestError(f"rows is the largest number of other samples to use, 1 or more, not {rows!r}")
    return rows
