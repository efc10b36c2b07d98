"""Probit classification by features: against the matrices of all samples."""

import numpy as np
import pytest

from bsdr_models.dgplvm.gp_classifier.probit_ep import expectation_propagation
from bsdr_models.dgplvm.gp_classifier.probit_gp_low_rank import (
    ep_by_features,
    laplace_by_features,
    pivoted_cholesky,
)
from bsdr_models.dgplvm.gp_classifier.probit_laplace import laplace

PAIRS = {"laplace": (laplace_by_features, laplace), "ep": (ep_by_features, expectation_propagation)}
both = pytest.mark.parametrize(("by_features", "exact"), PAIRS.values(), ids=PAIRS)


def problem(n=40, m=7, scale=1.0, seed=0):
    """Features of rank M, signs with some noise."""
    rng = np.random.default_rng([9, seed])
    F = scale * rng.standard_normal((n, m))
    sign = np.where(F[:, 0] + 0.5 * scale * rng.standard_normal(n) > 0, 1.0, -1.0)
    assert 0 < (sign > 0).sum() < n
    return F, sign, rng.standard_normal((11, m))


@both
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_agrees_with_the_kernel_matrix_of_the_samples(by_features, exact, scale):
    F, sign, new = problem(scale=scale)
    got = by_features(F, sign, tol=1e-10)
    expected = exact(F @ F.T, sign)
    assert got.converged
    assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    posterior = expected.posterior
    options = {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(got.mean, posterior.mean, **options)
    np.testing.assert_allclose(got.variance, posterior.variance, **options)
    np.testing.assert_allclose(got.cavity[0], posterior.cavity_mean, **options)
    np.testing.assert_allclose(got.cavity[1], posterior.cavity_variance, **options)
    mean, variance = got.predict(new)
    expected_mean, expected_variance = expected.predict(new @ F.T, (new**2).sum(axis=1))
    np.testing.assert_allclose(mean, expected_mean, **options)
    np.testing.assert_allclose(variance, expected_variance, **options)


@both
def test_samples_are_worked_through_in_chunks(by_features, exact, monkeypatch):
    F, sign, _ = problem()
    whole = by_features(F, sign)
    monkeypatch.setattr("bsdr_models.dgplvm.gp_classifier.probit_gp_low_rank.CHUNK", 7)
    pieces = by_features(F, sign)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-9)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-9)


@both
def test_classes_far_apart_and_samples_that_contradict(by_features, exact):
    F, sign, _ = problem(n=60, m=3, scale=1e3)
    sign = np.where(F[:, 0] > 0, 1.0, -1.0)
    assert by_features(F, sign).converged
    sign[::7] *= -1.0
    got = by_features(F, sign)
    assert got.converged
    assert got.log_evidence == pytest.approx(exact(F @ F.T, sign).log_evidence, abs=1e-4)


def test_says_when_it_has_not_converged():
    F, sign, _ = problem()
    assert not laplace_by_features(F, sign, max_iter=1).converged
    assert not ep_by_features(F, sign, max_sweeps=1).converged


def test_pivoted_cholesky_explains_a_matrix():
    """All of it with all samples, the pivots always, the rest never too much."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((50, 2))
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 0.2)
    whole, pivots = pivoted_cholesky(lambda i: K[i], np.diagonal(K), 100, np.random.default_rng(0))
    assert len(np.unique(pivots)) == len(pivots) <= 50
    np.testing.assert_allclose(whole @ whole.T, K, atol=1e-9)
    some, pivots = pivoted_cholesky(lambda i: K[i], np.diagonal(K), 12, np.random.default_rng(0))
    assert some.shape == (50, 12)
    np.testing.assert_allclose(some[pivots], np.tril(some[pivots]), atol=1e-14)
    np.testing.assert_allclose((some @ some.T)[pivots], K[pivots], atol=1e-12)
    assert np.linalg.eigvalsh(K - some @ some.T).min() > -1e-12


def test_pivoted_cholesky_stops_at_the_rank():
    F = np.random.default_rng(1).standard_normal((30, 4))
    K = F @ F.T
    got, pivots = pivoted_cholesky(lambda i: K[i], np.diagonal(K), 20, np.random.default_rng(0))
    assert len(pivots) == 4
    np.testing.assert_allclose(got @ got.T, K, atol=1e-10)
    none, _ = pivoted_cholesky(lambda i: 0 * K[i], np.zeros(30), 20, np.random.default_rng(0))
    assert none.shape == (30, 0)
