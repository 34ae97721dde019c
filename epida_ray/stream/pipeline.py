"""The stages read → generate → classify → select → write on Ray Data. A shard is one block from end to end."""

from __future__ import annotations

import functools
import gc
import json
import logging
import queue
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import ray
import ray.data

from epida_ray.core.errors import RunError
from epida_ray.core.sample import Rejected, Sample, sample_seeds
from epida_ray.data.inputs import Plan, Shard, ShardReader
from epida_ray.data.storage import Storage, refusal
from epida_ray.runs.run import COUNTS_KEY
from epida_ray.stream.cluster import FINISH_SHARE, ITEMS, Pools, silence_ray_data

if TYPE_CHECKING:
    from epida_ray.classify import Classifier
    from epida_ray.select.perplexity import LanguageModel

STAGES = ("read", "generate", "score", "select", "write")
IN_FLIGHT = 4
"""Shards that wait at an actor, the one in work included: it must not run dry while a busy driver hands out others."""
LANGUAGE_MODEL = "language-model"
"""The folder of the run with the n-gram model that `ppl` asks."""


@dataclass(frozen=True)
class Job:
    """All that an actor needs to know of a run; small, and sent by value."""

    plan: Plan
    storage: Storage
    fingerprint: str
    labels: tuple[str, ...]
    generator: str
    generator_args: dict[str, Any]
    protect: tuple[str, ...]
    m: int
    k: int
    select: str
    combine: str
    alpha: float
    normalize: bool
    seed: int
    candidates: bool
    with_originals: bool = False
    generator_timeout: float | None = None
    online: bool = False
    """Outputs go to a folder for each round."""
    model: str = "model"
    """The folder of the run that the classifier is in."""
    trust: tuple[str, ...] = ()
    """What that folder may run."""

    def load_classifier(self) -> Classifier:
        from epida_ray.classify import load

        with self.storage.local(self.model) as directory:
            return load(directory, trust=self.trust)

    @property
    def run_id(self) -> str:
        return self.fingerprint[:16]

    def file(self, folder: str, work: Work) -> str:
        """Where a shard's output of one kind goes."""
        name = self.plan.file_name(work.shard, self.fingerprint)
        return f"{folder}/{round_folder(work.round_)}/{name}" if self.online else f"{folder}/{name}"


def round_folder(round_: int) -> str:
    return f"round={round_:03d}"


class Work(NamedTuple):
    """One shard in one round: what a block carries from end to end. Round 0 is a run without rounds."""

    round_: int
    file: int
    start: int
    stop: int

    @property
    def shard(self) -> Shard:
        return Shard(self.file, self.start, self.stop)

    @classmethod
    def of(cls, block: pa.Table) -> Work:
        return cls(*(block[name][0].as_py() for name in cls._fields))


def _without_garbage_collection(call: Any) -> Any:
    """A shard is a hundred thousand small objects without cycles; looking for some costs a tenth of the time."""

    @functools.wraps(call)
    def wrapped(self: Any, block: pa.Table) -> Any:
        gc.disable()
        try:
            return call(self, block)
        finally:
            gc.enable()

    return wrapped


