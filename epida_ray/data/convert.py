"""Convert files that cannot be cut into shards to ones that can: Parquet, or CSV or JSONL in UTF-8.

A converted file lies in a folder of the system's temporary directory, named by the digest of the original. Every node
of a cluster converts for itself, on demand and with the same result, so a plan names the steps and not the place.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.arrow import arrow_batches
from epida_ray.data.formats import COMPRESSIONS
from epida_ray.data.retry import one_line, with_retries
from epida_ray.data.storage import refusal

_VERSION = 2
"""Raise this when a conversion gives another result than before."""
_CHUNK = 1 << 20
NATIVE = {"json": "jsonl", "xlsx": "csv", "arrow": "parquet"}
"""What each whole-file format is converted to."""


def convert(
    filesystem: pafs.FileSystem, path: str, digest: str, steps: Sequence[str], encoding: str, name: str
) -> Path:
    """Return the local file that the steps make of `path`; `digest` is that of its bytes when it was planned.

    A step is a compression to undo, a format to convert or `transcode`, from `encoding` to UTF-8. Damaged content is a
    ValueError.
    """
    cache = _cache()
    made = [cache / _key(digest, steps[: i + 1], encoding) for i in range(len(steps))]
    if made[-1].exists():
        return made[-1]
    with _local(filesystem, path, cache) as source:
        if digest_of(pafs.LocalFileSystem(), str(source), name) != digest:
            raise RunError(f"{name} is not the file that was planned; did it change? Restore it, or start a new run")
        for step, target in zip(steps, made, strict=True):
            if not target.exists():
                _make(step, source, target, encoding)
            source = target
            if step == "transcode":
                encoding = "utf-8"
    return made[-1]


def digest_of(filesystem: pafs.FileSystem, path: str, name: str) -> str:
    """Return the digest of all bytes of a file."""

    def read() -> str:
        digest = blake2b(digest_size=16)
        with filesystem.open_input_stream(path, compression=None) as stream:
            while data := stream.read(_CHUNK):
                digest.update(data)
        return digest.hexdigest()

    return with_retries(read, f"cannot read {name}")


def _cache() -> Path:
    """Return our folder for converted files; nobody else may write to it."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"epida-converted-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise RequestError(f"others can write to {folder}; remove it, or set TMPDIR to another directory")
    return folder


def _key(digest: str, steps: Sequence[str], encoding: str) -> str:
    names = [f"{step}-{encoding}" if step in ("transcode", "json") else step for step in steps]
    return "-".join((digest, str(_VERSION), *names)).replace("/", "_")


@contextlib.contextmanager
def _local(filesystem: pafs.FileSystem, path: str, cache: Path) -> Iterator[Path]:
    if isinstance(filesystem, pafs.LocalFileSystem):
        yield Path(path)
        return
    copy = cache / f".{uuid.uuid4().hex}.part"

    def download() -> None:
        with filesystem.open_input_stream(path, compression=None) as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file, _CHUNK)

    try:
        with_retries(download, f"cannot read {path}")
        yield copy
    finally:
        copy.unlink(missing_ok=True)


def _make(step: str, source: Path, target: Path, encoding: str) -> None:
    part = target.parent / f".{uuid.uuid4().hex}.part"
    try:
        if step in COMPRESSIONS.values():
            _decompress(source, part, step)
        else:
            _STEPS[step](source, part, encoding)
        os.replace(part, target)
    except OSError as error:
        if reason := refusal(error):
            raise RunError(f"no room to convert {source.name} in {target.parent}: {reason}; set TMPDIR") from error
        if error.errno is not None:  # the disk, not the content
            raise
        raise ValueError(one_line(error)) from error
    finally:
        part.unlink(missing_ok=True)


def _decompress(source: Path, target: Path, compression: str) -> None:
    with (
        pa.OSFile(str(source)) as raw,
        pa.CompressedInputStream(raw, compression) as stream,
        target.open("wb") as file,
    ):
        shutil.copyfileobj(stream, file, _CHUNK)


def _damaged(error: UnicodeError) -> tuple[str, int]:
    """Put a lone surrogate for what does not decode, so that its row, and no other, is rejected."""
    return "\udcff", getattr(error, "end", 0)


codecs.register_error("epida-damaged", _damaged)


def _transcode(source: Path, target: Path, encoding: str) -> None:
    with (
        source.open(encoding=encoding, errors="epida-damaged", newline="") as text,
        target.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file,
    ):
        shutil.copyfileobj(text, file, _CHUNK)


def json_array(source: Path, encoding: str) -> list[Any]:
    """Return the elements of a JSON file that holds one array."""
    data = source.read_bytes()
    try:
        text = (
            data.decode(encoding) if encoding not in ("utf-8", "utf-8-sig") else data.decode(json.detect_encoding(data))
        )
        found = json.loads(text.removeprefix("\ufeff"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, list):
        raise ValueError("it is not an array of objects")
    return found


def _json(source: Path, target: Path, encoding: str) -> None:
    with target.open("w", encoding="utf-8") as file:
        for row in json_array(source, encoding):
            file.write(json.dumps(row) + "\n")


@contextlib.contextmanager
def workbook(source: Any) -> Iterator[Any]:
    """Open an Excel file, given by its path or as an open file; damaged content is a ValueError."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError as error:
        raise RequestError("Excel files need an extra: pip install 'epida-ray[excel]'") from error
    try:
        book = CalamineWorkbook.from_object(source)
        if not book.sheet_names:
            raise ValueError("the workbook has no sheet")
        yield book
    except CalamineError as error:
        raise ValueError(one_line(error)) from error


def sheet_rows(source: Any) -> list[list[Any]]:
    """Return the rows of a workbook's first sheet, without those that have no value."""
    with workbook(source) as book:
        rows = book.get_sheet_by_index(0).to_python()
    return [row for row in rows if any(value not in ("", None) for value in row)]


def _xlsx(source: Path, target: Path, encoding: str) -> None:
    with target.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        for row in sheet_rows(source):
            line = io.StringIO(newline="")
            csv.writer(line, quoting=csv.QUOTE_ALL).writerow([cell_text(value) for value in row])
            file.write(line.getvalue())


def cell_text(value: Any) -> str:
    """Return a cell as Excel shows it in a CSV: whole numbers without a fraction, dates as ISO 8601."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
"""Strings are kept as bytes, so that one that is not UTF-8 costs its row and not the file."""
WAS_STRING = {b"epida": b"string"}
"""Metadata of such a column."""


def _arrow(source: Path, target: Path, encoding: str) -> None:
    with source.open("rb") as file:
        schema, batches = arrow_batches(file)
        schema = pa.schema(
            [f.with_type(_BYTES[f.type]).with_metadata(WAS_STRING) if f.type in _BYTES else f for f in schema]
        )
        with pq.ParquetWriter(str(target), schema, compression="zstd", compression_level=1) as writer:
            for batch in batches:
                columns = [c.view(_BYTES[c.type]) if c.type in _BYTES else c for c in batch.columns]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
                batch.validate(full=True)
                writer.write_batch(batch)


_STEPS: dict[str, Callable[[Path, Path, str], None]] = {
    "transcode": _transcode,
    "json": _json,
    "xlsx": _xlsx,
    "arrow": _arrow,
}
