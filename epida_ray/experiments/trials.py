"""One trial of an experiment: a subset, a method and a seed in; scores on the test set out. In process, no Ray.

Trials with the same data set, size and seed are paired: the same subset, dev split, initial weights, number of steps
and learning-rate schedule, whatever the method.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epida_ray.classify import create
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.metrics import scores
from epida_ray.core.sample import Rejected, Sample, sample_seeds
from epida_ray.experiments.datasets import Dataset, Split, split_dev, subset
from epida_ray.generate import GENERATORS, propose
from epida_ray.runs.run import directory_digest, versions
from epida_ray.select import ScoredBatch, Selection, Selector, needs_perplexity, parse

if TYPE_CHECKING:
    from epida_ray.classify.learning import FittedLearner, TorchLearner

Loss = Literal["sum", "original", "augmented"]
Judge = Literal["self", "others"]
"""`self`: the classifier in training. `others`: for each half of the samples one that was trained on the other half."""
Protocol = Literal["dev", "paper"]
"""`dev`: the epoch that is best on a dev split, test touched once. `paper`: the best test macro-F1 of all epochs."""

DEPENDS_ON = (
    "generate",
    "classify",
    "select",
    "evaluate/trials.py",
    "evaluate/data.py",
    "evaluate/metrics.py",
    "evaluate/perplexity.py",
    "sample.py",
)
"""What of this package can change the numbers of a trial."""


@cache
def code_digest() -> str:
    """Changes with every line of the code that a trial runs, so that results of two versions are never mixed."""
    total = blake2b(digest_size=12)
    root = Path(__file__).parents[1]
    for name in DEPENDS_ON:
        path = root / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix != ".pyc":
                total.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


@dataclass(frozen=True)
class Method:
    """What is done to the training set. No generator: the originals alone."""

    name: str
    generator: str | None = "eda"
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
    judge: Judge = "self"


NONE = Method("none", generator=None, loss="original")


@dataclass(frozen=True)
class Budget:
    """How long to train. Every method gets the same steps, on groups of an original and what was kept of it."""

    steps: int = 1200
    """About this many steps in all, but between `least` and `most` epochs."""
    least: int = 12
    most: int = 60
    batch_size: int = 16
    learning_rate: float | None = None
    pretrain_share: float = 1 / 3
    rounds: int = 8

    def epochs(self, rows: int) -> tuple[int, list[int]]:
        """(epochs of pre-training, epochs of each round)"""
        per_epoch = -(-rows // self.batch_size)
        total = min(self.most, max(self.least, round(self.steps / per_epoch)))
        first = max(1, round(total * self.pretrain_share))
        rounds = min(self.rounds, max(1, total - first))
        ends = np.linspace(0, total - first, rounds + 1).round().astype(int)
        return first, np.diff(ends).tolist()


@dataclass(frozen=True)
class Trial:
    dataset: str
    size: str
    seed: int
    method: Method
    classifier: str = "cnn"
    classifier_args: dict[str, Any] = field(default_factory=dict)
    budget: Budget = Budget()
    protocol: Protocol = "dev"
    dev_share: float = 0.2
    use_dev_split: bool = False
    """Choose the epoch on the data set's own dev split, cut to `size` as the training set is."""
    clean: bool = False
    measure: tuple[str, ...] = ()
    """More to measure of what was kept: `ppl`, `error-distance`, `speed`."""

    def fingerprint(self, data_digest: str, surroundings: Mapping[str, Any]) -> str:
        """Equal for trials that must give the same numbers; a method's name is only a name."""
        plain = asdict(replace(self, method=replace(self.method, name="")))
        text = json.dumps([code_digest(), data_digest, plain, surroundings], sort_keys=True, default=str)
        return blake2b(text.encode(), digest_size=12).hexdigest()


def describe_classifier(trial: Trial, labels: Sequence[str]) -> str:
    """What the trial's classifier says of itself, word vectors included; a RequestError where it cannot be made."""
    classifier = _classifier(trial, labels)
    return str(classifier.describe()) if hasattr(classifier, "describe") else trial.classifier


