"""The report's map: hidden states of originals and rewrites on a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from epida_ray.classify.saving import has_model
from epida_ray.core.errors import EpidaError
from epida_ray.data.storage import Storage
from epida_ray.experiments.report_rows import codes, sample_ranges, spread
from epida_ray.runs import layout

ORIGINALS = 100
"""Originals in the map; their rewrites are added."""
ALONE = 400
"""Originals in the map of a run without rewrites."""
FEWEST_TEXTS = 8
SHOWN = 160
"""Characters of a text that the page shows."""


def draw_map(
    storage: Storage, table: pa.Table, axes: Sequence[str], m: int, trust_code: Sequence[str]
) -> dict[str, Any]:
    """Return points for originals and kept rewrites, and for the m that each score in `axes` alone would keep.

    Where no map can be drawn, return the reason as `missing`.
    """
    if not has_model(storage, layout.MODEL):
        return {"missing": "The run has no model, and so no hidden states to show."}
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        return {"missing": "The map of hidden states needs scikit-learn: pip install 'epida-ray[report]'."}
    from epida_ray.classify import load

    try:
        classifier = load(storage.local_copy(layout.MODEL), trust=trust_code)
    except EpidaError as error:
        return {"missing": f"The run's model cannot be loaded here: {error}"}
    if not hasattr(classifier, "embed"):
        return {"missing": "The run's classifier has no hidden states to show."}
    points = _Points(table, axes, m)
    if len(points.texts) < FEWEST_TEXTS:
        return {"missing": "There are too few rows for a map of hidden states."}
    hidden = np.asarray(classifier.embed(points.texts))
    if hidden.ndim != 2 or hidden.shape[1] < 2 or not np.isfinite(hidden).all() or not np.ptp(hidden, axis=0).any():
        return {"missing": "The classifier's hidden states are all equal; there is nothing to draw."}
    near = min(30.0, (len(points.texts) - 1) / 3)
    plane = TSNE(2, perplexity=near, init="pca", max_iter=600, random_state=0).fit_transform(hidden)
    return {
        "labels": points.labels,
        "x": plane[:, 0].round(2).tolist(),
        "y": plane[:, 1].round(2).tolist(),
        "class": points.classes,
        "text": [text[:SHOWN] for text in points.texts],
        "originals": points.originals,
        "panels": [[name, numbers] for name, numbers in points.panels.items()],
    }


class _Points:
    """The texts of the map, each once, and the numbers of those that each panel shows."""

    def __init__(self, table: pa.Table, axes: Sequence[str], m: int) -> None:
        self.texts: list[str] = []
        self.classes: list[int] = []
        self.originals: list[int] = []
        alone = [f"{axis.upper()} only" for axis in axes]
        self.panels: dict[str, list[int]] = {"kept": [], **{name: [] for name in alone}}
        rewritten = bool(table["kept"].to_numpy().any())
        self.labels, label_numbers = codes(table["label"])
        texts, sources = ([str(t) for t in table[c].to_pylist()] for c in ("text", "source_text"))
        kept, *scores = (table[c].to_numpy() for c in ("kept", "s_div", "s_qua"))
        ranges = list(sample_ranges(table))
        for sample in spread(len(ranges), ORIGINALS if rewritten else ALONE):
            start, end = ranges[sample]
            self.originals.append(self._add(sources[start], label_numbers[start]))
            picks = {"kept": np.flatnonzero(kept[start:end])}
            picks |= {name: _top(score[start:end], m) for name, score in zip(alone, scores, strict=False)}
            number: dict[int, int] = {}
            for panel, rows in picks.items():
                for row in rows.tolist():
                    if row not in number:
                        number[row] = self._add(texts[start + row], label_numbers[start])
                    self.panels[panel].append(number[row])

    def _add(self, text: str, label: int) -> int:
        self.texts.append(text)
        self.classes.append(label)
        return len(self.texts) - 1


def _top(scores: np.ndarray, m: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:m]
