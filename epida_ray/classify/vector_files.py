"""Word vectors from a file: GloVe text, word2vec text or binary, or an `.npy` table with its words beside it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from epida_ray.classify.vectors import WordVectors, file_sha256
from epida_ray.core.errors import RequestError


def read(path: Path) -> WordVectors:
    """Read a file of any format: `.npy` and `.bin` (binary) by their names, else text, with or without a header."""
    if not path.is_file():
        raise RequestError(f"there are no word vectors {str(path)!r}: give auto, glove, hashed, hashed:SIZE or a file")
    stat = path.stat()
    return _read(path.resolve(), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, size: int, changed: int) -> WordVectors:
    try:
        if path.suffix == ".npy":
            words, table = _npy(path)
        else:
            with path.open("rb") as file:
                words, table = _binary(file) if path.suffix == ".bin" else _text(file)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        raise RequestError(f"{path} cannot be read as word vectors: {error}") from error
    if not len(table):
        raise RequestError(f"{path} holds no word vectors")
    index: dict[str, int] = {}
    for row, word in enumerate(words):
        index.setdefault(word, row)
    return WordVectors(
        index,
        table,
        spec={"source": "file", "path": str(path), "dimension": int(table.shape[1]), "sha256": file_sha256(path)},
        description=f"{path.name} ({len(index):,} words, {table.shape[1]}-d)",
        spread=float(np.std(table[:10_000])),
    )


def _npy(path: Path) -> tuple[list[str], np.ndarray]:
    table = np.load(path, mmap_mode="r", allow_pickle=False)
    beside = [path.with_suffix(suffix) for suffix in (".vocab", ".txt")]
    names = next((p for p in beside if p.is_file()), None)
    if names is None:
        raise ValueError(f"its words are missing: list them one per line in {beside[0].name}")
    words = names.read_text(encoding="utf-8").splitlines()
    if table.ndim != 2 or len(words) != len(table) or table.dtype.kind != "f":
        raise ValueError(f"{len(words)} words in {names.name}, but a table of {table.dtype} {table.shape}")
    return words, table


def _text(file: BinaryIO) -> tuple[list[str], np.ndarray]:
    words: list[str] = []
    rows: list[np.ndarray] = []
    for number, (word, values) in enumerate(_lines(file)):
        if number == 0 and len(values) == 1 and word.isdecimal():
            continue  # word2vec's header: count and dimension
        row = np.array(values, np.float32)
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"line {number + 1} has {len(row)} numbers, the first has {len(rows[0])}")
        words.append(word)
        rows.append(row)
    return words, np.stack(rows) if rows else np.empty((0, 1), np.float32)


def _lines(file: BinaryIO) -> Iterator[tuple[str, list[bytes]]]:
    for line in file:
        word, *values = line.rstrip().split(b" ")
        yield word.decode("utf-8", "replace"), values


def _binary(file: BinaryIO) -> tuple[list[str], np.ndarray]:
    count, dimension = (int(n) for n in file.readline(100).split())
    if not (0 < count <= 100_000_000 and 0 < dimension <= 10_000):
        raise ValueError(f"a header of {count} words and {dimension} dimensions")
    words = []
    table = np.empty((count, dimension), np.float32)
    data = file.read()
    at = 0
    for row in range(count):
        end = data.index(b" ", at)
        words.append(data[at:end].lstrip(b"\n").decode("utf-8", "replace"))
        at = end + 1 + 4 * dimension
        if at > len(data):
            raise ValueError(f"it ends in word {row + 1} of {count}")
        table[row] = np.frombuffer(data, "<f4", dimension, end + 1)
    return words, table
