"""Truncated normals: moments and draws against high precision, also far in the tails."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import log_ndtr

from bsdr_models.numerics import normal_tail
from bsdr_models.numerics.normal_tail import inverse_mills, positive_mean, positive_probit_moments

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


def test_moments_of_both_sides():
    """The two sides are mirror images, and together they are the untruncated normal."""
    eta = np.linspace(-30.0, 30.0, 25).reshape(5, 5)
    log_present, mean_present = positive_probit_moments(eta, 1)
    log_absent, mean_absent = positive_probit_moments(eta, -np.ones_like(eta))

    assert_allclose(log_present, log_ndtr(eta))
    assert_allclose(log_absent, log_present[::-1, ::-1])
    assert_allclose(mean_absent, -mean_present[::-1, ::-1])
    probability = np.exp(log_present)
    assert_allclose(np.exp(log_absent), 1 - probability, atol=1e-15)
    assert_allclose(probability * mean_present + np.exp(log_absent) * mean_absent, eta, atol=1e-13)


def test_mean_is_the_gradient_of_the_log_probability():
    eta, step = np.linspace(-6.0, 6.0, 31), 1e-5
    for sign in (1.0, -1.0):
        up, down = (positive_probit_moments(eta + s, sign)[0] for s in (step, -step))
        mean = positive_probit_moments(eta, sign)[1]
        assert_allclose((up - down) / (2 * step), mean - eta, atol=1e-8)


@given(eta=st.floats(-1e8, 1e8), sign=st.sampled_from([-1, 1]))
def test_mean_stays_on_its_side(eta, sign):
    log_prob, mean = positive_probit_moments(eta, sign)
    assert np.isfinite(log_prob)
    assert log_prob <= 0.0
    assert sign * mean > 0.0
    assert sign * (mean - eta) >= 0.0


def test_wrong_signs_and_scores_are_refused():
    with pytest.raises(ValueError, match="sign"):
        positive_probit_moments(np.zeros(2), np.array([0, 1]))
    with pytest.raises(ValueError, match="eta"):
        positive_probit_moments(np.array([0.0, np.nan]), 1)


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


def test_arguments_broadcast():
    rng = np.random.default_rng(9)
    assert normal_tail.draw_above(np.zeros((4, 1)), np.ones(3), rng=rng).shape == (4, 3)
