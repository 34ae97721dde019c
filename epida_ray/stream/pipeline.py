"""The stages of `method/` on Ray Data actors. A shard is one block from end to end and carries its key."""

from __future__ import annotations

import functools
import logging
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray
import ray.data

from epida_ray.classify import Classifier, load
from epida_ray.classify.aligned import aligned
from epida_ray.core.errors import EpidaError, RunError, TakenOver
from epida_ray.core.steps import Patience, listening
from epida_ray.data.plan import Plan, Shard
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage, refusal
from epida_ray.method import stages
from epida_ray.method.corpus import bind_corpus
from epida_ray.method.output import Origin, write, write_labelled, write_pool
from epida_ray.method.prepare import load_language_model
from epida_ray.method.requests import NO_GENERATOR
from epida_ray.method.schema import Block
from epida_ray.method.stages import RoundOptions, no_garbage_collection
from epida_ray.method.transport import StepCount
from epida_ray.runs import layout
from epida_ray.runs.counts import ShardCounts
from epida_ray.runs.crashes import REASON as CRASH
from epida_ray.runs.crashes import Crashes
from epida_ray.select import needs_perplexity
from epida_ray.stream.cluster import FINISH_SHARE, Pools, silence_ray_data
from epida_ray.stream.compat import ITEMS, keep_idle_actors, map_blocks, was_restarted

LOOK_EVERY = 2.0
"""Seconds between two looks, while nothing arrives, at whether anybody makes steps."""
IN_FLIGHT = 4
"""Shards that wait at an actor, the one in work included, so that it never runs dry while the driver is busy."""


@dataclass(frozen=True)
class Job:
    """All that an actor needs to know of a run; small, and sent by value."""

    plan: Plan
    storage: Storage
    fingerprint: str
    options: RoundOptions
    candidates: bool
    with_originals: bool = False
    online: bool = False
    """Whether outputs go to a folder for each round."""
    model: str = layout.MODEL
    """The folder of the run that holds the classifier."""
    trust: tuple[str, ...] = ()
    """Code that this folder may run."""
    pool: Plan | None = None
    """Unlabelled texts."""
    pool_rewrites: bool = False
    labelling: bool = False
    """Whether the run only labels the pool."""
    teacher: bool = False
    """Whether the run has a teacher, who judges quality and labels rewrites and unlabelled texts."""
    owner: int = 0
    """The number of the driver's claim of the directory."""
    steps: StepCount | None = None
    """Hears of every step in the middle of a shard, or the driver would give slow shards up."""

    def heard(self) -> AbstractContextManager[None]:
        return nullcontext() if self.steps is None else listening(self.steps.step)

    def load_classifier(self, folder: str | None = None) -> Classifier:
        with self.storage.local(folder or self.model) as directory:
            classifier: Classifier = load(directory, trust=self.trust)
        return classifier

    def file(self, folder: str, work: Work) -> str:
        """Return the path of a shard's output of one kind."""
        plan, prefix = (self.pool, "" if self.labelling else "pool-") if work.pool else (self.plan, "")
        assert plan is not None
        name = prefix + plan.file_name(work.shard, self.fingerprint)
        return layout.shard_file(folder, name, work.round_ if self.online else None)

    def key(self, work: Work) -> str:
        """Return a file name that tells the shard of this round from all others."""
        return self.file(layout.AUGMENTED, work).replace("/", "~")

    def origin(self, work: Work, weights_version: int) -> Origin:
        return Origin(
            self.options.labels, self.plan.label_type, self.options.generator, work.round_, weights_version,
            self.fingerprint[:16],
        )  # fmt: skip


class Work(NamedTuple):
    """One shard in one round: the key that a block carries. Round 0 is a run without rounds."""

    round_: int
    file: int
    start: int
    stop: int
    pool: int = 0
    """1 for a shard of the unlabelled texts."""

    @property
    def shard(self) -> Shard:
        return Shard(self.file, self.start, self.stop)

    @classmethod
    def of(cls, block: Block) -> Work:
        return cls(*(block[name][0].as_py() for name in cls._fields))


def _tagged(block: Block, name: str, value: float) -> Block:
    """Add a column with one value: the key of the shard, or the CPU seconds of a stage."""
    return block.append_column(name, pa.array(np.full(len(block), value)))


def _timed(block: Block, stage: str, clock: float) -> Block:
    return _tagged(block, f"seconds_{stage}", time.process_time() - clock)


