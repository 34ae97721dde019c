"""`epida augment`: augmentation of a corpus of any size, resumable, with the same bytes every time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import ray

from epida_ray.classify import load as load_classifier
from epida_ray.core.errors import EpidaError, RequestError, RunError, TakenOver, TooManyRejected
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Plan, Shard
from epida_ray.generate import GENERATORS
from epida_ray.method import prepare
from epida_ray.method.card import write_card
from epida_ray.method.checks import check_judge
from epida_ray.method.corpus import plan_corpus, write_corpus
from epida_ray.method.output import rejected_table
from epida_ray.method.requests import AugmentRequest
from epida_ray.method.results import AugmentResult
from epida_ray.method.stages import STAGES, RoundOptions
from epida_ray.method.track import Trackers
from epida_ray.runs import layout
from epida_ray.runs.manifest import Manifest
from epida_ray.runs.run import Run, digest, directory_digest
from epida_ray.select import needs_perplexity
from epida_ray.stream.cluster import check_reachable, connected, size_pools
from epida_ray.stream.metrics import RunMetrics
from epida_ray.stream.pipeline import Job, run_shards

SAVE_EVERY = 10.0
"""Seconds between two saves of the manifest while shards are being finished."""


def augment(request: AugmentRequest, reporter: Reporter | None = None) -> AugmentResult:
    """Run, or resume, what is requested."""
    reporter = reporter or Reporter(quiet=True)
    generator = GENERATORS.create(request.generator, **request.generator_args)
    if notice := getattr(generator, "notice", ""):
        reporter.warn(notice)
    check_reachable(request.address)
    plans, identity = prepare.plan_request(request, ("train",), reporter)
    plan, train_plan = plans["input"], plans.get("train", plans["input"])
    run = Run(request.output)
    if run.open("augment", identity, prepare.execution_options(request, identity), take_over=request.take_over):
        reporter.say(f"{request.output} is finished already: {run.manifest.done.kept:,} rows kept")
        return AugmentResult(request.output, run.manifest)
    with run, interruptible(run):
        run.trackers = Trackers(request.track, run.storage, "augment", run.manifest.request, reporter)
        prepare.check_files(plan, request.max_rejected)
        labels, model_digest = _prepare_classifier(request, plan, train_plan, run, reporter)
        fingerprint = digest([identity, model_digest])
        if needs_perplexity(request.select):
            rows, _ = prepare.read_labelled(train_plan, request.train_rows)
            if not rows:
                raise RequestError(prepare.NO_ROWS)
            prepare.prepare_language_model(run.storage, [row.text for row in rows])
        write_corpus(run.storage, generator, plan_corpus(generator, plan, labels))
        plan = plan.cut(1 + request.k * request.m, len(labels))
        left = run.start(plan, fingerprint)
        if broken := prepare.unreadable_files(plan):
            reporter.warn(
                f"{len(broken)} of {len(plan.files)} files cannot be read, see rejected/; "
                f"{broken[0].sample_id}: {broken[0].reason}"
            )
            name = layout.rejected_file(f"unreadable-files-{fingerprint[:12]}")
            run.storage.write_table(name, rejected_table(broken))
        if left:
            _work(request, plan, run, labels, left, reporter)
        run.check_rejected(request.max_rejected)
        run.check_complete()
        run.finish()
        run.trackers.finish_run(run.manifest)
    return AugmentResult(request.output, run.manifest)


def _work(
    request: AugmentRequest, plan: Plan, run: Run, labels: tuple[str, ...], left: list[Shard], reporter: Reporter
) -> None:
    """Put the shards that are left through the pipeline."""
    if run.totals.shards:
        reporter.say(f"resuming: {run.totals.shards:,} of {run.totals.shards + len(left):,} shards are done")
    job = Job(
        plan, run.storage, run.fingerprint, RoundOptions.of(request, labels), candidates=request.candidates,
        with_originals=request.with_originals, trust=request.trusted(),
    )  # fmt: skip
    saved = time.monotonic()
    with (
        connected(request.address, reporter),
        interruptible(run, reporter),
        reporter.track("augment", plan.rows, run.totals.rows) as tracker,
    ):
        pools = size_pools(request.generator_actors, request.scorer_actors, request.generator_gpus)
        run.save(pools=pools._asdict(), driver=ray.util.get_node_ip_address())
        metrics = RunMetrics(run.run_id)
        try:
            for counts in run_shards(job, left, pools, request.stall_timeout):
                run.totals.add(counts)
                metrics.shard(counts, run.manifest.shards - run.totals.shards)
                tracker.update(run.totals.rows, f"{run.totals.kept:,} kept")
                run.check_rejected(request.max_rejected)
                if time.monotonic() - saved > SAVE_EVERY:
                    run.save_progress()
                    saved = time.monotonic()
        except (TooManyRejected, TakenOver):
            raise
        except RunError as error:
            with suppress(EpidaError):  # the manifest may be on the disk that is full
                run.save(status="failed", failure=str(error))
            kept = f"{run.totals.shards:,} of {run.manifest.shards:,} shards are kept in {request.output}"
            raise RunError(f"{error}. {kept}; run the same command again to resume") from error


@contextmanager
def interruptible(run: Run, reporter: Reporter | None = None) -> Iterator[None]:
    """End the run in order on Ctrl-C and SIGTERM: what is done is kept, and the message says how to resume.

    With a reporter the message comes at once. Use that inside `connected`: `ray job stop` gives a driver a second or
    two, and leaving Ray can take longer.
    """
    try:
        yield
    except RequestError as error:
        if run.manifest.status == "preparing":
            run.save(problem=str(error))  # `epida status` shows it; a corrected request may use the directory
        raise
    except KeyboardInterrupt:
        run.save(status="interrupted", **(run.progress() if run.totals.shards else {}))
        kept = f"what is done is kept in {run.storage.location}; run the same command again to resume"
        if reporter is not None:
            reporter.say(f"stopping: {kept}")
        raise RunError(f"interrupted; {kept}") from None


def _prepare_classifier(
    request: AugmentRequest, plan: Plan, train_plan: Plan, run: Run, reporter: Reporter
) -> tuple[tuple[str, ...], str]:
    """Make sure that DIR/model holds the classifier; return its labels and the digest of its files."""
    done, trust = run.manifest.model_digest, request.trusted()
    if done and run.storage.exists(f"{layout.MODEL}/config.json"):
        path = run.storage.local_copy(layout.MODEL)
        if directory_digest(path) != done:
            raise RequestError(f"{run.storage.location}/model was changed since the run began; use another --output")
        return load_classifier(path, trust=trust).labels, done
    given = prepare.given_classifier(request)
    if given is None:
        classifier = prepare.train_judge(request, train_plan, run.storage, reporter)
    else:
        classifier = load_classifier(given, labels=request.labels or None, trust=trust)
        check_judge(classifier.labels, plan, request.max_rejected)
    reporter.say(f"classifier: {classifier.describe()}")
    model_digest = prepare.save_classifier(classifier, run.storage, layout.MODEL)
    run.save(model_digest=model_digest, labels=list(classifier.labels), classifier=classifier.describe())
    write_card(run.storage, layout.MODEL, run.manifest)
    return classifier.labels, model_digest


def summary(manifest: Manifest) -> list[str]:
    """Return the outcome of a run in a few lines."""
    done, seconds = manifest.done, manifest.seconds
    what = "judged in all rounds" if manifest.kind == "train" else "read"
    lines = [
        f"{done.rows:,} rows {what}, {done.candidates:,} candidates, {done.kept:,} kept, {done.rejected:,} rejected, "
        f"{done.short:,} with fewer than m"
    ]
    total = sum(seconds.values()) or 1.0
    stages = dict.fromkeys((*STAGES, *seconds))
    shares = ", ".join(f"{stage} {100 * seconds.get(stage, 0) / total:.0f}%" for stage in stages)
    lines.append(f"CPU time: {shares}; {total:.1f} s in all")
    for reason, count in list(manifest.reasons.items())[:3]:
        lines.append(f"rejected ({count:,}): {reason}")
    return lines
