"""How good a saved model is on a labelled file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.fs as pafs

from epida_ray.classify import load
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.metrics import confusion, reliability, scores
from epida_ray.core.progress import Reporter
from epida_ray.data.plan import Columns, plan_inputs
from epida_ray.data.reader import ShardReader
from epida_ray.data.storage import Storage, below
from epida_ray.method.checks import long_texts, warn_of_long_texts
from epida_ray.method.noise import parse_noise

CLEAN = ""
"""The texts as they are."""
MOST_CLASSES = 50
"""Of a model with more, no confusion matrix is kept."""


def evaluate_model(
    model: str,
    file: str,
    text_column: str,
    label_column: str,
    encoding: str = "auto",
    trust_code: Sequence[str] = (),
    max_rejected: float = 1.0,
    delimiter: str | None = None,
    reporter: Reporter | None = None,
    noise: Sequence[str] = (),
) -> dict[str, Any]:
    """Return accuracy, macro_f1, per_class, confusion and reliability of a saved model on a labelled file.

    Rows that cannot be read or whose label the model does not know are left out; `reasons` counts them. More than the
    share `max_rejected` of all rows is a RunError. `noise` are kinds of noise as `parse_noise` reads them; the result
    has the scores on the noisy texts too.
    """
    noises = {spec: parse_noise(spec) for spec in noise}
    where = Storage(model)
    if not where.given("config.json"):
        raise RequestError(no_model(model, where))
    classifier = load(where.local_copy(""), trust=trust_code)
    plan = plan_inputs(file, Columns(text=text_column, label=label_column), encoding, delimiter=delimiter)
    for line in plan.remarks():
        (reporter or Reporter(quiet=True)).say(line)
    index = {label: i for i, label in enumerate(classifier.labels)}
    reader = ShardReader(plan)
    truth: list[int] = []
    predicted: dict[str, list[np.ndarray]] = {spec: [] for spec in (CLEAN, *noises)}
    confidence: list[np.ndarray] = []
    reasons: Counter[str] = Counter()
    long = 0
    for shard in plan.shards():
        table = reader.read(shard)
        ids, texts = [], []
        columns = (table[n].to_pylist() for n in ("sample_id", "text", "label", "reason"))
        for sample_id, text, label, reason in zip(*columns, strict=True):
            if reason is not None:
                reasons[reason] += 1
            elif label not in index:
                reasons[f"the model does not know the label {label[:40]!r}"] += 1
            else:
                ids.append(sample_id)
                texts.append(text)
                truth.append(index[label])
        if texts:
            long += long_texts(classifier, texts)
            p = classifier.predict_proba(texts)
            predicted[CLEAN].append(p.argmax(axis=1))
            confidence.append(p.max(axis=1))
            for spec, make_noise in noises.items():
                predicted[spec].append(classifier.predict_proba(make_noise(ids, texts)).argmax(axis=1))
    if not truth:
        known = ", ".join(classifier.labels)
        reason = reasons.most_common(1)[0][0]
        raise RequestError(f"{file}: no row can be evaluated ({reason}); the model's labels are {known}")
    rejected = sum(reasons.values())
    if rejected > max_rejected * (len(truth) + rejected):
        raise RunError(
            f"{rejected:,} of {len(truth) + rejected:,} rows cannot be scored, more than --max-rejected "
            f"{max_rejected:g} allows; the most common reason: {reasons.most_common(1)[0][0]}"
        )
    warn_of_long_texts(classifier, long, reporter or Reporter(quiet=True))
    best = np.concatenate(predicted[CLEAN])
    found = {spec: scores(classifier.labels, np.array(truth), np.concatenate(some)) for spec, some in predicted.items()}
    result = found.pop(CLEAN) | {"rows": len(truth), "rejected": rejected, "reasons": dict(reasons.most_common(10))}
    result["reliability"] = reliability(best == np.array(truth), np.concatenate(confidence))
    if len(classifier.labels) <= MOST_CLASSES:
        result["confusion"] = confusion(len(classifier.labels), np.array(truth), best).tolist()
    if found:
        result["noise"] = {spec: {k: one[k] for k in ("accuracy", "macro_f1")} for spec, one in found.items()}
    return result


def no_model(given: str, where: Storage) -> str:
    """Return the message for a directory that was given as a model but holds none."""
    inner = below(given, "model")
    if where.given("model/config.json"):
        return f"{given} holds no saved model; did you mean {inner}?"
    if where.filesystem.get_file_info(where.root).type == pafs.FileType.NotFound:
        return f"there is no directory {given}; a run's model is in DIR/model"
    return f"{given} holds no saved model; a run's is in DIR/model"
