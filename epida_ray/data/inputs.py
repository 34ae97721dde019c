"""What a user hands in: Parquet, CSV, TSV or JSONL, on a disk or behind a URL, cut into shards that can be read alone.

The shard plan depends on the input alone. Parquet files are addressed by row; CSV and JSONL are scanned once for the
byte offset of every 64th row, so that a shard of those can be read without reading what stands before it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import posixpath
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from epida_ray.core.errors import RequestError
from epida_ray.data.storage import folder_url, open_filesystem

MAX_CHARACTERS = 100_000
"""Longer texts are set aside: no classifier here reads that far, and one of them could hold up a whole shard."""

EMPTY = "the file is empty"

_STEP = 64
_CHUNK = 1 << 23
_ENDS = 1 << 16
_MAX_CHECKED_IDS = 20_000_000
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
_JSON_BLANKS = " \t\r"
"""A line of nothing else is no record, here as in `record_ends`."""


class Columns(BaseModel):
    """Which columns hold the text, the label and the id; without an id column ids are `path:row`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    text: str = "text"
    label: str = "label"
    id: str | None = None


class InputFile(BaseModel):
    """One file of the input. A file that cannot be read at all has an error, no rows, and one line in `rejected/`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str
    format: str
    bytes: int
    digest: str
    rows: int = 0
    error: str = ""
    header: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    """Byte offsets of the first row of each shard and of the end, for CSV and JSONL."""


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

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    def shards(self) -> Iterator[Shard]:
        for index, file in enumerate(self.files):
            for start in range(0, file.rows, self.shard_rows):
                yield Shard(index, start, min(start + self.shard_rows, file.rows))

    def shard_name(self, shard: Shard) -> str:
        """Unique within a run, and a plain file name whatever the input's path is."""
        path = quote(self.files[shard.file].path, safe="")
        if path[0] in "._":  # readers of folders skip such names
            path = f"%{ord(path[0]):02X}{path[1:]}"
        if len(path) > 120:
            path = f"{path[:80]}~{blake2b(path.encode(), digest_size=8).hexdigest()}"
        return f"{path}-{shard.start:012d}-{shard.stop:012d}"

    def file_name(self, shard: Shard, fingerprint: str) -> str:
        """What a shard's output is called in a run; resuming looks for it."""
        return f"{self.shard_name(shard)}-{fingerprint[:12]}.parquet"

    def identity(self) -> list[tuple[str, int, str]]:
        """What makes two inputs the same one, wherever they are stored.

        Of CSV and JSONL all bytes count. Of Parquet, of which a plan reads no more, the size, both ends and the footer
        do: what changes neither the length nor the statistics of any column in the middle of a file is not noticed.
        """
        return [(f.path, f.bytes, f.digest) for f in self.files]


def plan_inputs(location: str, columns: Columns, encoding: str = "utf-8") -> Plan:
    """Find the files, check the columns, count the rows and cut them into shards."""
    _check_encoding(encoding)
    filesystem, root, url, names = _find(location)
    files = [_inspect(filesystem, root, name, columns, encoding) for name in names]
    good = [f for f in files if not f.error]
    if not good:
        raise RequestError(f"{files[0].path}: {files[0].error}")
    rows = sum(f.rows for f in good)
    if rows == 0:
        raise RequestError(f"{location} has no rows")
    shard_rows = _shard_rows(rows)
    plan = Plan(
        root=url,
        files=tuple(_offsets_of_shards(f, shard_rows) for f in files),
        columns=columns,
        encoding=encoding,
        label_type=_label_type(filesystem, root, good[0], columns, encoding),
        shard_rows=shard_rows,
    )
    if columns.id is not None:
        _check_ids(plan)
    return plan


def _check_encoding(encoding: str) -> None:
    """Records are found by their bytes, so the bytes of ASCII must mean the same in the file's encoding."""
    ascii_ = '{"a": 1},\t\r\n'
    try:
        known = ascii_.encode("ascii").decode(encoding) == ascii_
    except (LookupError, ValueError):
        known = False
    if not known:
        raise RequestError(f"cannot read --encoding {encoding}; name another, or convert the file to utf-8")