class Generate:
    """Read a shard and generate candidates."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.readers = [ShardReader(plan) for plan in (job.plan, job.pool) if plan is not None]
        self.generator = None if job.options.generator == NO_GENERATOR else job.options.make_generator()
        bind_corpus(job.storage, self.generator)
        self.crashes = Crashes(job.storage, "generate", was_restarted(), job.owner)
        self.classifier = None
        if stages.needs_classifier(self.generator):
            self.classifier = job.load_classifier()
            stages.bind_generator(self.generator, self.classifier)

    def __call__(self, block: Block) -> Block:
        work = Work.of(block)
        with no_garbage_collection(), self.job.heard():
            clock = time.process_time()
            rows = self.readers[work.pool].read(work.shard)
            block = stages.read_unlabelled(rows) if work.pool else stages.read(rows, self.job.options.labels)
            block = _timed(block, "read", clock)
            clock = time.process_time()
            if work.pool and not self.job.pool_rewrites:
                block = stages.without_candidates(block)
            else:
                block = self._generate(block, work)
            block = _timed(block, "generate", clock)
        for name, value in zip(Work._fields, work, strict=True):
            block = _tagged(block, name, value)
        return block

    def _generate(self, block: Block, work: Work) -> Block:
        def generate(block: Block) -> Block:
            return stages.generate(block, self.generator, self.job.options, work.round_)

        def part(start: int, stop: int) -> Block:
            return generate(block.slice(start, stop - start))

        with self.crashes.survived(self.job.key(work), len(block), part) as bad:
            return generate(stages.reject(block, bad, "generate", CRASH))


class Score:
    """Score a whole shard in one call, with one thread, so that its numbers do not depend on the cluster."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.classifier = job.load_classifier()
        self.teacher = aligned(job.load_classifier(layout.TEACHER), job.options.labels) if job.teacher else None
        self.crashes = Crashes(job.storage, "score", was_restarted(), job.owner)
        if torch := sys.modules.get("torch"):  # a classifier that does without it need not wait for its import
            torch.set_num_threads(1)

    def __call__(self, block: Block) -> Block:
        with no_garbage_collection(), self.job.heard():
            clock, work = time.process_time(), Work.of(block)

            def part(start: int, stop: int) -> Block:
                return self._score(block.slice(start, stop - start), work)

            with self.crashes.survived(self.job.key(work), len(block), part) as bad:
                scored = self._score(stages.reject(block, bad, "score", CRASH), work)
            return _timed(scored, "score", clock)

    def _score(self, block: Block, work: Work) -> Block:
        if self.teacher is not None:
            block = stages.score_rows(block, self.teacher, "teacher")
        if self.teacher is None or not work.pool or self.job.pool_rewrites:
            block = stages.score_rows(block, self.classifier)
        return block


class Finish:
    """Select and write a shard; give back its counts."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, block: Block) -> pa.Table:
        return finish(block, self.job).to_block()


class ScoreAndFinish(Score):
    """Score and finish in one process: without GPUs, nothing else could use the time, and the block need not travel."""

    def __call__(self, block: Block) -> pa.Table:
        return finish(super().__call__(block), self.job).to_block()


def finish(block: Block, job: Job, weights_version: int = 0) -> ShardCounts:
    """Select, write the shard's files and return its counts; a full disk is reported in them, not raised."""
    work, options = Work.of(block), job.options
    node = ray.util.get_node_ip_address()
    clock = time.process_time()
    p = None
    if work.pool:
        p = stages.original_probabilities(block, "teacher" if job.teacher else "probabilities", len(options.labels))
    selected = block
    if not work.pool or job.pool_rewrites:
        selected = stages.select(block, _selector(options, job.storage.url), options, work.round_)
    seconds = {stage: block[f"seconds_{stage}"][0].as_py() for stage in ("read", "generate", "score")}
    seconds["select"] = time.process_time() - clock
    clock = time.process_time()

    def file(folder: str) -> str:
        return job.file(folder, work)

    try:
        if p is not None and job.labelling:
            counts = write_labelled(block, p, options.labels, job.storage, file)
        elif p is not None:
            counts = write_pool(selected, p, job.storage, file)
        else:
            counts = write(
                selected, job.origin(work, weights_version), options.wanted(selected["label"].to_numpy()), job.storage,
                file, candidates=job.candidates, originals=job.with_originals,
            )  # fmt: skip
    except TakenOver as error:
        return ShardCounts(error=str(error), taken_over=True)
    except OSError as error:
        if (reason := refusal(error)) is None:
            raise
        return ShardCounts(error=f"cannot write to {job.storage.location} on the node {node}: {reason}")
    seconds["write"] = time.process_time() - clock
    return ShardCounts(**vars(counts) | {"seconds": seconds, "node": node})


def _selector(options: RoundOptions, location: str) -> Any:
    return options.make_selector(_language_model(location) if needs_perplexity(options.select) else None)


@functools.lru_cache(maxsize=1)
def _language_model(location: str) -> Any:
    return load_language_model(Storage(location))


