"""Means and draws under a soft interval against closed forms in 80-digit arithmetic."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from bsdr_models.bm2pca.paper.soft_margin_draws import draw_scores, log_masses

# mean, sd, lower, upper, cost
HINGES = [
    (0.3, 0.5, 1.0, np.inf, 10.0),
    (2.0, 1.0, 1.0, np.inf, 10.0),
    (-40.0, 0.2, 1.0, np.inf, 10.0),
    (3.0, 2.0, -np.inf, -1.0, 1.0),
    (-90.0, 30.0, -np.inf, -1.0, 40.0),
    (90.0, 30.0, -np.inf, -1.0, 40.0),
    (0.0, 1e-6, 1.0, np.inf, 1.0),
    (1e8, 1e9, -np.inf, -1.0, 40.0),
]
TUBES = [
    (0.4, 0.7, 0.2, 0.6, 3.0),
    (-5.0, 0.3, 0.2, 0.6, 3.0),
    (7.0, 0.3, 0.2, 0.6, 0.1),
    (0.1, 50.0, -0.05, 0.05, 2.0),
    (0.0, 0.4, 0.3, 0.3, 2.0),
    (0.4, 1e-3, 0.2, 0.6, 100.0),
]
FREE = [(0.4, 2.0, -np.inf, np.inf, 5.0)]


def log_mean(*case):
    return special.logsumexp(log_masses(*(np.asarray(value) for value in case)), axis=0)


def masses(case, end=mpmath.inf):
    """E[phi(f); f < end] in three pieces, each a normal integral with a shifted mean."""
    m, s, a, b, C = (mpmath.mpf(x) for x in case)

    def normal(low, high, shift):
        low, high = (low - m) / s - shift, (high - m) / s - shift
        if low > 0:
            low, high = -high, -low
        return mpmath.ncdf(high) - mpmath.ncdf(low) if high > low else mpmath.mpf(0)

    r = 2 * C * s
    total = normal(a, min(b, end), 0) if end > a else mpmath.mpf(0)
    if a > -mpmath.inf:
        total += mpmath.exp(-2 * C * (a - m) + r * r / 2) * normal(-mpmath.inf, min(a, end), r)
    if b < end:
        total += mpmath.exp(-2 * C * (m - b) + r * r / 2) * normal(b, end, -r)
    return total


@pytest.mark.parametrize("case", HINGES + TUBES + FREE)
def test_log_mean(case):
    with mpmath.workdps(80):
        expected = float(mpmath.log(masses(case)))
    found = float(log_mean(*case))
    assert found == pytest.approx(expected, rel=1e-12, abs=2e-12)


def test_log_mean_by_quadrature():
    """The closed forms of this file, once by brute force."""
    for case in ((0.3, 0.5, 1.0, np.inf, 2.0), (0.4, 0.7, 0.2, 0.6, 3.0)):
        m, s, a, b, C = case

        def integrand(f, m=m, s=s, a=a, b=b, C=C):
            return stats.norm.pdf(f, m, s) * np.exp(-2.0 * C * max(0.0, a - f, f - b))

        ends = [m - 12 * s, *(x for x in (a, b) if np.isfinite(x)), m + 12 * s]
        whole = sum(integrate.quad(integrand, *pair)[0] for pair in pairwise(ends))
        assert float(log_mean(*case)) == pytest.approx(np.log(whole), rel=1e-9)


def test_two_routes_at_the_middle_of_a_long_range():
    """No jump where one formula takes over from another."""
    mean = np.linspace(-60.0, 60.0, 200_001)
    for sd, cost in ((1.0, 3.0), (20.0, 0.5)):
        values = log_mean(mean, sd, 1.0, np.inf, cost)
        slopes = np.diff(values) / np.diff(mean)
        assert np.all(slopes > -1e-9)
        assert np.all(np.diff(slopes) < 1e-6 * (1.0 + 2.0 * cost))  # log-concave in the mean


@pytest.mark.parametrize("case", HINGES[:6] + TUBES + FREE)
def test_draws_have_their_law(case):
    """By the probability integral transform."""
    rng = np.random.default_rng(21)
    draws = draw_scores(np.full(400, case[0]), *case[1:], rng=rng)
    with mpmath.workdps(80):
        whole = masses(case)
        ranks = [float(masses(case, mpmath.mpf(float(f))) / whole) for f in draws]
    assert stats.kstest(ranks, "uniform").pvalue > 1e-3
