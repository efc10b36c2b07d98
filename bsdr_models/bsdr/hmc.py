r"""Hamiltonian Monte Carlo for the posterior of BSDR, and its evidence.

Given :math:`\tau` the posterior has one mode, so that chains need neither tempering nor jumps.
They run side by side, as batches of parameter vectors :math:`\theta` (:class:`Problem`), in
coordinates z of a normal approximation, :math:`\theta = c + L z`. For the loadings
:math:`L L^\top` is the inverse of the Kronecker form :math:`I + \tau^2 X^\top X \otimes \bar H`,
with the mean curvature :math:`\bar H` of a sample at the states of the chains; the biases have
their distribution given the loadings, by the curvatures of single samples; c is the mean of the
states. In rotated parameters, whose prior is the same, L is diagonal but for the rows of the
biases. The flow of the normal part is a rotation, which is solved exactly; only the rest of the
force is integrated by steps [1]_, so that parameters which the data do not determine cost nothing,
however many there are. Inside a trajectory the force has single precision; the ends, and so the
probability of acceptance, have double precision.

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
from scipy.special import logsumexp, ndtr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bsdr.posterior import (
    LOG_SQRT_2PI,
    Problem,
    label_derivatives,
    label_log_likelihood,
    log_prior_scale,
)

# Nodes of log tau: the first and the distance between them; trajectories at a node after the first
# one. The path ends where the posterior density has fallen by so many nats.
_FIRST_NODE, _NODE_STEP, _PER_NODE, _ENOUGH = -3.5, 0.6, 4, 5.0
# Factor of these trajectories for fewer scores (samples times contrasts), for a precise evidence.
_FEW_SCORES, _MORE = 200, 3
# Rounds of adaptation, and trajectories of each.
_ROUNDS, _PER_ROUND = 3, 5
# Target acceptance, first step size, its range and its jitter (standard deviation of the log).
_ACCEPTANCE, _FIRST_STEP, _STEP_RANGE, _JITTER = 0.75, 0.3, (0.01, 1.2), 0.15
# Length of a trajectory as an angle of the rotation, along the path and then; its range as factors,
# and most steps of one.
_PATH_ANGLE, ANGLE, _SPREAD, _MAX_STEPS = 2.0, 3.5, (0.6, 1.3), 40
# States whose curvature is averaged.
_N_CURVED = 8
# Metropolis steps of log tau given the loadings, and their size in standard deviations.
_N_SCALE_STEPS, _SCALE_STEP = 4, 2.0
# Change of the energy beyond which a trajectory is divergent.
_DIVERGENT = 1000.0
# Draws for the evidence without features.
_N_IMPORTANCE = 4000


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
    """Normal approximation of the posterior in rotated parameters, phi = centre + L z.

    Loadings and biases are rotated to the axes of the mean curvature, and loadings to those of the
    features, which leaves their prior as it is. L is diagonal but for the rows of the biases, whose
    mean depends on the loadings, and has single precision. Relative scales of views are not among
    the rotated parameters.
    """

    centre: FloatArray  # (P - V,)
    deviations: FloatArray  # (P - V,); 1 of biases, 0 of log tau if it is fixed
    cross: FloatArray  # decrease of the mean of the biases for each loading, (J, B J)
    root: FloatArray  # of the covariance of the biases given the loadings, (J, J)
    features: FloatArray | None  # rotation (B, B); None for one view: uncorrelated
    axes: FloatArray  # rotation (J, J)

    @classmethod
    def learn(cls, problem: Problem, theta: FloatArray, *, sd_log_scale: float) -> "Whitening":
        """From states of the chains (C, P); ``sd_log_scale`` is 0 where log tau is fixed."""
        curvature = problem.curvature(theta[:: max(1, len(theta) // _N_CURVED)])
        scaled = problem.X * np.exp(np.mean(np.log(problem.column_scale(theta)), axis=0))
        value, axes = np.linalg.eigh(curvature.mean(axis=0))
        features, information = None, np.sum(scaled**2, axis=0)
        if problem.views is not None:
            information, features = np.linalg.eigh(scaled.T @ scaled)
            information, scaled = np.maximum(information, 0.0), scaled @ features
        precision = 1.0 + np.multiply.outer(information, np.maximum(value, 0.0)).ravel()
        curvature, size, j = axes.T @ curvature @ axes, problem.priors.bias_scale, len(axes)
        chol = np.linalg.cholesky(np.eye(j) + size**2 * curvature.sum(axis=0))
        mutual = size * np.tensordot(scaled, curvature, (0, 0)).reshape(-1, j)
        sd_scale = _deviation_of_scale(problem, theta, sd_log_scale)
        whitening = cls(
            centre=np.empty(0),
            deviations=np.concatenate([precision**-0.5, np.ones(j), [sd_scale]]).astype(np.float32),
            cross=cho_solve((chol, True), mutual.T).astype(np.float32),
            root=np.linalg.inv(chol).T.astype(np.float32),
            features=features,
            axes=axes,
        )
        return replace(whitening, centre=whitening.rotate(theta).mean(axis=0))

    def rotate(self, vectors: FloatArray) -> FloatArray:
        """Rotated parameters, or gradients in them, (C, P - V), of vectors (C, P)."""
        n, j = self.cross.shape[1], len(self.axes)
        loadings = vectors[:, :n].reshape(len(vectors), -1, j) @ self.axes
        if self.features is not None:
            loadings = self.features.T @ loadings
        bias = vectors[:, n : n + j] @ self.axes
        return np.concatenate([loadings.reshape(len(vectors), n), bias, vectors[:, -1:]], axis=1)

    def rotate_back(self, rotated: FloatArray, theta: FloatArray) -> FloatArray:
        """Parameters (C, P) from rotated ones, and relative scales from ``theta``."""
        n, j = self.cross.shape[1], len(self.axes)
        loadings = rotated[:, :n].reshape(len(rotated), -1, j) @ self.axes.T
        if self.features is not None:
            loadings = self.features @ loadings
        out = theta.copy()
        out[:, :n] = loadings.reshape(len(out), n)
        out[:, n : n + j], out[:, -1] = rotated[:, n:-1] @ self.axes.T, rotated[:, -1]
        return out

    def product(self, z: FloatArray) -> FloatArray:
        """L z of vectors (C, P - V)."""
        n, out = self.cross.shape[1], self.deviations * z
        out[:, n:-1] = z[:, n:-1] @ self.root.T - out[:, :n] @ self.cross.T
        return out

    def transposed(self, gradient: FloatArray) -> FloatArray:
        """L' times gradients (C, P - V)."""
        n, out = self.cross.shape[1], self.deviations * gradient
        out[:, :n] -= self.deviations[:n] * (gradient[:, n:-1] @ self.cross)
        out[:, n:-1] = gradient[:, n:-1] @ self.root
        return out

    def standardised(self, difference: FloatArray) -> FloatArray:
        """z, (C, P - V), of differences phi - centre; 0 of log tau if it is fixed."""
        n, sd = self.cross.shape[1], self.deviations
        out = difference / np.where(sd > 0.0, sd, 1.0)
        bias = difference[:, n:-1] + difference[:, :n] @ self.cross.T
        out[:, n:-1] = np.linalg.solve(self.root, bias.T).T
        return out

    def rotated(self, problem: Problem, theta: FloatArray) -> Problem:
        """The problem in rotated parameters, with relative scales as in one vector (P,).

        In single precision.
        """
        X = problem.X
        if problem.views is not None:
            _, _, views, _ = problem.split(theta[None])
            X = X * np.exp(problem.priors.view_width * views[0, problem.views])
        if self.features is not None:
            X = X @ self.features
        return replace(
            problem,
            X=np.ascontiguousarray(X, dtype=np.float32),
            contrasts=(self.axes.T @ problem.contrasts).astype(np.float32),
            views=None,
        )


