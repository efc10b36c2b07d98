"""The two densities of the features, against SciPy and by invariance."""

import numpy as np
import pytest
from scipy.linalg import helmert
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from bsdr_models.dgplvm.problem import FeatureGram, evaluate
from bsdr_models.papers.dgplvm.map import evaluate_paper

# (N, D, R): wide, tall, square, the smallest, one feature.
SHAPES = [(9, 30, 2), (25, 4, 2), (12, 12, 1), (2, 3, 1), (7, 1, 3)]
LOG_KERNEL = np.log([0.4, 0.9, 0.5])
LOG_THETA = np.log([0.8, 1.3, 0.4, 3.0])


def problem(shape, seed=83):
    n, d, r = shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ np.diag(rng.uniform(0.3, 2.0, d))
    X -= X.mean(axis=0)
    latent = rng.standard_normal((n, r))
    assert latent.shape == (n, r)
    return X, latent


def kernel_matrix(latent, signal, lengthscale):
    return signal * np.exp(-0.5 * (cdist(latent, latent) / lengthscale) ** 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_feature_gram(shape):
    X, _ = problem(shape)
    n, d, _ = shape
    gram = FeatureGram.of(X)
    S = X @ X.T
    np.testing.assert_allclose(gram.root @ gram.root.T, S, atol=1e-13 * np.trace(S))
    assert gram.root.shape == (n, np.linalg.matrix_rank(X))
    assert gram.variance == pytest.approx(np.var(X, axis=0, ddof=1).mean(), rel=1e-12)
    spread = np.trace(S) ** 2 / np.trace(S @ S)
    assert gram.n_effective == pytest.approx(min(d, spread), rel=1e-12)
    assert gram.n_features == d


def test_degenerate_features_raise():
    for n in (1, 5):
        with pytest.raises(ValueError, match="equal"):
            FeatureGram.of(np.zeros((n, 4)))


@pytest.mark.parametrize("shape", SHAPES)
def test_value_is_the_density_of_orthonormal_contrasts(shape):
    X, latent = problem(shape)
    signal, lengthscale, noise = np.exp(LOG_KERNEL)
    v = np.var(X, axis=0, ddof=1).mean()
    C = helmert(len(X))  # (N - 1, N)
    K = v * (kernel_matrix(latent, signal, lengthscale) + noise * np.eye(len(X)))
    density = multivariate_normal(np.zeros(len(X) - 1), C @ K @ C.T)
    expected = -np.sum(density.logpdf((C @ X).T))
    got = evaluate(latent, LOG_KERNEL, FeatureGram.of(X)).value
    assert got == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_paper_value_is_the_density_of_the_features(shape):
    X, latent = problem(shape)
    output, precision, bias, noise_precision = np.exp(LOG_THETA)
    K = kernel_matrix(latent, output, 1.0 / np.sqrt(precision)) + bias
    K += np.eye(len(X)) / noise_precision
    expected = -np.sum(multivariate_normal(np.zeros(len(X)), K).logpdf(X.T))
    got = evaluate_paper(latent, LOG_THETA, FeatureGram.of(X)).value
    assert got == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("density", "logs"), [(evaluate, LOG_KERNEL), (evaluate_paper, LOG_THETA)])
def test_gradients_are_those_of_differences(shape, density, logs, extrapolated):
    X, latent = problem(shape)
    gram = FeatureGram.of(X)
    got = density(latent, logs, gram)
    expected = extrapolated(lambda x: density(x, logs, gram).value, latent)
    np.testing.assert_allclose(got.latent, expected, rtol=0.0, atol=1e-8 * np.abs(expected).max())
    expected = extrapolated(lambda t: density(latent, t, gram).value, logs)
    np.testing.assert_allclose(
        got.log_parameters, expected, rtol=0.0, atol=1e-8 * np.abs(expected).max()
    )


@pytest.mark.parametrize(("density", "logs"), [(evaluate, LOG_KERNEL), (evaluate_paper, LOG_THETA)])
def test_latent_coordinates_may_coincide(density, logs):
    """Samples with equal latent coordinates share the function, not its noise."""
    X, latent = problem((12, 5, 2))
    latent[6:] = latent[:6]
    together = density(latent, logs, FeatureGram.of(X))
    latent[6:] += 1e-9
    apart = density(latent, logs, FeatureGram.of(X))
    assert together.value == pytest.approx(apart.value, rel=1e-9)
    np.testing.assert_allclose(together.latent, apart.latent, rtol=0.0, atol=1e-7)
    all_one = density(np.zeros((12, 2)), logs, FeatureGram.of(X))
    assert np.isfinite(all_one.value)
    assert np.all(all_one.latent == 0.0)


def test_the_arguments_are_not_changed():
    X, latent = problem((12, 5, 2))
    gram = FeatureGram.of(X)
    kept = latent.copy(), gram.root.copy(), X.copy()
    evaluate(latent, LOG_KERNEL, gram)
    evaluate_paper(latent, LOG_THETA, gram)
    for now, before in zip((latent, gram.root, X), kept, strict=True):
        assert np.array_equal(now, before)


@pytest.mark.parametrize("density", [evaluate, evaluate_paper])
def test_a_matrix_that_is_not_positive_definite_raises(density):
    X, _ = problem((12, 5, 2))
    logs = np.array([0.0, 0.0, -600.0, 600.0])[: 3 if density is evaluate else 4]
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        density(np.zeros((12, 2)), logs, FeatureGram.of(X))


@pytest.mark.parametrize(("density", "logs"), [(evaluate, LOG_KERNEL), (evaluate_paper, LOG_THETA)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_latent_coordinates_that_are_not_finite_raise(density, logs, bad):
    X, latent = problem((12, 5, 2))
    latent[3, 1] = bad
    with pytest.raises(np.linalg.LinAlgError, match="finite"):
        density(latent, logs, FeatureGram.of(X))