def _shard_rows(rows: int) -> int:
    """About 32 shards, of 64 to 16,384 rows; from 4,096 of those on, up to 65,536 rows.

    Never so few that workers idle, never tasks so tiny that Ray is busier than they are, and 15,259 shards for a
    billion rows, which a driver handles.
    """
    size = _STEP
    while (size < 16_384 and size * 32 < rows) or (size < 65_536 and size * 4_096 < rows):
        size *= 2
    return size


def _offsets_of_shards(file: InputFile, shard_rows: int) -> InputFile:
    """Of the offsets that the scan noted, those that are needed; a plan stays small however long the file is."""
    offsets = file.offsets[:: shard_rows // _STEP]
    if offsets and offsets[-1] != file.bytes:
        offsets += (file.bytes,)
    return file.model_copy(update={"offsets": offsets})


def _find(location: str) -> tuple[pafs.FileSystem, str, str, list[str]]:
    """The filesystem, the folder that ids are relative to, its path or URL, and the files' paths below it."""
    filesystem, path = open_filesystem(location)
    try:
        kind = filesystem.get_file_info(path).type
        wild = [i for i, c in enumerate(path) if c in "*?["]
        if kind == pafs.FileType.NotFound and wild:
            folder = _parent(path[: wild[0]])
            pattern = path[len(folder) :].strip("/").split("/")
            found = [n for n in _walk(filesystem, folder) if _matches(n.split("/"), pattern)]
            if not found:
                raise RequestError(f"no file matches {location}")
        elif kind == pafs.FileType.NotFound:
            raise RequestError(f"no such file or directory: {location}")
        elif kind == pafs.FileType.Directory:
            folder = path
            found = [n for n in _walk(filesystem, path) if posixpath.splitext(n)[1].lower() in FORMATS]
            if not found:
                raise RequestError(f"{location} holds no .parquet, .csv, .tsv or .jsonl file")
        else:
            folder, found = _parent(path), [posixpath.basename(path)]
    except UnicodeError as error:
        raise RequestError(f"{location!r}: a file name there is not valid UTF-8; rename it") from error
    except OSError as error:
        raise RequestError(f"cannot look into {location}: {_one_line(error)}") from error
    return filesystem, folder, folder_url(filesystem, location, path, folder), found


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Folder by folder, as a shell does it; `**` is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _walk(filesystem: pafs.FileSystem, base: str) -> list[str]:
    infos = filesystem.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True))
    names = [posixpath.relpath(i.path, base) for i in infos if i.type == pafs.FileType.File]
    return sorted(n for n in names if not any(part[0] in "._" for part in n.split("/")))


def _inspect(filesystem: pafs.FileSystem, root: str, name: str, columns: Columns, encoding: str) -> InputFile:
    format_ = FORMATS.get(posixpath.splitext(name)[1].lower())
    if format_ is None:
        raise RequestError(f"{name or root}: not a .parquet, .csv, .tsv or .jsonl file; convert it to one of those")
    base: dict[str, Any] = {"path": name, "format": format_, "bytes": 0}
    digest = blake2b(digest_size=16)
    try:
        with filesystem.open_input_file(posixpath.join(root, name)) as file:
            base["bytes"] = size = file.size()
            if size == 0:
                return InputFile(**base, digest=digest.hexdigest(), error=EMPTY)
            if format_ == "parquet":
                parquet = pq.ParquetFile(file)
                header: Sequence[str] = parquet.schema_arrow.names
                _check_types(parquet.schema_arrow, columns)
                tail = min(size, max(_ENDS, parquet.metadata.serialized_size + 8))
                digest.update(file.read_at(min(size, _ENDS), 0))
                digest.update(file.read_at(tail, size - tail))
                found = InputFile(**base, digest=digest.hexdigest(), rows=parquet.metadata.num_rows)
            else:
                found, header = _scan(file, base, encoding, digest)
    except (pa.ArrowException, OSError, csv.Error, ValueError) as error:
        return InputFile(**base, digest=digest.hexdigest(), error=f"cannot be read as {format_}: {_one_line(error)}")
    if found.rows:
        _check_columns(name, header, columns)
    return found


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _check_columns(name: str, header: Sequence[str], columns: Columns) -> None:
    counts = Counter(header)
    for option, column in (
        ("--text-column", columns.text),
        ("--label-column", columns.label),
        ("--id-column", columns.id),
    ):
        if column is None:
            continue
        if column not in counts:
            if len(header) == 1 and (other := next((c for c in ";|\t," if column in header[0].split(c)), None)):
                raise RequestError(
                    f"{name}: columns are separated by {other!r} there; save it with commas, or as .tsv with tabs"
                )
            there = ", ".join(map(repr, header[:20])) + (", …" if len(header) > 20 else "")
            raise RequestError(f"{name} has no column {column!r}; it has {there}; use {option}")
        if counts[column] > 1:
            raise RequestError(f"{name} has {counts[column]} columns named {column!r}; rename all but one")


