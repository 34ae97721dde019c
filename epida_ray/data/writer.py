"""Write rows to one file, in the format that its suffix names. All commands that write such a file use this."""

from __future__ import annotations

import codecs
import csv
import datetime
import io
import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.formats import DELIMITERS, KNOWN, Format, format_of
from epida_ray.data.retry import one_line
from epida_ray.data.storage import check_url, open_filesystem, refusal, whole_file

_EXCEL_ROWS, _EXCEL_CHARACTERS = 1_048_576, 32_767
"""The most that a sheet and a cell hold."""
_MADE = datetime.datetime(2000, 1, 1)
"""The date in every workbook, so that the same rows give the same bytes."""


class RowWriter:
    """Writes tables; some formats write rows of another shape too."""

    def table(self, table: pa.Table) -> None:
        raise NotImplementedError

    def fields(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows of CSV, TSV and Excel; the first one of all is the header."""
        raise NotImplementedError

    def objects(self, rows: Sequence[dict[str, Any] | str]) -> None:
        """Write rows of JSON; a text is a line, written as it is."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what ends the file."""


def csv_text(rows: Iterable[Sequence[Any]], delimiter: str = ",", end: str = "\n") -> str:
    """Return rows as CSV that every reader takes apart into the same fields."""
    text = io.StringIO(newline="")
    plain = csv.writer(text, delimiter=delimiter, lineterminator=end)
    quoted = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    for row in rows:
        # The csv module does not quote a lone carriage return, which ends a row for its reader.
        (quoted if any("\r" in v for v in row if isinstance(v, str)) else plain).writerow(row)
    return text.getvalue()


def csv_table(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a header and the values of these names as CSV; a name that a row lacks is an empty field."""
    return csv_text([names, *([row.get(name) for name in names] for row in rows)])


def format_to_write(location: str, overwrite: bool = False) -> Format:
    """Return the format of a file that is to be written; refuse one that is there already, or else a folder."""
    check_url(location)
    format_ = format_of(location)
    if format_ is None:
        raise RequestError(f"{location} is not {KNOWN}; choose a name with one of these endings")
    filesystem, path = open_filesystem(location)
    try:
        there = filesystem.get_file_info(path).type
    except OSError as error:
        raise RequestError(f"cannot look into {location}: {one_line(error)}") from error
    if there == pafs.FileType.Directory:
        raise RequestError(f"{location} is a folder; choose another name")
    if there != pafs.FileType.NotFound and not overwrite:
        raise RequestError(f"{location} exists already; choose another name, or add --overwrite")
    if format_.kind == "xlsx":
        _import_xlsxwriter()
    return format_


@contextmanager
def open_writer(
    location: str,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    lines: bool = False,
    overwrite: bool = False,
) -> Iterator[RowWriter]:
    """Give a writer to a file that is there whole when the block is done; nothing is left of a block that fails.

    With `lines` a .json file has a row on each line, as a .jsonl file does, and is no array. With `overwrite` it takes
    the place of a file that is there, which stays if the block fails.
    """
    format_ = format_to_write(location, overwrite)
    kept = _KeptOpen()
    try:
        with ExitStack() as stack:
            kept.sink = stack.enter_context(whole_file(location))
            sink: Any = kept
            if format_.compression is not None:
                sink = stack.enter_context(pa.CompressedOutputStream(pa.PythonFile(sink, "w"), format_.compression))
            writer = _made(format_.kind, sink, encoding, delimiter, lines)
            yield writer
            writer.close()
    except OSError as error:
        reason = refusal(error) or one_line(error)
        raise RunError(f"cannot write {location}: {reason}; nothing is left of it") from error
    finally:
        kept.sink = None  # a writer that was not closed ends its file when it is deleted


def _made(kind: str, sink: Any, encoding: str, delimiter: str | None, lines: bool) -> RowWriter:
    if kind in DELIMITERS:
        return _Csv(sink, delimiter or DELIMITERS[kind], encoding)
    if kind == "xlsx":
        return _Excel(sink)
    if kind in ("jsonl", "json"):
        return _Json(sink, encoding, array=kind == "json" and not lines)
    if kind in ("parquet", "arrow"):
        return _Arrow(sink, kind)
    raise ValueError(f"there is no writer of {kind} files")


class _KeptOpen(io.RawIOBase):
    """A stream that Arrow may close without closing what is below it; without a sink it drops what is written."""

    sink: Any = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.sink is not None:
            self.sink.write(data)
        return len(data)


def _encoder(encoding: str) -> Any:
    """Return an encoder that writes a byte order mark once; what did not decode comes out as it went in."""
    errors = "surrogatepass" if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")) else "surrogateescape"
    return codecs.getincrementalencoder(encoding)(errors)


class _Csv(RowWriter):
    def __init__(self, sink: Any, delimiter: str, encoding: str) -> None:
        self._sink, self._encoder = sink, _encoder(encoding)
        self._delimiter = delimiter
        self._begun = False

    def fields(self, rows: Sequence[Sequence[Any]]) -> None:
        self._sink.write(self._encoder.encode(csv_text(rows, self._delimiter)))

    def table(self, table: pa.Table) -> None:
        data = io.BytesIO()
        options = pacsv.WriteOptions(include_header=not self._begun, delimiter=self._delimiter)
        pacsv.write_csv(_flat(table), data, options)
        self._begun = True
        self._sink.write(self._encoder.encode(data.getvalue().decode()))


class _Json(RowWriter):
    def __init__(self, sink: Any, encoding: str, array: bool) -> None:
        self._sink, self._array = sink, array
        self._encoder = _encoder("utf-8" if array else encoding)
        self._begun = False

    def objects(self, rows: Sequence[dict[str, Any] | str]) -> None:
        for row in rows:
            if self._array:
                self._sink.write(b",\n" if self._begun else b"[\n")
            self._begun = True
            self._sink.write(self._line(row))

    def table(self, table: pa.Table) -> None:
        columns = [_python(column) for column in table.columns]
        self.objects([dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)])

    def close(self) -> None:
        if self._array:
            self._sink.write(b"\n]\n" if self._begun else b"[]\n")

    def _line(self, row: dict[str, Any] | str) -> bytes:
        end = "" if self._array else "\n"
        try:
            if isinstance(row, str):
                return bytes(self._encoder.encode(row.rstrip("\r\n") + end))
            text = _json(row, ensure_ascii=False)
            text.encode()  # a lone surrogate in a value is no byte of the input, which the encoder would take it for
            return bytes(self._encoder.encode(text + end))
        except UnicodeEncodeError:  # a lone surrogate, or a character that the encoding lacks, as JSON escapes it
            return bytes(self._encoder.encode(_json(row if isinstance(row, dict) else json.loads(row)) + end))


class _Excel(RowWriter):
    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the writer
        self._book = _import_xlsxwriter().Workbook(self._spool, {"constant_memory": True})
        self._book.set_properties({"created": _MADE})
        self._sheet = self._book.add_worksheet()
        self._rows = 0

    def fields(self, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            if self._rows == _EXCEL_ROWS:
                raise RunError(f"an Excel sheet holds {_EXCEL_ROWS:,} rows; choose a .csv or .parquet file")
            for column, value in enumerate(row):
                self._cell(column, value)
            self._rows += 1

    def table(self, table: pa.Table) -> None:
        if self._rows == 0:
            self.fields([table.column_names])
        self.fields(list(zip(*(_python(column) for column in _flat(table).columns), strict=True)))

    def close(self) -> None:
        self._book.close()
        self._spool.seek(0)
        shutil.copyfileobj(self._spool, self._sink, 1 << 20)
        self._spool.close()

    def _cell(self, column: int, value: Any) -> None:
        if value is None or value == "":
            return
        if isinstance(value, bool):
            self._sheet.write_boolean(self._rows, column, value)
        elif isinstance(value, int | float):
            self._sheet.write_number(self._rows, column, value)
        else:
            text = str(value).encode("utf-8", "replace").decode()
            if len(text) > _EXCEL_CHARACTERS:
                raise RunError(
                    f"row {self._rows:,} has a text of {len(text):,} characters, and an Excel cell holds "
                    f"{_EXCEL_CHARACTERS:,}; choose a .csv or .parquet file"
                )
            self._sheet.write_string(self._rows, column, text)


class _Arrow(RowWriter):
    """Parquet, or Arrow with compressed batches as Feather has them."""

    def __init__(self, sink: Any, kind: str) -> None:
        self._sink, self._kind = sink, kind
        self._writer: Any = None

    def table(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._made(table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _made(self, schema: pa.Schema) -> Any:
        if self._kind == "parquet":
            return pq.ParquetWriter(self._sink, schema, compression="zstd")
        return pa.ipc.new_file(self._sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))


def _import_xlsxwriter() -> Any:
    try:
        import xlsxwriter
    except ImportError as error:
        raise RequestError("Excel files need an extra: pip install 'epida-ray[excel]'") from error
    return xlsxwriter


def _flat(table: pa.Table) -> pa.Table:
    """Return the table with lists, structs and other values that a cell cannot hold as JSON."""
    for i, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_dictionary(field.type):
            values = _python(table.column(i))
            texts = [v if v is None or isinstance(v, str) else json.dumps(v, default=_json_value) for v in values]
            table = table.set_column(i, field.name, pa.array(texts, pa.string()))
    return table


def _python(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values; 32-bit numbers with the digits they have, not those of a 64-bit one."""
    if not (pa.types.is_float32(column.type) or pa.types.is_float16(column.type)):
        return column.to_pylist()
    return [None if v is None else float(v) for v in column.cast(pa.string()).to_pylist()]


def _json(row: Any, ensure_ascii: bool = True) -> str:
    """Return JSON that every program reads: 1e400 and the like become texts, and NaN becomes null."""
    try:
        return json.dumps(row, ensure_ascii=ensure_ascii, default=_json_value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(row), ensure_ascii=ensure_ascii, default=_json_value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _json_value(value: Any) -> str:
    """Return a date, a decimal or bytes as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
