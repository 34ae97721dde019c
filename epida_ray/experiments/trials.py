"""One trial of an experiment: a data set, a method and a seed in; scores on the test set out.

A trial is `epida train` in one process, without files and without Ray. With the same rows, seed and options both end in
the same weights. Trials with the same data set, size and seed are paired: whatever the method, they have the same
subset, dev split and initial weights, and learn by the same schedule.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from epida_ray.classify import create
from epida_ray.classify.examples import Loss
from epida_ray.classify.mixup import Layer
from epida_ray.core.errors import RequestError
from epida_ray.core.metrics import scores
from epida_ray.experiments import measures
from epida_ray.experiments.datasets import Dataset, subset
from epida_ray.experiments.rewrites import Judged, Rewrites, cross_fitted_judges
from epida_ray.method.learn import Unlabelled, learn
from epida_ray.method.noise import parse_noise
from epida_ray.method.requests import NO_GENERATOR, TrainRequest
from epida_ray.method.round_plan import learn_options
from epida_ray.method.stages import RoundOptions
from epida_ray.method.trainer import DEV_SHARE, ROUNDS, LabelledRows, Progress

Judge = Literal["self", "others"]
"""`self`: the classifier in training. `others`: for each half of the rows, one that was trained on the other half."""
Protocol = Literal["dev", "paper"]
"""`dev`: choose the round on dev rows and use the test set once. `paper`: choose the round on the test set."""


@dataclass(frozen=True)
class Method:
    """What is done with the training rows."""

    name: str
    generator: str = "eda"
    generator_args: dict[str, Any] = field(default_factory=dict)
    select: str = "rem+cem"
    combine: str = "add"
    alpha: float = 0.5
    normalize: bool = True
    pool_original: bool = True
    m: int = 3
    k: int = 3
    online: bool = True
    pretrain: bool = True
    loss: Loss = "sum"
    curriculum: bool = False
    judge: Judge = "self"
    classifier: str | None = None
    """Another classifier than the experiment's, with `classifier_args`."""
    classifier_args: dict[str, Any] = field(default_factory=dict)
    balance: bool = False
    mixup: float | None = None
    mixup_layer: Layer = "hidden"
    unlabelled: int = 0
    """How many other texts of the training split to learn from, too, without their labels."""
    pool_rewrites: bool = False
    """Rewrite the unlabelled texts too."""
    teacher: Method | None = None
    """Train with this method first; the result labels the unlabelled texts and the rewrites, and judges quality."""
    noise: str = ""
    """Also test on noisy texts; `epida evaluate --noise` has the names."""


NONE = Method("none", generator=NO_GENERATOR)
"""Train on the originals only."""


@dataclass(frozen=True)
class Trial:
    dataset: str
    size: str
    seed: int
    method: Method
    classifier: str = "cnn"
    classifier_args: dict[str, Any] = field(default_factory=dict)
    rounds: int = ROUNDS
    steps: int | None = None
    """Training stops at the epoch that reaches this many steps. None: the classifier's default."""
    learning_rate: float | None = None
    protocol: Protocol = "dev"
    dev_share: float = DEV_SHARE
    use_dev_split: bool = False
    """Choose the round on the data set's own dev split, cut to `size` as the training rows are."""
    clean: bool = False
    measure: tuple[str, ...] = ()
    """What else to measure of the kept rewrites: `ppl`, `error-distance`, `speed`."""

    def request(self, input: str = "", output: str = "", **more: Any) -> TrainRequest:
        """Return the request of `epida train` that trains as this trial does.

        The command line has no counterpart of `pool_original`, `judge` and `steps`. A trial measures a generator that
        rejects many rows, too.
        """
        method = self.method
        return TrainRequest(
            input=input, output=output, generator=method.generator, generator_args=method.generator_args,
            classifier=method.classifier or self.classifier,
            classifier_args=method.classifier_args if method.classifier else self.classifier_args,
            balance=method.balance, mixup=method.mixup, mixup_layer=method.mixup_layer, m=method.m, k=method.k,
            select=method.select, combine=method.combine, alpha=method.alpha, normalize=method.normalize,
            online=method.online, curriculum=method.curriculum, loss=method.loss,
            # a method's own classifier is in no key of a result, and so its threads must not depend on the machine
            threads=1 if method.classifier else None,
            pretrain_epochs=None if method.pretrain else 0, rounds=self.rounds, learning_rate=self.learning_rate,
            dev_share=self.dev_share, seed=self.seed, **{"max_rejected": 1.0} | more,
        )  # type: ignore[arg-type]  # fmt: skip


class TrainedTrial(NamedTuple):
    """What training a trial leaves."""

    classifier: Any
    """With the weights of the best round."""
    progress: Progress
    train: LabelledRows
    dev: LabelledRows
    rewrites: Rewrites | None
    """None when the trial trains on the originals only."""


def make_classifier(trial: Trial, labels: tuple[str, ...]) -> Any:
    """Return the trial's classifier before training."""
    request = trial.request()
    return create(request.classifier, labels, seed=trial.seed, **request.classifier_options())


def split_trial(trial: Trial, data: Dataset) -> tuple[LabelledRows, LabelledRows]:
    """Return (rows to learn from, rows to choose the round on), both in the order of their files."""
    part = data.train.take(np.sort(subset(data.train.y, trial.size, trial.seed)))
    if trial.protocol == "paper":
        return part, data.test
    if trial.use_dev_split:
        if data.dev is None:
            raise RequestError(f"this experiment needs a data set with a dev split, and {trial.dataset} has none")
        size = trial.size if not trial.size.isdecimal() else str(min(int(trial.size), len(data.dev)))
        return part, data.dev.take(np.sort(subset(data.dev.y, size, trial.seed)))
    train, dev = part.split(trial.dev_share, trial.seed)
    if not len(dev):
        raise RequestError(
            f"{trial.dataset} {trial.size} has at most one row per class, so that none is left for the dev split; "
            "use more rows"
        )
    return train, dev


