"""`epida export-model`: a model as an ONNX graph, for programs that have neither Ray nor torch."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from epida_ray.classify import checkpoint, load, onnx
from epida_ray.classify.model import CARD
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.metrics import scores
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.storage import Storage
from epida_ray.method.evaluate import no_model
from epida_ray.method.prepare import Row, read_labelled
from epida_ray.runs.run import directory_digest

TOLERANCE = 1e-5
"""The largest difference between a probability of the original and of the float32 graph."""
SCRIPT = "predict.py"
CONFIG = "labels.json"
CHECKED = (
    "where is my parcel?",
    "",
    "I want my money back; the second item in order 4711 arrived broken, and nobody answers!",
    "ünïcode 🙂 我爱北京天安门 مرحبا",
    "a",
    "one two three four five six seven eight nine ten " * 12,
    "NULL",
    "<b>bold</b> & \"quoted\" 'text'",
)
"""Texts on which every export is compared with the original, besides those of --eval."""


class Exported(NamedTuple):
    directory: str
    largest_difference: float
    same_class: float
    """Share of the texts that get the same class."""
    scores: dict[str, dict[str, Any]]
    """With a labelled file: accuracy and macro_f1 of the original and of the export."""


def export_model(
    model: str,
    output: str,
    int8: bool = False,
    eval: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
) -> Exported:
    """Write OUT/model.onnx, the tokeniser, the labels and a script that uses them; compare with the original."""
    where, target = Storage(model), Path(output)
    if "://" in output or (target.exists() and not target.is_dir()):
        raise RequestError(f"--output is a folder on this machine, not {output}")
    if not where.given("config.json"):
        raise RequestError(no_model(model, where))
    if target.exists() and any(target.iterdir()):
        raise RequestError(f"{output} is not empty; choose another --output")
    source = where.local_copy("")
    classifier = load(source)
    rows = read_labelled(plan_inputs(eval, Columns(text=text_column, label=label_column)))[0] if eval else []
    if rows and not any(row.label in classifier.labels for row in rows):
        raise RequestError(f"--eval has none of the model's labels: {', '.join(classifier.labels)}")
    target = target.resolve()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".epida-", dir=target.parent) as folder:  # OUT stays empty if this fails
        made = Path(folder)
        apart, same, measured = _write(classifier, made, int8, rows, directory_digest(source)[:16])
        if where.exists(CARD):
            (made / CARD).write_bytes(where.read(CARD))
        for path in sorted(made.iterdir()):
            os.replace(path, target / path.name)
    return Exported(output, apart, same, measured)


def _write(
    classifier: Any, target: Path, int8: bool, rows: Sequence[Row], version: str
) -> tuple[float, float, dict[str, dict[str, Any]]]:
    """Write the graph and what belongs to it; return how it compares with the original."""
    onnx.write_graph(classifier, target / onnx.FILE, int8)
    checkpoint.save_tokenizer(classifier.tokenizer, target)
    for path in target.iterdir():
        if path.name not in (onnx.FILE, "tokenizer.json"):
            path.unlink()
    texts = [*CHECKED, *(row.text for row in rows)]
    original = classifier.predict_proba(texts)
    exported = onnx.OnnxScorer(classifier, target / onnx.FILE).predict_proba(texts)
    apart = float(np.abs(original - exported).max())
    if not int8 and not apart <= TOLERANCE:
        raise RunError(f"the graph's probabilities differ from the original's by {apart:.1e}; please report this model")
    same = float((original.argmax(axis=1) == exported.argmax(axis=1)).mean())
    measured = _scores(classifier.labels, rows, original[len(CHECKED) :], exported[len(CHECKED) :]) if rows else {}
    encoder = getattr(classifier, "encoder", None)
    config = {
        "labels": list(classifier.labels),
        "max_length": (encoder or classifier).max_length,
        "pad": classifier.tokenizer.pad_token_id,
        "pad_left": classifier.tokenizer.padding_side == "left",
        "prompt": encoder.prompt if encoder else "",
        "lower": encoder.config.lower if encoder else False,
        "model_version": version,
        "precision": "int8" if int8 else "float32",
        "largest_difference": apart,
        "scores": measured,
    }
    (target / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    (target / SCRIPT).write_bytes(files("epida_ray.method").joinpath("onnx_predict.py").read_bytes())
    return apart, same, measured


def _scores(labels: Sequence[str], rows: Sequence[Any], *probabilities: np.ndarray) -> dict[str, dict[str, Any]]:
    number = {label: i for i, label in enumerate(labels)}
    known = [i for i, row in enumerate(rows) if row.label in number]
    truth = np.array([number[rows[i].label] for i in known])
    found = {}
    for name, p in zip(("original", "exported"), probabilities, strict=True):
        one = scores(labels, truth, p[known].argmax(axis=1))
        found[name] = {"accuracy": one["accuracy"], "macro_f1": one["macro_f1"], "rows": len(known)}
    return found
