"""Rounds of learning: train, measure on dev, remember the best round. No Ray and no files here."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from epida_ray.classify.examples import Examples, Kept, Loss, PoolTexts, make_examples
from epida_ray.classify.learning import FittedLearner, make_learner
from epida_ray.classify.targets import distributions
from epida_ray.classify.training import DevScore, TrainingOptions, dev_score
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.labels import dev_split, label_numbers
from epida_ray.method.folds import first_of_text
from epida_ray.method.schedule import Schedule, make_schedule

DEV_SHARE = 0.2
ROUNDS = 8
LARGE = 2_000_000
"""Parameters from which a network trains faster on all cores than on one."""


class LabelledRows(NamedTuple):
    ids: list[str]
    texts: list[str]
    y: np.ndarray
    """Class numbers, or soft labels [N, C]."""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: np.ndarray) -> LabelledRows:
        chosen = rows.tolist()
        return LabelledRows([self.ids[i] for i in chosen], [self.texts[i] for i in chosen], self.y[rows])

    def plus(self, others: LabelledRows) -> LabelledRows:
        y = others.y if self.y.ndim == 1 else distributions(others.y, self.y.shape[1])
        return LabelledRows(self.ids + others.ids, self.texts + others.texts, np.concatenate([self.y, y]))

    def split(self, share: float, seed: int) -> tuple[LabelledRows, LabelledRows]:
        """Return (rows to learn from, dev rows); rows of one text are all among the first or all among the second."""
        taken = dev_split(self.y, share, seed, first_of_text(self.texts))
        return self.take(np.flatnonzero(~taken)), self.take(np.flatnonzero(taken))


@dataclass(frozen=True)
class LearnOptions:
    """How a classifier learns in rounds."""

    schedule: Schedule
    training: TrainingOptions = field(default_factory=TrainingOptions)
    loss: Loss = "sum"
    online: bool = True
    """Fresh candidates in every round; otherwise those of round 1 serve all rounds."""
    balance: bool = False
    """Give every class the same weight in L_o and L_g."""
    patience: int | None = None
    calibrate: bool = False
    refit: bool = False
    """Fit a classifier that is fitted in one go once more, on the dev rows too, after the round is chosen."""

    def source(self, round_: int) -> int | None:
        """Return the round whose rewrites a round learns from; None when it learns from the originals alone."""
        if round_ == 0 or self.loss == "original":
            return None
        return round_ if self.online else 1


def training_threads(classifier: Any) -> int:
    """Return how many CPU threads to train with: large networks gain from all cores, small ones lose."""
    size = sum(array.size for array in classifier.state().values())
    return min(os.cpu_count() or 1, 8) if size > LARGE else 1


@dataclass
class Progress:
    """What is known after a round: plain data, which a checkpoint keeps."""

    round: int = -1
    best: DevScore | None = None
    best_round: int | None = None
    top: float = 0.0
    """The largest dev macro-F1 of any round."""
    worse: int = 0
    """Rounds without a better dev score."""
    stopped: bool = False
    metrics: list[dict[str, Any]] = field(default_factory=list)
    epochs: int = 0
    """Epochs that are done of the next round."""


class RoundTrainer:
    """Trains one classifier round after round and remembers the weights of the round that is best on dev."""

    def __init__(
        self, classifier: Any, train: LabelledRows, dev: LabelledRows, options: LearnOptions, **distributed: Any
    ) -> None:
        if not len(train) or not len(dev):
            raise RequestError(
                "training needs labelled texts both to learn from and for the dev split; add rows with other texts"
            )
        self.classifier, self.train_rows, self.dev, self.options = classifier, train, dev, options
        self.learner = make_learner(classifier, len(train), options.training, options.schedule.epochs, **distributed)
        self.progress = Progress()
        self.best: dict[str, np.ndarray] = {}
        self.after_epoch: Callable[[], None] = lambda: None
        """Is called between two epochs of a round, when `state` and `progress` are whole."""

    def rounds_left(self) -> Iterator[int]:
        """Yield the rounds to train, from the one after the newest, until the last or until patience is over."""
        while self.progress.round < len(self.options.schedule.rounds) and not self.progress.stopped:
            yield self.progress.round + 1

    def train_round(self, round_: int, kept: Kept | None = None, pool: PoolTexts | None = None) -> dict[str, Any]:
        """Train one round and return its line of metrics."""
        options, progress, rows = self.options, self.progress, self.train_rows
        began = time.perf_counter()
        left = options.schedule.of(round_) - progress.epochs
        loss = self.learner.train(self._examples(rows, round_, kept, pool), left, self._epoch_done)
        progress.epochs = 0
        trained = time.perf_counter()
        calibration = self._calibrate()
        score = dev_score(self.classifier, self.dev.texts, self.dev.y)
        improved = score.macro_f1 > progress.top
        progress.top = max(progress.top, score.macro_f1)
        if better := self._is_better(score, pool is not None):
            progress.best, progress.best_round = score, round_
            self.best = self._refitted(round_, kept, pool) if self._refits() else self.classifier.state()
        # with unlabelled texts a round may be kept although it is no better
        progress.worse = 0 if (improved if pool is not None else better) else progress.worse + 1
        progress.stopped = options.patience is not None and progress.worse >= options.patience
        progress.round = round_
        line = {
            "round": round_,
            "weights_version": round_ + 1,
            "loss": loss.total,
            "loss_original": loss.original,
            "loss_augmented": loss.augmented,
            "loss_unlabelled": loss.unlabelled,
            "dev_macro_f1": score.macro_f1,
            "dev_accuracy": score.accuracy,
            "dev_loss": score.loss,
            "best_round": progress.best_round,
            **calibration,
            "seconds": {"train": trained - began, "dev": time.perf_counter() - trained},
        }
        progress.metrics.append(line)
        return line

    def _epoch_done(self) -> None:
        self.progress.epochs += 1
        self.after_epoch()

    def _examples(self, rows: LabelledRows, round_: int, kept: Kept | None, pool: PoolTexts | None) -> Examples:
        return make_examples(
            rows.texts, rows.y, len(self.classifier.labels), kept, self.options.loss if round_ else "original",
            pool=pool, balance=self.options.balance,
        )  # fmt: skip

    def _refits(self) -> bool:
        return self.options.refit and isinstance(self.learner, FittedLearner)

    def _refitted(self, round_: int, kept: Kept | None, pool: PoolTexts | None) -> dict[str, np.ndarray]:
        """Return the weights after a fit on the dev rows too; the classifier itself stays as it is, and so does dev."""
        before = self.classifier.state()
        if kept is not None:
            kept = kept.followed_by_originals(len(self.dev))
        assert isinstance(self.learner, FittedLearner)
        self.learner.refit(self._examples(self.train_rows.plus(self.dev), round_, kept, pool))
        after: dict[str, np.ndarray] = self.classifier.state()
        self.classifier.load_state(before)
        return after

    def _is_better(self, score: DevScore, with_pool: bool) -> bool:
        """Return whether this round's weights are the ones to keep so far.

        A round that learned from unlabelled texts is kept unless it is worse on dev by more than two standard errors
        of its score: few dev rows cannot show the gain, which is known from other data, but they can show harm.
        """
        if not with_pool:
            return score.better_than(self.progress.best)
        f1 = score.macro_f1
        return f1 >= self.progress.top - 2 * math.sqrt(f1 * (1 - f1) / len(self.dev))

    def _calibrate(self) -> dict[str, float]:
        if not self.options.calibrate:
            return {}
        from epida_ray.classify.calibration import calibrate

        return calibrate(self.classifier, self.dev.texts, self.dev.y)._asdict()

    def run(self, kept_of: Callable[[int], Kept], pool_of: Callable[[int], PoolTexts] | None = None) -> None:
        """Train all rounds in this process.

        `kept_of` and `pool_of` return the rewrites and the unlabelled texts of a round, judged by the newest weights.
        """
        held: tuple[int, Kept] | None = None
        for round_ in self.rounds_left():
            source = self.options.source(round_)
            if source is not None and (held is None or held[0] != source):
                held = source, kept_of(source)
            pool = pool_of(round_) if pool_of is not None and round_ else None
            self.train_round(round_, held[1] if source is not None and held else None, pool)
        self.restore_best()

    def restore_best(self) -> None:
        if not self.best:
            raise RunError("no round was trained, so there is no best one")
        self.classifier.load_state(self.best)

    def state(self) -> dict[str, np.ndarray]:
        """Return all arrays that the rest of the training depends on; the rest of it is `progress`."""
        arrays = {f"trainer/{k}": v for k, v in self.learner.state().items()}
        return arrays | {f"best/{k}": v for k, v in self.best.items()}

    def load_state(self, trainer: Mapping[str, np.ndarray], best: Mapping[str, np.ndarray], progress: Progress) -> None:
        self.learner.load_state(trainer)
        self.best, self.progress = dict(best), progress


def fit(
    classifier: Any,
    texts: Sequence[str],
    labels: Sequence[str] | Sequence[int] | np.ndarray,
    dev: tuple[Sequence[str], Sequence[str] | Sequence[int] | np.ndarray] | None = None,
    *,
    training: TrainingOptions | None = None,
    epochs: int | None = None,
    patience: int | None = None,
    dev_share: float = DEV_SHARE,
    rounds: int = ROUNDS,
) -> Progress:
    """Train on the originals alone and keep the round that is best on dev: what `epida train --generator none` does.

    Without `dev`, a stratified share of the rows becomes it. With `epochs`, every epoch is a round.
    """
    training = training or TrainingOptions()
    rows = LabelledRows([str(i) for i in range(len(texts))], list(texts), label_numbers(classifier.labels, labels))
    if dev is None:
        rows, held_out = rows.split(dev_share, training.seed)
    else:
        held_out = LabelledRows(["" for _ in dev[0]], list(dev[0]), label_numbers(classifier.labels, dev[1]))
    defaults = getattr(classifier, "defaults", None)
    if defaults is None:
        schedule = Schedule(1, ())  # it is fitted in one go
    elif epochs is not None:
        schedule = Schedule(1, (1,) * (epochs - 1))
    else:
        schedule = make_schedule(len(rows), rounds, defaults, batch_size=training.batch_size)
    options = LearnOptions(schedule, training, loss="original", patience=patience)
    trainer = RoundTrainer(classifier, rows, held_out, options)
    trainer.run(lambda round_: Kept([]))
    return trainer.progress
