r"""Hamiltonian Monte Carlo for several chains at once, and the tuning of its step [1]_, [2]_.

References
----------
.. [1] R. M. Neal (2011). MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo.
.. [2] M. D. Hoffman, A. Gelman (2014). The No-U-Turn Sampler. Journal of Machine Learning
       Research 15.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.typing import FloatArray

# Log density (C,) and its gradient (C, P) at positions (C, P).
type Density = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

# Dual averaging [2]_, Section 3.2.1.
_GAMMA, _T0, _KAPPA = 0.05, 10.0, 0.75


def draw(
    position: FloatArray,
    density: Density,
    *,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """One trajectory of each chain, of unit mass, accepted or not.

    Parameters
    ----------
    position : (C, P)
    density : callable
        Where the log density is minus infinity the gradient may be anything finite: such an end
        is never accepted, and any field of slopes keeps the map reversible.
    step_size : float
    n_steps : int
        Leapfrogs; step size and number must not depend on the positions.
    rng : numpy.random.Generator

    Returns
    -------
    position : (C, P)
    acceptance : (C,)
        Probability of acceptance of the end.
    """
    momentum = rng.standard_normal(position.shape)
    value, slope = density(position)
    start = value - _kinetic(momentum)
    x = position
    for _ in range(n_steps):
        momentum = momentum + 0.5 * step_size * slope
        x = x + step_size * momentum
        value, slope = density(x)
        momentum = momentum + 0.5 * step_size * slope
    acceptance = acceptance_probability(value - _kinetic(momentum) - start)
    accepted = rng.random(len(x)) < acceptance
    return np.where(accepted[:, None], x, position), acceptance


def acceptance_probability(gain: FloatArray) -> FloatArray:
    """Metropolis's rule for a gain in log density; zero where it is not a number."""
    return np.exp(np.minimum(np.nan_to_num(gain, nan=-np.inf), 0.0))


def _kinetic(momentum: FloatArray) -> FloatArray:
    return 0.5 * np.sum(momentum**2, axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DualAveraging:
    """Step size that is moved until the acceptance has a given mean [2]_, Section 3.2.

    centre
        Log step size that the search is drawn to.
    target
        Mean acceptance.
    """

    centre: float
    target: float = 0.8
    count: int = 0
    deficit: float = 0.0
    log_step: float = 0.0
    log_average: float = 0.0

    def after(self, acceptance: float) -> "DualAveraging":
        """The search with one more acceptance taken into account."""
        count = self.count + 1
        share = 1.0 / (count + _T0)
        deficit = (1.0 - share) * self.deficit + share * (self.target - acceptance)
        log_step = self.centre - np.sqrt(count) / _GAMMA * deficit
        decay = count**-_KAPPA
        return replace(
            self,
            count=count,
            deficit=deficit,
            log_step=float(log_step),
            log_average=float(decay * log_step + (1.0 - decay) * self.log_average),
        )

    @property
    def step_size(self) -> float:
        """Where the search stands."""
        return float(np.exp(self.log_step if self.count else self.centre))

    @property
    def final(self) -> float:
        """The average over the search, to sample with."""
        return float(np.exp(self.log_average if self.count else self.centre))
