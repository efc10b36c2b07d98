"""Every full conditional of the Gibbs sampler against the joint density."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import stats

from bsdr_models.papers.bm2pca import gibbs, soft_margin_draws

CASES = ("binary", "shared")


def some_state(problem, *, n_chains=1, seed=0, sweeps=3):
    """A state after some sweeps."""
    rng = np.random.default_rng([41, seed])
    data = problem.data
    state = gibbs.init(
        data, problem.priors, n_components=problem.n_components, n_chains=n_chains, rng=rng
    )
    for _ in range(sweeps):
        state = gibbs.step(state, data, problem.priors, rng=rng)
    return state


def log_joint(lab, problem, state):
    """Log joint density of each chain, (C,), by plain SciPy densities."""
    return lab.log_joint(
        problem,
        {
            "latent": state.latent,
            "weights": state.weights,
            "weight_precision": state.weight_precision,
            "slack": state.slack_scale,
            "views": [
                {
                    name: getattr(state, name)
                    for name in ("loadings", "loading_precision", "offset", "noise_precision")
                }
            ],
        },
    )


@pytest.fixture(params=CASES)
def problem(request, lab):
    return lab.make_problem(request.param)


def test_log_density_has_no_slack_scales(lab, problem):
    """It is the joint density, with exp(-2 max(0, u)) for its factor given a slack scale."""
    state = some_state(problem, n_chains=3)
    margins = problem.data.margins
    f = state.latent @ state.weights[:, 1:] + state.weights[:, :1]
    u = margins.cost * (1.0 - margins.y * f)[:, None]
    slack = state.slack_scale
    given = -0.5 * np.log(2.0 * np.pi * slack) - 0.5 * (slack + u) ** 2 / slack
    change = -2.0 * np.maximum(u, 0.0) - given
    change = np.where(margins.observed, change, 0.0).sum(axis=(1, 2, 3))
    found = gibbs.log_density(state, problem.data, problem.priors)
    np.testing.assert_allclose(found, log_joint(lab, problem, state) + change, rtol=1e-10)


def test_latent(lab, problem, conditionals):
    def sample(many, rng):
        return {"latent": gibbs.sample_latent(many, problem.data, rng=rng)}

    joint = partial(log_joint, lab, problem)
    conditionals.check_normal_block(joint, some_state(problem), sample)


def test_offset_and_loadings_as_one_block(lab, problem, conditionals):
    def sample(many, rng):
        new = gibbs.sample_offset_and_loadings(many, problem.data, problem.priors, rng=rng)
        return {"offset": new.offset, "loadings": new.loadings}

    joint = partial(log_joint, lab, problem)
    conditionals.check_normal_block(joint, some_state(problem), sample)


def test_precisions(lab, problem, conditionals):
    state = some_state(problem)
    data, priors = problem.data, problem.priors
    samplers = {
        "loading_precision": lambda rng: gibbs.sample_loading_precision(state, priors, rng=rng),
        "noise_precision": lambda rng: gibbs.sample_noise_precision(state, data, priors, rng=rng),
        "weight_precision": lambda rng: gibbs.sample_weight_precision(state, priors, rng=rng),
    }
    conditionals.check_gamma_blocks(partial(log_joint, lab, problem), state, samplers)


def test_slack_scales(lab, problem, conditionals, monkeypatch):
    """The density of draw_slack_scale at its argument s."""
    state = some_state(problem)
    seen = []
    monkeypatch.setattr(gibbs, "draw_slack_scale", lambda s, *, rng: seen.append(s) or s + 1.0)
    scores = state.latent @ state.weights[:, 1:] + state.weights[:, :1]
    found = gibbs.sample_slack(problem.data.margins, scores, rng=None)
    s = np.swapaxes(seen[0], 0, 1)
    points = found[..., None] * np.random.default_rng(45).uniform(0.2, 3.0, size=4)
    log_q = -0.5 * (np.log(points) + points + s[..., None] ** 2 / points)
    log_q = log_q[np.broadcast_to(problem.known, s.shape)].sum(axis=0)

    points = np.moveaxis(points[0], -1, 0)  # (4, S, N, K)
    joint = log_joint(lab, problem, replace(conditionals.tile(state, 4), slack_scale=points))
    np.testing.assert_allclose(np.diff(log_q), np.diff(joint), atol=1e-9 * np.abs(joint).max())


def test_each_label_is_updated_given_the_margins_of_the_others(problem, conditionals, monkeypatch):
    """The distribution of Z for a label is its full conditional without that label's margins."""
    state = some_state(problem)
    data, handed = problem.data, []

    def keep(weights, precision, scores, **_):
        handed.append(scores)
        return weights, precision, np.zeros(scores.mean.shape[:2])

    monkeypatch.setattr(soft_margin_draws, "draw_soft_margin", keep)
    own = iter(range(problem.y.shape[1]))

    def same_slack(margins, scores, *, rng):
        c = next(own)
        return state.slack_scale[..., c : c + 1]

    monkeypatch.setattr(gibbs, "sample_slack", same_slack)
    after = gibbs.sample_weights_and_slack(state, data, problem.priors, rng=None)
    np.testing.assert_array_equal(after.slack_scale, state.slack_scale)
    np.testing.assert_array_equal(after.weights, state.weights)

    n, k = state.latent.shape[1:]
    for c, scores in enumerate(handed):
        others = np.arange(problem.y.shape[1]) != c
        margins = data.margins
        without = replace(margins, observed=margins.observed & others)

        def draw(probe, chains, margins=without):
            return gibbs.sample_latent(
                conditionals.tile(state, chains), replace(data, margins=margins), rng=probe
            )

        mean, cov = conditionals.normal_law(draw, n * k)
        np.testing.assert_allclose(scores.mean[0].ravel(), mean, rtol=1e-8, atol=1e-10)
        rows = cov.reshape(n, k, n, k)[np.arange(n), :, np.arange(n)]
        np.testing.assert_allclose(np.broadcast_to(scores.cov[0], rows.shape), rows, atol=1e-10)

        expected = np.where(problem.known[:, c], problem.y[:, c], 0.0)
        np.testing.assert_array_equal(scores.sign, expected)
        assert scores.cost == problem.cost
    assert len(handed) == problem.y.shape[1]


