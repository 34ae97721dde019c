"""Choose the m candidates to keep of every sample from class probabilities: NumPy arrays in and out, no Ray, no I/O."""

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
        "rem": Builtin("epida_ray.select.seas:rem", "diversity: −log p(label), the default"),
        "rem-linear": Builtin("epida_ray.select.seas:rem_linear", "diversity: 1 − p(label)"),
        "ppl": Builtin("epida_ray.select.seas:ppl", "diversity: perplexity in an n-gram model of the training texts"),
        "divergence": Builtin("epida_ray.select.seas:divergence", "diversity: KL(teacher ‖ learner); needs a teacher"),
        "cem": Builtin("epida_ray.select.seas:cem", "quality: 1 + I(p, o) − H(p) as in the paper, the default"),
        "cem-agreement": Builtin(
            "epida_ray.select.seas:cem_agreement", "quality: 1 − I(p, o) − H(p), penalises a flip"
        ),
        "neg-entropy": Builtin("epida_ray.select.seas:neg_entropy", "quality: −H(p)"),
        "cosine": Builtin("epida_ray.select.seas:cosine", "quality: cosine of the prediction and the label"),
        "random": Builtin("epida_ray.select.seas:RandomSelector", "m random candidates, no scores"),
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
    """Return the selector that `--select` names: `DIV+QUA`, one of them alone, `random`, or one of your own.

    The options are those of SEAS; `random` and selectors of your own take none of them.
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
    """Return whether the selector reads texts with a language model."""
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
    teacher: ArrayLike | Sequence[ArrayLike] | None = None,
    teacher_originals: ArrayLike | None = None,
) -> Selection:
    """Choose the m best candidates of every sample from class probabilities alone.

    `probabilities` is [S, n, C], or a sequence of S arrays [n_s, C], or flat [N, C] with `offsets` [S + 1], where
    sample s owns the rows offsets[s] to offsets[s + 1]. `originals` is [S, C]. `labels` are S class numbers, or soft
    labels [S, C]. `by` is what the command line calls `--select`; `random` needs `seeds`. With a `teacher`, whose
    arrays have the forms of `probabilities` and `originals`, the teacher judges quality. `Selection.picks()` returns
    the choice of each sample.
    """
    base, target = np.asarray(originals), np.asarray(labels)
    if base.ndim != 2:
        raise RequestError(f"originals must be an array [samples, classes], not of shape {base.shape}")

    def flatten(probabilities: Any) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
        if offsets is not None:
            return np.asarray(probabilities), np.asarray(offsets, np.int64)
        return _flatten(probabilities, *base.shape)

    flat, bounds = flatten(probabilities)
    batch = ScoredBatch(
        flat,
        bounds,
        base,
        None if target.ndim == 2 else target,
        seeds=None if seeds is None else np.asarray(seeds, np.uint64),
        targets=target if target.ndim == 2 else None,
        teacher=None if teacher is None else flatten(teacher)[0],
        teacher_originals=None if teacher_originals is None else np.asarray(teacher_originals),
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
