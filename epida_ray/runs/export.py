"""The rows that a run kept, as one CSV, TSV or JSONL file for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.storage import Storage, open_filesystem
from epida_ray.runs.run import read_manifest, status_of

FORMULA = r"^([=+\-@\t\r\n＝＋－＠])"
"""How a text begins that a spreadsheet would calculate."""
DELIMITERS = {".csv": ",", ".tsv": "\t"}


def export(directory: str, file: str, neutralize_formulas: bool = False) -> int:
    """Write the rows of `directory`/augmented to `file`, by its suffix, and return how many they are.

    With `neutralize_formulas` a text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    suffix = PurePosixPath(urlsplit(file).path if "://" in file else file).suffix.lower()
    if suffix not in (*DELIMITERS, ".jsonl"):
        raise RequestError(f"{file} should end in .csv, .tsv or .jsonl")
    run = Storage(directory)
    status = status_of(read_manifest(run))
    if status != "finished":
        raise RequestError(f"the run in {directory} is {status}, not finished; run its command again first")
    filesystem, path = open_filesystem(file)
    if filesystem.get_file_info(path).type != pafs.FileType.NotFound:
        raise RequestError(f"{file} exists already; choose another name")
    rows = 0
    try:
        with whole_file(filesystem, path) as sink:
            writer = None
            for batch in _batches(run):
                if neutralize_formulas:
                    batch = _neutralized(batch)
                if suffix == ".jsonl":
                    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist())
                    sink.write("".join(lines).encode())
                else:
                    options = pacsv.WriteOptions(delimiter=DELIMITERS[suffix])
                    writer = writer or pacsv.CSVWriter(sink, batch.schema, write_options=options)
                    writer.write_batch(batch)
                rows += len(batch)
            if writer is not None:
                writer.close()
    except (OSError, pa.ArrowException) as error:
        raise RunError(f"no rows in {file}: {getattr(error, 'strerror', None) or error}") from error
    return rows


def _batches(run: Storage) -> Iterator[pa.RecordBatch]:
    folder = pafs.FileSelector(run.path("augmented"), recursive=True, allow_not_found=True)
    infos = run.filesystem.get_file_info(folder)
    for path in sorted(i.path for i in infos if i.type == pafs.FileType.File and i.extension == "parquet"):
        with run.filesystem.open_input_file(path) as file:
            for batch in pq.ParquetFile(file).iter_batches():
                yield batch.replace_schema_metadata(None)


def _neutralized(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pc.replace_substring_regex(column, FORMULA, r"'\1") if pa.types.is_string(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@contextmanager
def whole_file(filesystem: pafs.FileSystem, path: str) -> Iterator[Any]:
    """A stream to a file that is there when the block is done; nothing is left of a block that fails."""
    if "/" in path:
        filesystem.create_dir(path.rpartition("/")[0] or "/", recursive=True)
    part = f"{path}.part" if isinstance(filesystem, pafs.LocalFileSystem) else path
    try:
        with filesystem.open_output_stream(part) as sink:
            yield sink
    except BaseException:
        if filesystem.get_file_info(part).type != pafs.FileType.NotFound:
            filesystem.delete_file(part)
        raise
    if part != path:
        filesystem.move(part, path)
