"""`epida train`: the classifier chooses its own training data while it learns.

Three things live for the whole run: one Ray Data execution that generates candidates for all rounds, the scorer
actors, and one Ray Train run. The driver only passes things on: a round's blocks to the scorers, and word that a
round is judged to the train workers, through the run's directory.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray
import ray.train
import ray.train.torch

from epida_ray.classify import create
from epida_ray.classify import load as load_classifier
from epida_ray.classify.training import TrainingOptions, dev_split
from epida_ray.core.errors import EpidaError, RequestError, RunError
from epida_ray.core.progress import Reporter, Tracker, best_round
from epida_ray.data.inputs import Columns, Plan, plan_inputs
from epida_ray.data.storage import Storage, below, refusal
from epida_ray.generate import GENERATORS
from epida_ray.method.evaluate import evaluate_model
from epida_ray.method.requests import AugmentConfig, TrainConfig
from epida_ray.runs import checkpoint
from epida_ray.runs.run import COUNTED, Counts, Run, digest, directory_digest
from epida_ray.select import needs_perplexity
from epida_ray.stream.augment import (
    FEW,
    FEW_DEV_ROWS,
    Row,
    check_files,
    columns_of,
    given_classifier,
    interruptible,
    known_labels,
    label_set,
    read_labelled,
    set_aside,
)
from epida_ray.stream.cluster import Pools, connected, fit_pools
from epida_ray.stream.metrics import RunMetrics
from epida_ray.stream.pipeline import STAGES, Job, cause, prepare_language_model, round_folder
from epida_ray.stream.rounds import Candidates, Scorers, version_for
from epida_ray.stream.weights import StoreTransfer, start_store
from epida_ray.stream.worker import FAILURE, Task, ready_file, train_rounds

ROUND_SHARD = 256
"""The fewest rows of a shard: a round waits for its last one, and a smaller one costs as much as it saves."""
MAX_FAILURES = 8
"""Train workers may die this often in one run before it gives up."""


@dataclass(frozen=True)
class TrainResult:
    """The trained model, where it is, and how it got there."""

    output: str
    metrics: list[dict[str, Any]]
    test: dict[str, Any] | None
    trust: tuple[str, ...] = ()

    @property
    def model_dir(self) -> str:
        return below(self.output, "model")

    def model(self) -> Any:
        return load_classifier(Storage(self.output).local_copy("model"), trust=self.trust)


def train(config: TrainConfig, reporter: Reporter | None = None) -> TrainResult:
    """Run, or resume, what `config` asks for."""
    reporter = reporter or Reporter(quiet=True)
    if config.loss != "original":
        GENERATORS.create(config.generator, **config.generator_args)
    columns = columns_of(config)
    plan = plan_inputs(config.input, columns, config.encoding)
    given = given_classifier(config)
    asked = config.result_options() | {"input": digest(plan.identity())}
    plans = {"train": plan}
    for name in ("dev", "eval"):
        if (location := getattr(config, name)) is not None:
            plans[name] = plan_inputs(location, Columns(text=columns.text, label=columns.label), config.encoding)
            asked[name] = digest(plans[name].identity())
    if given is not None:
        asked["classifier"] = directory_digest(given)
    run = Run(config.output)
    execution = {
        k: v for k, v in config.model_dump(mode="json").items() if k not in asked or k in plans or k == "input"
    }
    if run.open("train", asked, execution):
        reporter.say(f"{config.output} is finished already: {_last_line(run)}")
        return _result(config, run)
    with interruptible(run):
        check_files(plan, config.max_rejected)
        prepared = _prepare(config, plans, given, run, reporter)
        _rounds(config, prepared, run, reporter)
        _finish(config, run, reporter)
    return _result(config, run)


def _prepare(config: TrainConfig, plans: dict[str, Plan], given: Path | None, run: Run, reporter: Reporter) -> Plan:
    """Write the training set, the dev set and the untrained classifier into the run's directory, once."""
    if not run.manifest.get("prepared"):
        rows, rejected = read_labelled(plans["train"])
        total = len(rows) + len(rejected)
        trust = config.trusted()
        labels = config.labels or (
            load_classifier(given, trust=trust).labels if given else label_set([r[2] for r in rows])
        )
        rows, unknown = known_labels(rows, labels)
        rejected += unknown
        set_aside(run.storage, "input", rejected, reporter)
        if len(rejected) > config.max_rejected * total:
            raise RunError(
                f"{len(rejected):,} of {total:,} rows of TRAIN were set aside, more than --max-rejected "
                f"{config.max_rejected:g} allows; the first: {rejected[0][2]}. They are in "
                f"{run.storage.location}/rejected; mend TRAIN, or go on with a larger --max-rejected"
            )
        if len(labels) < 2:
            raise RequestError(f"column {config.label_column!r} has one class only; two are the least")
        if "eval" in plans:
            _usable("eval", plans["eval"], labels, run, reporter)
        if "dev" in plans:
            dev = _usable("dev", plans["dev"], labels, run, reporter)
        else:
            index = {label: i for i, label in enumerate(labels)}
            taken = dev_split(np.array([index[r[2]] for r in rows], np.int64), 0.1, config.seed)
            dev = [r for r, is_dev in zip(rows, taken, strict=True) if is_dev]
            rows = [r for r, is_dev in zip(rows, taken, strict=True) if not is_dev]
        if not rows or not dev:
            raise RequestError(
                "there are too few labelled rows to train on and to choose a model by; add rows or --dev"
            )
        if absent := sorted(set(labels) - {r[2] for r in dev}):
            reporter.warn(f"no dev row has the label {', '.join(absent)}: the dev score says nothing about it")
        if len(dev) < FEW:
            reporter.warn(f"there are {len(dev)} dev rows: {FEW_DEV_ROWS}; give more with --dev")
        for name, some in (("train", rows), ("dev", dev)):
            ids, texts, names = zip(*some, strict=True)
            run.storage.write_table(
                f"prepared/{name}.parquet", pa.table({"sample_id": ids, "text": texts, "label": names})
            )
        if needs_perplexity(config.select):
            prepare_language_model(run.storage, [text for _, text, _ in rows])
        classifier = (
            load_classifier(given, labels=config.labels or None, trust=trust) if given else _new(config, labels)
        )
        with tempfile.TemporaryDirectory(prefix="epida-") as folder:
            classifier.save(folder)
            run.storage.upload(Path(folder), "initial")
            initial = directory_digest(Path(folder))
        run.save(
            prepared={"train": len(rows), "dev": len(dev), "rejected": len(rejected)}, labels=list(labels),
            classifier=classifier.describe(), threads=config.threads or _threads(classifier),
            fingerprint=digest([run.manifest["asked"], initial]), status="running",
        )  # fmt: skip
    counts = run.manifest["prepared"]
    reporter.say(
        f"{run.manifest['classifier']}; {counts['train']:,} rows to learn from, {counts['dev']:,} to choose the best "
        f"round by, {len(run.manifest['labels'])} classes"
    )
    prepared = plan_inputs(below(run.storage.location, "prepared/train.parquet"), Columns(id="sample_id"))
    prepared = prepared.model_copy(update={"shard_rows": max(ROUND_SHARD, prepared.shard_rows)})
    run.plan, run.fingerprint = prepared, run.manifest["fingerprint"]
    return prepared


