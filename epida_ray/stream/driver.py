"""`epida train`: the classifier chooses its own training data while it learns.

Three things live for the whole run: one Ray Data execution that generates candidates for all rounds, the scorer
actors, and one Ray Train run. The driver connects them: it hands a round's blocks to the scorers, and tells the train
workers through the run's directory that a round is judged.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import ray

from epida_ray.classify import TorchClassifier
from epida_ray.classify import load as load_classifier
from epida_ray.core.errors import EpidaError, RequestError, RunError, TakenOver, TooManyRejected
from epida_ray.core.progress import Reporter, best_round
from epida_ray.data.plan import Columns, Plan, plan_inputs
from epida_ray.data.storage import Storage, below, refusal
from epida_ray.generate.corpus import needs_corpus
from epida_ray.method import prepare
from epida_ray.method.card import write_card
from epida_ray.method.corpus import corpus_samples, write_corpus
from epida_ray.method.defaults import with_defaults
from epida_ray.method.evaluate import evaluate_model
from epida_ray.method.noise import noise_of
from epida_ray.method.pool import class_prior, pool_plan
from epida_ray.method.requests import TrainRequest
from epida_ray.method.results import TrainResult, round_summary
from epida_ray.method.round_plan import learn_options, round_shard_rows
from epida_ray.method.round_worker import PoolTask, Task
from epida_ray.method.stages import RoundOptions
from epida_ray.method.track import WriteReport, run_trackers
from epida_ray.method.trainer import LearnOptions, training_threads
from epida_ray.runs import checkpoint, layout, manifest
from epida_ray.runs.run import Run, digest, interruptible
from epida_ray.select import needs_perplexity
from epida_ray.stream.cluster import Pools, check_reachable, connected, fit_pools
from epida_ray.stream.fit import Fit
from epida_ray.stream.loop import Loop, report
from epida_ray.stream.weights import started_store


def train(
    request: TrainRequest, reporter: Reporter | None = None, write_report: WriteReport | None = None
) -> TrainResult:
    """Run, or resume, what is requested. Trackers receive what `write_report` writes."""
    reporter = reporter or Reporter(quiet=True)
    generator = RoundOptions.of(request, ()).make_generator() if request.augmenting else None
    if notice := getattr(generator, "notice", ""):
        reporter.warn(notice)
    request = with_defaults(request, reporter)
    check_reachable(request.address)
    plans, identity = prepare.plan_request(request, ("dev", "eval", "unlabelled"), reporter)
    run = Run(request.output)
    if run.open("train", identity, prepare.execution_options(request, identity), take_over=request.take_over):
        assert run.manifest.best is not None
        best = best_round(run.manifest.best.round, run.manifest.best.macro_f1)
        reporter.say(f"{request.output} is finished already: {best}")
        if not request.keep_checkpoints:  # a run that was killed when it had just finished left them
            with suppress(EpidaError, OSError):  # they do no harm
                checkpoint.remove_all(Storage(request.output))
        return _result(request, run)
    with run, interruptible(run), run_trackers(request, run, reporter, write_report) as run.trackers:
        prepare.check_files(plans["input"], request.max_rejected)
        if run.manifest.prepared is None:
            _prepare(request, plans, generator, run, reporter)
        _plan_rounds(request, run, reporter)
        _rounds(request, run, plans.get("unlabelled"), reporter)
        _finish(request, run, reporter)
    return _result(request, run)


def _prepare(request: TrainRequest, plans: dict[str, Plan], generator: Any, run: Run, reporter: Reporter) -> None:
    """Write the training rows, the dev rows and the untrained classifier into the run's directory, once."""
    given = prepare.given_classifier(request)
    found = prepare.prepare_training(request, plans, given, run.storage, reporter)
    if "unlabelled" in plans:
        y = prepare.labelled(found.train, found.labels).y
        class_prior(request.prior, found.labels, y)
        prepare.check_pool(request, plans, found, reporter)
    soft = None
    if request.teacher is not None:
        teacher = prepare.load_teacher(request, found.labels)
        prepare.save_classifier(teacher, run.storage, layout.TEACHER)
        if request.soft_labels:
            soft = teacher.predict_proba([row.text for row in found.train])
    prepare.write_prepared(run.storage, "train", found.train, soft)
    prepare.write_prepared(run.storage, "dev", found.dev)
    if request.augmenting and needs_perplexity(request.select):
        prepare.prepare_language_model(run.storage, [row.text for row in found.train])
    if needs_corpus(generator):
        write_corpus(run.storage, generator, corpus_samples(generator, found.train))
    initial = prepare.save_classifier(found.classifier, run.storage, layout.INITIAL)
    run.save(
        prepared=manifest.Prepared(train=len(found.train), dev=len(found.dev), rejected=found.rejected),
        labels=list(found.labels),
        classifier=found.classifier.describe(),
        threads=request.threads or training_threads(found.classifier),
        fingerprint=digest([run.manifest.request, initial]),
        status="running",
    )