class Generate:
    """Reads a shard and proposes candidates for its samples: one row per sample from here on."""

    def __init__(self, job: Job) -> None:
        from epida_ray.generate import GENERATORS

        self.job = job
        self.reader = ShardReader(job.plan)
        self.generator = GENERATORS.create(job.generator, **job.generator_args)
        self.classifier = None
        if getattr(self.generator, "needs_classifier", False):
            self.classifier = job.load_classifier()
            self.generator.bind(self.classifier.predict_proba, self.classifier.labels)
        self.label_index = {label: i for i, label in enumerate(job.labels)}

    @_without_garbage_collection
    def __call__(self, block: pa.Table) -> pa.Table:
        from epida_ray.generate import propose, protect

        work = Work.of(block)
        clock = time.process_time()
        rows = self.reader.read(work.shard)
        ids, texts, labels, reasons = (rows[n].to_pylist() for n in ("sample_id", "text", "label", "reason"))
        stages: list[str | None] = ["read" if reason else None for reason in reasons]
        for i, label in enumerate(labels):
            if reasons[i] is None and label not in self.label_index:
                known = ", ".join(self.job.labels[:10]) + (", …" if len(self.job.labels) > 10 else "")
                stages[i], reasons[i] = "read", f"the label {label[:40]!r} is not one of {known}"
        read_seconds = time.process_time() - clock

        clock = time.process_time()
        good = [i for i, reason in enumerate(reasons) if reason is None]
        if self.job.protect:
            spans = protect([texts[i] for i in good], self.job.protect)
            samples = [Sample(ids[i], texts[i], labels[i], s) for i, s in zip(good, spans, strict=True)]
        else:
            samples = [Sample(ids[i], texts[i], labels[i]) for i in good]
        proposals = propose(
            self.generator,
            samples,
            self.job.k * self.job.m,
            run_seed=self.job.seed,
            round_=work.round_,
            name=self.job.generator,
            time_limit=self.job.generator_timeout,
        )
        counts = np.zeros(len(ids), dtype=np.int64)
        candidates: list[str] = []
        operations: list[str] = []
        for i, proposal in zip(good, proposals, strict=True):
            if isinstance(proposal, Rejected):
                stages[i], reasons[i] = "generate", proposal.reason
            else:
                counts[i] = len(proposal.texts)
                candidates += proposal.texts
                operations += proposal.operations
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int64())
        label_ids = np.array([self.label_index.get(label, -1) for label in labels], dtype=np.int32)
        table = pa.table(
            {
                "sample_id": rows["sample_id"],
                "text": rows["text"],
                "label": label_ids,
                "stage": pa.array(stages, pa.string()),
                "reason": pa.array(reasons, pa.string()),
                "candidates": pa.LargeListArray.from_arrays(offsets, pa.array(candidates, pa.large_string())),
                "operations": pa.LargeListArray.from_arrays(offsets, pa.array(operations, pa.string())),
            }
        )
        generate_seconds = time.process_time() - clock
        return _tag(table, work, read=read_seconds, generate=generate_seconds)


class Score:
    """Asks the classifier for the probabilities of every candidate and of its original, a whole shard per call."""

    def __init__(self, job: Job) -> None:
        self.classifier = job.load_classifier()
        if torch := sys.modules.get("torch"):  # a classifier that does without it need not wait for its import
            torch.set_num_threads(1)

    @_without_garbage_collection
    def __call__(self, block: pa.Table) -> pa.Table:
        clock = time.process_time()
        candidates = _column(block, "candidates")
        counts = np.diff(candidates.offsets.to_numpy())
        flat = candidates.flatten().to_pylist()
        originals = block["text"].to_pylist()
        texts: list[str] = []
        position = 0
        for text, count in zip(originals, counts.tolist(), strict=True):
            if count:
                texts.append(text)
                texts += flat[position : position + count]
                position += count
        probabilities = self.classifier.predict_proba(texts)
        sizes = np.where(counts > 0, counts + 1, 0) * len(self.classifier.labels)
        offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int64())
        flat_p = pa.array(np.ascontiguousarray(probabilities, dtype=np.float32).reshape(-1))
        scored = block.append_column("probabilities", pa.LargeListArray.from_arrays(offsets, flat_p))
        return scored.append_column("seconds_score", pa.array(np.full(len(block), time.process_time() - clock)))


class ScoreAndFinish(Score):
    """Both in one process: without GPUs there is nothing to keep busy meanwhile, and the block need not travel."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.job = job

    def __call__(self, block: pa.Table) -> Any:
        return finish(super().__call__(block), self.job)


class Finish:
    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, block: pa.Table) -> dict[str, list[Any]]:
        return finish(block, self.job)


def finish(block: pa.Table, job: Job, weights_version: int = 0) -> dict[str, list[Any]]:
    """Select, write the shard's files, and return its counts; a full disk is reported, not raised."""
    try:
        counts = _finish(block, Work.of(block), job, weights_version)
    except OSError as error:
        if (reason := refusal(error)) is None:
            raise
        node = ray.util.get_node_ip_address()
        counts = {"error": f"cannot write to {job.storage.location} on the node {node}: {reason}"}
    return {"counts": [json.dumps(counts)]}


