"""`epida train` in the simulated world: the real train worker, with rounds that take longer than --stall-timeout."""

from __future__ import annotations

import functools
import pickle
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from epida_ray.classify.training import TrainingOptions
from epida_ray.core import steps
from epida_ray.core.errors import EpidaError, RunError, TakenOver
from epida_ray.core.steps import made_step
from epida_ray.data.storage import Storage
from epida_ray.method import round_worker
from epida_ray.method.output import Origin, write
from epida_ray.method.prepare import Row, write_prepared
from epida_ray.method.schedule import Schedule
from epida_ray.method.schema import SELECTED
from epida_ray.method.trainer import LearnOptions
from epida_ray.method.transport import version_for
from epida_ray.runs import checkpoint, layout, manifest
from epida_ray.runs.run import Run, digest, interruptible
from tests.simulator.patches import DIRECTORY
from tests.simulator.world import Process, World

LABELS = ("a", "b")
ROUNDS = 2
LIMIT = 20.0
"""--stall-timeout, in seconds; a round takes longer."""
REQUEST = {"rounds": ROUNDS, "input": "d"}
ROWS = [Row(f"in.csv:{i}", f"text number {i}", LABELS[i % 2]) for i in range(4)]
FINGERPRINT = digest([REQUEST, "initial"])
MOST_RESTARTS = 8


class Tiny:
    """A classifier that learns little, takes its time, and depends on every text that it was shown."""

    labels = LABELS
    world: World

    def __init__(self) -> None:
        self.w = np.zeros(2, np.float32)

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        p = np.array([(zlib.crc32(text.encode()) % 97 + self.w[0] % 1) / 99 for text in texts], np.float32)
        return np.stack([p, 1 - p], axis=1)

    def fit(self, texts: Sequence[str], y: np.ndarray, weights: np.ndarray, seed: int) -> None:
        for _ in range(4):
            Tiny.world.sleep(8.0)
            made_step()
        seen = zlib.crc32("\n".join(texts).encode()) % 10_007
        self.w = np.array([(self.w[0] * 3 + seen) % 1009, self.w[1] + 1], np.float32)

    def state(self) -> dict[str, np.ndarray]:
        return {"w": self.w.copy()}

    def load_state(self, state: Any) -> None:
        self.w = np.array(state["w"])

    def save(self, directory: Any) -> None:
        raise NotImplementedError


class Store:
    """The actor of `stream/weights.py`: what it knows is in the checkpoint, and it may die at any time."""

    staleness = 0

    def __init__(self, world: World, storage: Storage) -> None:
        self.world, self.storage, self.count = world, storage, 0
        self.restart()

    def restart(self) -> None:
        self.versions: dict[int, dict[str, np.ndarray]] = {}
        found, _ = checkpoint.load(self.storage)
        if found is not None:
            self.versions = {v: found.part(f"version-{v}") for v in found.facts["versions"]}

    def publish(self, version: int, weights: dict[str, np.ndarray]) -> None:
        self.count += 1
        self.versions[version] = weights

    def is_published(self, version: int) -> bool:
        self.world.sleep(1.0)
        return version in self.versions

    def fetch(self, version: int, limit: float) -> dict[str, np.ndarray]:
        return self.versions[version]

    def step(self) -> None:
        self.count += 1

    def steps(self) -> int:
        return self.count


class Fit:
    """Ray Train: one worker, started again when it dies."""

    def __init__(self, world: World, storage: Storage, store: Store, attempts: list[int]) -> None:
        self.world, self.store, self.attempts = world, store, attempts
        self.message = pickle.dumps(storage)
        self.restarts, self.reason = 0, ""
        self.done = False
        self.seen, self.since = -1, world.now
        self.worker = self._start()

    def _start(self) -> Process:
        return self.world.spawn("worker", self._train)

    def _train(self) -> None:
        options = LearnOptions(Schedule(1, (1,) * ROUNDS), TrainingOptions(), online=True)
        task = round_worker.Task("driver", pickle.loads(self.message), self.store, options, LIMIT)
        try:
            worker = round_worker.Worker(task)
            self.attempts.append(worker.attempt)
            worker.run()
            self.done = True
        except TakenOver:
            raise
        except EpidaError as error:  # as `train_rounds` tells the driver
            self.reason = str(error)

    @property
    def running(self) -> bool:
        """Whether training goes on; a worker that died is started again, and one that is stopped is replaced."""
        if self.done:
            return False
        silent = self.worker.paused and self.world.choose.random() < 0.2
        if (self.worker.ended or self.worker.killed or silent) and not self.reason:
            if self.restarts == MOST_RESTARTS:
                raise RunError("training failed")
            self.restarts += 1
            self.worker = self._start()
        return True

    def check(self) -> None:
        if self.reason:
            raise RunError(self.reason)


