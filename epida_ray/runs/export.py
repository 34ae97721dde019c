"""The rows that a run kept, as one file for other programs."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from epida_ray.core.errors import RequestError, RunError
from epida_ray.data.arrow import open_own
from epida_ray.data.formats import DELIMITERS
from epida_ray.data.retry import one_line
from epida_ray.data.storage import Storage
from epida_ray.data.writer import format_to_write, open_writer
from epida_ray.runs import layout
from epida_ray.runs.commit import Committed, committed, read_committed
from epida_ray.runs.manifest import read_manifest

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")
FORMULA = r"^([=+\-@\t\r\n＝＋－＠])"
"""How a text begins that a spreadsheet would calculate."""


def export(
    directory: str, file: str, neutralize_formulas: bool = False, encoding: str = "utf-8", overwrite: bool = False
) -> int:
    """Write the rows of `directory`/augmented to `file`, by its suffix, and return how many they are.

    With `neutralize_formulas` a text that a spreadsheet would take for a formula gets an apostrophe in front.
    `encoding` is that of CSV and TSV.
    """
    if encoding not in ENCODINGS:  # others lack characters that texts may have
        raise RequestError(f"--encoding is {', '.join(ENCODINGS)}, not {encoding}; utf-8-sig is the one for Excel")
    if format_to_write(file, overwrite).kind not in DELIMITERS and encoding != "utf-8":
        raise RequestError(f"--encoding is for .csv and .tsv files, not for {file}")
    run, files = kept_files(directory)
    rows = 0
    with open_writer(file, encoding, overwrite=overwrite) as writer:
        for name, one in files.items():
            for table in _tables(run, name, one):
                writer.table(_neutralized(table) if neutralize_formulas else table)
                rows += len(table)
    return rows


def read(directory: str) -> pa.Table:
    """Return the rows that the finished run in a directory kept or labelled."""
    return pa.concat_tables(kept_tables(directory))


def kept_tables(directory: str) -> Iterator[pa.Table]:
    """Yield the same rows in parts."""
    run, files = kept_files(directory)
    for name, file in files.items():
        yield from _tables(run, name, file)


def kept_files(directory: str) -> tuple[Storage, dict[str, Committed | None]]:
    """Return the files with the rows that a finished run kept, or that `epida label` labelled, and what they were."""
    run = Storage(directory)
    manifest = read_manifest(run)
    status = manifest.observed_status()
    if status != "finished":
        raise RequestError(f"the run in {directory} is {status}, not finished; run its command again first")
    folder = layout.LABELLED if manifest.kind == "label" else layout.AUGMENTED
    if manifest.kind == "train" and not run.exists(layout.COMMITTED):  # an earlier version did not write one
        found = sorted(name for name in run.sizes(folder, below=True) if name.endswith(".parquet"))
        files: dict[str, Committed | None] = {f"{folder}/{name}": None for name in found}
    else:
        on_list = committed(run)
        if on_list is None:
            raise RequestError(
                f"files of the run in {directory} are missing or damaged; run its command again to restore them"
            )
        files = {name: file for name, file in sorted(on_list.items()) if name.startswith(f"{folder}/")}
    if not files:
        raise RequestError(f"the run in {directory} kept no rows")
    return run, files


def _tables(run: Storage, name: str, file: Committed | None) -> Iterator[pa.Table]:
    """Yield the rows of a shard, group by group; of a shard without rows, an empty table with its columns."""
    path = run.path(name)
    try:
        opened = open_own(pa.BufferReader(read_committed(run, name, file)), path)
        schema = opened.schema_arrow.remove_metadata()
        if opened.metadata.num_rows == 0:
            yield schema.empty_table()
        for group in range(opened.num_row_groups):
            yield opened.read_row_group(group).replace_schema_metadata(None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {one_line(error)}") from error


def _neutralized(table: pa.Table) -> pa.Table:
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(i, field, pc.replace_substring_regex(table.column(i), FORMULA, r"'\1"))
    return table
