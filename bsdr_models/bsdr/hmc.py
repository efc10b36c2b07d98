r"""Hamiltonian Monte Carlo for the posterior of BSDR, and its evidence.

Given :math:`\tau` the posterior has one mode, so that chains need neither tempering nor jumps.
They run side by side, as batches of parameter vectors :math:`\theta` (:class:`Problem`), in
coordinates z of a normal approximation, :math:`\theta = c + L z`. Loadings have independent
precisions, :math:`1 + \tau^2 \sum_n x_{nb}^2 \bar H_{jj}`, with the mean curvature :math:`\bar H`
of a sample at the states of the chains; the biases have their distribution given the loadings, by
the curvatures of single samples; c is the mean of the states. The flow of the normal part is a
rotation, which is solved exactly; only the rest of the force is integrated by steps [1]_, so that
parameters which the data do not determine cost nothing, however many there are. Inside a trajectory
the force has single precision; the ends, and so the probability of acceptance, have double
precision.

**Path.** Chains start where the features hardly matter, :math:`\tau = e^{-3.5}`, and pass through
increasing values of :math:`\tau`. The mean derivative of the log likelihood in
:math:`u = \log \tau` along the path integrates to the evidence (path sampling [2]_),

.. math::
    \log Z(u) = \log Z_0 + \int_{-\infty}^{u} E\Bigl[\frac{\partial \log p(y \mid \theta, v)}
    {\partial v} \Bigm| v \Bigr] dv,

where :math:`Z_0` is the evidence of the model without features. With the prior this is the
posterior of :math:`\tau`, which is where the chains start; :math:`\tau` is then sampled jointly,
alternately with fixed standard normals (by the trajectories) and with fixed loadings (by Metropolis
steps, which need no likelihood) [3]_. Relative scales of views are those of the largest marginal
posterior density (empirical Bayes), by expectation maximisation along the path and the adaptation.

References
----------
.. [1] A. Beskos, F. J. Pinski, J. M. Sanz-Serna, A. M. Stuart (2011). Hybrid Monte Carlo on Hilbert
       spaces. Stochastic Processes and their Applications 121(10).
.. [2] A. Gelman, X.-L. Meng (1998). Simulating normalizing constants: from importance sampling to
       bridge sampling to path sampling. Statistical Science 13(2).
.. [3] Y. Yu, X.-L. Meng (2011). To center or not to center: that is not the question.
       Journal of Computational and Graphical Statistics 20(3).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.linalg import cho_solve
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtr, wrightomega

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bsdr.problem import (
    LOG_SQRT_2PI,
    Problem,
    label_derivatives,
    label_log_likelihood,
    log_prior_scale,
)

# First node of log tau on the path, where the features hardly matter.
_FIRST_NODE = -3.5
# Distance between the nodes.
_NODE_STEP = 0.6
# Trajectories at each node after the first one.
_PER_NODE = 4
# The path ends where the posterior density has fallen by so many nats.
_ENOUGH = 5.0
# Scores, samples times contrasts, below which the nodes have more trajectories.
_FEW_SCORES = 200
# Factor of these trajectories, for a precise evidence.
_MORE = 3
# Rounds of adaptation.
_ROUNDS = 4
# Trajectories of each round.
_PER_ROUND = 5
# Target acceptance of the step size.
_ACCEPTANCE = 0.75
# Step size before adaptation.
_FIRST_STEP = 0.3
# Range of the step size.
_STEP_RANGE = (0.01, 1.2)
# Standard deviation of the log step size between trajectories.
_JITTER = 0.15
# Angle by which a trajectory rotates normal coordinates.
_ANGLE = 2.5
# The same on the path, whose states need not be independent.
_PATH_ANGLE = 1.8
# The same where scores exceed loadings by `_MANY_SCORES`: the slowest linear predictors need it.
_LONG_ANGLE = 3.5
_MANY_SCORES = 4000
# Range of the angle between trajectories, as factors.
_SPREAD = (0.6, 1.3)
# Most steps of a trajectory.
_MAX_STEPS = 40
# States whose curvature is averaged.
_N_CURVED = 8
# Scale of log tau in its standard deviations: given the loadings it varies less, and trajectories
# from large tau diverge at 1.
_SHARE = 0.6
# Metropolis steps of log tau given the loadings after each trajectory.
_N_SCALE_STEPS = 4
# Their size in standard deviations.
_SCALE_STEP = 2.0
# Change of the energy beyond which a trajectory is divergent.
_DIVERGENT = 1000.0
# Draws of importance sampling for the evidence without features.
_N_IMPORTANCE = 4000
# Degrees of freedom of their distribution, whose tails are heavier than those of the posterior.
_DEGREES = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """States of C chains: parameters (C, P), log likelihood and log prior (C,), gradient (C, P)."""

    theta: FloatArray
    log_likelihood: FloatArray
    log_prior: FloatArray
    gradient: FloatArray

    @classmethod
    def at(cls, problem: Problem, theta: FloatArray) -> "States":
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
    """Normal approximation of the posterior, theta = centre + L z.

    L has single precision. It is diagonal but for the rows of the biases, whose mean depends on the
    loadings.
    """

    centre: FloatArray  # (P,)
    deviations: FloatArray  # (P,); 1 of biases, 0 of what is fixed: views, and log tau on the path
    cross: FloatArray  # decrease of the mean of the biases for each loading, (J, B J)
    root: FloatArray  # of the covariance of the biases given the loadings, (J, J)

    @classmethod
    def learn(cls, problem: Problem, theta: FloatArray, *, sd_log_scale: float) -> "Whitening":
        """From states of the chains (C, P); ``sd_log_scale`` is 0 where log tau is fixed."""
        curvature = problem.curvature(theta[:: max(1, len(theta) // _N_CURVED)])
        n = problem.n_loadings
        j = len(problem.contrasts)
        size = problem.priors.bias_scale
        scaled = problem.X * np.exp(np.mean(np.log(problem.column_scale(theta)), axis=0))
        information = np.outer(np.sum(scaled**2, axis=0), np.diag(curvature.mean(axis=0)))
        deviations = np.zeros(problem.n_parameters)
        deviations[:n] = (1.0 + information.ravel()) ** -0.5
        deviations[n : n + j] = 1.0
        deviations[-1] = _SHARE * sd_log_scale
        root = np.linalg.cholesky(np.eye(j) + size**2 * curvature.sum(axis=0))
        mutual = size * np.tensordot(scaled, curvature, (0, 0)).reshape(n, j)
        return cls(
            centre=theta.mean(axis=0),
            deviations=deviations.astype(np.float32),
            cross=cho_solve((root, True), mutual.T).astype(np.float32),
            root=np.linalg.inv(root).T.astype(np.float32),
        )

    def product(self, z: FloatArray) -> FloatArray:
        """L z of vectors (C, P)."""
        j, n = self.cross.shape
        out = self.deviations * z
        out[:, n : n + j] = z[:, n : n + j] @ self.root.T - out[:, :n] @ self.cross.T
        return out

    def transposed(self, gradient: FloatArray) -> FloatArray:
        """L' times gradients (C, P)."""
        j, n = self.cross.shape
        out = self.deviations * gradient
        bias = gradient[:, n : n + j]
        out[:, :n] -= self.deviations[:n] * (bias @ self.cross)
        out[:, n : n + j] = bias @ self.root
        return out

    def standardised(self, difference: FloatArray) -> FloatArray:
        """z, (C, P), of differences theta - centre; 0 of what is fixed."""
        j, n = self.cross.shape
        free = self.deviations > 0.0
        out = np.where(free, difference, 0.0) / np.where(free, self.deviations, 1.0)
        bias = difference[:, n : n + j] + difference[:, :n] @ self.cross.T
        out[:, n : n + j] = np.linalg.solve(self.root, bias.T).T
        return out


