"""What a train worker does: round after round from the run's directory, with a checkpoint after each."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import ray
import ray.train
import ray.train.torch
import torch

from epida_ray.classify import load
from epida_ray.classify.learning import make_learner
from epida_ray.classify.training import DevScore, Loss, TrainingOptions, dev_score
from epida_ray.core.errors import EpidaError, RunError
from epida_ray.data.storage import Storage, refusal
from epida_ray.runs import checkpoint
from epida_ray.stream.pipeline import round_folder
from epida_ray.stream.weights import WeightTransfer

ATTEMPT = "checkpoint/attempt.json"
FAILURE = "checkpoint/failure.json"
"""Why training ended before its last round, and whose training it was."""


class Replaced(Exception):
    """Another worker of the same training does this one's work, because its node was given up or cut off."""


@dataclass(frozen=True)
class Task:
    """All that training needs to know; sent by value."""

    driver: str
    """Differs from driver to driver."""
    storage: Storage
    transfer: WeightTransfer
    options: TrainingOptions
    loss: Loss
    rounds: int
    pretrain_epochs: int
    epochs_per_round: int
    online: bool
    patience: int | None
    calibrate: bool
    max_staleness: int
    limit: float
    trust: tuple[str, ...] = ()
    """What the folder of the classifier may run."""


def ready_file(round_: int) -> str:
    """Written when all candidates of a round have been judged and what is kept of them is in augmented/."""
    return f"rounds/{round_:05d}.json"


def train_rounds(task: Task) -> None:
    """The loop of one Ray Train run. The checkpoint in the run's directory is the only truth: it starts from that."""
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    try:
        Training(task, rank, world).run()
    except EpidaError as error:  # would be the same after a restart, so it is told, not raised
        _tell(task, str(error))
    except OSError as error:
        if (reason := refusal(error)) is None:
            raise
        _tell(task, f"cannot write to {task.storage.location} on the node {ray.util.get_node_ip_address()}: {reason}")


def _tell(task: Task, reason: str) -> None:
    task.storage.write(FAILURE, json.dumps({"driver": task.driver, "reason": reason}).encode())


