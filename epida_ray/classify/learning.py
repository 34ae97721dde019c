"""A classifier that learns round after round, whichever way it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from epida_ray.classify import FittedClassifier, TorchClassifier
from epida_ray.classify.examples import TERMS, Examples
from epida_ray.classify.mixup import check_mixup
from epida_ray.classify.targets import cross_entropy
from epida_ray.classify.training import EpochLoss, Trainer, TrainingOptions, make_groups, steps_per_epoch
from epida_ray.core.errors import RequestError
from epida_ray.core.steps import computing


class TorchLearner:
    """Trains with AdamW, step by step; `state` is all that the rest of the training depends on."""

    def __init__(
        self,
        classifier: TorchClassifier,
        rows: int,
        options: TrainingOptions,
        epochs: int,
        *,
        device: str = "cpu",
        wrap: Callable[[Any], Any] | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.classifier = classifier
        options = options.resolved(classifier)
        assert options.batch_size is not None
        steps = epochs * steps_per_epoch(rows, options.batch_size)
        self._trainer = Trainer(
            classifier, options, total_steps=steps, device=device, wrap=wrap, rank=rank, world=world
        )

    def train(self, examples: Examples, epochs: int, after_epoch: Callable[[], None] | None = None) -> EpochLoss:
        """Train for `epochs` epochs, with a call between any two; return the losses of the last one."""
        groups = make_groups(self.classifier, examples)
        result = EpochLoss(0.0, 0.0, 0.0)
        for epoch in range(epochs):
            if epoch and after_epoch is not None:
                after_epoch()
            result = self._trainer.train_epoch(groups)
        self.classifier.load_state(self._trainer.weights())
        return result

    def state(self) -> dict[str, np.ndarray]:
        return self._trainer.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self._trainer.load_state(state)
        self.classifier.load_state(self._trainer.weights())


class FittedLearner:
    """Fits anew each round, with the weights of the examples."""

    def __init__(self, classifier: FittedClassifier, seed: int, mixup: float | None = None) -> None:
        self.classifier, self.seed = classifier, seed
        self._more: dict[str, Any] = {} if mixup is None else {"mixup": mixup}

    def train(self, examples: Examples, epochs: int, after_epoch: Callable[[], None] | None = None) -> EpochLoss:
        return self._learn(self.classifier.fit, examples, epochs)

    def refit(self, examples: Examples) -> None:
        """Fit once more, on more rows; what the classifier does only in its rounds, it does not repeat."""
        self._learn(getattr(self.classifier, "refit", self.classifier.fit), examples, 1)

    def _learn(self, fit: Callable[..., None], examples: Examples, epochs: int) -> EpochLoss:
        order = np.argsort(examples.terms, kind="stable")  # originals first: sums depend on the order of rows
        order = order[examples.weights[order] > 0]
        texts = [examples.texts[i] for i in order.tolist()]
        y, weights = examples.y[order], examples.weights[order]
        if epochs and len(texts):
            with computing():
                fit(texts, y, weights, self.seed, **self._more)
        losses = cross_entropy(self.classifier.predict_proba(texts), y) * weights
        sums = np.bincount(examples.terms[order], losses, minlength=len(TERMS))
        return EpochLoss.of(sums / (len(examples.offsets()) - 1))

    def state(self) -> dict[str, np.ndarray]:
        return self.classifier.state()

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.classifier.load_state(state)


def check_training(classifier: Any, options: TrainingOptions) -> None:
    """Raise RequestError if this classifier cannot be trained in this way."""
    if options.mixup is not None:
        check_mixup(classifier, options.mixup_layer)
    if options.vda is not None:
        from epida_ray.classify.vda import read_masked

        read_masked(classifier, options.vda)
    if options.multi_task and not isinstance(classifier, TorchClassifier):
        name = getattr(classifier, "name", type(classifier).__name__)
        raise RequestError(
            f"--loss multi-task trains two heads on one network, and {name} has none; use cnn, bilstm or transformer"
        )


def make_learner(
    classifier: Any, rows: int, options: TrainingOptions, epochs: int, **distributed: Any
) -> TorchLearner | FittedLearner:
    check_training(classifier, options)
    if isinstance(classifier, TorchClassifier):
        return TorchLearner(classifier, rows, options, epochs, **distributed)
    if isinstance(classifier, FittedClassifier):
        return FittedLearner(classifier, options.seed, options.mixup)
    raise RequestError(f"the classifier {type(classifier).__name__} cannot be trained; it only scores")
