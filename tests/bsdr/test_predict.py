"""Predictions against frequencies over draws from the posterior.

Monte Carlo comparisons are at 4 standard errors plus the stated error of the quadrature.
"""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp
from scipy.stats import multivariate_normal

from bsdr_models.bsdr.paper import predict
from bsdr_models.bsdr.paper.engines import fit_mean_field
from bsdr_models.bsdr.paper.mean_field import make_data
from bsdr_models.bsdr.paper.predict import DrawPosterior, MeanFieldPosterior
from bsdr_models.bsdr.priors import Priors

N_DRAWS = 200_000
TARGETS = ("multiclass", "multilabel", "regression")
SCALES = {"small": 0.1, "large": 0.8}


def toy(target, *, n=24, d=4, r=2, k=3, seed=0):
    """Features and targets with signal: X (N, D), y."""
    rng = np.random.default_rng([41, seed])
    X = rng.standard_normal((n, d))
    eta = X @ rng.standard_normal((d, r)) @ rng.standard_normal((r, k))
    eta = eta + 0.7 * rng.standard_normal((n, k))
    y = {"multiclass": eta.argmax(axis=1), "multilabel": eta > 0.0, "regression": eta}[target]
    return X, y


def mean_field(target, *, prior="entrywise", latent_scale=0.5, n_iter=40, **sizes):
    X, y = toy(target, **sizes)
    data = make_data(X, y, n_labels=3, target=target, projection_prior=prior)
    result = fit_mean_field(
        data,
        Priors(latent_scale=latent_scale, projection_prior=prior),
        n_components=2,
        rng=np.random.default_rng(0),
        max_iter=n_iter,
    )
    return X, MeanFieldPosterior(state=result.posterior, data=data, latent_scale=latent_scale)


def log_mean(values):
    return logsumexp(values, axis=1) - np.log(values.shape[1])


def log_predictive(posterior, X, y):
    """Log predictive probability of the labels of new samples, (M,)."""
    if posterior.target == "multiclass":
        log_p = posterior.log_probabilities(X)
        return log_p[np.arange(len(y)), y]
    mean, std = posterior.utilities(X)
    return log_mean(log_ndtr(np.where(y[:, None], 1.0, -1.0) * mean / std).sum(axis=2))


def projection_moments(X, posterior):
    """E[Q] (D, R) and Cov(Q) (R, D, D) under q, by dense inverses over the features."""
    state, v = posterior.state, posterior.latent_scale**2
    d, r = X.shape[1], state.latent.mean.shape[1]
    phi = np.broadcast_to(state.projection_precision.mean, (d, r))
    cov = np.array([np.linalg.inv(np.diag(column) + X.T @ X / v) for column in phi.T])
    mean = np.stack([s @ X.T @ z / v for s, z in zip(cov, state.latent.mean.T, strict=True)], 1)
    return mean, cov


def draw_linear_predictors(X, posterior, row, rng, size=N_DRAWS):
    """Latent coordinates (S, R) and linear predictors (S, K) of a new sample, drawn from q."""
    mean, cov = projection_moments(X, posterior)
    Q = np.stack(
        [rng.multivariate_normal(m, c, size=size) for m, c in zip(mean.T, cov, strict=True)], 2
    )
    z = np.einsum("d,sdr->sr", row, Q) + posterior.latent_scale * rng.standard_normal(
        (size, Q.shape[2])
    )
    w = posterior.state.weights
    full = np.stack(
        [rng.multivariate_normal(m, c, size=size) for m, c in zip(w.mean.T, w.cov, strict=True)], 2
    )
    return z, full[:, 0] + np.einsum("sr,srk->sk", z, full[:, 1:])


def random_draws(target, *, size=30, d=4, r=2, k=3, latent_scale=0.8, seed=0):
    """A posterior of random draws around one value."""
    rng = np.random.default_rng([43, seed])
    return DrawPosterior(
        projection=0.7 * rng.standard_normal((d, r)) + 0.2 * rng.standard_normal((size, d, r)),
        weights=1.2 * rng.standard_normal((r, k)) + 0.3 * rng.standard_normal((size, r, k)),
        bias=0.4 * rng.standard_normal((size, k)),
        noise_precision=rng.gamma(5.0, 0.5, size=(size, k)) if target == "regression" else None,
        latent_scale=latent_scale,
        target=target,
    )


def linear_predictors_of_draws(posterior, row, rng, size):
    """Linear predictors (S', K), ``size`` for every draw, and the indices of the draws (S',)."""
    n_draws, r, _ = posterior.weights.shape
    index = np.repeat(np.arange(n_draws), size)
    z = np.einsum("d,sdr->sr", row, posterior.projection)[index]
    z = z + posterior.latent_scale * rng.standard_normal((len(index), r))
    return np.einsum("sr,srk->sk", z, posterior.weights[index]) + posterior.bias[index], index


