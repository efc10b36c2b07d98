"""Variational factors against SciPy's distributions and quadrature."""

import numpy as np
import pytest
from scipy import stats

from bsdr_models.numerics.factors import Gamma
from bsdr_models.papers.factors import (
    NormalColumns,
    NormalRows,
    RidgeColumns,
    mean_log,
    negative_divergence,
)


def random_covs(rng, *shape):
    root = rng.standard_normal((*shape, shape[-1]))
    return root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(shape[-1])


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


def test_divergences_are_those_of_every_entry():
    """Also from a prior for each row."""
    rng = np.random.default_rng(4)
    shape, rate = rng.uniform(0.5, 30.0, (2, 2, 3))
    factor = Gamma(shape=shape, rate=rate)
    prior = np.array([[1.3], [0.6]]), np.array([[0.2], [2.0]])
    found = negative_divergence(factor, *prior)
    assert found.shape == factor.mean.shape == mean_log(factor).shape == (2, 3)
    for r, c in np.ndindex(2, 3):
        one = Gamma(shape=shape[r, c], rate=rate[r, c])
        expected = negative_divergence(one, prior[0][r, 0], prior[1][r, 0])
        assert found[r, c] == pytest.approx(float(expected), rel=1e-12)


def test_normal_rows_share_a_covariance():
    rng = np.random.default_rng(1)
    cov = random_covs(rng, 3)
    factor = NormalRows(
        mean=rng.standard_normal((5, 3)), cov=cov, log_det=float(np.linalg.slogdet(cov)[1])
    )
    expected = 5 * stats.multivariate_normal(np.zeros(3), cov).entropy()
    assert factor.entropy() == pytest.approx(expected, rel=1e-12)


def test_normal_columns_have_a_covariance_each():
    rng = np.random.default_rng(2)
    cov = random_covs(rng, 4, 3)
    factor = NormalColumns(
        mean=rng.standard_normal((3, 4)), cov=cov, log_det=np.linalg.slogdet(cov)[1]
    )
    expected = sum(stats.multivariate_normal(np.zeros(3), c).entropy() for c in cov)
    assert factor.entropy() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(factor.variance, np.array([np.diag(c) for c in cov]).T)


def test_ridge_columns_are_normals_known_by_summaries():
    rng = np.random.default_rng(3)
    cov = random_covs(rng, 2, 6)
    X, mean = rng.standard_normal((4, 6)), rng.standard_normal((6, 2))
    factor = RidgeColumns(
        mean=mean,
        variance=np.array([np.diag(c) for c in cov]).T,
        log_det=np.linalg.slogdet(cov)[1],
        gram_trace=np.array([np.trace(X.T @ X @ c) for c in cov]),
        fitted=X @ mean,
    )
    normals = [stats.multivariate_normal(m, c) for m, c in zip(mean.T, cov, strict=True)]
    expected = sum(n.entropy() for n in normals)
    assert factor.entropy() == pytest.approx(expected, rel=1e-12)
    draws = np.stack([n.rvs(200_000, random_state=s) for s, n in enumerate(normals)], axis=2)
    error = (draws**2).std(axis=0) / np.sqrt(200_000)
    assert np.all(np.abs((draws**2).mean(axis=0) - factor.mean_square) < 4.0 * error)