def _finish(block: pa.Table, work: Work, job: Job, weights_version: int) -> dict[str, Any]:
    from epida_ray.select import ScoredBatch, needs_perplexity, parse

    clock = time.process_time()
    candidates, operations = _column(block, "candidates"), _column(block, "operations")
    offsets = candidates.offsets.to_numpy()
    counts = np.diff(offsets)
    scored = np.flatnonzero(counts)
    classes = len(job.labels)
    ids = _column(block, "sample_id")
    reads_texts = needs_perplexity(job.select)

    flat_p = _column(block, "probabilities").flatten().to_numpy(zero_copy_only=False).reshape(-1, classes)
    starts = np.concatenate(([0], np.cumsum(counts[scored] + 1)))[:-1]
    is_original = np.zeros(len(flat_p), dtype=bool)
    is_original[starts] = True
    owner = np.repeat(scored, counts[scored])
    batch = ScoredBatch(
        probabilities=flat_p[~is_original],
        offsets=np.concatenate(([0], np.cumsum(counts[scored]))),
        originals=flat_p[starts],
        labels=_column(block, "label").to_numpy()[scored],
        texts=candidates.flatten().to_pylist() if reads_texts else None,
        original_texts=_column(block, "text").take(pa.array(scored)).to_pylist() if reads_texts else None,
        seeds=np.array(
            sample_seeds(job.seed, work.round_, ids.take(pa.array(scored)).to_pylist(), "select", 0), dtype=np.uint64
        ),
    )
    selector = parse(
        job.select, combine=job.combine, alpha=job.alpha, normalize=job.normalize,
        perplexity=_language_model(job.storage.url) if reads_texts else None,
    )  # fmt: skip
    selection = selector.select(batch, job.m)
    kept, rank = selection.kept, selection.rank
    kept_counts = np.bincount(owner[kept], minlength=len(block))
    select_seconds = time.process_time() - clock

    clock = time.process_time()
    stage, reason = block["stage"].to_pylist(), block["reason"].to_pylist()
    for i in np.flatnonzero(kept_counts == 0).tolist():
        if reason[i] is None:
            if counts[i]:
                stage[i], reason[i] = "score", "the classifier's probabilities are not finite"
            else:
                stage[i], reason[i] = "generate", "no candidate that differs from the text could be made"
    rejected = [i for i, r in enumerate(reason) if r is not None]
    short = np.flatnonzero((kept_counts > 0) & (kept_counts < job.m))
    label_values = _label_values(job.labels, job.plan.label_type)
    block_labels = _column(block, "label").to_numpy()

    def rows(sample: np.ndarray, texts: pa.Array, made_by: pa.Array, generator: str, n: int) -> dict[str, Any]:
        where = pa.array(sample)
        return {
            "sample_id": ids.take(where),
            "text": texts.cast(pa.string()),
            "label": label_values.take(pa.array(block_labels[sample])),
            "source_text": _column(block, "text").take(where),
            "generator": pa.repeat(generator, n),
            "operation": made_by,
        }

    def scores(s_div: np.ndarray, s_qua: np.ndarray, s_tot: np.ndarray) -> dict[str, Any]:
        return {"s_div": pa.array(s_div), "s_qua": pa.array(s_qua), "s_tot": pa.array(s_tot)}

    if job.candidates:
        chosen = np.zeros(len(owner), dtype=bool)
        chosen[kept] = True
        table = pa.table(
            rows(owner, candidates.flatten(), operations.flatten(), job.generator, len(owner))
            | scores(selection.s_div, selection.s_qua, selection.s_tot)
            | {"kept": pa.array(chosen), "weights_version": _constant(weights_version, len(owner))}
        )
        job.storage.write_table(job.file("candidates", work), table)
    if len(short):
        table = pa.table(
            {
                "sample_id": ids.take(pa.array(short)),
                "candidates": counts[short],
                "kept": kept_counts[short],
                "asked": _constant(job.m, len(short)),
            }
        )
        job.storage.write_table(job.file("short", work), table)
    if rejected:
        write_rejected(
            job.storage,
            job.file("rejected", work),
            [(ids[i].as_py(), stage[i], reason[i], block["text"][i].as_py() or "") for i in rejected],
        )
    flat_index = pa.array(kept)
    columns = rows(
        owner[kept],
        candidates.flatten().take(flat_index),
        operations.flatten().take(flat_index),
        job.generator,
        len(kept),
    )
    columns |= {"round": _constant(work.round_, len(kept)), "rank": pa.array(rank.astype(np.int32))}
    columns |= scores(selection.s_div[kept], selection.s_qua[kept], selection.s_tot[kept])
    columns |= {"weights_version": _constant(weights_version, len(kept)), "run_id": pa.repeat(job.run_id, len(kept))}
    table = pa.table(columns)
    if job.with_originals:
        table = pa.concat_tables([_originals(block, work, job, label_values, rejected), table])
    result = {
        "rows": len(block),
        "candidates": len(owner),
        "kept": len(kept),
        "rejected": len(rejected),
        "short": len(short),
        "reasons": dict(Counter(_general(reason[i]) for i in rejected)),
        "s_div": float(selection.s_div[kept].sum()),
        "s_qua": float(selection.s_qua[kept].sum()),
        "flips": int((batch.probabilities[kept].argmax(axis=1) != block_labels[owner[kept]]).sum()),
    }
    table = table.replace_schema_metadata({COUNTS_KEY: json.dumps(result)})
    job.storage.write_table(job.file("augmented", work), table)
    seconds = {stage_: block[f"seconds_{stage_}"][0].as_py() for stage_ in ("read", "generate", "score")}
    seconds |= {"select": select_seconds, "write": time.process_time() - clock}
    return result | {"seconds": seconds, "node": ray.util.get_node_ip_address()}