def unlabelled_texts(trial: Trial, data: Dataset) -> list[str]:
    """Return other texts of the training split, without their labels, in the order of the file."""
    if not trial.method.unlabelled:
        return []
    others = np.setdiff1d(np.arange(len(data.train)), subset(data.train.y, trial.size, trial.seed))
    taken = np.random.default_rng([trial.seed, 12]).permutation(others)[: trial.method.unlabelled]
    return [data.train.texts[i] for i in np.sort(taken).tolist()]


def train_trial(trial: Trial, data: Dataset) -> TrainedTrial:
    """Train a trial's classifier on its rows and restore the weights of the best round."""
    method = trial.method
    train, dev = split_trial(trial, data)
    teacher = None
    if method.teacher is not None:
        teacher = train_trial(replace(trial, method=method.teacher), data).classifier
    texts = unlabelled_texts(trial, data)
    request = trial.request(unlabelled="pool.parquet" if texts else None, pool_rewrites=method.pool_rewrites)
    return train_request(
        request, train, dev, data.labels, texts=texts, teacher=teacher, steps=trial.steps,
        pool_original=method.pool_original,
        judges=_other_judges(trial, data, train) if method.judge == "others" else (),
        refit=trial.protocol == "dev" and not trial.use_dev_split,
    )  # fmt: skip


def train_request(
    request: TrainRequest,
    train: LabelledRows,
    dev: LabelledRows,
    labels: tuple[str, ...],
    *,
    texts: Sequence[str] = (),
    teacher: Any = None,
    steps: int | None = None,
    pool_original: bool = True,
    judges: Sequence[Judged] = (),
    refit: bool = True,
) -> TrainedTrial:
    """Do what `epida train` does with a request, on rows and unlabelled `texts` in memory."""
    classifier = create(request.classifier, labels, seed=request.seed, **request.classifier_options())
    rewrites = None
    if request.augmenting:
        options = replace(RoundOptions.of(request, labels, train.y), pool_original=pool_original)
        rewrites = Rewrites(train, options, classifier, judges, teacher)
    pool = Unlabelled.of_texts(texts, request, len(labels)) if texts else None
    progress = learn(
        request, train, dev, labels, classifier, rewriter=rewrites, pool=pool, teacher=teacher, steps=steps, refit=refit
    )
    return TrainedTrial(classifier, progress, train, dev, rewrites)


def _other_judges(trial: Trial, data: Dataset, rows: LabelledRows) -> list[Judged]:
    pair = [make_classifier(trial, data.labels) for _ in range(2)]
    options = learn_options(trial.request(), max(1, len(rows) // 2), pair[0], steps=trial.steps)
    judges = cross_fitted_judges(pair, rows, options)
    if not judges:
        raise RequestError(f"{trial.dataset} {trial.size} has too few rows to train a judge on each half of them")
    return judges


def run_trial(trial: Trial, data: Dataset, oracle: dict[str, np.ndarray] | None = None) -> dict[str, Any]:
    """Train as the trial says, score the test set once and return the figures.

    `oracle` holds the weights, from `oracle_weights`, of the judge of labels that `error-distance` needs.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a scorer: another number can change the last bits of a score
    try:
        return _run_trial(trial, data.cleaned() if trial.clean else data, oracle)
    finally:
        torch.set_num_threads(threads)


def _run_trial(trial: Trial, data: Dataset, oracle: dict[str, np.ndarray] | None) -> dict[str, Any]:
    started = time.perf_counter()
    classifier, progress, train, dev, rewrites = train_trial(trial, data)
    result = scores(data.labels, data.test.y, classifier.predict_proba(data.test.texts).argmax(axis=1))
    assert progress.best is not None
    out: dict[str, Any] = {
        "accuracy": result["accuracy"],
        "macro_f1": result["macro_f1"],
        "dev_macro_f1": progress.best.macro_f1,
        "best_round": progress.best_round,
        "rows": len(train),
        "dev_rows": len(dev) if trial.protocol == "dev" else 0,
        "rounds": rewrites.history if rewrites else [],
    }
    if trial.method.noise:
        noisy = parse_noise(trial.method.noise)(data.test.ids, data.test.texts)
        found = scores(data.labels, data.test.y, classifier.predict_proba(noisy).argmax(axis=1))
        out["noisy_macro_f1"] = found["macro_f1"]
    if rewrites is not None:
        out |= {"kept": sum(map(len, rewrites.kept))} | measures.mean_measures(rewrites.history, trial.method.select)
    if rewrites is not None and "ppl" in trial.measure:  # under a model of all training rows, as in the paper
        out["ppl"] = measures.perplexity(rewrites.kept, data.train.texts, trial.seed)
    if rewrites is not None and "error-distance" in trial.measure:
        judge = make_classifier(trial, data.labels)
        judge.load_state(oracle if oracle is not None else oracle_weights(trial, data))
        out |= measures.error_distance(rewrites.kept, train, judge)
    if rewrites is not None and "speed" in trial.measure:
        out["kept_per_second"] = measures.kept_per_second(rewrites)
    return out | {"seconds": time.perf_counter() - started}


def oracle_weights(trial: Trial, data: Dataset) -> dict[str, np.ndarray]:
    """Train the trial's classifier on all training rows and return its weights."""
    data = data.cleaned() if trial.clean else data
    return measures.train_oracle(make_classifier(replace(trial, seed=0), data.labels), data.train)
