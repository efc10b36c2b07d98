"""The normal average of a product of probits against closed forms and tensor quadrature."""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal, norm

from bsdr_models.numerics.probit_product import log_mean, normal_points


def tensor_rule(n_dims, n_nodes=60):
    """Gauss-Hermite nodes (G, P) and log weights (G,) of N(0, I)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * n_dims, indexing="ij"), axis=-1)
    log_weights = sum(np.meshgrid(*[np.log(weights)] * n_dims, indexing="ij"))
    return grid.reshape(-1, n_dims), log_weights.ravel() - 0.5 * n_dims * np.log(2.0 * np.pi)


def by_quadrature(c, d):
    nodes, log_weights = tensor_rule(c.shape[2])
    return np.array(
        [
            logsumexp(log_weights + log_ndtr(nodes @ row.T + shift).sum(axis=1))
            for row, shift in zip(c, d, strict=True)
        ]
    )


@pytest.mark.parametrize("n_dims", [1, 4])
def test_one_probit_is_a_probit(n_dims):
    rng = np.random.default_rng(0)
    c, d = rng.standard_normal((50, 1, n_dims)), 6.0 * rng.standard_normal((50, 1))
    size = np.sqrt(1.0 + (c[:, 0] ** 2).sum(axis=1))
    np.testing.assert_allclose(log_mean(c, d), norm.logcdf(d[:, 0] / size), rtol=1e-12)


def test_without_loadings_it_is_the_product():
    d = np.linspace(-30.0, 5.0, 24).reshape(8, 3)
    got = log_mean(np.zeros((8, 3, 2)), d)
    np.testing.assert_allclose(got, norm.logcdf(d).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("n_dims", [2, 3])
@pytest.mark.parametrize("n_factors", [2, 5])
def test_agrees_with_quadrature(n_dims, n_factors):
    """Relative accuracy of a few hundredths at 32 points, also for improbable labels."""
    rng = np.random.default_rng([1, n_dims, n_factors])
    c = rng.standard_normal((40, n_factors, n_dims)) / np.sqrt(n_dims)
    d = 1.5 * rng.standard_normal((40, n_factors))
    expected = by_quadrature(c, d)
    assert expected.min() < -6.0
    error = log_mean(c, d) - expected
    assert np.sqrt(np.mean(error**2)) < 0.025
    assert np.abs(error).max() < 0.15
    np.testing.assert_allclose(log_mean(c, d, n_points=4096), expected, atol=6e-3)


@pytest.mark.parametrize("d", [-5.0, -15.0, -25.0])
def test_keeps_its_accuracy_where_no_point_of_the_prior_falls(d):
    """Two probits: the joint distribution function of two correlated normals."""
    c = np.array([[1.2, 0.3], [-0.4, 0.9]])
    cov = np.eye(2) + c @ c.T
    # Mills' ratio of the bivariate tail by quadrature about its mode, in one dimension.
    u = np.linspace(-60.0, 60.0, 400_001)
    rest = (d - cov[0, 1] / cov[0, 0] * u) / np.sqrt(cov[1, 1] - cov[0, 1] ** 2 / cov[0, 0])
    log_f = norm.logpdf(u, scale=np.sqrt(cov[0, 0])) + log_ndtr(rest)
    expected = logsumexp(log_f[u <= d]) + np.log(u[1] - u[0])
    got = log_mean(c[None], np.full((1, 2), d))[0]
    if d == -5.0:
        exact = multivariate_normal(np.zeros(2), cov).logcdf(np.full(2, d))
        np.testing.assert_allclose(expected, exact, atol=1e-3)
    np.testing.assert_allclose(got, expected, atol=0.06)


def test_a_certain_label_keeps_its_distance_from_certainty():
    """Leave-one-out weights are differences of numbers like -1e-20."""
    d = np.array([[6.0, 7.0], [9.0, 9.5], [20.0, 25.0]])
    exact = norm.logcdf(d).sum(axis=1)
    got = log_mean(np.full((3, 2, 2), 1e-9), d)
    np.testing.assert_allclose(got, exact, rtol=1e-6)
    assert (got < 0.0).all()


def test_rows_do_not_depend_on_their_batch():
    rng = np.random.default_rng(2)
    c, d = rng.standard_normal((6, 3, 2)), rng.standard_normal((6, 3))
    alone = np.concatenate([log_mean(c[i : i + 1], d[i : i + 1]) for i in range(6)])
    np.testing.assert_array_equal(log_mean(c, d), alone)


@pytest.mark.parametrize(("n_dims", "n_points"), [(1, 32), (5, 32), (3, 100)])
def test_points_have_the_moments_of_the_normal(n_dims, n_points):
    points = normal_points(n_dims, n_points)
    assert points.shape == (n_points, n_dims)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-14)
    np.testing.assert_allclose(points.T @ points / n_points, np.eye(n_dims), atol=1e-12)
