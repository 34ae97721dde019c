from itertools import pairwise

import numpy as np
import pytest

from epida_ray.classify.linear import Linear
from epida_ray.core.errors import RequestError

LABELS = ("fruit", "tool")
TEXTS = ["i want a pear", "i want a saw", "a plum please", "a drill please"] * 5
Y = np.array([0, 1] * 10)


def fitted(**options) -> Linear:
    classifier = Linear(LABELS, **options)
    classifier.fit(TEXTS, Y, np.ones(20, np.float32), 0)
    return classifier


def test_a_text_scores_the_same_bits_in_any_batch():
    classifier = fitted()
    texts = [*TEXTS, "", "pear pear pear saw", "unheard-of words", "plums", "x" * 5000]
    together = classifier.predict_proba(texts)
    fresh = Linear(LABELS)
    fresh.load_state(classifier.state())
    assert np.array_equal(together, np.concatenate([fresh.predict_proba([t]) for t in texts]))


def test_is_the_optimum_that_scikit_learn_finds():
    linear_model = pytest.importorskip("sklearn.linear_model")
    from sklearn.feature_extraction.text import TfidfVectorizer

    labels = ("fruit", "tool", "none")
    texts, y = [*TEXTS, "nothing at all", "none of these"], np.append(Y, [2, 2])
    ours = Linear(labels, letters=(), pairs=False, strength=5.0)
    ours.fit(texts, y, np.ones(len(y), np.float32), 0)
    vectorizer = TfidfVectorizer(token_pattern=r"\S+")
    model = linear_model.LogisticRegression(C=5.0, tol=1e-8, max_iter=1000).fit(vectorizer.fit_transform(texts), y)
    unseen = ["the pear or a saw", "none at all please", "i want nothing"]
    np.testing.assert_allclose(ours.predict_proba(unseen), model.predict_proba(vectorizer.transform(unseen)), atol=1e-3)


def test_pairs_tell_the_order_of_words():
    classifier = Linear(("ab", "ba"), letters=())
    texts = ["x y", "y x"] * 5
    classifier.fit(texts, np.array([0, 1] * 5), np.ones(10, np.float32), 0)
    assert (classifier.predict_proba(texts).argmax(axis=1) == [0, 1] * 5).all()
    without = Linear(("ab", "ba"), letters=(), pairs=False)
    without.fit(texts, np.array([0, 1] * 5), np.ones(10, np.float32), 0)
    np.testing.assert_allclose(without.predict_proba(["x y"]), 0.5, atol=1e-6)


def test_pairs_do_not_reach_over_the_end_of_a_text():
    classifier = Linear(LABELS, letters=())
    alone = [classifier._features([t])[0].tolist() for t in ("a b", "", "c", "d e f")]
    grams, offsets = classifier._features(["a b", "", "c", "d e f"])
    assert [grams[a:b].tolist() for a, b in pairwise(offsets)] == alone


def test_letters_find_words_that_were_never_seen():
    assert fitted().predict_proba(["pears"])[0, 0] > 0.5
    assert fitted().predict_proba(["drills"])[0, 1] > 0.5


def test_weights_count():
    classifier = Linear(LABELS)
    classifier.fit(["same words"] * 2, np.array([0, 1]), np.array([9.0, 1.0], np.float32), 0)
    assert classifier.predict_proba(["same words"])[0, 0] > 0.8


def test_texts_without_any_word():
    classifier = Linear(LABELS)
    classifier.fit(["", " "], np.array([0, 1]), np.ones(2, np.float32), 0)
    np.testing.assert_allclose(classifier.predict_proba(["", "a"]), 0.5, atol=1e-6)


def test_bad_options():
    for options in ({"letters": (0,)}, {"strength": 0}, {"max_words": 0}):
        with pytest.raises(RequestError):
            Linear(LABELS, **options)