def prepare_language_model(storage: Storage, texts: Iterable[str]) -> None:
    """Estimate the n-gram model of the training texts and put it into the run's directory, once."""
    from epida_ray.select.perplexity import LanguageModel

    if not storage.exists(f"{LANGUAGE_MODEL}/model.arpa"):
        with tempfile.TemporaryDirectory(prefix="epida-") as folder:
            LanguageModel.estimate(texts, keep=Path(folder) / "model.arpa")
            storage.upload(Path(folder), LANGUAGE_MODEL)


@functools.lru_cache(maxsize=1)
def _language_model(location: str) -> LanguageModel:
    from epida_ray.select.perplexity import LanguageModel

    with Storage(location).local(LANGUAGE_MODEL) as folder:
        return LanguageModel(folder / "model.arpa")


def _originals(block: pa.Table, work: Work, job: Job, label_values: pa.Array, rejected: list[int]) -> pa.Table:
    """The samples themselves, as rows of `augmented/`: rank 0, no scores."""
    sample = np.setdiff1d(np.arange(len(block)), rejected)
    n, where = len(sample), pa.array(sample)
    texts = _column(block, "text").take(where)
    nothing = pa.nulls(n, pa.float64())
    return pa.table(
        {
            "sample_id": _column(block, "sample_id").take(where),
            "text": texts,
            "label": label_values.take(pa.array(_column(block, "label").to_numpy()[sample])),
            "source_text": texts,
            "generator": pa.repeat("original", n),
            "operation": pa.repeat("original", n),
            "round": _constant(work.round_, n),
            "rank": _constant(0, n),
            "s_div": nothing,
            "s_qua": nothing,
            "s_tot": nothing,
            "weights_version": _constant(0, n),
            "run_id": pa.repeat(job.run_id, n),
        }
    )


def write_rejected(storage: Storage, name: str, rows: list[tuple[str, str, str, str]]) -> None:
    """(sample id, stage, reason, text) of rows that were set aside; of the text the first 200 characters."""
    ids, stages, reasons, texts = zip(*rows, strict=True)
    table = pa.table(
        {
            "sample_id": pa.array(ids, pa.string()),
            "stage": pa.array(stages, pa.string()),
            "reason": pa.array(reasons, pa.string()),
            "text": pa.array([t[:200] for t in texts], pa.string()),
        }
    )
    storage.write_table(name, table)