def _new(config: TrainConfig, labels: tuple[str, ...]) -> Any:
    return create(config.classifier, labels, seed=config.seed, **config.classifier_options())


def _threads(classifier: Any) -> int:
    """Large networks train faster on all cores, small ones on one."""
    size = sum(array.size for array in classifier.state().values())
    return min(os.cpu_count() or 1, 8) if size > 2_000_000 else 1


def _usable(name: str, plan: Plan, labels: tuple[str, ...], run: Run, reporter: Reporter) -> list[Row]:
    rows, rejected = read_labelled(plan)
    good, unknown = known_labels(rows, labels)
    set_aside(run.storage, name, rejected + unknown, reporter)
    if not good:
        raise RequestError(f"--{name}: no row can be used; the first: {(rejected + unknown)[0][2]}")
    return good


def _schedule(config: TrainConfig, run: Run) -> tuple[int, int]:
    """(epochs of pre-training, epochs of each round)"""
    classifier = load_classifier(run.storage.local_copy("initial"), trust=config.trusted())
    defaults = getattr(classifier, "defaults", None)
    total = 1
    if defaults is not None:
        per_epoch = max(1, -(-run.manifest["prepared"]["train"] // (config.batch_size or defaults.batch_size)))
        total = max(1, min(defaults.epochs, defaults.steps // per_epoch))
    pretrain = max(1, round(total / 3)) if config.pretrain_epochs is None else config.pretrain_epochs
    return pretrain, config.epochs_per_round or max(1, round((total - pretrain) / config.rounds))


def _rounds(config: TrainConfig, plan: Plan, run: Run, reporter: Reporter) -> None:
    pretrain, per_round = _schedule(config, run)
    if pretrain == 0 and config.loss != "original":
        reporter.warn(
            "with --pretrain-epochs 0 the first candidates are judged by a classifier that has learned nothing"
        )
    found, damaged = checkpoint.load(run.storage)
    if damaged:
        reporter.warn(f"checkpoint {', '.join(damaged)} is damaged; going on from the one before")
    done = found.facts["round"] if found else -1
    run.counts.nodes.update(run.manifest.get("nodes", {}))
    if found:
        reporter.say(f"resuming after round {done}")
        _report(run, None, reporter)
    with connected(config.address, reporter), interruptible(run, reporter):
        workers, pools = _resources(config)
        run.save(
            pools=pools._asdict(), workers=workers, shards=config.rounds + 1, driver=ray.util.get_node_ip_address(),
            status="running",
        )  # fmt: skip
        transfer = start_store(run.storage, config.max_staleness)
        task = Task(
            driver=uuid.uuid4().hex, storage=run.storage, transfer=transfer, loss=config.loss, rounds=config.rounds,
            pretrain_epochs=pretrain, epochs_per_round=per_round, online=config.online, patience=config.patience,
            calibrate=config.calibrate, max_staleness=config.max_staleness, limit=config.stall_timeout,
            trust=config.trusted(),
            options=TrainingOptions(
                batch_size=config.batch_size, learning_rate=config.learning_rate, seed=config.seed,
                threads=run.manifest["threads"],
            ),
        )  # fmt: skip
        fit = _Fit(task, workers, pools)
        try:
            with _resumable(run):
                _drive(config, plan, run, pools, transfer, fit, done, reporter)
        finally:
            fit.leave()


@contextmanager
def _resumable(run: Run) -> Iterator[None]:
    """What ends training is kept in the manifest, and told with how to go on."""
    try:
        yield
    except (RunError, OSError) as error:
        failure = str(error)
        if isinstance(error, OSError):
            if (reason := refusal(error)) is None:
                raise
            failure = f"cannot write to {run.storage.location}: {reason}"
        with suppress(EpidaError):  # the manifest may be on the disk that is full
            run.save(status="failed", failure=failure)
        if "--max-rejected" in failure:
            raise
        raise RunError(
            f"{failure}. Finished rounds are kept in {run.storage.location}; run the same command again to resume"
        ) from error


def _resources(config: TrainConfig) -> tuple[int, Pools]:
    resources = ray.cluster_resources()
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    nodes = sum(node["Alive"] for node in ray.nodes())
    workers = config.workers if config.workers is not None else (max(1, int(gpus)) if gpus or nodes > 1 else 0)
    left = cpus - workers
    if left < 1:
        raise RequestError(f"{workers} train workers leave {left:g} of {cpus:g} CPUs for the rest; use fewer --workers")
    return workers, fit_pools(left, gpus, config.generators, config.scorers, config.generator_gpus, workers)


class _Fit:
    """The one Ray Train run, in a thread: `fit()` blocks."""

    def __init__(self, task: Task, workers: int, pools: Pools) -> None:
        os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
        self._folder = tempfile.TemporaryDirectory(prefix="epida-train-")
        self.error: BaseException | None = None
        self._storage, self._driver = task.storage, task.driver
        gpu = pools.scorer_gpus > 0
        trainer = ray.train.torch.TorchTrainer(
            _loop,
            train_loop_config={"task": task},
            scaling_config=ray.train.ScalingConfig(
                num_workers=workers,
                use_gpu=gpu,
                resources_per_worker={"CPU": 1, "GPU": pools.scorer_gpus} if gpu else {"CPU": 1},
            ),
            run_config=ray.train.RunConfig(
                name=f"epida-{task.driver}",
                storage_path=self._folder.name,
                failure_config=ray.train.FailureConfig(max_failures=MAX_FAILURES),
            ),
        )
        self._thread = threading.Thread(target=self._fit, args=(trainer,), daemon=True, name="epida-train")
        self._thread.start()

    def _fit(self, trainer: ray.train.torch.TorchTrainer) -> None:
        try:
            trainer.fit()
        except BaseException as error:
            self.error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise what ended training, if anything did."""
        if self._storage.exists(FAILURE):
            told = json.loads(self._storage.read(FAILURE))
            if told["driver"] == self._driver:
                self._storage.remove(FAILURE)
                raise RunError(told["reason"])
        if self.error is not None:
            raise RunError(f"training failed: {cause(self.error)}")

    def wait_briefly(self) -> None:
        self._thread.join(0.2)

    def leave(self) -> None:
        self._thread.join(0.1)
        self._folder.cleanup()


def _loop(settings: dict[str, Any]) -> None:
    train_rounds(settings["task"])


def _drive(
    config: TrainConfig,
    plan: Plan,
    run: Run,
    pools: Pools,
    transfer: StoreTransfer,
    fit: _Fit,
    done: int,
    reporter: Reporter,
) -> None:
    augmenting = config.loss != "original"
    last = config.rounds if config.online else 1
    ready = {int(name.removesuffix(".json")) for name in run.storage.names("rounds")} if augmenting else set()
    left = [r for r in range(1, last + 1) if r not in ready and r > done] if augmenting else []
    candidates = scorers = None
    if left:
        options = {
            n: getattr(config, n)
            for n in Job.__dataclass_fields__.keys() & AugmentConfig.model_fields.keys()
            if hasattr(config, n)
        }
        job = Job(
            **options
            | {
                "plan": plan, "storage": run.storage, "fingerprint": run.fingerprint, "model": "initial",
                "labels": tuple(run.manifest["labels"]), "online": True, "trust": config.trusted(),
            }
        )  # fmt: skip
        transfer.start_round(left[0])
        candidates = Candidates(job, transfer, pools, range(left[0], last + 1), config.stall_timeout)
        scorers = Scorers(job, transfer, pools, config.stall_timeout)
    shards = len(list(plan.shards()))
    metrics = RunMetrics(run.run_id)
    with scorers or nullcontext(), reporter.track("train", config.rounds, max(0, done), unit="rounds") as tracker:
        for round_ in left:
            assert candidates is not None and scorers is not None
            version = version_for(round_, config.max_staleness)
            if not _wait_for(version, transfer, fit, config.stall_timeout):
                break
            newest = _report(run, tracker, reporter)
            if newest is not None and newest["stopped"]:  # saved before the weights of that round are published
                break
            transfer.start_round(round_)
            metrics.weights(version_for(round_, 0), version)
            _judge(config, run, round_, version, candidates, scorers, shards, metrics)
        seen, deadline = -1, 0.0
        while fit.running:
            if (rounds := run.manifest.get("rounds_done", 0)) != seen:
                seen, deadline = rounds, time.monotonic() + config.stall_timeout
            if time.monotonic() > deadline:
                raise RunError(f"training did not end a round within {config.stall_timeout:.0f} s")
            fit.wait_briefly()
            _report(run, tracker, reporter)
        fit.check()
    _report(run, None, reporter)


def _wait_for(version: int, transfer: StoreTransfer, fit: _Fit, limit: float) -> bool:
    """Until these weights are published; False when training has ended without them, as early stopping does."""
    deadline = time.monotonic() + limit
    while True:
        fit.check()
        try:
            if ray.get(transfer.store.has.remote(version), timeout=60):
                return True
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            pass
        if not fit.running:
            fit.check()
            return False
        if time.monotonic() > deadline:
            raise RunError(f"training did not publish version {version} of the weights within {limit:.0f} s")


def _judge(
    config: TrainConfig,
    run: Run,
    round_: int,
    version: int,
    candidates: Candidates,
    scorers: Scorers,
    shards: int,
    metrics: RunMetrics,
) -> None:
    """Have a round's candidates judged, and say that it is done."""
    began = time.perf_counter()
    totals: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    busy: Counter[int] = Counter()
    load: Counter[int] = Counter()
    generators: set[int] = set()
    for answer in scorers.judge(candidates.of_round(round_, shards), version):
        counts = json.loads(answer["counts"])
        if "error" in counts:
            raise RunError(counts["error"])
        for name in (*COUNTED, "s_div", "s_qua", "flips"):
            totals[name] += counts[name]
        totals["shards"] += 1
        run.counts.nodes[counts["node"]] += 1
        metrics.shard(counts, shards - totals["shards"])
        seconds.update(counts["seconds"])
        reasons.update(counts["reasons"])
        busy[answer["pid"]] += answer["busy"]
        load[answer["pid"]] += answer["load"]
        generators.add(answer["generator_pid"])
    if totals["rejected"] > config.max_rejected * totals["rows"]:
        reason, count = reasons.most_common(1)[0]
        raise RunError(
            f"round {round_}: {totals['rejected']:,} of {totals['rows']:,} samples were set aside, more than "
            f"--max-rejected {config.max_rejected:g} allows; the commonest reason ({count:,}): {reason}"
        )
    kept = max(1, totals["kept"])
    facts: dict[str, Any] = {n: totals[n] for n in COUNTED}
    facts |= {"s_div": totals["s_div"] / kept, "s_qua": totals["s_qua"] / kept, "flip_rate": totals["flips"] / kept}
    facts |= {"judged_by_version": version, "scorer_pids": sorted(busy), "generator_pids": sorted(generators)}
    facts["seconds"] = {k: round(v, 4) for k, v in seconds.items()} | {
        "generate_wait": candidates.waited,
        "judge": max(busy.values()),
        "load_weights": max(load.values()),
        "judge_wall": time.perf_counter() - began,
    }
    run.save(nodes=dict(run.counts.nodes))
    run.storage.write(ready_file(round_), json.dumps(facts).encode())


def _report(run: Run, tracker: Tracker | None, reporter: Reporter) -> dict[str, Any] | None:
    """Bring metrics.jsonl, the manifest and the view up to the newest checkpoint."""
    facts = checkpoint.newest_facts(run.storage)
    if facts is None:
        return None
    metrics = facts["metrics"]
    counts = run.counts = Counts(shards=len(metrics), nodes=run.counts.nodes)
    for line in metrics:
        for name in COUNTED:
            setattr(counts, name, getattr(counts, name) + line.get(name, 0))
        counts.seconds.update({k: v for k, v in line["seconds"].items() if k in (*STAGES, "train")})
    if len(metrics) != run.manifest.get("rounds_done"):
        counts.nodes[facts["node"]] += max(0, len(metrics) - run.manifest.get("rounds_done", 0))
        lines = "".join(json.dumps(line) + "\n" for line in metrics)
        run.storage.write("metrics.jsonl", lines.encode())
        _tensorboard(run, metrics)
        run.save(rounds_done=len(metrics), best_round=facts["best_round"], **run.progress())
        if tracker is not None:
            newest = metrics[-1]
            tracker.update(
                newest["round"],
                f"round {newest['round']}: loss {newest['loss']:.3f}, dev macro-F1 {newest['dev_macro_f1']:.3f} "
                f"(best {facts['best']['macro_f1']:.3f} in round {facts['best_round']})",
            )
    return facts


def _tensorboard(run: Run, metrics: list[dict[str, Any]]) -> None:
    """Events of the rounds that were not yet there, where TensorBoard is installed and the directory is local."""
    if not run.storage.is_local:
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return
    with SummaryWriter(run.storage.path("tensorboard")) as writer:
        for line in metrics[run.manifest.get("rounds_done", 0) :]:
            for name, value in line.items():
                if isinstance(value, int | float) and not isinstance(value, bool) and name != "round":
                    writer.add_scalar(name, value, line["round"])


def _finish(config: TrainConfig, run: Run, reporter: Reporter) -> None:
    """Restore the best weights, save the model, and test it once."""
    found, _ = checkpoint.load(run.storage)
    if found is None:
        raise RunError("training ended without a checkpoint")
    classifier = load_classifier(run.storage.local_copy("initial"), trust=config.trusted())
    classifier.load_state(found.part("best"))
    with tempfile.TemporaryDirectory(prefix="epida-") as folder:
        classifier.save(folder)
        run.storage.upload(Path(folder), "model")
        model_digest = directory_digest(Path(folder))
    best = found.facts["best"]
    reporter.say(best_round(found.facts["best_round"], best["macro_f1"]))
    test = None
    if config.eval is not None:
        test = evaluate_model(
            below(run.storage.location, "model"),
            config.eval,
            config.text_column,
            config.label_column,
            config.encoding,
            config.trusted(),
        )
        reporter.say(f"test: accuracy {test['accuracy']:.4f}, macro-F1 {test['macro_f1']:.4f} on {test['rows']:,} rows")
    _drop_unused(run, found.facts["round"], config.rounds)
    run.finish(model_digest=model_digest, best={"round": found.facts["best_round"], **best}, test=test)


def _drop_unused(run: Run, last: int, rounds: int) -> None:
    """Rounds that were judged ahead of a training that then stopped early; how many there are is a matter of timing."""
    for round_ in range(last + 1, rounds + 1):
        for folder in ("augmented", "rejected", "short", "candidates"):
            if run.storage.exists(name := f"{folder}/{round_folder(round_)}"):
                run.storage.filesystem.delete_dir(run.storage.path(name))
        if run.storage.exists(ready_file(round_)):
            run.storage.remove(ready_file(round_))


def _result(config: TrainConfig, run: Run) -> TrainResult:
    found, _ = checkpoint.load(run.storage)
    metrics = found.facts["metrics"] if found else []
    return TrainResult(run.storage.location, metrics, run.manifest.get("test"), config.trusted())


def _last_line(run: Run) -> str:
    best = run.manifest["best"]
    return best_round(best["round"], best["macro_f1"])
