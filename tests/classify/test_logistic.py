import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from epida_ray.classify import logistic
from epida_ray.classify.logistic import fit_head
from epida_ray.classify.targets import balanced_weights, cross_entropy, distributions
from epida_ray.core.errors import RequestError


def data(rows: int, width: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit rows around one centre a class, targets and weights."""
    random = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    x = random.normal(size=(rows, width)) + 2 * random.normal(size=(classes, width))[y]
    return x / np.linalg.norm(x, axis=1, keepdims=True), y, random.uniform(0.2, 2, rows)


def proba(head: logistic.Head, x: np.ndarray) -> np.ndarray:
    p = np.exp(x @ head.weight.T + head.bias)
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("rows", "width"), [(20, 60), (60, 20)])
def test_it_is_the_optimum_that_scikit_learn_finds(rows, width):
    linear_model = pytest.importorskip("sklearn.linear_model")
    x, y, weights = data(rows, width, 3)
    other = linear_model.LogisticRegression(C=7.0, tol=1e-10, max_iter=10_000).fit(x, y, sample_weight=weights)
    head = fit_head(x, distributions(y, 3) * weights[:, None], 7.0)
    np.testing.assert_allclose(proba(head, x), other.predict_proba(x), atol=1e-4)


def test_a_soft_target_is_a_row_for_each_class():
    x, _, weights = data(30, 10, 3)
    soft = np.random.default_rng(1).dirichlet(np.ones(3), 30)
    whole = fit_head(x, soft * weights[:, None], 5.0)
    rows = np.repeat(x, 3, axis=0)
    split = fit_head(rows, np.tile(np.eye(3), (30, 1)) * (soft * weights[:, None]).reshape(-1, 1), 5.0)
    np.testing.assert_allclose(proba(whole, x), proba(split, x), atol=1e-4)


def test_the_same_bits_with_any_number_of_threads():
    x, y, weights = data(200, 30, 4)
    before, heads = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            heads.append(fit_head(x, distributions(y, 4) * weights[:, None], 10.0))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*heads, strict=True))


def test_the_same_bits_with_any_number_of_blas_threads():
    x, y, weights = data(1000, 384, 100)
    heads = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            heads.append(fit_head(x, distributions(y, 100) * weights[:, None], 10.0))
    assert all(np.array_equal(a, b) for a, b in zip(*heads, strict=True))


def test_balanced_weights():
    y, weights = np.array([0, 0, 0, 1, 3]), np.array([1.0, 2, 1, 2, 0.5])
    balanced = balanced_weights(distributions(y, 4), weights)
    np.testing.assert_allclose(np.bincount(y, balanced, minlength=4), [6.5 / 3, 6.5 / 3, 0, 6.5 / 3])
    np.testing.assert_allclose(balanced_weights(distributions(y, 4), balanced), balanced)


def test_targets_are_checked():
    for wrong in (np.ones((2, 3)), np.eye(2), np.array([[2.0, -1, 0]]), np.array([[np.nan, 1, 0]])):
        with pytest.raises(RequestError, match="soft targets"):
            distributions(wrong, 3)
    np.testing.assert_allclose(cross_entropy(np.array([[0.5, 0.5]]), np.array([[0.3, 0.7]])), [np.log(2)])
