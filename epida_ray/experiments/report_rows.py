"""Rows of a run's output files for the report: an even share of every file, in whole samples."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from epida_ray.data.storage import Storage


def read_rows(
    storage: Storage,
    folder: str,
    limit: int,
    *,
    whole_samples: bool = False,
    kept_only: bool = False,
    only: Collection[str] | None = None,
) -> pa.Table | None:
    """Return up to `limit` rows of a folder's files, from the start of each and as evenly as their sizes allow.

    `whole_samples` drops the last sample of a file that is not read to its end, because rows of it are missing.
    `kept_only` drops originals, which have no rank and stand before the others. `only` names the files to read, by
    default all.
    """
    names = [f"{folder}/{name}" for name in sorted(storage.sizes(folder, below=True)) if name.endswith(".parquet")]
    if only is not None:
        names = [name for name in names if name in only]
    if not names:
        return None
    with_rows = [(name, storage.from_own(name, lambda file: int(file.metadata.num_rows))) for name in names]
    share = even_share([n for _, n in with_rows], limit)
    tables = []
    for (name, rows), take in zip(with_rows, share, strict=True):
        if not take:
            continue
        batch = min(rows, take, 16_384)
        table = storage.from_own(name, partial(_first_rows, take=take, batch=batch, kept_only=kept_only))
        if whole_samples and take < rows:
            *_, (cut, _) = sample_ranges(table)
            table = table.slice(0, cut or take)  # a share smaller than one sample is used as it is
        tables.append(table.replace_schema_metadata(None))
    return pa.concat_tables(tables, promote_options="permissive") if tables else None


def _first_rows(file: pq.ParquetFile, take: int, batch: int, kept_only: bool) -> pa.Table:
    parts, got = [], 0
    for part in file.iter_batches(batch_size=batch):
        if kept_only:
            part = part.filter(pa.array(part["rank"].to_numpy() > 0))
        parts.append(part)
        got += len(part)
        if got >= take:
            break
    return pa.Table.from_batches(parts).slice(0, take)


def even_share(sizes: Sequence[int], limit: int) -> list[int]:
    """Return how many rows to take of each file, `limit` in all."""
    share, left = [0] * len(sizes), limit
    for waiting, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        share[i] = min(sizes[i], left // (len(sizes) - waiting))
        left -= share[i]
    return share


def codes(column: pa.ChunkedArray) -> tuple[list[str], list[int]]:
    """Return the distinct values and, for every row, the position of its value among them."""
    found: dict[str, int] = {}
    numbers = [found.setdefault("" if v is None else str(v), len(found)) for v in column.to_pylist()]
    return list(found), numbers


def rounded(column: pa.ChunkedArray) -> list[float]:
    return np.nan_to_num(column.cast(pa.float64()).to_numpy(), posinf=0.0, neginf=0.0).round(4).tolist()


def spread(size: int, count: int) -> list[int]:
    """Return at most `count` of the numbers below `size`, evenly spread."""
    step = max(1.0, size / count)
    return [int(i * step) for i in range(min(size, count))]


def sample_ranges(table: pa.Table) -> Iterator[tuple[int, int]]:
    """Yield the rows [start, end) of each sample; the rows of a sample stand together."""
    _, numbers = codes(table["sample_id"])
    start = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[start]:
            yield start, i
            start = i
