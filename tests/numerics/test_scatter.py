"""Discriminant directions against the generalised eigenproblem that defines them."""

import numpy as np
import pytest
from scipy.linalg import eigh

from bsdr_models.numerics import scatter
from bsdr_models.numerics.design import DenseDesign, SpectralDesign


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
    share = scatter.SHRINKAGE
    shrunken = (1.0 - share) * total + share * np.trace(total) / d * np.eye(d)
    values, vectors = eigh(between, shrunken)
    return X @ vectors[:, ::-1][:, :n_scores], values[::-1]


@pytest.mark.parametrize("design", [DenseDesign, SpectralDesign])
@pytest.mark.parametrize(("n", "d", "k"), [(60, 6, 4), (40, 6, 2), (25, 70, 3)])
def test_scores_are_those_of_shrunken_discriminants(n, d, k, design):
    X, y = classes(n, d, k, np.random.default_rng(n))
    if design is SpectralDesign and d > n:
        # tr(X'X) / D is that of the working coordinates, so give the reference those too.
        X = SpectralDesign(X).X
    Y = scatter.label_indicators(y, k)
    got = scatter.discriminant_scores(design(X), Y, k)
    expected, values = discriminants(X, y, k - 1)
    assert np.all(np.diff(values[:k]) < 0.0)
    assert got.shape == (n, k)
    for s in range(k - 1):
        assert abs(np.corrcoef(got[:, s], expected[:, s])[0, 1]) == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(got.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(got[:, k - 1], 0.0, atol=1e-12)


def test_no_more_scores_than_asked_for_or_there_are():
    X, y = classes(40, 6, 4, np.random.default_rng(0))
    Y = scatter.label_indicators(y, 4)
    assert scatter.discriminant_scores(DenseDesign(X), Y, 2).shape == (40, 2)
    assert scatter.discriminant_scores(DenseDesign(X), Y, 9).shape == (40, 4)


def test_scores_of_real_targets_lead_to_what_predicts_them():
    """Two targets driven by one direction: the first score is that direction."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 5))
    X -= X.mean(axis=0)
    signal = X @ np.array([1.0, -2.0, 0.0, 0.5, 0.0])
    Y = np.outer(signal, [1.0, -3.0]) + 0.1 * rng.standard_normal((500, 2))
    scores = scatter.discriminant_scores(DenseDesign(X), Y, 2)
    assert abs(np.corrcoef(scores[:, 0], signal)[0, 1]) > 0.999
    assert np.ptp(scores[:, 1]) < 0.05 * np.ptp(scores[:, 0])


def test_indicators_are_columns_of_unit_length():
    y = np.array([0, 2, 2, 0, 2])
    expected = np.zeros((5, 4))
    expected[[0, 3], 0] = 2**-0.5
    expected[[1, 2, 4], 2] = 3**-0.5
    np.testing.assert_allclose(scatter.label_indicators(y, 4), expected)


def test_standardise_scales_what_varies_and_clears_the_rest():
    rng = np.random.default_rng(2)
    scores = np.column_stack(
        [5.0 + 1e3 * rng.standard_normal(50), rng.standard_normal(50), np.full(50, 7.0)]
    )
    scores = np.column_stack([scores, 1e-13 * rng.standard_normal(50)])
    got = scatter.standardise(scores)
    np.testing.assert_allclose(got.mean(axis=0), 0.0, atol=1e-13)
    np.testing.assert_allclose(got.std(axis=0), [1.0, 1.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(scatter.standardise(np.ones((4, 2))), np.zeros((4, 2)))
    assert scatter.standardise(np.empty((4, 0))).shape == (4, 0)
