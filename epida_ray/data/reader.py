"""Read the shards of a plan, and say of every row whether it can be used."""

from __future__ import annotations

import csv
import io
import json
import math
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.arrow import open_parquet
from epida_ray.data.convert import WAS_STRING, convert
from epida_ray.data.plan import InputFile, Plan, Shard
from epida_ray.data.retry import is_storage_failure, one_line, watched, with_retries
from epida_ray.data.scan import json_object
from epida_ray.data.storage import open_filesystem

MAX_CHARACTERS = 100_000
"""Longer texts are rejected: no classifier here reads that far, and one of them could hold up a whole shard."""

_MAX_CHECKED_IDS = 20_000_000
_JSON_BLANKS = " \t\r"
"""A line of only these characters is not a record, here as in `record_ends`."""


Source: TypeAlias = pa.Table | list[list[str]] | list[dict[str, Any] | str]
"""Rows as they are in a file, with all of their columns: a table of Parquet and Arrow, the fields of CSV and Excel, the
objects of JSON. A line of JSON that is not an object is its text."""


class _Values(NamedTuple):
    ids: list | None
    texts: list
    labels: list | None
    reasons: list[str | None]
    source: Source


class ShardReader:
    """Reads shards of one plan; keeps the last Parquet row group, since neighbouring shards often share it.

    With `whole` all columns are read, for `read_whole`.
    """

    def __init__(self, plan: Plan, whole: bool = False) -> None:
        self.plan, self.whole = plan, whole
        self._place: tuple[pafs.FileSystem, str] | None = None
        self._opened: tuple[int, pq.ParquetFile, list[int]] | None = None
        self._group: tuple[int, int, pa.Table] | None = None

    def read(self, shard: Shard) -> pa.Table:
        """Return the columns sample_id, text, label and reason; a row with a reason is rejected.

        A failure of the storage is a TransientError after some retries, and a file that changed is a RunError.
        """
        file, count = self.plan.files[shard.file], shard.stop - shard.start
        try:
            values = self._attempt(shard, file)
        except (pa.ArrowException, ValueError, csv.Error) as error:
            labels = None if self.plan.columns.label is None else [None] * count
            reason = f"cannot read {file.path}: {one_line(error)}"
            values = _Values(None, [None] * count, labels, [reason] * count, [])
        return self._checked(shard, file, values)

    def read_whole(self, shard: Shard) -> tuple[pa.Table, Source]:
        """Return what `read` returns, and the rows as they are; damage that costs more than a row is a RunError."""
        file = self.plan.files[shard.file]
        try:
            values = self._attempt(shard, file)
        except (pa.ArrowException, ValueError, csv.Error) as error:
            raise RunError(f"cannot read {file.path} to its end: {one_line(error)}; repair the file") from error
        return self._checked(shard, file, values), values.source

    def schema(self) -> pa.Schema:
        """Return the schema of the first file, which is Parquet or converted to it."""
        file = self.plan.files[0]

        def read() -> pa.Schema:
            with self._open(file) as handle:
                return open_parquet(handle, self.plan.columns.names(), None).schema_arrow

        try:
            schema = with_retries(read, f"cannot read {file.path}")
        except ValueError as error:
            raise RequestError(f"{file.path}: {one_line(error)}") from error
        return _as_strings(schema.empty_table()).schema

    def _attempt(self, shard: Shard, file: InputFile) -> _Values:
        def read() -> _Values:
            return self._values(shard, file)

        def examine() -> _Values:
            with self._open(file) as handle, watched(handle) as seen:
                try:
                    return self._parquet(shard, file, seen)
                finally:
                    self._opened = self._group = None

        return with_retries(read, f"cannot read {file.path}", examine if file.format == "parquet" else None)

    def _checked(self, shard: Shard, file: InputFile, values: _Values) -> pa.Table:
        count = shard.stop - shard.start
        if len(values.texts) != count:
            raise RunError(_changed(file, f"{len(values.texts):,} rows where {count:,} were planned"))
        default_ids = [f"{file.path}:{row}" for row in range(shard.start, shard.stop)]
        return _validated(default_ids, values)

    def _values(self, shard: Shard, file: InputFile) -> _Values:
        try:
            return self._parquet(shard, file) if file.format == "parquet" else self._lines(shard, file)
        except Exception as error:
            if is_storage_failure(error):  # whatever is open may be stale
                self._place = self._opened = self._group = None
            raise

    def _open(self, file: InputFile) -> Any:
        if self._place is None:
            self._place = open_filesystem(self.plan.root)
        filesystem, root = self._place
        path = posixpath.join(root, file.path)
        if file.conversion:
            made = convert(filesystem, path, file.digest, file.conversion, file.encoding, file.path)
            return pafs.LocalFileSystem().open_input_file(str(made))
        return filesystem.open_input_file(path)

    def _check_size(self, handle: Any, file: InputFile) -> None:
        if not file.conversion and (size := handle.size()) != file.bytes:
            raise RunError(_changed(file, f"{size:,} bytes where {file.bytes:,} were planned"))

    def _parquet(self, shard: Shard, file: InputFile, opened: Any = None) -> _Values:
        columns = self.plan.columns
        if self._opened is None or self._opened[0] != shard.file:
            handle = opened or self._open(file)
            self._check_size(handle, file)  # first: a file that was replaced by a damaged one is no damaged input
            parquet = open_parquet(handle, columns.names(), None if self.whole else ())
            bounds = [0]
            for i in range(parquet.metadata.num_row_groups):
                bounds.append(bounds[-1] + parquet.metadata.row_group(i).num_rows)
            self._opened = (shard.file, parquet, bounds)
            self._group = None
        _, parquet, bounds = self._opened
        pieces = []
        for i in range(len(bounds) - 1):
            low, high = max(bounds[i], shard.start), min(bounds[i + 1], shard.stop)
            if low >= high:
                continue
            if self._group is None or self._group[:2] != (shard.file, i):
                names = None if self.whole else columns.names()
                table = parquet.read_row_group(i, columns=names, use_threads=False)
                self._group = (shard.file, i, table)
            pieces.append(self._group[2].slice(low - bounds[i], high - low))
        if not pieces:
            return _Values(None, [], None, [], [])
        table = pa.concat_tables(pieces)
        texts = strings(table[columns.text])
        labels = None if columns.label is None else _names(table[columns.label])
        ids = None if columns.id is None else _names(table[columns.id])
        return _Values(ids, texts, labels, [None] * len(texts), _as_strings(table) if self.whole else table)

    def _span(self, shard: Shard, file: InputFile) -> tuple[int, int]:
        last = -(-shard.stop // self.plan.offset_rows)
        return file.offsets[shard.start // self.plan.offset_rows], file.offsets[min(last, len(file.offsets) - 1)]

    def _lines(self, shard: Shard, file: InputFile) -> _Values:
        begin, end = self._span(shard, file)
        with self._open(file) as handle:
            self._check_size(handle, file)
            try:
                data = bytes(handle.read_at(end - begin, begin))
            except ValueError:  # a web server that knows no ranges gives a file from its beginning only
                data = bytes(handle.read_at(end, 0))[begin:]
        if "transcode" in file.conversion:  # its damaged characters are lone surrogates
            text = data.decode("utf-8", "surrogatepass")
        else:
            text = data.decode(file.encoding, "surrogateescape")
        columns = self.plan.columns
        texts: list[Any] = []
        labels: list[Any] | None = None if columns.label is None else []
        ids: list[Any] | None = None if columns.id is None else []
        reasons: list[str | None] = []
        source: list[Any] = []
        for raw, row, reason in _rows(file, text):
            texts.append(row.get(columns.text))
            if labels is not None:
                labels.append(_name(row.get(str(columns.label))))
            if ids is not None:
                ids.append(_name(row.get(str(columns.id))))
            reasons.append(reason)
            if self.whole:
                source.append(raw)
        return _Values(ids, texts, labels, reasons, source)


def _changed(file: InputFile, what: str) -> str:
    return f"{file.path} has {what}; did the file change? Restore it, or start a new run"


def _rows(file: InputFile, text: str) -> Iterator[tuple[Any, dict[str, Any], str | None]]:
    """Yield each record as it is, as an object, and the reason if it is to be rejected."""
    if file.format == "jsonl":
        for line in text.split("\n"):
            if line.strip(_JSON_BLANKS):
                row, bad = json_object(line)
                yield (line if bad else row), row, bad
        return
    csv.field_size_limit(1 << 28)
    width = len(file.header)
    for fields in csv.reader(io.StringIO(text, newline=""), delimiter=file.delimiter):
        if fields:
            bad = None if len(fields) == width else f"{len(fields)} fields where the header has {width}"
            yield fields, dict(zip(file.header, fields, strict=False)), bad


def _as_strings(table: pa.Table) -> pa.Table:
    """Return a table whose strings the conversion of an Arrow file kept as bytes, with strings where they are valid."""
    for i, field in enumerate(table.schema):
        if field.metadata == WAS_STRING:
            plain = table.column(i).cast(pa.large_binary())
            with suppress(pa.ArrowInvalid):
                table = table.set_column(i, field.name, plain.cast(pa.large_string()).cast(pa.string()))
    return table


def strings(column: pa.ChunkedArray) -> list[str | None]:
    """Return a column's values as text; bytes that are not UTF-8 become lone surrogates, and so reject their row."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return column.cast(pa.string()).to_pylist()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        values = column.cast(pa.large_binary()).to_pylist()
        return [None if v is None else v.decode("utf-8", "surrogateescape") for v in values]


def _names(column: pa.ChunkedArray) -> list[str | None]:
    """Return labels or ids as text; the same as the same numbers give in JSONL."""
    values = strings(column)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return [None if v is None else _name(float(v)) for v in values] if pa.types.is_floating(kind) else values


def _name(value: Any) -> str | None:
    """Return a label or an id as text; NaN and the infinities are missing values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value.is_integer() else str(value)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)


def _validated(default_ids: list[str], values: _Values) -> pa.Table:
    ids, texts, labels, reasons, _ = values
    final_ids = default_ids if ids is None else _unique_ids(default_ids, ids, reasons)
    for i, text in enumerate(texts):
        if reasons[i] is None:
            reasons[i] = _fault_of_text(text)
        if reasons[i] is None and labels is not None:
            reasons[i] = _fault_of_label(labels[i])
        if reasons[i] is not None:
            texts[i] = _printable(text)
            if labels is not None:
                labels[i] = None
    return pa.table(
        {
            "sample_id": pa.array(final_ids, pa.string()),
            "text": pa.array(texts, pa.string()),
            "label": pa.nulls(len(texts), pa.string()) if labels is None else pa.array(labels, pa.string()),
            "reason": pa.array(reasons, pa.string()),
        }
    )


def _unique_ids(default_ids: list[str], ids: list, reasons: list[str | None]) -> list[str]:
    """Return the ids, with the default one where an id is missing, damaged or used twice; note the reason."""
    seen: set[str] = set()
    final = []
    for i, (given, fallback) in enumerate(zip(ids, default_ids, strict=True)):
        fault = None
        if given in (None, ""):
            fault = "the id is missing"
        elif not encodable(given):
            fault = "the id is not valid Unicode"
        elif given in seen:
            fault = f"the id {given!r} was used before"
        reasons[i] = reasons[i] or fault
        seen.add(given if fault is None else fallback)
        final.append(given if fault is None else fallback)
    return final


def _fault_of_text(text: Any) -> str | None:
    if text is None:
        return "the text is null"
    if not isinstance(text, str):
        return f"the text is a {type(text).__name__}, not a string"
    if not text or text.isspace():
        return "the text is empty"
    if len(text) > MAX_CHARACTERS:
        return f"the text has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}"
    if not text.isascii() and not encodable(text):
        return "the text is not valid Unicode; if the file has another encoding, use --encoding"
    return None


def _fault_of_label(label: str | None) -> str | None:
    if label is None or label == "":
        return "the label is missing"
    if not encodable(label):
        return "the label is not valid Unicode; if the file has another encoding, use --encoding"
    return None


def encodable(text: str) -> bool:
    """Return whether a text is valid Unicode, without lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: Any) -> str:
    """Return the first characters of a rejected text, safe to store and to show."""
    if text is None:
        return ""
    shown = text if isinstance(text, str) else repr(text)
    return shown[:200].encode("utf-8", "backslashreplace").decode("utf-8")


def check_ids(plan: Plan) -> None:
    """Refuse an input with duplicate ids. Beyond 20 million rows only the ids within each shard are compared."""
    if plan.rows > _MAX_CHECKED_IDS:
        return
    reader = ShardReader(plan)
    hashes = np.empty(plan.rows, dtype=np.uint64)
    position = 0
    for shard in plan.shards():
        table = reader.read(shard)
        for sample_id, reason in zip(table["sample_id"].to_pylist(), table["reason"].to_pylist(), strict=True):
            if reason and "was used before" in reason:
                raise RequestError(
                    f"column {plan.columns.id!r}: {reason}; ids must be unique, or leave --id-column out"
                )
            hashes[position] = int.from_bytes(blake2b(sample_id.encode(), digest_size=8).digest(), "little")
            position += 1
    if np.unique(hashes).size != hashes.size:
        raise RequestError(
            f"column {plan.columns.id!r} has duplicate ids; ids must be unique, or leave --id-column out"
        )
