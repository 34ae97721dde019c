"""Training in rounds in this process: what `epida train` does with rows, without files and without Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from epida_ray.classify.examples import Kept, PoolTexts
from epida_ray.classify.threads import torch_threads
from epida_ray.data.plan import Columns, InputFile, Plan, Shard, rows_per_shard
from epida_ray.method import stages
from epida_ray.method.output import general_reason, pool_rows, rejected_of
from epida_ray.method.pool import class_prior, hashes, pool_plan, pool_shards, pool_texts, without
from epida_ray.method.requests import TrainRequest
from epida_ray.method.rewriter import Rewriter
from epida_ray.method.round import kept_labels, kept_texts
from epida_ray.method.round_plan import check_rejected, learn_options
from epida_ray.method.schema import Block
from epida_ray.method.trainer import LabelledRows, Progress, RoundTrainer


class Unlabelled(NamedTuple):
    """Unlabelled texts, cut into shards."""

    plan: Plan
    read: Callable[[Shard], pa.Table]
    """Returns the rows of a shard with their sample_id, text and reason."""

    @classmethod
    def of_texts(cls, texts: Sequence[str], request: TrainRequest, classes: int) -> Unlabelled:
        """Return texts in memory, with the ids and shards that they have as the file pool.parquet."""
        size = sum(len(text) for text in texts)
        file = InputFile(path="pool.parquet", format="parquet", bytes=size, digest="", rows=len(texts))
        plan = Plan(root="", files=(file,), columns=Columns(label=None), shard_rows=rows_per_shard(len(texts)))

        def read(shard: Shard) -> pa.Table:
            part = list(texts[shard.start : shard.stop])
            ids = [f"{file.path}:{i}" for i in range(shard.start, shard.stop)]
            return pa.table({"sample_id": ids, "text": part, "reason": pa.nulls(len(part), pa.string())})

        return cls(pool_plan(plan, request, classes), read)

    def blocks(self, round_: int, request: TrainRequest) -> Iterator[Block]:
        """Yield the texts of a round, shard by shard in the order of their files."""
        shards = pool_shards(self.plan, round_, request.pool_rows, request.seed)
        for shard in sorted(shards, key=self.plan.shard_name):
            yield stages.read_unlabelled(self.read(shard))


def learn(
    request: TrainRequest,
    rows: LabelledRows,
    dev: LabelledRows,
    labels: Sequence[str],
    classifier: Any,
    *,
    rewriter: Rewriter | None = None,
    pool: Unlabelled | None = None,
    teacher: Any = None,
    steps: int | None = None,
    refit: bool = True,
) -> Progress:
    """Train the classifier on the rows and restore the weights of the best round.

    `rewriter` makes the rewrites, if the request has any. `refit`: the dev rows are a part of the labelled ones, not a
    file of their own.
    """
    pool_count = 0 if pool is None else min(pool.plan.rows, request.pool_rows)
    options = learn_options(request, len(rows), classifier, steps=steps, pool_rows=pool_count, refit=refit)
    learn_from = rows
    if teacher is not None and request.soft_labels:
        learn_from = LabelledRows(rows.ids, rows.texts, teacher.predict_proba(rows.texts))
    trainer = RoundTrainer(classifier, learn_from, dev, options)
    prior = class_prior(request.prior, labels, rows.y)
    known = hashes(rows.texts, dev.texts) if pool is not None else frozenset()

    def check(blocks: Sequence[Block], round_: int, pool: bool) -> None:
        rejected = [row for block in blocks for row in rejected_of(block)]
        reason = f"the first: {general_reason(rejected[0].reason)}" if rejected else ""
        check_rejected(round_, len(rejected), sum(map(len, blocks)), request.max_rejected, reason, pool)

    def kept_of(round_: int) -> Kept:
        assert rewriter is not None
        with torch_threads(1):  # as in a scorer: another number can change the last bits of a score
            block = rewriter.rewrite_all(round_)
        check([block], round_, False)
        return Kept(kept_texts(block), kept_labels(block))

    def pool_of(round_: int) -> PoolTexts:
        assert pool is not None
        again = rewriter if request.pool_rewrites else None
        with torch_threads(1):
            scored = [_scored(block, teacher or classifier, again, round_) for block in pool.blocks(round_, request)]
        check([block for block, _ in scored], round_, True)
        table = without(pa.concat_tables([pool_rows(*one) for one in scored]), known)
        return pool_texts(table, prior, request.pool_weight)

    trainer.run(kept_of, None if pool is None else pool_of)
    return trainer.progress


def _scored(block: Block, judge: Any, rewriter: Rewriter | None, round_: int) -> tuple[Block, np.ndarray]:
    """Return unlabelled texts, rewritten if there is a rewriter, and the judge's probabilities of them."""
    alone = stages.score_rows(stages.without_candidates(block), judge)
    p = stages.original_probabilities(alone, "probabilities", len(judge.labels))
    return (alone if rewriter is None else rewriter.rewrite(block, round_)), p
