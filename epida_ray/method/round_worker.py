"""What a train worker does: round after round from the run's directory, with a checkpoint after each. No Ray here."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from epida_ray.classify import load
from epida_ray.classify.examples import Kept, PoolTexts
from epida_ray.classify.training import DevScore
from epida_ray.core.errors import RunError, TransientError
from epida_ray.core.steps import Patience, listening
from epida_ray.data.arrow import open_own
from epida_ray.data.storage import Storage
from epida_ray.method.pool import hashes, pool_texts, pseudo_rows, without
from epida_ray.method.prepare import read_prepared
from epida_ray.method.round import kept_of_rows
from epida_ray.method.trainer import LearnOptions, Progress, RoundTrainer
from epida_ray.method.transport import WeightTransport
from epida_ray.runs import checkpoint, layout
from epida_ray.runs.lease import Numbers, take_number

SAVE_EVERY = 60.0
"""Seconds after which a round writes a checkpoint between two of its epochs."""
OWNER_CHECK = 1.0
"""Seconds between two looks, while a worker waits, at whether its driver still owns the run."""


class Replaced(Exception):
    """Another worker of the same training does this one's work, because its node was cut off or counted as dead."""


class PoolTask(NamedTuple):
    prior: np.ndarray
    """The share of each class."""
    weight: float
    """λ"""


@dataclass(frozen=True)
class Task:
    """All that training needs to know; sent by value."""

    driver: str
    """Differs from driver to driver."""
    storage: Storage
    transport: WeightTransport
    options: LearnOptions
    limit: float
    """Longest wait, in seconds, for a round's candidates."""
    trust: tuple[str, ...] = ()
    """Code that the folder of the classifier may run."""
    pool: PoolTask | None = None
    """How to learn from unlabelled texts, if there are any."""


