"""`epida train` in this process, without Ray: the same rows, rounds and weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from epida_ray.classify.examples import Kept, PoolTexts
from epida_ray.classify.threads import torch_threads
from epida_ray.core.errors import TooManyRejected
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Plan
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage
from epida_ray.method import prepare, stages
from epida_ray.method.output import Origin, general_reason, kept_rows, pool_rows, rejected_of
from epida_ray.method.pool import class_prior, pool_plan, pool_shards, pool_texts
from epida_ray.method.requests import TrainRequest
from epida_ray.method.results import round_summary
from epida_ray.method.rewriter import Rewriter
from epida_ray.method.round import kept_of_rows
from epida_ray.method.round_plan import learn_options, round_blocks
from epida_ray.method.schema import Block
from epida_ray.method.stages import RoundOptions
from epida_ray.method.trainer import LabelledRows, Progress, RoundTrainer


class Trained(NamedTuple):
    classifier: Any
    """With the weights of the best round."""
    progress: Progress
    request: TrainRequest
    """With the defaults that depend on the data."""


def train(request: TrainRequest, reporter: Reporter | None = None) -> Trained:
    """Train as `epida train --workers 0` does; nothing is written to the output directory but rejected rows."""
    reporter = reporter or Reporter(quiet=True)
    if request.augmenting:
        RoundOptions.of(request, ()).make_generator()  # it may be impossible, and that is said first
    request = prepare.with_defaults(request, reporter)
    plans, _ = prepare.plan_request(request, ("dev", "unlabelled"), reporter)
    prepare.check_files(plans["input"], request.max_rejected)
    storage = Storage(request.output)
    found = prepare.prepare_training(request, plans, prepare.given_classifier(request), storage, reporter)
    rows, dev = (prepare.labelled(some, found.labels) for some in (found.train, found.dev))
    pool = plans.get("unlabelled")
    prior = class_prior(request.prior, found.labels, rows.y)
    if pool is not None:
        prepare.check_pool(request, plans, found.labels, reporter)
        pool = pool_plan(pool, request, len(found.labels))
    teacher = prepare.load_teacher(request, found.labels) if request.teacher is not None else None
    learn_from = rows
    if teacher is not None and request.soft_labels:
        learn_from = LabelledRows(rows.ids, rows.texts, teacher.predict_proba(rows.texts))
    pool_count = 0 if pool is None else min(pool.rows, request.pool_rows)
    options = learn_options(request, len(rows), found.classifier, pool_rows=pool_count, refit=request.dev is None)
    trainer = RoundTrainer(found.classifier, learn_from, dev, options)
    judge = _Judge(request, found.labels, found.classifier, teacher, rows)

    def pool_of(round_: int) -> PoolTexts:
        assert pool is not None
        return pool_texts(judge.pool(pool, round_), prior, request.pool_weight)

    trainer.run(judge.keep, None if pool is None else pool_of)
    progress = trainer.progress
    assert progress.best_round is not None
    reporter.say(round_summary(progress.metrics, progress.best_round, len(dev)))
    return Trained(found.classifier, progress, request)


class _Judge:
    """Makes and judges the rewrites of round after round with the classifier in training, and with a teacher."""

    def __init__(
        self,
        request: TrainRequest,
        labels: Sequence[str],
        classifier: Any,
        teacher: Any,
        rows: LabelledRows,
    ) -> None:
        self.request, self.classifier, self.teacher, self.rows = request, classifier, teacher, rows
        self.options = RoundOptions.of(request, labels)
        self.rewriter = Rewriter(rows, self.options, classifier, teacher) if request.augmenting else None

    def keep(self, round_: int) -> Kept:
        """Return what is kept of every row in a round."""
        assert self.rewriter is not None
        origin = Origin(self.options.labels, "string", self.options.generator, round_, round_, "")
        with torch_threads(1):  # as in a scorer: another number can change the last bits of a score
            blocks = round_blocks(self.rows, 1 + self.options.k * self.options.m, len(self.options.labels))
            done = [self.rewriter.rewrite(block, round_) for block in blocks]
        self._check(done, round_)
        return kept_of_rows(pa.concat_tables(kept_rows(block, origin) for block in done), self.rows.ids)

    def pool(self, plan: Plan, round_: int) -> pa.Table:
        """Return the unlabelled texts of a round with their probabilities, and with rewrites if they are wanted."""
        reader, scored = ShardReader(plan), []
        judge = self.classifier if self.teacher is None else self.teacher
        shards = pool_shards(plan, round_, self.request.pool_rows, self.request.seed)
        with torch_threads(1):
            for shard in sorted(shards, key=plan.shard_name):
                block = stages.read_unlabelled(reader.read(shard))
                alone = stages.score(stages.without_candidates(block), judge)
                p = stages.original_probabilities(alone, "probabilities", len(self.options.labels))
                if self.request.pool_rewrites and self.rewriter is not None:
                    block = self.rewriter.rewrite(block, round_)
                scored.append(pool_rows(block, p))
        return pa.concat_tables(scored)

    def _check(self, blocks: Sequence[Block], round_: int) -> None:
        rejected = [row for block in blocks for row in rejected_of(block)]
        if len(rejected) > self.request.max_rejected * len(self.rows):
            raise TooManyRejected(
                f"round {round_}: {len(rejected):,} of {len(self.rows):,} samples were rejected, more than "
                f"--max-rejected {self.request.max_rejected:g} allows; the first: {general_reason(rejected[0].reason)}"
            )
