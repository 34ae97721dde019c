"""Plan how an input is read: its files, their formats and rows, cut into shards that can be read alone.

The plan depends on the input alone. Parquet is addressed by row, CSV and JSONL by the byte offsets that `scan` notes;
every other format is converted to one of those first.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from epida_ray.core.errors import RequestError
from epida_ray.data.discovery import find
from epida_ray.data.formats import chosen_delimiter, known_encoding
from epida_ray.data.inspection import EMPTY, Columns, InputFile, Inspected, inspect_file
from epida_ray.data.scan import STEP

__all__ = ["EMPTY", "Columns", "InputFile", "Plan", "Shard", "plan_inputs"]

_MOST_SKIPPED = 20
"""How many of the skipped files are named; the others are counted."""


SHARD_BYTES = 256 << 20
"""Most memory for the texts and probabilities of one shard."""


class Shard(NamedTuple):
    """A row range of one file: the unit of work, commit and resume."""

    file: int
    start: int
    stop: int


class Plan(BaseModel):
    """The input, cut into shards. Frozen in a run's manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    root: str
    files: tuple[InputFile, ...]
    columns: Columns
    encoding: str = "utf-8"
    label_type: str = "string"
    shard_rows: int
    offset_rows: int = STEP
    """Rows between two of a text file's offsets."""
    skipped: tuple[str, ...] = ()
    """Files that were found but are not read, each with the reason."""
    notes: tuple[str, ...] = ()
    """What was detected and is unusual, a line each: delimiters, encodings, sheets."""

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    def remarks(self) -> list[str]:
        """Return what a user should hear of the input, a line each: what was detected, and what is not read."""
        more = len(self.skipped) - _MOST_SKIPPED
        skipped = [f"not read: {line}" for line in self.skipped[:_MOST_SKIPPED]]
        return [*self.notes, *skipped, *([f"not read: {more:,} more files"] if more > 0 else [])]

    def cut(self, texts: int = 1, classes: int = 0, most: int | None = None) -> Plan:
        """Return the plan for work that makes `texts` texts of a row, each with `classes` probabilities.

        Its shards hold no more than fits into memory, and about `most` rows at most; of the offsets it keeps those of
        the shards.
        """
        size = sum(f.unpacked or f.bytes for f in self.files) // max(1, self.rows)
        rows = rows_in_memory(self.shard_rows, texts, classes, size)
        while most is not None and rows > max(STEP, most):
            rows //= 2
        files = tuple(_thinned(file, rows // self.offset_rows) for file in self.files)
        return self.model_copy(update={"files": files, "shard_rows": rows, "offset_rows": rows})

    def shards(self) -> Iterator[Shard]:
        for index, file in enumerate(self.files):
            for start in range(0, file.rows, self.shard_rows):
                yield Shard(index, start, min(start + self.shard_rows, file.rows))

    def shard_name(self, shard: Shard) -> str:
        """Return a name that is unique within a run, and a plain file name whatever the input's path is."""
        path = quote(self.files[shard.file].path, safe="")
        if path[0] in "._":  # readers of folders skip such names
            path = f"%{ord(path[0]):02X}{path[1:]}"
        if len(path) > 120:
            path = f"{path[:80]}~{blake2b(path.encode(), digest_size=8).hexdigest()}"
        return f"{path}-{shard.start:012d}-{shard.stop:012d}"

    def file_name(self, shard: Shard, fingerprint: str) -> str:
        """Return what a shard's output is called in a run; resuming looks for it."""
        return f"{self.shard_name(shard)}-{fingerprint[:12]}.parquet"

    def identity(self) -> list[tuple[str, int, str]]:
        """Return what makes two inputs the same one, wherever they are stored.

        All bytes count, except for Parquet, where the size, both ends and the footer do: a change in the middle of a
        file that alters neither its length nor the statistics of a column goes unnoticed.
        """
        return [(f.path, f.bytes, f.digest) for f in self.files]


def _without_rows(inspected: list[Inspected]) -> list[str]:
    empty = [one.file.path for one in inspected if not one.file.error and not one.file.rows]
    if len(empty) < 2:
        return [f"{path}: it has no rows" for path in empty]
    return [f"{len(empty):,} files have no rows, such as {empty[0]}"]


def plan_inputs(
    location: str,
    columns: Columns,
    encoding: str = "auto",
    exclude: str | None = None,
    delimiter: str | None = None,
    may_be_empty: bool = False,
) -> Plan:
    """Find the files, check the columns, count the rows and cut them into shards.

    `encoding` is that of text files without a byte order mark; with `auto` it is UTF-8, or Windows-1252 where a file
    is plainly that. `delimiter` is that of CSV and TSV files; without it, it is detected. Files below `exclude`, the
    directory that a run writes to, are left out.
    """
    if encoding != "auto" and not known_encoding(encoding):
        raise RequestError(f"cannot read --encoding {encoding}; name another, or convert the file to utf-8")
    delimiter = chosen_delimiter(delimiter)
    found = find(location, exclude)
    inspected = [inspect_file(found, name, columns, encoding, delimiter) for name in found.names]
    good = [one for one in inspected if not one.file.error]
    if not good:
        first = inspected[0].file
        raise RequestError(f"{first.path}: {first.error}")
    rows = sum(one.file.rows for one in good)
    if rows == 0 and not may_be_empty:
        raise RequestError(f"{location} has no rows")
    shard_rows = rows_per_shard(rows)
    types = {one.label_type for one in good if one.file.rows}
    plan = Plan(
        root=found.url,
        files=tuple(one.file for one in inspected),
        columns=columns,
        encoding=encoding,
        label_type=types.pop() if len(types) == 1 else "string",
        shard_rows=shard_rows,
        skipped=tuple(found.skipped),
        notes=(*found.notes, *(note for one in inspected for note in one.notes), *_without_rows(inspected)),
    )
    if columns.id is not None:
        from epida_ray.data.reader import check_ids

        check_ids(plan)
    return plan


def rows_per_shard(rows: int) -> int:
    """Return the rows of a shard: about 32 shards of 64 to 16,384 rows; from 4,096 of those on, up to 65,536 rows.

    Never so few shards that workers idle, never so many that Ray is busier than they are: a billion rows are 15,259.
    """
    size = STEP
    while (size < 16_384 and size * 32 < rows) or (size < 65_536 and size * 4_096 < rows):
        size *= 2
    return size


def rows_in_memory(rows: int, texts: int, classes: int, text_bytes: int = 0) -> int:
    """Return as many rows, halved until their texts and float32 probabilities take no more than SHARD_BYTES."""
    while rows > STEP and rows * texts * (text_bytes + 4 * classes) > SHARD_BYTES:
        rows //= 2
    return rows


def _thinned(file: InputFile, step: int) -> InputFile:
    """Keep every step-th of the noted offsets and the last; a plan stays small however long the file is."""
    offsets = file.offsets[::step]
    if offsets and offsets[-1] != file.offsets[-1]:
        offsets += (file.offsets[-1],)
    return file.model_copy(update={"offsets": offsets})