def _deviation_of_scale(problem: Problem, theta: FloatArray, sd_log_scale: float) -> float:
    """Standard deviation of log tau given all other parameters; 0 if ``sd_log_scale`` is.

    From the mean curvature of the log likelihood, by differences of gradients.
    """
    if sd_log_scale == 0.0:
        return 0.0
    step, ends = 0.05, []
    for sign in (-1.0, 1.0):
        moved = theta.copy()
        moved[:, -1] += sign * step
        ends.append(problem.log_density(moved)[2][:, -1].mean())
    return float(max((ends[0] - ends[1]) / (2.0 * step), sd_log_scale**-2) ** -0.5)


@dataclass(slots=True)
class Stepper:
    """Trajectories of all chains with one step size, which adapts until it is frozen."""

    problem: Problem
    whitening: Whitening
    rng: np.random.Generator
    step: float = _FIRST_STEP
    adapting: bool = True

    def move(self, states: States, angle: float = ANGLE) -> tuple[States, FloatArray, np.ndarray]:
        """One trajectory: new states, acceptance probabilities, and divergences, (C,) each."""
        w, rng = self.whitening, self.rng
        step = self.step * float(np.exp(_JITTER * rng.standard_normal()))
        n_steps = int(np.clip(round(angle * rng.uniform(*_SPREAD) / step), 1, _MAX_STEPS))
        inside = w.rotated(self.problem, states.theta[0])
        free, rotated = w.deviations > 0.0, w.rotate(states.theta)
        centre = np.where(free, w.centre, rotated)
        z: FloatArray = w.standardised(rotated - centre).astype(np.float32)
        p = np.where(free, rng.standard_normal(z.shape, dtype=np.float32), np.float32(0.0))
        begin = states.log_likelihood + states.log_prior - 0.5 * _squares(p)
        kick, cos, sin = (np.float32(each) for each in (step, np.cos(step), np.sin(step)))
        half, start = np.float32(0.5) * kick, centre.astype(np.float32)
        p += half * (w.transposed(w.rotate(states.gradient)).astype(np.float32) + z)
        for i in range(n_steps):
            z, p = cos * z + sin * p, cos * p - sin * z
            if i < n_steps - 1:
                p += kick * (w.transposed(inside.evaluate(start + w.product(z))[1]) + z)
        new = States.at(self.problem, w.rotate_back(centre + w.product(z), states.theta))
        p += half * (w.transposed(w.rotate(new.gradient)).astype(np.float32) + z)
        change = new.log_likelihood + new.log_prior - 0.5 * _squares(p) - begin
        change = np.nan_to_num(change, nan=-np.inf)
        accept = np.exp(np.minimum(change, 0.0))
        if self.adapting:
            factor = np.exp(0.5 * (accept.mean() - _ACCEPTANCE))
            self.step = float(np.clip(self.step * factor, *_STEP_RANGE))
        chosen = rng.random(len(accept)) < accept
        return states.where(chosen, new), accept, change < -_DIVERGENT


