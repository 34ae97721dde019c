"""Texts that are most useful to label by hand: those the model is unsure of, and no two alike."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from epida_ray.data.storage import Storage
from epida_ray.data.writer import csv_text
from epida_ray.runs import layout

UNSURE = 20
"""How many of the most uncertain texts are compared for each text to choose."""


def write_review(storage: Storage, classifier: Any, count: int, seed: int) -> int:
    """Write review.csv from the files of labelled/ and return the number of texts in it."""
    unsure = _most_uncertain(storage, UNSURE * count)
    if unsure:
        vectors = _vectors(classifier, [text for _, _, text, _, _ in unsure])
        entropy = np.array([e for e, *_ in unsure])
        unsure = [unsure[i] for i in spread(vectors, entropy, count, seed)]
    names = ["sample_id", "text", "label", "confidence", "entropy"]
    rows = ([i, text, label, f"{confidence:.4f}", f"{entropy_:.4f}"] for entropy_, i, text, label, confidence in unsure)
    data = csv_text([names, *rows], end="\r\n").encode("utf-8-sig")  # by its mark Excel knows that it is UTF-8
    storage.write(layout.REVIEW, data)
    return len(unsure)


def _most_uncertain(storage: Storage, count: int) -> list[tuple[float, str, str, str, float]]:
    """Return (entropy, id, text, label, confidence) of the texts with the largest entropy, file by file."""
    found: list[tuple[float, str, str, str, float]] = []
    for name in sorted(storage.names(layout.LABELLED)):
        table = storage.from_own(f"{layout.LABELLED}/{name}", lambda file: file.read())
        if not len(table):
            continue
        p = np.array(table["soft_label"].to_pylist(), np.float64)
        entropy = -(p * np.log(np.maximum(p, 1e-12))).sum(axis=1)
        columns = (table[n].to_pylist() for n in ("sample_id", "text", "label", "confidence"))
        found = heapq.nlargest(count, [*found, *zip(entropy.tolist(), *columns, strict=True)])
    return found


def spread(vectors: np.ndarray, worth: np.ndarray, count: int, seed: int) -> list[int]:
    """Choose `count` rows with much worth and far from one another: k-means++ with worth times squared distance."""
    random = np.random.default_rng([seed, 13])
    chosen: list[int] = []
    distance = np.ones(len(vectors))
    for _ in range(min(count, len(vectors))):
        mass = np.maximum(worth, 1e-9) * distance
        mass[chosen] = 0
        if mass.sum() <= 0:
            mass = np.ones(len(vectors))
            mass[chosen] = 0
        pick = int(random.choice(len(vectors), p=mass / mass.sum()))
        chosen.append(pick)
        distance = np.minimum(distance, ((vectors - vectors[pick]) ** 2).sum(axis=1))
    return chosen


def _vectors(classifier: Any, texts: list[str]) -> np.ndarray:
    """Return the classifier's hidden states of the texts, or hashed words where it has none; rows of length one."""
    if hasattr(classifier, "embed"):
        vectors = np.asarray(classifier.embed(texts), np.float64)
    else:
        import zlib

        vectors = np.zeros((len(texts), 256))
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, zlib.crc32(word.encode()) % 256] += 1
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
