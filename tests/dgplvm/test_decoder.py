"""Embedding by eq. (14): against the full formula, other decoders, grids and known truth."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from bsdr_models.dgplvm.decoder import Decoder, LikelihoodEmbedder

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


def embed(decoder, features):
    return LikelihoodEmbedder(decoder=decoder).embed(features)


def value_at(decoder, latent, features):
    return decoder.evaluate(latent, decoder.targets(features)).value


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
def test_values_match_the_full_formula(shape, kernel):
    X, Y, rng = make_samples(shape, kernel)
    decoder = Decoder.of(X, Y, **kernel, temper=0.4)
    x, y = rng.standard_normal((6, shape[2])), Y[:6] + rng.standard_normal((6, shape[1]))
    got = decoder.evaluate(x, decoder.targets(y))
    mean, variance = decoder.features(x)
    for i in range(6):
        expected_mean, expected_variance = predict(X, Y, x[i], kernel)
        np.testing.assert_allclose(mean[i], expected_mean, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(variance[i], expected_variance, rtol=1e-10)
        density = norm.logpdf(y[i], expected_mean, np.sqrt(expected_variance)).sum()
        value = -0.4 * density - norm.logpdf(x[i]).sum()
        np.testing.assert_allclose(got.value[i], value, rtol=1e-10)


@KERNELS
@SHAPES
@pytest.mark.parametrize("left_out", [False, True])
def test_derivatives_agree_with_fourth_order_differences(shape, kernel, left_out):
    """Of values for the gradient, of gradients for the Hessian; step 1e-3, so 1e-12 plus rounding
    of 1e-13 over the step."""
    X, Y, rng = make_samples(shape, kernel)
    decoder = Decoder.of(X, Y, **kernel, temper=0.4)
    M, R, h = 5, shape[2], 1e-3
    x, y = rng.standard_normal((M, R)), Y[:M] + rng.standard_normal((M, shape[1]))
    targets = decoder.targets(y)
    if left_out:
        targets = replace(targets, left_out=np.array([3, 0, 4, 7, 1]))

    def at(r, steps):
        return decoder.evaluate(x + steps * h * np.eye(R)[r], targets)

    got = decoder.evaluate(x, targets)
    for r in range(R):
        points = [(at(r, steps), weight) for steps, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1))]
        slope = sum(weight * point.value for point, weight in points) / (12.0 * h)
        bend = sum(weight * point.gradient for point, weight in points) / (12.0 * h)
        scale = np.abs(got.gradient).max()
        np.testing.assert_allclose(got.gradient[:, r], slope, rtol=1e-8, atol=1e-8 * scale)
        scale = np.abs(got.hessian).max()
        np.testing.assert_allclose(got.hessian[:, r], bend, rtol=1e-8, atol=1e-8 * scale)


@KERNELS
def test_left_out_values_match_a_decoder_of_the_others(kernel):
    shape = (15, 24, 2)
    X, Y, rng = make_samples(shape, kernel)
    decoder = Decoder.of(X, Y, **kernel, temper=0.3)
    x, out = rng.standard_normal((15, 2)), np.arange(15)
    got = decoder.evaluate(x, replace(decoder.targets(Y), left_out=out))
    placed = LikelihoodEmbedder(decoder=decoder).embed_left_out(Y)
    for i in range(15):
        keep = out != i
        others = Decoder.of(X[keep], Y[keep], **kernel, temper=0.3)
        one = others.evaluate(x[i : i + 1], others.targets(Y[i : i + 1]))
        np.testing.assert_allclose(got.value[i], one.value[0], rtol=1e-10)
        np.testing.assert_allclose(got.gradient[i], one.gradient[0], rtol=1e-8, atol=1e-8)
        alone = embed(others, Y[i : i + 1])
        np.testing.assert_allclose(placed.mean[i], alone.mean[0], atol=1e-6)


@KERNELS
def test_latent_is_a_minimum_and_cov_the_inverse_hessian(kernel):
    X, Y, rng = make_samples((30, 12, 2), kernel)
    decoder = Decoder.of(X, Y, **kernel, temper=0.5)
    y = Y[:20] + 0.5 * rng.standard_normal((20, 12))
    placed = embed(decoder, y)
    there = decoder.evaluate(placed.mean, decoder.targets(y))
    np.testing.assert_allclose(there.gradient, 0.0, atol=1e-6 * np.abs(there.hessian).max())
    identity = np.broadcast_to(np.eye(2), (20, 2, 2))
    np.testing.assert_allclose(placed.cov @ there.hessian, identity, atol=1e-9)
    assert np.linalg.eigvalsh(placed.cov).min() > 0.0
    for i in range(3):  # another optimiser, on the plain formula

        def objective(x, i=i):
            mean, variance = predict(X, Y, x, kernel)
            log_density = norm.logpdf(y[i], mean, np.sqrt(variance)).sum()
            return -0.5 * log_density - norm.logpdf(x).sum()

        found = minimize(objective, placed.mean[i] + 0.05, method="Nelder-Mead")
        assert there.value[i] < found.fun + 1e-9
        np.testing.assert_allclose(found.x, placed.mean[i], atol=1e-3)


@pytest.mark.parametrize("n_components", [1, 2, 3])
@KERNELS
def test_noiseless_samples_are_recovered(n_components, kernel):
    """With little noise and many features the latent coordinates are recovered.

    Minima are then narrow, a hundredth of a length-scale: one sample in twenty may be missed.
    """
    kernel = {**kernel, "noise_variance": 1e-4, "lengthscale": (0.9, 0.9, 2.0)[n_components - 1]}
    X, Y, rng = make_samples((60, 200, n_components), kernel)
    decoder = Decoder.of(X, Y, **kernel)
    near = rng.integers(60, size=50)
    truth = 0.9 * X[near] + 0.05 * rng.standard_normal((50, n_components))
    features, variance = decoder.features(truth)
    placed = embed(decoder, features)
    found = value_at(decoder, placed.mean, features) <= value_at(decoder, truth, features)
    assert found.mean() >= 0.95
    sure = found & (variance < 2e-4)  # among the training samples, where the variance is flat
    assert sure.sum() > 5
    np.testing.assert_allclose(placed.mean[sure], truth[sure], atol=2e-3)


def labelled_samples(rng, n_samples):
    """Whitened latent coordinates of three separated curved classes, and forty features."""
    y = rng.integers(3, size=n_samples)
    angle = rng.uniform(-1.5, 1.5, size=n_samples) + 2.0 * np.pi * y / 3.0
    plane = np.column_stack([np.cos(angle), np.sin(angle)]) * (1.0 + 0.2 * (y[:, None] == 1))
    waves = np.tanh(plane @ rng.standard_normal((2, 40)) + rng.standard_normal(40))
    features = waves + 0.25 * rng.standard_normal((n_samples, 40))
    centred = plane - plane.mean(axis=0)
    u, _, vt = np.linalg.svd(centred, full_matrices=False)
    return np.sqrt(n_samples) * u @ vt, features


@pytest.mark.parametrize("temper", [0.15, 1.0])
def test_minimum_is_below_a_fine_grid(temper):
    """For at least 95 % of samples; the others may end in a local minimum."""
    rng = np.random.default_rng(4)
    X, rows = labelled_samples(rng, 300)
    X, Y, new = X[:100], rows[:100], rows[100:]
    variance = Y.var(axis=0).mean()
    decoder = Decoder.of(
        X,
        Y,
        signal_variance=0.6 * variance,
        lengthscale=0.7,
        noise_variance=0.2 * variance,
        temper=temper,
    )
    placed = embed(decoder, new)
    low, high = X.min() - 2.0, X.max() + 2.0
    points = np.stack(np.meshgrid(*[np.linspace(low, high, 81)] * 2), axis=-1).reshape(-1, 2)
    mean, s2 = decoder.features(points)
    rho = ((new[:, None, :] - mean[None, :, :]) ** 2).sum(axis=2)
    fit = 0.5 * temper * (rho / s2 + 40 * np.log(2.0 * np.pi * s2))
    value = fit + 0.5 * (points**2).sum(axis=1) + np.log(2.0 * np.pi)
    worse = value_at(decoder, placed.mean, new) > value.min(axis=1) + 1e-9
    assert worse.mean() <= 0.05