def _squares(p: FloatArray) -> FloatArray:
    """Square norms of momenta (C, P) in double precision, (C,)."""
    return np.einsum("cp,cp->c", p, p, dtype=np.float64)


def _move_scale(problem: Problem, states: States, rng: np.random.Generator) -> States:
    """Metropolis steps of log tau with fixed loadings of whitened features.

    With n loadings whose standard normals have the square norm q, the density of log tau = v is
    proportional to p(v) exp(-n v - q exp(2 (u - v)) / 2), where u is its current value.
    """
    n, scale = problem.n_loadings, problem.priors.scale
    u = states.theta[:, -1]
    square = np.sum(states.theta[:, :n] ** 2, axis=1)

    def log_density(v: FloatArray) -> FloatArray:
        return log_prior_scale(v, scale) - n * v - 0.5 * square * np.exp(2.0 * (u - v))

    v, value = u, log_density(u)
    for _ in range(_N_SCALE_STEPS):
        proposal = v + _SCALE_STEP / np.sqrt(2.0 * n + 1.0) * rng.standard_normal(len(u))
        new = log_density(proposal)
        accepted = np.log(rng.random(len(u))) < new - value
        v, value = np.where(accepted, proposal, v), np.where(accepted, new, value)
    factor = np.exp(u - v)[:, None]
    theta, gradient = states.theta.copy(), states.gradient.copy()
    theta[:, :n] *= factor
    theta[:, -1] = v
    gradient[:, :n] = (gradient[:, :n] + states.theta[:, :n]) / factor - theta[:, :n]
    gradient[:, -1] += (np.exp(2.0 * u) - np.exp(2.0 * v)) / scale**2
    log_prior = problem.log_prior(theta)
    return replace(states, theta=theta, gradient=gradient, log_prior=log_prior)


