"""Every algebra of the ridge against one dense inverse, its draws, and discriminant directions."""

import numpy as np
import pytest
from scipy.linalg import eigh

from bsdr_models.numerics.linalg import standardise
from bsdr_models.papers.bsdr import design
from bsdr_models.papers.bsdr.design import DenseDesign, SpectralDesign


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

    dense = DenseDesign(X)
    got = dense.ridge(target, phi, variance)
    np.testing.assert_allclose(got.mean, means, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(got.variance, np.einsum("rdd->dr", covs), rtol=1e-8)
    np.testing.assert_allclose(got.log_det, np.linalg.slogdet(covs)[1], rtol=1e-9)
    np.testing.assert_allclose(got.gram_trace, np.einsum("de,red->r", X.T @ X, covs), rtol=1e-8)

    rows = rng.standard_normal((5, d))
    expected = np.einsum("md,rde,me->mr", rows, covs, rows)
    found = np.broadcast_to(dense.row_variance(rows, phi, variance), expected.shape)
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
    spectral = SpectralDesign.of(X)
    assert spectral.X.shape[1] == np.linalg.matrix_rank(X)
    covs, means = dense_ridge(X, target, np.repeat(phi, d, axis=0), variance)

    got = spectral.ridge(target, phi, variance)
    np.testing.assert_allclose(spectral.loadings(got.mean), means, atol=1e-10)
    np.testing.assert_allclose(got.gram_trace, np.einsum("de,red->r", X.T @ X, covs), rtol=1e-8)
    missing = d - spectral.X.shape[1]
    np.testing.assert_allclose(
        got.log_det - missing * np.log(phi[0]), np.linalg.slogdet(covs)[1], rtol=1e-9
    )


@pytest.mark.parametrize(("n", "d"), [(9, 4), (7, 60), (60, 50), (5, 5)])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1.7])
def test_mean_and_covariance_of_draws_are_those_of_the_ridge(conditionals, n, d, shared, scale):
    """Columns are independent of each other."""
    rng = np.random.default_rng(1)
    X, linear = rng.standard_normal((n, d)), rng.standard_normal((n, 2))
    phi = rng.gamma(2.0, size=1 if shared else d)

    def draw(probe, c):
        tiled = np.tile(linear, (c, 1, 1)), np.tile(phi, (c, 1)), np.full(c, scale)
        return DenseDesign(X).draw(*tiled, rng=probe)

    mean, cov = conditionals.normal_law(draw, 2 * (d + n))
    precision = phi * np.eye(d) + scale * X.T @ X
    expected = np.linalg.solve(precision, X.T @ linear)
    np.testing.assert_allclose(mean.reshape(d, 2), expected, rtol=1e-8, atol=1e-10)
    cov = cov.reshape(d, 2, d, 2)
    for j in range(2):
        np.testing.assert_allclose(cov[:, j, :, j] @ precision, np.eye(d), atol=1e-8)
    np.testing.assert_allclose(cov[:, 0, :, 1], 0.0, atol=1e-12)


def classes(n, d, k, rng):
    """Centred samples of unbalanced classes with different means and scales of the features."""
    y = np.minimum(rng.geometric(0.4, n) - 1, k - 1)
    y[:k] = np.arange(k)
    X = rng.standard_normal((n, d)) * rng.uniform(0.5, 2.0, d)
    X += 1.5 * rng.standard_normal((k, d))[y]
    return X - X.mean(axis=0), y


def discriminants(X, y, n_scores):
    """Leading solutions a of S_b a = mu (S_t + s I) a, as scores X a; s from SHRINKAGE."""
    d = X.shape[1]
    total = X.T @ X
    means = np.array([X[y == c].mean(axis=0) for c in np.unique(y)])
    between = (means.T * np.bincount(y)) @ means
    share = design.SHRINKAGE
    shrunken = (1.0 - share) * total + share * np.trace(total) / d * np.eye(d)
    values, vectors = eigh(between, shrunken)
    return X @ vectors[:, ::-1][:, :n_scores], values[::-1]


@pytest.mark.parametrize("make", [DenseDesign, SpectralDesign.of])
@pytest.mark.parametrize(("n", "d", "k"), [(60, 6, 4), (40, 6, 2), (25, 70, 3)])
def test_scores_are_those_of_shrunken_discriminants(n, d, k, make):
    X, y = classes(n, d, k, np.random.default_rng(n))
    if make is not DenseDesign and d > n:
        # tr(X'X) / D is that of the working coordinates, so give the reference those too.
        X = SpectralDesign.of(X).X
    Y = design.label_indicators(y, k)
    got = design.discriminant_scores(make(X), Y, k)
    expected, values = discriminants(X, y, k - 1)
    assert np.all(np.diff(values[:k]) < 0.0)
    assert got.shape == (n, k)
    for s in range(k - 1):
        assert abs(np.corrcoef(got[:, s], expected[:, s])[0, 1]) == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(got.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(got[:, k - 1], 0.0, atol=1e-12)


def test_scores_of_real_targets_lead_to_what_predicts_them():
    """Two targets driven by one direction: the first score is that direction."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 5))
    X -= X.mean(axis=0)
    signal = X @ np.array([1.0, -2.0, 0.0, 0.5, 0.0])
    Y = np.outer(signal, [1.0, -3.0]) + 0.1 * rng.standard_normal((500, 2))
    scores = design.discriminant_scores(DenseDesign(X), Y, 2)
    assert abs(np.corrcoef(scores[:, 0], signal)[0, 1]) > 0.999
    assert np.ptp(scores[:, 1]) < 0.05 * np.ptp(scores[:, 0])


def test_standardise_scales_what_varies_and_clears_the_rest():
    rng = np.random.default_rng(2)
    scores = np.column_stack(
        [5.0 + 1e3 * rng.standard_normal(50), rng.standard_normal(50), np.full(50, 7.0)]
    )
    scores = np.column_stack([scores, 1e-13 * rng.standard_normal(50)])
    got = standardise(scores)
    np.testing.assert_allclose(got.mean(axis=0), 0.0, atol=1e-13)
    np.testing.assert_allclose(got.std(axis=0), [1.0, 1.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(standardise(np.ones((4, 2))), np.zeros((4, 2)))
    assert standardise(np.empty((4, 0))).shape == (4, 0)
