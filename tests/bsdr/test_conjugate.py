"""Exact posterior of the regression model against dense formulas, quadrature and simulation."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp

from bsdr_models.bsdr import conjugate
from bsdr_models.bsdr.conjugate import Statistics, fit_conjugate, integrate
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem

# All differ, and none is neutral.
PRIORS = HierarchicalPriors(
    scale=1.3, view_width=0.6, bias_scale=2.7, noise_location=-0.8, noise_width=0.7
)
# Samples and features: more samples, more features, no remainder of the constant.
SIZES = [(9, 3), (5, 8), (4, 4)]


def problem(n=9, b=3, k=2, *, seed=0, views=None):
    """Features that are neither centred nor orthogonal."""
    rng = np.random.default_rng(seed)
    X = 0.2 + rng.standard_normal((n, b))
    return BSDRProblem(
        X=X,
        y=rng.standard_normal((n, k)),
        n_labels=k,
        target="regression",
        priors=PRIORS,
        views=views,
    )


def learn(this):
    return Statistics.learn(this.X, this.y, PRIORS.bias_scale)


def fit(this, n_draws=50, seed=0):
    return fit_conjugate(this, n_draws=n_draws, rng=np.random.default_rng(seed))


def covariance(X, tau, sigma):
    """Sigma (N, N) from its definition."""
    return sigma**2 * np.eye(len(X)) + tau**2 * X @ X.T + PRIORS.bias_scale**2


def quadrature(X, y, n_nodes=240):
    """Log evidence from dense determinants over a fixed grid, and the mean of log tau."""
    log_tau = np.linspace(-14.0, 3.0, n_nodes)
    log_sigma = np.linspace(-7.0, 4.0, n_nodes)
    tau, sigma = np.exp(log_tau)[:, None, None, None], np.exp(log_sigma)[:, None, None]
    dense = sigma**2 * np.eye(len(X)) + tau**2 * X @ X.T + PRIORS.bias_scale**2
    log_det = np.linalg.slogdet(dense)[1]
    solved = np.linalg.solve(dense, y)
    square = np.einsum("nk,tsnk->tsk", y, solved)
    each = -0.5 * (square + log_det[..., None] + len(X) * np.log(2.0 * np.pi))
    prior = stats.norm.logpdf(log_sigma, PRIORS.noise_location, PRIORS.noise_width)
    by_scale = logsumexp(each + prior[:, None], axis=1) + np.log(log_sigma[1] - log_sigma[0])
    tau = np.exp(log_tau)
    total = by_scale.sum(axis=1) + stats.halfnorm.logpdf(tau, scale=PRIORS.scale) + log_tau
    mean = np.exp(total - logsumexp(total)) @ log_tau
    return logsumexp(total) + np.log(log_tau[1] - log_tau[0]), mean


def check_marginal(n, b):
    this = problem(n, b)
    found = learn(this)
    for tau, sigma in ((0.7, 0.3), (3.0, 1e-3), (1e-6, 2.0)):
        for k in range(2):
            expected = stats.multivariate_normal.logpdf(
                this.y[:, k], cov=covariance(this.X, tau, sigma)
            )
            value = found.log_marginal(k, np.array([tau]), np.array([sigma]))
            assert_allclose(value, expected, rtol=1e-6)


def check_evidence(n, b):
    this = problem(n, b)
    grid = integrate(learn(this), PRIORS)
    expected, mean = quadrature(this.X, this.y)
    assert_allclose(grid.log_evidence, expected, atol=2e-3)
    weight = np.exp(grid.density - logsumexp(grid.density))
    assert_allclose(weight @ grid.scale, mean, atol=2e-3)


def check_loadings(n, b):
    """Mean and covariance of loadings and biases given the hyper-parameters."""
    this, n_draws, tau, sigma = problem(n, b), 40_000, 0.8, np.array([0.4, 1.1])
    normal, bias = conjugate.draw_loadings(
        learn(this),
        np.full(n_draws, tau),
        np.tile(sigma, (n_draws, 1)),
        np.random.default_rng(1),
    )
    design = np.column_stack([tau * this.X, np.full(n, PRIORS.bias_scale)])
    for k in range(2):
        dense = np.linalg.inv(np.eye(b + 1) + design.T @ design / sigma[k] ** 2)
        draws = np.column_stack([normal[:, k], bias[:, k]])
        error = np.sqrt(np.diag(dense) / n_draws)
        mean = dense @ design.T @ this.y[:, k] / sigma[k] ** 2
        assert (np.abs(draws.mean(axis=0) - mean) < 5.0 * error).all()
        assert_allclose(np.cov(draws.T), dense, atol=0.04)


def check_leave_one_out(n, b):
    this = problem(n, b)
    tau, sigma = np.array([0.7, 2.0]), np.array([[0.3, 0.9], [0.05, 1.5]])
    statistics = learn(this)
    value = sum(
        conjugate.leave_one_out(statistics, k, slice(None), tau, sigma[:, k]) for k in range(2)
    )
    for s in range(2):
        for i in range(n):
            others, expected = np.arange(n) != i, 0.0
            for k in range(2):
                full = covariance(this.X, tau[s], sigma[s, k])
                expected += stats.multivariate_normal.logpdf(this.y[:, k], cov=full)
                expected -= stats.multivariate_normal.logpdf(
                    this.y[others, k], cov=full[np.ix_(others, others)]
                )
            assert_allclose(value[i, s], expected, rtol=1e-6, atol=1e-6)


def check_score(n, b):
    """The score of a sample is the evidence of all over the evidence of the others."""
    this = problem(n, b)
    score, total = fit(this).log_score, integrate(learn(this), PRIORS).log_evidence
    for i in range(n):
        others = this.select(np.arange(n) != i)
        assert_allclose(
            score[i],
            total - integrate(learn(others), PRIORS).log_evidence,
            atol=0.05 if n < 9 else 5e-3,
        )


def check_densities(n, b):
    """Likelihood and prior of the draws from SciPy's distributions."""
    this = problem(n, b)
    result, priors = fit(this), PRIORS
    draws = result.draws
    eta = draws.linear_predictor(this.X)
    expected = stats.norm.logpdf(this.y, eta, draws.noise_scale[:, None]).sum(axis=(1, 2))
    assert_allclose(result.log_likelihood, expected, rtol=1e-8)
    prior = stats.norm.logpdf(draws.projection / draws.scale[:, None, None]).sum(axis=(1, 2))
    prior += stats.norm.logpdf(draws.bias / priors.bias_scale).sum(axis=1)
    prior += stats.halfnorm.logpdf(draws.scale, scale=priors.scale) + np.log(draws.scale)
    prior += stats.norm.logpdf(
        np.log(draws.noise_scale), priors.noise_location, priors.noise_width
    ).sum(axis=1)
    assert_allclose(result.log_prior, prior, rtol=1e-8)


