"""`epida train` in this process, without Ray: the same rows, rounds and weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from epida_ray.core.progress import Reporter
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage
from epida_ray.method import prepare
from epida_ray.method.defaults import with_defaults
from epida_ray.method.learn import Unlabelled, learn
from epida_ray.method.pool import class_prior, pool_plan
from epida_ray.method.requests import TrainRequest
from epida_ray.method.results import round_summary
from epida_ray.method.rewriter import Rewriter
from epida_ray.method.stages import RoundOptions
from epida_ray.method.trainer import Progress


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
    request = with_defaults(request, reporter)
    plans, _ = prepare.plan_request(request, ("dev", "unlabelled"), reporter)
    prepare.check_files(plans["input"], request.max_rejected)
    storage = Storage(request.output)
    found = prepare.prepare_training(request, plans, prepare.given_classifier(request), storage, reporter)
    rows, dev = (prepare.labelled(some, found.labels) for some in (found.train, found.dev))
    pool = plans.get("unlabelled")
    class_prior(request.prior, found.labels, rows.y)  # it may be wrong, and that is said first
    if pool is not None:
        prepare.check_pool(request, plans, found, reporter)
        pool = pool_plan(pool, request, len(found.labels))
    teacher = prepare.load_teacher(request, found.labels) if request.teacher is not None else None
    unlabelled = None if pool is None else Unlabelled(pool, ShardReader(pool).read)
    rewriter = None
    if request.augmenting:
        rewriter = Rewriter(rows, RoundOptions.of(request, found.labels, rows.y), found.classifier, teacher)
    progress = learn(
        request, rows, dev, found.labels, found.classifier, rewriter=rewriter, pool=unlabelled, teacher=teacher,
        refit=request.dev is None,
    )  # fmt: skip
    assert progress.best_round is not None
    reporter.say(round_summary(progress.metrics, progress.best_round, len(dev)))
    return Trained(found.classifier, progress, request)
