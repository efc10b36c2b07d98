r"""Hamiltonian Monte Carlo for the posterior of BSDR.

Given the scale tau of the projection the posterior has one mode, so that chains need neither
tempering nor jumps. They start at draws of a normal approximation around the mode given the prior
scale of tau. Tau is sampled with fixed standard normals, by trajectories, and with fixed loadings,
by Metropolis steps, which need no likelihood [1]_. Relative scales of views are those of the
largest marginal posterior density (empirical Bayes), by expectation maximisation in the warm-up.

Chains run side by side, as batches of parameter vectors :math:`\theta` (:class:`BSDRProblem`), in
coordinates z of a normal approximation, :math:`\theta = c + L z`. Its precision is that of the
prior plus the curvatures of the samples at the states of the chains. If loadings are many, or more
than samples, they have independent precisions, :math:`1 + \tau^2 \sum_n x_{nb}^2 \bar H_{jj}`, with
the mean curvature :math:`\bar H` of a sample, and only the biases have their distribution given the
loadings, unless contrasts are many too. The mean c is that of the states. The flow of the normal
part is a rotation, which is solved exactly; only the rest of the force is integrated by steps [2]_,
so that parameters which the data do not determine cost nothing, however many there are. Inside a
trajectory the force has single precision; the ends, and so the probability of acceptance, have
double precision. Blocks of chains have a thread each, if there are several.

References
----------
.. [1] Y. Yu, X.-L. Meng (2011). To center or not to center: that is not the question.
       Journal of Computational and Graphical Statistics 20(3).
.. [2] A. Beskos, F. J. Pinski, J. M. Sanz-Serna, A. M. Stuart (2011). Hybrid Monte Carlo on Hilbert
       spaces. Stochastic Processes and their Applications 121(10).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve
from scipy.optimize import minimize
from scipy.special import wrightomega

from bsdr_models.bsdr import leapfrog
from bsdr_models.bsdr.problem import BSDRProblem, log_prior_scale
from bsdr_models.inference.tasks import run_in_threads
from bsdr_models.numerics.arrays import FloatArray, IntArray, SingleArray
from bsdr_models.numerics.folds import evenly_spaced

# Target acceptance of the step size.
_ACCEPTANCE = 0.8
# Range of the step size.
_STEP_RANGE = (0.01, 1.2)
# Standard deviation of the log step size between trajectories.
_JITTER = 0.15
# Angle by which a trajectory rotates normal coordinates.
_ANGLE = 4.25
# Range of the angle between trajectories, as factors.
_SPREAD = (0.6, 1.3)
# Most steps of a trajectory.
_MAX_STEPS = 40
# States whose curvature is averaged.
_N_CURVED = 8
# Scale of log tau in its standard deviations: given the loadings it varies less, and trajectories
# from large tau diverge at 1.
_SHARE = 0.6
# Loadings up to which their correlations are worth products with a matrix of that width.
_MOST_CORRELATED = 300
# Contrasts up to which the dependence of the biases on the loadings is worth its products: 20 % of
# the time with 40 classes, as the effective sample size is larger by 15 % with it.
_MOST_COUPLED = 20
# Work of the chains of a block, which has a thread if there are several: some .3 ms a gradient.
_BLOCK = 1.2e5
# Change of the energy beyond which a trajectory is divergent.
_DIVERGENT = 1000.0
# Rounds of the warm-up, after each of which the normal approximation is learned again.
_ROUNDS = 4
# Trajectories of each round.
_PER_ROUND = 10
# Trajectories of a chain before its draws.
N_WARM_UP = _ROUNDS * _PER_ROUND
# Chains of the warm-up, from whose states the normal approximation is learned, at least.
_LEAST_CHAINS = 8
# Step size and standard deviation of log tau before any are known.
_FIRST_STEP = 0.2
_FIRST_SD = 0.3
# Most iterations of the search for the mode at which chains start.
_MAX_ITER = 30
# Typical curvature of the log likelihood of a sample, which scales this search.
_CURVATURE = 0.05
# States of all chains from which those of a fold start.
_N_STARTS = 8
# Metropolis steps of log tau given the loadings after each trajectory.
_N_SCALE_STEPS = 4
# Size of a Metropolis step in standard deviations.
_SCALE_STEP = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """States of C chains: parameters (C, P), log likelihood and log prior (C,), gradient (C, P)."""

    theta: FloatArray
    log_likelihood: FloatArray
    log_prior: FloatArray
    gradient: FloatArray

    @classmethod
    def at(cls, problem: BSDRProblem, theta: FloatArray) -> "States":
        """The states with given parameters."""
        log_likelihood, log_prior, gradient = problem.log_density(theta)
        return cls(
            theta=theta, log_likelihood=log_likelihood, log_prior=log_prior, gradient=gradient
        )

    def where(self, chosen: np.ndarray, other: "States") -> "States":
        """The states of ``other`` for the chosen chains, (C,), and these for the rest."""
        column = chosen[:, None]
        return States(
            theta=np.where(column, other.theta, self.theta),
            log_likelihood=np.where(chosen, other.log_likelihood, self.log_likelihood),
            log_prior=np.where(chosen, other.log_prior, self.log_prior),
            gradient=np.where(column, other.gradient, self.gradient),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Whitening:
    """Normal approximation of the posterior, theta = centre + L z."""

    centre: FloatArray  # (P,)
    normal: leapfrog.Normal  # L

    @classmethod
    def learn(cls, problem: BSDRProblem, theta: FloatArray, *, sd_log_scale: float) -> "Whitening":
        """From states of the chains (C, P), and the standard deviation of log tau."""
        curvature = problem.curvature(theta[evenly_spaced(len(theta), _N_CURVED)])
        n = problem.n_loadings
        j = len(problem.contrasts)
        scaled = problem.X * np.exp(np.mean(np.log(problem.column_scale(theta)), axis=0))
        deviations = np.zeros(problem.n_parameters)
        deviations[: n + j] = 1.0
        deviations[-1] = _SHARE * sd_log_scale
        features = np.column_stack([scaled, np.full(len(scaled), problem.priors.bias_scale)])
        if n <= min(len(scaled), _MOST_CORRELATED):
            first = 0
        else:
            first = scaled.shape[1] + int(j > _MOST_COUPLED)
        before, dense = np.hsplit(features, [first])
        if dense.size:  # the precision must be positive definite
            value, vector = np.linalg.eigh(curvature)
            curvature = (vector * np.maximum(value, 0.0)[:, None]) @ vector.mT
        mean = np.maximum(np.diag(curvature.mean(axis=0)), 0.0)
        information = np.outer(np.sum(before**2, axis=0), mean)
        deviations[: information.size] = (1.0 + information.ravel()) ** -0.5
        precision = np.eye(dense.shape[1] * j) + _information(dense, dense, curvature)
        mutual = _information(before, dense, curvature)
        root = np.linalg.cholesky(precision)
        cross = cho_solve((root, True), mutual.T)
        inverse = np.linalg.inv(root)
        normal = leapfrog.Normal(
            deviations=deviations.astype(np.float32),
            cross=cross.astype(np.float32, order="C"),
            cross_t=cross.T.astype(np.float32, order="C"),
            root=inverse.T.astype(np.float32, order="C"),
            root_t=inverse.astype(np.float32, order="C"),
        )
        return cls(centre=theta.mean(axis=0), normal=normal)

    def product(self, z: SingleArray) -> SingleArray:
        """L z of vectors (C, P)."""
        m, n = self.normal.cross.shape
        out = self.normal.deviations * z
        out[:, n : n + m] = z[:, n : n + m] @ self.normal.root_t - out[:, :n] @ self.normal.cross_t
        return out

    def transposed(self, gradient: SingleArray) -> SingleArray:
        """L' times gradients (C, P)."""
        m, n = self.normal.cross.shape
        last = gradient[:, n : n + m]
        out = gradient.copy()
        out[:, :n] -= last @ self.normal.cross
        out[:, n : n + m] = last @ self.normal.root
        return self.normal.deviations * out

    def standardised(self, difference: FloatArray) -> FloatArray:
        """z, (C, P), of differences theta - centre; 0 of what is fixed."""
        cross = self.normal.cross
        m, n = cross.shape
        deviations = self.normal.deviations
        free = deviations > 0.0
        out = np.where(free, difference, 0.0) / np.where(free, deviations, 1.0)
        bias = difference[:, n : n + m] + difference[:, :n] @ cross.T
        out[:, n : n + m] = np.linalg.solve(self.normal.root, bias.T).T
        return out