def data_context() -> ray.data.DataContext:
    """Ray Data's settings here: a shard stays one block, no actor is ended for being idle, our own progress."""
    silence_ray_data(logging.ERROR)
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.target_max_block_size = None
    context.raise_original_map_exception = True
    # An actor that waits a moment for the stage before it is needed again, and costs seconds to start.
    context.autoscaling_config = replace(context.autoscaling_config, actor_pool_util_downscaling_threshold=-1.0)
    return context


def map_blocks(data: ray.data.Dataset, gpus: float) -> Any:
    """`map_batches` that leaves blocks whole: with GPUs the public one insists on a batch size, and joins them."""
    return data.map_batches_internal if gpus else data.map_batches


def run_shards(
    job: Job,
    shards: list[Shard],
    pools: Pools,
    stall_timeout: float,
    generate: type = Generate,
    score: type = ScoreAndFinish,
) -> Iterator[dict[str, Any]]:
    """Work through `shards` in any order; yields each one's counts when its files are committed.

    Without GPUs there are two stages, `generate` and `score`, of which the second also selects and writes.
    """
    context = data_context()
    items = [Work(0, *shard)._asdict() for shard in shards]

    def stage(data: ray.data.Dataset, actor: type, size: int, cpus: float, gpus: float = 0.0) -> ray.data.Dataset:
        size = max(1, min(size, len(items)))
        return map_blocks(data, gpus)(
            actor,
            fn_constructor_args=(job,),
            batch_format="pyarrow",
            batch_size=None,
            compute=ray.data.ActorPoolStrategy(
                min_size=1,
                max_size=size,
                initial_size=size,
                # with few shards, the first actor that is up must not take those of the others
                max_tasks_in_flight_per_actor=min(IN_FLIGHT, max(1, len(items) // size)),
            ),
            num_cpus=cpus,
            num_gpus=gpus or None,
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
    results = (value for batch in bounded(iter(batches), stall_timeout) for value in batch["counts"].to_pylist())
    for value in islice(results, len(items)):
        counts = json.loads(value)
        if "error" in counts:
            raise RunError(counts["error"])
        yield counts


def bounded(items: Iterator[Any], limit: float, what: str = "shard") -> Iterator[Any]:
    """The same items, but waiting longer than `limit` seconds for one ends in an error that says so."""
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
            try:
                item = results.get(timeout=limit)
            except queue.Empty:
                raise RunError(
                    f"no {what} came for {limit:.0f} s; `ray status` shows what waits. --stall-timeout sets the limit"
                ) from None
            if item is end:
                return
            if isinstance(item, BaseException):
                raise RunError(f"a stage failed: {cause(item)}") from item
            yield item

    return arrivals()


_ADVICE = re.compile(r"(?:\\n|\s)*Failed to (?:(?!Failed to ).)*? after \d+/\d+ attempts \(total backoff.*", re.DOTALL)
"""What Ray Data appends to every error: how often it tried, and how to make it try again."""


def cause(error: BaseException) -> str:
    """The innermost reason of a Ray error, on one line; of a long one both ends, for a traceback has it at its end."""
    while (inner := getattr(error, "cause", None) or error.__cause__) is not None:
        error = inner
    text = " ".join(_ADVICE.sub("", str(error)).split())
    if len(text) > 400:
        text = f"{text[:200]} … {text[-200:]}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _tag(table: pa.Table, work: Work, **seconds: float) -> pa.Table:
    for name, value in zip(Work._fields, work, strict=True):
        table = table.append_column(name, pa.array(np.full(len(table), value)))
    for name, spent in seconds.items():
        table = table.append_column(f"seconds_{name}", pa.array(np.full(len(table), spent)))
    return table


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table[name].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _constant(value: int, n: int) -> pa.Array:
    return pa.array(np.full(n, value, dtype=np.int32))


def _label_values(labels: tuple[str, ...], label_type: str) -> pa.Array:
    """The labels as the output has them: of the input's type, or strings where one of them is of another type."""
    values = pa.array(labels, pa.string())
    try:
        typed = values.cast(label_type)
    except pa.ArrowInvalid:
        return values
    return typed if typed.cast(pa.string()).equals(values) else values


def _general(reason: str) -> str:
    """A reason without what it quotes, which differs from row to row, for counting."""
    return re.sub(r"""(?<!\w)(['"])(?:\\.|[^\\])*?\1(?!\w)""", "…", reason)
