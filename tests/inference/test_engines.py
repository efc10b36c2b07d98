"""PyMC's engines against a conjugate posterior, and what they keep."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from pytensor.compile.mode import get_mode

from bsdr_models.inference import engines
from bsdr_models.inference.engines import fit_advi, sample_nuts

FAST = {"mode": "FAST_COMPILE"}


@pytest.fixture(scope="module")
def y():
    return np.random.default_rng(0).normal([1.0, -2.0], 1.0, size=(8, 2))


@pytest.fixture(scope="module")
def model(y):
    """b ~ N(0, 1), y ~ N(b, 1): posterior N(sum y / (N + 1), 1 / (N + 1)) for each label."""
    with pm.Model(coords={"obs": range(len(y)), "outcome": ["left", "right"]}) as model:
        b = pm.Normal("bias", dims="outcome")
        pm.Normal("y", b, 1.0, observed=y, dims=("obs", "outcome"))
    return model


@pytest.fixture
def fast_nuts(monkeypatch):
    """PyMC's sampler without compilation."""
    fast = partial(pm.sample, cores=1, nuts_sampler="pymc", compile_kwargs=FAST)
    monkeypatch.setattr(engines.pm, "sample", fast)


@pytest.fixture
def fast_fit(monkeypatch):
    monkeypatch.setattr(engines, "get_default_mode", lambda: get_mode(FAST["mode"]))


def exact(y):
    return y.sum(axis=0) / (len(y) + 1), (len(y) + 1) ** -0.5


def run(engine, model, seed, **options):
    """Draws of the biases, (chain, draw, 2), and all results."""
    rng = np.random.default_rng(seed)
    sampled = engine(model, var_names=["bias"], rng=rng, **options)
    return sampled.draws["bias"], sampled


def test_nuts_finds_a_conjugate_posterior(model, y, fast_nuts, capfd):
    options = {"draws": 200, "tune": 200, "chains": 2, "target_accept": 0.8}
    bias, sampled = run(sample_nuts, model, 1, **options)
    mean, sd = exact(y)
    assert bias.shape == (2, 200, 2)
    # NUTS has at least 100 effective draws of a normal here: four standard errors.
    np.testing.assert_allclose(bias.mean(axis=(0, 1)), mean, atol=4 * sd / 10)
    np.testing.assert_allclose(bias.std(axis=(0, 1)), sd, rtol=0.3)
    assert sampled.sample_stats["diverging"].shape == (2, 200)
    assert not sampled.interrupted
    assert capfd.readouterr() == ("", "")


def test_draws_are_of_the_variables_that_are_asked_for(fast_nuts, monkeypatch):
    """Also of a sampler that returns all, as nutpie does with free variables."""
    sample = engines.pm.sample

    def sample_all(*arguments, var_names, **options):
        return sample(*arguments, **options)

    monkeypatch.setattr(engines.pm, "sample", sample_all)
    with pm.Model() as model:
        pm.Deterministic("twice", 2.0 * pm.Normal("bias"))
    _, sampled = run(sample_nuts, model, 3, draws=5, tune=5, chains=1)
    assert list(sampled.draws) == ["bias"]


