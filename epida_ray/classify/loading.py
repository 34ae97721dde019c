"""Classifiers by name, and saved ones by what their `config.json` says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epida_ray.classify import CLASSIFIERS, saving
from epida_ray.classify.saving import OPTIONS
from epida_ray.core.errors import RequestError
from epida_ray.core.registry import load_target


def create(name: str, labels: Sequence[str] | None, seed: int, arguments: Mapping[str, Any]) -> Any:
    head = name.partition(":")[0]
    if name in CLASSIFIERS.builtins or head in CLASSIFIERS.builtins:
        return CLASSIFIERS.create(name, labels=labels, seed=seed, **arguments)
    from epida_ray.classify.user import UserClassifier

    what, _ = CLASSIFIERS.find(name)
    try:
        return UserClassifier(name, what, labels, arguments)
    except TypeError as error:
        raise RequestError(f"classifier {name!r} cannot be made with these arguments: {error}") from error


def load(directory: Path, labels: Sequence[str] | None, trust: Sequence[str]) -> Any:
    config = saving.read_config(directory)
    name = config.get("classifier")
    if name is None and "model_type" in config:
        name = _kind_of_checkpoint(directory)
    if not isinstance(name, str):
        raise RequestError(f"{directory / saving.CONFIG} names no classifier")
    try:
        if name in CLASSIFIERS.builtins:
            what = load_target(CLASSIFIERS.builtins[name].target)
            options = {"trust": trust} if name == "sklearn" else {}
            classifier = what.load(directory, config, **options)
        else:
            from epida_ray.classify.user import UserClassifier

            # A family is not trusted by its name: `sklearn:SOURCE` would take any SOURCE from the directory.
            family = name.partition(":")[0] in CLASSIFIERS.builtins
            if not CLASSIFIERS.installed(name) and (family or name not in trust):
                raise RequestError(
                    f"the model in {directory} would run {name}; if you trust that code, add --trust-code {name}"
                )
            classifier = UserClassifier.load(directory, config, CLASSIFIERS.find(name)[0])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RequestError(f"{directory / saving.CONFIG} is not complete: {type(error).__name__} {error}") from error
    if labels is not None and set(labels) != set(classifier.labels):
        theirs, ours = ", ".join(classifier.labels), ", ".join(labels)
        raise RequestError(f"the model in {directory} has the labels {theirs}, the data has {ours}")
    return classifier


def _kind_of_checkpoint(directory: Path) -> str:
    """Return which classifier a directory of transformers holds: our options beside its files say so."""
    path = directory / OPTIONS
    try:
        said = json.loads(path.read_bytes()) if path.is_file() else {}
        name = said.get("classifier", "transformer")
    except (ValueError, OSError, AttributeError) as error:
        raise RequestError(f"{path} cannot be read as JSON: {error}") from error
    if name not in ("transformer", "encoder"):
        raise RequestError(f"{path} names the classifier {name!r}; it can be transformer or encoder")
    return str(name)
