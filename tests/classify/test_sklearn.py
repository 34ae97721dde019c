import json

import numpy as np
import pytest

from epida_ray.classify import create, load
from epida_ray.core.errors import RequestError
from tests.classify import tiny

pytest.importorskip("skops")
joblib = pytest.importorskip("joblib")

TEXTS = ["i want a pear", "i want a saw", "a plum please", "a drill please"] * 5
LABELS = ["fruit", "tool"] * 10
MODULE = "tests.classify.tiny"


@pytest.fixture(scope="module")
def fitted():
    return tiny.pipeline().fit(TEXTS, LABELS)


def test_a_fitted_pipeline_from_skops(fitted, tmp_path):
    from skops.io import dump

    dump(fitted, tmp_path / "p.skops")
    classifier = create(f"sklearn:{tmp_path / 'p.skops'}")
    assert classifier.labels == ("fruit", "tool")
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), fitted.predict_proba(TEXTS), atol=1e-6)
    turned = create(f"sklearn:{tmp_path / 'p.skops'}", ("tool", "other", "fruit"))
    np.testing.assert_allclose(turned.predict_proba(TEXTS)[:, [2, 0]], fitted.predict_proba(TEXTS), atol=1e-6)
    assert (turned.predict_proba(TEXTS)[:, 1] == 0).all()
    with pytest.raises(RequestError, match="has the classes"):
        create(f"sklearn:{tmp_path / 'p.skops'}", ("fruit", "vegetable"))


def test_a_pickle_needs_trust(fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "p.joblib")
    with pytest.raises(RequestError, match="trust-pickle"):
        create(f"sklearn:{tmp_path / 'p.joblib'}")
    classifier = create(f"sklearn:{tmp_path / 'p.joblib'}", trust_pickle=True)
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), fitted.predict_proba(TEXTS), atol=1e-6)
    classifier.save(tmp_path / "model")
    assert not list((tmp_path / "model").glob("*.joblib"))
    assert load(tmp_path / "model").labels == ("fruit", "tool")


def test_what_is_refused(tmp_path):
    for source, match in [
        ("nowhere.skops", "no pipeline"),
        (f"{MODULE}:absent", "cannot be imported"),
        ("no_such_module:thing", "cannot be imported"),
        (f"{MODULE}:pipeline", "give the labels"),
        ("builtins:dict", "did not return"),
    ]:
        with pytest.raises(RequestError, match=match):
            create(f"sklearn:{source}")
    (tmp_path / "bad.skops").write_bytes(b"PK not a zip")
    with pytest.raises(RequestError, match="cannot be read as a skops file"):
        create(f"sklearn:{tmp_path / 'bad.skops'}")


def test_types_of_others_must_be_named(tmp_path):
    from skops.io import dump

    dump(tiny.Lengths(("a", "b")), tmp_path / "own.skops")
    with pytest.raises(RequestError, match=r"tests\.classify\.tiny\.Lengths"):
        create(f"sklearn:{tmp_path / 'own.skops'}", ("a", "b"))
    with pytest.raises(RequestError, match=r"--trust-code tests\.classify\.tiny\.Lengths"):
        create(f"sklearn:{tmp_path / 'own.skops'}", ("a", "b"), trust=["builtins.eval"])
    create(f"sklearn:{tmp_path / 'own.skops'}", ("a", "b"), trust=["tests.classify.tiny.Lengths"])


def test_a_saved_model_does_not_say_itself_which_types_are_trusted(tmp_path):
    named = ["tests.classify.tiny.Partial"]
    create(f"sklearn:{MODULE}:Partial", ("fruit", "tool")).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"trust": named}))
    with pytest.raises(RequestError, match=r"--trust-code tests\.classify\.tiny\.Partial"):
        load(tmp_path)
    again = load(tmp_path, trust=named)
    again.load_state(again.state())


def test_weights_count():
    classifier = create(f"sklearn:{MODULE}:pipeline", ("fruit", "tool"))
    texts, y = ["same words", "same words"], np.array([0, 1])
    classifier.fit(texts, y, np.array([9.0, 1.0], np.float32), 0)
    assert classifier.predict_proba(texts[:1])[0, 0] > 0.6


def test_partial_fit_goes_on():
    classifier = create(f"sklearn:{MODULE}:Partial", ("fruit", "tool"), partial=True)
    y = np.array([0, 1] * 10)
    for _ in range(40):
        classifier.fit(TEXTS, y, np.ones(20, np.float32), 0)
    assert classifier.pipeline.calls == 40
    assert (classifier.predict_proba(TEXTS).argmax(axis=1) == y).all()
    with pytest.raises(RequestError, match="partial_fit"):
        create(f"sklearn:{MODULE}:pipeline", ("fruit", "tool"), partial=True)
