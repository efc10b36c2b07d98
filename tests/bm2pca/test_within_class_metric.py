"""The within-class metric: evidence, map, and unlabelled samples."""

import numpy as np
import pytest
from scipy import linalg, optimize, sparse, stats

from bsdr_models.bm2pca import subspace, within_class_metric
from bsdr_models.bm2pca.within_class_metric import (
    Spectrum,
    effective_sizes,
    evidence_kappa,
    fit_spectrum,
    leading_spectrum,
)

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
    """Up to a constant it is that of the module's docstring; counts are repeated eigenvalues."""
    s = np.random.default_rng(59).gamma(0.3, size=r) + 1e-6

    def value(u):
        log_det = np.log(np.exp(u) + s).sum() + (d - r) * u
        return 0.5 * (d + 1) * d * u - 0.5 * (d + 1 + n) * log_det

    best = optimize.minimize_scalar(
        lambda u: -value(u), bounds=(-25.0, 10.0), method="bounded", options={"xatol": 1e-8}
    )
    assert np.log(evidence_kappa(s, np.ones(r), n, d)) == pytest.approx(best.x, abs=1e-3)
    if r > 1:
        joined, counts = np.append(s[1], s[1:]), np.append([0.0, 2.0], np.ones(r - 2))
        s[0] = s[1]
        expected = evidence_kappa(s, np.ones(r), n, d)
        assert evidence_kappa(joined, counts, n, d) == pytest.approx(expected, rel=1e-10)


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
    expected = evidence_kappa(repeated.within, np.ones(len(repeated.within)), 6.0, 14)
    assert repeated.kappa == expected < np.inf
    # Linear combinations add no feature, and constant features have no effect.
    X, y, rng = make_samples("tall")
    more = np.column_stack([X, X @ rng.standard_normal((4, 5))])
    dependent = Spectrum.fit(more, signs(y))
    s = np.sort(dependent.within)[-4:]
    assert dependent.kappa == pytest.approx(evidence_kappa(s, np.ones(4), 27.0, 4))
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
    expected = evidence_kappa(spectrum.within, np.ones(4), labelled.sum() - 3, 4)
    assert spectrum.kappa == expected


def test_sizes_of_a_singular_scatter():
    assert effective_sizes(6.0, 20, 6) == (6.0, 20.0)
    assert effective_sizes(6.0, 20, 4) == (4.0, 20.0)
    assert effective_sizes(20.0, 6, 6) == (20.0, 6.0)
    assert effective_sizes(20.0, 6, 4) == (20.0, 4.0)
    assert effective_sizes(6.4, 20, 6) == (6.4, 20.0)


# --------------------------------------------------------------------- large sparse samples

N, D, K = 30, 45, 3
RANK = N - K


def sparse_samples():
    rng = np.random.default_rng([47, 0])
    y = np.arange(N) % K
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.4) * np.linspace(3.0, 0.3, D)
    X[:, :K] += 2.0 * np.eye(K)[y]
    Y = np.where(np.equal.outer(y, np.arange(K)), 1.0, -1.0)
    return sparse.csr_array(X), Y, rng


@pytest.mark.parametrize("scale", [0.3, 1.0, 10.0, np.inf])
def test_with_all_directions_the_metric_is_exact(scale):
    X, Y, rng = sparse_samples()
    spectrum, leading = Spectrum.fit(X, Y), leading_spectrum(X, Y, n_directions=100)
    exact, found = spectrum.metric(scale), leading.metric(scale)
    assert len(found.shrunk) == RANK
    assert found.kappa == pytest.approx(exact.kappa, rel=1e-9)
    eye = np.eye(D)
    np.testing.assert_allclose((found.A @ eye) @ (found.A @ eye).T, exact.A @ exact.A.T, atol=1e-9)
    new = sparse.csr_array(rng.standard_normal((4, D)))
    np.testing.assert_allclose(
        (found.transform(new) @ eye) @ (found.A @ eye).T,
        exact.transform(new) @ exact.A.T,
        atol=1e-9,
    )


def test_features_that_are_always_zero_add_no_rank():
    X, Y, _ = sparse_samples()
    X = sparse.csr_array(sparse.hstack([X[:, :8], sparse.csr_array((N, 4))]))
    assert leading_spectrum(X, Y).kappa == pytest.approx(Spectrum.fit(X, Y).kappa)


def test_other_eigenvalues_are_replaced_by_their_mean():
    X, Y, _ = sparse_samples()
    found = leading_spectrum(X, Y, n_directions=6)
    dense, y = X.toarray(), Y.argmax(axis=1)
    scatter = sum((m := dense[y == c] - dense[y == c].mean(axis=0)).T @ m for c in range(K))
    s, E = np.linalg.eigh(scatter)
    np.testing.assert_allclose(np.sort(found.within), s[-6:], rtol=1e-9)
    assert found.rest == pytest.approx(s[:-6].sum() / (RANK - 6), rel=1e-9)
    # The evidence is that of a scatter with these eigenvalues.
    s = np.concatenate([np.full(D - 6, found.rest), s[-6:]])
    kappa = 1.7 * evidence_kappa(s[D - RANK :], np.ones(RANK), N - K, D)
    metric = found.metric(1.7)
    assert metric.kappa == pytest.approx(kappa)
    P = E @ np.diag(np.sqrt((kappa + found.rest) / (kappa + s))) @ E.T
    A = (dense - dense.mean(axis=0)) @ P
    A /= np.sqrt(np.mean(np.sum(A**2, axis=1)))
    np.testing.assert_allclose(metric.A @ np.eye(D), A, atol=1e-9)


def test_metric_samples_are_an_operator_with_a_transpose():
    X, Y, rng = sparse_samples()
    metric = leading_spectrum(X, Y, n_directions=6).metric(1.0)
    A = metric.A @ np.eye(D)
    Q, G = rng.standard_normal((D, 2)), rng.standard_normal((N, 2))
    assert metric.A.shape == (N, D)
    np.testing.assert_allclose(metric.A @ Q, A @ Q, atol=1e-10)
    np.testing.assert_allclose(metric.A.T @ G, A.T @ G, atol=1e-10)
    np.testing.assert_allclose((X.toarray() - metric.mean) @ metric.back(Q), A @ Q, atol=1e-10)
    assert not metric.outside(X).any()


@pytest.mark.parametrize("n_components", [2, None])
def test_classifiers_accept_the_operator(n_components):
    X, Y, _ = sparse_samples()
    metric = leading_spectrum(X, Y, n_directions=6).metric(1.0)
    one = subspace.fit_subspace(
        metric.A, Y, n_components=n_components, settings=subspace.Settings()
    )
    other = subspace.fit_subspace(
        metric.A @ np.eye(D), Y, n_components=n_components, settings=subspace.Settings()
    )
    np.testing.assert_allclose(
        one.state.scores(metric.A), other.state.scores(metric.A @ np.eye(D)), atol=1e-3
    )


def test_only_large_sparse_data_are_truncated(monkeypatch):
    X, Y, _ = sparse_samples()
    assert fit_spectrum(X, Y).samples is None
    monkeypatch.setattr(within_class_metric, "MAX_EXACT", 20)
    assert fit_spectrum(X, Y).samples is X
    few = Y.copy()
    few[20:] = 0.0
    for exact in (fit_spectrum(X.toarray(), Y), fit_spectrum(X[:, :20], Y), fit_spectrum(X, few)):
        assert exact.samples is None