def _fit_views(problem: Problem, states: States) -> States:
    """States with log relative scales that fit the loadings of all chains, which stay as they are.

    A step of expectation maximisation of their marginal posterior density.
    """
    if problem.views is None:
        return states
    theta = states.theta.copy()
    n, j, width = problem.n_loadings, len(problem.contrasts), problem.priors.view_width
    ends = np.searchsorted(problem.views, np.arange(problem.n_views + 1)) * j
    for v in range(problem.n_views):
        columns, index = slice(*ends[v : v + 2]), n + j + v
        size, start = columns.stop - columns.start, theta[0, index]
        square = np.mean(np.sum(theta[:, columns] ** 2, axis=1))
        theta[:, index] += np.log(square / max(size + start / width, 1.0)) / (2.0 * width)
        theta[:, columns] *= np.exp(width * (start - theta[0, index]))
    return States.at(problem, theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Chains at U increasing values of log tau."""

    nodes: FloatArray  # values of log tau, (U,)
    steps: FloatArray  # step sizes, (U,)
    log_bayes_factor: FloatArray  # log Z(u) / Z_0 by each chain, (U, C)
    theta: FloatArray  # (U, C, P)

    def posterior(self, scale: float) -> tuple[FloatArray, FloatArray, float]:
        """Fine grid of log tau, its probabilities, and the log Bayes factor against no features."""
        mean = self.log_bayes_factor.mean(axis=1)
        grid = np.linspace(self.nodes[0], self.nodes[-1], 1 + 20 * (len(self.nodes) - 1))
        spline = CubicSpline(self.nodes, mean)
        log_p = spline(grid) + log_prior_scale(grid, scale) + np.log(grid[1] - grid[0])
        below = 2.0 * ndtr(np.exp(self.nodes[0]) / scale) - 1.0  # where features do not matter
        total = float(logsumexp(np.append(log_p, np.log(below))))
        return grid, np.exp(log_p - logsumexp(log_p)), total


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Draws of C chains; log evidences are in nats, of the model and of that without features."""

    theta: FloatArray  # (C, T, P)
    log_likelihood: FloatArray  # (C, T)
    log_prior: FloatArray  # (C, T)
    divergent: np.ndarray  # (C, T)
    log_evidence: float
    log_evidence_empty: float
    log_evidence_error: float  # standard error
    stepper: Stepper  # for further trajectories
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
    path_rng, empty_rng, chain_rng = rng.spawn(3)
    empty = log_evidence_empty(problem, rng=empty_rng)
    path = _follow_path(problem, n_chains, path_rng, lambda share: on_step(0.3 * share))
    grid, probability, log_bayes_factor = path.posterior(problem.priors.scale)
    mean = float(probability @ grid)
    sd = float(np.sqrt(probability @ (grid - mean) ** 2))
    # One chain in each quantile of log tau, from its own state at the node beside it.
    quantile = (chain_rng.permutation(n_chains) + 0.5) / n_chains
    log_scale = np.interp(quantile, np.cumsum(probability), grid)
    node = np.abs(path.nodes - log_scale[:, None]).argmin(axis=1)
    theta = path.theta[node, np.arange(n_chains)]
    theta[:, -1] = log_scale
    views = slice(problem.n_loadings + len(problem.contrasts), -1)
    theta[:, views] = theta[:, views].mean(axis=0)
    whitening = Whitening.learn(problem, theta, sd_log_scale=sd)
    step = float(path.steps[np.abs(path.nodes - mean).argmin()])
    stepper = Stepper(problem, whitening, chain_rng, step=step)
    states, steps = States.at(problem, theta), list[float]()
    for i in range(_ROUNDS):
        visited = []
        for _ in range(_PER_ROUND):
            states = _move_scale(problem, stepper.move(states)[0], chain_rng)
            states = _fit_views(problem, states)
            steps.append(stepper.step)
            visited.append(states.theta)
        stepper.whitening = Whitening.learn(problem, np.concatenate(visited), sd_log_scale=sd)
        on_step(0.3 + 0.2 * (i + 1) / _ROUNDS)
    for _ in range(_PER_ROUND):
        states = _move_scale(problem, stepper.move(states)[0], chain_rng)
        steps.append(stepper.step)
    stepper.adapting = False
    stepper.step = float(np.exp(np.mean(np.log(steps[len(steps) // 2 :]))))
    draws: list[States] = []
    divergent, interrupted = list[np.ndarray](), False
    try:
        for i in range(n_draws):
            states, _, diverged = stepper.move(states)
            states = _move_scale(problem, states, chain_rng)
            divergent.append(diverged)
            draws.append(replace(states, gradient=np.empty(0)))
            on_step(0.5 + 0.5 * (i + 1) / n_draws)
    except KeyboardInterrupt:
        if len(draws) < 4:
            raise
        interrupted = True
    # Of the log Bayes factors of single chains at the mean of log tau.
    single = np.array([np.interp(mean, path.nodes, each) for each in path.log_bayes_factor.T])
    return Sampled(
        theta=np.stack([each.theta for each in draws], axis=1),
        log_likelihood=np.stack([each.log_likelihood for each in draws], axis=1),
        log_prior=np.stack([each.log_prior for each in draws], axis=1),
        divergent=np.stack(divergent[: len(draws)], axis=1),
        log_evidence=empty + log_bayes_factor,
        log_evidence_empty=empty,
        log_evidence_error=float(single.std(ddof=1) / np.sqrt(n_chains)),
        stepper=stepper,
        interrupted=interrupted,
    )


def continue_on(
    problem: Problem, sampled: Sampled, *, n_warm_up: int, n_draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draws (S, P) for a part of the samples, from last states of at most about eight chains."""
    first = sampled.stepper
    stepper = Stepper(problem, first.whitening, rng, step=first.step, adapting=True)
    states, draws = States.at(problem, sampled.theta[:: max(1, len(sampled.theta) // 8), -1]), []
    for i in range(n_warm_up + n_draws):
        stepper.adapting = i < n_warm_up
        states = _move_scale(problem, stepper.move(states, _PATH_ANGLE)[0], rng)
        if i >= n_warm_up:
            draws.append(states.theta)
    return np.concatenate(draws)


def _follow_path(
    problem: Problem, n_chains: int, rng: np.random.Generator, on_step: Callable[[float], object]
) -> Path:
    """Chains through increasing values of log tau, until its posterior density is negligible."""
    begin, end = problem.n_loadings, problem.n_loadings + len(problem.contrasts)
    theta = rng.standard_normal((n_chains, problem.n_parameters))
    theta[:, begin:end] *= 0.1
    theta[:, end:] = 0.0
    n_scores = len(problem.y) * len(problem.contrasts)
    per_node = _PER_NODE * (_MORE if n_scores <= _FEW_SCORES else 1)
    step, nodes, steps = _FIRST_STEP, list[float](), list[float]()
    derivatives, kept = list[FloatArray](), list[FloatArray]()
    for u in count(_FIRST_NODE, _NODE_STEP):
        theta = theta.copy()
        theta[:, -1] = u
        whitening = Whitening.learn(problem, theta, sd_log_scale=0.0)
        stepper = Stepper(problem, whitening, rng, step=step)
        states = States.at(problem, theta)
        for _ in range(max(per_node // 3, 1) if nodes else 2 * per_node):
            states = _fit_views(problem, stepper.move(states, _PATH_ANGLE)[0])
        visited = []
        for _ in range(per_node):
            states, _, _ = stepper.move(states, _PATH_ANGLE)
            visited.append(states)
        theta, step = states.theta, stepper.step
        nodes.append(u)
        steps.append(step)
        derivatives.append(_derivative(problem, visited))
        kept.append(theta)
        on_step(min(len(nodes) / 11.0, 1.0))
        if len(nodes) > 5:
            # Below the first node the derivative is proportional to exp(2 u).
            spline = CubicSpline(nodes, np.stack(derivatives))
            ratio = 0.5 * derivatives[0] + np.stack([spline.integrate(nodes[0], v) for v in nodes])
            log_p = ratio.mean(axis=1) + log_prior_scale(np.array(nodes), problem.priors.scale)
            if log_p[-1] < log_p.max() - _ENOUGH:
                break
    return Path(
        nodes=np.array(nodes),
        steps=np.array(steps),
        log_bayes_factor=ratio,
        theta=np.stack(kept),
    )


def _derivative(problem: Problem, visited: list[States]) -> FloatArray:
    """Mean derivative of the log likelihood in log tau over visited states, of each chain, (C,).

    With control variates: by Stein's identity the mean of theta' times the gradient of the log
    density is less the number of parameters, for loadings and for biases.
    """
    theta = np.stack([each.theta for each in visited])  # (T, C, P)
    gradient = np.stack([each.gradient for each in visited])
    n, j = problem.n_loadings, len(problem.contrasts)
    product = theta * gradient
    controls = np.stack(
        [product[..., :n].sum(axis=2) + n, product[..., n : n + j].sum(axis=2) + j], axis=2
    )
    derivative = np.sum(theta[..., :n] * (gradient[..., :n] + theta[..., :n]), axis=2)
    centred = controls - controls.mean(axis=(0, 1))
    coefficients = np.linalg.lstsq(
        centred.reshape(-1, 2), (derivative - derivative.mean()).ravel(), rcond=1e-6
    )[0]
    return np.asarray((derivative - controls @ coefficients).mean(axis=0))


def log_evidence_empty(problem: Problem, *, rng: np.random.Generator) -> float:
    """Log evidence of the biases alone, in nats, by importance sampling around the mode.

    Sufficient statistics are the counts of classes or labels.
    """
    contrasts, bias_scale = problem.contrasts, problem.priors.bias_scale
    if problem.target == "multiclass":
        labels, counts = np.unique(problem.y, return_counts=True)
    else:  # each label alone is a problem with two samples, 1 and 0
        on = problem.y.sum(axis=0)
        return sum(
            _log_evidence_of_counts(
                np.eye(1), bias_scale, np.array([[True], [False]]), pair, problem, rng
            )
            for pair in np.stack([on, len(problem.y) - on], axis=1)
        )
    return _log_evidence_of_counts(contrasts, bias_scale, labels, counts, problem, rng)


def _log_evidence_of_counts(
    contrasts: FloatArray,
    bias_scale: float,
    labels: np.ndarray,
    counts: IntArray,
    problem: Problem,
    rng: np.random.Generator,
) -> float:
    """Log evidence of counts of labels that all have the same linear predictor."""
    from scipy.stats import multivariate_t

    j = len(contrasts)
    target, lapse = problem.target, problem.priors.lapse

    def log_density(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        eta = np.repeat((bias_scale * theta @ contrasts)[:, None], len(labels), axis=1)
        each, gradient = label_log_likelihood(eta, labels, target, lapse)
        total = np.einsum("snk,n->sk", gradient, counts) @ contrasts.T * bias_scale
        value = each.reshape(len(theta), -1) @ counts - 0.5 * np.sum(theta**2, axis=1)
        return value - j * LOG_SQRT_2PI, total - theta

    def negative(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = log_density(theta[None])
        return -float(value[0]), -gradient[0]

    mode = minimize(negative, np.zeros(j), jac=True, method="L-BFGS-B").x
    eta = np.repeat((bias_scale * mode @ contrasts)[None], len(labels), axis=0)
    second = -label_derivatives(eta, labels, target, lapse)[1]
    information = bias_scale**2 * contrasts @ np.tensordot(counts, second, 1) @ contrasts.T
    root = np.linalg.cholesky(np.linalg.inv(np.eye(j) + information))
    # Student's t with 8 degrees of freedom, whose tails are heavier than those of the posterior.
    degrees = 8.0
    z = rng.standard_normal((_N_IMPORTANCE, j))
    z *= np.sqrt(degrees / rng.chisquare(degrees, _N_IMPORTANCE))[:, None]
    log_q = multivariate_t.logpdf(z, np.zeros(j), df=degrees) - np.sum(np.log(np.diag(root)))
    log_weight = log_density(mode + z @ root.T)[0] - log_q
    return float(logsumexp(log_weight) - np.log(_N_IMPORTANCE))
