"""The variational bound against SciPy's density and the exact one."""

import tracemalloc

import numpy as np
import pytest
from scipy.linalg import helmert
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal, ortho_group

from bsdr_models.dgplvm import sparse_likelihood
from bsdr_models.dgplvm.likelihood import FeatureGram, evaluate
from bsdr_models.dgplvm.sparse_likelihood import JITTER, evaluate_sparse, initial_inducing

# (N, D, R, M): wide, tall, as many inducing points as samples, the smallest.
SHAPES = [(9, 30, 2, 4), (25, 4, 2, 7), (12, 12, 2, 12), (2, 3, 1, 1), (7, 1, 3, 2)]
LOG_KERNEL = np.log([0.4, 0.9, 0.5])


def problem(shape, seed=101):
    n, d, r, m = shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ np.diag(rng.uniform(0.3, 2.0, d))
    latent, inducing = rng.standard_normal((n, r)), 1.5 * rng.standard_normal((m, r))
    assert inducing.shape == (m, r)
    return X - X.mean(axis=0), latent, inducing


def differences(f, x):
    """Gradient by Richardson extrapolation, with an error of order step**6."""

    def rule(step):
        gradient = np.empty(x.size)
        for k in range(x.size):
            e = np.zeros(x.size)
            e[k] = step
            e = e.reshape(x.shape)
            gradient[k] = 8.0 * (f(x + e) - f(x - e)) - (f(x + 2.0 * e) - f(x - 2.0 * e))
        return gradient.reshape(x.shape) / (12.0 * step)

    return (16.0 * rule(4e-3) - rule(8e-3)) / 15.0


@pytest.mark.parametrize("shape", SHAPES)
def test_value_is_a_density_and_a_trace(shape):
    X, latent, inducing = problem(shape)
    n, d, _, m = shape
    signal, lengthscale, noise = np.exp(LOG_KERNEL)
    v = np.var(X, axis=0, ddof=1).mean()

    def kernel(A, B):
        return v * signal * np.exp(-0.5 * (cdist(A, B) / lengthscale) ** 2)

    K_uu = kernel(inducing, inducing) + JITTER * v * signal * np.eye(m)
    K_fu = kernel(latent, inducing)
    Q = K_fu @ np.linalg.solve(K_uu, K_fu.T)
    C = helmert(n)
    cov = C @ (Q + v * noise * np.eye(n)) @ C.T
    expected = -np.sum(multivariate_normal(np.zeros(n - 1), cov).logpdf((C @ X).T))
    expected += 0.5 * d / (v * noise) * np.trace(kernel(latent, latent) - Q)
    got = evaluate_sparse(latent, LOG_KERNEL, inducing, FeatureGram.of(X)).value
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_differences(shape):
    X, latent, inducing = problem(shape)
    gram = FeatureGram.of(X)
    got = evaluate_sparse(latent, LOG_KERNEL, inducing, gram)
    for gradient, f, x in (
        (got.latent, lambda x: evaluate_sparse(x, LOG_KERNEL, inducing, gram).value, latent),
        (got.log_kernel, lambda t: evaluate_sparse(latent, t, inducing, gram).value, LOG_KERNEL),
        (got.inducing, lambda z: evaluate_sparse(latent, LOG_KERNEL, z, gram).value, inducing),
    ):
        expected = differences(f, x)
        limit = 1e-8 * np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected, rtol=0.0, atol=limit)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", SHAPES)
def test_value_is_an_upper_bound(shape, seed):
    X, latent, inducing = problem(shape, seed)
    gram = FeatureGram.of(X)
    log_kernel = LOG_KERNEL + np.random.default_rng(seed).standard_normal(3)
    exact = evaluate(latent, log_kernel, gram).value
    assert evaluate_sparse(latent, log_kernel, inducing, gram).value >= exact


@pytest.mark.parametrize("shape", SHAPES)
def test_bound_is_tight_with_all_inducing_points(shape):
    X, latent, _ = problem(shape)
    gram = FeatureGram.of(X)
    exact = evaluate(latent, LOG_KERNEL, gram)
    got = evaluate_sparse(latent, LOG_KERNEL, latent, gram)
    assert got.value == pytest.approx(exact.value, abs=1e-6 * (1.0 + abs(exact.value)))
    np.testing.assert_allclose(
        got.log_kernel, exact.log_kernel, rtol=0.0, atol=1e-5 * np.abs(exact.log_kernel).max()
    )
    limit = 1e-5 * np.abs(exact.latent).max()
    np.testing.assert_allclose(got.latent + got.inducing, exact.latent, rtol=0.0, atol=limit)


def test_more_inducing_points_never_loosen_the_bound():
    X, latent, inducing = problem((40, 8, 2, 12))
    gram = FeatureGram.of(X)
    values = [evaluate_sparse(latent, LOG_KERNEL, inducing[:m], gram).value for m in range(1, 13)]
    # The effect of the jitter changes with each point.
    assert np.all(np.diff(values) <= 1e-6)


