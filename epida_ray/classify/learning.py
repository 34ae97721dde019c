"""A classifier that learns round after round, whichever way it is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from epida_ray.classify import FittedClassifier, TorchClassifier
from epida_ray.classify.training import (
    EpochLoss,
    Loss,
    Trainer,
    TrainingOptions,
    make_groups,
    steps_per_epoch,
)
from epida_ray.core.errors import RequestError

Kept = Sequence[Sequence[str]]
"""For every original, what was kept of its candidates."""


class TorchLearner:
    """Trains with AdamW, step by step; `state` is all that the rest of the training depends on."""

    def __init__(
        self,
        classifier: TorchClassifier,
        texts: Sequence[str],
        y: np.ndarray,
        options: TrainingOptions,
        epochs: int,
        *,
        device: str = "cpu",
        wrap: Callable[[Any], Any] | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.classifier, self.texts, self.y = classifier, texts, y
        options = options.resolved(classifier)
        assert options.batch_size is not None
        steps = epochs * steps_per_epoch(len(texts), options.batch_size)
        self._trainer = Trainer(
            classifier, options, total_steps=steps, device=device, wrap=wrap, rank=rank, world=world
        )

    def train(self, kept: Kept | None, loss: Loss, epochs: int) -> EpochLoss:
        """Go on for so many epochs; the losses are the last one's."""
        groups = make_groups(self.classifier, self.texts, self.y, kept, loss)
        result = EpochLoss(0.0, 0.0, 0.0)
        for _ in range(epochs):
            result = self._trainer.train_epoch(groups)
        self.classifier.load_state(self._trainer.weights())
        return result

    def epochs(self, kept: Kept | None, loss: Loss, epochs: int) -> Iterator[int]:
        """The same with a stop after each epoch, at which the classifier has the new weights: yields 1 each time."""
        groups = make_groups(self.classifier, self.texts, self.y, kept, loss)
        for _ in range(epochs):
            self._trainer.train_epoch(groups)
            self.classifier.load_state(self._trainer.weights())
            yield 1

    def state(self) -> dict[str, np.ndarray]:
        return self._trainer.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self._trainer.load_state(state)
        self.classifier.load_state(self._trainer.weights())


class FittedLearner:
    """Fits anew each round; L_o + L_g becomes the weight of every text."""

    def __init__(self, classifier: FittedClassifier, texts: Sequence[str], y: np.ndarray, seed: int) -> None:
        self.classifier, self.texts, self.y, self.seed = classifier, texts, y, seed

    def train(self, kept: Kept | None, loss: Loss, epochs: int) -> EpochLoss:
        texts, y, weights = list(self.texts), list(self.y), [1.0] * len(self.texts)
        if kept is not None and loss != "original":
            if loss == "augmented" and any(kept):
                weights = [0.0] * len(self.texts)
            for number, some in enumerate(kept):
                texts += some
                y += [self.y[number]] * len(some)
                weights += [1.0 / len(some)] * len(some) if some else []
        if epochs:
            used = np.array(weights) > 0
            chosen = np.flatnonzero(used)
            self.classifier.fit(
                [texts[i] for i in chosen], np.array(y)[chosen], np.array(weights, np.float32)[chosen], self.seed
            )
        p = self.classifier.predict_proba(texts)[np.arange(len(y)), y].astype(np.float64)
        losses = -np.log(np.maximum(p, 1e-10)) * weights / max(1, len(self.texts))
        originals = float(losses[: len(self.texts)].sum())
        augmented = float(losses[len(self.texts) :].sum())
        return EpochLoss(originals + augmented, originals, augmented)

    def epochs(self, kept: Kept | None, loss: Loss, epochs: int) -> Iterator[int]:
        """There is nothing to see before the end, so they count as one: yields their number."""
        if epochs:
            self.train(kept, loss, epochs)
            yield epochs

    def state(self) -> dict[str, np.ndarray]:
        return self.classifier.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.classifier.load_state(state)


def make_learner(
    classifier: Any, texts: Sequence[str], y: np.ndarray, options: TrainingOptions, epochs: int, **distributed: Any
) -> TorchLearner | FittedLearner:
    if isinstance(classifier, TorchClassifier):
        return TorchLearner(classifier, texts, y, options, epochs, **distributed)
    if isinstance(classifier, FittedClassifier):
        return FittedLearner(classifier, texts, y, options.seed)
    raise RequestError(f"the classifier {type(classifier).__name__} cannot be trained; it only scores")
