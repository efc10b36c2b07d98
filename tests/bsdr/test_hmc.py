"""Hamiltonian Monte Carlo against exact draws of a tiny problem."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import ks_2samp

from bsdr_models.bsdr import hmc, leapfrog
from bsdr_models.bsdr.hmc import States, Whitening, move
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem

PRIORS = HierarchicalPriors(scale=1.3, bias_scale=2.0, view_width=1.0, lapse=0.01)


def make_problem(target="multiclass", *, n=8, d=1, k=2, views=None, seed=0, signal=2.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    t = signal * X @ rng.standard_normal((d, k)) + rng.standard_normal((n, k))
    y = t.argmax(axis=1) if target == "multiclass" else t > 0.3
    return BSDRProblem(X=X, y=y, n_labels=k, target=target, priors=PRIORS, views=views)


def grid(problem, n=61):
    """Points of a loading, a bias and log tau, (G, 3), their log masses, and cell sizes."""
    axes = np.linspace(-5.0, 5.0, n), np.linspace(-5.0, 5.0, n), np.linspace(-7.0, 2.2, n)
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    cell = np.array([axis[1] - axis[0] for axis in axes])
    log_mass = [
        problem.evaluate(part)[0].sum(axis=1) + problem.log_prior(part)
        for part in np.array_split(points, 8)
    ]
    return points, np.concatenate(log_mass) + np.log(cell).sum(), cell


@pytest.fixture(scope="module")
def exact():
    """A problem with three parameters, and a function that draws from its posterior."""
    problem = make_problem()
    points, log_mass, cell = grid(problem)
    mass = np.exp(log_mass - logsumexp(log_mass))

    def draw(size, seed):
        rng = np.random.default_rng(seed)
        index = rng.choice(len(points), size, p=mass)
        return points[index] + cell * (rng.random((size, 3)) - 0.5)

    return problem, draw


def numbers(problem, theta):
    """Quantities (S,) whose distributions are compared."""
    effect = theta[:, 0] * np.exp(theta[:, -1])
    return [*theta.T, effect, effect + problem.priors.bias_scale * theta[:, 1]]


def check_same_distribution(problem, first, second):
    pairs = zip(numbers(problem, first), numbers(problem, second), strict=True)
    p = [ks_2samp(one, other).pvalue for one, other in pairs]
    assert min(p) > 1e-4, p


def test_trajectories_keep_the_posterior(exact):
    """With steps so large that two of five are rejected."""
    problem, draw = exact
    rng = np.random.default_rng(2)
    states = States.at(problem, draw(4000, 0))
    whitening = Whitening.learn(problem, states.theta, sd_log_scale=0.5)
    accepted = []
    for _ in range(6):
        states, stats = move(problem, whitening, states, 1.4, rng)
        accepted.append(stats["acceptance_rate"].mean())
    assert 0.3 < np.mean(accepted) < 0.95
    check_same_distribution(problem, states.theta, draw(4000, 1))


def test_moves_of_the_scale_keep_the_posterior(exact):
    problem, draw = exact
    states = States.at(problem, draw(4000, 0))
    there = hmc.move_scale(problem, states, np.random.default_rng(2))
    assert (there.theta[:, -1] != states.theta[:, -1]).mean() > 0.7
    check_same_distribution(problem, there.theta, draw(4000, 1))
    for name in ("log_likelihood", "log_prior", "gradient"):
        expected = getattr(States.at(problem, there.theta), name)
        assert_allclose(getattr(there, name), expected, rtol=1e-6, atol=1e-8)


def test_rotation_solves_the_normal_part():
    """Where labels do not depend on features every trajectory is accepted, for any parameters."""
    problem = make_problem(n=6, d=60, k=3)
    problem = replace(problem, priors=replace(PRIORS, lapse=1.0 - 1e-12))
    theta = np.random.default_rng(0).standard_normal((5, problem.n_parameters))
    whitening = Whitening.learn(problem, theta, sd_log_scale=0.0)
    states, rng = States.at(problem, theta), np.random.default_rng(1)
    there, stats = move(problem, whitening, states, 1.0, rng)
    assert_allclose(
        stats["acceptance_rate"], 1.0, rtol=1e-4
    )  # positions inside have single precision
    assert not stats["diverging"].any()
    assert_allclose(there.theta[:, -1], theta[:, -1], rtol=1e-12)  # log tau is fixed
    assert np.abs(there.theta - theta)[:, :-1].mean() > 0.5


@pytest.mark.parametrize("correlated", [True, False])
@pytest.mark.parametrize("views", [None, np.array([0, 0, 1])])
@pytest.mark.parametrize("sd_log_scale", [0.0, 0.5])
def test_products_with_the_root(monkeypatch, views, sd_log_scale, correlated):
    """L and its transpose, its inverse, and what is fixed."""
    monkeypatch.setattr(hmc, "_MOST_CORRELATED", 300 if correlated else 0)
    problem = make_problem(n=12, d=3, k=3, views=views)
    theta = np.random.default_rng(0).standard_normal((6, problem.n_parameters))
    whitening = Whitening.learn(problem, theta, sd_log_scale=sd_log_scale)
    assert_allclose(whitening.centre, theta.mean(axis=0))
    free = np.ones(problem.n_parameters, dtype=bool)
    free[problem.n_loadings + len(problem.contrasts) :] = False
    free[-1] = sd_log_scale > 0.0
    assert_array_equal(whitening.normal.deviations > 0.0, free)
    difference = np.where(free, theta - whitening.centre, 0.0)
    z = whitening.standardised(theta - whitening.centre)
    product = whitening.product(z.astype(np.float32))
    assert_allclose(product, difference, rtol=1e-4, atol=1e-5)
    compiled = leapfrog.product(whitening.normal, z.astype(np.float32))
    assert_allclose(compiled, product, rtol=1e-4, atol=1e-5)
    gradient = problem.log_density(theta)[2]
    transposed = whitening.transposed(gradient.astype(np.float32))
    products = np.sum(transposed * z, axis=1)
    assert_allclose(products, np.sum(gradient * difference, axis=1), rtol=1e-4)
    compiled = leapfrog.transposed(whitening.normal, gradient.astype(np.float32))
    assert_allclose(compiled, transposed, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("correlated", [True, False])
def test_whitening_has_the_hessian_of_the_biases(monkeypatch, correlated):
    """By differences of gradients; up to some number of loadings, of all of them."""
    monkeypatch.setattr(hmc, "_MOST_CORRELATED", 300 if correlated else 0)
    problem = make_problem("multilabel", n=40, d=3, k=2)
    problem = replace(problem, priors=replace(PRIORS, lapse=1e-9))
    theta = 0.3 * np.random.default_rng(0).standard_normal((1, problem.n_parameters))
    whitening, n = Whitening.learn(problem, theta, sd_log_scale=0.0), problem.n_loadings
    moved, step = np.repeat(theta, n + 2, axis=0), 1e-5
    moved[:, : n + 2] += step * np.eye(n + 2)
    change = (problem.log_density(theta)[2] - problem.log_density(moved)[2]) / step
    hessian = change[:, : n + 2]
    size = n + 2 if correlated else 2
    joint = hessian[n + 2 - size :, n + 2 - size :]
    root = whitening.normal.root
    assert_allclose(root @ root.T @ joint, np.eye(size), atol=1e-3)
    before = hessian[n + 2 - size :, : n + 2 - size]
    assert_allclose(joint @ whitening.normal.cross, before, atol=1e-3)


@pytest.mark.parametrize("width", [0.02, 0.1, 1.0])
def test_scales_of_views_are_stationary_given_the_loadings(width):
    """However narrow their prior is."""
    priors = replace(PRIORS, view_width=width)
    problem = replace(make_problem(n=12, d=3, k=3, views=np.array([0, 0, 1])), priors=priors)
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((500, problem.n_parameters)) * 2.0
    n, j = problem.n_loadings, len(problem.contrasts)
    theta[:, n + j : -1] = 0.3
    found = hmc.fit_views(problem, States.at(problem, theta)).theta
    assert_allclose(problem.linear_predictor(found), problem.linear_predictor(theta), rtol=1e-10)
    logs = width * found[0, n + j : -1]
    for columns, log_scale in ((slice(0, 2 * j), logs[0]), (slice(2 * j, n), logs[1])):
        square = np.mean(np.sum(found[:, columns] ** 2, axis=1))
        assert square == pytest.approx(columns.stop - columns.start + log_scale / width**2)


def test_draws_are_those_of_the_posterior(exact):
    """The tolerance is 4.5 standard errors of the least precise, the deviation of log tau."""
    problem, draw = exact
    found = hmc.sample(problem, n_chains=16, n_draws=1600, rng=np.random.default_rng(0))
    assert found.theta.shape == (16, 1600, 3)
    assert found.log_likelihood.shape == found.stats["diverging"].shape == (16, 1600)
    theta = found.theta.reshape(-1, 3)
    assert_allclose(found.log_likelihood.ravel(), problem.evaluate(theta)[0].sum(axis=1))
    assert_allclose(found.log_prior.ravel(), problem.log_prior(theta))
    for ours, theirs in zip(
        numbers(problem, theta), numbers(problem, draw(400_000, 3)), strict=True
    ):
        assert abs(ours.mean() - theirs.mean()) < 0.12 * theirs.std()
        assert ours.std() / theirs.std() == pytest.approx(1.0, abs=0.15)


def test_chains_forget_samples_that_are_held_out():
    problem = make_problem(n=40, d=2, signal=3.0)
    sampled = hmc.sample(problem, n_chains=16, n_draws=8, rng=np.random.default_rng(0))
    half = problem.select(np.arange(40) < 20)
    turned = replace(half, X=half.X @ [[0.6, -0.4], [1.2, 0.2]])  # other whitened features
    options = {"n_warm_up": 8, "n_draws": 40, "rng": np.random.default_rng(1)}
    theta = hmc.continue_on(half, turned, sampled, **options)
    assert theta.shape == (8 * 40, problem.n_parameters)
    alone = hmc.sample(turned, n_chains=16, n_draws=100, rng=np.random.default_rng(2)).theta
    ours, theirs = (
        turned.linear_predictor(each.reshape(-1, each.shape[-1])).swapaxes(0, 1)
        for each in (theta, alone)
    )
    assert np.abs((ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)).max() < 0.4