def test_blocks_of_samples_are_summed(monkeypatch):
    X, latent, inducing = problem((41, 8, 2, 5))
    gram = FeatureGram.of(X)
    whole = evaluate_sparse(latent, LOG_KERNEL, inducing, gram)
    monkeypatch.setattr(sparse_likelihood, "_BLOCK_ENTRIES", 20)
    parts = evaluate_sparse(latent, LOG_KERNEL, inducing, gram)
    assert parts.value == pytest.approx(whole.value, rel=1e-13)
    for name in ("latent", "log_kernel", "inducing"):
        a, b = getattr(parts, name), getattr(whole, name)
        np.testing.assert_allclose(a, b, rtol=0.0, atol=1e-11 * np.abs(b).max())


def test_memory_is_linear_in_the_number_of_samples():
    """Gradient and blocks need less than a quarter of an N x M array."""
    X, latent, inducing = problem((40_000, 3, 2, 50))
    gram = FeatureGram.of(X)
    evaluate_sparse(latent[:100], LOG_KERNEL, inducing, FeatureGram.of(X[:100]))  # compiles
    tracemalloc.start()
    try:
        evaluate_sparse(latent, LOG_KERNEL, inducing, gram)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40_000 * 50 * 8 / 4


def test_invariant_to_shift_and_rotation():
    X, latent, inducing = problem((20, 8, 3, 5))
    gram = FeatureGram.of(X)
    Q, b = ortho_group(3, seed=3).rvs(), np.array([3.0, -1.0, 2.0])
    base = evaluate_sparse(latent, LOG_KERNEL, inducing, gram)
    moved = evaluate_sparse(latent @ Q + b, LOG_KERNEL, inducing @ Q + b, gram)
    assert moved.value == pytest.approx(base.value, rel=1e-12)
    np.testing.assert_allclose(moved.latent, base.latent @ Q, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(moved.inducing, base.inducing @ Q, rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(base.latent.sum(axis=0), -base.inducing.sum(axis=0), atol=1e-9)


def test_latent_coordinates_may_coincide():
    X, latent, inducing = problem((20, 8, 2, 6))
    latent[10:] = latent[:10]
    inducing[3:] = inducing[:3]
    gram = FeatureGram.of(X)
    got = evaluate_sparse(latent, LOG_KERNEL, inducing, gram)
    fewer = evaluate_sparse(latent, LOG_KERNEL, inducing[:3], gram)
    assert got.value == pytest.approx(fewer.value, rel=1e-7)
    assert all(np.isfinite(g).all() for g in (got.latent, got.log_kernel, got.inducing))


def test_the_arguments_are_not_changed():
    X, latent, inducing = problem((20, 8, 2, 6))
    gram = FeatureGram.of(X)
    arrays = (latent, inducing, gram.root)
    kept = [a.copy() for a in arrays]
    evaluate_sparse(latent, LOG_KERNEL, inducing, gram)
    initial_inducing(latent, 4, np.random.default_rng(0))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, kept, strict=True))


def test_a_matrix_that_is_not_positive_definite_raises():
    X, latent, inducing = problem((20, 8, 2, 6))
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        evaluate_sparse(latent, np.array([-800.0, 0.0, 0.0]), inducing, FeatureGram.of(X))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_latent_coordinates_that_are_not_finite_raise(bad):
    X, latent, inducing = problem((20, 8, 2, 6))
    for array in (inducing, latent):
        array[1, 1] = bad
        with pytest.raises(np.linalg.LinAlgError, match="finite"):
            evaluate_sparse(latent, LOG_KERNEL, inducing, FeatureGram.of(X))
        array[1, 1] = 0.0


def test_inducing_points_are_spread_over_the_samples():
    rng = np.random.default_rng(103)
    centres = rng.uniform(-20.0, 20.0, (12, 2))
    latent = np.repeat(centres, 400, axis=0) + 0.01 * rng.standard_normal((4800, 2))
    placed = initial_inducing(latent, 12, rng)
    assert placed.shape == (12, 2)
    # Nearly every group has an inducing point; seeding may draw a group twice.
    nearest = np.argmin(cdist(centres, placed), axis=1)
    assert len(np.unique(nearest)) >= 11


def test_distinct_latent_coordinates_are_taken_once():
    distinct = np.arange(5.0)[:, None] * [1.0, 2.0]
    latent = np.repeat(distinct, 20, axis=0)
    for m in (7, 100, 300):
        placed = initial_inducing(latent, m, np.random.default_rng(0))
        np.testing.assert_allclose(placed[np.argsort(placed[:, 0])], distinct, atol=1e-12)


def test_few_inducing_points_approximate_the_density():
    """A latent plane of 2 x 2 length-scales has an effective rank of about ten."""
    rng = np.random.default_rng(107)
    latent = rng.uniform(-1.0, 1.0, (400, 2))
    X = np.column_stack([np.sin(latent @ w) for w in rng.standard_normal((20, 2))])
    X += 0.3 * rng.standard_normal(X.shape)
    gram = FeatureGram.of(X - X.mean(axis=0))
    log_kernel = np.log([1.0, 1.0, 0.3])
    exact = evaluate(latent, log_kernel, gram)
    got = evaluate_sparse(latent, log_kernel, initial_inducing(latent, 60, rng), gram)
    assert 0.0 <= got.value - exact.value < 1.0
    limit = 1e-2 * np.abs(exact.latent).max()
    np.testing.assert_allclose(got.latent, exact.latent, rtol=0.0, atol=limit)
