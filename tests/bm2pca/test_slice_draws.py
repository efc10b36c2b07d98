"""A slice step leaves a density alone, wherever it starts and however wide its bracket is."""

import numpy as np
import pytest
from scipy import stats

from bsdr_models.bm2pca.paper.soft_margin_draws import draw_slices

LAWS = {
    "skew": stats.gamma(2.5),
    "two humps": None,
    "narrow": stats.norm(3.0, 1e-3),
}


def draw_humps(n, rng):
    return np.where(rng.random(n) < 0.3, -2.0, 2.0) + 0.4 * rng.standard_normal(n)


def log_humps(x):
    return np.logaddexp(np.log(0.3) - (x + 2.0) ** 2 / 0.32, np.log(0.7) - (x - 2.0) ** 2 / 0.32)


def cdf_humps(x):
    return 0.3 * stats.norm.cdf(x, -2.0, 0.4) + 0.7 * stats.norm.cdf(x, 2.0, 0.4)


@pytest.mark.parametrize("width", [0.5, 6.0])
@pytest.mark.parametrize("name", LAWS)
def test_density_is_left_alone(name, width):
    rng = np.random.default_rng(31)
    n, law = 20_000, LAWS[name]
    if law is None:
        start, log_density, cdf = draw_humps(n, rng), log_humps, cdf_humps
    else:
        start, log_density, cdf = law.rvs(n, random_state=rng), law.logpdf, law.cdf
    x = start
    for _ in range(3):
        x = x + draw_slices(lambda a, x=x: log_density(x + a), width, n_chains=n, rng=rng)
    assert np.all(x != start)
    assert stats.kstest(x, cdf).pvalue > 1e-3


def test_an_angle_of_an_ellipse_leaves_a_posterior_alone():
    """N(0, I) times exp(2 x_1): the normal of mean (2, 0)."""
    rng = np.random.default_rng(32)
    n = 20_000
    x = rng.standard_normal((2, n)) + np.array([[2.0], [0.0]])
    for _ in range(3):
        other = rng.standard_normal((2, n))

        def log_factor(angle, x=x, other=other):
            return 2.0 * (np.cos(angle) * x[0] + np.sin(angle) * other[0])

        angle = draw_slices(log_factor, 2.0 * np.pi, n_chains=n, rng=rng)
        x = np.cos(angle) * x + np.sin(angle) * other
    assert stats.kstest(x[0], stats.norm(2.0).cdf).pvalue > 1e-3
    assert stats.kstest(x[1], "norm").pvalue > 1e-3


def test_a_density_that_is_nowhere_a_number_is_given_up():
    found = draw_slices(
        lambda a: np.full(3, np.nan), 1.0, n_chains=3, rng=np.random.default_rng(33)
    )
    np.testing.assert_array_equal(found, 0.0)
