"""`epida augment` in the simulated world: the run, its shards and actors that may die, stop or answer twice."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from epida_ray.core.errors import EpidaError, RunError, TakenOver, TooManyRejected
from epida_ray.core.sample import Candidates, Rejected
from epida_ray.data.inspection import Columns, InputFile
from epida_ray.data.plan import Plan, Shard
from epida_ray.data.storage import refusal
from epida_ray.method import stages
from epida_ray.method.output import Origin, write
from epida_ray.method.round import one_round
from epida_ray.method.stages import RoundOptions
from epida_ray.runs import layout
from epida_ray.runs.counts import ShardCounts
from epida_ray.runs.run import Run, digest, interruptible
from tests.simulator.patches import DIRECTORY
from tests.simulator.world import Process, World

ROWS = 5
PLAN = Plan(
    root="sim", files=(InputFile(path="in.csv", format="csv", bytes=100, digest="d", rows=ROWS),), columns=Columns(),
    shard_rows=2,
)  # fmt: skip
LABELS = ("a", "b")
REQUESTS: tuple[dict[str, Any], ...] = ({"m": 2, "input": "d"}, {"m": 1, "input": "d"}, {"m": 2, "input": "changed"})
"""The same command, one with another option, and one whose input was changed."""
SILENCE = 30.0
"""Seconds after which an actor that does not answer counts as lost, and its shard is given to another."""


class _Marks:
    def generate(self, samples: Any, n: int, seeds: Any) -> list[Candidates | Rejected]:
        return [
            Rejected("no rewriting")
            if s.id.endswith("3")
            else Candidates([f"{s.text} {i}" for i in range(n)], ["x"] * n)
            for s in samples
        ]


class _Judge:
    labels = LABELS

    def predict_proba(self, texts: Any) -> np.ndarray:
        p = np.array([(1 + sum(text.encode()) % 7) / 9 for text in texts], np.float32)
        return np.stack([p, 1 - p], axis=1)


@functools.cache
def selected(m: int, shard: Shard) -> Any:
    """Return a shard after the real stages, before it is written; an undisturbed run and all others write this."""
    options = RoundOptions(LABELS, m=m, k=2)
    rows = range(shard.start, shard.stop)
    block = stages.block_of(
        [f"in.csv:{i}" for i in rows], [f"text number {i}" for i in rows], np.array([i % 2 for i in rows])
    )
    return one_round(block, _Marks(), _Judge(), options.make_selector(), options, 0)


def fingerprint(request: dict[str, Any]) -> str:
    return digest([request, "model"])


class Pool:
    """What Ray does with the shards: actors, and another attempt when one is lost."""

    def __init__(self, world: World, run: Run, request: dict[str, Any], left: list[Shard], lossy: bool) -> None:
        self.world, self.request, self.lossy = world, request, lossy
        self.message = pickle.dumps(run.storage)
        self.waiting, self.expected = list(left), len(left)
        self.actors: list[Process] = []
        self.taken: dict[Process, tuple[Shard, float]] = {}
        self.results: list[ShardCounts | Exception] = []
        self.done: set[Shard] = set()
        self.closed = False
        for _ in range(min(2, len(left))):
            self._actor()

    def _actor(self) -> None:
        self.actors.append(self.world.spawn("actor", lambda: self._work()))

    def _work(self) -> None:
        storage = pickle.loads(self.message)
        me = self.world.current
        assert me is not None
        while not self.closed:
            if not self.waiting:
                self.world.sleep(1.0)
                continue
            shard = self.waiting.pop(0)
            self.taken[me] = shard, self.world.now
            answer = self._commit(storage, shard)
            self.taken.pop(me, None)
            if shard not in self.done and self.world.choose.random() > 0.05:  # an answer may get lost
                self.done.add(shard)
                self.results.append(answer)
            elif shard not in self.done:
                self.waiting.append(shard)

    def _commit(self, storage: Any, shard: Shard) -> ShardCounts | Exception:
        """What `stream/pipeline.py: finish` does after the selection."""
        name = PLAN.file_name(shard, fingerprint(self.request))
        origin = Origin(LABELS, "string", "x", 0, 0, fingerprint(self.request)[:16])
        m = self.request["m"]
        try:
            return write(selected(m, shard), origin, m, storage, lambda folder: layout.shard_file(folder, name))
        except TakenOver as error:
            return ShardCounts(error=str(error), taken_over=True)
        except OSError as error:
            if (reason := refusal(error)) is not None:
                return ShardCounts(error=reason)
            return error
        except EpidaError as error:
            return error

    def __iter__(self) -> Iterator[ShardCounts]:
        given = 0
        while given < self.expected:
            self._replace_the_lost()
            if not self.results:
                self.world.sleep(1.0)
                continue
            given += 1
            result = self.results.pop(0)
            if isinstance(result, Exception):
                if self.lossy:  # Ray Data, told to go on without blocks that failed
                    continue
                raise RunError(f"a stage failed: {result}")
            result.check()
            yield result

    def _replace_the_lost(self) -> None:
        for actor, (shard, since) in list(self.taken.items()):
            if actor.ended or actor.killed or self.world.now - since > SILENCE:
                del self.taken[actor]
                self.waiting.append(shard)
                self._actor()
        if self.waiting and all(actor.ended or actor.killed for actor in self.actors):
            self._actor()  # the last one was killed while it had no shard


def command(world: World, request: dict[str, Any], take_over: bool = False, lossy: bool = False) -> str:
    """What `stream/augment.py: augment` does, with preparation that takes a while; return how it ended."""
    run = Run(DIRECTORY)
    if run.open("augment", request, {}, take_over=take_over):
        return "finished"
    with run, interruptible(run):
        for _ in range(world.choose.randint(0, 3)):
            world.sleep(world.choose.choice([0.1, 5.0]))
        run.save(model_digest="model", labels=list(LABELS))
        left = run.start(PLAN, fingerprint(request))
        pool = Pool(world, run, request, left, lossy)
        try:
            for counts in pool:
                run.totals.add(counts)
                run.digests.update(counts.files)
                if world.choose.random() < 0.3:
                    run.save_progress()
        except (TooManyRejected, TakenOver):
            raise
        except RunError as error:
            with suppress(EpidaError):
                run.save(status="failed", failure=str(error))
            raise
        finally:
            pool.closed = True
        run.check_rejected(1.0)
        run.check_complete()
        run.finish()
    return "finished"
