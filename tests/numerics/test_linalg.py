"""Cholesky factors and inverses, well and badly conditioned; draws by them; distances, kernels."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from bsdr_models.numerics.linalg import (
    JITTERS,
    cholesky,
    factorise_inplace,
    inv_spd,
    rbf,
    rbf_gradient,
    squared_distances,
)
from bsdr_models.papers.factors import draw_normal


def with_spectrum(eigenvalues, rng):
    """A symmetric matrix with these eigenvalues in random directions."""
    q, _ = np.linalg.qr(rng.standard_normal((len(eigenvalues),) * 2))
    return (q * eigenvalues) @ q.T


@pytest.mark.parametrize("stack", [(), (4,), (2, 3)])
def test_inverse_and_log_determinant_follow_from_the_spectrum(stack):
    rng = np.random.default_rng(0)
    spectra = rng.uniform(0.1, 10.0, (*stack, 5))
    flat = [
        with_spectrum(s, np.random.default_rng(i)) for i, s in enumerate(spectra.reshape(-1, 5))
    ]
    inverses = [
        with_spectrum(1.0 / s, np.random.default_rng(i))
        for i, s in enumerate(spectra.reshape(-1, 5))
    ]
    matrix = np.reshape(flat, (*stack, 5, 5))
    inverse, log_det = inv_spd(matrix)
    np.testing.assert_allclose(inverse, np.reshape(inverses, (*stack, 5, 5)), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(log_det, -np.log(spectra).sum(axis=-1), rtol=1e-12)
    np.testing.assert_array_equal(inverse, np.swapaxes(inverse, -1, -2))
    factor = cholesky(matrix)
    np.testing.assert_allclose(factor @ np.swapaxes(factor, -1, -2), matrix, atol=1e-13)
    np.testing.assert_array_equal(factor, np.tril(factor))


def test_a_good_matrix_gets_no_jitter():
    matrix = with_spectrum(np.array([1e-6, 1.0, 1e6]), np.random.default_rng(1))
    np.testing.assert_array_equal(cholesky(matrix), np.linalg.cholesky(matrix))


def test_a_matrix_that_rounding_made_indefinite_gets_a_little():
    matrix = with_spectrum(np.array([-1e-11, 1.0, 2.0]), np.random.default_rng(2))
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(matrix)
    factor = cholesky(matrix)
    added = factor @ factor.T - matrix
    np.testing.assert_allclose(added, added[0, 0] * np.eye(3), atol=1e-15)
    assert 1e-11 < added[0, 0] <= JITTERS[1] * 1.001


def test_an_indefinite_matrix_is_named():
    matrix = with_spectrum(np.array([-1e-3, 1.0, 2.0]), np.random.default_rng(3))
    for attempt in (cholesky, inv_spd):
        with pytest.raises(np.linalg.LinAlgError, match="row covariance is not positive definite"):
            attempt(matrix, name="row covariance")
    with pytest.raises(np.linalg.LinAlgError, match="row covariance is not positive definite"):
        factorise_inplace(np.asfortranarray(matrix), name="row covariance")


@pytest.mark.parametrize("p", [4, 49])  # at once, and one by one
def test_mean_and_covariance_are_those_of_the_precision(conditionals, p):
    rng, m = np.random.default_rng(34), 3
    root = rng.standard_normal((p, p + 2))
    precision, linear = root @ root.T, rng.standard_normal((p, m))

    def draw(probe, c):
        tiled = np.tile(precision, (c, 1, 1)), np.tile(linear, (c, 1, 1))
        return draw_normal(*tiled, name="P", rng=probe)

    mean, cov = conditionals.normal_law(draw, p * m)
    np.testing.assert_allclose(precision @ mean.reshape(p, m), linear, atol=1e-10)
    cov = cov.reshape(p, m, p, m)
    for j in range(m):
        np.testing.assert_allclose(cov[:, j, :, j] @ precision, np.eye(p), atol=1e-9)
    np.testing.assert_allclose(cov[:, 0, :, 1], 0.0, atol=1e-12)


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
