"""Variational factors against SciPy's distributions and quadrature."""

import numpy as np
import pytest
from scipy import stats

from bsdr_models.numerics.factors import Gamma
from bsdr_models.papers.factors import (
    mean_log,
    negative_divergence,
)


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("rate", [1e-3, 0.7, 30.0])
def test_gamma_is_that_of_scipy(shape, rate):
    factor = Gamma(shape=np.array([shape]), rate=np.array([rate]))
    frozen = stats.gamma(shape, scale=1.0 / rate)
    np.testing.assert_allclose(factor.mean, frozen.mean(), rtol=1e-12)
    # Expectations by the trapezoidal rule in u = log x, where the density is smooth.
    u = np.log(shape / rate) + np.linspace(-45.0 / shape - 10.0, 6.0, 20_001)
    x = np.exp(u)

    def expect(values):
        return np.trapezoid(np.exp(frozen.logpdf(x) + u) * values, u)

    assert expect(1.0) == pytest.approx(1.0, rel=1e-8)
    assert mean_log(factor)[0] == pytest.approx(expect(u), rel=1e-7, abs=1e-8)
    gap = stats.gamma(2.2, scale=1.0 / 0.4).logpdf(x) - frozen.logpdf(x)
    assert negative_divergence(factor, 2.2, 0.4)[0] == pytest.approx(expect(gap), rel=1e-6)
    assert negative_divergence(factor, shape, rate)[0] == pytest.approx(0.0, abs=1e-12)