def _information(left: FloatArray, right: FloatArray, curvature: FloatArray) -> FloatArray:
    """Sum over samples of the curvatures (N, J, J) of features (N, A) and (N, B), (A J, B J)."""
    j = curvature.shape[1]
    total = np.empty((left.shape[1], j, right.shape[1], j))
    for a in range(j):
        for b in range(j):
            total[:, a, :, b] = left.T @ (curvature[:, a, b, None] * right)
    return total.reshape(left.shape[1] * j, right.shape[1] * j)


def move(
    problem: BSDRProblem,
    whitening: Whitening,
    states: States,
    step: float,
    rng: np.random.Generator,
) -> tuple[States, dict[str, np.ndarray]]:
    """Move all chains along one trajectory each, and accept or reject their ends.

    Also returned are statistics, (C,) each, by their names in ArviZ.
    """
    w = whitening
    step = step * float(np.exp(_JITTER * rng.standard_normal()))
    n_steps = int(np.clip(round(_ANGLE * rng.uniform(*_SPREAD) / step), 1, _MAX_STEPS))
    free = w.normal.deviations > 0.0
    centre = np.where(free, w.centre, states.theta)
    normal = rng.standard_normal(states.theta.shape, dtype=np.float32)
    normal = np.where(free, normal, np.float32(0.0))
    half = np.float32(0.5 * step)
    density = problem.single

    def integrate(chains: IntArray) -> tuple[np.ndarray, ...]:
        """Ends of some trajectories, their log densities and gradient, and momenta."""
        z: SingleArray = w.standardised(states.theta[chains] - centre[chains]).astype(np.float32)
        force = w.transposed(states.gradient[chains].astype(np.float32))
        p = normal[chains] + half * (force + z)
        start = centre[chains].astype(np.float32)
        leapfrog.leapfrog(density, problem.y, w.normal, start, z, p, np.float32(step), n_steps)
        theta: FloatArray = centre[chains] + w.product(z)
        log_likelihood, log_prior, gradient = problem.log_density(theta)
        p += half * (w.transposed(gradient.astype(np.float32)) + z)
        return theta, log_likelihood, log_prior, gradient, p

    n_chains = len(normal)
    n_blocks = int(np.clip(n_chains * problem.work / _BLOCK, 1, n_chains))
    blocks = np.array_split(np.arange(n_chains), n_blocks)
    parts = run_in_threads(integrate, blocks)
    theta, log_likelihood, log_prior, gradient, p = map(np.concatenate, zip(*parts, strict=True))
    new = States(theta=theta, log_likelihood=log_likelihood, log_prior=log_prior, gradient=gradient)
    begin = states.log_likelihood + states.log_prior - 0.5 * _squares(normal)
    change = new.log_likelihood + new.log_prior - 0.5 * _squares(p) - begin
    change = np.nan_to_num(change, nan=-np.inf)
    acceptance = np.exp(np.minimum(change, 0.0))
    accepted = rng.random(len(acceptance)) < acceptance
    return states.where(accepted, new), {
        "acceptance_rate": acceptance,
        "diverging": change < -_DIVERGENT,
        "energy": -begin - np.where(accepted, change, 0.0),  # with momenta, in nats
        "n_steps": np.full(n_chains, n_steps),
        "step_size": np.full(n_chains, step),
    }


