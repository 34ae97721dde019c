"""Training with torch, in process or inside a distributed worker.

Nothing is random but by (seed, epoch, step): the order of the data and dropout are functions of these three, so a
trainer's whole state is its weights, its optimiser and two counters, and a run that goes on from them ends in the
same bits. The global random state is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn
from torch.nn import functional as F

from epida_ray.classify import FittedClassifier, Table, TorchClassifier
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.metrics import scores

Loss = Literal["sum", "original", "augmented"]


class TrainingOptions(BaseModel):
    """How to train. None means what suits the classifier."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int | None = Field(default=None, ge=0, description="Passes over the training set.")
    batch_size: int | None = Field(default=None, ge=1, description="Originals a step; kept candidates come along.")
    learning_rate: float | None = Field(default=None, gt=0, description="AdamW's learning rate after the warm-up.")
    weight_decay: float | None = Field(default=None, ge=0, description="AdamW's weight decay.")
    warmup: float = Field(default=0.1, ge=0, le=1, description="Share of all steps in which the learning rate rises.")
    decay: bool = Field(default=True, description="Let the learning rate fall to zero after the warm-up.")
    clip: float = Field(default=1.0, gt=0, description="Largest norm of a step's gradient.")
    patience: int | None = Field(default=None, ge=1, description="Stop after so many epochs without a better score.")
    dev_share: float = Field(default=0.1, gt=0, lt=1, description="Share of the training set that becomes dev.")
    seed: int = Field(default=0, ge=0, description="Order of the data, dropout, dev split.")
    threads: int = Field(default=1, ge=1, description="CPU threads; another number changes the last bits.")

    def resolved(self, classifier: TorchClassifier) -> TrainingOptions:
        """With the classifier's defaults in place of None."""
        own = {k: v for k, v in classifier.defaults._asdict().items() if getattr(self, k, 0) is None}
        return self.model_copy(update=own)