def surroundings(trial: Trial, classifier: str) -> dict[str, Any]:
    """What else the numbers depend on: libraries, word vectors, models, code of the user's; for speed, the machine.

    `classifier` is what it says of itself. Of a model that is a hub's only the name is known.
    """
    names = [name for name in (trial.classifier, trial.method.generator) if name and ":" in name]
    arguments = [*trial.classifier_args.values(), *trial.method.generator_args.values()]
    contents = {name: _contents(name.partition(":")[2]) or _source(name.partition(":")[0]) for name in names}
    contents |= {value: _contents(value) for value in arguments if isinstance(value, str)}
    return {
        "versions": _versions(),
        "classifier": classifier,
        "contents": {name: found for name, found in contents.items() if found},
        "machine": [platform.node(), os.cpu_count()] if "speed" in trial.measure else None,
    }


_versions = cache(versions)


@cache
def _contents(place: str) -> str | None:
    """A digest of the file or folder that this may be the path of."""
    try:
        path = Path(place)
        return directory_digest(path) if path.is_dir() else sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


@cache
def _source(module: str) -> str | None:
    """A digest of the code of MODULE:CLASS."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return _contents(file) if file else None


IN_HISTORY = ("s_div", "s_qua", "flips", "mirror", "extreme", "rejected")


class Kept(NamedTuple):
    """What was kept of every original in one round."""

    texts: list[list[str]]
    s_div: float
    s_qua: float
    flips: float
    """Share of the kept whose predicted class is not their label."""
    mirror: float
    """Median over samples of the correlation of s_div and s_qua; at −1 the two say the same, and their sum nothing."""
    extreme: float
    """Share of the kept whose s_div is within .05 of 0 or of 1: next to unchanged, or the most changed of all."""
    rejected: int
    seconds: dict[str, float]


def split_trial(trial: Trial, data: Dataset) -> tuple[Split, Split]:
    """(what to learn from, what to choose the epoch on); the paper's protocol learns from all and chooses on test."""
    part = data.train.take(subset(data.train.labels, trial.size, trial.seed))
    if trial.protocol == "paper":
        return part, data.test
    if trial.use_dev_split:
        if data.dev is None:
            raise RequestError(f"this experiment chooses on a data set's own dev split, and {trial.dataset} has none")
        size = trial.size if not trial.size.isdecimal() else str(min(int(trial.size), len(data.dev)))
        return part, data.dev.take(subset(data.dev.labels, size, trial.seed))
    train_rows, dev_rows = split_dev(part.labels, trial.dev_share, trial.seed)
    if not len(dev_rows):
        raise RequestError(
            f"{trial.dataset} {trial.size} has one row of a class at most: none is left to choose the epoch by; "
            "take more rows"
        )
    return part.take(train_rows), part.take(dev_rows)


def run_trial(trial: Trial, data: Dataset, oracle: dict[str, NDArray[Any]] | None = None) -> dict[str, Any]:
    """Train as the trial says and score the test set.

    `oracle` holds the weights, from `train_oracle`, of the classifier that judges labels for `error-distance`.
    """
    started = time.perf_counter()
    if trial.clean:
        data = data.cleaned()
    train, dev = split_trial(trial, data)
    learner = _learner(trial, data, train)
    method = trial.method
    source = _Source(method, train, data, trial.seed)
    first, rounds = trial.budget.epochs(len(train))
    if method.judge == "others":
        source.judges = _halves(trial, data, train)
    best = _Best(learner, dev, after=first if trial.protocol == "dev" else 0)
    history: list[dict[str, Any]] = []
    kept: Kept | None = None

    if method.generator is None:
        best.train(first + sum(rounds))
    elif method.pretrain:
        best.train(first)
    else:
        rounds[0] += first
    for number, epochs in enumerate(rounds if method.generator else (), 1):
        if kept is None or method.online:
            kept = source.keep(learner.classifier, number)
            history.append({"round": number} | {name: getattr(kept, name) for name in IN_HISTORY})
        best.train(epochs, kept.texts, method.loss)
    learner.classifier.load_state(best.weights)
    result = scores(data.labels, data.test.labels, learner.classifier.predict_proba(data.test.texts).argmax(axis=1))
    out: dict[str, Any] = {
        "accuracy": result["accuracy"],
        "macro_f1": result["macro_f1"],
        "selected_on": best.score,
        "epoch": best.epoch,
        "rows": len(train),
        "dev_rows": len(dev) if trial.protocol == "dev" else 0,
        "rounds": history,
    }
    if kept is not None:
        told = ("flips",) if method.select == "random" else ("flips", "mirror", "extreme")  # chance gives no scores
        out |= {name: float(np.mean([r[name] for r in history])) for name in told}
        out |= _measure(trial, data, train, source, learner.classifier, kept, oracle)
    return out | {"seconds": time.perf_counter() - started}


