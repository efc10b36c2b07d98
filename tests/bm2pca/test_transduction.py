"""Transductive learning: the collapsed mixture by brute force, caps, clusters."""

import numpy as np
import pytest
from scipy import linalg, optimize, stats
from scipy.special import softmax

from bsdr_models.bm2pca import transduction
from bsdr_models.bm2pca.transduction import (
    effective_sizes,
    evidence_kappa,
    row_coordinates,
    shrunk_scatter,
)
from bsdr_models.numerics.folds import make_folds, random_keys

# N, d, K
SHAPES = {"tall": (14, 3, 3), "wide": (9, 12, 2), "many classes": (20, 6, 5)}

every_shape = pytest.mark.parametrize("size", SHAPES)


def make_samples(size, seed=0):
    n, d, k = SHAPES[size]
    rng = np.random.default_rng([41, seed])
    y = rng.permutation(np.arange(n) % k)
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    return X + 2.0 * rng.standard_normal((k, d))[y], y, rng


def make_clusters(seed=0, n_free=90, spread=0.5):
    """Three classes in a plane, six noise features; two labelled samples of each come first."""
    rng = np.random.default_rng([42, seed])
    y = np.concatenate([np.repeat(np.arange(3), 2), np.arange(n_free) % 3])
    X = np.zeros((len(y), 8))
    X[:, :2] = 2.0 * np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])[y]
    return X + spread * rng.standard_normal(X.shape), y, hide(y, 6)


def hide(y, n_labelled):
    """Signs of the classes; the first samples are labelled."""
    Y = np.where(np.equal.outer(y, np.unique(y)), 1.0, -1.0)
    Y[n_labelled:] = 0.0
    return Y


def span_coordinates(X):
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    kept = s > 1e-10 * s[0]
    return U[:, kept] * s[kept]


def fit_responsibilities(X, Y):
    """With folds of the labelled samples."""
    y = np.where(Y.any(axis=1), Y.argmax(axis=1), -1)
    keys = random_keys(X, y, np.random.default_rng(0))
    return transduction.fit_responsibilities(X, Y, make_folds(keys, y))


@every_shape
def test_class_of_a_sample_given_the_others_is_a_ratio_of_evidences(size):
    """p(X | classes) with offsets and Psi integrated out, for each class of the sample."""
    X, y, _ = make_samples(size)
    Z = span_coordinates(X)
    n, dim, k = len(Z), Z.shape[1], SHAPES[size][2]
    shares = np.eye(k)[y]
    *_, kappa = shrunk_scatter(Z, shares)

    def log_evidence(labels):
        S, value = kappa * np.eye(dim), 0.0
        for c in range(k):
            rows = Z[labels == c]
            S = S + (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0))
            value -= 0.5 * dim * np.log(len(rows))
        return value - 0.5 * (dim + 1 + n - k) * np.linalg.slogdet(S)[1]

    expected = np.array(
        [[log_evidence(np.where(np.arange(n) == row, c, y)) for c in range(k)] for row in range(n)]
    )
    found = transduction.predictive(Z, shares)
    np.testing.assert_allclose(
        found - found[:, :1], expected - expected[:, :1], rtol=1e-8, atol=1e-8
    )


@every_shape
@pytest.mark.parametrize("block", [1, 2**22])
def test_predictive_leaves_the_sample_out(size, block, monkeypatch):
    """Counts, means and scatter of the other samples by a plain loop."""
    X, _, rng = make_samples(size)
    monkeypatch.setattr(transduction, "_BLOCK", block)
    Z = span_coordinates(X)
    n, dim, k = len(Z), Z.shape[1], SHAPES[size][2]
    shares = rng.dirichlet(np.full(k, 0.5), size=n)
    shares[-2:] = 0.0
    *_, kappa = shrunk_scatter(Z, shares)
    expected = np.empty((n, k))
    for row in range(n):
        others = np.delete(shares, row, axis=0)
        rows = np.delete(Z, row, axis=0)
        count = others.sum(axis=0)
        means = others.T @ rows / count[:, None]
        S = kappa * np.eye(dim)
        for c in range(k):
            S += (rows - means[c]).T @ (others[:, c, None] * (rows - means[c]))
        nu = dim + 1 + shares.sum() - k - shares[row].sum()
        for c in range(k):
            away = Z[row] - means[c]
            square = away @ np.linalg.solve(S, away) / (1 + 1 / count[c])
            expected[row, c] = -0.5 * (nu + 1) * np.log(1 + square)
            expected[row, c] -= 0.5 * dim * np.log(1 + 1 / count[c])
    found = transduction.predictive(Z, shares)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


# ---------------------------------------------------------------------------------- the evidence


def log_evidence(kappa, rows):
    """A chain of t densities: each row given those before it, under Psi ~ IW(D + 1, kappa I)."""
    shape, df, log_density = kappa * np.eye(rows.shape[1]), 2.0, 0.0
    for row in rows:
        log_density += stats.multivariate_t(shape=shape / df, df=df).logpdf(row)
        shape, df = shape + np.outer(row, row), df + 1.0
    return log_density


@every_shape
def test_kappa_maximises_the_evidence_of_the_contrasts_within_classes(size):
    X, y, _ = make_samples(size)
    Z = row_coordinates(X)
    contrasts = np.concatenate([linalg.helmert(np.sum(y == c)) @ Z[y == c] for c in np.unique(y)])
    best = optimize.minimize_scalar(
        lambda u: -log_evidence(np.exp(u), contrasts), bounds=(-20.0, 20.0), method="bounded"
    )
    *_, kappa = shrunk_scatter(Z, np.eye(y.max() + 1)[y])
    assert np.log(kappa) == pytest.approx(best.x, abs=1e-4)


