"""Open Parquet and Arrow files without running the code of extension types.

A file may name an extension type, and Arrow then calls the Python code that registered it. That of Ray Data unpickles
values and, in some versions, the description of the type. So the schema is looked at before Arrow makes those types.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow._parquet import _reconstruct_filemetadata

from epida_ray.core.errors import RunError
from epida_ray.data.retry import one_line

_NAME = b"ARROW:extension:name"
_HIDDEN = b"ARROW:extension-name"
"""A key of the same length, by which Arrow does not know the type."""
_ARROWS_OWN = "arrow."
"""How the names of types begin whose code is a part of Arrow."""
_SCHEMA = b"ARROW:schema"
"""The key of the schema in the footer of a Parquet file."""


def open_parquet(file: Any, used: Sequence[str], copied: Sequence[str] | None = ()) -> pq.ParquetFile:
    """Open a Parquet file, with extension types other than Arrow's own as plain ones.

    The columns `used` are turned into Python values and may have no extension type at all; the columns `copied` (None
    for all) may have Arrow's own ones.
    """
    footer = _footer(file)
    if footer is None:
        return pq.ParquetFile(file)  # which says what is wrong
    _check_footer(footer)
    # The only way of pyarrow to a footer that does not also make the types of its schema.
    metadata = _reconstruct_filemetadata(pa.py_buffer(footer))
    kept = (metadata.metadata or {}).get(_SCHEMA)
    if kept is None:
        return pq.ParquetFile(file, metadata=metadata)
    message = base64.b64decode(kept)
    if footer.count(_SCHEMA) != 1 or base64.b64encode(message) != kept:
        raise ValueError("the schema in its footer is damaged")
    plain = _hide_types(message)
    schema = pa.ipc.read_schema(pa.py_buffer(plain))
    check_types(schema, used, schema.names if copied is None else copied)
    if all(name.startswith(_ARROWS_OWN) for field in schema for name in _extensions(field)):
        return pq.ParquetFile(file, metadata=metadata)
    footer = footer.replace(kept, base64.b64encode(plain))  # of the same length
    return pq.ParquetFile(file, metadata=_reconstruct_filemetadata(pa.py_buffer(footer)))


def open_own(file: Any, name: str) -> pq.ParquetFile:
    """Open a Parquet file of a run's directory, none of whose columns has an extension type but Arrow's own."""
    try:
        return open_parquet(file, (), None)
    except ValueError as error:
        raise RunError(f"{name} is not a file that a run wrote: {one_line(error)}; restore or remove it") from error


def _check_footer(footer: bytes) -> None:
    """Raise what is wrong with a footer; the way around the types below would end the process instead."""
    without_types = footer.replace(_SCHEMA, _SCHEMA[::-1])
    pq.ParquetFile(pa.BufferReader(b"PAR1" + without_types + len(footer).to_bytes(4, "little") + b"PAR1"))


def check_types(schema: pa.Schema, used: Sequence[str], copied: Sequence[str] = ()) -> None:
    """Raise a ValueError for an extension type in one of these columns, at any depth."""
    for field in schema:
        for name in _extensions(field):
            if field.name in used or (field.name in copied and not name.startswith(_ARROWS_OWN)):
                raise ValueError(f"column {field.name!r} has the type {name}; store it as plain strings or numbers")


def _extensions(field: pa.Field) -> Iterator[str]:
    """Yield the name of each extension type of a column, at any depth."""
    kind, metadata = field.type, field.metadata or {}
    name = metadata.get(_HIDDEN, metadata.get(_NAME))
    if name is not None:
        yield name.decode(errors="replace")
    if isinstance(kind, pa.BaseExtensionType):
        yield kind.extension_name
        return
    for i in range(kind.num_fields):
        yield from _extensions(kind.field(i))


def _footer(file: Any) -> bytes | None:
    """Return the footer of a Parquet file; None if there is none."""
    size = file.size()
    tail = bytes(file.read_at(8, size - 8)) if size >= 12 else b""
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or length > size - 12:
        return None
    return bytes(file.read_at(length, size - 8 - length))


def _hide_types(schema: bytes) -> bytes:
    return schema.replace(_NAME, _HIDDEN)


def arrow_batches(file: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of an Arrow file, Feather file or Arrow stream, extension types as plain ones.

    An Arrow file is a stream between two marks, and is read as one.
    """
    start = file.read(8)
    if start[:4] == b"FEA1":
        raise ValueError("it is Feather of version 1; write it anew with version 2, or as Parquet")
    if start[:6] != b"ARROW1":
        file.seek(0)
    message = pa.ipc.read_message(file)
    schema = io.BytesIO()
    pa_file = pa.PythonFile(schema, mode="w")
    message.serialize_to(pa_file)
    pa_file.flush()
    stream = pa.ipc.open_stream(_Joined(_hide_types(schema.getvalue()), file))
    return stream.schema, iter(stream)


class _Joined(io.RawIOBase):
    """Some bytes, followed by the rest of a file."""

    def __init__(self, first: bytes, rest: Any) -> None:
        self._first, self._rest = io.BytesIO(first), rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._first.read(size) or bytes(self._rest.read(size if size >= 0 else None))
