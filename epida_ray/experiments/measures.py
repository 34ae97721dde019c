"""What a trial measures beside its scores on the test set: its rewrites and how fast they are made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from epida_ray.classify.training import TrainingOptions
from epida_ray.method import stages
from epida_ray.method.round import judge
from epida_ray.method.schema import Block, column
from epida_ray.method.trainer import LabelledRows, fit

if TYPE_CHECKING:
    from epida_ray.experiments.rewrites import Rewrites

PERPLEXITY_TEXTS = 10_000
"""Texts whose perplexity is measured, at most."""
SPEED_ROUND = 1_000
"""Number of the round in which speed is measured: one that no trial trains on."""


def round_measures(block: Block) -> dict[str, Any]:
    """Return what is measured of the rewrites of one round.

    s_div, s_qua: means over the kept rewrites.
    flips: share of the kept rewrites that their judge takes for another class.
    mirror: median over the samples of the correlation of s_div and s_qua. At -1 their sum cannot rank candidates.
    extreme: share of the kept rewrites whose s_div is within .05 of 0 or 1: hardly changed, or the most changed.
    rejected: samples of which nothing was kept.
    """
    rank = column(block, "rank")
    sizes = np.diff(rank.offsets.to_numpy())
    chosen = rank.flatten().to_numpy() > 0
    s_div, s_qua = (column(block, name).flatten().to_numpy() for name in ("s_div", "s_qua"))
    return {
        "s_div": float(s_div[chosen].mean()),
        "s_qua": float(s_qua[chosen].mean()),
        "flips": float(column(block, "flips").to_numpy().sum() / chosen.sum()),
        "mirror": mirror(s_div, s_qua, sizes),
        "extreme": float((np.abs(s_div[chosen] - 0.5) > 0.45).mean()),
        "rejected": sum(reason is not None for reason in block["reason"].to_pylist()),
    }


def mirror(s_div: np.ndarray, s_qua: np.ndarray, sizes: np.ndarray) -> float:
    """Return the median correlation within samples of `sizes` candidates, or 0 when neither score varies in any."""
    owner = np.repeat(np.arange(len(sizes)), sizes)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(owner, values, len(sizes)) / np.maximum(sizes, 1)

    div, qua = (axis - mean(axis)[owner] for axis in (s_div, s_qua))
    spread = np.sqrt(mean(div * div) * mean(qua * qua))
    varied = spread > 1e-9
    return float(np.median(mean(div * qua)[varied] / spread[varied])) if varied.any() else 0.0


def perplexity(kept: Sequence[Sequence[str]], texts: Sequence[str], seed: int) -> float:
    """Return the mean perplexity of kept rewrites under an n-gram model of `texts`."""
    from epida_ray.select.perplexity import LanguageModel

    rewrites = [text for group in kept for text in group]
    rows = np.random.default_rng(seed).permutation(len(rewrites))[:PERPLEXITY_TEXTS]
    return float(np.mean(LanguageModel.estimate(texts)([rewrites[i] for i in rows])))


def train_oracle(classifier: Any, rows: LabelledRows) -> dict[str, np.ndarray]:
    """Train a classifier on all labelled rows, as the best available judge of labels; return its weights."""
    fit(classifier, rows.texts, rows.y, training=TrainingOptions(batch_size=64), epochs=4, dev_share=0.1)
    weights: dict[str, np.ndarray] = classifier.state()
    return weights


def error_distance(kept: Sequence[Sequence[str]], rows: LabelledRows, oracle: Any) -> dict[str, float]:
    """Return how many kept rewrites lost their label according to the oracle, and how far the others moved.

    error: share of the kept rewrites that the oracle takes for another class.
    distance: root mean square difference of hidden states between a rewrite that kept its label and its original.
    """
    texts = [text for group in kept for text in group]
    owner = np.repeat(np.arange(len(rows)), [len(group) for group in kept])
    same_label = oracle.predict_proba(texts).argmax(axis=1) == rows.y[owner]
    before, after = oracle.embed(rows.texts), oracle.embed(texts)
    distance = np.linalg.norm(after - before[owner], axis=1) / np.sqrt(after.shape[1])
    return {
        "error": float(1 - same_label.mean()),
        "distance": float(distance[same_label].mean()) if same_label.any() else 0.0,
    }


def kept_per_second(rewrites: Rewrites) -> float:
    """Return the rate of one more round. Random selection needs no judge, so only its generator counts."""
    options, seconds, kept = rewrites.options, 0.0, 0
    for (_, classifier), blocks in zip(rewrites.judged, rewrites.blocks, strict=True):
        for block in blocks:
            began = time.perf_counter()
            generated = stages.generate(block, rewrites.generator, options, SPEED_ROUND)
            made = time.perf_counter()
            selected = judge(generated, classifier, rewrites.selector, options, SPEED_ROUND)
            seconds += (made if options.select == "random" else time.perf_counter()) - began
            kept += int((column(selected, "rank").flatten().to_numpy() > 0).sum())
    return kept / max(1e-9, seconds)


def mean_measures(history: Sequence[Mapping[str, Any]], select: str) -> dict[str, float]:
    """Return means over the rounds; random selection has no scores, and so neither mirror nor extreme."""
    names = ("flips",) if select == "random" else ("flips", "mirror", "extreme")
    return {name: float(np.mean([line[name] for line in history])) for name in names}