def hermite(n_dims, n_nodes=40):
    """Nodes (G, P) and weights (G,) of N(0, I)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    grid = np.stack(np.meshgrid(*[nodes] * n_dims, indexing="ij"), axis=-1)
    return grid.reshape(-1, n_dims), np.prod(
        np.meshgrid(*[weights / weights.sum()] * n_dims, indexing="ij"), axis=0
    ).ravel()


@pytest.mark.parametrize("latent_scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("prior", ["entrywise", "columnwise", "rowwise"])
def test_label_probabilities_are_frequencies_under_q(prior, latent_scale):
    X, posterior = mean_field("multiclass", prior=prior, latent_scale=latent_scale)
    rng = np.random.default_rng(1)
    X_new = 1.5 * rng.standard_normal((3, 4))
    got = np.exp(posterior.log_probabilities(X_new))
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=1e-12)
    for row, probability in zip(X_new, got, strict=True):
        _, eta = draw_linear_predictors(X, posterior, row, rng)
        label = (eta + rng.standard_normal(eta.shape)).argmax(axis=1)
        frequency = np.bincount(label, minlength=3) / N_DRAWS
        np.testing.assert_allclose(probability, frequency, atol=4 * 0.5 / N_DRAWS**0.5 + 4e-3)


def test_directions_outside_the_row_space_have_their_prior_variance():
    """Row-space coordinates against dense algebra over all features."""
    X, posterior = mean_field("multiclass", prior="columnwise", n=9, d=20, latent_scale=0.5)
    rng = np.random.default_rng(2)
    row = rng.standard_normal(20)
    z, eta = draw_linear_predictors(X, posterior, row, rng, size=50_000)
    label = (eta + rng.standard_normal(eta.shape)).argmax(axis=1)
    frequency = np.bincount(label, minlength=3) / len(label)
    got = np.exp(posterior.log_probabilities(row[None]))[0]
    np.testing.assert_allclose(got, frequency, atol=4 * 0.5 / len(label) ** 0.5 + 4e-3)

    latent = posterior.embed(row[None])
    np.testing.assert_allclose(
        latent.mean[0], z.mean(axis=0), atol=4 * z.std(axis=0).max() / len(z) ** 0.5
    )


def test_multilabel_predictions_are_frequencies_under_q():
    """Marginal ones by `log_probabilities`, joint ones by `log_predictive`."""
    X, posterior = mean_field("multilabel")
    rng = np.random.default_rng(3)
    row = rng.standard_normal(4)
    _, eta = draw_linear_predictors(X, posterior, row, rng)
    on = eta + rng.standard_normal(eta.shape) > 0.0
    got = np.exp(posterior.log_probabilities(row[None]))[0]
    tolerance = 4 * 0.5 / N_DRAWS**0.5 + 4e-3
    np.testing.assert_allclose(got, on.mean(axis=0), atol=tolerance)
    for y in np.array([[0, 0, 0], [1, 0, 1], [1, 1, 1]], dtype=bool):
        joint = np.exp(log_predictive(posterior, row[None], y[None]))[0]
        np.testing.assert_allclose(joint, (on == y).all(axis=1).mean(), atol=tolerance)


def test_regression_moments_are_those_of_draws_from_q():
    X, posterior = mean_field("regression")
    rng = np.random.default_rng(4)
    row = rng.standard_normal(4)
    _, eta = draw_linear_predictors(X, posterior, row, rng)
    tau = posterior.state.noise_precision
    noise = rng.gamma(tau.shape, 1.0 / tau.rate, size=eta.shape) ** -0.5
    y = eta + noise * rng.standard_normal(eta.shape)
    mean, std = posterior.moments(row[None])
    np.testing.assert_allclose(mean[0], y.mean(axis=0), atol=4 * y.std() / N_DRAWS**0.5)
    np.testing.assert_allclose(std[0], y.std(axis=0), rtol=0.015)


@pytest.mark.parametrize("r", [1, 2, 4])
def test_draws_give_label_frequencies(r):
    posterior = random_draws("multiclass", r=r)
    rng = np.random.default_rng(8)
    X_new = rng.standard_normal((3, 4))
    got = np.exp(posterior.log_probabilities(X_new))
    np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=1e-12)
    for row, probability in zip(X_new, got, strict=True):
        eta, _ = linear_predictors_of_draws(posterior, row, rng, 6000)
        label = (eta + rng.standard_normal(eta.shape)).argmax(axis=1)
        frequency = np.bincount(label, minlength=3) / len(label)
        np.testing.assert_allclose(probability, frequency, atol=4 * 0.5 / len(label) ** 0.5 + 6e-3)


def test_embedding_by_draws_has_their_moments():
    posterior = random_draws("multiclass", size=400)
    rng = np.random.default_rng(10)
    X_new = rng.standard_normal((3, 4))
    z = np.einsum("md,sdr->msr", X_new, posterior.projection)
    got = posterior.embed(X_new)
    np.testing.assert_allclose(got.mean, z.mean(axis=1), rtol=1e-10)
    for cov, each in zip(got.cov, z, strict=True):
        expected = np.cov(each.T, bias=True) + 0.8**2 * np.eye(2)
        np.testing.assert_allclose(cov, expected, rtol=1e-10)
    np.testing.assert_allclose(got.std**2, np.einsum("mrr->mr", got.cov))


def test_log_likelihood_of_labels_is_the_integral_over_the_latent():
    """By tensor quadrature over latent coordinates and utilities, for each draw."""
    posterior = random_draws("multiclass", size=12)
    rng = np.random.default_rng(11)
    X_new, y = 1.5 * rng.standard_normal((10, 4)), np.arange(10) % 3
    got = posterior.log_likelihood(X_new, y)
    assert got.shape == (12, 10)
    nodes, weights = hermite(3, 30)
    expected = np.empty((12, 10))
    for s in range(12):
        for n in range(10):
            z = X_new[n] @ posterior.projection[s] + 0.8 * nodes[:, :2]
            eta = z @ posterior.weights[s] + posterior.bias[s]
            top = eta[:, y[n]] + nodes[:, 2]
            others = np.delete(eta, y[n], axis=1)
            log_p = log_ndtr(top[:, None] - others).sum(axis=1)
            expected[s, n] = logsumexp(log_p, b=weights)
    assert expected.min() < -6.0
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_log_likelihood_of_label_sets_is_the_integral_over_the_latent():
    posterior = random_draws("multilabel", size=12)
    rng = np.random.default_rng(12)
    X_new, y = 1.5 * rng.standard_normal((10, 4)), rng.random((10, 3)) < 0.5
    nodes, weights = hermite(2, 60)
    z = np.einsum("md,sdr->smr", X_new, posterior.projection)[:, :, None] + 0.8 * nodes
    eta = np.einsum("smgr,srk->smgk", z, posterior.weights) + posterior.bias[:, None, None]
    sign = np.where(y, 1.0, -1.0)[:, None]
    expected = logsumexp(log_ndtr(sign * eta).sum(axis=-1), b=weights, axis=-1)
    np.testing.assert_allclose(posterior.log_likelihood(X_new, y), expected, atol=1e-4)


@pytest.mark.parametrize("k", [1, 3])
def test_log_likelihood_of_real_targets_is_the_multivariate_normal(k):
    posterior = random_draws("regression", size=7, k=k)
    rng = np.random.default_rng(14)
    X_new, y = rng.standard_normal((5, 4)), rng.standard_normal((5, k))
    got = posterior.log_likelihood(X_new, y)
    for s in range(7):
        W = posterior.weights[s]
        cov = np.diag(1.0 / posterior.noise_precision[s]) + 0.8**2 * W.T @ W
        for n in range(5):
            mean = X_new[n] @ posterior.projection[s] @ W + posterior.bias[s]
            expected = multivariate_normal(mean, cov).logpdf(y[n])
            np.testing.assert_allclose(got[s, n], expected, rtol=1e-10)


def test_regression_moments_of_draws():
    posterior = random_draws("regression")
    rng = np.random.default_rng(15)
    row = rng.standard_normal(4)
    eta, index = linear_predictors_of_draws(posterior, row, rng, 6000)
    y = eta + posterior.noise_precision[index] ** -0.5 * rng.standard_normal(eta.shape)
    mean, std = posterior.moments(row[None])
    np.testing.assert_allclose(mean[0], y.mean(axis=0), atol=4 * y.std() / len(y) ** 0.5)
    np.testing.assert_allclose(std[0], y.std(axis=0), rtol=0.01)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["mean_field", "draws"])
def test_predictions_do_not_depend_on_the_batch(kind, target, monkeypatch):
    """Also across blocks of samples."""
    X, y = toy(target)
    posterior = {
        "mean_field": lambda: mean_field(target, n_iter=5)[1],
        "draws": lambda: random_draws(target),
    }[kind]()

    def outputs(X_new, targets):
        if target == "regression":
            yield from posterior.moments(X_new)
        else:
            yield posterior.log_probabilities(X_new)
        yield log_predictive(posterior, X_new, targets)
        if kind == "draws":
            yield posterior.log_likelihood(X_new, targets).T

    together = list(outputs(X, y))
    alone = [list(outputs(X[n : n + 1], y[n : n + 1])) for n in range(len(X))]
    monkeypatch.setattr(predict, "BLOCK", 3000)
    for i, (values, blocked) in enumerate(zip(together, outputs(X, y), strict=True)):
        assert np.isfinite(values).all()
        np.testing.assert_allclose(values, np.concatenate([each[i] for each in alone]), rtol=1e-9)
        np.testing.assert_allclose(values, blocked, rtol=1e-9)
