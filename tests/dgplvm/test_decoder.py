"""Mean features of the decoder, and embedding by eq. (14): against formulas and known truth."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.papers.dgplvm.likelihood_embedder import LikelihoodEmbedder

PAPER = {"signal_variance": 0.6, "lengthscale": 0.9, "noise_variance": 0.2, "bias": 0.3}
PAPER["integrate_mean"] = False
WHITENED = {"signal_variance": 0.6, "lengthscale": 0.9, "noise_variance": 0.2}
KERNELS = pytest.mark.parametrize("kernel", [PAPER, WHITENED], ids=["paper", "whitened"])
SHAPES = pytest.mark.parametrize("shape", [(12, 30, 2), (20, 5, 3), (14, 14, 1), (25, 40, 7)])


def covariance(A, B, kernel):
    """The kernel without noise."""
    distance = ((A[:, None, :] - B[None, :, :]) ** 2).sum(axis=2)
    smooth = kernel["signal_variance"] * np.exp(-0.5 * distance / kernel["lengthscale"] ** 2)
    return smooth + kernel.get("bias", 0.0)


def embedder_of(X, Y, kernel):
    theta = [kernel["signal_variance"], kernel["lengthscale"] ** -2, kernel["bias"]]
    return LikelihoodEmbedder.of(X, Y, np.array([*theta, 1.0 / kernel["noise_variance"]]))


def make_samples(shape, kernel, seed=0):
    """Latent coordinates, and features drawn from the process, with its constant if it has one."""
    N, D, R = shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, R))
    K = covariance(X, X, kernel) + kernel["noise_variance"] * np.eye(N)
    Y = np.linalg.cholesky(K) @ rng.standard_normal((N, D))
    if kernel.get("integrate_mean", True):
        Y += 5.0 * rng.standard_normal(D)
    assert Y.shape == (N, D)
    return X, Y, rng


def predict(X, Y, x, kernel):
    """Mean (D,) and variance at one place by the textbook system: kriging with its multiplier."""
    K = covariance(X, X, kernel) + kernel["noise_variance"] * np.eye(len(X))
    k = covariance(X, x[None], kernel)[:, 0]
    top = kernel["signal_variance"] + kernel.get("bias", 0.0) + kernel["noise_variance"]
    if not kernel.get("integrate_mean", True):
        weights = np.linalg.solve(K, k)
        return Y.T @ weights, top - k @ weights
    ones = np.ones((len(X), 1))
    system = np.block([[K, ones], [ones.T, np.zeros((1, 1))]])
    solution = np.linalg.solve(system, np.append(k, 1.0))
    weights, multiplier = solution[:-1], solution[-1]
    return Y.T @ weights, top - weights @ k - multiplier


@KERNELS
@SHAPES
def test_means_match_the_full_formula(shape, kernel):
    X, Y, rng = make_samples(shape, kernel)
    x = rng.standard_normal((6, shape[2]))
    expected = [predict(X, Y, place, kernel)[0] for place in x]
    found = Decoder.of(X, Y, **kernel).features(x)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@SHAPES
def test_values_match_the_full_formula_and_gradients_differences(shape):
    """Fourth-order differences of step 1e-3: an error of 1e-12 and rounding of 1e-13 over it."""
    X, Y, rng = make_samples(shape, PAPER)
    embedder, h = embedder_of(X, Y, PAPER), 1e-3
    for y in Y[:6] + rng.standard_normal((6, shape[1])):
        x = rng.standard_normal(shape[2])
        value, gradient = embedder.evaluate(x, y)
        mean, variance = predict(X, Y, x, PAPER)
        expected = -norm.logpdf(y, mean, np.sqrt(variance)).sum() - norm.logpdf(x).sum()
        np.testing.assert_allclose(value, expected, rtol=1e-10)
        weights = {-2: 1.0, -1: -8.0, 1: 8.0, 2: -1.0}
        for r, step in enumerate(h * np.eye(shape[2])):
            at = {n: embedder.evaluate(x + n * step, y)[0] for n in weights}
            slope = sum(weight * at[n] for n, weight in weights.items()) / (12.0 * h)
            scale = np.abs(gradient).max()
            np.testing.assert_allclose(gradient[r], slope, rtol=1e-8, atol=1e-8 * scale)


def test_latent_is_a_minimum_and_cov_the_inverse_hessian():
    X, Y, rng = make_samples((30, 12, 2), PAPER)
    embedder, y = embedder_of(X, Y, PAPER), Y[:5] + 0.5 * rng.standard_normal((5, 12))
    placed = embedder.embed(y)
    np.testing.assert_array_equal(embedder.latent(y), placed.mean)
    for i in range(5):  # another optimiser, on the plain formula

        def objective(x, i=i):
            mean, variance = predict(X, Y, x, PAPER)
            return -norm.logpdf(y[i], mean, np.sqrt(variance)).sum() - norm.logpdf(x).sum()

        found = minimize(objective, placed.mean[i] + 0.05, method="Nelder-Mead")
        assert objective(placed.mean[i]) < found.fun + 1e-9
        np.testing.assert_allclose(found.x, placed.mean[i], atol=1e-3)
        steps = 1e-3 * np.eye(2)
        hessian = [
            [sum(a * b * objective(placed.mean[i] + a * s + b * t)
                 for a in (-1, 1) for b in (-1, 1)) / 4e-6 for s in steps]
            for t in steps
        ]  # fmt: skip
        np.testing.assert_allclose(placed.cov[i] @ hessian, np.eye(2), atol=1e-3)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_noiseless_samples_are_recovered(n_components):
    """With little noise and many features the latent coordinates are recovered.

    Minima are then narrow, a hundredth of a length-scale: one sample in twenty may be missed.
    """
    kernel = {**PAPER, "noise_variance": 1e-4, "lengthscale": (0.9, 0.9, 2.0)[n_components - 1]}
    X, Y, rng = make_samples((60, 200, n_components), kernel)
    embedder = embedder_of(X, Y, kernel)
    near = rng.integers(60, size=30)
    truth = 0.9 * X[near] + 0.05 * rng.standard_normal((30, n_components))
    predicted = [predict(X, Y, place, kernel) for place in truth]
    placed = embedder.latent(np.array([mean for mean, _ in predicted]))
    found = [
        embedder.evaluate(x, mean)[0] <= embedder.evaluate(place, mean)[0] + 1e-6
        for x, place, (mean, _) in zip(placed, truth, predicted, strict=True)
    ]
    assert np.mean(found) >= 0.95
    # Among the training samples, where the variance is flat.
    sure = np.array(found) & (np.array([variance for _, variance in predicted]) < 2e-4)
    assert sure.sum() > 3
    np.testing.assert_allclose(placed[sure], truth[sure], atol=2e-3)
