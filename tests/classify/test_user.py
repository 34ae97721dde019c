from importlib.metadata import EntryPoint

import numpy as np
import pytest

from epida_ray.classify import FittedClassifier, create, load
from epida_ray.core.errors import RequestError, RunError
from epida_ray.method.trainer import fit

MODULE = "tests.classify.tiny"
LABELS = ("even", "odd")


def test_a_function_scores(tmp_path):
    classifier = create(f"{MODULE}:even", LABELS)
    np.testing.assert_allclose(classifier.predict_proba(["ab", "abc"]), [[0.75, 0.25], [0.25, 0.75]])
    assert not isinstance(classifier, FittedClassifier)
    with pytest.raises(RequestError, match="cannot be trained"):
        fit(classifier, ["a", "b"], [*LABELS], (["a", "b"], [*LABELS]))
    classifier.save(tmp_path)
    again = load(tmp_path, trust=[f"{MODULE}:even"])
    np.testing.assert_allclose(again.predict_proba(["ab"]), [[0.75, 0.25]])


def test_a_class_learns_and_keeps_its_files(tmp_path):
    classifier = create(f"{MODULE}:Lengths", LABELS, scale=2.0)
    assert isinstance(classifier, FittedClassifier)
    rows = ["abcd", "a" * 30] * 10, [*LABELS] * 10
    fit(classifier, *rows, rows)
    classifier.save(tmp_path)
    assert (tmp_path / "own" / "means.npy").is_file()
    again = load(tmp_path, trust=[f"{MODULE}:Lengths"])
    assert np.array_equal(again.predict_proba(["abc"]), classifier.predict_proba(["abc"]))


def test_a_saved_model_runs_only_what_is_trusted_by_name(tmp_path, monkeypatch):
    create(f"{MODULE}:Lengths", LABELS).save(tmp_path)
    for trust in ((), ["tests.classify.tiny"], [f"{MODULE}:even"]):
        with pytest.raises(RequestError, match=f"would run {MODULE}:Lengths; .* --trust-code {MODULE}:Lengths"):
            load(tmp_path, trust=trust)
    point = EntryPoint(f"{MODULE}:Lengths", f"{MODULE}:Lengths", "epida_ray.classifiers")
    monkeypatch.setattr("epida_ray.core.registry.entry_points", lambda group: [point])
    assert load(tmp_path).labels == LABELS


def test_a_config_that_no_classifier_wrote_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text('{"classifier": "minilm"}')
    with pytest.raises(RequestError, match=r"config\.json is not complete"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "match"), [("wrong_shape", r"\(2, 7\) instead of \(2, 2\)"), ("not_probabilities", "must sum to 1")]
)
def test_wrong_answers_are_named(name, match):
    with pytest.raises(RunError, match=match):
        create(f"{MODULE}:{name}", LABELS).predict_proba(["a", "b"])


def test_what_is_refused():
    with pytest.raises(RequestError, match="give them with --labels"):
        create(f"{MODULE}:even")
    with pytest.raises(RequestError, match="cannot be imported"):
        create(f"{MODULE}:absent", LABELS)
    with pytest.raises(RequestError, match="no predict_proba"):
        create(f"{MODULE}:VOCABULARY", LABELS)
    with pytest.raises(RequestError, match="no predict_proba"):
        create("subprocess:Popen", LABELS, args=["false"])
    with pytest.raises(RequestError, match="cannot be made with these arguments"):
        create(f"{MODULE}:Lengths", LABELS, colour="red")
    with pytest.raises(RequestError, match="there is no classifier"):
        create("nothing", LABELS)


def test_arguments_that_json_cannot_hold(tmp_path):
    classifier = create(f"{MODULE}:Lengths", LABELS, scale=np.float64(2))
    classifier.arguments["scale"] = object()
    with pytest.raises(RequestError, match="JSON"):
        classifier.save(tmp_path)
