"""Probit classification by features: against the matrices of all samples."""

import numpy as np
import pytest

from bsdr_models.dgplvm import probit_ep
from bsdr_models.dgplvm.gp_classifier import numerical_factor, pivoted_cholesky
from bsdr_models.dgplvm.paper.laplace import laplace_by_features
from bsdr_models.dgplvm.probit_ep import ep_by_features

METHODS = {"laplace": laplace_by_features, "ep": ep_by_features}
both = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def problem(n=40, m=7, scale=1.0, seed=0):
    """Features of rank M, signs with some noise, new features."""
    rng = np.random.default_rng([9, seed])
    F = scale * rng.standard_normal((n, m))
    sign = np.where(F[:, 0] + 0.5 * scale * rng.standard_normal(n) > 0, 1.0, -1.0)
    assert 0 < (sign > 0).sum() < n
    return F, sign, rng.standard_normal((11, m))


@both
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_any_factor_of_the_kernel_matrix_gives_the_same(method, scale):
    """Also one with more columns than its rank."""
    F, sign, _ = problem(scale=scale)
    rng = np.random.default_rng(3)
    rotation = np.linalg.qr(rng.standard_normal((20, 7)))[0].T
    got, expected = method(F @ rotation, sign, tol=1e-10), method(F, sign, tol=1e-10)
    assert got.converged
    assert got.log_evidence == pytest.approx(expected.log_evidence, abs=1e-8)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=1e-6)


def test_blocks_of_samples_are_updated_as_one_by_one(monkeypatch):
    """With the compiled function as plain Python."""
    F, sign, _ = problem()
    got = []
    for size in (1, 16, 64):
        monkeypatch.setattr(probit_ep, "_BLOCK", size)
        sites, state = np.zeros((2, 40)), (np.eye(7), np.zeros(7))
        end = probit_ep.sweep_weights.py_func(F, sign, *sites, *state, np.inf, 0.9, 0.0, 2)
        got.append(np.concatenate([end, *sites, state[0].ravel(), state[1]]))
    np.testing.assert_allclose(got[0], got[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(got[0], got[2], rtol=1e-9, atol=1e-12)


@both
def test_samples_are_worked_through_in_chunks(method, monkeypatch):
    F, sign, _ = problem()
    whole = method(F, sign)
    monkeypatch.setattr("bsdr_models.dgplvm.probit_ep.CHUNK", 7)
    pieces = method(F, sign)
    np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-9)
    np.testing.assert_allclose(pieces.variance, whole.variance, rtol=1e-9)


@both
def test_classes_far_apart_and_samples_that_contradict(method):
    F, sign, _ = problem(n=60, m=3, scale=1e3)
    sign = np.where(F[:, 0] > 0, 1.0, -1.0)
    assert method(F, sign).converged
    sign[::7] *= -1.0
    assert method(F, sign).converged


def test_numerical_factor_stops_at_the_rank():
    F = np.random.default_rng(1).standard_normal((30, 4))
    got, pivots = numerical_factor(F @ F.T)
    assert got.shape == (30, 4)
    np.testing.assert_allclose(got @ got.T, F @ F.T, atol=1e-10)
    np.testing.assert_allclose(got[pivots], np.tril(got[pivots]))
    assert numerical_factor(np.zeros((3, 3)))[0].shape == (3, 0)


def test_pivoted_cholesky_explains_a_matrix():
    """All of it with all samples, the pivots always, the rest never too much."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((50, 2))
    K = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 0.2)
    whole, pivots = pivoted_cholesky(lambda i: K[i], np.diagonal(K), 100)
    assert len(np.unique(pivots)) == len(pivots) <= 50
    np.testing.assert_allclose(whole @ whole.T, K, atol=1e-9)
    some, pivots = pivoted_cholesky(lambda i: K[i], np.diagonal(K), 12)
    assert some.shape == (50, 12)
    np.testing.assert_allclose(some[pivots], np.tril(some[pivots]), atol=1e-14)
    np.testing.assert_allclose((some @ some.T)[pivots], K[pivots], atol=1e-12)
    assert np.linalg.eigvalsh(K - some @ some.T).min() > -1e-12


def test_pivoted_cholesky_stops_at_the_rank():
    F = np.random.default_rng(1).standard_normal((30, 4))
    K = F @ F.T
    got, pivots = pivoted_cholesky(lambda i: K[i], np.diagonal(K), 20)
    assert len(pivots) == 4
    np.testing.assert_allclose(got @ got.T, K, atol=1e-10)
    none, _ = pivoted_cholesky(lambda i: 0 * K[i], np.zeros(30), 20)
    assert none.shape == (30, 0)