def data_context() -> ray.data.DataContext:
    """Return the settings that runs depend on, whatever the caller's own are."""
    silence_ray_data(logging.ERROR)
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.target_max_block_size = None  # a shard stays one block
    context.raise_original_map_exception = True
    context.max_errored_blocks = 0  # a block that fails must never be left out
    keep_idle_actors(context)
    return context


def run_shards(
    job: Job,
    shards: list[Shard],
    pools: Pools,
    stall_timeout: float,
    generate: type = Generate,
    score: type = ScoreAndFinish,
) -> Iterator[ShardCounts]:
    """Work through `shards` in any order; yield each one's counts when its files are committed.

    Without GPUs there are two stages, `generate` and `score`, of which the second also selects and writes.
    """
    context = data_context()
    items = [Work(0, *shard, pool=int(job.labelling))._asdict() for shard in shards]

    def stage(data: ray.data.Dataset, actor: type, size: int, cpus: float, gpus: float = 0.0) -> ray.data.Dataset:
        size = max(1, min(size, len(items)))
        return map_blocks(
            data,
            actor,
            gpus,
            fn_constructor_args=(job,),
            compute=ray.data.ActorPoolStrategy(
                min_size=1,
                max_size=size,
                initial_size=size,
                # with few shards, the first actor that is up must not take those of the others
                max_tasks_in_flight_per_actor=min(IN_FLIGHT, max(1, len(items) // size)),
            ),
            num_cpus=cpus,
        )

    with ray.data.DataContext.current(context):
        data: ray.data.Dataset = ray.data.from_items(items, override_num_blocks=len(items))
        data = stage(data, generate, pools.generators, pools.generator_cpus, pools.generator_gpus)
        if pools.scorer_gpus:
            data = stage(data, Score, pools.scorers, pools.scorer_cpus, pools.scorer_gpus)
            data = stage(data, Finish, pools.scorers, FINISH_SHARE)
        else:
            data = stage(data, score, pools.scorers, pools.scorer_cpus)
        batches = data.iter_batches(batch_size=None, prefetch_batches=0, batch_format="pyarrow")
    # Not one more than there are: the end of the stream comes when Ray Data has ended its actors, a second later.
    for block in islice(bounded(iter(batches), stall_timeout, job.steps), len(items)):
        counts = ShardCounts.from_block(block)
        counts.check()
        yield counts


def bounded(items: Iterator[Any], limit: float, steps: StepCount | None = None, what: str = "shard") -> Iterator[Any]:
    """Yield the same items, but raise RunError after `limit` seconds in which neither one came nor a step was made."""
    end = object()
    results: queue.Queue[Any] = queue.Queue()

    def pull() -> None:
        try:
            for item in items:
                results.put(item)
            results.put(end)
        except BaseException as error:
            results.put(error)

    threading.Thread(target=pull, daemon=True, name=ITEMS).start()

    def arrivals() -> Iterator[Any]:
        while True:
            item = _arrival(results, limit, steps, what)
            if item is end:
                return
            if isinstance(item, BaseException):
                raise failure("a stage", item) from item
            yield item

    return arrivals()


def _arrival(results: queue.Queue[Any], limit: float, steps: StepCount | None, what: str) -> Any:
    patience = Patience(limit, steps.steps if steps is not None else lambda: 0)
    while True:
        with suppress(queue.Empty):
            return results.get(timeout=min(limit, LOOK_EVERY))
        if patience.over():
            raise RunError(
                f"no {what} was finished and no progress was reported for {limit:.0f} s; `ray status` shows what is "
                "pending, --stall-timeout sets the limit"
            )


_ADVICE = re.compile(r"(?:\\n|\s)*Failed to (?:(?!Failed to ).)*? after \d+/\d+ attempts \(total backoff.*", re.DOTALL)
"""What Ray Data appends to every error: how often it tried, and how to make it try again."""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what caused it, the innermost last."""
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        inner = getattr(inner, "cause", None) or inner.__cause__


def failure(what: str, error: BaseException) -> EpidaError:
    """Return what to raise for an error of Ray's: our own error as the actor raised it, else a RunError."""
    for inner in _causes(error):
        # Ray's own wrapper is an instance of the class that it wraps, too
        if isinstance(inner, EpidaError) and not isinstance(inner, ray.exceptions.RayError):
            return type(inner)(_ADVICE.sub("", str(inner)).strip())
    return RunError(f"{what} failed: {cause(error)}")


def cause(error: BaseException) -> str:
    """Return the innermost reason of a Ray error on one line; of a long one both ends, where tracebacks say most."""
    *_, error = _causes(error)
    text = " ".join(_ADVICE.sub("", str(error)).split())
    if len(text) > 400:
        text = f"{text[:200]} … {text[-200:]}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
