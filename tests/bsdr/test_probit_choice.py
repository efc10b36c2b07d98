"""The multinomial probit with a lapse, against quadrature and its own identities."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bsdr_models.bsdr import probit_choice
from bsdr_models.bsdr.probit_choice import log_likelihood, mean_probabilities
from bsdr_models.papers import orthant
from tests.toys import central

LAPSE = 0.003
# Largest absolute errors as the documentation states them: of p, of p times the slope of its
# logarithm, and of the normalised probabilities.
ERROR = {2: 4e-7, 3: 4e-7, 10: 4e-7, 26: 6e-7, 50: 4e-6, 100: 2e-5}
ERROR_SLOPE = {2: 3e-7, 3: 3e-7, 10: 3e-7, 26: 7e-6, 50: 5e-5, 100: 3e-4}
ERROR_ALL = {2: 2e-7, 3: 2e-7, 10: 2e-7, 26: 2e-6, 50: 2e-5, 100: 6e-5}


def probabilities(eta, lapse=0.0):
    """Of all classes by one draw, (N, K)."""
    return mean_probabilities(eta[:, None], lapse)


def utilities(k, n=300):
    """(N, K): ties, one class ahead or behind, close by, and far apart."""
    rng = np.random.default_rng(k)
    ahead = np.zeros((161, k))
    ahead[:, 0] = np.linspace(-12.0, 12.0, 161)
    leaders = rng.standard_normal((n, k)) + 4.0 * (rng.random((n, k)) < 0.3)
    spread = [scale * rng.standard_normal((n, k)) for scale in (0.3, 1.0, 3.0, 30.0, 1e6)]
    ties = np.where(rng.random((n, k)) < 0.5, 3.0, rng.standard_normal((n, k)))
    return np.vstack([ahead, leaders, ties, *spread])


def exact(eta, lapse=LAPSE):
    """P of class 0 and the slope of log p, by the adaptive rule."""
    found = orthant.moments(eta, np.zeros(len(eta), int), n_nodes=64)
    p = np.exp(found.log_prob)
    share = (1.0 - lapse) * p / ((1.0 - lapse) * p + lapse / eta.shape[1])
    return p, (found.mean - eta) * share[:, None]


def first_class(eta, lapse=LAPSE):
    """log p and its slope for label 0 of each sample."""
    value, slope = log_likelihood(eta[None], np.zeros(len(eta), int), lapse)
    return value[0], slope[0]


@pytest.mark.parametrize("k", ERROR)
def test_absolute_errors(k):
    eta = utilities(k)
    p, slope = exact(eta)
    value, found = first_class(eta)
    mixed = (1.0 - LAPSE) * p + LAPSE / k
    assert_allclose((np.exp(value) - LAPSE / k) / (1.0 - LAPSE), p, rtol=0, atol=ERROR[k])
    assert_allclose((value - np.log(mixed)) * mixed, 0.0, atol=ERROR[k])
    assert_allclose(found * mixed[:, None], slope * mixed[:, None], rtol=0, atol=ERROR_SLOPE[k])
    assert_allclose(probabilities(eta)[:, 0], p, rtol=0, atol=ERROR_ALL[k])


@pytest.mark.parametrize("k", [2, 3, 10, 26, 100])
def test_slope_by_differences(k):
    """Of the value itself, off the ends of the pieces, where it jumps by 1e-11."""
    rng = np.random.default_rng(k)
    eta = 2.0 * rng.standard_normal((20, k))
    value, slope = first_class(eta)
    assert_allclose(slope.sum(axis=1), 0.0, atol=1e-12)
    change = central(lambda at: first_class(at)[0], eta, 1e-5)
    assert_allclose((slope - change) * np.exp(value)[:, None], 0.0, atol=3e-6)


@pytest.mark.parametrize("k", [2, 3, 10, 26, 100])
def test_classes_agree_with_each_other(k):
    eta = utilities(k, 30)
    for lapse in (0.0, LAPSE, 0.2):
        p = probabilities(eta, lapse)
        assert_allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        assert p.min() >= lapse / k * (1.0 - 1e-12)
        for label in range(min(k, 4) if lapse else 0):
            value, _ = log_likelihood(eta[None], np.full(len(eta), label), lapse)
            atol = ERROR[k] + ERROR_ALL[k]
            assert_allclose(np.exp(value[0]), p[:, label], rtol=0, atol=atol)


@pytest.mark.parametrize("k", [2, 3, 10, 26, 100])
def test_names_of_classes_and_a_common_shift_do_not_matter(k):
    rng = np.random.default_rng(k)
    eta = 2.0 * rng.standard_normal((7, 50, k))
    y = rng.integers(0, k, 50)
    value, slope = log_likelihood(eta, y, LAPSE)
    p = mean_probabilities(eta, LAPSE)
    order = rng.permutation(k)
    for moved, named in ((eta[..., order], np.argsort(order)[y]), (eta + 2.0, y)):
        there = order if moved.shape != eta.shape or named is not y else np.arange(k)
        other, other_slope = log_likelihood(moved, named, LAPSE)
        assert_allclose(other, value, rtol=0, atol=1e-12)
        assert_allclose(other_slope, slope[..., there], rtol=0, atol=1e-9)
        assert_allclose(mean_probabilities(moved, LAPSE), p[..., there], rtol=0, atol=1e-7)


def test_far_apart_is_decided_and_flat():
    eta = np.array([[0.0, 9.0, 1.0], [20.0, 0.0, 1e300], [1e300, 0.0, -1e300], [9.0, 0.0, 0.5]])
    value, slope = first_class(eta)
    low, high = np.log(LAPSE / 3), np.log(1.0 - LAPSE + LAPSE / 3)
    assert_allclose(value, [low, low, high, high], atol=1e-12)
    assert_allclose(slope, 0.0)
    assert_allclose(probabilities(eta), np.eye(3)[[1, 2, 0, 0]], rtol=0, atol=1e-8)


def test_a_lapse_bounds_the_loss():
    """However far on the wrong side: log(K / lapse)."""
    eta = np.linspace(-1e3, 1e3, 999)[:, None] * np.array([1.0, 0.0, 0.0, 0.0])
    for lapse in (1e-6, LAPSE, 0.5):
        value, _ = first_class(eta, lapse)
        assert value.min() >= -np.log(4.0 / lapse) - 1e-12
        assert value.max() <= np.log(1.0 - 0.75 * lapse) + 1e-12


@pytest.mark.parametrize("k", [2, 3, 6, 20])
def test_curvature_is_the_change_of_the_slope(k):
    rng = np.random.default_rng(k)
    eta, y = 2.0 * rng.standard_normal((100, k)), rng.integers(k, size=100)
    slope, curvature = probit_choice.curvature(eta, y, LAPSE)
    assert_allclose(slope, log_likelihood(eta[None], y, LAPSE)[1][0], atol=1e-13)
    change = central(lambda at: log_likelihood(at[None], y, LAPSE)[1][0], eta, 1e-3)
    assert_allclose(curvature, change, atol=3e-5)


def test_curvature_of_what_is_decided_is_none():
    eta = np.array([[20.0, 0.0, -5.0], [-20.0, 0.0, -30.0]])
    slope, curvature = probit_choice.curvature(eta, np.zeros(2, dtype=int), LAPSE)
    assert not slope.any()
    assert not curvature.any()
