"""NUTS on D-GPLVM mixes, and agrees with elliptical slice sampling from draws of the prior."""

from functools import partial

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bsdr_models.data.training import Training
from bsdr_models.dgplvm import sampling
from bsdr_models.dgplvm.map_search import fit_map, make_objective
from bsdr_models.dgplvm.priors import DGPLVMPriors
from bsdr_models.dgplvm.problem import DGPLVMProblem
from bsdr_models.inference.sampling import Schedule

pytestmark = pytest.mark.slow

SCALARS = (*sampling.KERNEL, "criterion")


def task(X, y, weight=10.0):
    X = X - X.mean(axis=0)
    units = np.ones(X.shape[1])
    rng = np.random.default_rng(0)
    return DGPLVMProblem(
        X=X,
        y_index=y,
        n_components=y.max(),
        priors=DGPLVMPriors(weight=weight),
        training=Training.of(X, y, y.max() + 1, units, metric="unit", rng=rng),
    )


def curved():
    """10 samples of two classes that overlap along a parabola, one component, at a low weight."""
    rng = np.random.default_rng(82)
    y = rng.permutation(np.arange(10) % 2)
    X = rng.standard_normal((10, 5))
    X[:, 0] += 1.5 * y
    X[:, 1] += 0.7 * X[:, 0] ** 2
    return task(X, y, weight=1.0)


def mode_of(problem):
    return fit_map(problem, np.random.default_rng(83))


def by_engine(engine, problem, mode, *, seed, draws):
    return sampling.sample(
        engine,
        problem,
        mode,
        schedule=Schedule(draws=draws, tune=300, chains=2),
        rng=np.random.default_rng(seed),
    )


def identified(latent, scalars):
    """Distances and the four scalars, (chain, draw, quantity)."""
    i, j = np.triu_indices(latent.shape[2], 1)
    distances = np.linalg.norm(latent[:, :, i] - latent[:, :, j], axis=-1)
    return np.concatenate([distances, np.stack(scalars, axis=-1)], axis=-1)


def of_draws(draws):
    return identified(draws["latent"], [draws[name] for name in SCALARS])


def each(statistic, values):
    return np.array([statistic(values[..., k]) for k in range(values.shape[-1])])


def slice_move(point, value, density, rng):
    """One move of elliptical slice sampling where the prior is N(0, I)."""
    other, level = rng.standard_normal(point.shape), value - rng.exponential()
    angle = rng.uniform(0.0, 2.0 * np.pi)
    low, high = angle - 2.0 * np.pi, angle
    while True:
        proposal = np.cos(angle) * point + np.sin(angle) * other
        if (found := density(proposal)) > level:
            return proposal, found
        low, high = (angle, high) if angle < 0.0 else (low, angle)
        angle = rng.uniform(low, high)


def by_slices(problem, mode, *, seed, n_moves, burn):
    """A chain from the prior: raw positions and standardised log parameters in turn."""
    objective = make_objective(problem, mode.objective.mapping)
    priors = objective.parameter_priors
    median, log_sd = np.array([(prior.log_median, prior.log_sd) for prior in priors]).T

    def of_both(raw, standard):
        logs = median + log_sd * standard
        try:
            value, _ = objective(np.concatenate([raw.ravel(), logs]))
        except np.linalg.LinAlgError:
            return -np.inf
        return objective.priors(logs)[0] - value

    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((len(problem.X), problem.n_components))
    standard = rng.standard_normal(3)
    value, latents, scalars = of_both(raw, standard), [], []
    for move in range(n_moves):
        raw, value = slice_move(raw, value, partial(of_both, standard=standard), rng)
        standard, value = slice_move(standard, value, partial(of_both, raw), rng)
        if move >= burn and move % 2 == 0:
            logs = median + log_sd * standard
            latent = objective.latent(np.concatenate([raw.ravel(), logs]))
            latents.append(latent)
            scalars.append([*np.exp(logs), objective.criterion(latent)[0]])
    return identified(np.array(latents)[None], list(np.array(scalars).T[:, None]))


# Slices judge whether a diverged trajectory matters.
@pytest.mark.filterwarnings("ignore:.*transitions diverged")
def test_nuts_agrees_with_slices_from_the_prior():
    problem = curved()
    mode = mode_of(problem)
    a = of_draws(by_engine("nuts", problem, mode, seed=85, draws=800).draws)
    b = np.concatenate(
        [by_slices(problem, mode, seed=[86, k], n_moves=2000, burn=200) for k in range(3)]
    )
    assert each(array_stats.rhat, a).max() < 1.02
    assert each(array_stats.rhat, b).max() < 1.05
    for power in (1, 2):
        error = np.hypot(each(array_stats.mcse, a**power), each(array_stats.mcse, b**power))
        z = ((a**power).mean(axis=(0, 1)) - (b**power).mean(axis=(0, 1))) / error
        # The largest of 98 correlated comparisons.
        assert np.abs(z).max() < 4.5, (power, np.abs(z).max())
