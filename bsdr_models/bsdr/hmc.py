"""Hamiltonian Monte Carlo for the posterior of BSDR, and its evidence.

Given the scale tau of the projection the posterior has one mode, so that chains need neither
tempering nor jumps. They begin at the posterior of tau that path sampling finds (`path_sampling`).
It is then sampled jointly, alternately with fixed standard normals, by trajectories (`trajectory`),
and with fixed loadings, by Metropolis steps, which need no likelihood [1]_. Relative scales of
views are those of the largest marginal posterior density (empirical Bayes), by expectation
maximisation along the path and the adaptation.

References
----------
.. [1] Y. Yu, X.-L. Meng (2011). To center or not to center: that is not the question.
       Journal of Computational and Graphical Statistics 20(3).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp, ndtr

from bsdr_models.bsdr.path_sampling import fit_views, follow_path, log_evidence_empty
from bsdr_models.bsdr.problem import Problem, log_prior_scale
from bsdr_models.bsdr.trajectory import States, Whitening, adapt_step, move
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.folds import evenly_spaced

# Rounds of adaptation.
_ROUNDS = 4
# Trajectories of each round.
_PER_ROUND = 5
# Trajectories of a chain before its draws, after those of the path.
N_WARM_UP = _ROUNDS * _PER_ROUND
# States of all chains from which those of a fold start.
_N_STARTS = 8
# Metropolis steps of log tau given the loadings after each trajectory.
_N_SCALE_STEPS = 4
# Size of a Metropolis step in standard deviations.
_SCALE_STEP = 2.0


def move_scale(problem: Problem, states: States, rng: np.random.Generator) -> States:
    """Metropolis steps of log tau with fixed loadings of whitened features.

    With n loadings whose standard normals have the square norm q, the density of log tau = v is
    proportional to p(v) exp(-n v - q exp(2 (u - v)) / 2), where u is its current value.
    """
    n = problem.n_loadings
    scale = problem.priors.scale
    u = states.theta[:, -1]
    square = np.sum(states.theta[:, :n] ** 2, axis=1)

    def log_density(v: FloatArray) -> FloatArray:
        return log_prior_scale(v, scale) - n * v - 0.5 * square * np.exp(2.0 * (u - v))

    v = u
    value = log_density(u)
    for _ in range(_N_SCALE_STEPS):
        proposal = v + _SCALE_STEP / np.sqrt(2.0 * n + 1.0) * rng.standard_normal(len(u))
        new = log_density(proposal)
        accepted = np.log(rng.random(len(u))) < new - value
        v = np.where(accepted, proposal, v)
        value = np.where(accepted, new, value)
    factor = np.exp(u - v)[:, None]
    theta = states.theta.copy()
    gradient = states.gradient.copy()
    theta[:, :n] *= factor
    theta[:, -1] = v
    gradient[:, :n] = (gradient[:, :n] + states.theta[:, :n]) / factor - theta[:, :n]
    gradient[:, -1] += (np.exp(2.0 * u) - np.exp(2.0 * v)) / scale**2
    log_prior = problem.log_prior(theta)
    return replace(states, theta=theta, gradient=gradient, log_prior=log_prior)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Draws of C chains, and the log evidence of the model, in nats."""

    theta: FloatArray  # (C, T, P)
    log_likelihood: FloatArray  # (C, T)
    log_prior: FloatArray  # (C, T)
    stats: dict[str, np.ndarray]  # of the trajectories, (C, T) each
    log_evidence: float
    log_evidence_error: float  # standard error
    sd_log_scale: float  # posterior standard deviation of log tau
    step: float  # step size, for further trajectories
    interrupted: bool = False  # by the user; there are fewer draws then