class Worker:
    """One worker's part in the training. It starts from the checkpoint, and from then on it is the newest attempt."""

    def __init__(self, task: Task, rank: int = 0, world: int = 1, node: str = "", **distributed: Any) -> None:
        self.task, self.rank, self.world, self.node = task, rank, world, node
        storage = task.storage
        # before the checkpoint is read: from here on, no earlier attempt writes another one
        self.attempt = take_number(storage, layout.ATTEMPTS, {"driver": task.driver}) if rank == 0 else 0
        classifier = load(storage.local_copy(layout.INITIAL), trust=task.trust)
        train, dev = (read_prepared(storage, name, classifier.labels) for name in ("train", "dev"))
        self.trainer = RoundTrainer(classifier, train, dev, task.options, rank=rank, world=world, **distributed)
        self.versions: dict[int, dict[str, np.ndarray]] = {}
        found, _ = checkpoint.load(storage)
        if found is not None:
            best = DevScore(**found.facts["best"]) if found.facts["best"] else None
            progress = Progress(
                **{k: v for k, v in found.facts.items() if k in Progress.__dataclass_fields__} | {"best": best}
            )
            self.trainer.load_state(found.part("trainer"), found.part("best"), progress)
            self.versions = {v: found.part(f"version-{v}") for v in found.facts["versions"]}
        self.saved = time.monotonic()
        self.trainer.after_epoch = self._save_now_and_then

    def run(self) -> None:
        self.ended = time.perf_counter()
        if self.rank == 0:
            self._publish(*sorted(self.versions))  # the worker before may have ended after saving them
        with listening(self._step):
            for round_ in self.trainer.rounds_left():
                self._round(round_)
        if self.rank == 0:
            self._save()

    def _step(self) -> None:
        """Report a step of training, and stop in the middle of a round that nobody waits for any more."""
        with suppress(TransientError):  # the lease lasts for several beats; what is written later looks again
            self._check_owner()
        self.task.transport.step()

    def _round(self, round_: int) -> None:
        began = self.ended
        judged: dict[str, Any] = {}
        kept = pool = None
        source = self.task.options.source(round_)
        if source is not None:
            judged = self._wait(source)
            kept = self._kept(source)
        if round_ and self.task.pool is not None:
            judged = self._wait(round_)
            pool = self._pool(round_, judged["judged_by_version"])
        waited = time.perf_counter()
        line = self.trainer.train_round(round_, kept, pool)
        seconds = dict(judged.pop("seconds", {})) | {"wait": waited - began} | line["seconds"]
        line |= judged | {"seconds": seconds}
        measured = time.perf_counter()
        staleness = self.task.transport.staleness
        self.versions[round_ + 1] = self.trainer.classifier.state()
        for old in [v for v in self.versions if v < round_ + 1 - staleness]:
            del self.versions[old]
        if self.rank == 0:
            self._save()
            self._publish(round_ + 1)
        self.ended = time.perf_counter()
        seconds |= {"broadcast": self.ended - measured, "round": self.ended - began}

    def _wait(self, round_: int) -> dict[str, Any]:
        """Wait until the driver has written that the round's candidates are judged; return what it wrote."""
        storage, name = self.task.storage, layout.judged_file(round_)
        patience = Patience(self.task.limit, self.task.transport.steps)
        looked = time.monotonic()
        while not storage.exists(name):
            if time.monotonic() - looked > OWNER_CHECK:  # a driver that failed waits for nobody
                self._check_owner()
                looked = time.monotonic()
            if patience.over():
                raise RunError(
                    f"the candidates of round {round_} are not ready, and no progress was reported for "
                    f"{self.task.limit:.0f} s; --stall-timeout sets the limit"
                )
            time.sleep(0.005 if storage.is_local else 0.5)
        judged: dict[str, Any] = json.loads(storage.read(name))
        return judged

    def _kept(self, round_: int) -> Kept:
        """Read what was kept of each original, best first."""
        return kept_of_rows(self._read(layout.round_folder(layout.AUGMENTED, round_)), self.trainer.train_rows.ids)

    def _pool(self, round_: int, version: int) -> PoolTexts:
        """Read the round's unlabelled texts, give them soft labels and weights, and write these down."""
        assert self.task.pool is not None
        known = hashes(self.trainer.train_rows.texts, self.trainer.dev.texts)
        table = without(self._read(layout.round_folder(layout.POOL, round_)), known)
        used = pool_texts(table, self.task.pool.prior, self.task.pool.weight)
        if self.rank == 0:
            written = pseudo_rows(table, used, self.trainer.classifier.labels, round_, version)
            self.task.storage.write_table(layout.pseudo_file(round_), written)
        return used

    def _read(self, folder: str) -> pa.Table:
        """Read all files of a folder, in the order of their names."""
        storage = self.task.storage
        files = {name: storage.read(f"{folder}/{name}") for name in sorted(storage.names(folder))}
        return pa.concat_tables(open_own(pa.BufferReader(data), name).read() for name, data in files.items())

    def _check_owner(self) -> None:
        """Raise TakenOver if the driver that this worker belongs to has given the directory up or lost it."""
        if self.task.storage.guard is not None:
            self.task.storage.guard()

    def _save_now_and_then(self) -> None:
        """Write a checkpoint inside a long round, so that a kill does not cost the whole of it."""
        if self.rank == 0 and time.monotonic() - self.saved > SAVE_EVERY:
            self._save()

    def _save(self) -> None:
        """Write the checkpoint, unless another attempt has taken over."""
        self._check_owner()
        storage = self.task.storage
        newest, _ = Numbers(storage, layout.ATTEMPTS).newest()
        if newest != self.attempt:
            raise Replaced(f"attempt {newest} has taken over from attempt {self.attempt}")
        facts = asdict(self.trainer.progress) | {
            "versions": sorted(self.versions), "pid": os.getpid(), "attempt": self.attempt, "world": self.world,
            "max_staleness": self.task.transport.staleness, "node": self.node,
        }  # fmt: skip
        arrays = self.trainer.state()
        arrays |= {f"version-{n}/{k}": v for n, weights in self.versions.items() for k, v in weights.items()}
        checkpoint.save(storage, self.trainer.progress.round, arrays, facts, self.trainer.progress.epochs)
        self.saved = time.monotonic()

    def _publish(self, *versions: int) -> None:
        for version in versions:
            self.task.transport.publish(version, self.versions[version])
