"""How good a saved model is on a labelled file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.fs as pafs

from epida_ray.classify import load
from epida_ray.core.errors import RequestError, RunError
from epida_ray.core.metrics import scores
from epida_ray.data.inputs import Columns, ShardReader, plan_inputs
from epida_ray.data.storage import Storage, below


def evaluate_model(
    model: str,
    file: str,
    text_column: str,
    label_column: str,
    encoding: str = "utf-8",
    trust_code: Sequence[str] = (),
    max_rejected: float = 1.0,
) -> dict[str, Any]:
    """accuracy, macro_f1, per_class; rows that cannot be read or whose label the model does not know are left out.

    `reasons` says how many of them there are and why; more than the share `max_rejected` of all rows is a RunError.
    """
    where = Storage(model)
    if not where.exists("config.json"):
        raise RequestError(no_model(model, where))
    classifier = load(where.local_copy(""), trust=trust_code)
    plan = plan_inputs(file, Columns(text=text_column, label=label_column), encoding)
    index = {label: i for i, label in enumerate(classifier.labels)}
    reader = ShardReader(plan)
    truth: list[int] = []
    predicted: list[np.ndarray] = []
    reasons: Counter[str] = Counter()
    for shard in plan.shards():
        table = reader.read(shard)
        texts = []
        for text, label, reason in zip(*(table[n].to_pylist() for n in ("text", "label", "reason")), strict=True):
            if reason is not None:
                reasons[reason] += 1
            elif label not in index:
                reasons[f"the model does not know the label {label[:40]!r}"] += 1
            else:
                texts.append(text)
                truth.append(index[label])
        if texts:
            predicted.append(classifier.predict_proba(texts).argmax(axis=1))
    if not truth:
        known = ", ".join(classifier.labels)
        reason = reasons.most_common(1)[0][0]
        raise RequestError(f"{file}: no row can be evaluated ({reason}); the model's labels are {known}")
    rejected = sum(reasons.values())
    if rejected > max_rejected * (len(truth) + rejected):
        raise RunError(
            f"{rejected:,} of {len(truth) + rejected:,} rows cannot be scored, more than --max-rejected "
            f"{max_rejected:g} allows; the commonest reason: {reasons.most_common(1)[0][0]}"
        )
    result = scores(classifier.labels, np.array(truth), np.concatenate(predicted))
    return result | {"rows": len(truth), "rejected": rejected, "reasons": dict(reasons.most_common(10))}


def no_model(given: str, where: Storage) -> str:
    """What to say of a directory that was given as a model and is none."""
    inner = below(given, "model")
    if where.exists("model/config.json"):
        return f"{given} holds no saved model; did you mean {inner}?"
    if where.filesystem.get_file_info(where.root).type == pafs.FileType.NotFound:
        return f"there is no directory {given}; a run's model is in DIR/model"
    return f"{given} holds no saved model; a run's is in DIR/model"
