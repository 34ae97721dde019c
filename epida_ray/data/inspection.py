"""Inspect one file of an input: how it is read, how many rows it has, and where they begin."""

from __future__ import annotations

import codecs
import csv
import posixpath
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from epida_ray.core.errors import RequestError
from epida_ray.data.arrow import open_parquet
from epida_ray.data.convert import NATIVE, convert, digest_of, workbook
from epida_ray.data.discovery import Found
from epida_ray.data.formats import (
    DELIMITERS,
    KNOWN,
    TEXT_FORMATS,
    UNREADABLE_SHARE,
    ascii_compatible,
    detect_delimiter,
    format_of,
    how_to_convert,
    is_plainly_western,
    likely_encoding,
    marked_encoding,
    undecodable,
)
from epida_ray.data.retry import one_line, watched, with_retries
from epida_ray.data.scan import Scanned, json_object, scan

EMPTY = "the file is empty"

_ENDS = 1 << 16
_BEGINNING = 1 << 20


class Columns(BaseModel):
    """Which columns hold the text, the label and the id.

    Without an id column ids are `path:row`; without a label column all labels are null.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    text: str = "text"
    label: str | None = "label"
    id: str | None = None

    def names(self) -> list[str]:
        return [name for name in (self.text, self.label, self.id) if name is not None]


class InputFile(BaseModel):
    """One file of the input. A file that cannot be read at all has an error, no rows, and one line in `rejected/`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str
    format: str
    """parquet, csv, tsv or jsonl: what is read, after the conversion if there is one."""
    bytes: int
    digest: str
    rows: int = 0
    unpacked: int = 0
    """Bytes of the rows before compression, where that is known."""
    error: str = ""
    header: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    """Byte offsets of the first row of each shard and of the end, for CSV and JSONL."""
    delimiter: str = ""
    encoding: str = "utf-8"
    conversion: tuple[str, ...] = ()
    """Steps of `convert` that make a file which can be cut into shards; most files need none."""


class Inspected(NamedTuple):
    """A file, the type of its labels, and what is unusual about it."""

    file: InputFile
    label_type: str = "string"
    notes: tuple[str, ...] = ()


def inspect_file(found: Found, name: str, columns: Columns, encoding: str, delimiter: str | None) -> Inspected:
    format_ = format_of(name)
    path = posixpath.join(found.root, name)
    if format_ is None:
        raise RequestError(f"{name or found.root}: not {KNOWN}; {how_to_convert(name)}")

    def beginning() -> tuple[int, bytes]:
        with found.filesystem.open_input_file(path) as file:
            size = file.size()
            return size, bytes(file.read_at(min(size, _BEGINNING), 0))

    size, first = with_retries(beginning, f"cannot read {name}")
    base: dict[str, Any] = {"path": name, "format": NATIVE.get(format_.kind, format_.kind), "bytes": size, "digest": ""}
    if size == 0:
        return Inspected(InputFile(**base | {"digest": blake2b(digest_size=16).hexdigest()}, error=EMPTY))
    try:
        inspector = _Inspector(found, path, columns, encoding, delimiter, base)
        return inspector.inspect(format_.kind, format_.compression, first)
    except (pa.ArrowException, csv.Error, ValueError) as error:
        reason = f"cannot be read as {format_.kind}: {one_line(error)}"
        digest = base["digest"] or digest_of(found.filesystem, path, name)
        return Inspected(InputFile(**base | {"digest": digest}, error=reason))


