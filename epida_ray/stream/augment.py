"""`epida augment`: augmentation of a corpus of any size, resumable, with the same bytes every time."""

from __future__ import annotations

from epida_ray.classify import load as load_classifier
from epida_ray.classify.saving import CONFIG
from epida_ray.core.errors import RequestError
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Plan
from epida_ray.generate import GENERATORS
from epida_ray.method import prepare
from epida_ray.method.card import write_card
from epida_ray.method.checks import check_judge
from epida_ray.method.corpus import plan_corpus, write_corpus
from epida_ray.method.output import rejected_table
from epida_ray.method.requests import AugmentRequest
from epida_ray.method.results import AugmentResult
from epida_ray.method.stages import RoundOptions
from epida_ray.method.track import WriteReport, run_trackers
from epida_ray.runs import layout
from epida_ray.runs.run import Run, digest, directory_digest, interruptible
from epida_ray.select import needs_perplexity
from epida_ray.stream.cluster import check_reachable
from epida_ray.stream.offline import work_through
from epida_ray.stream.pipeline import Job


def augment(
    request: AugmentRequest, reporter: Reporter | None = None, write_report: WriteReport | None = None
) -> AugmentResult:
    """Run, or resume, what is requested. Trackers receive what `write_report` writes."""
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
    with run, interruptible(run), run_trackers(request, run, reporter, write_report) as run.trackers:
        prepare.check_files(plan, request.max_rejected)
        labels, model_digest = _prepare_classifier(request, plans, run, reporter)
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
            job = Job(
                plan, run.storage, run.fingerprint, RoundOptions.of(request, labels), candidates=request.candidates,
                with_originals=request.with_originals, trust=request.trusted(), owner=run.manifest.owner,
            )  # fmt: skip
            work_through(
                left, job, run, request, reporter, command="augment", done="kept",
                generators=request.generator_actors, generator_gpus=request.generator_gpus,
            )  # fmt: skip
        run.check_rejected(request.max_rejected)
        run.check_complete()
        run.finish()
        run.trackers.finish_run(run.manifest)
    return AugmentResult(request.output, run.manifest)


def _prepare_classifier(
    request: AugmentRequest, plans: dict[str, Plan], run: Run, reporter: Reporter
) -> tuple[tuple[str, ...], str]:
    """Make sure that DIR/model holds the classifier; return its labels and the digest of its files."""
    done, trust = run.manifest.model_digest, request.trusted()
    if done and run.storage.exists(f"{layout.MODEL}/{CONFIG}"):
        path = run.storage.local_copy(layout.MODEL)
        if directory_digest(path) != done:
            raise RequestError(f"{run.storage.location}/model was changed since the run began; use another --output")
        return load_classifier(path, trust=trust).labels, done
    given = prepare.given_classifier(request)
    if given is None:
        classifier = prepare.train_judge(request, plans, run.storage, reporter)
    else:
        classifier = load_classifier(given, labels=request.labels or None, trust=trust)
        check_judge(classifier.labels, plans["input"], request.max_rejected)
    reporter.say(f"classifier: {classifier.describe()}")
    model_digest = prepare.save_classifier(classifier, run.storage, layout.MODEL)
    run.save(model_digest=model_digest, labels=list(classifier.labels), classifier=classifier.describe())
    write_card(run.storage, layout.MODEL, run.manifest, given)
    return classifier.labels, model_digest
