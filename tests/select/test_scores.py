import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from epida_ray.select import scores
from epida_ray.select.scores import log

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
    assert log(x) == pytest.approx(np.log(x), rel=1e-13, abs=1e-15)


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


@pytest.mark.parametrize("classes", [2, 6, 50, 150])
def test_soft_targets_are_the_written_out_sums(classes):
    rng = np.random.default_rng(classes)
    for sharpness, change in REGIMES:
        p, _ = predictions(rng, 12, classes, sharpness, change)
        t, _ = predictions(rng, 12, classes, 2.0, 1.0)
        log_p = np.log(np.maximum(p, EPS))
        lengths = np.linalg.norm(p, axis=1) * np.linalg.norm(t, axis=1)
        np.testing.assert_allclose(scores.rem(p, t), -(t * log_p).sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(scores.rem_linear(p, t), 1 - (t * p).sum(axis=1), atol=1e-12)
        np.testing.assert_allclose(scores.cosine(p, t), (t * p).sum(axis=1) / lengths, atol=1e-12)
        q = np.maximum(t, EPS)
        np.testing.assert_allclose(scores.divergence(p, t), (q * (np.log(q) - log_p)).sum(axis=1), atol=1e-9)


@st.composite
def distributions(draw, rows=5):
    """Two arrays [rows, C] of probabilities, with exact zeros among them, in either precision."""
    classes = draw(st.integers(2, 70))
    kind = draw(st.sampled_from([np.float32, np.float64]))
    weights = hnp.arrays(np.float64, (rows, classes), elements=st.sampled_from([0.0, 1e-12, 1e-4, 0.1, 1.0, 7.0]))
    p, q = draw(weights) + 1e-13, draw(weights) + 1e-13
    return (p / p.sum(axis=1, keepdims=True)).astype(kind), (q / q.sum(axis=1, keepdims=True)).astype(kind)


@settings(max_examples=100, deadline=None)
@given(distributions(), st.data())
def test_a_one_hot_target_gives_exactly_the_numbers_of_its_label(pair, data):
    p, _ = pair
    y = data.draw(hnp.arrays(np.int64, len(p), elements=st.integers(0, p.shape[1] - 1)))
    onehot = np.eye(p.shape[1])[y]
    for score in (scores.rem, scores.rem_linear, scores.cosine):
        np.testing.assert_array_equal(score(p, y), score(p, onehot))


@settings(max_examples=100, deadline=None)
@given(distributions())
def test_divergence_is_0_without_disagreement_and_never_negative(pair):
    p, q = pair
    np.testing.assert_array_equal(scores.divergence(p, p), 0.0)
    assert (scores.divergence(p, q) >= -1e-6).all()
    np.testing.assert_allclose(scores.divergence(p, q), scores.rem(p, q) + scores.neg_entropy(q), atol=1e-6)


PROGRAM = """
import hashlib
import numpy as np
from epida_ray.select import select
rng = np.random.default_rng(0)
digest = hashlib.sha256()
for classes in (2, 6, 20, 150):
    for by in ("rem+cem", "rem-linear+cem-agreement", "neg-entropy", "cosine"):
        p = rng.dirichlet(np.full(classes, 0.3), size=(40, 10)).astype(np.float32)
        chosen = select(p[:, 1:], p[:, 0], rng.integers(classes, size=40), by=by)
        for part in (chosen.s_div, chosen.s_qua, chosen.s_tot, chosen.kept):
            digest.update(part.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of this architecture")
def test_the_bits_are_those_of_every_processor(tmp_path):
    """Code for the oldest x86-64 and for this processor, which may have wide vectors and fused multiply-add."""
    digests = set()
    for cpu in ("x86-64", "host"):
        env = os.environ | {"NUMBA_CPU_NAME": cpu, "NUMBA_CACHE_DIR": str(tmp_path / cpu)}
        if cpu == "host":
            del env["NUMBA_CPU_NAME"]
        digests.add(subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True, capture_output=True).stdout)
    assert len(digests) == 1


def test_cosine_of_float32_is_computed_in_float64():
    p = np.array([[0.999, 0.0006, 0.0004], [0.999, 0.0004, 0.0006], [0.9991, 0.0005, 0.0004]], np.float32)
    np.testing.assert_array_equal(scores.cosine(p, [0, 0, 0]), scores.cosine(p.astype(np.float64), [0, 0, 0]))
