"""Variational factors against SciPy's distributions and quadrature."""

import numpy as np
import pytest
from scipy import stats

from bsdr_models.numerics.factors import Gamma, NormalColumns, NormalRows, RidgeColumns


def random_covs(rng, *shape):
    root = rng.standard_normal((*shape, shape[-1]))
    return root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(shape[-1])


@pytest.mark.parametrize("shape", [0.3, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("rate", [1e-3, 0.7, 30.0])
def test_gamma_is_that_of_scipy(shape, rate):
    factor = Gamma(shape=np.array([shape]), rate=np.array([rate]))
    frozen = stats.gamma(shape, scale=1.0 / rate)
    np.testing.assert_allclose(factor.mean, frozen.mean(), rtol=1e-12)
    np.testing.assert_allclose(factor.entropy(), frozen.entropy(), rtol=1e-9, atol=1e-9)
    # E[log x] and E[log prior] by the trapezoidal rule in u = log x, where the density is smooth.
    prior = stats.gamma(2.2, scale=1.0 / 0.4)
    u = np.log(shape / rate) + np.linspace(-45.0 / shape - 10.0, 6.0, 20_001)

    def expect(f):
        return np.trapezoid(np.exp(frozen.logpdf(np.exp(u)) + u) * f(np.exp(u)), u)

    assert expect(np.ones_like) == pytest.approx(1.0, rel=1e-8)
    assert factor.mean_log[0] == pytest.approx(expect(np.log), rel=1e-7, abs=1e-8)
    assert factor.expected_log_prior(2.2, 0.4) == pytest.approx(expect(prior.logpdf), rel=1e-7)


def test_gamma_sums_over_its_entries():
    rng = np.random.default_rng(0)
    shape, rate = rng.uniform(0.5, 3.0, (2, 4, 3))
    factor = Gamma(shape=shape, rate=rate)
    single = [
        Gamma(shape=a[None], rate=b[None]) for a, b in zip(shape.ravel(), rate.ravel(), strict=True)
    ]
    assert factor.mean.shape == factor.mean_log.shape == (4, 3)
    assert factor.entropy() == pytest.approx(sum(g.entropy() for g in single), rel=1e-12)
    expected = sum(g.expected_log_prior(1.3, 0.2) for g in single)
    assert factor.expected_log_prior(1.3, 0.2) == pytest.approx(expected, rel=1e-12)


def test_kullback_leibler_of_a_gamma_to_itself_is_zero():
    factor = Gamma(shape=np.array([2.2, 2.2]), rate=np.array([0.4, 0.4]))
    assert factor.expected_log_prior(2.2, 0.4) + factor.entropy() == pytest.approx(0.0, abs=1e-12)


def test_negative_divergence_is_that_of_every_entry():
    """Against the divergence by quadrature, and the sums that other methods give."""
    rng = np.random.default_rng(4)
    shape, rate = rng.uniform(0.5, 30.0, (2, 3)), rng.uniform(0.1, 30.0, (2, 3))
    factor = Gamma(shape=shape, rate=rate)
    found = factor.negative_divergence(1.3, 0.2)
    assert found.shape == (2, 3)
    prior = stats.gamma(1.3, scale=1.0 / 0.2)
    for value, a, b in zip(found.ravel(), shape.ravel(), rate.ravel(), strict=True):
        q = stats.gamma(a, scale=1.0 / b)
        u = np.log(a / b) + np.linspace(-45.0 / a - 5.0, 5.0, 20_001)  # log x
        x = np.exp(u)
        gap = prior.logpdf(x) - q.logpdf(x)
        assert value == pytest.approx(np.trapezoid(np.exp(q.logpdf(x) + u) * gap, u), rel=1e-6)
    expected = factor.expected_log_prior(1.3, 0.2) + factor.entropy()
    assert found.sum() == pytest.approx(expected, rel=1e-12)
    assert np.all(found < 0.0)
    same = Gamma(shape=np.array([1.3]), rate=np.array([0.2]))
    assert same.negative_divergence(1.3, 0.2)[0] == pytest.approx(0.0, abs=1e-14)


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
