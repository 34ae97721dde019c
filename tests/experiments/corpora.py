"""Small data sets for tests of experiments."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from epida_ray.experiments.datasets import Dataset
from epida_ray.method.trainer import LabelledRows

LABELS = ("food", "sport")
WORDS = {"food": "bread soup apple cake rice bean salt cheese", "sport": "goal team ball race match coach run score"}


def toy_rows(count: int, file: str, seed: int = 0) -> LabelledRows:
    """Return rows of two classes in turn, each with four words of its class among others."""
    rng = np.random.default_rng([seed, count])
    y = np.arange(count) % 2
    texts = []
    for label in y:
        words = [*rng.choice(WORDS[LABELS[label]].split(), 4), *rng.choice(["the", "a", "big", "old"], 3)]
        texts.append(" ".join(rng.permutation(words)))
    return LabelledRows([f"{file}:{i}" for i in range(count)], texts, y.astype(np.int64))


def toy_dataset(train: int = 160, test: int = 80) -> Dataset:
    return Dataset("toy", LABELS, toy_rows(train, "train.csv"), toy_rows(test, "test.csv", 1))


def write_rows(path: Path, rows: LabelledRows) -> str:
    """Write rows as CSV with the columns id, text and label; return the path."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "label"])
        writer.writerows((i, text, LABELS[y]) for i, text, y in zip(rows.ids, rows.texts, rows.y.tolist(), strict=True))
    return str(path)
