"""Second derivatives of the multinomial probit with a lapse."""

import numpy as np
import pytest

from bsdr_models.bsdr import probit_choice

LAPSE = 0.003


@pytest.mark.parametrize("k", [2, 3, 6, 20])
def test_curvature_is_the_change_of_the_slope(k):
    rng = np.random.default_rng(k)
    eta, y = 2.0 * rng.standard_normal((100, k)), rng.integers(k, size=100)
    value, slope, curvature = probit_choice.curvature(eta, y, LAPSE)
    expected, expected_slope = probit_choice.log_likelihood(eta[None], y, LAPSE)
    np.testing.assert_allclose(value, expected[0], atol=1e-13)
    np.testing.assert_allclose(slope, expected_slope[0], atol=1e-13)
    step = 1e-3
    for j in range(k):
        ahead, behind = eta.copy(), eta.copy()
        ahead[:, j] += step
        behind[:, j] -= step
        slopes = probit_choice.log_likelihood(np.stack([ahead, behind]), y, LAPSE)[1]
        change = (slopes[0] - slopes[1]) / (2.0 * step)
        np.testing.assert_allclose(curvature[:, :, j], change, atol=3e-5)


def test_curvature_of_what_is_decided_is_none():
    eta = np.array([[20.0, 0.0, -5.0], [-20.0, 0.0, -30.0]])
    value, slope, curvature = probit_choice.curvature(eta, np.zeros(2, dtype=int), LAPSE)
    np.testing.assert_allclose(value, np.log([1.0 - LAPSE * 2 / 3, LAPSE / 3]))
    assert not slope.any()
    assert not curvature.any()
