"""Max-margin classifiers: objective, maximum by another algorithm, covariances."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize

from bsdr_models.bm2pca import subspace as ss
from bsdr_models.bm2pca.subspace import Settings, SubspaceState, multiclass_hinge, smooth_hinge

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


# ------------------------------------------------------------------------------- the smoothed hinge


def test_sums_are_those_of_the_labelled_entries():
    rng = np.random.default_rng(0)
    scores, square = rng.normal(size=(30, 4)), rng.random(4)
    Y = rng.choice([-1.0, 0.0, 1.0], size=(30, 4))
    gap = 1.0 - Y * scores
    width = np.sqrt(gap**2 + square)

    got = smooth_hinge(scores, Y, square)
    assert_allclose(got.total, (gap + width)[Y != 0.0].sum(), rtol=1e-13)
    assert_allclose(got.slope, Y * (1.0 + gap / width), rtol=1e-13)
    assert_allclose(got.variance_slope, np.sum((Y != 0.0) / width, axis=0), rtol=1e-13)


@pytest.mark.parametrize("loss", [smooth_hinge, multiclass_hinge])
def test_slopes_are_the_derivatives(loss):
    rng = np.random.default_rng(1)
    scores, square = 2.0 * rng.normal(size=(5, 3)), np.array([0.3, 1e-4, 0.7])
    Y = np.where(np.arange(3) == np.array([0, 1, 2, 1, 0])[:, None], 1.0, -1.0)
    Y[1, 2], Y[4] = 0.0, 0.0
    got, step = loss(scores, Y, square), 1e-6
    for entry in np.ndindex(scores.shape):
        shift = np.zeros(scores.shape)
        shift[entry] = step
        up, down = (loss(scores + s * shift, Y, square).total for s in (1.0, -1.0))
        assert_allclose((down - up) / (2.0 * step), got.slope[entry], atol=1e-6)
    for label, shift in enumerate(1e-2 * step * np.eye(3)):
        up, down = (loss(scores, Y, square + s * shift).total for s in (1.0, -1.0))
        assert_allclose((up - down) / (1e-2 * step), got.variance_slope[label], atol=1e-4)


def test_hinge_of_all_classes_bounds_its_mean_over_scores_and_the_hinge():
    rng = np.random.default_rng(2)
    scores, square = np.array([[1.0, 0.5, -2.0], [0.3, -1.0, 0.0]]), np.array([0.5, 0.2, 1.0])
    Y = np.array([[1.0, -1.0, -1.0], [-1.0, -1.0, 1.0]])
    draws = scores + np.sqrt(square) * rng.standard_normal((100_000, 2, 3))
    own = np.take_along_axis(draws, np.array([[[0], [2]]]), axis=2)
    inside = draws - own + (Y < 0.0)
    mean = np.log(np.exp(inside).sum(axis=2)).sum(axis=1).mean()
    found = multiclass_hinge(scores, Y, square).total
    assert inside.max(axis=2).sum(axis=1).mean() < mean < found < mean + 1.0
    assert multiclass_hinge(scores, 0.0 * Y, square).total == 0.0


def test_a_sample_on_its_margin_is_no_exception():
    Y = np.array([[1.0, -1.0], [-1.0, 1.0]])
    got = smooth_hinge(Y, Y, np.zeros(2))
    assert np.isfinite(got.slope).all()
    assert_allclose(got.total, 0.0, atol=1e-140)