def _plan_rounds(request: TrainRequest, run: Run, reporter: Reporter) -> None:
    """Cut the prepared rows into the shards that every round works through."""
    prepared = run.manifest.prepared
    assert prepared is not None and run.manifest.fingerprint is not None
    reporter.say(
        f"{run.manifest.classifier}; {prepared.train:,} rows to train on, {prepared.dev:,} to choose the best "
        f"round, {len(run.manifest.labels)} classes"
    )
    plan = plan_inputs(below(run.storage.location, layout.prepared_file("train")), Columns(id="sample_id"))
    texts = prepare.read_prepared(run.storage, "train", run.manifest.labels, soft=False).texts
    rows = round_shard_rows(texts, 1 + request.k * request.m, len(run.manifest.labels))
    run.plan = plan.model_copy(update={"shard_rows": rows})
    run.fingerprint = run.manifest.fingerprint
    run.save(run_id=run.run_id, plan=run.plan.model_dump(mode="json"))


def _learn_options(request: TrainRequest, run: Run, pool: Plan | None) -> LearnOptions:
    classifier = load_classifier(run.storage.local_copy(layout.INITIAL), trust=request.trusted())
    assert run.manifest.prepared is not None
    rows = 0 if pool is None else min(pool.rows, request.pool_rows)
    return learn_options(
        request, run.manifest.prepared.train, classifier, threads=run.manifest.threads, pool_rows=rows,
        refit=request.dev is None,
    )  # fmt: skip


def _prior(request: TrainRequest, run: Run) -> np.ndarray:
    """Return the share of each class: --prior, else that of TRAIN's own labels, whatever a teacher says."""
    labels = run.manifest.labels
    return class_prior(request.prior, labels, prepare.read_prepared(run.storage, "train", labels, soft=False).y)


def _rounds(request: TrainRequest, run: Run, pool: Plan | None, reporter: Reporter) -> None:
    if pool is not None:
        pool = pool_plan(pool, request, len(run.manifest.labels))
    options = _learn_options(request, run, pool)
    if options.schedule.pretrain == 0 and request.augmenting:
        reporter.warn("with --pretrain-epochs 0 an untrained classifier judges the first candidates")
    found, damaged = checkpoint.load(run.storage)
    if damaged:
        reporter.warn(f"checkpoint {', '.join(damaged)} is damaged; continuing from the one before")
    done, epochs = (found.facts["round"], found.facts.get("epochs", 0)) if found else (-1, 0)
    run.totals.nodes.update(run.manifest.nodes)
    if found:
        within = f"in round {done + 1}, after {epochs} of its epochs" if epochs else f"after round {done}"
        reporter.say(f"resuming {within}")
        report(run, None)
    with connected(request.address, reporter), interruptible(run, reporter):
        workers, pools = _resources(request, run.manifest.workers)
        run.save(
            pools=pools._asdict(),
            workers=workers,
            shards=request.rounds + 1,
            driver=ray.util.get_node_ip_address(),
            status="running",
        )
        with _resumable(run), started_store(run.storage, request.max_staleness) as (transport, clock):
            task = Task(
                uuid.uuid4().hex,
                run.storage,
                transport,
                options,
                request.stall_timeout,
                request.trusted(),
                pool=None if pool is None else PoolTask(_prior(request, run), request.pool_weight),
            )
            versions = found.facts["versions"] if found else []
            loop = Loop(request, run, pool, pools, transport, clock, done, versions, reporter)
            left = loop.rounds_to_judge()  # first, because the train workers read rounds that are judged
            fit = Fit(task, workers, pools)
            try:
                loop.run(left, fit)
            finally:
                fit.leave()


