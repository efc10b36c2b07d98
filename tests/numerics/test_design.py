"""Every algebra of the ridge against one dense inverse."""

import numpy as np
import pytest

from bsdr_models.numerics.design import DenseDesign, SpectralDesign


def dense_ridge(X, target, phi, variance):
    """S_s and S_s X' z_s / v by brute force; phi (D, R)."""
    covs = [np.linalg.inv(np.diag(p) + X.T @ X / variance) for p in phi.T]
    means = [c @ X.T @ z / variance for c, z in zip(covs, target.T, strict=True)]
    return np.array(covs), np.array(means).T


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (12, 13)])
@pytest.mark.parametrize("tied", ["entrywise", "columnwise", "rowwise"])
@pytest.mark.parametrize("variance", [1.0, 0.01])
def test_dense_ridge_is_the_inverse(shape, tied, variance):
    rng = np.random.default_rng(3)
    (n, d), r = shape, 3
    X = rng.standard_normal(shape)
    target = rng.standard_normal((n, r))
    phi = rng.gamma(1.0, size={"entrywise": (d, r), "columnwise": (1, r), "rowwise": (d, 1)}[tied])
    full = np.broadcast_to(phi, (d, r))
    covs, means = dense_ridge(X, target, full, variance)

    design = DenseDesign(X)
    got = design.ridge(target, phi, variance)
    np.testing.assert_allclose(got.mean, means, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(got.variance, np.einsum("rdd->dr", covs), rtol=1e-8)
    np.testing.assert_allclose(got.log_det, np.linalg.slogdet(covs)[1], rtol=1e-9)
    np.testing.assert_allclose(got.gram_trace, np.einsum("de,red->r", X.T @ X, covs), rtol=1e-8)

    rows = rng.standard_normal((5, d))
    expected = np.einsum("md,rde,me->mr", rows, covs, rows)
    found = np.broadcast_to(design.row_variance(rows, phi, variance), expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("shape", [(40, 7), (7, 40), (200, 12), (12, 200)])
@pytest.mark.parametrize("rank_deficient", [False, True])
def test_spectral_ridge_is_the_dense_one_in_rotated_coordinates(shape, rank_deficient):
    rng = np.random.default_rng(5)
    n, d = shape
    X = rng.standard_normal(shape)
    if rank_deficient:
        X[:, -1] = X[:, 0]
        X[-1] = X[0]
    target, phi, variance = rng.standard_normal((n, 2)), np.array([[0.3, 4.0]]), 0.2
    design = SpectralDesign(X)
    assert design.n_features == np.linalg.matrix_rank(X)
    covs, means = dense_ridge(X, target, np.repeat(phi, d, axis=0), variance)

    got = design.ridge(target, phi, variance)
    np.testing.assert_allclose(design.loadings(got.mean), means, atol=1e-10)
    np.testing.assert_allclose(
        design.loading_variance(got.variance, phi), np.einsum("rdd->dr", covs), rtol=1e-8
    )
    np.testing.assert_allclose(got.gram_trace, np.einsum("de,red->r", X.T @ X, covs), rtol=1e-8)
    missing = d - design.n_features
    np.testing.assert_allclose(
        got.log_det - missing * np.log(phi[0]), np.linalg.slogdet(covs)[1], rtol=1e-9
    )
    rows = rng.standard_normal((5, d))
    expected = np.einsum("md,rde,me->mr", rows, covs, rows)
    np.testing.assert_allclose(design.row_variance(rows, phi, variance), expected, rtol=1e-8)


def test_spectral_design_refuses_other_priors():
    design = SpectralDesign(np.random.default_rng(0).standard_normal((9, 4)))
    with pytest.raises(ValueError, match="columnwise"):
        design.ridge(np.zeros((9, 2)), np.ones((4, 2)), 1.0)
