"""How good a saved model is on a labelled file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from epida_ray.classify import load
from epida_ray.errors import RequestError
from epida_ray.evaluate.metrics import scores
from epida_ray.inputs import Columns, ShardReader, plan_inputs
from epida_ray.storage import Storage


def evaluate_model(
    model: str,
    file: str,
    text_column: str,
    label_column: str,
    encoding: str = "utf-8",
    trust_code: Sequence[str] = (),
) -> dict[str, Any]:
    """accuracy, macro_f1, per_class; rows that cannot be read or whose label the model does not know are counted."""
    where = Storage(model)
    if not where.exists("config.json"):
        raise RequestError(f"{model} holds no saved model; a run's is in DIR/model")
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
                reasons["the model does not know the label"] += 1
            else:
                texts.append(text)
                truth.append(index[label])
        if texts:
            predicted.append(classifier.predict_proba(texts).argmax(axis=1))
    if not truth:
        known = ", ".join(classifier.labels)
        reason = reasons.most_common(1)[0][0]
        raise RequestError(f"{file}: no row can be evaluated ({reason}); the model's labels are {known}")
    result = scores(classifier.labels, np.array(truth), np.concatenate(predicted))
    rejected = sum(reasons.values())
    return result | {
        "rows": len(truth),
        "rejected": rejected,
        "reason": reasons.most_common(1)[0][0] if rejected else "",
    }
