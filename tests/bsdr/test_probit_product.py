"""The normal average of a product of probits against closed forms and tensor quadrature."""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal, norm

from bsdr_models.bsdr.paper.probit_product import log_mean


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
            [logsumexp(log_weights + log_ndtr(nodes @ row.T + shift).sum(axis=1)) for shift in each]
            for row, each in zip(c, d, strict=True)
        ]
    )


@pytest.mark.parametrize("n_dims", [1, 4])
def test_one_probit_is_a_probit(n_dims):
    rng = np.random.default_rng(0)
    c, d = rng.standard_normal((25, 1, n_dims)), 6.0 * rng.standard_normal((25, 2, 1))
    size = np.sqrt(1.0 + (c**2).sum(axis=2))
    np.testing.assert_allclose(log_mean(c, d), norm.logcdf(d[:, :, 0] / size), rtol=1e-12)


@pytest.mark.parametrize(("n_dims", "error"), [(1, 1e-12), (2, 1e-8), (4, 1e-12)])
def test_without_loadings_it_is_the_product(n_dims, error):
    d = np.linspace(-30.0, 5.0, 24).reshape(4, 2, 3)
    got = log_mean(np.zeros((4, 3, n_dims)), d)
    np.testing.assert_allclose(got, norm.logcdf(d).sum(axis=2), rtol=error)


@pytest.mark.parametrize(
    ("n_dims", "n_factors", "error"), [(1, 3, 1e-9), (2, 2, 1e-6), (2, 5, 1e-5), (3, 5, 5e-4)]
)
def test_agrees_with_quadrature(n_dims, n_factors, error):
    """Improbable labels included."""
    rng = np.random.default_rng([1, n_dims, n_factors])
    c = rng.standard_normal((8, n_factors, n_dims)) / np.sqrt(n_dims)
    d = 1.5 * rng.standard_normal((8, 2, n_factors))
    expected = by_quadrature(c, d)
    assert expected.min() < -5.0
    np.testing.assert_allclose(log_mean(c, d), expected, atol=error)


@pytest.mark.parametrize(("n_dims", "error"), [(4, 2e-3), (7, 5e-3)])
def test_many_dimensions_by_the_argmax_of_normals(n_dims, error):
    """Equal variances and no means: each of eight scores is the largest with the same chance.

    Seven margins to the others, with covariance I + 1 1' + c c' if c are differences of loadings.
    Loadings at the corners of a simplex are alike in seven dimensions; cut to four they are not,
    but the chances of all labels still add up to one.
    """
    simplex = np.eye(8) - 1.0 / 8.0
    axes = np.linalg.svd(simplex)[0][:, :n_dims]
    total = 0.0
    for y in range(8):
        c = np.column_stack([np.ones(7), 1.5 * (axes[y] - np.delete(axes, y, axis=0))])
        p = np.exp(log_mean(c[None], np.zeros((1, 1, 7)))[0, 0])
        total += p
        if n_dims == 7:
            np.testing.assert_allclose(p, 1.0 / 8.0, rtol=error)
    np.testing.assert_allclose(total, 1.0, atol=error)


@pytest.mark.parametrize(("n_dims", "n_factors"), [(2, 4), (3, 4), (3, 3), (5, 2), (4, 6)])
def test_it_is_a_function_of_the_covariance(n_dims, n_factors):
    """Turned, reflected and permuted coordinates of a change nothing beyond rounding."""
    rng = np.random.default_rng([5, n_dims])
    c = rng.standard_normal((10, n_factors, n_dims))
    d = rng.standard_normal((10, 3, n_factors))
    turn = np.linalg.qr(rng.standard_normal((n_dims, n_dims)))[0]
    flip = np.eye(n_dims)[rng.permutation(n_dims)] * rng.choice([-1.0, 1.0], n_dims)
    for other in (turn, flip):
        np.testing.assert_allclose(log_mean(c @ other, d), log_mean(c, d), rtol=1e-9)


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
    got = log_mean(c[None], np.full((1, 1, 2), d))[0, 0]
    if d == -5.0:
        exact = multivariate_normal(np.zeros(2), cov).logcdf(np.full(2, d))
        np.testing.assert_allclose(got, exact, atol=1e-4)
    # Cutting the sum at u = d costs half a step times the hazard there, at most 7, of 0.0003.
    np.testing.assert_allclose(got, expected, atol=2e-3)


def test_a_certain_label_keeps_its_distance_from_certainty():
    """Leave-one-out weights are differences of numbers like -1e-20."""
    d = np.array([[6.0, 7.0], [9.0, 9.5], [20.0, 25.0]])[None]
    exact = norm.logcdf(d).sum(axis=2)
    got = log_mean(np.full((1, 2, 2), 1e-9), d)
    np.testing.assert_allclose(got, exact, rtol=1e-6)
    assert (got < 0.0).all()


def test_it_is_continuous_where_a_label_becomes_nearly_certain():
    """Across the point at which the excess over Bonferroni's bound takes over."""
    d = np.linspace(1.5, 3.0, 301)[:, None] + np.array([0.0, 0.3, 0.7])
    c = np.array([[1.0, 0.2], [0.6, -0.5], [-0.3, 0.8]])
    got = log_mean(c[None], d[None])[0]
    np.testing.assert_allclose(got[None], by_quadrature(c[None], d[None]), atol=1e-6)


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_steep_probits_give_probabilities(size):
    rng = np.random.default_rng(7)
    for n_dims in (1, 3, 5):
        c, d = rng.standard_normal((2, 30, 6, n_dims))
        value = log_mean(size * c, size * d[:, None, :, 0])
        assert np.isfinite(value).all()
        assert (value <= 0.0).all()
