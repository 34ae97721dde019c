"""The card of a saved model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from epida_ray.classify.model import CARD
from epida_ray.core.metrics import reliability, scores
from epida_ray.data.storage import Storage
from epida_ray.method.card import card, interval, write_card
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
    noisy = manifest().test | {"noise": {"spelling:0.3": {"macro_f1": 0.5, "accuracy": 0.6}}}  # type: ignore[operator]
    assert "- with noise `spelling:0.3` (`--noise` of `epida evaluate`): macro-F1 0.5000" in card(manifest(test=noisy))
    assert "It was not tested" in card(manifest(test=None))


def test_the_judge_of_augment_learned_from_the_rows_of_train_or_some_of_the_input(tmp_path: Path) -> None:
    def learned(**execution: str | None) -> str:
        request = {"generator": "eda", "classifier": "cnn", "train_rows": 20_000, "seed": 7}
        made = manifest(kind="augment", request=request, execution={"classifier": "cnn"} | execution, prepared=None)
        return card(made).partition("## Learned from\n\n")[2].partition("\n\n##")[0]

    assert learned(input="pool.csv", train=None) == "- texts: up to 20,000 rows of `pool.csv`\n- seed 7"
    assert learned(input="pool.csv", train="few.csv") == "- texts: up to 20,000 rows of `few.csv`\n- seed 7"
    saved = learned(input="pool.csv", train=None, classifier="judges/a")
    assert "a copy of the saved model `judges/a`" in saved and "pool.csv" not in saved and "seed" not in saved


def test_a_copy_of_a_saved_model_has_the_card_of_the_original(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    made = manifest(kind="augment", execution={"input": "pool.csv", "classifier": "given"})
    write_card(Storage(str(tmp_path)), "model", made, tmp_path / "given")
    assert "a copy of the saved model `given`" in (tmp_path / "model" / CARD).read_text()
    (tmp_path / "given" / CARD).write_text("# What it learned from\n")
    write_card(Storage(str(tmp_path)), "model", made, tmp_path / "given")
    assert (tmp_path / "model" / CARD).read_text() == "# What it learned from\n"


def test_a_saved_model_that_learns_on_is_named() -> None:
    request = {"generator": "eda", "select": "rem+cem", "seed": 7, "classifier": "0123abc"}
    text = card(manifest(request=request, execution={"input": "tickets.csv", "classifier": "before/model"}))
    assert "- trained further from the saved model `before/model`\n- texts: `tickets.csv`" in text


def test_it_names_what_the_model_is_built_on() -> None:
    def licences(described: str) -> list[str]:
        return card(manifest(classifier=described)).partition("## Licences of its parts\n\n")[2].splitlines()[:-2]

    assert licences("bert transformer acme/MiniLM-own (22.7 M parameters, float32 on cpu)") == [
        "- `acme/MiniLM-own`: see its own licence"
    ]
    (glove,) = licences("CNN (filters 2, 3 x 8) over GloVe 6B word vectors (50-d)")
    assert "Public Domain" in glove
    assert licences("CNN (filters 2, 3 x 8) over hashed word vectors (50-d, without meaning)") == []
    assert licences("CNN (filters 2, 3 x 8) over mine.vec (900 words, 50-d)") == ["- `mine.vec`: see its own licence"]
    assert licences("logistic regression on hashed n-grams") == []


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
