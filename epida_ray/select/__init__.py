"""Scores → the m candidates to keep of every sample. NumPy arrays in and out: no Ray, no I/O, no texts needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from epida_ray.core.errors import RequestError
from epida_ray.core.registry import Builtin, Registry
from epida_ray.select.batch import ScoredBatch, Selection, Selector
from epida_ray.select.seas import DIVERSITY, QUALITY, SEAS, Perplexity, RandomSelector

__all__ = [
    "SEAS", "SELECTORS", "RandomSelector", "ScoredBatch", "Selection", "Selector", "needs_perplexity", "parse",
    "select",
]  # fmt: skip

SELECTORS = Registry(
    "selector",
    {
        "rem": Builtin("epida_ray.select.seas:rem", "diversity: −log p(label); the default is rem+cem"),
        "rem-linear": Builtin("epida_ray.select.seas:rem_linear", "diversity: 1 − p(label)"),
        "ppl": Builtin("epida_ray.select.seas:ppl", "diversity: perplexity in an n-gram model of the training texts"),
        "cem": Builtin("epida_ray.select.seas:cem", "quality: 1 + I(p, o) − H(p), as the paper prints it"),
        "cem-agreement": Builtin("epida_ray.select.seas:cem_agreement", "quality: 1 − I(p, o) − H(p), punishes a flip"),
        "neg-entropy": Builtin("epida_ray.select.seas:neg_entropy", "quality: −H(p)"),
        "cosine": Builtin("epida_ray.select.seas:cosine", "quality: cosine of the prediction and the one-hot label"),
        "random": Builtin("epida_ray.select.seas:RandomSelector", "m candidates by chance, no scores"),
    },
)


def parse(
    spec: str,
    *,
    combine: str = "add",
    alpha: float = 0.5,
    normalize: bool = True,
    pool_original: bool = True,
    perplexity: Perplexity | None = None,
) -> Selector:
    """The selector that `--select` names: `DIV+QUA`, one of them alone, `random`, or one of your own.

    The options are those of SEAS; `random` and selectors of your own do without them.
    """
    options: dict[str, Any] = {
        "combine": combine, "alpha": alpha, "normalize": normalize, "pool_original": pool_original,
        "perplexity": perplexity,
    }  # fmt: skip
    if spec in DIVERSITY or spec in QUALITY:
        selector: Selector = SELECTORS.create(spec, **options)
        return selector
    if "+" in spec:
        div, qua = spec.split("+", 1)
        return SEAS(div, qua, **options)
    return SELECTORS.create(spec)


def needs_perplexity(spec: str) -> bool:
    """Whether a selector reads texts, with a language model."""
    return "ppl" in spec.split("+")


def select(
    probabilities: ArrayLike | Sequence[ArrayLike],
    originals: ArrayLike,
    labels: ArrayLike,
    m: int = 3,
    *,
    by: str = "rem+cem",
    combine: str = "add",
    alpha: float = 0.5,
    normalize: bool = True,
    offsets: ArrayLike | None = None,
    seeds: ArrayLike | None = None,
) -> Selection:
    """Choose the m best candidates of every sample from class probabilities alone.

    `probabilities` is [S, n, C], or a sequence of S arrays [n_s, C], or flat [N, C] with `offsets` [S + 1], where
    sample s owns the rows offsets[s] to offsets[s + 1]. `originals` is [S, C], `labels` are S class numbers. `by` is
    what the command line calls `--select`; `random` needs `seeds`. `Selection.picks()` gives each sample's choice.
    """
    base = np.asarray(originals)
    if base.ndim != 2:
        raise RequestError(f"originals must be an array [samples, classes], not of shape {base.shape}")
    if offsets is not None:
        flat, bounds = np.asarray(probabilities), np.asarray(offsets, np.int64)
    else:
        flat, bounds = _flatten(probabilities, *base.shape)
    batch = ScoredBatch(
        flat, bounds, base, np.asarray(labels), seeds=None if seeds is None else np.asarray(seeds, np.uint64)
    )
    return parse(by, combine=combine, alpha=alpha, normalize=normalize).select(batch, m)


def _flatten(probabilities: Any, samples: int, classes: int) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    shape: tuple[int, ...] = probabilities.shape if isinstance(probabilities, np.ndarray) else ()
    if len(shape) == 3 and shape[::2] == (samples, classes):
        flat = probabilities.reshape(-1, classes)
        return flat, np.arange(samples + 1, dtype=np.int64) * shape[1]
    parts = [np.asarray(part) for part in probabilities]
    parts = [part if part.size else part.reshape(0, classes) for part in parts]
    if len(parts) != samples or any(part.ndim != 2 or part.shape[1] != classes for part in parts):
        shapes = sorted({str(part.shape) for part in parts})
        raise RequestError(
            f"probabilities must hold one array [candidates, {classes}] for each of the {samples} samples, "
            f"not {len(parts)} of shape {' '.join(shapes[:4])}; a flat array needs offsets"
        )
    flat = np.concatenate(parts) if parts else np.empty((0, classes))
    return flat, np.cumsum([0, *map(len, parts)], dtype=np.int64)
