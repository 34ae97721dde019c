"""Scan CSV and JSONL once: count the records and note where every 64th begins, so that shards can be read alone."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from epida_ray.data.formats import first_record
from epida_ray.data.records import FIELD_START, QUOTED, record_ends
from epida_ray.data.retry import one_line

STEP = 64
"""Records between two noted offsets."""
CHUNK = 1 << 23
_SAMPLE_FIRST, _SAMPLE_LATER, _SAMPLE_MOST = 1000, 20, 5000
_LONG = 1 << 20
"""Longer records are not sampled."""


class Scanned(NamedTuple):
    rows: int
    header: tuple[str, ...]
    offsets: tuple[int, ...]
    """Where every 64th row begins, and the end."""
    sample: list[bytes]
    """The first rows of the file and a few of every later chunk, without the long ones."""


def scan(file: Any, size: int, delimiter: str | None, encoding: str, digest: blake2b) -> Scanned:
    """Scan the whole file after its byte order mark; without a delimiter it is JSONL. All bytes go to `digest`."""
    begin = len(BOM_UTF8) if bytes(file.read_at(min(size, len(BOM_UTF8)), 0)) == BOM_UTF8 else 0
    state, content = FIELD_START, False
    first, rows = (-1, -1) if delimiter else (0, 0)
    offsets: list[int] = [] if delimiter else [begin]
    position = header_end = begin
    sampler = _Sampler(skip=1 if delimiter else 0)
    while position < size:
        read = file.read_at(min(CHUNK, size - position), position)
        if not read:
            raise OSError(f"only {position:,} of {size:,} bytes can be read")
        digest.update(read)
        data = np.frombuffer(read, dtype=np.uint8)
        ends = np.empty(data.size, dtype=np.int64)
        count, state, content = record_ends(data, state, content, ord(delimiter or ","), delimiter is not None, ends)
        sampler.add(read, ends[:count])
        ends = ends[:count] + position
        position += data.size
        if count and first < 0:
            first, header_end = 0, int(ends[0])
            offsets.append(header_end)
            ends, count, rows = ends[1:], count - 1, 0
        if rows >= 0:
            numbers = np.arange(rows + 1, rows + count + 1)
            offsets.extend(ends[numbers % STEP == 0].tolist())
            rows += count
    if state == QUOTED:
        raise ValueError("a quoted field is never closed")
    if content:
        if rows < 0:
            header_end, rows = size, 0
            offsets.append(size)
        else:
            rows += 1
            if rows % STEP == 0:
                offsets.append(size)
        sampler.end()
    header: tuple[str, ...] = ()
    if delimiter:
        line = bytes(file.read_at(header_end - begin, begin)).decode(encoding, "surrogateescape")
        header = tuple(first_record(line, delimiter))
    if not offsets or offsets[-1] != size:
        offsets.append(size)
    return Scanned(max(rows, 0), header, tuple(offsets), sampler.rows)


class _Sampler:
    """Keeps rows as the chunks go by; `skip` is 1 where the first record is a header."""

    def __init__(self, skip: int) -> None:
        self.rows: list[bytes] = []
        self._skip = skip
        self._pending: bytes | None = b""
        """What was read of a record that the next chunk continues; None if it is long."""

    def add(self, chunk: bytes, ends: np.ndarray) -> None:
        chunk = bytes(chunk)
        if len(self.rows) < _SAMPLE_FIRST:
            begin = 0
            for end in ends[: _SAMPLE_FIRST + 1].tolist():
                self._keep(None if self._pending is None else self._pending + chunk[begin:end])
                begin, self._pending = end, b""
            rest = chunk[ends[-1] if len(ends) else 0 :]
            too_long = self._pending is None or len(self._pending) + len(rest) > _LONG
            self._pending = None if too_long else (self._pending or b"") + rest
        elif len(self.rows) < _SAMPLE_MOST:
            self._pending = None
            for i in range(1, len(ends), max(1, len(ends) // _SAMPLE_LATER)):
                self._keep(chunk[ends[i - 1] : ends[i]])

    def end(self) -> None:
        self._keep(self._pending)

    def _keep(self, row: bytes | None) -> None:
        if self._skip:
            self._skip = 0
        elif row is not None and len(row) <= _LONG:
            self.rows.append(row)


def json_object(line: str) -> tuple[dict[str, Any], str | None]:
    """Return the object that a line holds, or an empty one and the reason."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {}, f"the line is not JSON: {one_line(error)}"
    return (row, None) if isinstance(row, dict) else ({}, "the line is not a JSON object")
