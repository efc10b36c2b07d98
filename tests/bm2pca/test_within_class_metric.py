"""The within-class metric: evidence, map, and unlabelled samples."""

import numpy as np
import pytest
from bsdr_models.bm2pca.within_class_metric import (
    SparseMetric,
    Spectrum,
    effective_sizes,
    evidence_kappa,
    is_large,
)
from scipy import linalg, optimize, sparse, stats

from bsdr_models import BM2PCAClassifier, HingeLoss
from bsdr_models.bm2pca import subspace, within_class_metric

# N, d, K
SHAPES = {"tall": (30, 4, 3), "wide": (9, 14, 3), "single": (8, 1, 2), "square": (7, 7, 2)}
SCALES = (1.0, 10.0, np.inf)

every_shape = pytest.mark.parametrize("size", SHAPES)


def make_samples(size, seed=0):
    n, d, k = SHAPES[size]
    rng = np.random.default_rng([29, seed])
    y = rng.permutation(np.arange(n) % k)
    X = 3.0 + rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    X += 2.0 * rng.standard_normal((k, d))[y]
    return X, y, rng


def signs(y):
    return np.where(np.equal.outer(y, np.unique(y)), 1.0, -1.0)


def class_scatter(X, y):
    centred = np.concatenate([X[y == c] - X[y == c].mean(axis=0) for c in np.unique(y)])
    return centred.T @ centred


def products(rows, others, S, kappa, X):
    """(x - t)' P'P (x* - t) with g, in all d features, by inversion."""
    P = np.linalg.inv(np.eye(len(S)) + S / kappa)
    centred = X - X.mean(axis=0)
    g = 1.0 / np.mean(np.einsum("nd,de,ne->n", centred, P, centred))
    return g * (rows - X.mean(axis=0)) @ P @ (others - X.mean(axis=0)).T


# ---------------------------------------------------------------------------------- the evidence


def log_evidence(kappa, rows):
    """A chain of t densities: each row given those before it, under Psi ~ IW(d + 1, kappa I)."""
    shape, df, log_density = kappa * np.eye(rows.shape[1]), 2.0, 0.0
    for row in rows:
        log_density += stats.multivariate_t(shape=shape / df, df=df).logpdf(row)
        shape, df = shape + np.outer(row, row), df + 1.0
    return log_density


@every_shape
def test_kappa_maximises_the_evidence_of_the_contrasts_within_classes(size):
    X, y, _ = make_samples(size)
    contrasts = np.concatenate([linalg.helmert(np.sum(y == c)) @ X[y == c] for c in np.unique(y)])
    best = optimize.minimize_scalar(
        lambda u: -log_evidence(np.exp(u), contrasts), bounds=(-20.0, 20.0), method="bounded"
    )
    assert np.log(Spectrum.fit(X, signs(y)).kappa) == pytest.approx(best.x, abs=1e-4)


@pytest.mark.parametrize(("n", "d", "r"), [(40, 6, 6), (6, 40, 6), (500, 500, 500), (1, 1000, 1)])
def test_kappa_maximises_the_evidence_of_eigenvalues(n, d, r):
    """Up to a constant it is that of the module's docstring."""
    s = np.random.default_rng(59).gamma(0.3, size=r) + 1e-6

    def value(u):
        log_det = np.log(np.exp(u) + s).sum() + (d - r) * u
        return 0.5 * (d + 1) * d * u - 0.5 * (d + 1 + n) * log_det

    best = optimize.minimize_scalar(
        lambda u: -value(u), bounds=(-25.0, 10.0), method="bounded", options={"xatol": 1e-8}
    )
    assert np.log(evidence_kappa(s, n, d)) == pytest.approx(best.x, abs=1e-3)


# --------------------------------------------------------------------------------------- the map


