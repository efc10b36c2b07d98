"""Every full conditional of the Gibbs sampler against the joint density."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import norm

from bsdr_models.papers.bsdr import build_model as build_paper_model
from bsdr_models.papers.bsdr import gibbs

KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")
# Every kind with every target, in both sizes in turn.
CASES = [
    (kind, target, ("tall", "wide")[(i + j) % 2])
    for i, kind in enumerate(KINDS)
    for j, target in enumerate(TARGETS)
]


def some_state(problem, *, n_chains=1, seed=0, sweeps=2):
    """A generic state that is consistent with y."""
    rng = np.random.default_rng([41, seed])
    state = gibbs.init(
        problem.data,
        replace(problem.priors, projection_prior=problem.kind),
        n_components=problem.n_components,
        n_chains=n_chains,
        rng=rng,
    )
    for _ in range(sweeps):
        state = gibbs.step(state, problem.data, problem.priors, rng=rng)
    return state


def log_joint(lab, problem, state):
    """Log joint density of each chain, (C,), by plain SciPy densities."""
    return lab.log_joint(
        problem,
        {
            "projection_precision": state.projection_precision,
            "projection": state.projection,
            "latent": state.latent,
            "weight_precision": np.concatenate(
                [state.bias_precision[:, None], state.weight_precision], axis=1
            ),
            "weights": np.concatenate([state.bias[:, None], state.weights], axis=1),
            "utilities": state.utilities,
            "noise_precision": state.noise_precision,
        },
    )


@pytest.fixture(params=CASES, ids="-".join)
def problem(request, lab):
    kind, target, size = request.param
    return lab.make_problem(kind, target, size)


def test_log_density_is_that_of_all_variables(lab, problem):
    state = some_state(problem, n_chains=3)
    found = gibbs.log_density(state, problem.data, problem.priors)
    np.testing.assert_allclose(found, log_joint(lab, problem, state), rtol=1e-10)
    stats = gibbs.sample_stats(state, problem.data, problem.priors)
    np.testing.assert_array_equal(stats["lp"], found)
    trajectories = {"acceptance_rate", "step_size"} if problem.data.target != "regression" else {}
    assert {*stats} == {"lp", "log_prior", *trajectories}
    T, tau = gibbs._response(state, problem.data)
    sd = problem.priors.latent_scale
    given = norm(problem.data.design.X @ state.projection, sd).logpdf(state.latent).sum((1, 2))
    given += norm(gibbs._eta(state), tau**-0.5).logpdf(T).sum((1, 2))
    np.testing.assert_allclose(stats["log_prior"], found - given, rtol=1e-10)
    assert all(each.shape == (3,) and np.isfinite(each).all() for each in stats.values())


def test_latent(lab, problem, conditionals):
    def sample(many, rng):
        return {"latent": gibbs.sample_latent(many, problem.data, problem.priors, rng=rng)}

    joint = partial(log_joint, lab, problem)
    conditionals.check_normal_block(joint, some_state(problem), sample)


def test_weights_and_bias_as_one_block(lab, problem, conditionals):
    def sample(many, rng):
        bias, weights = gibbs.sample_weights(many, problem.data, rng=rng)
        return {"bias": bias, "weights": weights}

    joint = partial(log_joint, lab, problem)
    conditionals.check_normal_block(joint, some_state(problem), sample)


def test_precisions(lab, problem, conditionals):
    state = some_state(problem)
    data, priors = problem.data, problem.priors
    samplers = {
        "projection_precision": lambda rng: gibbs.sample_projection_precision(
            state, priors, rng=rng
        ),
        "weight_precision": lambda rng: gibbs.sample_weight_precision(state, priors, rng=rng),
        "bias_precision": lambda rng: gibbs.sample_bias_precision(state, priors, rng=rng),
    }
    if problem.target == "regression":
        samplers["noise_precision"] = lambda rng: gibbs.sample_noise_precision(
            state, data, priors, rng=rng
        )
    conditionals.check_gamma_blocks(partial(log_joint, lab, problem), state, samplers)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_utilities(lab, target, conditionals):
    """Monte Carlo: means of the draws against quadrature, 4.5 standard errors."""
    problem = lab.make_problem("entrywise", target)
    state = conditionals.tile(some_state(problem), 20_000)
    T = gibbs.sample_utilities(state, problem.data, rng=np.random.default_rng(45))
    eta = state.latent[0] @ state.weights[0] + state.bias[0]
    error = T.std(axis=0) / np.sqrt(len(T))
    _, expected = lab.truncated_moments(eta, problem)
    np.testing.assert_array_less(np.abs(T.mean(axis=0) - expected), 4.5 * error)


def test_collapsed_projection_leaves_its_marginal_invariant(problem, conditionals):
    """One pass over the columns, Q -> A Q + c + B e, maps N(m, V) onto itself.

    N(m, V) is the posterior of Q given T with Z integrated out, from dense matrices: T is normal
    with mean X Q W + b and covariance diag(1/tau) + v W'W in each row.
    """
    state = some_state(problem)
    n, d = problem.X.shape
    r, k = problem.n_components, problem.data.n_labels
    size, n_noise = d * r, d * r + n * r

    W, phi = state.weights[0], np.broadcast_to(state.projection_precision[0], (d, r))
    T = problem.data.y if state.utilities is None else state.utilities[0]
    noise = np.ones(k) if state.noise_precision is None else 1.0 / state.noise_precision[0]
    cov = np.diag(noise) + problem.priors.latent_scale**2 * W.T @ W
    J = np.einsum("nd,rk->nkdr", problem.X, W).reshape(n, k, size)
    weighted = np.einsum("kl,nls->nks", np.linalg.inv(cov), J)
    V = np.linalg.inv(np.diag(phi.ravel()) + np.einsum("nks,nkt->st", J, weighted))
    m = V @ np.einsum("nks,nk->s", weighted, T - state.bias[0])

    def draw(probe, starts):
        many = replace(conditionals.tile(state, len(starts)), projection=starts.reshape(-1, d, r))
        out = gibbs.sample_projection_collapsed(many, problem.data, problem.priors, rng=probe)
        return out.reshape(len(starts), size)

    starts = np.vstack([np.zeros(size), np.eye(size)])
    moved = draw(SilentNormals(), starts)
    c, A = moved[0], (moved[1:] - moved[0]).T
    noisy = draw(conditionals.Probe(1 + n_noise), np.zeros((1 + n_noise, size)))
    B = (noisy[1:] - noisy[0]).T
    np.testing.assert_allclose(A @ m + c, m, atol=1e-8 * np.abs(m).max())
    np.testing.assert_allclose(A @ V @ A.T + B @ B.T, V, atol=1e-8 * np.abs(V).max())
    assert np.abs(np.linalg.eigvals(A)).max() < 1.0  # it moves: the identity would pass as well
    np.testing.assert_allclose(A.reshape(size, d, r)[:, :, 0], 0.0, atol=1e-10)  # drawn first


class SilentNormals:
    """All normals are zero."""

    def standard_normal(self, shape):
        return np.zeros(shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_short_steps_keep_the_energy(lab, kind, target, conditionals):
    """The error is of second order in the step size if the force is the gradient of the energy."""
    problem = lab.make_problem(kind, target)
    state = replace(conditionals.tile(some_state(problem), 500), step_size=0.002)
    rng = np.random.default_rng(47)
    moved = gibbs.sample_trajectory(state, problem.data, problem.priors, rng=rng)
    for name in ("projection", "latent", "weights", "bias"):
        changed = getattr(moved, name) != getattr(state, name)
        assert changed.reshape(500, -1).any(axis=1).mean() > 0.99, name
    assert np.abs(moved.weights - state.weights).max() > 0.02


def test_step_size_adapts(lab):
    problem = lab.make_problem("entrywise", "multiclass")
    sizes = [
        gibbs.sample_trajectory(
            replace(some_state(problem, n_chains=8), step_size=size, n_adapted=0),
            problem.data,
            problem.priors,
            rng=np.random.default_rng(48),
        ).step_size
        / size
        for size in (0.001, 1.0)
    ]
    assert sizes[0] > 1.0 > sizes[1]


@pytest.mark.parametrize(("kind", "target"), list(zip(KINDS, TARGETS, strict=True)))
def test_variables_are_those_of_the_augmented_pymc_model(lab, kind, target):
    """Differences of its log density are those of the joint."""
    problem = lab.make_problem(kind, target)
    state = some_state(problem, n_chains=3)
    priors = replace(problem.priors, projection_prior=kind)
    values = gibbs.to_variables(state, priors)
    model = build_paper_model(
        problem.X,
        problem.data.y,
        n_components=problem.n_components,
        priors=replace(problem.priors, projection_prior=kind),
        target=target,
        augmented=True,
    )
    assert set(values) == {variable.name for variable in model.value_vars}
    logp = model.compile_logp(mode="FAST_COMPILE")
    got = [float(logp({name: value[c] for name, value in values.items()})) for c in range(3)]
    expected = log_joint(lab, problem, state)
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_a_sweep_does_not_modify_its_input_and_agrees_with_y(lab):
    problem = lab.make_problem("rowwise", "multiclass")
    state = some_state(problem, n_chains=3)
    copy = {k: v.copy() for k, v in gibbs.to_variables(state, problem.priors).items()}
    new = gibbs.step(state, problem.data, problem.priors, rng=np.random.default_rng(46))
    for name, value in gibbs.to_variables(state, problem.priors).items():
        np.testing.assert_array_equal(value, copy[name])
        assert np.all(gibbs.to_variables(new, problem.priors)[name] != value), name
    np.testing.assert_array_equal(new.utilities.argmax(axis=2), np.tile(problem.data.y, (3, 1)))


def test_initial_state_with_constant_features(lab):
    problem = lab.make_problem("entrywise", "multiclass")
    problem.data.design.X[:] = 0.0
    values = gibbs.to_variables(some_state(problem, sweeps=0), problem.priors)
    assert all(np.isfinite(value).all() for value in values.values())
