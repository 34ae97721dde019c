import numpy as np
import pytest

from epida_ray.classify.calibration import best_temperature, calibrate, expected_calibration_error, tempered
from epida_ray.core.errors import RequestError


def drawn(temperature: float, rows: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Predictions that are off by this temperature, and labels drawn from the true probabilities."""
    random = np.random.default_rng(0)
    true = tempered(random.dirichlet(np.ones(4), rows), 0.5)
    y = (true.cumsum(axis=1) < random.random(rows)[:, None]).sum(axis=1)
    return tempered(true, 1 / temperature), y


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_finds_the_temperature(temperature):
    p, y = drawn(temperature)
    found = best_temperature(p, y)
    assert found == pytest.approx(temperature, rel=0.05)
    assert expected_calibration_error(tempered(p, found), y) < 0.015


def test_expected_calibration_error_by_hand():
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    y = np.array([0, 1, 0, 0])
    assert expected_calibration_error(p, y, bins=10) == pytest.approx((abs(1 - 1.8) + abs(1 - 0.6) + abs(0 - 0.7)) / 4)
    assert expected_calibration_error(np.array([[1.0, 0.0]]), np.array([0])) == 0


def test_certain_and_wrong_stays_finite():
    p = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert np.isfinite(best_temperature(p, np.array([0, 1])))


def test_what_cannot_be_calibrated():
    with pytest.raises(RequestError, match="no temperature"):
        calibrate(object(), ["a"], np.array([0]))
