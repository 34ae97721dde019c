"""The card of a saved model."""

from __future__ import annotations

import numpy as np

from epida_ray.core.metrics import reliability, scores
from epida_ray.method.card import card, interval
from epida_ray.runs.manifest import Best, Manifest, Prepared


def manifest(**changes: object) -> Manifest:
    truth, predicted = np.repeat([0, 1], [60, 40]), np.repeat([0, 1, 0, 1], [50, 10, 8, 32])
    test = scores(["bill|ing", "b`ug"], truth, predicted) | {"rows": 100, "confusion": [[50, 10], [8, 32]]}
    given = {
        "kind": "train", "status": "running", "labels": ["bill|ing", "b`ug"], "test": test,
        "classifier": "sentence encoder MiniLM-L6 (22.7 M parameters, frozen) with a logistic head",
        "request": {"generator": "eda", "select": "rem+cem", "seed": 7},
        "execution": {"input": "tickets.csv", "eval": "test.csv"}, "command": ["epida", "train", "my tickets.csv"],
        "versions": {"python": "3.11", "torch": "2.13.0"}, "prepared": Prepared(train=70, dev=20, rejected=0),
        "best": Best(round=3, macro_f1=0.8123, accuracy=0.8, loss=0.5),
    }  # fmt: skip
    return Manifest(**given | changes)


def test_it_says_what_the_model_learned_from_how_good_it_is_and_how_it_was_made() -> None:
    text = card(manifest())
    for part in (
        "for 2 classes: `bill\\|ing`, `` b`ug ``",
        "`tickets.csv`",
        "70 rows to learn from and 20",
        "rewrites: eda, chosen by rem+cem",
        "seed 7",
        "On 100 rows of `test.csv`",
        "95% confidence interval",
        "| `bill\\|ing` | 0.862 | 0.833 | 0.847 | 60 |",
        "round 3 was chosen: macro-F1 0.8123",
        "epida train 'my tickets.csv'",
        "torch 2.13.0",
        "all-MiniLM-L6-v2: Apache License 2.0",
    ):
        assert part in text, part
    assert "GloVe" not in text and text == card(manifest())
    assert "It was not tested" in card(manifest(test=None))


def test_the_interval_covers_the_score_and_narrows_with_more_rows() -> None:
    few, many = ([[50 * n, 10 * n], [8 * n, 32 * n]] for n in (1, 25))
    for metric, value in (("accuracy", 0.82), ("macro_f1", 0.814)):
        low, high = interval(few, metric)
        assert low < value < high and 0.1 < high - low < 0.2
        narrow = interval(many, metric)
        assert low < narrow[0] < value < narrow[1] < high


def test_the_reliability_diagram_counts_every_row_once() -> None:
    confidence = np.array([0.0, 0.31, 0.39, 0.95, 1.0])
    bins = reliability(np.array([False, True, False, True, True]), confidence)
    assert [one["rows"] for one in bins] == [1, 2, 2]
    assert bins[1] == {"rows": 2, "confidence": np.mean([0.31, 0.39]), "accuracy": 0.5}
    assert bins[2]["accuracy"] == 1.0