class Groups(NamedTuple):
    """Rows in groups: an original and its kept candidates. Groups are shuffled, never rows."""

    table: Table
    labels: np.ndarray
    """int64 class numbers of the rows."""
    weights: np.ndarray
    """float32 weights of the rows; a group's loss is the weighted sum over its rows."""
    offsets: np.ndarray
    """int64 [groups + 1]: group i is the rows offsets[i] … offsets[i + 1] - 1."""
    original: np.ndarray
    """bool: which rows are originals."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def make_groups(
    classifier: TorchClassifier,
    texts: Sequence[str],
    y: np.ndarray,
    candidates: Sequence[Sequence[str]] | None = None,
    loss: Loss = "sum",
) -> Groups:
    """Originals with the candidates kept for each of them.

    A batch's loss is the mean over its groups of l_original + (1/m_i) Σ_j l_candidate (L = L_o + L_g), or of one of
    the two terms. A candidate carries the label of its original.
    """
    rows, labels, weights, original, offsets = [], [], [], [], [0]
    for i, text in enumerate(texts):
        kept = candidates[i] if candidates is not None and loss != "original" else ()
        if loss != "augmented" or not kept:
            rows.append(text)
            weights.append(0.0 if loss == "augmented" else 1.0)
            original.append(True)
        rows.extend(kept)
        weights.extend([1.0 / len(kept)] * len(kept) if kept else ())
        original.extend([False] * len(kept))
        labels.extend([y[i]] * (len(rows) - offsets[-1]))
        offsets.append(len(rows))
    return Groups(
        classifier.table(rows),
        np.array(labels, np.int64),
        np.array(weights, np.float32),
        np.array(offsets, np.int64),
        np.array(original, np.bool_),
    )


class EpochLoss(NamedTuple):
    total: float
    original: float
    augmented: float


def steps_per_epoch(groups: int, batch_size: int) -> int:
    return -(-groups // batch_size)


class Trainer:
    """One network in training.

    `wrap` may put the module into DistributedDataParallel; each of `world` ranks then takes its share of every global
    batch, and the averaged gradients are those of one worker on the whole batch.
    """

    def __init__(
        self,
        classifier: TorchClassifier,
        options: TrainingOptions,
        *,
        total_steps: int,
        device: str = "cpu",
        wrap: Callable[[nn.Module], nn.Module] | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.options = options.resolved(classifier)
        self.total_steps = max(1, total_steps)
        self.device = torch.device(device)
        self.rank, self.world = rank, world
        self.module = classifier.module().to(self.device)
        assert self.options.learning_rate is not None and self.options.weight_decay is not None
        groups = classifier.parameter_groups(self.module, self.options.learning_rate, self.options.weight_decay)
        self.model = wrap(self.module) if wrap else self.module  # after the groups: they may freeze parameters
        self.optimizer = torch.optim.AdamW(groups, fused=True)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self.epoch = 0
        self.step = 0

    def train_epoch(self, groups: Groups) -> EpochLoss:
        """One pass over all groups; the losses are means over them."""
        size = self.options.batch_size
        assert size is not None
        order = np.random.default_rng([self.options.seed, self.epoch, 1]).permutation(len(groups))
        totals = np.zeros(2)
        self.model.train()
        with _threads(self.options.threads):
            for start in range(0, len(order), size):
                totals += self._train_step(groups, order[start : start + size])
        self.epoch += 1
        if self.world > 1 and torch.distributed.is_initialized():
            everyone = torch.from_numpy(totals).to(self.device)
            torch.distributed.all_reduce(everyone)
            totals = everyone.cpu().numpy()
        original, augmented = totals / max(1, len(groups))
        return EpochLoss(float(original + augmented), float(original), float(augmented))

    def _train_step(self, groups: Groups, batch: np.ndarray) -> np.ndarray:
        mine = batch[self.rank :: self.world]
        idle = len(mine) == 0  # with fewer groups than ranks: go through the motions, with no weight
        chosen = batch[:1] if idle else mine
        starts, ends = groups.offsets[chosen], groups.offsets[chosen + 1]
        rows = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
        weights = torch.from_numpy(groups.weights[rows] * (0 if idle else 1)).to(self.device)
        labels = torch.from_numpy(groups.labels[rows]).to(self.device)
        original = torch.from_numpy(groups.original[rows]).to(self.device)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self._schedule()
        with _seeded(self.options.seed, self.epoch, self.step, self.rank, self.device):
            with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
                output = self.model(**{k: v.to(self.device) for k, v in groups.table.batch(rows).items()})
            logits = getattr(output, "logits", output)  # a transformer answers with an object that holds them
            losses = F.cross_entropy(logits.float(), labels, reduction="none") * weights
            # every rank's mean is over the global batch, and the ranks' gradients are averaged
            loss = losses.sum() * (self.world / len(batch))
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, self.options.clip)
        if not (math.isfinite(loss.item()) and math.isfinite(norm.item())):
            rate = self.optimizer.param_groups[0]["lr"]
            raise RunError(
                f"the loss or its gradient is not finite at step {self.step} (learning rate {rate:g}); "
                "the weights before this step are kept; train with a lower learning rate"
            )
        self.optimizer.step()
        self.step += 1
        parts = losses.detach()
        return np.array([parts[original].sum().item(), parts[~original].sum().item()])

    def _schedule(self) -> float:
        warm = round(self.options.warmup * self.total_steps)
        if self.step < warm:
            return (self.step + 1) / (warm + 1)
        if not self.options.decay:
            return 1.0
        return max(0.0, (self.total_steps - self.step) / max(1, self.total_steps - warm))

    def weights(self) -> dict[str, np.ndarray]:
        """The network's weights, for `load_state` of a classifier."""
        return {key: value.detach().cpu().numpy().copy() for key, value in self.module.state_dict().items()}

    def state(self) -> dict[str, np.ndarray]:
        """All that the rest of the training depends on, as arrays: weights, optimiser, counters."""
        state = {f"weights/{key}": value for key, value in self.weights().items()}
        for name, parameter in self._trained():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                state[f"optimizer/{key}/{name}"] = value.detach().cpu().numpy().copy()
        state["epoch"] = np.array(self.epoch, np.int64)
        state["step"] = np.array(self.step, np.int64)
        return state

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        weights = {k.removeprefix("weights/"): v for k, v in state.items() if k.startswith("weights/")}
        try:
            self.module.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights.items()})
            self.epoch, self.step = int(state["epoch"]), int(state["step"])
        except (RuntimeError, KeyError) as error:
            raise RequestError(f"this checkpoint is of another model: {str(error).splitlines()[0]}") from error
        self.optimizer.state.clear()
        for name, parameter in self._trained():
            kept = {
                key: torch.from_numpy(np.array(state[f"optimizer/{key}/{name}"])).to(self.device)
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"optimizer/{key}/{name}" in state
            }
            if kept:
                self.optimizer.state[parameter] = kept

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        learning = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        return [(name, p) for name, p in self.module.named_parameters() if id(p) in learning]


@dataclass(frozen=True)
class DevScore:
    """How good the weights are on the dev split; the better of two is the larger in macro-F1, then the less in loss."""

    macro_f1: float
    accuracy: float
    loss: float

    def better_than(self, other: DevScore | None) -> bool:
        return other is None or (self.macro_f1, -self.loss) > (other.macro_f1, -other.loss)


def dev_score(classifier: Any, texts: Sequence[str], y: np.ndarray) -> DevScore:
    p = classifier.predict_proba(texts)
    result = scores(classifier.labels, y, p.argmax(axis=1))
    loss = float(-np.log(np.maximum(p[np.arange(len(y)), y].astype(np.float64), 1e-10)).mean())
    return DevScore(result["macro_f1"], result["accuracy"], loss)