@every_shape
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_map_is_that_of_all_features(size, scale, as_sparse):
    X, y, rng = make_samples(size)
    new = rng.standard_normal((5, X.shape[1])) + 3.0
    wrap = sparse.csr_array if as_sparse else np.asarray
    metric = Spectrum.fit(wrap(X), signs(y)).metric(scale)
    S = class_scatter(X, y)
    expected = products(X, X, S, metric.kappa, X)
    np.testing.assert_allclose(metric.A @ metric.A.T, expected, atol=1e-8)
    np.testing.assert_allclose(metric.transform(wrap(X)), metric.A, atol=1e-8)
    mapped = metric.transform(wrap(new))
    expected = products(new, X, S, metric.kappa, X)
    np.testing.assert_allclose(mapped @ metric.A.T, expected, atol=1e-8)
    expected = np.diag(products(new, new, S, metric.kappa, X))
    length = np.sum(mapped**2, axis=1) + metric.outside(wrap(new))
    np.testing.assert_allclose(length, expected, atol=1e-8)
    np.testing.assert_allclose(metric.outside(wrap(X)), 0.0, atol=1e-8)
    assert np.mean(np.sum(metric.A**2, axis=1)) == pytest.approx(1.0, rel=1e-12)
    Q = rng.standard_normal((metric.A.shape[1], 2))
    np.testing.assert_allclose(
        (new - X.mean(axis=0)) @ metric.back(Q), metric.transform(wrap(new)) @ Q, atol=1e-8
    )


def test_a_million_sparse_features_are_never_made_dense():
    rng = np.random.default_rng(3)
    y = np.arange(40) % 4
    X = sparse.random_array((40, 1_000_000), density=3e-5, rng=rng, format="csr")
    metric = Spectrum.fit(X, signs(y)).metric(1.0)
    np.testing.assert_allclose(metric.transform(X), metric.A, atol=1e-9)
    assert metric.A.shape == (40, 39)


# ------------------------------------------------------------------------- labels


@every_shape
@pytest.mark.parametrize("labels", ["signs", "one column", "one-hot", "shares"])
def test_offsets_are_class_means(size, labels):
    X, y, rng = make_samples(size)
    n, d, k = SHAPES[size]
    shares = np.eye(k)[y]
    if labels == "shares":
        shares = rng.dirichlet(np.ones(k), size=n)
        shares[-2:] = 0.0
    expected = np.zeros((d, d))
    for p in shares.T:
        centred = X - p @ X / p.sum()
        expected += (p * centred.T) @ centred
    Y = signs(y)[:, : 1 if labels == "one column" and k == 2 else k]
    given = shares if labels in ("one-hot", "shares") else None
    spectrum = Spectrum.fit(X, Y, responsibilities=given)
    found, expected = np.sort(spectrum.within)[::-1], linalg.eigvalsh(expected)[::-1]
    np.testing.assert_allclose(found[:d], expected[: len(found)], atol=1e-8)
    assert spectrum.rows.shape[0] == n
    part = shares.any(axis=1)
    np.testing.assert_allclose(spectrum.axes.mean, X[part].mean(axis=0), rtol=1e-12)


@every_shape
@pytest.mark.parametrize("as_sparse", [False, True])
def test_unlabelled_samples_are_new_samples(size, as_sparse):
    X, y, rng = make_samples(size)
    wrap = sparse.csr_array if as_sparse else np.asarray
    more = np.vstack([X, rng.standard_normal((3, X.shape[1]))])
    Y = np.vstack([signs(y), np.zeros((3, SHAPES[size][2]))])
    alone, beside = Spectrum.fit(wrap(X), signs(y)), Spectrum.fit(wrap(more), Y)
    assert beside.kappa == alone.kappa
    one, other = alone.metric(1.0), beside.metric(1.0)
    np.testing.assert_allclose(other.A, one.transform(wrap(more)), atol=1e-12)


# ------------------------------------------------------------------------------ degenerate data


def test_one_sample_per_class_leaves_the_euclidean_metric_only():
    X, _, _ = make_samples("wide")
    spectrum = Spectrum.fit(X, signs(np.arange(9)))
    assert spectrum.kappa == np.inf
    metric = spectrum.metric(1.0)
    centred = X - X.mean(axis=0)
    expected = centred @ centred.T / np.mean(np.sum(centred**2, axis=1))
    np.testing.assert_allclose(metric.A @ metric.A.T, expected, atol=1e-10)


def test_kappa_is_finite_for_repeated_samples_and_dependent_features():
    X, y, rng = make_samples("wide")
    # A sample and its copy cost one degree of freedom.
    repeated = Spectrum.fit(np.vstack([X, X[:1]]), signs(np.append(y, y[:1])))
    expected = evidence_kappa(repeated.within, 6.0, 14)
    assert repeated.kappa == expected < np.inf
    # Linear combinations add no feature, and constant features have no effect.
    X, y, rng = make_samples("tall")
    more = np.column_stack([X, X @ rng.standard_normal((4, 5))])
    dependent = Spectrum.fit(more, signs(y))
    s = np.sort(dependent.within)[-4:]
    assert dependent.kappa == pytest.approx(evidence_kappa(s, 27.0, 4))
    constant = Spectrum.fit(np.column_stack([X, np.full((30, 2), 7.0)]), signs(y))
    assert constant.kappa == pytest.approx(Spectrum.fit(X, signs(y)).kappa)


