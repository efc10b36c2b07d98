r"""Tempered sequential Monte Carlo for posterior draws and the evidence.

Particles are drawn from the prior and moved through the densities

.. math::
    \pi_\beta(\theta) \propto p(\theta) \, L(\theta)^\beta, \qquad
    0 = \beta_0 < \dots < \beta_T = 1.

Each step takes the largest :math:`\beta` at which the weights
:math:`L^{\beta_t - \beta_{t-1}}` keep a given effective sample size, resamples, and moves all
particles by Hamiltonian Monte Carlo that leaves :math:`\pi_\beta` invariant [1]_. The product of
the mean weights is an unbiased estimate of the evidence for fixed temperatures, and a consistent
one for adaptive temperatures [2]_. At :math:`\beta = 1` every particle continues as a Markov chain,
of which some states are kept.

The mass matrix is the negative Hessian of :math:`\log \pi_\beta` at the mean of the particles, by
differences of gradients, without the positive curvature of the log likelihood. If there are too
many parameters for this, it is the diagonal of inverse variances of the particles.

The model is given by the log likelihood of a batch of particles with its gradient, in coordinates
in which the prior is N(0, I).

References
----------
.. [1] P. Del Moral, A. Doucet, A. Jasra (2006). Sequential Monte Carlo samplers. Journal of the
       Royal Statistical Society B 68(3).
.. [2] A. Beskos, A. Jasra, N. Kantas, A. Thiery (2016). On the convergence of adaptive sequential
       Monte Carlo methods. The Annals of Applied Probability 26(2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray

# Log likelihood (S,) and its gradient (S, P) at particles (S, P). If the value is minus infinity,
# the gradient may be any finite one.
type LogLikelihood = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

# Proposals (S, P) for particles (S, P), and the log Jacobian of the map to them, (S,). The map must
# be as likely to be chosen as its inverse.
type Jump = Callable[[FloatArray, np.random.Generator], tuple[FloatArray, FloatArray]]

# Particles (S, P) and their gradients (S, P), aligned by orthogonal maps under which prior and
# likelihood are invariant.
type Align = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]

# Jumps per trajectory.
_N_JUMPS = 2
# Target acceptance, and initial value and range of the step size.
ACCEPTANCE, FIRST_STEP, STEP_RANGE = 0.75, 0.3, (1e-3, 1.0)
# Standard deviation of the log step size of a move.
_JITTER = 0.3
# Smallest standard deviation of a coordinate in the metric.
_LEAST_SCALE = 0.03
# Hessian by differences: their distance, points per batch, and the largest cost as a fraction of
# that of the moves at a temperature.
_DISTANCE, _BATCH, _SHARE = 1e-4, 256, 0.25
# Bisections for the log of the next temperature step, and the lower end of their interval.
_N_HALVINGS, _LEAST_LOG_STEP = 50, -700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Numbers of particles and moves.

    n_particles
        S.
    n_moves
        Trajectories at each temperature below one.
    n_warm_up
        Warm-up trajectories at temperature one.
    n_kept
        Stored states per particle.
    n_between
        Trajectories per stored state.
    max_steps
        Largest number of leapfrog steps of a trajectory below temperature one, drawn uniformly.
    last_steps
        The same at temperature one, where particles should decorrelate from their ancestors.
    n_last
        Particles at temperature one, where long chains of few particles decorrelate better than
        short chains of many; None for all.
    kept_share
        Effective sample size of the weights over the number of particles; larger values give more
        temperatures.
    """

    n_particles: int
    n_moves: int = 2
    n_warm_up: int = 4
    n_kept: int = 1
    n_between: int = 1
    max_steps: int = 16
    last_steps: int = 16
    n_last: int | None = None
    kept_share: float = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Tempered:
    """Draws from the posterior.

    draws
        (n_last * n_kept, P), ordered such that states of a particle and particles with a common
        ancestor are adjacent, for autocorrelations along this axis.
    log_likelihood
        (n_last * n_kept,).
    log_evidence
        In nats.
    temperatures
        The beta of each step, (T,); the last is 1.
    acceptance
        Mean acceptance of the moves at each temperature, (T,); the last of those after warm-up.
    interrupted
        Whether the user interrupted the run before all states were stored.
    """

    draws: FloatArray
    log_likelihood: FloatArray
    log_evidence: float
    temperatures: FloatArray
    acceptance: FloatArray
    interrupted: bool = False


@dataclass(slots=True)
class _Particles:
    """Particles with log likelihood, its gradient, and the step size of their moves."""

    at: FloatArray
    log_likelihood: FloatArray
    slope: FloatArray
    step_size: float