def _classifier(trial: Trial, labels: Sequence[str]) -> Any:
    return create(trial.classifier, labels, **({"seed": trial.seed} | trial.classifier_args))


def _learner(trial: Trial, data: Dataset, train: Split) -> TorchLearner | FittedLearner:
    from epida_ray.classify.learning import make_learner
    from epida_ray.classify.training import TrainingOptions

    budget = trial.budget
    options = TrainingOptions(seed=trial.seed, batch_size=budget.batch_size, learning_rate=budget.learning_rate)
    first, rounds = budget.epochs(len(train))
    return make_learner(_classifier(trial, data.labels), train.texts, train.labels, options, first + sum(rounds))


def _halves(trial: Trial, data: Dataset, train: Split) -> list[tuple[Any, NDArray[np.bool_]]]:
    """Classifiers pre-trained on one half of the samples each, and the other half, which they judge."""
    judges = []
    parts = split_dev(train.labels, 0.5, trial.seed)
    if not all(map(len, parts)):
        raise RequestError(f"{trial.dataset} {trial.size} has too few rows for judges that have not seen them")
    for mine, others in (parts, parts[::-1]):
        half = train.take(others)
        learner = _learner(trial, data, half)
        learner.train(None, "original", trial.budget.epochs(len(half))[0])
        judges.append((learner.classifier, np.isin(np.arange(len(train)), mine)))
    return judges


def train_oracle(data: Dataset, trial: Trial) -> dict[str, NDArray[Any]]:
    """Weights of the trial's classifier, trained on the whole training split: what knows the labels best."""
    from epida_ray.classify.training import TrainingOptions, fit

    if trial.clean:
        data = data.cleaned()
    classifier = _classifier(replace(trial, seed=0), data.labels)
    fit(
        classifier,
        data.train.texts,
        [data.labels[y] for y in data.train.labels],
        options=TrainingOptions(epochs=4, batch_size=64),
    )
    weights: dict[str, NDArray[Any]] = classifier.state()
    return weights


class _Best:
    """Trains, and remembers the weights of the epoch that is best by macro-F1, then by loss.

    The first `after` epochs, in which methods with pre-training are alike, are not among those to choose from. Of a
    classifier that is fitted in one go the last fit is taken: one method has one of them, another has many.
    """

    def __init__(self, learner: TorchLearner | FittedLearner, judge: Split, after: int) -> None:
        self._learner, self._judge, self._after = learner, judge, after
        self._key: tuple[float, float] | None = None
        self.weights: dict[str, NDArray[Any]] = {}
        self.score, self.epoch, self._epochs = 0.0, 0, 0

    def train(self, epochs: int, kept: list[list[str]] | None = None, loss: Loss = "original") -> None:
        from epida_ray.classify.learning import FittedLearner
        from epida_ray.classify.training import dev_score

        for last in self._learner.epochs(kept, loss, epochs):
            self._epochs += last
            if self._epochs <= self._after:
                continue
            found = dev_score(self._learner.classifier, self._judge.texts, self._judge.labels)
            key = (found.macro_f1, -found.loss)
            if self._key is None or key > self._key or isinstance(self._learner, FittedLearner):
                self._key, self.score, self.epoch = key, found.macro_f1, self._epochs
                self.weights = self._learner.classifier.state()


