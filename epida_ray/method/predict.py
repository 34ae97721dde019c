"""`epida predict`: the rows of a file as they are, with what a model says of each text in two more columns."""

from __future__ import annotations

import csv
import io
import json
import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.classify import load
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.progress import Reporter
from epida_ray.data.inputs import DELIMITERS, FORMATS
from epida_ray.data.storage import Storage, open_filesystem
from epida_ray.method.evaluate import no_model
from epida_ray.runs.export import whole_file

NEW = ("predicted", "confidence")
ROWS = 4096
"""Rows in memory at a time."""

Judge = Callable[[Sequence[Any]], tuple[list[str | None], list[float | None]]]


class Predicted(NamedTuple):
    rows: int
    without: int
    """Rows that have no text, and so no prediction."""


def predict(
    model: str,
    file: str,
    output: str,
    text_column: str = "text",
    encoding: str = "utf-8",
    trust_code: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Predicted:
    """Write the rows of `file` to `output`, of the same format, with the columns predicted and confidence."""
    format_, wanted = (FORMATS.get(posixpath.splitext(name)[1].lower()) for name in (file, output))
    if format_ is None:
        raise RequestError(f"{file} is not a .parquet, .csv, .tsv or .jsonl file")
    if wanted != format_:
        raise RequestError(f"{output} must end as {file} does: rows stay in their format")
    where = Storage(model)
    if not where.exists("config.json"):
        raise RequestError(no_model(model, where))
    source, path = open_filesystem(file)
    if source.get_file_info(path).type != pafs.FileType.File:
        raise RequestError(f"there is no file {file}")
    target, place = open_filesystem(output)
    if target.get_file_info(place).type != pafs.FileType.NotFound:
        raise RequestError(f"{output} exists already; choose another name")
    classifier = load(where.local_copy(""), trust=trust_code)
    rows = without = 0

    def judge(texts: Sequence[Any]) -> tuple[list[str | None], list[float | None]]:
        nonlocal rows, without
        given = [i for i, text in enumerate(texts) if isinstance(text, str) and text.strip()]
        labels: list[str | None] = [None] * len(texts)
        sure: list[float | None] = [None] * len(texts)
        if given:
            p = classifier.predict_proba([texts[i] for i in given])
            for i, row in zip(given, p, strict=True):
                labels[i], sure[i] = classifier.labels[int(row.argmax())], round(float(row.max()), 4)
        rows, without = rows + len(texts), without + len(texts) - len(given)
        return labels, sure

    write: Callable[..., Iterator[None]] = _csv
    if format_ in ("parquet", "jsonl"):
        write = _parquet if format_ == "parquet" else _jsonl
    try:
        with source.open_input_file(path) as read, whole_file(target, place) as sink:
            size = max(1, -(-read.size() // 1_000_000))
            with (reporter or Reporter(quiet=True)).track("predict", size, unit="MB") as tracker:
                for _ in write(read, sink, judge, text_column, encoding, DELIMITERS.get(format_, ",")):
                    tracker.update(read.tell() // 1_000_000)
    except (OSError, pa.ArrowException, csv.Error, UnicodeError, LookupError) as error:
        raise RunError(f"{file} cannot be read to its end: {' '.join(str(error).split())[:200]}") from error
    return Predicted(rows, without)


def _check(file_columns: Sequence[str], text_column: str) -> None:
    if text_column not in file_columns:
        raise RequestError(
            f"there is no column {text_column!r}; there are {', '.join(file_columns)}; use --text-column"
        )
    if taken := set(NEW) & set(file_columns):
        raise RequestError(f"there is a column {min(taken)!r} already; rename it")


def _parquet(read: Any, sink: Any, judge: Judge, text_column: str, *_: str) -> Iterator[None]:
    file = pq.ParquetFile(read)
    _check(file.schema_arrow.names, text_column)
    writer = None
    for batch in file.iter_batches(batch_size=ROWS):
        labels, sure = judge(batch[text_column].to_pylist())
        table = pa.Table.from_batches([batch])
        table = table.append_column(NEW[0], pa.array(labels, pa.string()))
        table = table.append_column(NEW[1], pa.array(sure, pa.float32()))
        writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd")
        writer.write_table(table)
        yield
    if writer is not None:
        writer.close()


def _csv(read: Any, sink: Any, judge: Judge, text_column: str, encoding: str, delimiter: str) -> Iterator[None]:
    csv.field_size_limit(1 << 28)
    reader = csv.reader(_lines(read, encoding), delimiter=delimiter)
    header = next(reader, [])
    _check(header, text_column)
    at = header.index(text_column)

    def put(lines: Sequence[Sequence[Any]]) -> None:
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(lines)
        sink.write(out.getvalue().encode(encoding, "surrogateescape"))

    put([[*header, *NEW]])
    while some := list(islice((row for row in reader if row), ROWS)):
        labels, sure = judge([row[at] if at < len(row) else None for row in some])
        padded = [row + [""] * (len(header) - len(row)) for row in some]
        put([[*row, *both] for row, *both in zip(padded, labels, sure, strict=True)])
        yield


def _jsonl(read: Any, sink: Any, judge: Judge, text_column: str, encoding: str, _: str) -> Iterator[None]:
    """A line that is no JSON object stays as it is."""
    lines = (line for line in _lines(read, encoding) if line.strip())
    first = True
    while some := list(islice(lines, ROWS)):
        objects = [_object(line) for line in some]
        if first and not any(text_column in o for o in objects if o is not None):
            _check(sorted({name for o in objects if o is not None for name in o}), text_column)
        first = False
        labels, sure = judge([None if o is None else o.get(text_column) for o in objects])
        for line, found, *both in zip(some, objects, labels, sure, strict=True):
            text = line if found is None else json.dumps(found | dict(zip(NEW, both, strict=True)), ensure_ascii=False)
            sink.write((text.rstrip("\r\n") + "\n").encode(encoding, "surrogateescape"))
        yield


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _lines(read: Any, encoding: str) -> Iterator[str]:
    """Without a byte order mark; bytes that are not of the encoding come out as they went in."""
    encoding = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
    text = io.TextIOWrapper(read, encoding, errors="surrogateescape", newline="")
    try:
        yield from text
    finally:
        with suppress(ValueError):  # what it reads may be closed by now
            text.detach()  # else it would close it
