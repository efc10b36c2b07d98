"""Squared distances and the Gaussian kernel, against SciPy and in hard places."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from bsdr_models.numerics.linalg import rbf, rbf_gradient, squared_distances

# Rounding of a sum of D products, relative to the largest of them.
EPS = np.finfo(float).eps


@pytest.mark.parametrize("d", [1, 2, 8, 9, 300])
def test_distances_are_those_of_scipy(d):
    rng = np.random.default_rng(61)
    A, B = rng.standard_normal((23, d)), rng.standard_normal((17, d)) + 1.0
    limit = 20.0 * EPS * d * 16.0
    np.testing.assert_allclose(squared_distances(A, B), cdist(A, B) ** 2, atol=limit, rtol=0.0)
    np.testing.assert_allclose(squared_distances(A), cdist(A, A) ** 2, atol=limit, rtol=0.0)


@pytest.mark.parametrize("d", [2, 40])
def test_far_from_the_origin_the_distances_keep_their_digits(d):
    """A shift by 1e6 costs 1e6 eps in a coordinate, not 1e12 eps in a square."""
    rows = np.random.default_rng(67).standard_normal((30, d))
    shifted = squared_distances(rows + 1e6)
    np.testing.assert_allclose(shifted, squared_distances(rows), atol=1e-7, rtol=0.0)
    shifted = squared_distances(rows + 1e6, rows[:5] + 1e6)
    np.testing.assert_allclose(shifted, squared_distances(rows, rows[:5]), atol=1e-7, rtol=0.0)


@pytest.mark.parametrize("d", [1, 3, 50])
def test_distances_to_itself_are_symmetric_and_never_negative(d):
    rows = 1e3 * np.random.default_rng(71).standard_normal((40, d))
    rows[20:] = rows[:20]
    distances = squared_distances(rows)
    assert np.array_equal(distances, distances.T)
    assert np.all(np.diagonal(distances) == 0.0)
    assert np.all(distances >= 0.0)


@pytest.mark.parametrize("d", [2, 12])
def test_kernel_is_a_gaussian_of_the_distance(d):
    rng = np.random.default_rng(79)
    A, B = rng.standard_normal((9, d)), rng.standard_normal((7, d))
    np.testing.assert_allclose(rbf(A, B, 1.7), np.exp(-0.5 * (cdist(A, B) / 1.7) ** 2), rtol=1e-12)
    np.testing.assert_allclose(rbf(A, B, 1.7, 3.0), 3.0 * rbf(A, B, 1.7), rtol=1e-14)
    own = rbf(A, None, 1.7)
    assert np.array_equal(own, own.T)
    np.testing.assert_allclose(own, np.exp(-0.5 * (cdist(A, A) / 1.7) ** 2), rtol=1e-12)
    assert np.all(np.diagonal(own) == 1.0)


def test_kernel_of_distant_rows_is_zero():
    kernel = rbf(np.array([[0.0], [1e6]]), None, 1.0, 2.0)
    assert np.array_equal(kernel, 2.0 * np.eye(2))


@pytest.mark.parametrize(("n", "r"), [(1, 1), (2, 3), (33, 2), (9, 10)])
def test_gradient_is_that_of_a_weighted_sum(n, r):
    """The kernel's slope along a coordinate is written out pair by pair."""
    rng = np.random.default_rng(89)
    rows, weight = rng.standard_normal((n, r)), rng.standard_normal((n, n))
    weight = weight + weight.T
    lengthscale, amplitude = 0.8, 2.5
    kernel = amplitude * np.exp(-0.5 * (cdist(rows, rows) / lengthscale) ** 2)
    lower = np.asfortranarray(np.where(np.tri(n, dtype=bool), weight, np.nan))
    total, gradient = rbf_gradient(rows, kernel, lengthscale, lower)
    assert total == pytest.approx(np.sum(weight * kernel), rel=1e-11, abs=1e-11)
    difference = rows[:, None] - rows
    expected = -2.0 * np.einsum("ij,ij,ijr->ir", weight, kernel, difference) / lengthscale**2
    np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=1e-11)