def run_tempering(
    log_likelihood: LogLikelihood,
    n_parameters: int,
    moves: Moves,
    *,
    rng: np.random.Generator,
    jump: Jump | None = None,
    align: Align = lambda particles, slope: (particles, slope),
    on_step: Callable[[float], object] = lambda share: None,
) -> Tempered:
    """Move draws from the prior N(0, I) to the posterior.

    Parameters
    ----------
    log_likelihood : callable
        Of a batch of particles, with its gradient.
    n_parameters : int
        P.
    moves : Moves
    rng : numpy.random.Generator
    jump : callable, optional
        Metropolis-Hastings proposal for moves at which trajectories are slow, tried after each.
    align : callable, optional
        Aligns particles of a model with a symmetry, so that they share a metric.
    on_step : callable
        Called after each temperature and each stored state with the completed share of the run.

    Returns
    -------
    Tempered

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the first stored state.
    """
    particles = rng.standard_normal((moves.n_particles, n_parameters))
    cloud = _Particles(particles, *log_likelihood(particles), FIRST_STEP)

    n_evaluations = moves.n_particles * moves.n_moves * (1 + moves.max_steps) / 2
    is_dense = 2 * n_parameters <= _SHARE * n_evaluations

    def learn_metric(beta: float) -> FloatArray:
        cloud.at, cloud.slope = align(cloud.at, cloud.slope)
        if is_dense:
            return inverse_root(log_likelihood, cloud.at.mean(axis=0), beta)
        return np.maximum(cloud.at.std(axis=0), _LEAST_SCALE)

    def move(beta: float, root: FloatArray) -> float:
        with np.errstate(over="ignore", invalid="ignore"):  # trajectories may diverge
            longest = moves.max_steps if beta < 1.0 else moves.last_steps
            accepted = _move(cloud, log_likelihood, beta, root, longest, rng=rng)
            if jump is not None:
                for _ in range(_N_JUMPS):
                    _try_jump(cloud, log_likelihood, beta, jump, rng=rng)
        return accepted

    beta, log_evidence = 0.0, 0.0
    temperatures, acceptances = [], []
    while beta < 1.0:
        step = next_step(cloud.log_likelihood, 1.0 - beta, moves.kept_share)
        weight = np.exp(step * (cloud.log_likelihood - cloud.log_likelihood.max()))
        log_evidence += math.log(weight.mean()) + step * float(cloud.log_likelihood.max())
        beta = 1.0 if step >= 1.0 - beta else beta + step
        chosen = resample(weight, moves.n_last if beta == 1.0 else None, rng=rng)
        cloud.at, cloud.slope = cloud.at[chosen], cloud.slope[chosen]
        cloud.log_likelihood = cloud.log_likelihood[chosen]
        root = learn_metric(beta)
        accepted, log_sizes = [], []
        for _ in range(moves.n_moves if beta < 1.0 else moves.n_warm_up):
            accepted.append(move(beta, root))
            log_sizes.append(math.log(cloud.step_size))
        temperatures.append(beta)
        acceptances.append(float(np.mean(accepted)))
        on_step(0.8 * beta**0.25)
    kept, accepted = [], []
    interrupted = False
    try:
        root = learn_metric(1.0)
        step_size = cloud.step_size = math.exp(np.mean(log_sizes[len(log_sizes) // 2 :]))
        for count in range(moves.n_kept):
            for _ in range(moves.n_between):
                accepted.append(move(1.0, root))
                cloud.step_size = step_size  # fixed, for invariance
            kept.append((cloud.at, cloud.log_likelihood))
            on_step(0.8 + 0.2 * (count + 1) / moves.n_kept)
    except KeyboardInterrupt:
        if not kept:
            raise
        interrupted = True
    acceptances[-1] = float(np.mean(accepted))
    return Tempered(
        draws=np.stack([at for at, _ in kept], axis=1).reshape(-1, particles.shape[1]),
        log_likelihood=np.stack([value for _, value in kept], axis=1).ravel(),
        log_evidence=log_evidence,
        temperatures=np.array(temperatures),
        acceptance=np.array(acceptances),
        interrupted=interrupted,
    )


def next_step(log_likelihood: FloatArray, longest: float, kept_share: float) -> float:
    """Largest temperature step, at most ``longest``, with a given effective sample size.

    Parameters
    ----------
    log_likelihood : (S,)
        May be minus infinity.
    longest : float
    kept_share : float
        Effective sample size of the weights over the number of particles.

    Raises
    ------
    FloatingPointError
        If no particle has a finite log likelihood.
    """
    top = log_likelihood.max()
    if not np.isfinite(top):
        raise FloatingPointError("no draw from the prior has a finite likelihood")
    gap = log_likelihood - top

    def is_short_enough(step: float) -> bool:
        weight = np.exp(step * gap)
        return bool(weight.sum() ** 2 >= kept_share * len(gap) * np.sum(weight**2))

    if is_short_enough(longest):
        return longest
    # On the log scale, since likelihoods may differ by any power of ten.
    low, high = _LEAST_LOG_STEP, math.log(longest)
    for _ in range(_N_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_short_enough(math.exp(middle)) else (low, middle)
    # Particles of zero likelihood are lost at any positive step.
    return math.exp(low)


def inverse_root(log_likelihood: LogLikelihood, at: FloatArray, beta: float) -> FloatArray:
    """A root L (P, P) of the inverse metric, L L', at a point.

    The metric is I - beta H, with H the negative semidefinite part of the Hessian of the log
    likelihood.

    Parameters
    ----------
    log_likelihood : callable
    at : (P,)
    beta : float
    """
    p = len(at)
    steps = _DISTANCE * np.eye(p)
    points = at + np.concatenate([steps, -steps])
    batches = [points[begin : begin + _BATCH] for begin in range(0, 2 * p, _BATCH)]
    slope = np.concatenate([log_likelihood(batch)[1] for batch in batches])
    hessian = np.nan_to_num((slope[:p] - slope[p:]) / (2.0 * _DISTANCE))
    value, vector = np.linalg.eigh(-0.5 * beta * (hessian + hessian.T))
    found: FloatArray = vector / np.sqrt(1.0 + np.maximum(value, 0.0))
    return found


def resample(
    weight: FloatArray, number: int | None = None, *, rng: np.random.Generator
) -> IntArray:
    """Indices by systematic resampling, with copies of a particle adjacent.

    Parameters
    ----------
    weight : (S,)
    number : int, optional
        Of particles drawn; None for S.
    rng : numpy.random.Generator
    """
    number = len(weight) if number is None else number
    reached = np.cumsum(weight)
    level = (np.arange(number) + rng.random()) / number * reached[-1]
    return np.minimum(np.searchsorted(reached, level), len(weight) - 1)


def _move(
    cloud: _Particles,
    log_likelihood: LogLikelihood,
    beta: float,
    root: FloatArray,
    max_steps: int,
    *,
    rng: np.random.Generator,
) -> float:
    """One HMC trajectory of every particle; returns the mean acceptance and adapts the step size.

    Momenta are standard normal in coordinates u, x = L u, where L (P, P) is a root of the inverse
    metric, or its diagonal.
    """
    size = cloud.step_size * math.exp(_JITTER * rng.standard_normal()) * root
    apply = np.matmul if root.ndim == 2 else np.multiply
    n_steps = int(rng.integers(1, max_steps + 1))
    momentum = rng.standard_normal(cloud.at.shape)
    x, value, slope = cloud.at, cloud.log_likelihood, cloud.slope
    start = _log_joint(x, beta * value, momentum)
    for _ in range(n_steps):
        momentum = momentum + 0.5 * apply(beta * slope - x, size)
        x = x + apply(momentum, size.T)
        value, slope = log_likelihood(x)
        momentum = momentum + 0.5 * apply(beta * slope - x, size)
    end = _log_joint(x, beta * value, momentum)
    acceptance = acceptance_probability(end - start)
    _accept(cloud, acceptance, x, value, slope, rng=rng)
    mean = float(acceptance.mean())
    cloud.step_size = float(np.clip(cloud.step_size * math.exp(mean - ACCEPTANCE), *STEP_RANGE))
    return mean


def acceptance_probability(gain: FloatArray) -> FloatArray:
    """Metropolis acceptance for a gain in log density; zero for NaN."""
    return np.exp(np.minimum(np.nan_to_num(gain, nan=-np.inf), 0.0))


def _try_jump(
    cloud: _Particles,
    log_likelihood: LogLikelihood,
    beta: float,
    jump: Jump,
    *,
    rng: np.random.Generator,
) -> None:
    """One Metropolis-Hastings jump of every particle."""
    x, log_jacobian = jump(cloud.at, rng)
    value, slope = log_likelihood(x)
    still = np.zeros_like(x)
    gain = _log_joint(x, beta * value, still) + log_jacobian
    gain -= _log_joint(cloud.at, beta * cloud.log_likelihood, still)
    _accept(cloud, acceptance_probability(gain), x, value, slope, rng=rng)


def _accept(
    cloud: _Particles,
    probability: FloatArray,
    x: FloatArray,
    value: FloatArray,
    slope: FloatArray,
    *,
    rng: np.random.Generator,
) -> None:
    """Accept proposals with given probabilities, (S,)."""
    accepted = rng.random(len(x)) < probability
    cloud.at = np.where(accepted[:, None], x, cloud.at)
    cloud.slope = np.where(accepted[:, None], slope, cloud.slope)
    cloud.log_likelihood = np.where(accepted, value, cloud.log_likelihood)


def _log_joint(x: FloatArray, log_likelihood: FloatArray, momentum: FloatArray) -> FloatArray:
    """Log density of particles under N(0, I), a likelihood and momenta, up to a constant: (S,)."""
    return log_likelihood - 0.5 * np.sum(x**2, axis=1) - 0.5 * np.sum(momentum**2, axis=1)