def sample(
    problem: Problem,
    *,
    n_chains: int,
    n_draws: int,
    n_path_chains: int = 0,
    rng: np.random.Generator,
    on_step: Callable[[float], object] = lambda share: None,
) -> Sampled:
    """Draws of each chain, one per trajectory.

    The path and the adaptation have at least ``n_path_chains`` chains, of which some go on.
    ``on_step`` is called with the share of the run that is done; KeyboardInterrupt if the user
    stops the run before four draws.
    """
    path_rng, empty_rng, rng = rng.spawn(3)
    empty = log_evidence_empty(problem, rng=empty_rng)
    n_path_chains = max(n_path_chains, n_chains)
    path = follow_path(problem, n_path_chains, path_rng, lambda share: on_step(0.3 * share))
    probability = np.exp(path.log_density - logsumexp(path.log_density))
    mean = float(probability @ path.grid)
    sd = float(np.sqrt(probability @ (path.grid - mean) ** 2))
    # One chain in each quantile of log tau, from its own state at the node beside it.
    quantile = (np.arange(n_path_chains) + 0.5) / n_path_chains
    log_scale = np.interp(quantile, np.cumsum(probability), path.grid)
    node = np.abs(path.nodes - log_scale[:, None]).argmin(axis=1)
    theta = path.theta[node, np.arange(n_path_chains)]
    theta[:, -1] = log_scale
    views = slice(problem.n_loadings + len(problem.contrasts), -1)
    theta[:, views] = theta[:, views].mean(axis=0)
    states = States.at(problem, theta)
    visited = [theta]
    steps = list[float]()
    step = float(path.steps[np.abs(path.nodes - mean).argmin()])
    for i in range(_ROUNDS):
        whitening = Whitening.learn(problem, np.concatenate(visited), sd_log_scale=sd)
        visited = []
        for _ in range(_PER_ROUND):
            trajectory = move(problem, whitening, states, step, rng)
            states = fit_views(problem, move_scale(problem, trajectory.states, rng))
            step = adapt_step(step, trajectory.acceptance)
            visited.append(states.theta)
            steps.append(step)
        on_step(0.3 + 0.2 * (i + 1) / _ROUNDS)
    step = float(np.exp(np.mean(np.log(steps[len(steps) // 2 :]))))
    states = States.at(problem, states.theta[evenly_spaced(n_path_chains, n_chains)])
    draws = list[tuple[np.ndarray, ...]]()
    stats = list[dict[str, np.ndarray]]()
    interrupted = False
    try:
        for i in range(n_draws):
            trajectory = move(problem, whitening, states, step, rng)
            states = move_scale(problem, trajectory.states, rng)
            stats.append(trajectory.stats)
            draws.append((states.theta, states.log_likelihood, states.log_prior))
            on_step(0.5 + 0.5 * (i + 1) / n_draws)
    except KeyboardInterrupt:
        if len(draws) < 4:
            raise
        interrupted = True
    theta, log_likelihood, log_prior = (np.stack(each, axis=1) for each in zip(*draws, strict=True))
    stats = stats[: len(draws)]
    below = 2.0 * ndtr(np.exp(path.grid[0]) / problem.priors.scale) - 1.0  # features do not matter
    return Sampled(
        theta=theta,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        stats={name: np.stack([each[name] for each in stats], axis=1) for name in stats[0]},
        log_evidence=empty + float(np.logaddexp(logsumexp(path.log_density), np.log(below))),
        log_evidence_error=path.error(mean),
        sd_log_scale=sd,
        step=step,
        interrupted=interrupted,
    )


def continue_on(
    before: Problem,
    problem: Problem,
    sampled: Sampled,
    *,
    n_warm_up: int,
    n_draws: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draws (S, P) for a part of the samples, from some draws of all.

    ``before`` are these samples in the whitened features of the chains.
    """
    step = sampled.step
    draws = []
    draws_of_all = sampled.theta.reshape(-1, sampled.theta.shape[-1])
    theta = draws_of_all[evenly_spaced(len(draws_of_all), _N_STARTS)]
    theta = _translate(theta, before, problem)
    whitening = Whitening.learn(problem, theta, sd_log_scale=sampled.sd_log_scale)
    states = States.at(problem, theta)
    for i in range(n_warm_up + n_draws):
        trajectory = move(problem, whitening, states, step, rng)
        states = move_scale(problem, trajectory.states, rng)
        if i < n_warm_up:
            step = adapt_step(step, trajectory.acceptance)
        else:
            draws.append(states.theta)
    return np.concatenate(draws)


def _translate(theta: FloatArray, before: Problem, problem: Problem) -> FloatArray:
    """Parameters (C, .) of the linear predictors of one problem for other whitened features."""
    loadings, *rest = before.split(theta)
    loadings = loadings * before.column_scale(theta)[:, :, None]
    new = np.zeros((len(theta), problem.X.shape[1], loadings.shape[2]))
    for view in range(max(problem.n_views, 1)):
        own = slice(None) if problem.views is None else problem.views == view
        same = slice(None) if before.views is None else before.views == view
        map_ = np.linalg.lstsq(problem.X[:, own], before.X[:, same])[0]
        new[:, own] = map_ @ loadings[:, same]
    found = np.concatenate([new.reshape(len(theta), -1), *rest[:-1], rest[-1][:, None]], axis=1)
    found[:, : problem.n_loadings] /= np.repeat(
        np.broadcast_to(problem.column_scale(found), new.shape[:2]), new.shape[2], axis=1
    )
    return found
