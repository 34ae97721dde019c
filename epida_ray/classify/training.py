"""Training with torch, in process or inside a distributed worker.

Randomness depends only on (seed, epoch, step): the order of the data and dropout are functions of these three. So a
trainer's whole state is its weights, its optimiser and two counters, and a run that continues from them ends in the
same bits. The global random state is left as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn
from torch.nn import functional as F

from epida_ray.classify import Table, TorchClassifier
from epida_ray.classify.examples import AUGMENTED, TERMS, Examples
from epida_ray.classify.mixup import Layer, Mixer
from epida_ray.classify.targets import cross_entropy
from epida_ray.classify.threads import torch_threads
from epida_ray.classify.two_heads import TwoHeads
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.labels import hard
from epida_ray.core.metrics import scores
from epida_ray.core.steps import made_step


class TrainingOptions(BaseModel):
    """How to train. None means what suits the classifier."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int | None = Field(default=None, ge=1, description="Originals a step; kept candidates come along.")
    learning_rate: float | None = Field(default=None, gt=0, description="AdamW's learning rate after the warm-up.")
    weight_decay: float | None = Field(default=None, ge=0, description="AdamW's weight decay.")
    warmup: float = Field(default=0.1, ge=0, le=1, description="Share of all steps in which the learning rate rises.")
    decay: bool = Field(default=True, description="Let the learning rate fall to zero after the warm-up.")
    clip: float = Field(default=1.0, gt=0, description="Largest norm of a step's gradient.")
    mixup: float | None = Field(default=None, gt=0, description="A of Beta(A, A): learn from mixtures of two rows.")
    mixup_layer: Layer = Field(default="hidden", description="What is mixed.")
    multi_task: bool = Field(default=False, description="Give rewrites a head of their own while training.")
    vda: str | None = Field(default=None, description="Masked language model for virtual data augmentation.")
    seed: int = Field(default=0, ge=0, description="Order of the data and dropout.")
    threads: int = Field(default=1, ge=1, description="CPU threads; another number changes the last bits.")

    def resolved(self, classifier: TorchClassifier) -> TrainingOptions:
        """Return the options with the classifier's defaults in place of None."""
        own = {k: v for k, v in classifier.defaults._asdict().items() if getattr(self, k, 0) is None}
        return self.model_copy(update=own)


