"""The truncated metric of large sparse data."""

import numpy as np
import pytest
from scipy import sparse

from bsdr_models.bm2pca import subspace, within_class_metric
from bsdr_models.bm2pca.within_class_metric import (
    Spectrum,
    evidence_kappa,
    fit_spectrum,
    leading_spectrum,
)

N, D, K = 30, 45, 3
RANK = N - K


def make_samples(seed=0):
    rng = np.random.default_rng([47, seed])
    y = np.arange(N) % K
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.4) * np.linspace(3.0, 0.3, D)
    X[:, :K] += 2.0 * np.eye(K)[y]
    Y = np.where(np.equal.outer(y, np.arange(K)), 1.0, -1.0)
    return sparse.csr_array(X), Y, rng


@pytest.mark.parametrize("scale", [0.3, 1.0, 10.0, np.inf])
def test_with_all_directions_the_metric_is_exact(scale):
    X, Y, rng = make_samples()
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


def test_other_eigenvalues_are_replaced_by_their_mean():
    X, Y, _ = make_samples()
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
    X, Y, rng = make_samples()
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
    X, Y, _ = make_samples()
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
    X, Y, _ = make_samples()
    assert fit_spectrum(X, Y).samples is None
    monkeypatch.setattr(within_class_metric, "MAX_EXACT", 20)
    assert fit_spectrum(X, Y).samples is X
    few = Y.copy()
    few[20:] = 0.0
    for exact in (fit_spectrum(X.toarray(), Y), fit_spectrum(X[:, :20], Y), fit_spectrum(X, few)):
        assert exact.samples is None
