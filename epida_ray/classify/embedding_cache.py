"""Embeddings of texts that were seen before: in memory, and on disk for the next process.

The disk part is an SQLite file for each encoder, which many processes may use at once. Any failure of it, such as a
full disk or a damaged file, only means that embeddings are computed again.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np

MEMORY_BYTES = 64 * 2**20
DISK_BYTES = 256 * 2**20
"""For each encoder."""
ENCODERS = 8
"""How many encoders have a file; the file that was written longest ago is deleted."""
SUFFIX = ".sqlite"
_AT_ONCE = 500
_WAIT = 5.0
"""Seconds to wait for another process."""
_TABLE = "CREATE TABLE IF NOT EXISTS kept (number INTEGER PRIMARY KEY, key BLOB UNIQUE, value BLOB)"
_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


def key_of(text: str) -> bytes:
    """Return a hash of the text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class EmbeddingCache:
    """Keeps vectors of `width` float32 by the hash of a text; without a `path`, in memory only."""

    def __init__(self, width: int, path: Path | None = None) -> None:
        self.width, self.path = width, path
        self._memory: dict[bytes, np.ndarray] = {}

    def get(self, keys: Sequence[bytes]) -> dict[bytes, np.ndarray]:
        """Return the vectors of those keys that are known."""
        found = {key: self._memory[key] for key in keys if key in self._memory}
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        if missing and self.path is not None and self.path.is_file():
            read = self._use(lambda connection: self._read(connection, missing)) or {}
            self._remember(read)
            found |= read
        return found

    def put(self, vectors: dict[bytes, np.ndarray]) -> None:
        """Add vectors; the oldest are deleted when there are too many."""
        self._remember(vectors)
        if self.path is not None and vectors:
            new = not self.path.exists()
            self._use(lambda connection: self._write(connection, vectors))
            if new:
                _delete_oldest(self.path.parent)

    def _remember(self, vectors: dict[bytes, np.ndarray]) -> None:
        self._memory |= vectors
        for key in list(self._memory)[: max(0, len(self._memory) - MEMORY_BYTES // (4 * self.width))]:
            del self._memory[key]

    def _read(self, connection: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, np.ndarray]:
        read = {}
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            marks = ",".join("?" * len(some))
            for key, value in connection.execute(f"SELECT key, value FROM kept WHERE key IN ({marks})", some):
                if len(value) == 4 * self.width:
                    read[bytes(key)] = np.frombuffer(value, "<f4").astype(np.float32)
        return read

    def _write(self, connection: sqlite3.Connection, vectors: dict[bytes, np.ndarray]) -> None:
        rows = ((key, np.ascontiguousarray(vector, "<f4").tobytes()) for key, vector in vectors.items())
        connection.execute(_TABLE)
        connection.executemany("INSERT OR IGNORE INTO kept (key, value) VALUES (?, ?)", rows)
        most = DISK_BYTES // (4 * self.width)
        connection.execute("DELETE FROM kept WHERE number <= (SELECT max(number) FROM kept) - ?", (most,))
        connection.commit()

    def _use(self, work: Callable[[sqlite3.Connection], _Answer]) -> _Answer | None:
        """Open the file for one piece of work: forked processes and threads must not share a connection."""
        assert self.path is not None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_WAIT)) as connection:
                return work(connection)
        except (sqlite3.Error, OSError) as error:
            _log.info("embeddings are not cached in %s: %s", self.path, error)
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                self.path.unlink(missing_ok=True)  # damaged: the next use makes a new one
            return None


def _delete_oldest(directory: Path) -> None:
    try:
        files = sorted(directory.glob(f"*{SUFFIX}"), key=lambda path: -path.stat().st_mtime)
        for path in files[ENCODERS:]:
            path.unlink(missing_ok=True)
    except OSError as error:  # another process deleted a file, or may delete what this one may not
        _log.info("old embeddings are not deleted in %s: %s", directory, error)