class Training:
    """One worker's part in it; it begins where the checkpoint ends, and is the newest attempt from then on."""

    def __init__(self, task: Task, rank: int, world: int) -> None:
        self.task, self.rank, self.world = task, rank, world
        storage = task.storage
        self.classifier = load(storage.local_copy("initial"), trust=task.trust)
        train, dev = (pq.read_table(_open(storage, f"prepared/{name}.parquet")) for name in ("train", "dev"))
        self.ids = train["sample_id"].to_pylist()
        index = {label: i for i, label in enumerate(self.classifier.labels)}
        y = np.array([index[label] for label in train["label"].to_pylist()], np.int64)
        self.dev = dev["text"].to_pylist(), np.array([index[label] for label in dev["label"].to_pylist()], np.int64)
        epochs = task.pretrain_epochs + task.rounds * task.epochs_per_round
        self.learner = make_learner(
            self.classifier, train["text"].to_pylist(), y, task.options, epochs, **self._distributed()
        )
        found, _ = checkpoint.load(storage)
        self.facts: dict[str, Any] = {
            "round": -1, "best": None, "best_round": None, "worse": 0, "stopped": False, "metrics": [],
            "max_staleness": task.max_staleness, "world": world,
        }  # fmt: skip
        self.versions: dict[int, dict[str, np.ndarray]] = {}
        self.best: dict[str, np.ndarray] = {}
        if found is not None:
            self.facts = found.facts
            self.learner.load_state(found.part("trainer"))
            self.best = found.part("best")
            self.versions = {v: found.part(f"version-{v}") for v in found.facts["versions"]}
        self.attempt = self._take_over() if rank == 0 else 0

    def _distributed(self) -> dict[str, Any]:
        device = ray.train.torch.get_device() if torch.cuda.is_available() else torch.device("cpu")
        wrap = torch.nn.parallel.DistributedDataParallel if self.world > 1 else None
        return {"device": str(device), "wrap": wrap, "rank": self.rank, "world": self.world}

    def _take_over(self) -> int:
        storage = self.task.storage
        number = json.loads(storage.read(ATTEMPT))["attempt"] + 1 if storage.exists(ATTEMPT) else 1
        storage.write(ATTEMPT, json.dumps({"attempt": number, "driver": self.task.driver}).encode())
        return number

    def run(self) -> None:
        self.ended = time.perf_counter()
        if self.rank == 0:
            self._publish(*sorted(self.versions))  # the worker before may have ended after saving them
        for round_ in range(self.facts["round"] + 1, self.task.rounds + 1):
            if self.facts["stopped"]:
                break
            self._round(round_)
        if self.rank == 0:
            self._save(self.facts["round"])

    def _round(self, round_: int) -> None:
        task = self.task
        began = self.ended
        judged: dict[str, Any] = {}
        kept = None
        if round_ > 0 and task.loss != "original":
            source = round_ if task.online else 1
            judged = self._wait(source)
            kept = self._kept(source)
        waited = time.perf_counter()
        epochs = task.epochs_per_round if round_ else task.pretrain_epochs
        loss = self.learner.train(kept, task.loss if round_ else "original", epochs)
        trained = time.perf_counter()
        calibration = self._calibrate()
        score = dev_score(self.classifier, *self.dev)
        self._note(round_, score)
        self.facts["metrics"].append(
            {
                "round": round_,
                "weights_version": round_ + 1,
                "loss": loss.total, "loss_original": loss.original, "loss_augmented": loss.augmented,
                "dev_macro_f1": score.macro_f1, "dev_accuracy": score.accuracy, "dev_loss": score.loss,
                "best_round": self.facts["best_round"],
            } | calibration | {k: v for k, v in judged.items() if k != "seconds"}
        )  # fmt: skip
        measured = time.perf_counter()
        self.versions[round_ + 1] = self.classifier.state()
        for old in [v for v in self.versions if v < round_ + 1 - task.max_staleness]:
            del self.versions[old]
        seconds = dict(judged.get("seconds", {})) | {
            "wait": waited - began, "train": trained - waited, "dev": measured - trained,
        }  # fmt: skip
        self.facts["metrics"][-1]["seconds"] = seconds
        if self.rank == 0:
            self._save(round_)
            self._publish(round_ + 1)
        self.ended = time.perf_counter()
        seconds["broadcast"] = self.ended - measured
        seconds["round"] = self.ended - began

    def _calibrate(self) -> dict[str, float]:
        if not self.task.calibrate:
            return {}
        from epida_ray.classify.calibration import calibrate

        return calibrate(self.classifier, *self.dev)._asdict()

    def _wait(self, round_: int) -> dict[str, Any]:
        """Until the driver has said that the round's candidates are judged; what it said."""
        storage, name = self.task.storage, ready_file(round_)
        deadline = time.monotonic() + self.task.limit
        while not storage.exists(name):
            if time.monotonic() > deadline:
                raise RunError(f"the candidates of round {round_} were not ready within {self.task.limit:.0f} s")
            time.sleep(0.005 if storage.is_local else 0.5)
        return json.loads(storage.read(name))

    def _kept(self, round_: int) -> list[list[str]]:
        """What was kept of each original, best first."""
        storage = self.task.storage
        folder = f"augmented/{round_folder(round_)}"
        files = [storage.path(f"{folder}/{name}") for name in sorted(storage.names(folder))]
        table = pads.dataset(files, filesystem=storage.filesystem, format="parquet").to_table(["sample_id", "text"])
        kept: dict[str, list[str]] = {sample_id: [] for sample_id in self.ids}
        for sample_id, text in zip(table["sample_id"].to_pylist(), table["text"].to_pylist(), strict=True):
            kept[sample_id].append(text)
        return list(kept.values())

    def _note(self, round_: int, score: DevScore) -> None:
        """Remember the best weights so far, and whether it is time to stop."""
        best = DevScore(**self.facts["best"]) if self.facts["best"] else None
        if score.better_than(best):
            self.facts |= {"best": vars(score), "best_round": round_, "worse": 0}
            self.best = self.classifier.state()
        else:
            self.facts["worse"] += 1
            self.facts["stopped"] = self.task.patience is not None and self.facts["worse"] >= self.task.patience

    def _save(self, round_: int) -> None:
        storage = self.task.storage
        newest = json.loads(storage.read(ATTEMPT))
        if newest["attempt"] != self.attempt:
            if newest["driver"] == self.task.driver:
                raise Replaced(f"attempt {newest['attempt']} has taken over from attempt {self.attempt}")
            raise RunError("another command has taken over this run; this one stops without writing")
        self.facts |= {"round": round_, "versions": sorted(self.versions), "pid": os.getpid(), "attempt": self.attempt}
        self.facts["node"] = ray.util.get_node_ip_address()
        arrays = {f"trainer/{k}": v for k, v in self.learner.state().items()}
        arrays |= {f"best/{k}": v for k, v in self.best.items()}
        arrays |= {f"version-{n}/{k}": v for n, weights in self.versions.items() for k, v in weights.items()}
        checkpoint.save(storage, round_, arrays, self.facts)

    def _publish(self, *versions: int) -> None:
        for version in versions:
            self.task.transfer.publish(version, self.versions[version])


def _open(storage: Storage, name: str) -> Any:
    return storage.filesystem.open_input_file(storage.path(name))
