"""Designs that know only X'X agree with those that hold X."""

import numpy as np
import pytest

from bsdr_models.numerics import scatter
from bsdr_models.numerics.design import DenseDesign, SpectralDesign
from bsdr_models.numerics.gram_design import GramDesign, SpectralGramDesign

PAIRS = [(DenseDesign, GramDesign), (SpectralDesign, SpectralGramDesign)]
SHAPES = [(40, 7), (7, 30), (12, 13)]


def make(pair, shape, *, deficient=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape) * np.geomspace(1.0, 0.1, shape[1])
    if deficient:
        X[:, -1] = X[:, 0]
        X[-1] = X[0]
    with_rows, without = pair
    return X, with_rows(X), without(X.T @ X, len(X)), rng


def precision_of(pair, tied, d, r, rng):
    return rng.gamma(1.0, size={"entrywise": (d, r), "columnwise": (1, r), "rowwise": (d, 1)}[tied])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("deficient", [False, True])
@pytest.mark.parametrize(
    ("pair", "tied"),
    [
        (PAIRS[0], "entrywise"),
        (PAIRS[0], "columnwise"),
        (PAIRS[0], "rowwise"),
        (PAIRS[1], "columnwise"),
    ],
)
def test_ridge_and_what_prediction_asks_for(pair, tied, shape, deficient):
    X, rows, sums, rng = make(pair, shape, deficient=deficient)
    r, variance = 3, 0.4
    assert (sums.n_rows, sums.n_features) == (rows.n_rows, rows.n_features)
    np.testing.assert_allclose(sums.mean_eigenvalue, rows.mean_eigenvalue, rtol=1e-12)
    target = rng.standard_normal((len(X), r))
    phi = precision_of(pair, tied, rows.n_features, r, rng)
    cross = sums.coordinates((X.T @ target).T).T
    got, expected = sums.ridge_from(cross, phi, variance), rows.ridge(target, phi, variance)
    assert got.fitted.shape == (0, r)
    # Axes of the row space have no sign: all is compared over the features.
    np.testing.assert_allclose(
        sums.loadings(got.mean), rows.loadings(expected.mean), rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(
        sums.loading_variance(got.variance, phi),
        rows.loading_variance(expected.variance, phi),
        rtol=1e-9,
    )
    np.testing.assert_allclose(got.log_det, expected.log_det, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(got.gram_trace, expected.gram_trace, rtol=1e-9)
    np.testing.assert_allclose(sums.squared_length(got.mean), np.sum(expected.fitted**2, axis=0))

    new = rng.standard_normal((5, shape[1]))
    np.testing.assert_allclose(sums.outside(new), rows.outside(new), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(
        sums.row_variance(sums.coordinates(new), phi, variance, r),
        rows.row_variance(rows.coordinates(new), phi, variance, r),
        rtol=1e-8,
    )


@pytest.mark.parametrize("pair", PAIRS)
def test_draws_have_the_covariance_of_the_ridge(pair):
    _, rows, sums, rng = make(pair, (40, 5))
    phi, size = np.array([[0.5, 2.0]]), 20_000
    draws = sums.draw(phi, 0.4, size=(size, 2), rng=rng)
    shape = (rows.n_features, 2)
    variance = sums.ridge_from(np.zeros(shape), phi, 0.4).variance
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=5.0 * np.sqrt(2.0 / size))
    outside = sums.draw_outside(phi, size=(3, 2), rng=rng)
    assert not np.any(outside)


def test_what_lies_outside_the_row_space_has_its_prior():
    X, _, sums, rng = make(PAIRS[1], (7, 30))
    draws = sums.draw_outside(np.array([[0.25]]), size=(20_000, 1), rng=rng)
    assert np.abs(X @ draws[:100]).max() < 1e-10
    expected = 4.0 * (1.0 - np.sum(sums.basis**2, axis=1))
    np.testing.assert_allclose(draws.var(axis=0)[:, 0], expected, rtol=0.05)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_scores", [1, 2, 5])
def test_discriminant_axes_give_the_discriminant_scores(pair, shape, n_scores):
    X, rows, sums, _ = make(pair, shape)
    Y = scatter.label_indicators(np.arange(len(X)) % 3, 3)
    centred = Y - Y.mean(axis=0)
    cross = sums.coordinates((X.T @ centred).T).T
    axes = scatter.discriminant_axes(sums, cross, n_scores)
    expected = scatter.discriminant_scores(rows, Y, n_scores)
    assert axes.shape[1] == expected.shape[1] == min(n_scores, 3)
    np.testing.assert_allclose(X @ sums.loadings(axes), expected, atol=1e-10)


@pytest.mark.parametrize("pair", PAIRS)
def test_principal_axes_give_the_principal_scores(pair):
    X, rows, sums, _ = make(pair, (40, 5))
    got = X @ sums.loadings(sums.principal_axes(2))
    expected = rows.principal_scores(2)
    np.testing.assert_allclose(got * np.sign(np.sum(got * expected, axis=0)), expected, atol=1e-10)


@pytest.mark.parametrize("pair", PAIRS)
def test_what_needs_rows_says_so(pair):
    _, _, sums, _ = make(pair, (40, 5))
    for ask in (
        lambda: sums.rows,
        lambda: sums.back(np.zeros((40, 1))),
        lambda: sums.ridge(np.zeros((40, 1)), np.ones((1, 1)), 1.0),
        lambda: sums.weighted(np.ones(40)),
    ):
        with pytest.raises(TypeError, match="needs the rows"):
            ask()


@pytest.mark.parametrize("pair", PAIRS)
def test_some_rows_may_be_looked_at(pair):
    X, _, sums, _ = make(pair, (40, 5))
    seen = sums.coordinates(X[:3])
    found = sums.with_rows(seen)
    assert found.rows is seen
    assert (found.n_rows, found.mean_eigenvalue) == (40, sums.mean_eigenvalue)
    with pytest.raises(TypeError, match="needs the rows"):
        _ = sums.rows