def test_the_seed_decides_the_draws(model, fast_nuts):
    options = {"draws": 5, "tune": 5, "chains": 1}
    one, same, other = (run(sample_nuts, model, seed, **options)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_interrupted_nuts_keeps_what_it_has(model, fast_nuts, monkeypatch):
    def stop(trace, draw):
        if not draw.tuning and draw.draw_idx >= 50 + 19:
            raise KeyboardInterrupt

    monkeypatch.setattr(engines.pm, "sample", partial(pm.sample, callback=stop))
    bias, sampled = run(sample_nuts, model, 2, draws=500, tune=50, chains=1)
    assert sampled.interrupted
    assert 1 <= bias.shape[1] <= 20


@pytest.mark.parametrize(
    ("lengths", "chains", "n_draws"),
    [([7, 0, 5], [0, 2], 5), ([9, 9, 9], [0, 1, 2], 9), ([4, 4, 3], [0, 1, 2], 3)],
)
def test_chains_that_were_cut_short_are_trimmed(lengths, chains, n_draws):
    """Of the runs that nutpie pads with NaN, the draws of all chains that have begun."""
    bias = np.full((3, 9, 2), np.nan)
    for chain, length in enumerate(lengths):
        bias[chain, :length] = chain
    posterior, stats = engines._complete({"bias": bias}, {"lp": bias[..., 0]})
    assert posterior["bias"].shape == (len(chains), n_draws, 2)
    np.testing.assert_array_equal(stats["lp"][:, -1], chains)


def test_nothing_drawn_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        engines._complete({"bias": np.full((2, 3), np.nan)}, {})


@pytest.mark.slow
def test_divergences_are_not_silent(fast_nuts):
    """Neal's funnel, with long steps."""
    with pm.Model(coords={"outcome": range(5)}) as funnel:
        scale = pm.Normal("log_scale", 0.0, 3.0)
        pm.Normal("bias", 0.0, pm.math.exp(scale), dims="outcome")
    with pytest.warns(UserWarning, match="transitions diverged"):
        run(sample_nuts, funnel, 5, draws=300, tune=100, chains=1, target_accept=0.5)


def test_advi_is_exact_for_independent_normals(model, y, fast_fit, capfd):
    options = {"n_iterations": 600, "learning_rate": 0.05, "starts": [None], "draws": 2000}
    bias, sampled = run(fit_advi, model, 1, **options)
    mean, sd = exact(y)
    assert bias.shape[0] == 1
    # Adam jitters by about the learning rate, an eighth of sd; draws add 4 sd / sqrt(2000).
    np.testing.assert_allclose(bias.mean(axis=(0, 1)), mean, atol=0.15)
    np.testing.assert_allclose(bias.std(axis=(0, 1)), sd, rtol=0.25)
    elbo, restarts = sampled.fit["elbo"], sampled.fit["restarts"]
    assert elbo.shape == (600,)
    np.testing.assert_allclose(elbo[-60:].mean(), restarts)
    # q is the posterior, so the bound is the log evidence: y_c ~ N(0, I + 1 1').
    n = len(y)
    quadratic = (y**2).sum(axis=0) - y.sum(axis=0) ** 2 / (n + 1)
    evidence = -0.5 * (quadratic + np.log(n + 1) + n * np.log(2 * np.pi)).sum()
    np.testing.assert_allclose(restarts, evidence, atol=0.2)
    out, err = capfd.readouterr()
    assert (out.strip(), err) == ("", "")  # blank lines are of PyMC 6.3


def test_interrupted_advi_keeps_the_best_start(model, fast_fit, monkeypatch):
    def stop(approximation, losses, iteration):
        if iteration == 40:
            raise KeyboardInterrupt

    monkeypatch.setattr(engines.pm, "fit", partial(pm.fit, callbacks=[stop]))
    _, sampled = run(fit_advi, model, 2, n_iterations=100, starts=[None] * 3, draws=10)
    assert sampled.interrupted
    assert sampled.fit["restarts"].shape == (1,)
    assert 1 <= len(sampled.fit["elbo"]) <= 40


def test_nuts_by_a_given_covariance_learns_only_the_step(model, y, fast_nuts):
    """Without warm-up for scales, and far from PyMC's start."""
    mean, sd = exact(y)
    starts = [{"bias": mean + 20.0 * sd}, {"bias": mean - 20.0 * sd}]
    options = {"covariance": sd**2 * np.eye(2), "starts": starts}
    bias, sampled = run(sample_nuts, model, 6, draws=200, tune=60, chains=2, **options)
    np.testing.assert_allclose(bias.mean(axis=(0, 1)), mean, atol=4 * sd / 10)
    np.testing.assert_allclose(bias.std(axis=(0, 1)), sd, rtol=0.3)
    # In units of the standard deviation a step of order one is stable up to two.
    assert 0.3 < sampled.sample_stats["step_size"][:, -1].mean() < 2.0


def test_advi_begins_where_it_is_told(model, y, fast_fit):
    mean, _ = exact(y)
    starts = [{"bias": mean + 50.0}, {"bias": mean + 7.0}]
    options = {"n_iterations": 3, "learning_rate": 1e-6, "draws": 200}
    bias, sampled = run(fit_advi, model, 7, starts=starts, **options)
    assert sampled.fit["restarts"].shape == (2,)
    # The nearer start has the better bound; draws are within five of PyMC's first sd.
    np.testing.assert_allclose(bias.mean(axis=(0, 1)), mean + 7.0, atol=1.0)
