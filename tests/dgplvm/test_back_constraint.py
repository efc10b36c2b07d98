"""The mapping against Gaussian conditioning with dense matrices."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from bsdr_models.dgplvm.back_constraint import (
    MappingEmbedder,
    centroid_weights,
    make_mapping,
    typical_distance,
)
from bsdr_models.numerics.linalg import squared_distances

WIDTH, NOISE, MEAN_VARIANCE = 1.5, 0.07, 0.3


def covariance(A, B, X):
    """Smooth part of K_b between samples, and the constant."""
    return np.exp(-WIDTH * cdist(A, B) ** 2 / (2.0 * np.median(pdist(X) ** 2))) + MEAN_VARIANCE


def mapping_of(X, y):
    options = {"width": WIDTH, "noise": NOISE, "mean_variance": MEAN_VARIANCE}
    return make_mapping(X, centroid_weights(y), **options)


def embedder_of(prior, latent, scale=1.0):
    return MappingEmbedder(
        prior=prior,
        mean=prior.mean_weights @ latent,
        weights=prior.weights(latent),
        scale=scale,
        typical_variance=1.0,
        left_out_variance=prior.left_out_variance(),
    )


def dense_form(X):
    """K_b."""
    return covariance(X, X, X) + NOISE * np.eye(len(X))


def test_operators_match_the_dense_covariance(problem, rng):
    X, y = problem
    prior = mapping_of(X, y)
    K = dense_form(X)
    M = np.linalg.inv(K)
    V = rng.standard_normal((len(X), 2))
    root = prior.factor

    np.testing.assert_allclose(root @ root.T, K, atol=1e-10)
    np.testing.assert_allclose(root @ prior.raw(V), V, atol=1e-10)
    np.testing.assert_allclose(prior.raw(V), np.linalg.pinv(root) @ V, atol=1e-8)
    np.testing.assert_allclose(prior.solve(V), M @ V, atol=1e-8)
    np.testing.assert_allclose(prior.inverse, M, atol=1e-8)


def test_energy_is_a_quadratic_form_about_the_mean_of_the_class_centroids(problem, rng):
    X, y = problem
    prior, latent = mapping_of(X, y), rng.standard_normal((len(X), 2))
    centroids = np.stack([latent[y == label].mean(axis=0) for label in range(3)])
    centred = latent - centroids.mean(axis=0)
    expected = np.trace(centred.T @ np.linalg.solve(dense_form(X), centred))
    value, product = prior.energy(latent)
    assert value == pytest.approx(expected, rel=1e-9)
    # The gradient of a quadratic form is twice the product, and is zero along a shift.
    assert np.vdot(latent, product) == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(product.sum(axis=0), 0.0, atol=1e-9)


def test_new_samples_are_embedded_by_conditioning(problem, rng):
    """Against the joint normal."""
    X, y = problem
    new = X[:4] + rng.standard_normal((4, X.shape[1]))
    latent = rng.standard_normal((len(X), 2))
    K = covariance(X, X, X) + NOISE * np.eye(len(X))
    k = covariance(new, X, X)
    mean = np.stack([latent[y == label].mean(axis=0) for label in range(3)]).mean(axis=0)
    variance = 1.0 + MEAN_VARIANCE + NOISE - np.diagonal(k @ np.linalg.solve(K, k.T))

    found = embedder_of(mapping_of(X, y), latent, 2.5).embed(new)
    expected = mean + k @ np.linalg.solve(K, latent - mean)
    np.testing.assert_allclose(found.mean, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.cov[:, 0, 0], 2.5 * variance, rtol=1e-5)
    np.testing.assert_allclose(found.cov[:, 0, 1], 0.0, atol=1e-15)


def test_far_samples_are_out_of_range(problem, rng):
    X, y = problem
    latent = rng.standard_normal((len(X), 2))
    embedder = embedder_of(mapping_of(X, y), latent)
    far = 1e3 * np.ones((1, X.shape[1]))
    share = embedder.out_of_range(np.concatenate([X, far]))
    assert np.all((share >= 0.0) & (share <= 1.0))
    assert share[-1] == pytest.approx(1.0)
    assert share[:-1].max() < 0.6
    left_out = embedder.out_of_range_left_out()
    tail = embedder.outliers(share)["tail_probability"]
    expected = [(1 + np.sum(left_out >= value)) / (1 + len(X)) for value in share]
    np.testing.assert_allclose(tail, expected, rtol=1e-12)


def test_sensitivity_is_the_derivative_of_the_mapping(rng, differences):
    """In seven features, of which samples are five combinations."""
    features, effects = rng.standard_normal((18, 7)), rng.standard_normal((7, 5))
    X = features @ effects
    prior = mapping_of(X, np.arange(18) % 3)
    embedder = embedder_of(prior, rng.standard_normal((18, 2)))

    def gradients(x):
        of_each = (lambda row, r=r: embedder.latent(row[None] @ effects)[0, r] for r in range(2))
        return np.stack([differences(latent, x) for latent in of_each], axis=-1)

    jacobians = np.stack([gradients(x) for x in features])  # (N, D, R)
    mean, sd, share = embedder.sensitivity(X, effects)
    np.testing.assert_allclose(mean, jacobians.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(sd, jacobians.std(axis=0), atol=1e-6)
    squares = (jacobians**2).sum(axis=(0, 2))
    np.testing.assert_allclose(share, squares / squares.sum(), atol=1e-6)


def test_centroid_weights_with_an_unlabelled_sample_and_an_absent_class():
    y = np.array([4, -1, 1, 4, 1, 1])
    weights = centroid_weights(y)
    np.testing.assert_allclose(weights, [1 / 4, 0, 1 / 6, 1 / 4, 1 / 6, 1 / 6])


def test_median_distance_of_coincident_samples_is_positive():
    assert typical_distance(np.zeros((5, 5))) == 1.0
    X = np.ones((9, 2))
    X[0] = 3.0
    assert typical_distance(squared_distances(X)) == pytest.approx((pdist(X) ** 2).mean())


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_left_out_variance_is_the_conditional_variance_given_the_other_samples(problem):
    """The prior variance 1 + omega + lambda, less what the other samples explain of it."""
    X, y = problem
    prior, K = mapping_of(X, y), dense_form(X)
    expected = []
    for n in range(len(X)):
        rest = np.delete(np.arange(len(X)), n)
        explained = K[n, rest] @ np.linalg.solve(K[np.ix_(rest, rest)], K[rest, n])
        expected.append(1.0 + MEAN_VARIANCE + NOISE - explained)
    np.testing.assert_allclose(prior.left_out_variance(), expected, rtol=1e-6)
