"""Whitened features of kernels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, Matern
from sklearn.linear_model import LinearRegression
from sklearn.metrics.pairwise import polynomial_kernel

from bsdr_models import BSDRClassifier
from bsdr_models.bsdr import Kernel, build_model, kernels
from bsdr_models.bsdr.feature_map import learn_map

NAMES = ("rbf", "matern", "polynomial")


def samples(n=30, d=4, seed=0):
    """Centred samples of the mean squared length D, which a metric as they are does not change."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    X -= X.mean(axis=0)
    return X / np.sqrt(np.mean(X**2))


def learn(X, kernel):
    """Whitened features of a kernel of the samples as they are."""
    return learn_map(X, metric="identity", kernel=kernel).maps[0]


def centred(K, K_new, variance_new):
    """Centred kernel among training samples, with new ones, and variances of the new ones."""
    inner = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    cross = K_new - K.mean(axis=0) - K_new.mean(axis=1)[:, None] + K.mean()
    variance = variance_new - 2.0 * K_new.mean(axis=1) + K.mean()
    unit = np.trace(inner) / len(K)
    return inner / unit, cross / unit, variance / unit


def test_kernels_equal_those_of_scikit_learn():
    A, B = samples(), samples(7, seed=1)
    length = 4.0 * np.sqrt(A.shape[1])
    assert_allclose(Kernel("rbf").matrix(A, B), RBF(length)(A, B), atol=1e-12)
    assert_allclose(Kernel("matern").matrix(A, B), Matern(length, nu=2.5)(A, B), atol=1e-12)
    assert_allclose(Kernel("polynomial").matrix(A, B), polynomial_kernel(A, B), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(30, 4), (12, 40)])
def test_whitened_features_have_the_centred_kernel(name, shape, monkeypatch):
    monkeypatch.setattr(kernels, "NEGLIGIBLE", 0.0)
    X, new, kernel = samples(*shape), samples(9, shape[1], seed=1), Kernel(name)
    found = learn(X, kernel)
    inner, cross, variance = centred(
        kernel.matrix(X, X), kernel.matrix(new, X), kernel.variance(new)
    )
    inside = found.whiten(new)
    assert_allclose(found.whiten(X) @ found.whiten(X).T, inner, atol=1e-6)
    assert_allclose(inside @ found.whiten(X).T, cross, atol=1e-6)
    assert_allclose(np.sum(inside**2, axis=1) + found.outside_sd(new) ** 2, variance, atol=1e-6)
    assert_allclose(found.outside_sd(X), 0.0, atol=2e-3)
    assert_allclose(kernel.variance(new), np.diag(kernel.matrix(new, new)), atol=1e-12)


def test_left_out_components_have_little_variance():
    X, kernel = samples(100), Kernel("rbf")
    found = learn(X, kernel)
    inner, _, _ = centred(kernel.matrix(X, X), kernel.matrix(X, X), kernel.variance(X))
    assert found.width < 99
    rest = np.diag(inner) - np.sum(found.whiten(X) ** 2, axis=1)
    assert 0.0 < rest.mean() < 1.01 * kernels.NEGLIGIBLE
    assert_allclose(found.outside_sd(X) ** 2, rest, atol=1e-8)


@pytest.mark.parametrize("shape", [(30, 4), (6, 9)])
def test_effects_are_those_of_the_closest_linear_function(shape):
    X = samples(*shape) + 1.0
    found = learn(X, Kernel("rbf"))
    expected = LinearRegression().fit(X, found.whiten(X)).coef_
    assert_allclose(found.effects.T, expected, atol=1e-10)


def test_landmarks_do_not_depend_on_the_order(monkeypatch):
    monkeypatch.setattr(kernels, "MOST_EXACT", 50)
    monkeypatch.setattr(kernels, "N_LANDMARKS", 30)
    X, new = samples(80), samples(5, seed=1)
    found = learn(X, Kernel("rbf"))
    again = learn(X[::-1], Kernel("rbf"))
    assert found.width <= 30
    one, other = (each.whiten(new) @ each.whiten(X).T for each in (found, again))
    assert_allclose(one, other, atol=1e-6)
    exact = Kernel("rbf")
    inner = centred(exact.matrix(X, X), exact.matrix(new, X), exact.variance(new))[1]
    assert np.abs(one - inner).max() < 0.05


@pytest.mark.parametrize("kernel", [Kernel, RBF(), len])
def test_other_kernels_are_refused(kernel):
    X = samples()
    with pytest.raises(ValueError, match=r"'kernel' parameter of .* must be"):
        BSDRClassifier(kernel=kernel).fit(X, np.arange(30) % 2)
    with pytest.raises(ValueError, match="kernel must be a name or a"):
        build_model(X, np.arange(30) % 2, kernel=kernel)


def test_a_constant_kernel_is_refused():
    with pytest.raises(ValueError, match="constant over the training samples"):
        learn(samples(), Kernel("rbf", 1e9))


@pytest.mark.parametrize("options", [{"name": "rbff"}, {"width": 0.0}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Kernel(**options)