@pytest.mark.parametrize(("n", "d", "r"), [(40, 6, 6), (6, 40, 6), (500, 500, 500), (1, 1000, 1)])
def test_kappa_maximises_the_evidence_of_eigenvalues(n, d, r):
    """The log evidence, up to a constant."""
    s = np.random.default_rng(59).gamma(0.3, size=r) + 1e-6

    def value(u):
        log_det = np.log(np.exp(u) + s).sum() + (d - r) * u
        return 0.5 * (d + 1) * d * u - 0.5 * (d + 1 + n) * log_det

    best = optimize.minimize_scalar(
        lambda u: -value(u), bounds=(-25.0, 10.0), method="bounded", options={"xatol": 1e-8}
    )
    assert np.log(evidence_kappa(s, n, d)) == pytest.approx(best.x, abs=1e-3)


def test_kappa_is_finite_for_repeated_samples_and_dependent_features():
    X, y, rng = make_samples("wide")
    # A sample and its copy cost one degree of freedom.
    Z, classes = row_coordinates(np.vstack([X, X[:1]])), np.eye(2)[np.append(y, y[:1])]
    value, _, kappa = shrunk_scatter(Z, classes)
    assert kappa == evidence_kappa(value, 7.0, Z.shape[1]) < np.inf
    # Linear combinations add no coordinate, and constant features have no effect.
    X, y, rng = make_samples("tall")
    more = np.column_stack([X, X @ rng.standard_normal((3, 5)), np.full((len(X), 2), 7.0)])
    assert row_coordinates(more).shape == (len(X), 3)
    # Without variation within classes there is none.
    assert shrunk_scatter(row_coordinates(X), np.eye(len(X)))[2] == np.inf


def test_sizes_of_a_singular_scatter():
    assert effective_sizes(6.0, 20, 6) == (6.0, 20.0)
    assert effective_sizes(6.0, 20, 4) == (4.0, 20.0)
    assert effective_sizes(20.0, 6, 6) == (20.0, 6.0)
    assert effective_sizes(20.0, 6, 4) == (20.0, 4.0)
    assert effective_sizes(6.4, 20, 6) == (6.4, 20.0)


# ---------------------------------------------------------------------------------- the classes


def test_capped_softmax_satisfies_the_kkt_conditions():
    """Feasible column sums; dual variables are zero for inactive caps."""
    rng = np.random.default_rng(0)
    logits = 5.0 * rng.standard_normal((40, 4)) + np.array([6.0, 2.0, 0.0, 0.0])
    shares = np.array([0.26, 0.29, 0.29, 0.16])
    most = np.array([11.0, 12.0, 12.0, 7.0])
    found = transduction.capped_softmax(logits, shares)
    price = np.mean(logits + np.log(shares) - np.log(found), axis=0)
    price -= price.min()
    np.testing.assert_allclose(found, softmax(logits + np.log(shares) - price, axis=1))
    assert np.all(found.sum(axis=0) <= most + 0.01)
    assert np.count_nonzero(price > 0.01) > 1
    np.testing.assert_allclose(price * (most - found.sum(axis=0)), 0.0, atol=0.05)


def test_clusters_are_found_from_two_labelled_samples_each():
    X, y, Y = make_clusters()
    signs, shares = fit_responsibilities(X, Y)
    used = shares.any(axis=1)
    assert used[:6].all()
    assert used.mean() > 0.9
    np.testing.assert_allclose(shares[used].sum(axis=1), 1.0)
    np.testing.assert_array_equal(shares[:6], Y[:6] > 0)
    assert np.all(shares[6:].sum(axis=0) <= 30.01)
    np.testing.assert_array_equal(signs[:6], Y[:6])
    np.testing.assert_array_equal(signs[~used], 0.0)
    free = used & (np.arange(len(y)) >= 6)
    assert np.mean(signs[free].argmax(axis=1) == y[free]) > 0.98
    np.testing.assert_array_equal(signs[free].sum(axis=1), -1.0)


def test_order_of_samples_classes_and_axes_does_not_matter():
    X, _, Y = make_clusters(seed=1)
    rng = np.random.default_rng(3)
    rows, classes = rng.permutation(len(X)), np.array([2, 0, 1])
    turn, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    _, plain = fit_responsibilities(X, Y)
    _, other = fit_responsibilities(7.0 * (X @ turn)[rows] + 3.0, Y[rows][:, classes])
    np.testing.assert_allclose(other, plain[rows][:, classes], atol=2e-3)


def test_a_class_without_a_labelled_sample_has_probability_zero():
    X, y, Y = make_clusters(seed=8)
    kept = np.flatnonzero((y < 2) | (np.arange(len(y)) >= 6))
    _, shares = fit_responsibilities(X[kept], Y[kept])
    np.testing.assert_array_equal(shares[:, 2], 0.0)
    np.testing.assert_allclose(shares.sum(axis=1)[shares.any(axis=1)], 1.0)


def test_without_unlabelled_samples_nothing_changes():
    X, _, Y = make_clusters(seed=7)
    signs, shares = fit_responsibilities(X[:6], Y[:6])
    assert shares is None
    np.testing.assert_array_equal(signs, Y[:6])


@pytest.mark.slow
def test_unlabelled_samples_are_seldom_used_without_signal():
    """A held-out gain larger than its standard error is luck, in about one of six data sets."""
    used = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((80, 8)), hide(np.arange(80) % 3, 12)
        signs, shares = fit_responsibilities(X, Y)
        used += shares is not None
        assert (shares is None) == np.array_equal(signs, Y)
    assert used < 0.3 * 40
