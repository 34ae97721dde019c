"""A scikit-learn pipeline as a classifier: texts in, `predict_proba` or `decision_function` out."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epida_ray.classify import saving
from epida_ray.classify.calibration import tempered
from epida_ray.classify.targets import distributions
from epida_ray.core.errors import RequestError
from epida_ray.core.registry import load_target

FILE = "model.skops"


class SklearnClassifier:
    """`source` is a `.skops` file, a `.joblib` or `.pkl` file (with `trust_pickle`), or MODULE:FACTORY.

    A fitted pipeline brings its classes as labels. A factory takes no arguments and returns a pipeline, which `fit`
    trains: anew, or with `partial_fit` when `partial` is set and the pipeline has it. `trust` names the types in a
    skops file that skops does not trust of itself and that may be loaded.
    """

    name = "sklearn"

    def __init__(
        self,
        source: str,
        labels: Sequence[str] | None = None,
        *,
        trust: Sequence[str] = (),
        trust_pickle: bool = False,
        partial: bool = False,
        seed: int = 0,
    ) -> None:
        self.trust, self.partial = tuple(trust), bool(partial)
        self.temperature = 1.0
        self.source = source
        self.pipeline = _open(source, self.trust, trust_pickle, seed)
        known = _classes(self.pipeline)
        if known is None and labels is None:
            raise RequestError(f"the pipeline {source} is not fitted and has no classes; give the labels")
        self.labels = saving.checked_labels(labels if labels is not None else known or ())
        if known is not None and not set(known) <= set(self.labels):
            raise RequestError(f"the pipeline {source} has the classes {known}, not {list(self.labels)}")
        if self.partial and not hasattr(self.pipeline, "partial_fit"):
            raise RequestError(f"the pipeline {source} has no partial_fit; leave out `partial` to fit it from scratch")

    def describe(self) -> str:
        steps = getattr(self.pipeline, "steps", [("", self.pipeline)])
        return "scikit-learn " + " > ".join(type(step).__name__ for _, step in steps)

    def predict_proba(self, texts: Sequence[str]) -> np.ndarray:
        out = np.zeros((len(texts), len(self.labels)), np.float32)
        classes = _classes(self.pipeline)
        if classes is None:
            return out + np.float32(1 / len(self.labels))  # nothing was learnt yet
        if len(texts):
            out[:, [self.labels.index(c) for c in classes]] = self._scores(list(texts))
        return out if self.temperature == 1.0 else tempered(out, self.temperature).astype(np.float32)

    def _scores(self, texts: list[str]) -> np.ndarray:
        if hasattr(self.pipeline, "predict_proba"):
            p = np.asarray(self.pipeline.predict_proba(texts), np.float64)
        else:
            d = np.asarray(self.pipeline.decision_function(texts), np.float64)
            d = np.stack([-d, d], axis=1) / 2 if d.ndim == 1 else d
            p = np.exp(d - d.max(axis=1, keepdims=True))
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1), 1 / p.shape[1])

    def fit(self, texts: Sequence[str], y: np.ndarray, weights: np.ndarray, seed: int) -> None:
        from sklearn.base import clone

        # a text with a soft target is a row for each of its classes, weighted by the class's probability
        targets = distributions(y, len(self.labels))
        rows, numbers = np.nonzero(targets)
        learnt, names = [texts[i] for i in rows.tolist()], np.array(self.labels)[numbers]
        weighted = self._weighted(np.asarray(weights)[rows] * targets[rows, numbers])
        if self.partial:
            self.pipeline.partial_fit(learnt, names, **weighted, classes=np.array(sorted(self.labels)))
            return
        fresh = clone(self.pipeline)
        _set_seed(fresh, seed)
        fresh.fit(learnt, names, **weighted)
        self.pipeline = fresh

    def _weighted(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        from sklearn.utils.validation import has_fit_parameter

        steps = getattr(self.pipeline, "steps", None)
        name, last = steps[-1] if steps else ("", self.pipeline)
        if has_fit_parameter(last, "sample_weight"):
            return {f"{name}__sample_weight" if steps else "sample_weight": np.asarray(weights, np.float64)}
        if len(set(np.asarray(weights).tolist())) > 1:
            raise RequestError(f"{type(last).__name__} takes no sample weights; rewrites and soft targets need them")
        return {}

    def state(self) -> dict[str, np.ndarray]:
        """Return the pipeline as one array of skops bytes."""
        return {
            "skops": np.frombuffer(dump(self.pipeline), np.uint8).copy(),
            "temperature": np.array(self.temperature, np.float32),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        if "skops" not in state:
            raise RequestError("these weights are of another model: no scikit-learn pipeline in them")
        self.pipeline = loads(np.asarray(state["skops"], np.uint8).tobytes(), "the published pipeline", self.trust)
        self.temperature = float(state.get("temperature", self.temperature))

    def save(self, directory: str | Path) -> None:
        path = Path(directory)
        path.mkdir(parents=True, exist_ok=True)
        saving.write_atomically(path / FILE, dump(self.pipeline))
        config = {
            "classifier": self.name,
            "labels": list(self.labels),
            "partial": self.partial,
            "temperature": self.temperature,
        }
        saving.write_atomically(path / saving.CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())

    @classmethod
    def load(cls, directory: Path, config: Mapping[str, Any], trust: Sequence[str] = ()) -> SklearnClassifier:
        if not (directory / FILE).is_file():
            raise RequestError(f"there is no {FILE} in {directory}")
        classifier = cls(str(directory / FILE), config["labels"], trust=trust, partial=config["partial"])
        classifier.temperature = float(config["temperature"])
        return classifier


def dump(pipeline: Any) -> bytes:
    """Return skops bytes, the same for equal pipelines: no addresses of objects, no times."""
    from skops.io import dumps

    with zipfile.ZipFile(io.BytesIO(dumps(pipeline))) as archive:
        schema = json.loads(archive.read("schema.json"))
        renamed: dict[str, str] = {}
        numbers: dict[int, int] = {}
        _renumber(schema, numbers, renamed)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as clean:
            for old, new in renamed.items():
                clean.writestr(zipfile.ZipInfo(new), archive.read(old))
            clean.writestr(zipfile.ZipInfo("schema.json"), json.dumps(schema, indent=1))
    return out.getvalue()


def _renumber(node: Any, numbers: dict[int, int], files: dict[str, str]) -> None:
    """Replace object ids by 0, 1, 2 … in the order they are met, and name files likewise."""
    if isinstance(node, dict):
        if isinstance(node.get("__id__"), int):
            node["__id__"] = numbers.setdefault(node["__id__"], len(numbers))
        if isinstance(node.get("file"), str):
            suffix = Path(node["file"]).suffix
            node["file"] = files.setdefault(node["file"], f"{len(files)}{suffix}")
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _renumber(child, numbers, files)


def loads(data: bytes, where: str, trust: Sequence[str]) -> Any:
    from skops import io as skops_io

    try:
        found = skops_io.get_untrusted_types(data=data)
        unknown = [t for t in found if t not in trust]
        if unknown:
            options = " ".join(f"--trust-code {t}" for t in unknown)
            raise RequestError(f"{where} would run code that is not scikit-learn's; if you trust it, add {options}")
        return skops_io.loads(data, trusted=found)
    except RequestError:
        raise
    except Exception as error:  # a damaged archive fails in many ways
        raise RequestError(f"{where} cannot be read as a skops file: {type(error).__name__} {error}") from error


def _open(source: str, trust: Sequence[str], trust_pickle: bool, seed: int) -> Any:
    path = Path(source)
    if path.is_file():
        data = path.read_bytes()
        if data[:2] == b"PK" and path.suffix not in (".joblib", ".pkl"):
            return loads(data, source, trust)
        if not trust_pickle:
            raise RequestError(
                f"{source} is a pickle and could run any code; save it with skops or give --trust-pickle"
            )
        import joblib

        try:
            return joblib.load(path)
        except Exception as error:
            raise RequestError(f"{source} cannot be loaded with joblib: {error}") from error
    if ":" not in source:
        raise RequestError(f"there is no pipeline {source!r}: give a .skops file or MODULE:FACTORY")
    try:
        made = load_target(source)()
    except Exception as error:  # importing it runs code of the user's
        raise RequestError(f"the pipeline {source!r} cannot be imported: {error}") from error
    if not hasattr(made, "fit"):
        raise RequestError(f"{source} did not return a scikit-learn pipeline but {type(made).__name__}")
    _set_seed(made, seed)
    return made


def _set_seed(pipeline: Any, seed: int) -> None:
    unset = {k: seed for k, v in pipeline.get_params().items() if k.split("__")[-1] == "random_state" and v is None}
    pipeline.set_params(**unset)


def _classes(pipeline: Any) -> list[str] | None:
    try:
        return [str(c) for c in pipeline.classes_]
    except AttributeError:
        return None
