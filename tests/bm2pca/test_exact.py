"""Terms of BM2PCA's bound against exact evidences, where factors are points or grids are small."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import gammaln

from bsdr_models.bm2pca.views import make_view
from bsdr_models.numerics.factors import Gamma
from bsdr_models.papers.bm2pca import mean_field as mf
from bsdr_models.papers.bm2pca.loss_augmentation import margins_of

LOG_2PI = np.log(2.0 * np.pi)


def known_gamma(value):
    value = np.asarray(value, dtype=float)
    return Gamma(shape=np.full_like(value, 1e9), rate=1e9 / value)


def known(lab, problem, rng):
    """A state without variance, away from any optimum."""
    state = lab.scrambled(problem, rng)
    own = tuple(
        replace(
            view,
            loadings=replace(
                view.loadings, cov=0.0 * view.loadings.cov, log_det=0.0 * view.loadings.log_det
            ),
            loading_precision=known_gamma(view.loading_precision.mean),
            offset=replace(view.offset, variance=0.0 * view.offset.variance + 1e-300),
            noise_precision=known_gamma(view.noise_precision.mean),
        )
        for view in state.views
    )
    z, w = state.latent, state.weights
    return replace(
        state,
        views=own,
        latent=mf.make_latent(z.mean, 0.0 * z.cov, 0.0 * z.log_det, problem.data),
        weights=replace(w, cov=0.0 * w.cov, log_det=0.0 * w.log_det),
        weight_precision=known_gamma(state.weight_precision.mean),
    )


def conditioned(y, prior_cov, design, noise):
    """y = design w + noise of these variances: log p(y), E[w | y], Cov[w | y], from their joint."""
    cov_y = design @ prior_cov @ design.T + np.diag(noise)
    gain = np.linalg.solve(cov_y, design @ prior_cov).T
    evidence = stats.multivariate_normal(np.zeros(len(y)), cov_y).logpdf(y)
    return evidence, gain @ y, prior_cov - gain @ design @ prior_cov


def features(problem, state):
    """Points W, t and tau of each view, over all features."""
    for X, own, view in zip(problem.X, state.views, problem.data.views, strict=True):
        t = view.to_features(own.offset.mean)
        W = view.to_features(own.loadings.mean)
        yield X, W, t, own.noise_precision.mean, own


def close(value, expected):
    np.testing.assert_allclose(value, expected, rtol=1e-7, atol=1e-9)


def gamma_evidence(shape, rate, count, square):
    """Log density of normals of one Gamma precision, by their number and sum of squares."""
    a, b = shape + 0.5 * count, rate + 0.5 * square
    constant = shape * np.log(rate) - gammaln(shape) - 0.5 * count * LOG_2PI
    return constant + gammaln(a) - a * np.log(b)


def test_precisions_give_the_exact_evidence(lab, case):
    problem, prior = lab.make_problem(case), lab.PRIORS
    state = known(lab, problem, np.random.default_rng(6))
    state = lab.updated(problem, state, "noise_precision", "loading_precision", "weight_precision")
    terms = mf.bound_terms(state, problem.data, problem.priors)
    r = problem.n_components
    weights = state.weights.mean
    Z, noise, columns, n_loadings = state.latent.mean, 0.0, 0.0, 0
    for X, W, t, _, _ in features(problem, state):
        residuals = X - Z @ W.T - t
        count, square = np.sum(~np.isnan(residuals)), np.nansum(residuals**2)
        noise += gamma_evidence(prior.noise_shape, prior.noise_rate, count, square)
        squares = np.sum(W**2, axis=0)
        columns += gamma_evidence(prior.loading_shape, prior.loading_rate, len(W), squares).sum()
        n_loadings += W.size
    close(terms["features"] + terms["noise_precision"], noise)
    entropy = 0.5 * n_loadings * (1.0 + LOG_2PI)
    close(terms["loadings"] + terms["loading_precision"] - entropy, columns)
    squares = np.sum(weights**2, axis=0)
    expected = gamma_evidence(prior.weight_shape, prior.weight_rate, 1 + r, squares).sum()
    entropy = 0.5 * weights.size * (1.0 + LOG_2PI)
    close(terms["weights"] + terms["weight_precision"] - entropy, expected)


def classifier(lab, *, Z, y, nu, cost):
    """A state with known Z and nu, its weights and slack scales at a fixed point; and the bound."""
    n, r = Z.shape
    X = np.random.default_rng(0).standard_normal((n, r + 1))
    data = mf.ViewData(
        X=X,
        views=(make_view(X),),
        margins=margins_of(y[:, None], cost, None),
    )
    state = mf.init(data, lab.PRIORS, n_components=r, rng=np.random.default_rng(0))
    state = replace(
        state,
        latent=mf.make_latent(Z, np.zeros((n, r, r)), np.zeros(n), data),
        weight_precision=known_gamma([nu]),
    )
    for _ in range(500):
        state = replace(state, weights=mf.update_weights(state, data))
        state = replace(state, slack=mf.update_slack(state, data))
    terms = mf.bound_terms(state, data, lab.PRIORS)
    return state, terms["weights"] + terms["margins"]


@pytest.mark.parametrize("cost", [0.2, 1.0, 5.0])
def test_bound_of_a_small_classifier_beside_its_pseudo_evidence(lab, cost):
    """The best over q is the best over s of a Gaussian evidence, and just below the integral."""
    Z, y, nu = np.array([[0.4], [-1.1], [0.9]]), np.array([1.0, -1.0, -1.0]), 0.7
    state, bound = classifier(lab, Z=Z, y=y, nu=nu, cost=cost)
    rows = np.column_stack([np.ones(3), Z[:, 0]])

    def evidence_at(log_s):
        s = np.exp(log_s)
        slopes = (-cost * y)[:, None] * rows
        found = conditioned(-s - cost, np.eye(2) / nu, slopes, s)[0]
        return -found - 0.5 * np.log(2.0 * np.pi * s).sum()

    best = optimize.minimize(
        evidence_at, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    assert bound == pytest.approx(-best.fun, abs=1e-9)
    np.testing.assert_allclose(state.slack[0, :, 0], np.exp(best.x), rtol=1e-5)

    grid = np.linspace(-9.0, 9.0, 901)
    f = grid[:, None, None] + grid[:, None] * Z[:, 0]  # bias, weight, row
    log_density = stats.norm.logpdf(grid, 0.0, nu**-0.5)
    log_f = (
        log_density[:, None] + log_density - 2.0 * cost * np.maximum(0.0, 1.0 - y * f).sum(axis=2)
    )
    evidence = np.log(np.exp(log_f).sum()) + 2.0 * np.log(grid[1] - grid[0])
    assert 0.0 < evidence - bound < 1.0  # of -2 to -25