@contextmanager
def _resumable(run: Run) -> Iterator[None]:
    """Keep in the manifest what ends training, and say how to continue."""
    try:
        yield
    except TakenOver:
        raise
    except (RunError, RequestError, OSError) as error:
        if isinstance(error, RequestError) and not run.totals.shards:
            raise  # nothing is done, so the directory is free for a corrected request
        failure = str(error)
        if isinstance(error, OSError):
            if (reason := refusal(error)) is None:
                raise
            failure = f"cannot write to {run.storage.location}: {reason}"
        with suppress(EpidaError):  # the manifest may be on the disk that is full
            run.save(status="failed", failure=failure)
        if isinstance(error, TooManyRejected):
            raise
        raise RunError(
            f"{failure}. Finished rounds are kept in {run.storage.location}; run the same command again to resume"
        ) from error


def _resources(request: TrainRequest, before: int | None) -> tuple[int, Pools]:
    """Return the number of train workers and the actor pools; a resumed run has the workers that it had `before`."""
    resources = ray.cluster_resources()
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    nodes = sum(node["Alive"] for node in ray.nodes())
    workers = request.workers if request.workers is not None else before
    if workers is None:
        workers = max(1, int(gpus)) if gpus or nodes > 1 else 0
    left = cpus - workers
    if left < 1:
        raise RequestError(f"{workers} train workers leave {left:g} of {cpus:g} CPUs for the rest; use fewer --workers")
    pools = fit_pools(left, gpus, request.generator_actors, request.scorer_actors, request.generator_gpus, workers)
    return workers, pools


def _finish(request: TrainRequest, run: Run, reporter: Reporter) -> None:
    """Restore the best weights, save the model, and test it once."""
    found, _ = checkpoint.load(run.storage)
    if found is None or run.manifest.prepared is None:
        raise RunError("training ended without a checkpoint")
    classifier = load_classifier(run.storage.local_copy(layout.INITIAL), trust=request.trusted())
    classifier.load_state(found.part("best"))
    model_digest = prepare.save_classifier(classifier, run.storage, layout.MODEL)
    best = manifest.Best(round=found.facts["best_round"], **found.facts["best"])
    reporter.say(round_summary(found.facts["metrics"], best.round, run.manifest.prepared.dev))
    if best.round == 0 and request.unlabelled is not None:
        more = ", for a third of its epochs: without --unlabelled it trains to the end"
        reporter.say(
            "the unlabelled texts did not help on dev; the model is the one of round 0, trained without them"
            + (more if isinstance(classifier, TorchClassifier) else "")
        )
    test = None
    if request.eval is not None:
        test = evaluate_model(
            below(run.storage.location, layout.MODEL),
            request.eval,
            request.text_column,
            request.label_column,
            request.encoding,
            request.trusted(),
            delimiter=request.delimiter,
            noise=noise_of(request.robust, request.generator_args) if request.robust else (),
        )
        reporter.say(f"test: accuracy {test['accuracy']:.4f}, macro-F1 {test['macro_f1']:.4f} on {test['rows']:,} rows")
        for spec, one in test.get("noise", {}).items():
            reporter.say(f"with noise {spec}: accuracy {one['accuracy']:.4f}, macro-F1 {one['macro_f1']:.4f}")
    _drop_unused(run, found.facts["round"], request.rounds)
    write_card(run.storage, layout.MODEL, run.manifest.model_copy(update={"best": best, "test": test}))
    run.finish(model_digest=model_digest, best=best, test=test)
    if not request.keep_checkpoints:  # only now: until here a run that is killed resumes from them
        checkpoint.remove_all(run.storage)
    run.trackers.finish_run(run.manifest)


def _drop_unused(run: Run, last: int, rounds: int) -> None:
    """Remove rounds that were judged but not trained on because training stopped early; their number is chance."""
    for round_ in range(last + 1, rounds + 1):
        for folder in layout.PER_SHARD:
            if run.storage.exists(name := layout.round_folder(folder, round_)):
                run.storage.remove_folder(name)
        for name in (layout.judged_file(round_), layout.pseudo_file(round_)):
            if run.storage.exists(name):
                run.storage.remove(name)


def _result(request: TrainRequest, run: Run) -> TrainResult:
    metrics = [json.loads(line) for line in run.storage.read(layout.METRICS).splitlines()]
    assert run.manifest.prepared is not None
    dev_rows = run.manifest.prepared.dev
    return TrainResult(run.storage.location, metrics, run.manifest.test, request.trusted(), dev_rows)
