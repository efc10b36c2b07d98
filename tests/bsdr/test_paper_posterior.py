"""Predictions of the paper's model, by draws, against quadrature over what they integrate out."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp, ndtr

from bsdr_models.papers import PaperBSDRClassifier, maximise
from bsdr_models.papers.bsdr import draws as draws_module
from bsdr_models.papers.bsdr import mean_field as mf
from bsdr_models.papers.bsdr.draws import NAMES, BSDRDraws, ProjectionFactor
from bsdr_models.papers.bsdr.priors import Priors
from bsdr_models.papers.reading import stack_draws
from tests.toys import choice, hermite

# Largest error of a probability that predictions may have.
ERROR = 0.005
# The same by draws of q.
OF_DRAWS = 0.02


def toy(target, *, n=24, d=4, r=2, k=3, seed=0):
    """Features and targets with signal: X (N, D), y."""
    rng = np.random.default_rng([41, seed])
    X = rng.standard_normal((n, d))
    eta = X @ rng.standard_normal((d, r)) @ rng.standard_normal((r, k))
    eta = eta + 0.7 * rng.standard_normal((n, k))
    y = {"multiclass": eta.argmax(axis=1), "multilabel": eta > 0.0, "regression": eta}[target]
    return X, y


@pytest.fixture
def many_draws(monkeypatch):
    """Predictions by all draws of q, whose means have errors far below that of a prediction."""
    monkeypatch.setattr(draws_module, "N_DRAWS", 6000)


def mean_field(target, *, prior="entrywise", latent_scale=0.5, n_iter=40, **sizes):
    """Samples, state of a fit, and draws from it."""
    X, y = toy(target, **sizes)
    data = mf.make_data(X, y, n_labels=3, target=target, projection_prior=prior)
    priors = Priors(latent_scale=latent_scale, projection_prior=prior)
    rng = np.random.default_rng(0)
    state = maximise(
        partial(mf.init, data, priors, n_components=2),
        partial(mf.step, data=data, priors=priors),
        extrapolation=mf.extrapolation(data),
        max_iter=n_iter,
        rng=rng,
    ).posterior
    state = replace(state, projection=mf.update_projection(state, data, priors))
    found = mf.draw(state, data, priors, n_draws=6000, rng=rng)
    found = {name: values[None] for name, values in found.items()}
    draws = BSDRDraws(**stack_draws(found, NAMES), target=target, latent_scale=latent_scale)
    factor = ProjectionFactor(
        mean=data.design.loadings(state.projection.mean),
        precision=state.projection_precision.mean,
        X=X,
    )
    return X, state, replace(draws, factor=factor)


def latent_moments(X, state, new, latent_scale=0.5):
    """Means and standard deviations (M, R) of latent coordinates under q, by dense inverses."""
    v = latent_scale**2
    d, r = X.shape[1], state.latent.mean.shape[1]
    phi = np.broadcast_to(state.projection_precision.mean, (d, r))
    cov = np.array([np.linalg.inv(np.diag(column) + X.T @ X / v) for column in phi.T])
    mean = np.stack([s @ X.T @ z / v for s, z in zip(cov, state.latent.mean.T, strict=True)], 1)
    return new @ mean, np.sqrt(np.einsum("md,rde,me->mr", new, cov, new) + v)


def utilities(X, state, new, latent_scale=0.5):
    """Means and standard deviations (M, G, K) of utilities at nodes, and weights of these (G,)."""
    mean, sd = latent_moments(X, state, new, latent_scale)
    nodes, node_weights = hermite(2)
    z = mean[:, None] + sd[:, None] * nodes
    full = np.concatenate([np.ones((*z.shape[:2], 1)), z], axis=2)
    w = state.weights
    variance = 1.0 + np.einsum("mgp,kpq,mgq->mgk", full, w.cov, full)
    return full @ w.mean, np.sqrt(variance), node_weights


def random_draws(target, *, size=30, d=4, r=2, k=3, latent_scale=0.8):
    """A posterior of random draws around one value."""
    rng = np.random.default_rng([43, 0])
    return BSDRDraws(
        projection=0.7 * rng.standard_normal((d, r)) + 0.2 * rng.standard_normal((size, d, r)),
        weights=1.2 * rng.standard_normal((r, k)) + 0.3 * rng.standard_normal((size, r, k)),
        bias=0.4 * rng.standard_normal((size, k)),
        latent_scale=latent_scale,
        target=target,
    )


def at_nodes(posterior, X, n_nodes=20):
    """Linear predictors (S, M, G, K) at nodes of the latent coordinates, and weights (G,)."""
    W, b = posterior.weights, posterior.bias
    nodes, weights = hermite(W.shape[1], n_nodes)
    z = (X @ posterior.projection)[:, :, None] + posterior.latent_scale * nodes
    return np.einsum("smgr,srk->smgk", z, W) + b[:, None, None], weights


@pytest.mark.parametrize(
    ("target", "prior", "latent_scale"),
    [
        *product(["multiclass"], ["entrywise", "columnwise", "rowwise"], [0.1, 0.8]),
        ("multilabel", "entrywise", 0.5),
        ("regression", "entrywise", 0.5),
    ],
)
def test_predictions_are_those_of_the_paper(target, prior, latent_scale, many_draws):
    """Section II-B3, with the latent coordinates integrated out; labels are marginal."""
    X, state, posterior = mean_field(target, prior=prior, latent_scale=latent_scale)
    new = 1.5 * np.random.default_rng(1).standard_normal((6, 4))
    mean, sd, weights = utilities(X, state, new, latent_scale)
    given = {"multiclass": choice(mean, sd), "multilabel": ndtr(mean / sd), "regression": mean}
    expected = np.einsum("mgk,g->mk", given[target], weights)
    assert expected.std(axis=0).min() > 0.03
    if target == "regression":
        coef, bias = posterior.effects()
        np.testing.assert_allclose(new @ coef + bias, expected, atol=0.05 * sd.max())
        return
    got = np.exp(posterior.log_probabilities(new))
    if target == "multiclass":
        np.testing.assert_allclose(got.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(got, expected, atol=OF_DRAWS)


def test_directions_outside_the_row_space_have_their_prior_variance(many_draws):
    """Row-space coordinates against dense algebra over all features."""
    X, state, posterior = mean_field("multiclass", prior="columnwise", n=9, d=20)
    new = np.random.default_rng(2).standard_normal((3, 20))
    mean, sd = latent_moments(X, state, new)
    found = posterior.embed(new)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.std, sd, rtol=1e-8)


def test_draws_of_weights_and_biases_have_the_moments_of_q(many_draws):
    _, state, posterior = mean_field("multiclass", n=9)
    q = state.weights
    for k in range(3):
        draws = np.column_stack([posterior.bias[:, k], posterior.weights[:, :, k]])
        size = np.sqrt(np.diag(q.cov[k]))
        np.testing.assert_allclose((draws.mean(axis=0) - q.mean[:, k]) / size, 0.0, atol=0.06)
        error = (np.cov(draws.T) - q.cov[k]) / np.outer(size, size)
        assert np.abs(error).max() < 0.1


@pytest.mark.parametrize("r", [1, 2])
def test_probabilities_by_draws_are_means_over_their_latent_coordinates(r):
    posterior = random_draws("multiclass", r=r, size=10)
    new = np.random.default_rng(8).standard_normal((3, 4))
    eta, weights = at_nodes(posterior, new)
    expected = np.einsum("smgk,g->mk", choice(eta), weights) / 10
    np.testing.assert_allclose(np.exp(posterior.log_probabilities(new)), expected, atol=ERROR)
    at = new @ posterior.projection[0]
    same = replace(posterior, projection=np.tile(posterior.projection[:1], (10, 1, 1)))
    found = np.exp(posterior.log_probabilities_at(at))
    np.testing.assert_allclose(found, np.exp(same.log_probabilities(new)), atol=2.0 * ERROR)


def test_embedding_by_draws_has_their_moments():
    posterior = random_draws("multiclass", size=400)
    new = np.random.default_rng(10).standard_normal((3, 4))
    z = np.einsum("md,sdr->msr", new, posterior.projection)
    got = posterior.embed(new)
    np.testing.assert_allclose(got.mean, z.mean(axis=1), rtol=1e-10)
    for cov, each in zip(got.cov, z, strict=True):
        expected = np.cov(each.T, bias=True) + 0.8**2 * np.eye(2)
        np.testing.assert_allclose(cov, expected, rtol=1e-10)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_log_likelihood_of_labels_is_the_integral_over_the_latent(target):
    """By tensor quadrature over latent coordinates and utilities, for each draw."""
    posterior = random_draws(target, size=5)
    rng = np.random.default_rng(11)
    X = 1.5 * rng.standard_normal((10, 4))
    y = np.arange(10) % 3 if target == "multiclass" else rng.random((10, 3)) < 0.5
    eta, weights = at_nodes(posterior, X)
    if target == "multiclass":
        of_classes = choice(eta)
        each = np.log(np.maximum(of_classes[:, np.arange(10), :, y], 1e-300)).transpose(1, 0, 2)
    else:
        each = log_ndtr(np.where(y, 1.0, -1.0)[:, None] * eta).sum(axis=-1)
    expected = logsumexp(each, b=weights, axis=-1)
    got = posterior.log_likelihood(X, y)
    assert got.shape == (5, 10)
    assert expected.min() < -6.0
    np.testing.assert_allclose(got, expected, atol=0.05)
    assert np.abs(got - expected).mean() < 0.01


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_predictions_do_not_depend_on_the_batch(target, monkeypatch):
    """Also across blocks of samples."""
    X, _ = toy(target)
    posterior = random_draws(target)
    predict = posterior.log_probabilities
    together = predict(X)
    alone = np.concatenate([predict(x[None]) for x in X])
    monkeypatch.setattr(draws_module, "_BLOCK", 7 * posterior.bias.size)
    assert np.isfinite(together).all()
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    np.testing.assert_allclose(predict(X), together, rtol=1e-9)


def test_a_fit_whose_components_are_zero_says_so():
    """Two samples of each of many classes: the bound is largest without any component."""
    rng = np.random.default_rng(0)
    y = np.arange(16) % 8
    X = rng.standard_normal((16, 100)) + rng.standard_normal((8, 100))[y]
    with pytest.warns(UserWarning, match="all components are zero"):
        model = PaperBSDRClassifier(n_components=3, random_state=0).fit(X, y)
    assert np.ptp(model.predict_proba(X), axis=0).max() < 0.01