def test_coef_and_intercept_give_the_regression_of_the_score_on_x(lab):
    """E[f | x] from the joint normal of x and z, through the d x d covariance of x."""
    problem = lab.make_problem("shared")
    state = some_state(problem, n_chains=2)
    values = gibbs.to_variables(state)
    x = np.random.default_rng(46).standard_normal(state.offset.shape[1])
    for c in range(2):
        W, t = state.loadings[c], state.offset[c]
        cov = W @ W.T + np.eye(len(W)) / state.noise_precision[c]
        z = W.T @ np.linalg.solve(cov, x - t)
        expected = values["bias"][c] + z @ values["weights"][c]
        found = x @ values["coef"][c] + values["intercept"][c]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        scores = state.latent[c] @ values["weights"][c] + values["bias"][c]
        np.testing.assert_allclose(values["scores"][c], scores, rtol=1e-12)


def test_a_sweep_changes_every_variable_but_not_its_input(lab, problem):
    state = some_state(problem, n_chains=3)
    before = {k: v.copy() for k, v in gibbs.to_variables(state).items()}
    new = gibbs.step(state, problem.data, problem.priors, rng=np.random.default_rng(47))
    for name, value in gibbs.to_variables(state).items():
        np.testing.assert_array_equal(value, before[name])
        moved = gibbs.to_variables(new)[name]
        assert moved.shape == value.shape
        assert np.all(moved != value), name


def test_sweeps_are_finite_for_constant_features_and_separable_labels(lab):
    problem = lab.make_problem("binary")
    data = problem.data
    flat = replace(data, X=np.ones_like(data.X))
    far = replace(data, X=data.X + 50.0 * data.margins.y)
    for changed in (flat, far):
        rng = np.random.default_rng(48)
        state = gibbs.init(changed, problem.priors, n_components=3, n_chains=2, rng=rng)
        for _ in range(20):
            state = gibbs.step(state, changed, problem.priors, rng=rng)
        assert all(np.isfinite(value).all() for value in gibbs.to_variables(state).values())


# Slack scales, GIG(1/2, 1, s**2), against their distribution function


@pytest.mark.parametrize("s", [0.0, 1e-12, 1e-4, 0.2, 1.0, 30.0, 1e3])
def test_slack_scales_have_their_law(s):
    draws = gibbs.draw_slack_scale(np.full(20_000, s), rng=np.random.default_rng(11))
    assert np.all(draws > 0.0)
    if s < 1e-6:
        cdf = stats.chi2(1).cdf
    else:

        def cdf(x):
            return stats.invgauss.sf(1.0 / x, 1.0 / s)

    assert stats.kstest(draws, cdf).pvalue > 1e-3


def test_reciprocals_of_large_mean_keep_their_digits():
    """1 / lambda is inverse Gaussian of mean 1 / s; NumPy's own draws lose it."""
    mean, n = 1e12, 50_000
    ours = 1.0 / gibbs.draw_slack_scale(np.full(n, 1.0 / mean), rng=np.random.default_rng(13))
    numpys = np.random.default_rng(13).wald(mean, 1.0, size=n)
    assert len(np.unique(ours)) > 0.999 * n
    assert len(np.unique(numpys)) < 0.9 * n
    assert stats.kstest(ours, stats.invgauss(mean).cdf).pvalue > 1e-3