def _check_types(schema: pa.Schema, columns: Columns) -> None:
    """Extension types run code of whoever registered them, and Ray Data's unpickles: none is read."""
    for column in schema:
        if column.name in (columns.text, columns.label, columns.id) and isinstance(column.type, pa.BaseExtensionType):
            raise ValueError(
                f"column {column.name!r} has the type {column.type.extension_name}; store it as plain strings"
            )


def _scan(file: Any, base: dict[str, Any], encoding: str, digest: blake2b) -> tuple[InputFile, Sequence[str]]:
    """Count the records of a CSV or JSONL file and note where every 64th begins, after a byte order mark."""
    from epida_ray.data.records import FIELD_START, QUOTED, record_ends

    delimiter = DELIMITERS.get(base["format"])
    size = base["bytes"]
    begin = len(BOM_UTF8) if bytes(file.read_at(min(size, len(BOM_UTF8)), 0)) == BOM_UTF8 else 0
    state, content = FIELD_START, False
    first, rows = (-1, -1) if delimiter else (0, 0)
    offsets: list[int] = [] if delimiter else [begin]
    position = header_end = begin
    while position < size:
        read = file.read_at(min(_CHUNK, size - position), position)
        digest.update(read)
        data = np.frombuffer(read, dtype=np.uint8)
        ends = np.empty(data.size, dtype=np.int64)
        count, state, content = record_ends(data, state, content, ord(delimiter or ","), delimiter is not None, ends)
        ends = ends[:count] + position
        position += data.size
        if count and first < 0:
            first, header_end = 0, int(ends[0])
            offsets.append(header_end)
            ends, count, rows = ends[1:], count - 1, 0
        if rows >= 0:
            numbers = np.arange(rows + 1, rows + count + 1)
            offsets.extend(ends[numbers % _STEP == 0].tolist())
            rows += count
    if state == QUOTED:
        raise ValueError("a quoted field is never closed")
    if content:
        if rows < 0:
            header_end, rows = size, 0
            offsets.append(size)
        else:
            rows += 1
            if rows % _STEP == 0:
                offsets.append(size)
    header: Sequence[str] = ()
    if delimiter:
        line = bytes(file.read_at(header_end - begin, begin)).decode(encoding, "surrogateescape")
        header = next(filter(None, csv.reader(io.StringIO(line, newline=""), delimiter=delimiter)), [])
    elif rows:
        header = tuple(dict.fromkeys(name for row in _first_objects(file, begin, size, encoding) for name in row))
        if not header:
            raise ValueError("none of the first lines is a JSON object")
    if not offsets or offsets[-1] != size:
        offsets.append(size)
    rows = max(rows, 0)
    names = tuple(header) if delimiter else ()
    made = InputFile(**base, digest=digest.hexdigest(), rows=rows, header=names, offsets=tuple(offsets))
    return made, header


def _first_objects(file: Any, begin: int, size: int, encoding: str) -> list[dict[str, Any]]:
    """The JSON objects among a file's first 1,000 lines."""
    data = bytes(file.read_at(min(size - begin, _CHUNK), begin))
    lines = data.decode(encoding, "surrogateescape").split("\n", 1000)[:1000]
    return [row for row, bad in map(_json_object, lines) if bad is None]


