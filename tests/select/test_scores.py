import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epida_ray.select import scores

EPS = 1e-10


def listing_rem(z, label):
    return -np.log(max(z[label], EPS))


def listing_information(z, zt, floor=EPS):
    joint = np.outer(z, zt)
    joint = (joint + joint.T) / 2 / joint.sum()
    joint = np.maximum(joint, floor)
    rows, columns = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(joint > 0, joint * (np.log(joint) - np.log(rows) - np.log(columns)), 0.0).sum()


def listing_entropy(z):
    z = np.maximum(z, EPS)
    return -(z * np.log(z)).sum()


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def predictions(rng, n, classes, sharpness, change):
    """Originals, and candidates whose logits moved by `change`; sharpness 300 is one-hot with exact zeros."""
    logits = rng.normal(size=(n, classes)) * sharpness
    return softmax(logits + rng.normal(size=logits.shape) * change), softmax(logits)


REGIMES = [(sharpness, change) for sharpness in (0.3, 2.0, 8.0, 40.0, 300.0) for change in (0.0, 0.1, 1.0, 30.0)]


@pytest.mark.parametrize("classes", [2, 3, 5, 6, 8, 9, 17, 33, 50, 64])
def test_scores_are_the_listings(classes):
    rng = np.random.default_rng(classes)
    for sharpness, change in REGIMES:
        p, o = predictions(rng, 12, classes, sharpness, change)
        y = rng.integers(classes, size=12)
        information = np.array([listing_information(a, b) for a, b in zip(p, o, strict=True)])
        entropy = np.array([listing_entropy(a) for a in p])
        np.testing.assert_allclose(scores.rem(p, y), [listing_rem(a, c) for a, c in zip(p, y, strict=True)], rtol=1e-12)
        np.testing.assert_allclose(scores.rem_linear(p, y), 1 - p[np.arange(12), y], atol=1e-15)
        np.testing.assert_allclose(scores.mutual_information(p, o), information, rtol=0, atol=1e-9)
        np.testing.assert_allclose(scores.cem(p, o), 1 + information - entropy, rtol=0, atol=1e-9)
        np.testing.assert_allclose(scores.cem_agreement(p, o), 1 - information - entropy, rtol=0, atol=1e-9)
        np.testing.assert_allclose(scores.neg_entropy(p), -entropy, rtol=0, atol=1e-12)
        onehot = np.eye(classes)[y]
        expected = (p * onehot).sum(axis=1) / np.linalg.norm(p, axis=1) / np.linalg.norm(onehot, axis=1)
        np.testing.assert_allclose(scores.cosine(p, y), expected, atol=1e-12)


@pytest.mark.parametrize("classes", [65, 100, 150, 300])
def test_many_classes_leave_the_floor_of_the_joint_distribution_out(classes):
    rng = np.random.default_rng(classes)
    for sharpness, change in REGIMES:
        p, o = predictions(rng, 4, classes, sharpness, change)
        got = scores.mutual_information(p, o)
        np.testing.assert_allclose(got, [listing_information(a, b, 0.0) for a, b in zip(p, o, strict=True)], atol=1e-6)
        np.testing.assert_allclose(
            got, [listing_information(a, b) for a, b in zip(p, o, strict=True)], atol=1e-6 + 25 * classes**2 * EPS
        )


@pytest.mark.parametrize("classes", [2, 6, 50, 150])
def test_information_is_0_for_an_unchanged_prediction_and_log_2_for_the_opposite(classes):
    p = np.full((1, classes), 1 / classes)
    assert scores.mutual_information(p, p)[0] == pytest.approx(0.0, abs=1e-12)
    left, right = np.zeros((1, classes)), np.zeros((1, classes))
    left[0, : classes // 2], right[0, classes // 2 :] = 2 / classes, 1 / (classes - classes // 2)
    assert scores.mutual_information(left, right)[0] == pytest.approx(np.log(2), abs=1e-5)
    assert scores.cem(left, right)[0] > scores.cem_agreement(left, right)[0]


def test_owner_picks_the_original_of_a_candidate():
    p, o = predictions(np.random.default_rng(1), 7, 5, 2.0, 1.0)
    owner = np.array([3, 3, 0, 6, 6, 6, 1])
    np.testing.assert_array_equal(scores.cem(p, o, owner), scores.cem(p, o[owner]))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.floats(1e-300, 2.0), st.floats(0.99, 1.01)))
def test_log(x):
    assert scores._log(x) == pytest.approx(np.log(x), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("classes", [2, 6, 20, 150])
def test_a_row_does_not_depend_on_its_batch(classes):
    p, o = predictions(np.random.default_rng(classes), 33, classes, 4.0, 2.0)
    p, o = p.astype(np.float32), o.astype(np.float32)
    y = np.arange(33) % classes
    for name, of_label in (("rem", True), ("cosine", True), ("cem", False), ("cem_agreement", False)):
        score = getattr(scores, name)
        second = y if of_label else o
        alone = np.concatenate([score(p[i : i + 1], second[i : i + 1]) for i in range(33)])
        np.testing.assert_array_equal(score(p, second), alone)
