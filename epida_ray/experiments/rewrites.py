"""The rewrites that a trial trains on, made by the stages and on the blocks of `epida train`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from epida_ray.classify.examples import make_examples
from epida_ray.classify.learning import make_learner
from epida_ray.core.errors import RunError
from epida_ray.core.labels import dev_split
from epida_ray.experiments.measures import round_measures
from epida_ray.method.folds import first_of_text
from epida_ray.method.rewriter import Rewriter
from epida_ray.method.round import kept_texts
from epida_ray.method.round_plan import round_blocks
from epida_ray.method.schema import Block
from epida_ray.method.stages import RoundOptions
from epida_ray.method.trainer import LabelledRows, LearnOptions


class Judged(NamedTuple):
    """Rows by their position, and the classifier that judges their rewrites."""

    rows: np.ndarray
    judge: Any


class Rewrites(Rewriter):
    """Makes the rewrites of round after round, and keeps what was measured of each."""

    def __init__(
        self, rows: LabelledRows, options: RoundOptions, classifier: Any, judges: Sequence[Judged] = (),
        teacher: Any = None,
    ) -> None:  # fmt: skip
        """`classifier` is the one in training. It judges all rows unless there are other `judges`."""
        super().__init__(rows, options, classifier, teacher)
        self.judged = list(judges) or [Judged(np.arange(len(rows)), classifier)]
        texts = 1 + options.k * options.m
        self.blocks = [list(round_blocks(rows.take(part.rows), texts, len(options.labels))) for part in self.judged]
        self.kept: list[list[str]] = []
        self.history: list[dict[str, Any]] = []

    def rewrite_all(self, round_: int) -> Block:
        selected: list[Block] = []
        for (_, judge), blocks in zip(self.judged, self.blocks, strict=True):
            selected += [self.rewrite(block, round_, judge) for block in blocks]
        everything = pa.concat_tables(selected)
        if len(self.judged) > 1:
            everything = everything.take(np.argsort(np.concatenate([part.rows for part in self.judged])))
        self.kept = kept_texts(everything)
        if not any(self.kept):
            reason = next(reason for reason in everything["reason"].to_pylist() if reason)
            raise RunError(f"{self.options.generator} made no rewrite of any text that could be kept: {reason}")
        self.history.append({"round": round_} | round_measures(everything))
        return everything


def cross_fitted_judges(classifiers: Sequence[Any], rows: LabelledRows, options: LearnOptions) -> list[Judged]:
    """Pre-train two classifiers, each on one half of the rows, and let each judge the half that it has not seen.

    Return no judges when there are too few rows for two halves.
    """
    first = dev_split(rows.y, 0.5, options.training.seed, first_of_text(rows.texts))
    halves = [np.flatnonzero(first), np.flatnonzero(~first)]
    if not all(map(len, halves)):
        return []
    for classifier, half in zip(classifiers, halves, strict=True):
        seen = rows.take(half)
        learner = make_learner(classifier, len(seen), options.training, options.schedule.epochs)
        learner.train(make_examples(seen.texts, seen.y, len(classifier.labels)), options.schedule.pretrain)
    return [Judged(unseen, judge) for unseen, judge in zip(reversed(halves), classifiers, strict=True)]
