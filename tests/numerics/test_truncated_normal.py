"""Draws of truncated normals, through the probability integral transform of 30-digit arithmetic."""

import mpmath
import numpy as np
import pytest
from scipy import stats

from bsdr_models.numerics import normal_tail


def ranks_below(draws, mean, bound):
    """P(x < draw | x < bound) for x ~ N(mean, 1)."""
    with mpmath.workdps(30):
        total = mpmath.ncdf(mpmath.mpf(float(bound)) - mean)
        return np.array([float(mpmath.ncdf(mpmath.mpf(float(x)) - mean) / total) for x in draws])


@pytest.mark.parametrize("gap", [-200.0, -38.0, -5.0, -0.3, 0.0, 2.0, 9.0, 40.0])
def test_draws_have_the_law_of_the_cut_normal(gap):
    rng = np.random.default_rng(3)
    mean = 1.25
    draws = normal_tail.draw_below(np.full(800, mean), mean + gap, rng=rng)
    assert np.all(draws < mean + gap)
    assert stats.kstest(ranks_below(draws, mean, mean + gap), "uniform").pvalue > 1e-4


def test_above_is_the_mirror_image_of_below():
    mean, bound = np.array([0.4, -2.0, 30.0]), np.array([1.0, 7.0, -3.0])
    above = normal_tail.draw_above(mean, bound, rng=np.random.default_rng(5))
    below = normal_tail.draw_below(-mean, -bound, rng=np.random.default_rng(5))
    np.testing.assert_array_equal(above, -below)
    assert np.all(above > bound)


def test_absurdly_distant_bounds_still_give_numbers_on_the_right_side():
    rng = np.random.default_rng(7)
    mean = np.repeat([-1e150, -1e12, 1e12, 1e150], 50)
    draws = normal_tail.draw_above(mean, 0.0, rng=rng)
    assert np.isfinite(draws).all()
    assert np.all(draws > 0.0)


def test_arguments_broadcast():
    rng = np.random.default_rng(9)
    assert normal_tail.draw_below(np.zeros((4, 1)), np.ones(3), rng=rng).shape == (4, 3)
