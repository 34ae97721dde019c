"""A teacher whose classes are in another order than the learner's, or are not the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epida_ray.classify.linear import Linear
from epida_ray.core.errors import RequestError
from epida_ray.core.options import make_request
from epida_ray.method.local import train
from epida_ray.method.prepare import load_teacher
from epida_ray.method.requests import TrainRequest

OPENINGS = {"ask": "where is", "order": "please send", "complain": "sadly broken"}
LABELS = ("ask", "complain", "order")
TEXTS = [f"{opening} my parcel {i}" for opening in OPENINGS.values() for i in range(12)]
NAMES = [label for label in OPENINGS for _ in range(12)]
POOL = [f"{opening} this lamp {i}" for i in range(20) for opening in OPENINGS.values()]


def teacher(folder: Path, labels: tuple[str, ...]) -> str:
    """A linear model of these classes; the weights of a class do not depend on the order of the classes."""
    rows = [(text, labels.index(name)) for text, name in zip(TEXTS, NAMES, strict=True) if name in labels]
    model = Linear(labels)
    model.fit([text for text, _ in rows], np.array([y for _, y in rows]), np.ones(len(rows)), 0)
    model.save(folder)
    return str(folder)


def request(folder: Path, **options: Any) -> TrainRequest:
    rows = zip(TEXTS, NAMES, strict=True)
    (folder / "in.csv").write_text("text,label\n" + "".join(f"{text},{name}\n" for text, name in rows))
    (folder / "pool.csv").write_text("text\n" + "".join(f"{text}\n" for text in POOL))
    asked = {
        "input": str(folder / "in.csv"), "output": str(folder / "run"), "classifier": "linear", "generator": "none",
        "rounds": 1, "unlabelled": str(folder / "pool.csv"),
    }  # fmt: skip
    return make_request(TrainRequest, asked | options)


@pytest.mark.parametrize("more", [{}, {"soft_labels": True}, {"generator": "eda", "m": 1}])
def test_a_teacher_with_its_classes_in_another_order_teaches_the_same(tmp_path: Path, more: dict[str, Any]) -> None:
    learners = []
    for i, labels in enumerate((LABELS, ("order", "ask", "complain"))):
        asked = request(tmp_path, teacher=teacher(tmp_path / str(i), labels), **more)
        found = load_teacher(asked, LABELS)
        assert tuple(found.labels) == LABELS
        assert [LABELS[c] for c in found.predict_proba(TEXTS).argmax(axis=1)] == NAMES
        learners.append(train(asked).classifier.predict_proba([*TEXTS, *POOL]))
    np.testing.assert_allclose(learners[1], learners[0], atol=1e-3)
    assert [LABELS[c] for c in learners[0][: len(TEXTS)].argmax(axis=1)] == NAMES


@pytest.mark.parametrize(
    ("labels", "problem"),
    [(("ask", "order"), "it lacks complain"), ((*LABELS, "spam"), "TRAIN lacks spam")],
)
def test_a_teacher_of_other_classes_is_refused(tmp_path: Path, labels: tuple[str, ...], problem: str) -> None:
    asked = request(tmp_path, teacher=teacher(tmp_path / "teacher", labels))
    with pytest.raises(RequestError, match=f"--teacher .* not those of TRAIN: ask, complain, order; {problem}$"):
        train(asked)