def check_hyper_parameters(n, b):
    """Draws have the moments of the grid."""
    statistics = learn(problem(n, b))
    grid = integrate(statistics, PRIORS)
    log_tau, log_sigma = grid.draw(40_000, np.random.default_rng(2))
    weight = np.exp(grid.density - logsumexp(grid.density))
    noise = np.exp(grid.noise_density - logsumexp(grid.noise_density, axis=2, keepdims=True))
    weights = weight[:, None, None] * noise
    for draws, place, share in [
        (log_tau, grid.scale, weight),
        *((log_sigma[:, k], grid.noise[:, k], weights[:, k]) for k in range(2)),
    ]:
        mean = np.sum(share * place)
        variance = np.sum(share * (place - mean) ** 2)
        assert abs(draws.mean() - mean) < 4.5 * np.sqrt(variance / len(draws))
        assert draws.var() == pytest.approx(variance, rel=0.05)
    assert len(np.unique(log_tau)) == len(log_tau)


@pytest.mark.parametrize(("n", "b"), SIZES)
@pytest.mark.parametrize(
    "check",
    [
        check_marginal,
        check_evidence,
        check_loadings,
        check_leave_one_out,
        check_densities,
        check_hyper_parameters,
    ],
)
def test_exact(check, n, b):
    check(n, b)


@pytest.mark.parametrize(("n", "b"), SIZES[:2])
def test_score_is_a_ratio_of_evidences(n, b):
    check_score(n, b)


def test_the_empty_model():
    this = problem()
    result = fit(this)
    expected, _ = quadrature(0.0 * this.X, this.y)
    empty = fit(dataclasses.replace(this, X=this.X[:, :0]))
    assert empty.draws.projection.shape == (50, 2, 0)
    assert_allclose(empty.log_evidence, expected, atol=2e-3)
    for score in (result.log_score_empty, empty.log_score_empty):
        assert_allclose(score, empty.log_score, atol=1e-6)


@pytest.mark.slow
def test_views_are_scaled_by_what_they_explain():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 8))
    y = X[:, :4] @ rng.standard_normal((4, 2)) + 0.2 * rng.standard_normal((40, 2))
    views = np.repeat([0, 1], 4)
    this = BSDRProblem(X=X, y=y, n_labels=2, target="regression", priors=PRIORS, views=views)
    result = fit(this)

    def log_posterior(scales):
        scaled = dataclasses.replace(this, X=X * scales[views])
        prior = stats.norm.logpdf(np.log(scales), scale=PRIORS.view_width).sum()
        return prior + integrate(learn(scaled), PRIORS).log_evidence

    mode = result.draws.view_scale[0]
    best = log_posterior(mode)
    for move in ([1.1, 1.0], [0.9, 1.0], [1.0, 1.1], [1.0, 0.9]):
        assert log_posterior(mode * move) < best
    assert result.draws.view_scale.shape == (50, 2)
    assert result.draws.view_scale[0, 0] > 2.0 * result.draws.view_scale[0, 1]
    one = fit(dataclasses.replace(this, views=None))
    assert result.log_evidence > one.log_evidence
    assert result.log_score.sum() > one.log_score.sum()
    eta = result.draws.linear_predictor(X)
    expected = stats.norm.logpdf(y, eta, result.draws.noise_scale[:, None]).sum(axis=(1, 2))
    assert_allclose(result.log_likelihood, expected, rtol=1e-8)