@dataclass(frozen=True)
class Epoch:
    epoch: int
    """Counts from 1."""
    loss: float
    """Mean training loss over the epoch."""
    macro_f1: float
    accuracy: float
    dev_loss: float


@dataclass
class History:
    """What happened in `fit`; the weights are those of the `best` epoch."""

    epochs: list[Epoch] = field(default_factory=list)
    best: Epoch | None = None
    train_rows: int = 0
    dev_rows: int = 0

    def add(self, loss: float, dev: DevScore) -> None:
        self.epochs.append(Epoch(len(self.epochs) + 1, loss, dev.macro_f1, dev.accuracy, dev.loss))


def fit(
    classifier: Any,
    texts: Sequence[str],
    labels: Sequence[str] | Sequence[int] | np.ndarray,
    dev: tuple[Sequence[str], Sequence[str] | Sequence[int] | np.ndarray] | None = None,
    options: TrainingOptions | None = None,
    *,
    device: str = "cpu",
) -> History:
    """Train in process and keep the epoch that is best on dev. Labels are names or class numbers.

    Without `dev`, a stratified part of the training set is taken for it. Without `epochs` in the options, a large set
    gets fewer of them.
    """
    options = options or TrainingOptions()
    y = label_numbers(classifier.labels, labels)
    if dev is not None:
        dev_texts, dev_y = dev[0], label_numbers(classifier.labels, dev[1])
    else:
        taken = dev_split(y, options.dev_share, options.seed)
        dev_texts, dev_y = [t for t, out in zip(texts, taken, strict=True) if out], y[taken]
        texts, y = [t for t, out in zip(texts, taken, strict=True) if not out], y[~taken]
    if not len(y) or not len(dev_y):
        raise RequestError("training needs labelled texts both to learn from and for the dev split")
    history = History(train_rows=len(y), dev_rows=len(dev_y))
    if isinstance(classifier, FittedClassifier):
        classifier.fit(texts, y, np.ones(len(y), np.float32), options.seed)
        history.add(dev_score(classifier, texts, y).loss, dev_score(classifier, dev_texts, dev_y))
        history.best = history.epochs[-1]
        return history
    if not isinstance(classifier, TorchClassifier):
        raise RequestError(f"the classifier {type(classifier).__name__} cannot be trained; give one that is fitted")
    epochs, size = options.epochs, options.resolved(classifier).batch_size
    assert size is not None
    steps = steps_per_epoch(len(y), size)
    if epochs is None:
        epochs = min(classifier.defaults.epochs, -(-classifier.defaults.steps // steps))
    trainer = Trainer(classifier, options, total_steps=epochs * steps, device=device)
    groups = make_groups(classifier, texts, y, loss="original")
    best: DevScore | None = None
    best_weights: dict[str, np.ndarray] | None = None
    for _ in range(epochs):
        loss = trainer.train_epoch(groups).total
        weights = trainer.weights()
        classifier.load_state(weights)
        score = dev_score(classifier, dev_texts, dev_y)
        history.add(loss, score)
        if score.better_than(best):
            best, best_weights, history.best = score, weights, history.epochs[-1]
        elif options.patience and history.best and len(history.epochs) - history.best.epoch >= options.patience:
            break
    if best_weights is not None:
        classifier.load_state(best_weights)
    return history


def label_numbers(labels: Sequence[str], names: Sequence[str] | Sequence[int] | np.ndarray) -> np.ndarray:
    """Class numbers of label names (numbers stay as they are), or a RequestError that names the first unknown one."""
    number: dict[Any, int] = {label: i for i, label in enumerate(labels)}
    number |= {i: i for i in range(len(labels))}
    try:
        return np.array([number[name] for name in names], np.int64)
    except KeyError as error:
        known = ", ".join(labels)
        raise RequestError(f"the label {error.args[0]!r} is not among the declared ones: {known}") from None


def dev_split(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """bool: which rows go to dev; of each class its share, at least one where the class has two or more."""
    taken = np.zeros(len(y), np.bool_)
    random = np.random.default_rng([seed, 2])
    for label in np.unique(y):
        rows = random.permutation(np.flatnonzero(y == label))
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        taken[rows[:count]] = True
    return taken


@contextmanager
def _seeded(seed: int, epoch: int, step: int, rank: int, device: torch.device):  # type: ignore[no-untyped-def]
    """Torch's generators set by these numbers, and put back afterwards."""
    number = int(np.random.SeedSequence([seed, epoch, step, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(number)
        if devices:
            torch.cuda.manual_seed(number)
        yield


@contextmanager
def _threads(count: int):  # type: ignore[no-untyped-def]
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
