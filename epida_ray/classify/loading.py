"""Saved classifiers, found by what their `config.json` says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epida_ray.classify import CLASSIFIERS, saving
from epida_ray.errors import RequestError
from epida_ray.registry import _load as load_target


def load(directory: Path, labels: Sequence[str] | None = None) -> Any:
    config = saving.read_config(directory)
    name = config.get("classifier")
    if not isinstance(name, str) or name not in CLASSIFIERS.builtins:
        raise RequestError(f"{directory / saving.CONFIG} names no classifier that this version knows: {name!r}")
    try:
        classifier = load_target(CLASSIFIERS.builtins[name].target).load(directory, config)
    except (KeyError, TypeError, ValueError) as error:
        raise RequestError(f"{directory / saving.CONFIG} is not complete: {type(error).__name__} {error}") from error
    if labels is not None and set(labels) != set(classifier.labels):
        theirs, ours = ", ".join(classifier.labels), ", ".join(labels)
        raise RequestError(f"the model in {directory} has the labels {theirs}, the data has {ours}")
    return classifier
