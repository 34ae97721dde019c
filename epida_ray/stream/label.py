"""`epida label`: soft labels for a corpus of any size, by a saved model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from epida_ray.classify import load as load_classifier
from epida_ray.classify.saving import CONFIG
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.storage import below
from epida_ray.method import prepare
from epida_ray.method.contents import contents, versions_of
from epida_ray.method.requests import NO_GENERATOR, LabelRequest
from epida_ray.method.review import write_review
from epida_ray.method.stages import RoundOptions
from epida_ray.runs import layout
from epida_ray.runs.manifest import Manifest
from epida_ray.runs.run import Run, digest, directory_digest, interruptible
from epida_ray.stream.cluster import check_reachable
from epida_ray.stream.offline import work_through
from epida_ray.stream.pipeline import Job


@dataclass(frozen=True)
class LabelResult:
    """Where the labelled texts are."""

    output: str
    manifest: Manifest = field(repr=False)

    @property
    def labelled(self) -> str:
        return below(self.output, layout.LABELLED)


def label(request: LabelRequest, reporter: Reporter | None = None) -> LabelResult:
    """Run, or resume, what is requested."""
    reporter = reporter or Reporter(quiet=True)
    check_reachable(request.address)
    model = prepare.saved_model("--model", request.model)
    columns = Columns(text=request.text_column, label=None, id=request.id_column)
    plan = plan_inputs(request.input, columns, request.encoding, request.output, request.delimiter)
    for line in plan.remarks():
        reporter.say(line)
    identity = request.result_options() | {
        "input": digest(plan.identity()),
        "model": directory_digest(model),
        "contents": contents([name for name in request.trust_code if ":" in name], {}),
        "versions": versions_of(()),
    }
    run = Run(request.output, layout.LABELLED)
    if run.open("label", identity, prepare.execution_options(request, identity), take_over=request.take_over):
        reporter.say(f"{request.output} is finished already: {run.manifest.done.kept:,} texts labelled")
        if request.for_review:
            _write_review(request, load_classifier(model, trust=request.trusted()), run, reporter)
        return LabelResult(request.output, run.manifest)
    with run, interruptible(run):
        prepare.check_files(plan, request.max_rejected)
        classifier = load_classifier(model, trust=request.trusted())
        reporter.say(f"classifier: {classifier.describe()}")
        if not run.storage.exists(f"{layout.MODEL}/{CONFIG}"):
            run.storage.upload(model, layout.MODEL)
        run.save(labels=list(classifier.labels), classifier=classifier.describe())
        plan = plan.cut(1, len(classifier.labels))
        left = run.start(plan, digest(identity))
        options = RoundOptions(tuple(classifier.labels), generator=NO_GENERATOR)
        if left:
            job = Job(
                plan, run.storage, run.fingerprint, options, candidates=False, trust=request.trusted(), pool=plan,
                labelling=True, owner=run.manifest.owner,
            )  # fmt: skip
            work_through(left, job, run, request, reporter, command="label", done="labelled", generators=1)
        run.check_rejected(request.max_rejected)
        run.check_complete()
        if request.for_review:
            _write_review(request, classifier, run, reporter)
        run.finish()
    return LabelResult(request.output, run.manifest)


def _write_review(request: LabelRequest, classifier: Any, run: Run, reporter: Reporter) -> None:
    count = write_review(run.storage, classifier, request.for_review, request.seed)
    reporter.say(f"{count:,} texts to label by hand: {below(request.output, layout.REVIEW)}")
