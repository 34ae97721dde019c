import numpy as np
import pytest

from epida_ray.classify import vectors
from epida_ray.core.errors import RequestError


def test_hashed_vectors_are_fixed_for_ever():
    rows = vectors.hashed(50).rows(["word", "Wort", "", "\ud800"])
    assert rows.shape == (4, 50) and rows.dtype == np.float32
    np.testing.assert_allclose(rows[0, :3], [0.77923435, 0.14059253, -0.44144902], rtol=1e-5)
    assert len({row.tobytes() for row in rows}) == 4
    many = vectors.hashed(300).rows([str(i) for i in range(2000)])
    assert abs(float(many.mean())) < 0.01
    assert abs(float(many.std()) - vectors.HASHED_SPREAD) < 0.01


def test_glove_when_installed():
    pytest.importorskip(vectors.GLOVE_PACKAGE)
    glove = vectors.resolve("auto")
    assert "GloVe" in glove.describe()
    the, absent, none = glove.rows(["the", "zzqqxxyy", "the"])
    np.testing.assert_allclose(the[:3], [0.418, 0.24968, -0.41242], rtol=1e-5)
    assert np.array_equal(the, none) and np.abs(absent).max() > 0

    def similarity(a: str, b: str) -> float:
        x, y = glove.rows([a, b])
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    assert similarity("good", "great") > similarity("good", "carbon")
    assert vectors.find(glove.spec) is glove


def test_auto_without_glove(monkeypatch):
    monkeypatch.setattr(vectors, "find_spec", lambda name: None)
    assert "hashed" in vectors.resolve("auto").describe()
    with pytest.raises(RequestError, match="epida-ray\\[glove\\]"):
        vectors.resolve("glove")
    with pytest.raises(RequestError, match="epida-ray\\[glove\\]"):
        vectors.find({"source": "glove", "dimension": 50, "sha256": vectors.GLOVE_SHA256})


def test_other_vectors_than_the_models_are_refused():
    with pytest.raises(RequestError, match="other word vectors"):
        vectors.find({"source": "hashed", "dimension": 50, "sha256": "0"})
    with pytest.raises(RequestError, match="does not know"):
        vectors.find({"source": "elsewhere"})
