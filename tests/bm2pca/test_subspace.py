"""Max-margin classifiers: objective, maximum by another algorithm, covariances."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from bsdr_models.bm2pca import subspace as ss
from bsdr_models.bm2pca.subspace import Settings, SubspaceState

# No number is its own inverse and no two agree.
SETTINGS = Settings(cost=3.5, latent_variance=0.02, projection_precision=0.6, weight_precision=1.4)

ALL_CLASSES = replace(SETTINGS, multiclass=True)

COST, SPREAD = SETTINGS.cost, np.sqrt(SETTINGS.latent_variance)


def make_problem(seed=0, n=40, r=6, k=3, n_labels=3):
    rng = np.random.default_rng([43, seed])
    y = np.arange(n) % n_labels
    A = rng.standard_normal((n, r)) + 1.5 * rng.standard_normal((n_labels, r))[y]
    A /= np.sqrt(np.mean(np.sum(A**2, axis=1)))
    Y = np.where(np.equal.outer(y, np.arange(n_labels)), 1.0, -1.0)
    Y[rng.random(Y.shape) < 0.1] = 0.0
    Y[:2] = 0.0
    state = SubspaceState(
        projection=rng.standard_normal((r, k)), weights=rng.standard_normal((1 + k, n_labels))
    )
    return A, Y, state, rng


def test_objective_is_the_bound_by_draws_of_the_latent():
    """-C E[u] - C sqrt(E[u**2]) per label, E over draws of z, and the log priors."""
    A, Y, state, rng = make_problem()
    n_draws = 200_000
    expected, error = 0.0, 0.0
    for a, y in zip(A[:6], Y[:6], strict=True):
        z = a @ state.projection + SPREAD * rng.standard_normal((n_draws, 3))
        u = 1.0 - y * (z @ state.weights[1:] + state.weights[0])
        each = -COST * (u.mean(axis=0) + np.sqrt((u**2).mean(axis=0)))
        expected += each[y != 0.0].sum()
        error += COST**2 * (u.std(axis=0) ** 2).sum() * 4.0 / n_draws
    expected -= 0.3 * np.sum(state.projection**2) + 0.7 * np.sum(state.weights**2)
    found = ss.objective(state, A[:6], Y[:6], SETTINGS)[0]
    assert abs(found - expected) < 4.0 * np.sqrt(error)
    assert np.sqrt(error) < 0.1


@pytest.mark.parametrize("settings", [SETTINGS, Settings(), ALL_CLASSES])
def test_gradient_is_that_of_finite_differences(settings):
    A, Y, state, _ = make_problem()
    _, gradient = ss.objective(state, A, Y, settings)
    expected = optimize.approx_fprime(
        state.packed, lambda point: ss.objective(state.unpack(point), A, Y, settings)[0], 1e-7
    )
    np.testing.assert_allclose(gradient.packed, expected, rtol=1e-4, atol=2e-4)


def test_gradient_is_finite_without_weights_and_on_the_margin():
    A, Y, state, _ = make_problem()
    state = replace(state, weights=np.zeros_like(state.weights))
    state.weights[0] = 1.0
    value, gradient = ss.objective(state, A, np.ones_like(Y), SETTINGS)
    assert np.isfinite(value)
    assert np.isfinite(gradient.packed).all()


@pytest.mark.parametrize("settings", [SETTINGS, ALL_CLASSES])
def test_fit_is_stationary(settings):
    A, Y, _, _ = make_problem()
    fit = ss.fit_subspace(A, Y, n_components=3, settings=settings, tol=1e-13)
    value, gradient = ss.objective(fit.posterior, A, Y, settings)
    assert np.abs(gradient.packed).max() < 1e-3
    assert fit.trace[-1] == pytest.approx(value)
    start = ss.initial_state(A, Y, 3, settings)
    assert fit.trace[0] == ss.objective(start, A, Y, settings)[0]
    assert np.diff(fit.trace).min() >= -1e-9


def test_initial_projection_spans_the_class_means():
    A, _, _, _ = make_problem()
    y = np.arange(40) % 3
    Y = np.where(np.equal.outer(y, np.arange(3)), 1.0, -1.0)
    start = ss.initial_state(A, Y, 2, SETTINGS)
    means = np.array([A[y == c].mean(axis=0) for c in range(3)])
    centred = means - means.mean(axis=0)
    Q = start.projection
    np.testing.assert_allclose(Q @ np.linalg.lstsq(Q, centred.T)[0], centred.T, atol=1e-10)
    np.testing.assert_allclose(np.mean((A @ Q) ** 2, axis=0), 1.0, rtol=1e-10)
    Z = np.column_stack([np.ones(40), A @ Q])
    residual = Z.T @ (Y - Z @ start.weights) - SETTINGS.weight_precision * start.weights
    np.testing.assert_allclose(residual, 0.0, atol=1e-9)


def test_initial_weights_are_regressions_on_the_known_labels():
    A, Y, _, _ = make_problem()
    start = ss.initial_state(A, Y, 2, SETTINGS)
    for weights, y in zip(start.weights.T, Y.T, strict=True):
        Z = np.column_stack([np.ones(40), A @ start.projection])[y != 0.0]
        residual = Z.T @ (y[y != 0.0] - Z @ weights) - SETTINGS.weight_precision * weights
        np.testing.assert_allclose(residual, 0.0, atol=1e-9)


def test_weight_covariance_is_the_curvature_of_the_augmented_joint():
    """E over z and 1/lambda of the log joint in h_c is a quadratic; its Hessian by draws of z."""
    A, Y, state, rng = make_problem()
    S = ss.weight_covariance(state, A, Y, SETTINGS)
    z = A @ state.projection + SPREAD * rng.standard_normal((20_000, len(A), 3))
    for c in range(3):
        labelled = Y[:, c] != 0.0
        rows = np.concatenate([np.ones((20_000, len(A), 1)), z], axis=2)
        u = 1.0 - Y[:, c] * (rows @ state.weights[:, c])
        w = labelled / (COST * np.sqrt(np.mean(u**2, axis=0)))
        expected = COST**2 * np.einsum("n,snp,snq->pq", w, rows, rows, optimize=True) / 20_000
        expected += 1.4 * np.eye(4)
        np.testing.assert_allclose(np.linalg.inv(S[c]), expected, rtol=0.01, atol=0.5)
