"""EpidaClassifier and Augmenter: scikit-learn's rules, and what the command line would give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

import epida_ray
from epida_ray.method.requests import TrainRequest
from epida_ray.stream.driver import train
from tests.experiments.corpora import LABELS, toy_rows, write_rows

ROWS = toy_rows(120, "rows.csv")
TEST = toy_rows(60, "test.csv", 7)
NAMES = [LABELS[i] for i in ROWS.y]
TRUE = [LABELS[i] for i in TEST.y]
SMALL = {"channels": 8, "vectors": "hashed"}
ON_RAY = {"workers": 0, "generator_actors": 1, "scorer_actors": 1, "stall_timeout": 240.0}


def linear(**options: Any) -> epida_ray.EpidaClassifier:
    return epida_ray.EpidaClassifier("linear", **{"generator": "none", "rounds": 1} | options)


class OfNumbers(epida_ray.EpidaClassifier):
    """Writes numbers as words, so that scikit-learn's checks, which make tables of numbers, can try the classifier."""

    def __init__(self, classifier: str = "linear", *, generator: str = "none", rounds: int = 1, seed: int = 0) -> None:
        super().__init__(classifier, generator=generator, rounds=rounds, seed=seed)

    def fit(self, X: Any, y: Any) -> OfNumbers:  # type: ignore[override]
        if y is None:
            return super().fit(["a"], y)
        X, y = validate_data(self, X, y)
        return super().fit(self._words(X), y)

    def predict_proba(self, X: Any) -> np.ndarray:
        return super().predict_proba(self._words(validate_data(self, X, reset=False)))

    def _words(self, X: np.ndarray) -> list[str]:
        steps = np.round(np.asarray(X, np.float64) * 2).astype(int)
        return [" ".join(f"c{column}v{value}" for column, value in enumerate(row)) for row in steps.tolist()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = False, True, False
        return tags


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([linear(), OfNumbers(), epida_ray.Augmenter(classifier="linear", m=1)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


OPTIONS: dict[str, dict[str, Any]] = {
    "rewrites": {"classifier": "cnn", "classifier_args": SMALL, "generator": "eda", "m": 2, "rounds": 2},
    "nothing else": {"classifier": "linear", "generator": "none", "rounds": 2},
    "pool": {"classifier": "linear", "generator": "none", "unlabelled": TEST.texts * 5, "pool_rows": 200},
    "teacher": {
        "classifier": "cnn", "classifier_args": SMALL, "unlabelled": TEST.texts * 5, "pool_rows": 200, "m": 1,
        "generator": "eda", "teacher": "teacher", "pool_rewrites": True, "soft_labels": True, "rounds": 2,
        "select": "divergence+cem", "epochs_per_round": 1,
    },
}  # fmt: skip


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize(
    "name", ["rewrites", "teacher", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nothing else", "pool"))]
)
def test_the_weights_are_those_of_the_command_line(name: str, tmp_path: Path) -> None:
    options = dict(OPTIONS[name]) | {"seed": 3}
    if "teacher" in options:
        others = [NAMES[0]] * 60 + list(NAMES[60:])  # its labels have other shares of the classes
        linear().fit(ROWS.texts, others).save(tmp_path / "teacher")
        options["teacher"] = str(tmp_path / "teacher")
    ours = epida_ray.EpidaClassifier(**options).fit(ROWS.texts, NAMES, ids=ROWS.ids)
    if "unlabelled" in options:
        options["unlabelled"] = str(tmp_path / "unlabelled.parquet")
        pq.write_table(pa.table({"text": TEST.texts * 5}), options["unlabelled"])
    file = write_rows(tmp_path / "rows.csv", ROWS)
    theirs = train(TrainRequest(input=file, output=str(tmp_path / "run"), id_column="id", **options, **ON_RAY))
    expected, found = theirs.model().classifier.state(), ours.model_.classifier.state()
    for key, weights in expected.items():
        np.testing.assert_array_equal(found[key], weights, err_msg=key)
    assert [line["dev_macro_f1"] for line in theirs.metrics] == [line["dev_macro_f1"] for line in ours.metrics_]
    assert ours.best_round_ == theirs.best_round
    ours.save(tmp_path / "saved")
    shown = epida_ray.load(tmp_path / "saved")
    assert shown.predict(TEST.texts) == theirs.model().predict(TEST.texts) == ours.predict(TEST.texts).tolist()


@pytest.mark.usefixtures("local_ray")
def test_on_ray_when_an_address_is_given() -> None:
    here = linear(seed=1).fit(ROWS.texts, NAMES)
    there = linear(seed=1, address="auto").fit(ROWS.texts, NAMES)
    np.testing.assert_array_equal(here.predict_proba(TEST.texts), there.predict_proba(TEST.texts))


@pytest.mark.usefixtures("local_ray")
@pytest.mark.filterwarnings("ignore:there are .* dev rows")
def test_every_fit_has_its_own_folder_in_the_output(tmp_path: Path) -> None:
    model = linear(address="auto", output=str(tmp_path / "fits"))
    texts, y = np.array(ROWS.texts, object), np.array(NAMES)
    for _ in range(2):  # the second time, both are there already
        assert cross_val_score(model, texts, y, cv=2, error_score="raise").min() > 0.5
        assert len(list((tmp_path / "fits").glob("*/model/config.json"))) == 2


@pytest.mark.filterwarnings("ignore:there are .* dev rows", "error::sklearn.exceptions.FitFailedWarning")
def test_in_pipelines_cross_validation_and_grid_search() -> None:
    texts, y = np.array(ROWS.texts, object), np.array(NAMES)
    assert cross_val_score(linear(), texts, y, cv=3, scoring="f1_macro").min() > 0.8
    grid = GridSearchCV(linear(), {"rounds": [1, 2], "classifier_args": [None, {"pairs": False}]}, cv=2).fit(texts, y)
    assert grid.best_score_ > 0.8 and len(grid.cv_results_["params"]) == 4
    piped = Pipeline([("lower", Lower()), ("model", linear())]).fit(pd.Series(ROWS.texts), NAMES)
    assert piped.set_params(model__rounds=2).get_params()["model__rounds"] == 2
    assert piped.score(TEST.texts, TRUE) > 0.8


class Lower(TransformerMixin, BaseEstimator):
    def fit(self, X: Any, y: Any = None) -> Lower:
        return self

    def transform(self, X: Any) -> list[str]:
        return [text.lower() for text in X]


@pytest.mark.parametrize("kind", [int, float, bool, str])
def test_labels_keep_their_type_also_when_saved(kind: Any, tmp_path: Path) -> None:
    y = np.array([kind(10 - 9 * i) if kind is not bool else bool(i) for i in ROWS.y])
    fitted = linear().fit(ROWS.texts, y)
    assert fitted.classes_.tolist() == sorted(set(y.tolist())) and fitted.score(ROWS.texts, y) > 0.9
    assert fitted.predict(TEST.texts).dtype == y.dtype
    fitted.set_params(seed=np.int64(fitted.seed))  # as a search sets it
    fitted.save(tmp_path)
    again = epida_ray.EpidaClassifier.load(tmp_path)
    assert again.get_params() == fitted.get_params() and again.classes_.dtype == fitted.classes_.dtype
    np.testing.assert_array_equal(again.predict_proba(TEST.texts), fitted.predict_proba(TEST.texts))
    assert not [file.name for file in tmp_path.iterdir() if file.suffix not in (".json", ".safetensors", ".md")]
    assert not hasattr(clone(again), "model_")


def test_a_saved_model_has_its_card_wherever_it_came_from(tmp_path: Path) -> None:
    made = linear(seed=7).fit(ROWS.texts, NAMES)
    made.save(tmp_path / "a")
    text = (tmp_path / "a" / "README.md").read_text()
    for part in ("for 2 classes: `food`, `sport`", "- no rewrites", "- seed 7", "On dev, where round", "epida-ray"):
        assert part in text, part
    epida_ray.load(tmp_path / "a").save(tmp_path / "b")
    epida_ray.EpidaClassifier.load(tmp_path / "a").save(tmp_path / "c")
    assert [(tmp_path / name / "README.md").read_text() for name in "bc"] == [text, text]


def test_wrong_input_is_a_value_error_in_the_words_of_python() -> None:
    with pytest.raises(ValueError, match="X must be a sequence of texts; of a table give the column"):
        linear().fit(pd.DataFrame({"text": ROWS.texts}), NAMES)
    with pytest.raises(ValueError, match="text 1 is not a string but NoneType"):
        linear().fit(["a", None], ["x", "y"])  # type: ignore[list-item]
    with pytest.raises(epida_ray.RequestError, match="^soft_labels needs a teacher$"):
        linear(soft_labels=True).fit(ROWS.texts, NAMES)
    with pytest.raises(ValueError, match="^m: Input should be greater than or equal to 1$"):
        linear(generator="eda", m=0).fit(ROWS.texts, NAMES)
    with pytest.raises(ValueError, match="120 texts, y has the shape"):
        linear().fit(ROWS.texts, NAMES[1:])
    with pytest.raises(ValueError, match="no text of the class empty can be used"):
        linear().fit([*ROWS.texts, "", " "], [*NAMES, "empty", "empty"])
    with pytest.warns(UserWarning, match="24 dev rows: so few rows"):
        linear().fit(ROWS.texts, NAMES)


def test_max_rejected_is_the_share_of_texts_that_may_be_unusable() -> None:
    texts = ["  " if i % 3 == 0 else text for i, text in enumerate(ROWS.texts)]
    with pytest.raises(epida_ray.EpidaError, match="40 of 120 rows.* were rejected, more than"):
        linear().fit(texts, NAMES)
    assert linear(max_rejected=0.5).fit(texts, NAMES).score(TEST.texts, TRUE) > 0.8


def test_an_augmenter_adds_what_augment_keeps() -> None:
    y = np.array([int(i) for i in ROWS.y])
    augmenter = epida_ray.Augmenter(classifier="linear", m=2, seed=4)
    texts, labels = augmenter.fit_resample(ROWS.texts, y)
    assert len(texts) == len(labels) == 3 * len(ROWS) and labels.dtype == y.dtype
    assert texts[: len(ROWS)].tolist() == ROWS.texts and labels[: len(ROWS)].tolist() == y.tolist()
    kept = epida_ray.augment_texts(ROWS.texts, y.tolist(), classifier="linear", m=2, seed=4)
    assert kept["text"].to_pylist() == texts[len(ROWS) :].tolist() == augmenter.rewrites_["text"].to_pylist()
    assert kept["label"].to_pylist() == labels[len(ROWS) :].tolist()
    only, _ = clone(augmenter).set_params(with_originals=False).fit_resample(ROWS.texts, y)
    assert only.tolist() == kept["text"].to_pylist()
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, labels)
    assert model.score(TEST.texts, TEST.y) > 0.8


@pytest.mark.slow
@pytest.mark.usefixtures("local_ray")
def test_an_augmenter_on_ray(tmp_path: Path) -> None:
    here = epida_ray.Augmenter(classifier="linear", m=1, with_originals=False)
    there = clone(here).set_params(address="auto", output=str(tmp_path))
    texts, labels = here.fit_resample(ROWS.texts, NAMES)
    found, names = there.fit_resample(ROWS.texts, NAMES)
    assert texts.tolist() == found.tolist() and labels.tolist() == names.tolist()
    there.fit_resample(ROWS.texts[:60], NAMES[:60])
    assert len(list(tmp_path.glob("*/augmented"))) == 2


def test_importing_epida_ray_needs_neither_scikit_learn_nor_ray() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import epida_ray\n"
    code += "print('ray' in sys.modules, 'torch' in sys.modules)\n"
    code += "try: epida_ray.EpidaClassifier\nexcept ImportError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "False False" and "pip install 'epida-ray[sklearn]'" in said[1]