class Groups(NamedTuple):
    """Examples made ready for a network, in groups. Groups are shuffled, never rows."""

    table: Table
    y: np.ndarray
    """int64 [N] class numbers, or float32 [N, C] soft labels."""
    weights: np.ndarray
    """float32 weights of the rows; a group's loss is the weighted sum over its rows."""
    offsets: np.ndarray
    """int64 [groups + 1]: group i is the rows offsets[i] … offsets[i + 1] - 1."""
    terms: np.ndarray
    """The term of the loss that a row belongs to."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


def make_groups(classifier: TorchClassifier, examples: Examples) -> Groups:
    """Return the groups of these examples."""
    return Groups(
        classifier.table(examples.texts), examples.y, examples.weights, examples.offsets(), examples.terms
    )  # fmt: skip


class EpochLoss(NamedTuple):
    """The loss and its terms: L = L_o + L_g + λ L_u."""

    total: float
    original: float
    augmented: float
    unlabelled: float = 0.0

    @classmethod
    def of(cls, terms: np.ndarray) -> EpochLoss:
        original, augmented, unlabelled = (float(term) for term in terms)
        return cls(original + augmented + unlabelled, original, augmented, unlabelled)


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
        self._heads = TwoHeads(self.module, len(classifier.labels)) if self.options.multi_task else None
        if self._heads is not None:
            self._heads.join(groups)
        self._network: nn.Module = self.module if self._heads is None else self._heads
        self.model = wrap(self._network) if wrap else self._network  # after the groups: they may freeze parameters
        self.optimizer = torch.optim.AdamW(groups, fused=True)
        self._mixer = None
        if self.options.mixup is not None:
            mix_inputs = getattr(classifier, "mix_inputs", None) if self.options.mixup_layer == "input" else None
            self._mixer = Mixer(self.module, len(classifier.labels), self.options.mixup, mix_inputs)
        self._virtual = None
        if self.options.vda is not None:
            from epida_ray.classify.vda import Virtual  # transformers takes seconds to import

            self._virtual = Virtual(classifier, self.options.vda, self.device)
        self._rates = [group["lr"] for group in self.optimizer.param_groups]
        self.epoch = 0
        self.step = 0

    def train_epoch(self, groups: Groups) -> EpochLoss:
        """Train on all groups once; return the mean losses over them."""
        size = self.options.batch_size
        assert size is not None
        order = np.random.default_rng([self.options.seed, self.epoch, 1]).permutation(len(groups))
        totals = np.zeros(len(TERMS))
        self.model.train()
        with torch_threads(self.options.threads):
            for start in range(0, len(order), size):
                totals += self._train_step(groups, order[start : start + size])
        self.epoch += 1
        if self._heads is not None and not (groups.terms == AUGMENTED).any():
            self._heads.follow()
        if self.world > 1 and torch.distributed.is_initialized():
            everyone = torch.from_numpy(totals).to(self.device)
            torch.distributed.all_reduce(everyone)
            totals = everyone.cpu().numpy()
        return EpochLoss.of(totals / max(1, len(groups)))

    def _train_step(self, groups: Groups, batch: np.ndarray) -> np.ndarray:
        mine = batch[self.rank :: self.world]
        idle = len(mine) == 0  # fewer groups than ranks: take part in the step with a weight of 0
        chosen = batch[:1] if idle else mine
        starts, ends = groups.offsets[chosen], groups.offsets[chosen + 1]
        rows = np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)])
        weights = torch.from_numpy(groups.weights[rows] * (0 if idle else 1)).to(self.device)
        y = torch.from_numpy(groups.y[rows]).to(self.device)
        terms = torch.from_numpy(groups.terms[rows]).to(self.device)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * self._schedule()
        inputs = {name: value.to(self.device) for name, value in groups.table.batch(rows).items()}
        if self._heads is not None:
            inputs["rewrites"] = (terms == AUGMENTED).repeat(1 if self._virtual is None else 2)
        with _seeded(self.options.seed, self.epoch, self.step, self.rank, self.device):
            if self._mixer is not None:
                self._mixer.draw(len(rows), (self.options.seed, self.epoch, self.step, self.rank), self.device)
            if self._virtual is not None:
                self._virtual.draw()
            with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
                output = self.model(**inputs)
            logits = getattr(output, "logits", output)  # a transformer answers with an object that holds them
            if self._mixer is not None:
                losses = self._mixer.losses(logits.float(), y) * weights
            elif self._virtual is not None:
                losses = self._virtual.losses(logits.float(), y) * weights
            else:
                losses = F.cross_entropy(logits.float(), y, reduction="none") * weights
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
        made_step()
        parts = losses.detach()
        return np.array([parts[terms == term].sum().item() for term in range(len(TERMS))])

    def _schedule(self) -> float:
        warm = round(self.options.warmup * self.total_steps)
        if self.step < warm:
            return (self.step + 1) / (warm + 1)
        if not self.options.decay:
            return 1.0
        return max(0.0, (self.total_steps - self.step) / max(1, self.total_steps - warm))

    def weights(self) -> dict[str, np.ndarray]:
        """Return the network's weights, for `load_state` of a classifier."""
        return _arrays(self.module)

    def state(self) -> dict[str, np.ndarray]:
        """Return all that the rest of the training depends on, as arrays: weights, optimiser, counters."""
        state = {f"weights/{key}": value for key, value in _arrays(self._network).items()}
        for name, parameter in self._trained():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                state[f"optimizer/{key}/{name}"] = value.detach().cpu().numpy().copy()
        state["epoch"] = np.array(self.epoch, np.int64)
        state["step"] = np.array(self.step, np.int64)
        return state

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        weights = {k.removeprefix("weights/"): v for k, v in state.items() if k.startswith("weights/")}
        try:
            self._network.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in weights.items()})
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
        return [(name, p) for name, p in self._network.named_parameters() if id(p) in learning]


def _arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {key: value.detach().cpu().numpy().copy() for key, value in module.state_dict().items()}


@dataclass(frozen=True)
class DevScore:
    """How good the weights are on the dev split; the better of two has the larger macro-F1, then the smaller loss."""

    macro_f1: float
    accuracy: float
    loss: float

    def better_than(self, other: DevScore | None) -> bool:
        return other is None or (self.macro_f1, -self.loss) > (other.macro_f1, -other.loss)


def dev_score(classifier: Any, texts: Sequence[str], y: np.ndarray) -> DevScore:
    p = classifier.predict_proba(texts)
    result = scores(classifier.labels, hard(y), p.argmax(axis=1))
    return DevScore(result["macro_f1"], result["accuracy"], float(cross_entropy(p, y).mean()))


@contextmanager
def _seeded(seed: int, epoch: int, step: int, rank: int, device: torch.device):  # type: ignore[no-untyped-def]
    """Seed torch's generators with these numbers, and restore them afterwards."""
    number = int(np.random.SeedSequence([seed, epoch, step, rank]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(number)
        if devices:
            torch.cuda.manual_seed(number)
        yield
