"""ONNX Runtime against torch for a trained sentence encoder (MiniLM-L6), in float32 and int8.

Both sides have the same weights, the same texts and one thread; they take turns, and the figure is the median of CPU
time. Three settings of real data where EPIDA_DATA is set (60 rows to learn from, 500 to test), else the bundled corpus.
The classifier's macro-F1 is computed on each side: float32 must give the same probabilities to 1e-5, and int8 is judged
by what it does to macro-F1. The last line is the ratio of texts per second of int8 over torch. Needs
`epida-ray[minilm,onnx]`.
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
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from epida_ray.classify import onnx
from epida_ray.classify.encoder import Encoder
from epida_ray.core.metrics import macro_f1

SETTINGS = ("trec", "irony", "agnews")
COLUMNS = ("text", "label_name")
LEARN, TEST, REPEATS = 60, 500, 3


def settings() -> dict[str, tuple[list[str], list[str], list[str], list[str]]]:
    """Return texts and labels to learn from, then to test on, by name."""
    if folder := os.environ.get("EPIDA_DATA"):
        import pyarrow.parquet as pq

        found = {}
        for name in [n for n in SETTINGS if (Path(folder) / n).is_dir()]:
            both = [pq.read_table(Path(folder) / name / f"{part}.parquet") for part in ("train", "test")]
            order = np.random.default_rng(0).permutation(len(both[0]))[:LEARN]
            learn, test = both[0].take(order), both[1].slice(0, TEST)
            found[name] = tuple(
                [str(v) for v in t[c].to_pylist()] for t in (learn, test) for c in ("text", "label_name")
            )
        return found  # type: ignore[return-value]
    rows = []
    for part in ("train", "test"):
        with files("epida_ray").joinpath(f"experiments/support_desk/{part}.csv").open(encoding="utf-8") as file:
            rows.append(list(csv.DictReader(file)))
    learn, test = rows[0][:LEARN], rows[1]
    return {"support_desk": tuple([r[c] for r in part] for part in (learn, test) for c in ("text", "label"))}  # type: ignore[dict-item]


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    ratios: dict[str, list[float]] = {"float32": [], "int8": []}
    for name, (learn, y, test, truth) in settings().items():
        labels = sorted(set(y))
        number = {label: i for i, label in enumerate(labels)}
        keep = [i for i, label in enumerate(truth) if label in number]
        texts, expected = [test[i] for i in keep], np.array([number[truth[i]] for i in keep])
        model = Encoder(None, labels, cache=False)
        model.fit(learn, np.array([number[label] for label in y]), np.ones(len(learn)), 0)
        sides = {"float32": onnx.scorer(model, 1), "int8": onnx.scorer(model, 1, int8=True)}
        seconds: dict[str, list[float]] = {"torch": [], "float32": [], "int8": []}
        found: dict[str, np.ndarray] = {}
        for _ in range(REPEATS):
            for side in seconds:
                model.encoder.changed()  # forget what was embedded
                start = time.process_time()
                found[side] = (model if side == "torch" else sides[side]).predict_proba(texts)
                seconds[side].append(time.process_time() - start)
        apart = float(np.abs(found["torch"] - found["float32"]).max())
        if not apart <= 1e-5:
            print(f"{name}: the probabilities differ by {apart}", file=sys.stderr)
            return 1
        taken = {side: statistics.median(values) for side, values in seconds.items()}
        f1 = {side: macro_f1(len(labels), expected, p.argmax(axis=1)) for side, p in found.items()}
        for side in ratios:
            ratios[side].append(taken["torch"] / taken[side])
        print(
            f"{name}, {len(texts)} texts: "
            + ", ".join(f"{side} {len(texts) / taken[side]:.0f} texts/s macro-F1 {f1[side]:.4f}" for side in taken)
            + f"; float32 differs by {apart:.0e}",
            flush=True,
        )
    print(f"float32 over torch {statistics.mean(ratios['float32']):.2f}")
    print(f"ratio {statistics.mean(ratios['int8']):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
