"""Draws and moments of GIG(1/2, 1, s**2) against its density in 30-digit arithmetic."""

import mpmath
import numpy as np
import pytest
from scipy import stats

from bsdr_models.bm2pca.paper import inverse_gaussian


def expectation(function, s):
    """E[function(lambda)], lambda = x**2, by quadrature of the density."""
    with mpmath.workdps(30):
        s = mpmath.mpf(s)

        def density(x):
            return 2 / mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(-((x - s / x) ** 2) / 2)

        top = mpmath.sqrt(s)  # near the mode; the deviation of x is below one
        points = [top / 1000, top / 30, top] if s < 1 else [max(0, top - 9), top]
        points = [0, *points, top + 1, top + 4, top + 12] if s < 1 else [*points, top + 1, top + 9]
        return mpmath.quad(lambda x: density(x) * function(x * x) if x else 0, points)


@pytest.mark.parametrize("s", [1e-8, 1e-3, 0.3, 1.0, 7.0, 24.9, 25.1, 400.0, 1e6])
def test_moments(s):
    assert float(expectation(lambda x: 1, s)) == pytest.approx(1.0, rel=1e-10)
    log = float(expectation(mpmath.log, s))
    assert float(inverse_gaussian.mean_log(s)) == pytest.approx(log, rel=1e-10)
    # What the module's docstring promises of the others.
    assert float(expectation(lambda x: x, s)) == pytest.approx(s + 1.0, rel=1e-9)
    assert float(expectation(lambda x: 1 / x, s)) == pytest.approx(1.0 / s, rel=1e-9)

    def minus_log_density(x):
        return mpmath.log(2 * mpmath.pi * x) / 2 - s + (x + mpmath.mpf(s) ** 2 / x) / 2

    entropy = float(expectation(minus_log_density, s))
    assert float(inverse_gaussian.entropy(s)) == pytest.approx(entropy, rel=1e-9)


def test_mean_log_has_its_limits():
    """A squared normal at zero; log s for large s, with exp(2s) far beyond the largest number."""
    zero = -np.log(2.0) - np.euler_gamma
    np.testing.assert_allclose(inverse_gaussian.mean_log([0.0, 1e-300, 1e-12]), zero, rtol=1e-10)
    s = np.array([1e5, 1e8, 1e150])
    np.testing.assert_allclose(inverse_gaussian.mean_log(s), np.log(s) + 0.5 / s, rtol=1e-8)
    assert np.all(np.diff(inverse_gaussian.mean_log(np.geomspace(1e-3, 1e3, 2001))) > 0.0)


@pytest.mark.parametrize("s", [0.0, 1e-12, 1e-4, 0.2, 1.0, 30.0, 1e3])
def test_draws_have_their_law(s):
    draws = inverse_gaussian.draw_inverse_gaussian(
        np.full(20_000, s), rng=np.random.default_rng(11)
    )
    assert np.all(draws > 0.0)
    if s < 1e-6:
        cdf = stats.chi2(1).cdf
    else:

        def cdf(x):
            return stats.invgauss.sf(1.0 / x, 1.0 / s)

    assert stats.kstest(draws, cdf).pvalue > 1e-3


@pytest.mark.parametrize("s", [1e6, 1e8, 1e100])
def test_draws_for_large_s_are_normal(s):
    """To order 1 / sqrt(s): mean s + 1, variance s + 2."""
    draws = inverse_gaussian.draw_inverse_gaussian(
        np.full(20_000, s), rng=np.random.default_rng(12)
    )
    if s < 1e30:
        assert stats.kstest((draws - s) / np.sqrt(s), "norm").pvalue > 1e-3
    np.testing.assert_allclose(draws, s, rtol=6.0 / np.sqrt(s) + 1e-15)


def test_reciprocals_of_large_mean_keep_their_digits():
    """1 / lambda is inverse Gaussian of mean 1 / s; NumPy's own draws lose it."""
    mean, n = 1e12, 50_000
    ours = 1.0 / inverse_gaussian.draw_inverse_gaussian(
        np.full(n, 1.0 / mean), rng=np.random.default_rng(13)
    )
    numpys = np.random.default_rng(13).wald(mean, 1.0, size=n)
    assert len(np.unique(ours)) > 0.999 * n
    assert len(np.unique(numpys)) < 0.9 * n
    assert stats.kstest(ours, stats.invgauss(mean).cdf).pvalue > 1e-3


def test_shape_follows_the_argument():
    rng = np.random.default_rng(14)
    assert inverse_gaussian.draw_inverse_gaussian(np.ones((3, 1, 2)), rng=rng).shape == (3, 1, 2)
    assert inverse_gaussian.entropy(np.ones((4, 2))).shape == (4, 2)
