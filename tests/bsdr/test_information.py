"""The covariance of the projection with latents and scores integrated out."""

import numpy as np
import pytest

from bsdr_models.bsdr import information
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.bsdr.fit import fit_mean_field
from bsdr_models.bsdr.predict import MeanFieldPosterior
from bsdr_models.bsdr.priors import SAMPLING, Priors
from bsdr_models.data import make_data
from bsdr_models.numerics import normal_tail, orthant


def problem(target, *, n=40, d=5, seed=0, projection_prior="entrywise", latent_scale=0.3):
    """A fitted state on simulated rows; overlapping labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = X @ rng.standard_normal((d, 3)) + rng.standard_normal((n, 3))
    y = {"multiclass": scores.argmax(1), "multilabel": scores > 0, "regression": scores}[target]
    data = make_data(X, y, n_labels=3, target=target, projection_prior=projection_prior)
    result = fit_mean_field(
        data,
        Priors(latent_scale=latent_scale),
        n_components=2,
        projection_prior=projection_prior,
        rng=rng,
        max_iter=100,
    )
    return X, data, result.state


def log_likelihood(eta, data, tau):
    """log p(y_n | eta_n), (N,)."""
    if data.target == "multiclass":
        return orthant.log_prob(eta, data.y, n_nodes=32)
    if data.target == "multilabel":
        signs = np.where(data.y, 1.0, -1.0)
        return np.sum([normal_tail.positive_probit_moments(eta, signs)[0]], axis=0)
    return -0.5 * np.sum(tau * (data.y - eta) ** 2, axis=1)


@pytest.mark.parametrize("target", ["multiclass", "multilabel", "regression"])
def test_information_is_the_curvature_of_the_likelihood(target):
    """Second differences of log p(y | eta) in the latent position, then the latent noise."""
    _, data, state = problem(target)
    latent_scale, step = 0.3, 1e-3
    W, b = state.weights.mean[1:], state.weights.mean[0]
    tau = 1.0 if state.noise_precision is None else state.noise_precision.mean
    z = state.projection.fitted

    def value(shift):
        each = log_likelihood((z + shift) @ W + b, data, tau)
        return each if each.ndim == 1 else each.sum(axis=1)

    curvature = np.empty((len(z), 2, 2))
    for i in range(2):
        for j in range(2):
            e, f = step * np.eye(2)[i], step * np.eye(2)[j]
            second = value(e + f) - value(e - f) - value(f - e) + value(-e - f)
            curvature[:, i, j] = -second / (4.0 * step**2)
    total = np.linalg.inv(np.linalg.inv(curvature) + latent_scale**2 * np.eye(2))
    got = information.row_information(state, data, latent_scale)
    np.testing.assert_allclose(got, np.einsum("nss->ns", total), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("projection_prior", ["entrywise", "columnwise", "rowwise"])
@pytest.mark.parametrize("shape", [(40, 5), (12, 30)])
def test_variance_of_positions_and_loadings_is_the_dense_inverse(projection_prior, shape):
    n, d = shape
    X, data, state = problem("multiclass", n=n, d=d, projection_prior=projection_prior)
    rows = np.random.default_rng(1).standard_normal((7, d))
    weights = information.row_information(state, data, 0.3)
    phi = np.broadcast_to(state.projection_precision.mean, (data.n_features, 2))
    if projection_prior == "columnwise":
        phi = np.broadcast_to(phi[:1], (d, 2))
    covs = [
        np.linalg.inv(np.diag(p) + (X.T * a) @ X) for p, a in zip(phi.T, weights.T, strict=True)
    ]

    posterior = MeanFieldPosterior(state=state, data=data, latent_scale=0.3)
    positions = posterior.positions(rows)
    expected = np.array([np.einsum("md,de,me->m", rows, c, rows) for c in covs]).T + 0.3**2
    np.testing.assert_allclose(np.einsum("mrr->mr", positions.cov), expected, rtol=1e-7)
    np.testing.assert_allclose(
        information.loading_variance(state, data, 0.3),
        np.array([np.diag(c) for c in covs]).T,
        rtol=1e-7,
    )
    training = posterior.training_positions()
    assert np.all(np.einsum("nrr->nr", training.cov) > np.diag(state.latent.cov))
    assert np.all(np.einsum("nrr->nr", training.cov) < np.inf)


def test_positions_are_less_sure_on_noise_than_on_signal():
    """The map must show that there is nothing to see."""
    rng = np.random.default_rng(2)
    y = np.arange(60) % 3
    noise = rng.standard_normal((60, 10))
    signal = noise + 3.0 * np.eye(3)[y] @ rng.standard_normal((3, 10))
    ratios = []
    for X in (signal, noise):
        model = BSDRClassifier(latent_scale=0.1, random_state=0).fit(X, y)
        mean, cov = model.transform(X, return_cov=True)
        ratios.append(np.sqrt(np.einsum("nrr->nr", cov)).mean() / mean.std(axis=0).mean())
    assert ratios[0] < 1.0 < ratios[1]


@pytest.mark.slow
def test_loading_spread_is_nearer_to_gibbs_than_that_of_q():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 6))
    W = np.array([[1.5, -1.5, 0.0], [0.0, 1.2, -1.2]])
    z = X @ (0.7 * rng.standard_normal((6, 2))) + 0.1 * rng.standard_normal((300, 2))
    y = (z @ W + rng.standard_normal((300, 3))).argmax(axis=1)
    options = {"projection_prior": "entrywise", "latent_scale": 0.1, "priors": SAMPLING}
    gibbs = BSDRClassifier(inference="gibbs", draws=500, tune=300, random_state=0, **options)
    gibbs.fit(X, y)
    model = BSDRClassifier(random_state=0, **options).fit(X, y)
    fit = model._mixture.fits[0].posterior

    def relative(sd, weights):
        """Spread of Q W, which does not depend on the scale that Q and W share."""
        return float(np.sqrt(sd**2 @ (weights - weights.mean(axis=1, keepdims=True)) ** 2).mean())

    W_fit = fit.state.weights.mean[1:]
    reference = float(gibbs.idata_["posterior"]["coef"].std(("chain", "draw")).mean())
    own = relative(np.sqrt(fit.state.projection.variance), W_fit)
    better = relative(model.idata_["fit"]["projection_sd"].to_numpy(), W_fit)
    assert own < 0.3 * reference
    assert 0.5 * reference < better < 1.5 * reference
