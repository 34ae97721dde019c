"""What the rounds of a training run share, wherever they run: how they learn and the blocks that they work through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from epida_ray.classify import TorchClassifier
from epida_ray.classify.learning import check_training
from epida_ray.classify.training import TrainingOptions
from epida_ray.core.errors import RequestError, TooManyRejected
from epida_ray.data.plan import rows_in_memory, rows_per_shard
from epida_ray.method.pool import ROWS_PER_STEP
from epida_ray.method.requests import TrainRequest
from epida_ray.method.schedule import make_schedule
from epida_ray.method.schema import Block
from epida_ray.method.stages import block_of
from epida_ray.method.trainer import LabelledRows, LearnOptions, training_threads

ROUND_SHARD = 256
"""Fewest rows of a shard: smaller shards would shorten the wait for the last one of a round, but cost as much as they
save."""


def round_shard_rows(texts: Sequence[str], made: int, classes: int) -> int:
    """Return the number of rows in a shard of a round over these texts, of each of which `made` texts are made."""
    size = sum(len(text.encode(errors="replace")) for text in texts) // max(1, len(texts))
    return rows_in_memory(max(ROUND_SHARD, rows_per_shard(len(texts))), made, classes, size)


def round_blocks(rows: LabelledRows, made: int, classes: int) -> Iterator[Block]:
    """Cut rows into the blocks that a training run cuts them into: a score's last bits depend on its block."""
    size = round_shard_rows(rows.texts, made, classes)
    for start in range(0, len(rows), size):
        part = rows.take(np.arange(start, min(start + size, len(rows))))
        yield block_of(part.ids, part.texts, part.y)


def check_rejected(round_: int, rejected: int, rows: int, allowed: float, reason: str, pool: bool) -> None:
    """Fail the run when more rows of a round are rejected than --max-rejected allows: of TRAIN, or of the pool."""
    if rejected > allowed * rows:
        what = "unlabelled texts" if pool else "samples"
        raise TooManyRejected(
            f"round {round_}: {rejected:,} of {rows:,} {what} were rejected, more than --max-rejected {allowed:g} "
            f"allows; {reason}"
        )


def learn_options(
    request: TrainRequest,
    rows: int,
    classifier: Any,
    *,
    threads: int | None = None,
    steps: int | None = None,
    pool_rows: int = 0,
    refit: bool = False,
) -> LearnOptions:
    """Return how a request's classifier learns from `rows` rows, with `pool_rows` unlabelled texts in a round.

    Unlabelled texts are dealt to the labelled rows, so a step takes fewer of these when there are many of those.
    """
    defaults = getattr(classifier, "defaults", None)
    batch_size = request.batch_size
    if pool_rows and batch_size is None and defaults is not None:
        batch_size = max(1, min(defaults.batch_size, ROWS_PER_STEP * rows // pool_rows))
    schedule = make_schedule(
        rows, request.rounds, defaults, batch_size=batch_size, steps=steps,
        pretrain_epochs=request.pretrain_epochs, epochs_per_round=request.epochs_per_round,
    )  # fmt: skip
    training = TrainingOptions(
        batch_size=batch_size, learning_rate=request.learning_rate, seed=request.seed,
        mixup=request.mixup, mixup_layer=request.mixup_layer,
        multi_task=request.augmenting and request.loss == "multi-task",
        vda=request.vda,
        threads=threads or request.threads or training_threads(classifier),
    )  # fmt: skip
    check_training(classifier, training)
    if request.learning_rate is not None and not isinstance(classifier, TorchClassifier):
        tuned = getattr(classifier, "tune", "none") != "none"
        advice = f"give --classifier-arg learning_rate={request.learning_rate:g}" if tuned else "leave it out"
        name = getattr(classifier, "name", type(classifier).__name__)
        raise RequestError(f"--learning-rate has no effect on {name}, which is fitted in one go; {advice}")
    return LearnOptions(
        schedule, training, loss=request.loss if request.augmenting else "original", online=request.online,
        balance=request.balance, patience=request.patience, calibrate=request.calibrate, refit=refit,
    )  # fmt: skip