def _json_object(line: str) -> tuple[dict[str, Any], str | None]:
    """What a line holds, or nothing and the reason."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"the line is not JSON: {_one_line(error)}"
    return (row, None) if isinstance(row, dict) else ({}, "the line is not a JSON object")


class ShardReader:
    """Reads shards of one plan; keeps the last Parquet row group, since neighbouring shards often share it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._filesystem: pafs.FileSystem | None = None
        self._opened: tuple[int, pq.ParquetFile, list[int]] | None = None
        self._group: tuple[int, int, pa.Table] | None = None

    def read(self, shard: Shard) -> pa.Table:
        """Columns sample_id, text, label, reason; a row with a reason is to be set aside."""
        file = self.plan.files[shard.file]
        reasons: list[str | None]
        try:
            if file.format == "parquet":
                ids, texts, labels, reasons = self._parquet(shard)
            else:
                ids, texts, labels, reasons = self._lines(shard, file)
            if len(texts) != shard.stop - shard.start:
                raise ValueError(
                    f"{len(texts)} rows where {shard.stop - shard.start} were planned; did the file change?"
                )
        except (pa.ArrowException, OSError, ValueError, csv.Error) as error:
            count = shard.stop - shard.start
            ids, texts, labels = None, [None] * count, [None] * count
            reasons = [f"cannot read {file.path}: {_one_line(error)}"] * count
        default_ids = [f"{file.path}:{row}" for row in range(shard.start, shard.stop)]
        return _validated(default_ids, ids, texts, labels, reasons)

    def _open(self, shard: Shard) -> Any:
        if self._filesystem is None:
            self._filesystem, self._root = open_filesystem(self.plan.root)
        return self._filesystem.open_input_file(posixpath.join(self._root, self.plan.files[shard.file].path))

    def _parquet(self, shard: Shard) -> tuple[list | None, list, list, list]:
        if self._opened is None or self._opened[0] != shard.file:
            handle = pq.ParquetFile(self._open(shard))
            bounds = [0]
            for i in range(handle.metadata.num_row_groups):
                bounds.append(bounds[-1] + handle.metadata.row_group(i).num_rows)
            self._opened = (shard.file, handle, bounds)
            self._group = None
        _, handle, bounds = self._opened
        columns = self.plan.columns
        wanted = [c for c in (columns.text, columns.label, columns.id) if c is not None]
        pieces = []
        for i in range(len(bounds) - 1):
            low, high = max(bounds[i], shard.start), min(bounds[i + 1], shard.stop)
            if low >= high:
                continue
            if self._group is None or self._group[:2] != (shard.file, i):
                self._group = (shard.file, i, handle.read_row_group(i, columns=wanted, use_threads=False))
            pieces.append(self._group[2].slice(low - bounds[i], high - low))
        table = pa.concat_tables(pieces)
        _check_types(table.schema, columns)
        texts, labels = _strings(table[columns.text]), _names(table[columns.label])
        return None if columns.id is None else _names(table[columns.id]), texts, labels, [None] * len(texts)

    def _lines(self, shard: Shard, file: InputFile) -> tuple[list | None, list, list, list]:
        begin = file.offsets[shard.start // self.plan.shard_rows]
        last = -(-shard.stop // self.plan.shard_rows)
        end = file.offsets[last] if last < len(file.offsets) else file.bytes
        with self._open(shard) as handle:
            try:
                data = bytes(handle.read_at(end - begin, begin))
            except ValueError:  # a web server that knows no ranges gives a file from its beginning only
                data = bytes(handle.read_at(end, 0))[begin:]
        text = data.decode(self.plan.encoding, "surrogateescape")
        columns = self.plan.columns
        names = [columns.text, columns.label, columns.id]
        values: list[list[Any]] = [[], [], []]
        reasons: list[str | None] = []
        for row, reason in self._rows(file, text):
            for name, column in zip(names, values, strict=True):
                value = None if name is None else row.get(name)
                column.append(value)
            reasons.append(reason)
        ids = None if columns.id is None else [_name(v) for v in values[2]]
        return ids, values[0], [_name(v) for v in values[1]], reasons

    @staticmethod
    def _rows(file: InputFile, text: str) -> Iterator[tuple[dict[str, Any], str | None]]:
        if file.format == "jsonl":
            yield from (_json_object(line) for line in text.split("\n") if line.strip(_JSON_BLANKS))
            return
        csv.field_size_limit(1 << 28)
        width = len(file.header)
        for fields in csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[file.format]):
            if not fields:
                continue
            bad = None if len(fields) == width else f"{len(fields)} fields where the header has {width}"
            yield dict(zip(file.header, fields, strict=False)), bad


def _strings(column: pa.ChunkedArray) -> list[str | None]:
    """Bytes that are not UTF-8 become lone surrogates, for which a row of its own is set aside."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return column.cast(pa.string()).to_pylist()
    except (pa.ArrowInvalid, UnicodeDecodeError):
        values = column.cast(pa.large_binary()).to_pylist()
        return [None if v is None else v.decode("utf-8", "surrogateescape") for v in values]


def _names(column: pa.ChunkedArray) -> list[str | None]:
    """Labels or ids; the same ones as the same numbers would give in JSONL."""
    values = _strings(column)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return [None if v is None else _name(float(v)) for v in values] if pa.types.is_floating(kind) else values


def _name(value: Any) -> str | None:
    """A label or an id as text; NaN and the infinities are none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value.is_integer() else str(value)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)