class _Source:
    """Candidates for the training rows, judged by the classifier as it is."""

    def __init__(self, method: Method, train: Split, data: Dataset, seed: int) -> None:
        self.method, self.train, self.seed, self.labels = method, train, seed, data.labels
        self.judges: list[tuple[Any, NDArray[np.bool_]]] = []
        """Who judges which samples, if not the classifier in training."""
        self._samples = [Sample(str(i), t, data.labels[y]) for i, (t, y) in enumerate(zip(*train, strict=True))]
        if method.generator is None:
            return
        self._generator = GENERATORS.create(method.generator, **method.generator_args)
        perplexity = None
        if needs_perplexity(method.select):
            from epida_ray.select.perplexity import LanguageModel

            perplexity = LanguageModel.estimate(train.texts)
        self._selector: Selector = parse(
            method.select,
            combine=method.combine,
            alpha=method.alpha,
            normalize=method.normalize,
            pool_original=method.pool_original,
            perplexity=perplexity,
        )

    def keep(self, classifier: Any, round_: int) -> Kept:
        method = self.method
        clock = time.perf_counter()
        if getattr(self._generator, "needs_classifier", False):
            self._generator.bind(classifier.predict_proba, classifier.labels)  # type: ignore[attr-defined]
        chance = method.select == "random"
        n = method.m if chance else method.m * method.k
        answers = propose(
            self._generator, self._samples, n, run_seed=self.seed, round_=round_, name=method.generator or ""
        )
        lists = [[] if isinstance(a, Rejected) else a.texts for a in answers]
        rejected = sum(isinstance(a, Rejected) for a in answers)
        if rejected == len(answers):
            reason = next(a.reason for a in answers if isinstance(a, Rejected))
            raise RunError(f"{method.generator} made no candidate for any sample: {reason}")
        generated = time.perf_counter()
        flat = [text for texts in lists for text in texts]
        offsets = np.cumsum([0, *map(len, lists)])
        texts_of = np.concatenate([np.arange(len(lists)), np.repeat(np.arange(len(lists)), np.diff(offsets))])
        both = classifier.predict_proba([*self.train.texts, *flat])
        for judge, samples in self.judges:
            theirs = samples[texts_of]
            both[theirs] = judge.predict_proba([*self.train.texts, *flat])[theirs]
        batch = ScoredBatch(
            both[len(lists) :], offsets, both[: len(lists)], self.train.labels, flat, self.train.texts,
            np.array(sample_seeds(self.seed, round_, [s.id for s in self._samples], "select", 0), np.uint64),
        )  # fmt: skip
        scored = time.perf_counter()
        selection = self._selector.select(batch, method.m)
        chosen = selection.kept
        owner = batch.owner[chosen]
        texts: list[list[str]] = [[] for _ in lists]
        for i, sample in zip(chosen.tolist(), owner.tolist(), strict=True):
            texts[sample].append(flat[i])
        wrong = batch.probabilities[chosen].argmax(axis=1) != self.train.labels[owner]
        seconds = {
            "generate": generated - clock, "score": scored - generated, "select": time.perf_counter() - scored
        }  # fmt: skip
        return Kept(
            texts,
            float(selection.s_div[chosen].mean()),
            float(selection.s_qua[chosen].mean()),
            float(wrong.mean()),
            _mirror(selection),
            float((np.abs(selection.s_div[chosen] - 0.5) > 0.45).mean()),
            rejected,
            seconds,
        )


def _mirror(selection: Selection) -> float:
    """Median over the samples that have a spread in both scores; 0 where there is none."""
    sizes = np.diff(selection.offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(owner, values, len(sizes)) / np.maximum(sizes, 1)

    div, qua = (axis - mean(axis)[owner] for axis in (selection.s_div, selection.s_qua))
    spread = np.sqrt(mean(div * div) * mean(qua * qua))
    varied = spread > 1e-9
    return float(np.median(mean(div * qua)[varied] / spread[varied])) if varied.any() else 0.0


def _measure(
    trial: Trial,
    data: Dataset,
    train: Split,
    source: _Source,
    classifier: Any,
    kept: Kept,
    oracle: dict[str, NDArray[Any]] | None,
) -> dict[str, Any]:
    texts = [text for group in kept.texts for text in group]
    owner = np.repeat(np.arange(len(train)), [len(group) for group in kept.texts])
    out: dict[str, Any] = {"kept": len(texts)}
    if "ppl" in trial.measure:
        from epida_ray.select.perplexity import LanguageModel

        # of the whole training split, as the paper's model was
        rows = np.random.default_rng(trial.seed).permutation(len(texts))[:10_000]
        out["ppl"] = float(np.mean(LanguageModel.estimate(data.train.texts)([texts[i] for i in rows])))
    if "error-distance" in trial.measure:
        judge = _classifier(trial, data.labels)
        judge.load_state(oracle if oracle is not None else train_oracle(data, trial))
        true_label = judge.predict_proba(texts).argmax(axis=1) == train.labels[owner]
        before, after = judge.embed(train.texts), judge.embed(texts)
        distance = np.linalg.norm(after - before[owner], axis=1) / np.sqrt(after.shape[1])
        out["error"] = float(1 - true_label.mean())
        out["distance"] = float(distance[true_label].mean()) if true_label.any() else 0.0
    if "speed" in trial.measure:
        again = source.keep(classifier, 1_000)
        needed = ("generate",) if source.method.select == "random" else tuple(again.seconds)  # chance asks nobody
        out["kept_per_second"] = sum(map(len, again.texts)) / max(1e-9, sum(again.seconds[s] for s in needed))
    return out
