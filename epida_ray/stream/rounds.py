"""Candidates for round after round, and the scorers that judge them; both live as long as the run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import ray
import ray.data

from epida_ray.core.errors import RunError
from epida_ray.core.steps import Patience
from epida_ray.method.transport import RoundClock, WeightTransport, version_for
from epida_ray.runs.counts import ShardCounts
from epida_ray.stream.cluster import Pools
from epida_ray.stream.compat import block_references, map_blocks
from epida_ray.stream.pipeline import LOOK_EVERY, Generate, Job, Score, Work, bounded, data_context, failure, finish

AHEAD = 2
"""Rounds that generation may run ahead of training; more would take the cores that training needs."""


class GenerateAhead(Generate):
    """Wait until the round is near enough; a generator that attacks the classifier waits for the round's weights."""

    def __init__(self, job: Job, transport: WeightTransport, clock: RoundClock, limit: float) -> None:
        super().__init__(job)
        self.transport, self.clock, self.limit = transport, clock, limit
        self.version = 0

    def __call__(self, block: pa.Table) -> pa.Table:
        round_ = Work.of(block).round_
        if self.classifier is None:
            self.clock.wait(round_ - AHEAD, self.limit)
        elif self.version != (version := version_for(round_, self.transport.staleness)):
            self.classifier.load_state(self.transport.fetch(version, self.limit))  # type: ignore[attr-defined]
            self.version = version
        made = super().__call__(block)
        return made.append_column("generator_pid", pa.array([os.getpid()] * len(made)))


class Judged(NamedTuple):
    """A scorer's answer for one shard."""

    counts: ShardCounts
    scorer_pid: int
    generator_pid: int
    load_seconds: float
    busy_seconds: float
    pool: bool = False
    """Whether it is a shard of the unlabelled texts."""


class Scorer:
    """Hold the classifier, load the weights it is told to, judge a shard and write what is kept."""

    def __init__(self, job: Job, transport: WeightTransport, limit: float) -> None:
        self.score = Score(job)
        self.job, self.transport, self.limit = job, transport, limit
        self.version = 0

    def judge(self, block: pa.Table, work: Work, version: int) -> Judged:
        if Work.of(block) != work:
            raise RunError(f"a block of {Work.of(block)} came where {work} was expected")
        began = time.perf_counter()
        if self.version != version:
            self.score.classifier.load_state(self.transport.fetch(version, self.limit))  # type: ignore[attr-defined]
            self.version = version
        loaded = time.perf_counter()
        counts = finish(self.score(block), self.job, version)
        generator = block["generator_pid"][0].as_py()
        busy = time.perf_counter() - loaded
        return Judged(counts, os.getpid(), generator, loaded - began, busy, bool(work.pool))


class Scorers:
    """The scorer actors. A killed one is restarted by Ray and does its shard again."""

    def __init__(self, job: Job, transport: WeightTransport, pools: Pools, limit: float) -> None:
        make_actor: Any = ray.remote(
            num_cpus=pools.scorer_cpus, num_gpus=pools.scorer_gpus, max_restarts=-1, max_task_retries=-1
        )
        self.limit, self.transport = limit, transport
        actor = make_actor(Scorer)
        self.actors = [actor.remote(job, transport, limit) for _ in range(pools.scorers)]

    def __enter__(self) -> Scorers:
        return self

    def __exit__(self, *exception: object) -> None:
        for actor in self.actors:
            ray.kill(actor)

    def judge(self, blocks: Iterator[tuple[Work, Any]], version: int) -> Iterator[Judged]:
        """Yield results in any order; each actor has at most two shards waiting, so that nothing piles up."""
        waiting: dict[Any, int] = {}
        load = [0] * len(self.actors)
        for work, block in blocks:
            while min(load) >= 2:
                yield self._next(waiting, load)
            number = load.index(min(load))
            waiting[self.actors[number].judge.remote(block, work, version)] = number
            load[number] += 1
        while waiting:
            yield self._next(waiting, load)

    def _next(self, waiting: dict[Any, int], load: list[int]) -> Judged:
        patience = Patience(self.limit, self.transport.steps)
        ready: list[Any] = []
        while not ready:
            ready, _ = ray.wait(list(waiting), timeout=min(self.limit, LOOK_EVERY))
            if not ready and patience.over():
                silent = ", ".join(str(number + 1) for number in sorted(set(waiting.values())))
                raise RunError(
                    f"scorer {silent} of {len(self.actors)} did not answer, and no progress was "
                    f"reported for {self.limit:.0f} s; --stall-timeout sets the limit"
                )
        load[waiting.pop(ready[0])] -= 1
        try:
            answer: Judged = ray.get(ready[0], timeout=60)
            return answer
        except ray.exceptions.RayError as error:
            raise failure("a scorer", error) from error


class Candidates:
    """One Ray Data execution that generates for all rounds, in order, ahead of its use."""

    def __init__(
        self, job: Job, transport: WeightTransport, clock: RoundClock, pools: Pools, work: list[Work], limit: float
    ) -> None:
        self.work = work
        context = data_context()
        context.execution_options.preserve_order = True
        size = max(1, min(pools.generators, len(self.work)))
        with ray.data.DataContext.current(context):
            items = [w._asdict() for w in self.work]
            source = ray.data.from_items(items, override_num_blocks=len(items))
            data = map_blocks(
                source,
                GenerateAhead,
                pools.generator_gpus,
                fn_constructor_args=(job, transport, clock, limit),
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=size, initial_size=size),
                num_cpus=pools.generator_cpus,
            )
            self._blocks = zip(
                self.work, bounded(block_references(data), limit, transport, "shard of candidates"), strict=True
            )
        self.waited = 0.0

    def of_round(self, round_: int, shards: int) -> Iterator[tuple[Work, Any]]:
        """Yield (work, reference to the block) of each shard of the round, which must be the next one."""
        self.waited = 0.0
        for _ in range(shards):
            began = time.perf_counter()
            work, block = next(self._blocks)
            self.waited += time.perf_counter() - began
            if work.round_ != round_:
                raise RunError(f"candidates of round {work.round_} came where round {round_} was expected")
            yield work, block