@functools.cache
def _judged(round_: int, seen: int) -> Any:
    texts = [f"{row.text} in round {round_} by {seen}" for row in ROWS]
    one: dict[str, Any] = {"s_div": 1.0, "s_qua": 1.0, "s_tot": 2.0, "rank": 1, "operations": "x"}
    columns = {
        "sample_id": [r.id for r in ROWS], "text": [r.text for r in ROWS], "label": [i % 2 for i in range(len(ROWS))],
        "stage": [None] * 4, "reason": [None] * 4, "candidates": [[t] for t in texts], "flips": [0] * 4,
    } | {name: [[value]] * 4 for name, value in one.items()}  # fmt: skip
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in SELECTED})


def _judge(run: Run, round_: int, version: int, store: Store) -> None:
    """Write what is kept in a round, and then that it is judged."""
    seen = zlib.crc32(store.fetch(version, LIMIT)["w"].tobytes())
    block = _judged(round_, seen)
    for start in (0, 2):
        name = f"rows-{start:012d}-{start + 2:012d}-{FINGERPRINT[:12]}.parquet"
        origin = Origin(LABELS, "string", "x", round_, version, FINGERPRINT[:16])
        file = functools.partial(layout.shard_file, name=name, round_=round_)
        write(block.slice(start, 2), origin, 1, run.storage, file)
        store.step()
    facts = f'{{"judged_by_version": {version}}}'
    run.storage.write(layout.judged_file(round_), facts.encode())


def command(world: World, attempts: list[int], take_over: bool = False) -> str:
    """What `stream/driver.py: train` does; return how it ended."""
    Tiny.world = world
    run = Run(DIRECTORY)
    if run.open("train", REQUEST, {}, take_over=take_over):
        return "finished"
    with run, interruptible(run):
        if run.manifest.prepared is None:
            write_prepared(run.storage, "train", ROWS)
            write_prepared(run.storage, "dev", ROWS[:2])
            run.save(
                prepared=manifest.Prepared(train=4, dev=2, rejected=0), labels=list(LABELS), fingerprint=FINGERPRINT,
                status="running",
            )  # fmt: skip
        run.fingerprint = FINGERPRINT
        found, _ = checkpoint.load(run.storage)
        done = found.facts["round"] if found else -1
        store = Store(world, run.storage)
        fit = Fit(world, run.storage, store, attempts)
        try:
            _rounds(world, run, store, fit, done)
        except TakenOver:
            raise
        except RunError as error:
            with suppress(EpidaError):
                run.save(status="failed", failure=str(error))
            raise
        finally:
            fit.restarts = MOST_RESTARTS
            world.kill(fit.worker)
        found, _ = checkpoint.load(run.storage)
        if found is None:
            raise RunError("training ended without a checkpoint")
        run.storage.write(f"{layout.MODEL}/model", checkpoint.pack(found.part("best")))
        lines = [{k: v for k, v in line.items() if k != "seconds"} for line in found.facts["metrics"]]
        run.storage.write(layout.METRICS, repr(lines).encode())
        run.finish(best=manifest.Best(round=found.facts["best_round"], **found.facts["best"]))
    return "finished"


def _rounds(world: World, run: Run, store: Store, fit: Fit, done: int) -> None:
    judged = {layout.judged_round(name) for name in run.storage.names(layout.ROUNDS)}
    for round_ in [r for r in range(1, ROUNDS + 1) if r not in judged and r > done]:
        version = version_for(round_, 0)
        patience = steps.Patience(LIMIT, store.steps)
        while not store.is_published(version):
            fit.check()
            if not fit.running:
                return
            if patience.over():
                raise RunError(f"training did not publish version {version}")
        _judge(run, round_, version, store)
        if world.choose.random() < 0.1:
            store.restart()
    patience = steps.Patience(LIMIT, store.steps)
    while fit.running:
        fit.check()
        if patience.over():
            raise RunError("training made no step")
        world.sleep(1.0)
    fit.check()