def test_offsets_of_several_labels_are_least_squares():
    X, _, rng = make_samples("tall")
    Y = rng.choice([-1.0, 0.0, 1.0], size=(30, 2))
    labelled = (Y != 0.0).any(axis=1)
    assert 0 < (~labelled).sum() < 30
    M = np.column_stack([np.ones(30), Y])[labelled]
    residual = X[labelled] - M @ np.linalg.lstsq(M, X[labelled])[0]
    spectrum = Spectrum.fit(X, Y)
    np.testing.assert_allclose(spectrum.within, linalg.eigvalsh(residual.T @ residual), rtol=1e-10)
    expected = evidence_kappa(spectrum.within, labelled.sum() - 3, 4)
    assert spectrum.kappa == expected


def test_sizes_of_a_singular_scatter():
    assert effective_sizes(6.0, 20, 6) == (6.0, 20.0)
    assert effective_sizes(6.0, 20, 4) == (4.0, 20.0)
    assert effective_sizes(20.0, 6, 6) == (20.0, 6.0)
    assert effective_sizes(20.0, 6, 4) == (20.0, 4.0)
    assert effective_sizes(6.4, 20, 6) == (6.4, 20.0)


# --------------------------------------------------------------------- large sparse samples

N, D, K = 30, 45, 3


def sparse_samples():
    rng = np.random.default_rng([47, 0])
    y = np.arange(N) % K
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.4) * np.linspace(3.0, 0.3, D)
    X[:, :K] += 2.0 * np.eye(K)[y]
    Y = np.where(np.equal.outer(y, np.arange(K)), 1.0, -1.0)
    Y[-4:] = 0.0
    return sparse.csr_array(X), Y, rng


def test_the_metric_of_large_sparse_samples_is_the_euclidean_one():
    X, Y, rng = sparse_samples()
    exact, metric = Spectrum.fit(X, Y).metric(np.inf), SparseMetric.fit(X, Y).metric(10.0)
    new, eye = sparse.csr_array(rng.standard_normal((4, D))), np.eye(D)
    A = metric.A @ eye
    np.testing.assert_allclose(A @ A[:-4].T, exact.A @ exact.A[:-4].T, atol=1e-9)
    found = (metric.transform(new) @ eye) @ A[:-4].T
    np.testing.assert_allclose(found, exact.transform(new) @ exact.A[:-4].T, atol=1e-9)
    Q, G = rng.standard_normal((D, 2)), rng.standard_normal((N, 2))
    assert metric.A.shape == (N, D)
    np.testing.assert_allclose(metric.A.T @ G, A.T @ G, atol=1e-10)
    np.testing.assert_allclose((X.toarray() - metric.mean) @ metric.back(Q), A @ Q, atol=1e-10)
    assert not metric.outside(X).any()


def test_classifiers_accept_the_operator():
    X, Y, _ = sparse_samples()
    A = SparseMetric.fit(X, Y).A
    one, other = (
        subspace.fit_subspace(each, Y, n_components=2, settings=subspace.Settings()).state
        for each in (A, A @ np.eye(D))
    )
    np.testing.assert_allclose(one.scores(A), other.scores(A @ np.eye(D)), atol=1e-3)


def test_only_large_sparse_samples_have_it(monkeypatch):
    X, Y, _ = sparse_samples()
    assert not is_large(X, Y)
    monkeypatch.setattr(within_class_metric, "MAX_EXACT", 20)
    assert is_large(X, Y)
    few = Y.copy()
    few[20:] = 0.0
    assert not any((is_large(X.toarray(), Y), is_large(X[:, :20], Y), is_large(X, few)))
    monkeypatch.setattr(subspace, "MAX_AXES", 20)
    model = BM2PCAClassifier(metric_scale=10.0, loss=HingeLoss(C=1.0, calibrate=False))
    assert model.fit(X[:-4], Y[:-4].argmax(axis=1)).metric_scale_ == np.inf
