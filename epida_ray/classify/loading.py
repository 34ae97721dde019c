"""Classifiers by name, and saved ones by what their `config.json` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epida_ray.classify import CLASSIFIERS, saving
from epida_ray.errors import RequestError
from epida_ray.registry import load_target


def create(name: str, labels: Sequence[str] | None, seed: int, arguments: Mapping[str, Any]) -> Any:
    head = name.partition(":")[0]
    if name in CLASSIFIERS.builtins or head in CLASSIFIERS.builtins:
        return CLASSIFIERS.create(name, labels=labels, seed=seed, **arguments)
    from epida_ray.classify.own import Own

    what, _ = CLASSIFIERS.find(name)
    try:
        return Own(name, what, labels, arguments)
    except TypeError as error:
        raise RequestError(f"classifier {name!r} cannot be made with these arguments: {error}") from error


def load(directory: Path, labels: Sequence[str] | None) -> Any:
    config = saving.read_config(directory)
    name = config.get("classifier")
    if name is None and "model_type" in config:
        name = "transformer"
    if not isinstance(name, str):
        raise RequestError(f"{directory / saving.CONFIG} names no classifier")
    try:
        if name in CLASSIFIERS.builtins:
            classifier = load_target(CLASSIFIERS.builtins[name].target).load(directory, config)
        else:
            from epida_ray.classify.own import Own

            classifier = Own.load(directory, config, CLASSIFIERS.find(name)[0])
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"{directory / saving.CONFIG} is not complete: {type(error).__name__} {error}") from error
    if labels is not None and set(labels) != set(classifier.labels):
        theirs, ours = ", ".join(classifier.labels), ", ".join(labels)
        raise RequestError(f"the model in {directory} has the labels {theirs}, the data has {ours}")
    return classifier
