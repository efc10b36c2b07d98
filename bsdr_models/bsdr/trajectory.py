r"""Trajectories of Hamiltonian Monte Carlo for the posterior of BSDR.

Chains run side by side, as batches of parameter vectors :math:`\theta` (:class:`Problem`), in
coordinates z of a normal approximation, :math:`\theta = c + L z`. Its precision is that of the
prior plus the curvatures of the samples at the states of the chains. If loadings are many, or more
than samples, they have independent precisions, :math:`1 + \tau^2 \sum_n x_{nb}^2 \bar H_{jj}`, with
the mean curvature :math:`\bar H` of a sample, and only the biases have their distribution given the
loadings, unless contrasts are many too. The mean c is that of the states. The flow of the normal
part is a rotation, which is solved exactly; only the rest of the force is integrated by steps [1]_,
so that parameters which the data do not determine cost nothing, however many there are. Inside a
trajectory the force has single precision; the ends, and so the probability of acceptance, have
double precision. Blocks of chains have a thread each, if there are several.

References
----------
.. [1] A. Beskos, F. J. Pinski, J. M. Sanz-Serna, A. M. Stuart (2011). Hybrid Monte Carlo on Hilbert
       spaces. Stochastic Processes and their Applications 121(10).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from bsdr_models.bsdr import leapfrog
from bsdr_models.bsdr.problem import Problem
from bsdr_models.inference.parallel import run_in_threads
from bsdr_models.numerics.arrays import FloatArray, IntArray, SingleArray
from bsdr_models.numerics.folds import evenly_spaced

# Target acceptance of the step size.
_ACCEPTANCE = 0.75
# Range of the step size.
_STEP_RANGE = (0.01, 1.2)
# Standard deviation of the log step size between trajectories.
_JITTER = 0.15
# Angle by which a trajectory rotates normal coordinates.
ANGLE = 4.25
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
    """Normal approximation of the posterior, theta = centre + L z."""

    centre: FloatArray  # (P,)
    normal: leapfrog.Normal  # L

    @classmethod
    def learn(cls, problem: Problem, theta: FloatArray, *, sd_log_scale: float) -> "Whitening":
        """From states of the chains (C, P); ``sd_log_scale`` is 0 where log tau is fixed."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """Outcome of a trajectory of C chains."""

    states: States  # ends, or beginnings where these are rejected
    acceptance: FloatArray  # probabilities, (C,)
    stats: dict[str, np.ndarray]  # (C,) each, by their names in ArviZ


def move(
    problem: Problem,
    whitening: Whitening,
    states: States,
    step: float,
    rng: np.random.Generator,
    angle: float = ANGLE,
) -> Trajectory:
    """Move all chains along one trajectory each, and accept or reject their ends."""
    w = whitening
    step = step * float(np.exp(_JITTER * rng.standard_normal()))
    n_steps = int(np.clip(round(angle * rng.uniform(*_SPREAD) / step), 1, _MAX_STEPS))
    free = w.normal.deviations > 0.0
    centre = np.where(free, w.centre, states.theta)
    normal = rng.standard_normal(states.theta.shape, dtype=np.float32)
    normal = np.where(free, normal, np.float32(0.0))
    half = np.float32(0.5 * step)
    density = problem.single

    def integrate(chains: IntArray) -> tuple[np.ndarray, ...]:
        """Ends of some trajectories, their log densities and gradient, and momenta."""
        z: SingleArray = w.standardised(states.theta[chains] - centre[chains]).astype(np.float32)
        force = leapfrog.transposed(w.normal, states.gradient[chains].astype(np.float32))
        p = normal[chains] + half * (force + z)
        start = centre[chains].astype(np.float32)
        leapfrog.leapfrog(density, w.normal, start, z, p, np.float32(step), n_steps)
        theta: FloatArray = centre[chains] + leapfrog.product(w.normal, z)
        log_likelihood, log_prior, gradient = problem.log_density(theta)
        p += half * (leapfrog.transposed(w.normal, gradient.astype(np.float32)) + z)
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
    return Trajectory(
        states=states.where(accepted, new),
        acceptance=acceptance,
        stats={
            "acceptance_rate": acceptance,
            "diverging": change < -_DIVERGENT,
            "energy": -begin - np.where(accepted, change, 0.0),  # with momenta, in nats
            "n_steps": np.full(n_chains, n_steps),
            "step_size": np.full(n_chains, step),
        },
    )


def _squares(p: np.ndarray) -> FloatArray:
    """Square norms of momenta (C, P) in double precision, (C,)."""
    return np.einsum("cp,cp->c", p, p, dtype=np.float64)


def adapt_step(step: float, accept: FloatArray) -> float:
    """The step size after a trajectory with these acceptance probabilities."""
    return float(np.clip(step * np.exp(0.5 * (accept.mean() - _ACCEPTANCE)), *_STEP_RANGE))
