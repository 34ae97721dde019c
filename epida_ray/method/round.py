"""One round of EPiDA: rows in, the kept rewrites out. The actors of Ray run the same stages, each in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from epida_ray.classify.examples import Kept
from epida_ray.method.schema import Block
from epida_ray.method.stages import RoundOptions, generate, score_rows, select
from epida_ray.select import Selector

if TYPE_CHECKING:
    from epida_ray.classify import Classifier


def one_round(
    block: Block, generator: Any, classifier: Classifier, selector: Selector, options: RoundOptions, round_: int,
    teacher: Classifier | None = None,
) -> Block:  # fmt: skip
    """Rewrite, judge and select the rows of a block. The result depends on the arguments alone."""
    return judge(generate(block, generator, options, round_), classifier, selector, options, round_, teacher)


def judge(
    block: Block, classifier: Classifier, selector: Selector, options: RoundOptions, round_: int,
    teacher: Classifier | None = None,
) -> Block:  # fmt: skip
    """Score candidates and select the ones to keep. A teacher judges quality, and labels the kept rewrites."""
    if teacher is not None:
        block = score_rows(block, teacher, "teacher")
    return select(score_rows(block, classifier), selector, options, round_)


def kept_texts(block: Block) -> list[list[str]]:
    """Return the kept rewrites of every sample, best first."""
    texts = block["candidates"].to_pylist()
    return [[row[i] for i in order] for row, order in zip(texts, _kept_order(block), strict=True)]


def kept_labels(block: Block) -> list[np.ndarray] | None:
    """Return a teacher's soft labels of the kept rewrites of every sample, best first; None without a teacher."""
    if "soft_labels" not in block.column_names:
        return None
    soft = block["soft_labels"].to_pylist()
    return [np.array([row[i] for i in order], np.float32) for row, order in zip(soft, _kept_order(block), strict=True)]


def _kept_order(block: Block) -> list[list[int]]:
    return [[i for _, i in sorted((r, i) for i, r in enumerate(rank) if r)] for rank in block["rank"].to_pylist()]


def kept_of_rows(rows: Block, ids: Sequence[str]) -> Kept:
    """Return what was kept of the originals with these ids, best first, from rows of augmented/."""
    numbers = {sample_id: i for i, sample_id in enumerate(ids)}
    texts: list[list[str]] = [[] for _ in ids]
    owners = [numbers[sample_id] for sample_id in rows["sample_id"].to_pylist()]
    for owner, text in zip(owners, rows["text"].to_pylist(), strict=True):
        texts[owner].append(text)
    if "soft_label" not in rows.column_names:
        return Kept(texts)
    soft: list[list[Any]] = [[] for _ in ids]
    for owner, label in zip(owners, rows["soft_label"].to_pylist(), strict=True):
        soft[owner].append(label)
    return Kept(texts, [np.array(labels, np.float32) for labels in soft])