def test_outputs_without_signal():
    rng = np.random.default_rng(4)
    this = problem(60, 20)
    this = dataclasses.replace(this, y=rng.standard_normal((60, 2)))
    result = fit(this, 400)
    assert result.log_score.mean() < result.log_score_empty.mean() + 0.01
    assert np.median(result.draws.scale) < 0.15
    assert_allclose(result.draws.noise_scale.mean(axis=0), 1.0, atol=0.2)


def test_outputs_without_noise():
    """Noise of any small scale explains them, and none makes anything overflow."""
    rng = np.random.default_rng(5)
    for n, b in ((12, 30), (40, 5)):
        this = problem(n, b)
        this = dataclasses.replace(this, y=this.X @ rng.standard_normal((b, 2)))
        result = fit(this)
        eta = result.draws.linear_predictor(this.X)
        assert np.isfinite(result.log_score).all()
        assert np.isfinite(result.log_evidence + result.log_likelihood + result.log_prior).all()
        if n > b:
            assert_allclose(eta, np.broadcast_to(this.y, eta.shape), atol=1e-4)


def test_copies_and_constant_features():
    this = problem()
    wide = np.column_stack([this.X / np.sqrt(2.0), this.X / np.sqrt(2.0), np.zeros(len(this.X))])
    result = fit(dataclasses.replace(this, X=wide))
    expected = fit(this)
    assert_allclose(result.log_evidence, expected.log_evidence, rtol=1e-9)
    assert_allclose(result.log_score, expected.log_score, atol=2e-3)


@pytest.mark.parametrize(("n", "b"), SIZES)
def test_weights_are_exponents_of_the_likelihood(n, b):
    """The evidence given tau and sigma is the integral of the powers of the densities."""
    this = problem(n, b)
    weights = np.random.default_rng(7).uniform(0.2, 1.0, n)
    statistics = Statistics.learn(this.X, this.y, PRIORS.bias_scale, weights)
    tau, sigma = 0.7, 0.4
    # A power of a normal density is one of variance sigma^2 / w, times a constant.
    dense = covariance(this.X, tau, 0.0) + np.diag(sigma**2 / weights)
    for k, y in enumerate(this.y.T):
        constant = 0.5 * np.sum((1.0 - weights) * np.log(2.0 * np.pi * sigma**2))
        constant -= 0.5 * np.sum(np.log(weights))
        expected = stats.multivariate_normal.logpdf(y, cov=dense) + constant
        found = statistics.log_marginal(k, np.array([tau]), np.array([sigma]))[0]
        assert found == pytest.approx(expected, rel=1e-8)


def test_many_samples():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((5000, 4))
    p = rng.standard_normal((4, 2))
    y = X @ p + 1.0 + np.array([0.3, 0.01]) * rng.standard_normal((5000, 2))
    this = BSDRProblem(X=X, y=y, n_labels=2, target="regression", priors=PRIORS)
    result = fit(this)
    draws = result.draws
    assert_allclose(draws.noise_scale.mean(axis=0), [0.3, 0.01], rtol=0.04)
    assert_allclose(draws.noise_scale.std(axis=0) / [0.3, 0.01], 0.5**0.5 / 5e3**0.5, rtol=0.4)
    assert_allclose(draws.projection.mean(axis=0), p.T, atol=0.02)
    # Little is left to learn from one more sample.
    eta = draws.linear_predictor(X)
    plain = stats.norm.logpdf(y, eta, draws.noise_scale[:, None]).sum(axis=2)
    plain = logsumexp(plain, axis=0) - np.log(len(eta))
    assert result.log_score.mean() == pytest.approx(plain.mean(), abs=4e-3)


@pytest.mark.parametrize("n_sd", [0, 10])
@pytest.mark.parametrize("d", [5, 60])
def test_left_out_outliers_are_ratios_of_evidences(n_sd, d):
    """Hyper-parameters without an outlier lie far from those with it."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, d)) / np.sqrt(d)
    y = (X @ rng.standard_normal(d) + 0.1 * rng.standard_normal(30))[:, None]
    y[4] += n_sd * y.std()
    this = BSDRProblem(X=X, y=y, n_labels=1, target="regression", priors=HierarchicalPriors())
    found = fit(this, 1)
    for sample in (0, 4):
        without = fit(this.select(np.arange(30) != sample), 1)
        expected = found.log_evidence - without.log_evidence
        assert found.log_score[sample] == pytest.approx(expected, abs=1e-2)
