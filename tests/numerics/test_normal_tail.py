"""Truncated normals: moments and draws against high precision, also far in the tails."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import ndtr

from bsdr_models.papers import normal_tail
from bsdr_models.papers.normal_tail import inverse_mills, positive_mean

POINTS = [-1e6, -3000.0, -100.1, -99.9, -40.0, -8.0, -1.0, 0.0, 0.7, 5.0, 30.0, 1000.0]


def precise_ratio(a):
    return mp.npdf(a) / mp.ncdf(a)


@pytest.mark.parametrize("a", POINTS)
def test_hazard_and_mean_against_high_precision(a):
    with mp.workdps(60):
        ratio = precise_ratio(mp.mpf(a))
        mean = float(a + ratio)
        ratio = float(ratio)
    assert float(inverse_mills(a)) == pytest.approx(ratio, rel=1e-12, abs=1e-300)
    assert float(positive_mean(a)) == pytest.approx(mean, rel=3e-12)


def test_means_of_both_sides_are_together_that_of_the_normal():
    eta = np.linspace(-30.0, 30.0, 25)
    total = ndtr(eta) * positive_mean(eta) - ndtr(-eta) * positive_mean(-eta)
    assert_allclose(total, eta, atol=1e-13)


@given(eta=st.floats(-1e8, 1e8))
def test_mean_stays_on_its_side(eta):
    assert positive_mean(eta) > 0.0
    assert positive_mean(eta) >= eta


def ranks_below(draws, mean, bound):
    """P(x < draw | x < bound) for x ~ N(mean, 1)."""
    with mp.workdps(30):
        total = mp.ncdf(mp.mpf(float(bound)) - mean)
        return np.array([float(mp.ncdf(mp.mpf(float(x)) - mean) / total) for x in draws])


@pytest.mark.parametrize("gap", [-200.0, -38.0, -5.0, -0.3, 0.0, 2.0, 9.0, 40.0])
def test_draws_have_the_law_of_the_cut_normal(gap):
    rng = np.random.default_rng(3)
    mean = 1.25
    draws = -normal_tail.draw_above(np.full(800, -mean), -mean - gap, rng=rng)
    assert np.all(draws < mean + gap)
    assert stats.kstest(ranks_below(draws, mean, mean + gap), "uniform").pvalue > 1e-4


def test_absurdly_distant_bounds_still_give_numbers_on_the_right_side():
    rng = np.random.default_rng(7)
    mean = np.repeat([-1e150, -1e12, 1e12, 1e150], 50)
    draws = normal_tail.draw_above(mean, 0.0, rng=rng)
    assert np.isfinite(draws).all()
    assert np.all(draws > 0.0)
