"""Classifiers of the user's own: a class with `predict_proba`, or a function for scoring only."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.classify import saving
from epida_ray.classify.calibration import tempered
from epida_ray.core.errors import RequestError, RunError

INNER = "own"


class UserClassifier:
    """Checks the answers of a user's classifier, and keeps what is needed to create it again.

    A class is made with `labels` (if it takes them) and the given arguments. A class with `save(directory)` and a class
    method `load(directory)` keeps its own files in the saved model; any other is made anew from the same arguments. One
    that can be trained has `fit(texts, y, weights, seed)` or the methods of a torch classifier, and is used as it is.
    """

    def __init__(self, target: str, what: Any, labels: Sequence[str] | None, arguments: Mapping[str, Any]) -> None:
        self.target, self.arguments = target, dict(arguments)
        self.temperature = 1.0
        if inspect.isclass(what):
            if not hasattr(what, "predict_proba"):
                raise RequestError(f"classifier {target} has no predict_proba")
            options = dict(arguments)
            if labels is not None and _takes(what, "labels"):
                options["labels"] = tuple(labels)
            self.inner: Any = what(**options)
        else:
            self.inner = what
        self._score: Any = getattr(self.inner, "predict_proba", self.inner)
        if not callable(self._score):
            raise RequestError(f"classifier {target} has no predict_proba")
        own_labels = getattr(self.inner, "labels", None)
        if own_labels is None and labels is None:
            raise RequestError(f"classifier {target} declares no labels; give them with --labels")
        self.labels = saving.checked_labels(own_labels if own_labels is not None else labels)
        if labels is not None and set(labels) != set(self.labels):
            raise RequestError(f"classifier {target} has the labels {', '.join(self.labels)}, not {', '.join(labels)}")
        for name in ("embed", "fit", "refit", "defaults", "module", "table", "parameter_groups"):
            if hasattr(self.inner, name):
                setattr(self, name, getattr(self.inner, name))

    def describe(self) -> str:
        said = getattr(self.inner, "describe", None)
        return str(said()) if callable(said) else f"{self.target} (your own)"

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        expected = (len(texts), len(self.labels))
        p = np.asarray(self._score(list(texts)))
        if p.shape != expected or p.dtype.kind not in "fiu":
            raise RunError(f"classifier {self.target} answered {p.dtype} {p.shape} instead of {expected}")
        p = p.astype(np.float32)
        if not np.isfinite(p).all() or (p < 0).any() or (np.abs(p.sum(axis=1) - 1) > 1e-3).any():
            raise RunError(f"classifier {self.target} answered rows that are not probabilities (they must sum to 1)")
        return p if self.temperature == 1.0 else tempered(p, self.temperature).astype(np.float32)

    def state(self) -> dict[str, np.ndarray]:
        own = self.inner.state() if hasattr(self.inner, "state") else {}
        return own | {"temperature": np.array(self.temperature, np.float32)}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        if hasattr(self.inner, "load_state"):
            self.inner.load_state({k: v for k, v in state.items() if k != "temperature"})
        self.temperature = float(state.get("temperature", self.temperature))

    def save(self, directory: str | Path) -> None:
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        keeps = hasattr(self.inner, "save") and hasattr(type(self.inner), "load")
        if keeps:
            self.inner.save(path / INNER)
        config = {
            "classifier": self.target,
            "labels": list(self.labels),
            "arguments": self.arguments,
            "keeps": keeps,
            "temperature": self.temperature,
        }
        try:
            text = json.dumps(config, indent=2, sort_keys=True)
        except TypeError as error:
            raise RequestError(f"the arguments of classifier {self.target} cannot be saved as JSON: {error}") from error
        saving.write_atomically(path / saving.CONFIG, (text + "\n").encode())

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any], what: Any) -> UserClassifier:
        if config["keeps"]:
            if not (inspect.isclass(what) and hasattr(what, "predict_proba") and hasattr(what, "load")):
                raise RequestError(f"classifier {config['classifier']} is not a class with predict_proba and load")
            inner = what.load(directory / INNER)
            classifier = cls(config["classifier"], inner, config["labels"], {})
            classifier.arguments = dict(config["arguments"])
        else:
            classifier = cls(config["classifier"], what, config["labels"], config["arguments"])
        classifier.temperature = float(config["temperature"])
        return classifier


def _takes(what: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(what).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
