"""The key of a stored result: trials with the same key give the same numbers."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from epida_ray.experiments.trials import Method, Trial, make_classifier
from epida_ray.generate import identifying, named
from epida_ray.method.contents import contents
from epida_ray.method.trainer import training_threads
from epida_ray.runs.manifest import versions

DEPENDS_ON = (
    "core/labels.py",
    "core/metrics.py",
    "core/sample.py",
    "core/splitmix.py",
    "data",
    "generate",
    "classify",
    "select",
    "method/folds.py",
    "method/learn.py",
    "method/noise.py",
    "method/output.py",
    "method/pool.py",
    "method/corpus.py",
    "method/requests.py",
    "method/rewriter.py",
    "method/round.py",
    "method/round_plan.py",
    "method/schedule.py",
    "method/schema.py",
    "method/stages.py",
    "method/trainer.py",
    "experiments/compare_folds.py",
    "experiments/datasets.py",
    "experiments/measures.py",
    "experiments/rewrites.py",
    "experiments/trials.py",
)
"""The parts of this package that can change the numbers of a trial."""


class ClassifierFacts(NamedTuple):
    """What the driver needs to know of the classifier of a trial."""

    description: str
    """How it describes itself, word vectors included."""
    threads: int
    """CPU threads that it trains with."""


def classifier_facts(trial: Trial, labels: tuple[str, ...]) -> ClassifierFacts:
    """Return the facts of the trial's classifier; raise RequestError when it cannot be made."""
    classifier = make_classifier(trial, labels)
    description = str(classifier.describe()) if hasattr(classifier, "describe") else trial.classifier
    return ClassifierFacts(description, training_threads(classifier) if hasattr(classifier, "state") else 1)


def environment(trial: Trial, classifier: ClassifierFacts) -> dict[str, Any]:
    """Return what the numbers depend on besides data, options and this package.

    That is: versions of libraries, word vectors, models and the user's own code, and for speed the machine. Of a model
    on a hub only the name is known.
    """
    method = trial.method
    names = (trial.classifier, *named(method.generator, method.generator_args))
    own = plugin_contents(names, json.dumps([trial.classifier_args, _identifying(method)]))
    return {
        "versions": _versions(),
        "classifier": classifier.description,
        "threads": classifier.threads,
        "contents": own,
        "machine": [platform.node(), os.cpu_count()] if "speed" in trial.measure else None,
    }


def trial_key(trial: Trial, data_digest: str, environment: Mapping[str, Any]) -> str:
    """Return the key of a trial's result. The name of a method is only a name and does not count."""
    plain = asdict(replace(trial, method=replace(trial.method, name="", generator_args=_identifying(trial.method))))
    text = json.dumps([code_digest(), data_digest, plain, environment], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=12).hexdigest()


def _identifying(method: Method) -> dict[str, Any]:
    return identifying(method.generator, method.generator_args) if method.generator_args else {}


@cache
def code_digest() -> str:
    """Return a digest of the code that a trial runs, so that results of two versions are never mixed."""
    total = blake2b(digest_size=12)
    root = Path(__file__).parents[1]
    for name in DEPENDS_ON:
        path = root / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix != ".pyc":
                total.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


_versions = cache(versions)


@cache
def plugin_contents(names: tuple[str, ...], arguments: str) -> dict[str, str]:
    """Return the digests of what these plug-ins and their arguments name, read once for all trials."""
    of_classifier, of_generator = json.loads(arguments)
    return contents(names, of_classifier) | contents((), of_generator)