def _squares(p: np.ndarray) -> FloatArray:
    """Square norms of momenta (C, P) in double precision, (C,)."""
    return np.einsum("cp,cp->c", p, p, dtype=np.float64)


def adapt_step(step: float, accept: FloatArray) -> float:
    """The step size after a trajectory with these acceptance probabilities."""
    return float(np.clip(step * np.exp(0.5 * (accept.mean() - _ACCEPTANCE)), *_STEP_RANGE))


def move_scale(problem: BSDRProblem, states: States, rng: np.random.Generator) -> States:
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


def fit_views(problem: BSDRProblem, states: States) -> States:
    r"""States with log relative scales that fit the loadings of all chains, which stay as they are.

    A step of expectation maximisation of their marginal posterior density: log lambda solves
    :math:`q \lambda^{-2} = n + w^{-2} \log \lambda`, with q the mean square of the n loadings of a
    view before they are divided by lambda, and w the prior standard deviation of log lambda.
    """
    if problem.views is None:
        return states
    theta = states.theta.copy()
    n = problem.n_loadings
    j = len(problem.contrasts)
    width = problem.priors.view_width
    ends = np.searchsorted(problem.views, np.arange(problem.n_views + 1)) * j
    for v in range(problem.n_views):
        columns, index = slice(*ends[v : v + 2]), n + j + v
        size = columns.stop - columns.start
        start = theta[0, index]
        twice = 2.0 * width**2
        square = np.mean(np.sum(theta[:, columns] ** 2, axis=1))
        log_q = np.log(square) + 2.0 * width * start
        root = wrightomega(np.log(twice) + log_q + twice * size) / twice  # n + log lambda / w^2
        theta[:, index] = width * (root - size)
        theta[:, columns] *= np.exp(width * (start - theta[0, index]))
    return States.at(problem, theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Draws of C chains."""

    theta: FloatArray  # (C, T, P)
    log_likelihood: FloatArray  # (C, T)
    log_prior: FloatArray  # (C, T)
    stats: dict[str, np.ndarray]  # of the trajectories, (C, T) each
    sd_log_scale: float  # posterior standard deviation of log tau
    step: float  # step size, for further trajectories
    interrupted: bool = False  # by the user; there are fewer draws then


def sample(
    problem: BSDRProblem,
    *,
    n_chains: int,
    n_draws: int,
    rng: np.random.Generator,
    on_step: Callable[[float], object] = lambda share: None,
) -> Chains:
    """Draws of each chain, one per trajectory.

    ``on_step`` is called with the share of the run that is done; KeyboardInterrupt if the user
    stops the run before four draws.
    """
    n_warm_up = _ROUNDS * _PER_ROUND
    total = n_warm_up + n_draws
    n_all = max(n_chains, _LEAST_CHAINS)
    theta = _start(problem, n_all, rng)
    states = States.at(problem, theta)
    visited = [theta]
    steps = list[float]()
    step = _FIRST_STEP
    sd = _FIRST_SD
    for i in range(_ROUNDS):
        whitening = Whitening.learn(problem, np.concatenate(visited), sd_log_scale=sd)
        visited = []
        for _ in range(_PER_ROUND):
            states, moved = move(problem, whitening, states, step, rng)
            states = fit_views(problem, move_scale(problem, states, rng))
            step = adapt_step(step, moved["acceptance_rate"])
            visited.append(states.theta)
            steps.append(step)
        sd = float(np.std([theta[:, -1] for theta in visited]))
        on_step((i + 1) * _PER_ROUND / total)
    step = float(np.exp(np.mean(np.log(steps[len(steps) // 2 :]))))
    states = States.at(problem, states.theta[evenly_spaced(n_all, n_chains)])
    draws = list[tuple[np.ndarray, ...]]()
    stats = list[dict[str, np.ndarray]]()
    interrupted = False
    try:
        for i in range(n_draws):
            states, moved = move(problem, whitening, states, step, rng)
            states = move_scale(problem, states, rng)
            stats.append(moved)
            draws.append((states.theta, states.log_likelihood, states.log_prior))
            on_step((n_warm_up + i + 1) / total)
    except KeyboardInterrupt:
        if len(draws) < 4:
            raise
        interrupted = True
    theta, log_likelihood, log_prior = (np.stack(each, axis=1) for each in zip(*draws, strict=True))
    stats = stats[: len(draws)]
    return Chains(
        theta=theta,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        stats={name: np.stack([each[name] for each in stats], axis=1) for name in stats[0]},
        sd_log_scale=sd,
        step=step,
        interrupted=interrupted,
    )


def _start(problem: BSDRProblem, n_chains: int, rng: np.random.Generator) -> FloatArray:
    """Draws (C, P) of the normal approximation at the mode given the prior scale of tau."""
    mode = find_mode(problem, float(np.log(problem.priors.scale)))[None]
    whitening = Whitening.learn(problem, mode, sd_log_scale=_FIRST_SD)
    z = rng.standard_normal((n_chains, problem.n_parameters), dtype=np.float32)
    return np.asarray(mode + whitening.product(z))


def find_mode(problem: BSDRProblem, log_scale: float) -> FloatArray:
    """Parameters (P,) near the mode of the posterior density given log tau."""
    # The search is in units of approximate posterior standard deviations.
    n = problem.n_loadings
    j = len(problem.contrasts)
    size = np.ones(problem.n_parameters - 1)
    squares = np.exp(2.0 * log_scale) * np.sum(problem.X**2, axis=0)
    size[:n] = np.repeat(1.0 / np.sqrt(1.0 + _CURVATURE * squares), j)
    total = len(problem.X) * problem.priors.bias_scale**2
    size[n : n + j] = 1.0 / np.sqrt(1.0 + _CURVATURE * total)

    def negative(z: FloatArray) -> tuple[float, FloatArray]:
        value, prior, gradient = problem.log_density(np.append(size * z, log_scale)[None])
        return -float(value[0] + prior[0]), -size * gradient[0, :-1]

    options = {"maxiter": _MAX_ITER}
    start = np.zeros(len(size))
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    return np.append(size * found.x, log_scale)


def continue_on(
    before: BSDRProblem,
    problem: BSDRProblem,
    sampled: Chains,
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
        states, moved = move(problem, whitening, states, step, rng)
        states = move_scale(problem, states, rng)
        if i < n_warm_up:
            step = adapt_step(step, moved["acceptance_rate"])
        else:
            draws.append(states.theta)
    return np.concatenate(draws)


def _translate(theta: FloatArray, before: BSDRProblem, problem: BSDRProblem) -> FloatArray:
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