def _validated(
    default_ids: list[str], ids: list | None, texts: list, labels: list, reasons: list[str | None]
) -> pa.Table:
    seen: set[str] = set()
    if ids is None:
        final_ids = default_ids
    else:
        final_ids = []
        for i, (given, fallback) in enumerate(zip(ids, default_ids, strict=True)):
            if given in (None, ""):
                reasons[i] = reasons[i] or "the id is missing"
                given = fallback
            elif not _encodable(given):
                reasons[i] = reasons[i] or "the id is not valid Unicode"
                given = fallback
            elif given in seen:
                reasons[i] = reasons[i] or f"the id {given!r} was used before"
                given = fallback
            seen.add(given)
            final_ids.append(given)
    for i, (text, label) in enumerate(zip(texts, labels, strict=True)):
        if reasons[i] is None:
            if text is None:
                reasons[i] = "the text is null"
            elif not isinstance(text, str):
                reasons[i] = f"the text is a {type(text).__name__}, not a string"
            elif not text or text.isspace():
                reasons[i] = "the text is empty"
            elif len(text) > MAX_CHARACTERS:
                reasons[i] = f"the text has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}"
            elif not text.isascii() and not _encodable(text):
                reasons[i] = "the text is not valid Unicode; if the file has another encoding, use --encoding"
            elif label is None or label == "":
                reasons[i] = "the label is missing"
            elif not _encodable(label):
                reasons[i] = "the label is not valid Unicode; if the file has another encoding, use --encoding"
        if reasons[i] is not None:
            texts[i] = _printable(text)
            labels[i] = None
    return pa.table(
        {
            "sample_id": pa.array(final_ids, pa.string()),
            "text": pa.array(texts, pa.string()),
            "label": pa.array(labels, pa.string()),
            "reason": pa.array(reasons, pa.string()),
        }
    )


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: Any) -> str:
    """The first characters of a rejected text, safe to store and to show."""
    if text is None:
        return ""
    shown = text if isinstance(text, str) else repr(text)
    return shown[:200].encode("utf-8", "backslashreplace").decode("utf-8")


def _label_type(filesystem: pafs.FileSystem, root: str, file: InputFile, columns: Columns, encoding: str) -> str:
    """The type labels had in the input, which the output keeps: string, int64 or bool."""
    if file.format in DELIMITERS:
        return "string"
    with filesystem.open_input_file(posixpath.join(root, file.path)) as handle:
        if file.format == "parquet":
            kind = pq.ParquetFile(handle).schema_arrow.field(columns.label).type
            if pa.types.is_dictionary(kind):
                kind = kind.value_type
            return "bool" if pa.types.is_boolean(kind) else "int64" if pa.types.is_integer(kind) else "string"
        rows = _first_objects(handle, file.offsets[0], file.bytes, encoding)
    values = {type(row.get(columns.label)) for row in rows}
    values.discard(type(None))
    return "bool" if values == {bool} else "int64" if values == {int} else "string"


def _check_ids(plan: Plan) -> None:
    """Ids of the whole input must differ. Beyond 20 million rows this is checked within each shard only."""
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