def move(
    problem: Problem,
    whitening: Whitening,
    states: States,
    step: float,
    rng: np.random.Generator,
    angle: float = _ANGLE,
) -> tuple[States, FloatArray, np.ndarray]:
    """One trajectory: new states, acceptance probabilities, and divergences, (C,) each."""
    w = whitening
    step = step * float(np.exp(_JITTER * rng.standard_normal()))
    n_steps = int(np.clip(round(angle * rng.uniform(*_SPREAD) / step), 1, _MAX_STEPS))
    single = {name: getattr(problem, name).astype(np.float32) for name in ("X", "contrasts")}
    inside = replace(problem, **single)
    free = w.deviations > 0.0
    centre = np.where(free, w.centre, states.theta)
    z: FloatArray = w.standardised(states.theta - centre).astype(np.float32)
    p = np.where(free, rng.standard_normal(z.shape, dtype=np.float32), np.float32(0.0))
    begin = states.log_likelihood + states.log_prior - 0.5 * _squares(p)
    kick, cos, sin = (np.float32(each) for each in (step, np.cos(step), np.sin(step)))
    half = np.float32(0.5) * kick
    start = centre.astype(np.float32)
    p += half * (w.transposed(states.gradient).astype(np.float32) + z)
    for i in range(n_steps):
        z, p = cos * z + sin * p, cos * p - sin * z
        if i < n_steps - 1:
            p += kick * (w.transposed(inside.evaluate(start + w.product(z))[1]) + z)
    new = States.at(problem, centre + w.product(z))
    p += half * (w.transposed(new.gradient).astype(np.float32) + z)
    change = new.log_likelihood + new.log_prior - 0.5 * _squares(p) - begin
    change = np.nan_to_num(change, nan=-np.inf)
    accept = np.exp(np.minimum(change, 0.0))
    return states.where(rng.random(len(accept)) < accept, new), accept, change < -_DIVERGENT