class _Inspector:
    """Inspects one file: finds out how it is read, and counts its rows."""

    def __init__(
        self, found: Found, path: str, columns: Columns, encoding: str, delimiter: str | None, base: dict[str, Any]
    ) -> None:
        self.filesystem, self.path = found.filesystem, path
        self.columns = columns
        self.encoding, self.delimiter = encoding, delimiter
        self.base = base
        self.name: str = base["path"]
        self.steps: list[str] = []
        self.notes: list[str] = []

    def inspect(self, kind: str, compression: str | None, first: bytes) -> Inspected:
        if compression is not None:
            first = self._convert(compression, "utf-8")
        # Many programs give JSON Lines this name.
        if kind == "json" and first.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{":
            self.base["format"] = kind = "jsonl"
        encoding = "utf-8" if self.encoding == "auto" else self.encoding
        if kind in TEXT_FORMATS:
            encoding = self._text_encoding(first)
        if kind in NATIVE:
            if kind == "json":
                self._convert_array(encoding)
            else:
                self._convert(kind, encoding)
            if kind == "xlsx":
                self._note_sheets()
            encoding = "utf-8"
        elif kind in TEXT_FORMATS and not ascii_compatible(encoding):
            self._convert("transcode", encoding)
        self.base["conversion"] = tuple(self.steps)
        if self.base["format"] == "parquet":
            return self._parquet()
        return self._scanned(encoding)

    def _convert(self, step: str, encoding: str) -> bytes:
        """Take one more step of the conversion; return the beginning of what it gives."""
        if not self.base["digest"]:
            self.base["digest"] = digest_of(self.filesystem, self.path, self.name)
        self.steps.append(step)
        self.base["encoding"] = encoding
        made = self._converted()
        with made.open("rb") as file:
            return file.read(_BEGINNING)

    def _convert_array(self, encoding: str) -> None:
        """Make lines of a JSON array; of one that is not in Unicode, after it has been brought to UTF-8."""
        if codecs.lookup(encoding).name.startswith("utf"):
            try:
                self._convert("json", encoding)
                return
            except UnicodeDecodeError as error:
                if error.encoding != "utf-8":
                    raise
                near = error.object[max(0, error.start - _BEGINNING) : error.start + _BEGINNING]
                encoding = self._other_encoding(near, "utf-8", f"the text of {self.name}")
            self.steps.pop()
        self._convert("transcode", encoding)
        self._convert("json", encoding)

    def _converted(self) -> Path:
        return with_retries(
            lambda: convert(
                self.filesystem, self.path, self.base["digest"], self.steps, self.base["encoding"], self.name
            ),
            f"cannot read {self.name}",
        )

    def _text_encoding(self, first: bytes) -> str:
        """Return the encoding that a byte order mark names, else the one requested."""
        marked = marked_encoding(first)
        if marked == "utf-8-sig" and self.encoding not in ("auto", "utf-8", "utf-8-sig"):
            self.notes.append(f"{self.name}: it has the byte order mark of UTF-8, but is read as {self.encoding}")
        if marked == "utf-16" and self.encoding in ("auto", "utf-8"):
            self.notes.append(f"{self.name}: read as UTF-16, by its byte order mark")
            return marked
        return "utf-8" if self.encoding == "auto" else self.encoding

    def _note_sheets(self) -> None:
        def read() -> list[str]:
            with self.filesystem.open_input_file(self.path) as file, workbook(file) as book:
                return list(book.sheet_names)

        names = with_retries(read, f"cannot read {self.name}")
        if len(names) > 1:
            self.notes.append(f"{self.name}: the first of {len(names)} sheets is read, {names[0]!r}")

    def _open(self) -> tuple[pafs.FileSystem, str]:
        if not self.steps:
            return self.filesystem, self.path
        return pafs.LocalFileSystem(), str(self._converted())

    def _parquet(self) -> Inspected:
        filesystem, path = self._open()

        def read(watch: Callable[[Any], Any] = nullcontext) -> tuple[pa.Schema, pq.FileMetaData, str]:
            digest = blake2b(digest_size=16)
            with filesystem.open_input_file(path) as handle, watch(handle) as file:
                size = file.size()
                opened = open_parquet(file, self.columns.names())
                tail = min(size, max(_ENDS, opened.metadata.serialized_size + 8))
                digest.update(file.read_at(min(size, _ENDS), 0))
                digest.update(file.read_at(tail, size - tail))
                return opened.schema_arrow, opened.metadata, digest.hexdigest()

        schema, metadata, digest = with_retries(read, f"cannot read {self.name}", lambda: read(watched))
        rows = metadata.num_rows
        unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        if rows:
            _check_columns(self.name, schema.names, self.columns)
            _check_label_type(self.name, schema, self.columns.label)
        made = InputFile(**self.base | {"digest": self.base["digest"] or digest}, rows=rows, unpacked=unpacked)
        label_type = (
            _arrow_label_type(schema.field(self.columns.label).type) if rows and self.columns.label else "string"
        )
        return Inspected(made, label_type, tuple(self.notes))

    def _scanned(self, encoding: str) -> Inspected:
        filesystem, path = self._open()
        reading = "utf-8" if "transcode" in self.steps else encoding
        usual = DELIMITERS.get(self.base["format"])

        def read(reading: str) -> tuple[Scanned, str | None, str]:
            digest = blake2b(digest_size=16)
            with filesystem.open_input_file(path) as file:
                size = file.size()
                delimiter = usual
                if usual is not None and self.delimiter is not None and "xlsx" not in self.steps:
                    delimiter = self.delimiter
                elif usual is not None:
                    data = bytes(file.read_at(min(size, _BEGINNING), 0))
                    beginning = data.decode(reading, "surrogateescape").removeprefix("\ufeff")
                    delimiter = detect_delimiter(beginning, usual, self.columns.names())
                return scan(file, size, delimiter, reading, digest), delimiter, digest.hexdigest()

        what = f"cannot read {self.name}"
        scanned, delimiter, digest = with_retries(lambda: read(reading), what)
        if (detected := self._checked_encoding(scanned, reading)) != reading:
            reading = detected
            scanned, delimiter, digest = with_retries(lambda: read(reading), what)
        if delimiter not in (usual, self.delimiter):
            self.notes.append(f"{self.name}: columns are separated by {delimiter!r}")
        header: Sequence[str] = scanned.header
        label_type = "string"
        if self.base["format"] == "jsonl":
            header, label_type = self._objects(scanned.sample, reading)
        if scanned.rows and header:
            _check_columns(self.name, header, self.columns)
        details = {
            "digest": self.base["digest"] or digest,
            "encoding": self.base["encoding"] if "transcode" in self.steps else reading,
            "delimiter": delimiter or "",
            "header": tuple(scanned.header),
        }
        made = InputFile(
            **self.base | details, rows=scanned.rows, unpacked=scanned.offsets[-1], offsets=scanned.offsets
        )
        return Inspected(made, label_type, tuple(self.notes))

    def _objects(self, sample: Sequence[bytes], encoding: str) -> tuple[list[str], str]:
        """Return the names that occur in the sampled objects, and the type of their labels."""
        rows = [json_object(row.decode(encoding, "surrogateescape")) for row in sample]
        objects = [row for row, reason in rows if reason is None]
        if sample and not objects:
            raise ValueError("none of the first lines is a JSON object")
        types = {type(row.get(self.columns.label)) for row in objects if self.columns.label} - {type(None)}
        label_type = "bool" if types == {bool} else "int64" if types == {int} else "string"
        return list(dict.fromkeys(name for row in objects for name in row)), label_type

    def _checked_encoding(self, scanned: Scanned, encoding: str) -> str:
        """Return the encoding to read with; refuse a file of which many rows do not decode."""
        if "transcode" in self.steps:
            return encoding
        sample, header = scanned.sample, scanned.header
        data = b"".join(sample)
        bad = undecodable(sample, encoding)
        if bad > UNREADABLE_SHARE * len(sample):
            return self._other_encoding(data, encoding, f"{bad:,} of {len(sample):,} rows of {self.name}")
        names = "\n".join(header).encode(encoding, "surrogateescape")
        missed = not set(self.columns.names()) <= set(header)
        others = sum(not row.isascii() for row in sample)
        if missed and bad == others and undecodable([names], encoding):  # no row says that it is UTF-8
            return self._other_encoding(names + data, encoding, f"the header of {self.name}")
        return encoding

    def _other_encoding(self, data: bytes, encoding: str, what: str) -> str:
        """Return Windows-1252 for bytes that do not decode, if they are plainly that; else say what to try."""
        other = likely_encoding(data)
        if self.encoding == "auto" and other == "windows-1252" and is_plainly_western(data):
            self.notes.append(f"{self.name}: read as windows-1252, since it is not UTF-8")
            return other
        name = "UTF-8" if encoding in ("utf-8", "utf-8-sig") else encoding
        hint = f"try --encoding {other}" if other and other != encoding else "name it with --encoding"
        raise RequestError(f"{what} {'is' if what.startswith('the') else 'are'} not {name}; {hint}")


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
            there = ", ".join(map(repr, header[:20])) + (", …" if len(header) > 20 else "")
            raise RequestError(f"{name} has no column {column!r}; it has {there}; use {option}")
        if counts[column] > 1:
            raise RequestError(f"{name} has {counts[column]} columns named {column!r}; rename all but one")


def _check_label_type(name: str, schema: pa.Schema, label: str | None) -> None:
    kind = schema.field(label).type if label else None
    if kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise RequestError(
            f"{name}: column {label!r} holds lists: these are multi-label data, and epida learns one class per text; "
            "choose one, or train a model for each class with a yes/no column"
        )


def _arrow_label_type(kind: pa.DataType) -> str:
    """Return the type that labels have in the output as in the input: string, int64 or bool."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return "bool" if pa.types.is_boolean(kind) else "int64" if pa.types.is_integer(kind) else "string"