def _squares(p: FloatArray) -> FloatArray:
    """Square norms of momenta (C, P) in double precision, (C,)."""
    return np.einsum("cp,cp->c", p, p, dtype=np.float64)


def _adapt(step: float, accept: FloatArray) -> float:
    """The step size after a trajectory with these acceptance probabilities."""
    return float(np.clip(step * np.exp(0.5 * (accept.mean() - _ACCEPTANCE)), *_STEP_RANGE))


def _move_scale(problem: Problem, states: States, rng: np.random.Generator) -> States:
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


def _fit_views(problem: Problem, states: States) -> States:
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
class Sampled:
    """Draws of C chains, and the log evidence of the model, in nats."""

    theta: FloatArray  # (C, T, P)
    log_likelihood: FloatArray  # (C, T)
    log_prior: FloatArray  # (C, T)
    divergent: np.ndarray  # (C, T)
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
    rng: np.random.Generator,
    on_step: Callable[[float], object] = lambda share: None,
) -> Sampled:
    """Draws of each chain, one per trajectory.

    ``on_step`` is called with the share of the run that is done; KeyboardInterrupt if the user
    stops the run before four draws.
    """
    path_rng, empty_rng, rng = rng.spawn(3)
    empty = log_evidence_empty(problem, rng=empty_rng)
    path = _follow_path(problem, n_chains, path_rng, lambda share: on_step(0.3 * share))
    probability = np.exp(path.log_density - logsumexp(path.log_density))
    mean = float(probability @ path.grid)
    sd = float(np.sqrt(probability @ (path.grid - mean) ** 2))
    # One chain in each quantile of log tau, from its own state at the node beside it.
    quantile = (rng.permutation(n_chains) + 0.5) / n_chains
    log_scale = np.interp(quantile, np.cumsum(probability), path.grid)
    node = np.abs(path.nodes - log_scale[:, None]).argmin(axis=1)
    theta = path.theta[node, np.arange(n_chains)]
    theta[:, -1] = log_scale
    views = slice(problem.n_loadings + len(problem.contrasts), -1)
    theta[:, views] = theta[:, views].mean(axis=0)
    states = States.at(problem, theta)
    visited = [theta]
    steps = list[float]()
    step = float(path.steps[np.abs(path.nodes - mean).argmin()])
    excess = len(problem.y) * len(problem.contrasts) - problem.n_loadings
    angle = _LONG_ANGLE if excess > _MANY_SCORES else _ANGLE
    for i in range(_ROUNDS):
        whitening = Whitening.learn(problem, np.concatenate(visited), sd_log_scale=sd)
        visited = []
        for _ in range(_PER_ROUND):
            states, accept, _ = move(problem, whitening, states, step, rng, angle)
            states = _fit_views(problem, _move_scale(problem, states, rng))
            step = _adapt(step, accept)
            visited.append(states.theta)
            steps.append(step)
        on_step(0.3 + 0.2 * (i + 1) / _ROUNDS)
    step = float(np.exp(np.mean(np.log(steps[len(steps) // 2 :]))))
    draws = list[tuple[np.ndarray, ...]]()
    interrupted = False
    try:
        for i in range(n_draws):
            states, _, divergent = move(problem, whitening, states, step, rng, angle)
            states = _move_scale(problem, states, rng)
            draws.append((states.theta, states.log_likelihood, states.log_prior, divergent))
            on_step(0.5 + 0.5 * (i + 1) / n_draws)
    except KeyboardInterrupt:
        if len(draws) < 4:
            raise
        interrupted = True
    theta, log_likelihood, log_prior, divergent = (
        np.stack(each, axis=1) for each in zip(*draws, strict=True)
    )
    below = 2.0 * ndtr(np.exp(path.grid[0]) / problem.priors.scale) - 1.0  # features do not matter
    single = path.log_bayes_factor[np.abs(path.grid - mean).argmin()]
    return Sampled(
        theta=theta,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        divergent=divergent,
        log_evidence=empty + float(np.logaddexp(logsumexp(path.log_density), np.log(below))),
        log_evidence_error=float(single.std(ddof=1) / np.sqrt(n_chains)),
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
    """Draws (S, P) for a part of the samples, from last states of at most about eight chains.

    ``before`` are these samples in the whitened features of the chains.
    """
    step = sampled.step
    draws = []
    theta = _translate(sampled.theta[:: max(1, len(sampled.theta) // 8), -1], before, problem)
    whitening = Whitening.learn(problem, theta, sd_log_scale=sampled.sd_log_scale)
    states = States.at(problem, theta)
    for i in range(n_warm_up + n_draws):
        states, accept, _ = move(problem, whitening, states, step, rng)
        states = _move_scale(problem, states, rng)
        if i < n_warm_up:
            step = _adapt(step, accept)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """Chains at U increasing values of log tau, and its posterior on a grid."""

    nodes: FloatArray  # values of log tau, (U,)
    steps: FloatArray  # step sizes, (U,)
    theta: FloatArray  # (U, C, P)
    grid: FloatArray  # (G,)
    log_bayes_factor: FloatArray  # log Z(u) / Z_0 by each chain, (G, C)
    log_density: FloatArray  # with the prior and the distance of the grid, (G,)


def _follow_path(
    problem: Problem, n_chains: int, rng: np.random.Generator, on_step: Callable[[float], object]
) -> _Path:
    """Chains through increasing values of log tau, until its posterior density is negligible."""
    begin = problem.n_loadings
    end = problem.n_loadings + len(problem.contrasts)
    theta = rng.standard_normal((n_chains, problem.n_parameters))
    theta[:, begin:end] *= 0.1
    theta[:, end:] = 0.0
    n_scores = len(problem.y) * len(problem.contrasts)
    per_node = _PER_NODE * (_MORE if n_scores <= _FEW_SCORES else 1)
    step = _FIRST_STEP
    nodes = list[float]()
    steps = list[float]()
    derivatives = list[FloatArray]()
    kept = list[FloatArray]()
    for u in count(_FIRST_NODE, _NODE_STEP):
        n_warm_up = max(per_node // 3, 1) if nodes else 2 * per_node
        theta = theta.copy()
        theta[:, -1] = u
        whitening = Whitening.learn(problem, theta, sd_log_scale=0.0)
        states = States.at(problem, theta)
        visited = []
        for i in range(n_warm_up + per_node):
            states, accept, _ = move(problem, whitening, states, step, rng, _PATH_ANGLE)
            step = _adapt(step, accept)
            if i < n_warm_up:
                states = _fit_views(problem, states)
            else:
                visited.append(states)
        theta = states.theta
        nodes.append(u)
        steps.append(step)
        derivatives.append(_derivative(problem, visited))
        kept.append(theta)
        on_step(min(len(nodes) / 11.0, 1.0))
        if len(nodes) > 5:
            grid = np.linspace(nodes[0], u, 1 + 20 * (len(nodes) - 1))
            # Below the first node the derivative is proportional to exp(2 u).
            integral = CubicSpline(nodes, np.stack(derivatives)).antiderivative()
            ratio = 0.5 * derivatives[0] + integral(grid)
            log_p = ratio.mean(axis=1) + log_prior_scale(grid, problem.priors.scale)
            if log_p[-1] < log_p.max() - _ENOUGH:
                break
    return _Path(
        nodes=np.array(nodes),
        steps=np.array(steps),
        theta=np.stack(kept),
        grid=grid,
        log_bayes_factor=ratio,
        log_density=log_p + np.log(grid[1] - grid[0]),
    )


def _derivative(problem: Problem, visited: list[States]) -> FloatArray:
    """Mean derivative of the log likelihood in log tau over visited states, of each chain, (C,).

    With control variates: by Stein's identity the mean of theta' times the gradient of the log
    density is less the number of parameters, for loadings and for biases.
    """
    theta = np.stack([each.theta for each in visited])  # (T, C, P)
    gradient = np.stack([each.gradient for each in visited])
    n = problem.n_loadings
    j = len(problem.contrasts)
    product = theta * gradient
    controls = np.stack([product[..., :n].sum(axis=2), product[..., n : n + j].sum(axis=2)], axis=2)
    derivative = np.sum(product[..., :n] + theta[..., :n] ** 2, axis=2)
    centred = (controls - controls.mean(axis=(0, 1))).reshape(-1, 2)
    coefficients = np.linalg.lstsq(centred, derivative.ravel(), rcond=1e-6)[0]
    return np.asarray((derivative - np.add(controls, (n, j)) @ coefficients).mean(axis=0))


def log_evidence_empty(problem: Problem, *, rng: np.random.Generator) -> float:
    """Log evidence of the biases alone, in nats, by importance sampling around the mode.

    Sufficient statistics are the counts of classes; each label of a set is a problem with two.
    """
    if problem.target == "multiclass":
        labels, counts = np.unique(problem.y, return_counts=True)
        return _log_evidence_of_counts(problem, problem.contrasts, labels, counts, rng)
    on = problem.y.sum(axis=0)
    labels = np.array([[True], [False]])
    counts = np.stack([on, len(problem.y) - on], axis=1)
    return sum(_log_evidence_of_counts(problem, np.eye(1), labels, pair, rng) for pair in counts)


def _log_evidence_of_counts(
    problem: Problem,
    contrasts: FloatArray,
    labels: np.ndarray,
    counts: IntArray,
    rng: np.random.Generator,
) -> float:
    """Log evidence of counts of labels that all have the same linear predictor."""
    from scipy.stats import multivariate_t

    map_ = problem.priors.bias_scale * contrasts
    j = len(contrasts)
    target = problem.target
    lapse = problem.priors.lapse

    def log_density(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        eta = np.repeat((theta @ map_)[:, None], len(labels), axis=1)
        each, gradient = label_log_likelihood(eta, labels, target, lapse)
        value = each @ counts - 0.5 * np.sum(theta**2, axis=1) - j * LOG_SQRT_2PI
        return value, np.einsum("snk,n->sk", gradient, counts) @ map_.T - theta

    def negative(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = log_density(theta[None])
        return -float(value[0]), -gradient[0]

    mode = minimize(negative, np.zeros(j), jac=True, method="L-BFGS-B").x
    eta = np.repeat((mode @ map_)[None], len(labels), axis=0)
    second = np.tensordot(counts, label_derivatives(eta, labels, target, lapse)[1], 1)
    covariance = np.linalg.inv(np.eye(j) - map_ @ second @ map_.T)
    # Its tails are heavier than those of the posterior.
    proposal = multivariate_t(mode, covariance, df=_DEGREES, seed=rng)
    theta = proposal.rvs(_N_IMPORTANCE).reshape(-1, j)
    log_weight = log_density(theta)[0] - proposal.logpdf(theta)
    return float(logsumexp(log_weight) - np.log(_N_IMPORTANCE))
