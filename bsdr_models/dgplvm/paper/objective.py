r"""The objective of the paper, Eqs. (7), (13), (17)-(20), with bounds.

.. math::
    F = L_r(X, \theta) + \sum_{i=1}^4 \ln \theta_i + \tfrac{1}{\sigma_d^2} J(X)
        \;\Big[ + \tfrac{\tau}{2} |X|^2 \Big] \;\Big[ + L_d(X) \Big]

:math:`\tau` is the spherical prior of Eq. (7), which Eq. (13) leaves out. F has no minimum:
:math:`F(cX, \theta_2 / c^2) = F(X, \theta_2) - 2 \ln c` without :math:`\tau` and :math:`L_d`, and F
is unbounded as the bias or the signal goes to 0. The result therefore depends on the bounds of
theta, here, with v the variance of a feature,

====================== ========= ========
theta                  lowest    highest
====================== ========= ========
1, output variance     1e-4 v    1e2 v
2, inverse width**2    1e-3      1e3
3, bias                1e-6 v    1e2 v
4, inverse noise       1e-2 / v  1e4 / v
====================== ========= ========

X is free or a function of the features, :math:`X = K_{bc}\, a` (17) with
:math:`k_{bc} = \exp(-\tfrac{\gamma}{2} |y - y'|^2)` (18) at all samples or some of them. The
variables of the optimiser are :math:`u = L^\top a`, L the Cholesky factor of the kernel between
centres: then :math:`X = \Phi u` with :math:`\Phi = K_{bc} L^{-\top}`. With all samples as centres
the mapping is no constraint, but it affects which optimum is found, and embeds new samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.dynamics import Dynamics, DynamicsPriors
from bsdr_models.dgplvm.likelihood import FeatureGram, evaluate_paper
from bsdr_models.numerics.kernels import rbf
from bsdr_models.numerics.linalg import cholesky

THETA = ("output variance", "inverse squared width", "bias", "inverse noise variance")
# Lowest and highest theta for features of unit variance.
_LOWEST = np.array([1e-4, 1e-3, 1e-6, 1e-2])
_HIGHEST = np.array([1e2, 1e3, 1e2, 1e4])
# Initial theta for latent coordinates of unit variance: half of the variance is signal.
_INITIAL = np.array([0.5, 1.0, 1e-2, 2.0])


@dataclass(frozen=True)
class KernelMapping:
    """Latent coordinates as sums of kernels at centres (M, D), Eqs. (17) and (18).

    Centres are X (N, D) itself for the mapping of the paper; ``width`` is gamma, in units of 1 /
    feature**2.
    """

    X: FloatArray
    centres: FloatArray
    width: float

    @cached_property
    def factor(self) -> FloatArray:
        """L, lower, of the kernel between centres, (M, M)."""
        return cholesky(self._kernel(self.centres), name="kernel matrix of the mapping")

    @cached_property
    def basis(self) -> FloatArray:
        """The matrix Phi of coordinates u, (N, M)."""
        if self.centres is self.X:
            return self.factor
        solved = solve_triangular(self.factor, self._kernel(self.X).T, lower=True)
        return np.ascontiguousarray(solved.T)

    def weights(self, u: FloatArray) -> FloatArray:
        """Weights a of coordinates u, (M, R)."""
        return solve_triangular(self.factor, u, lower=True, trans="T")

    def coordinates(self, latent: FloatArray) -> FloatArray:
        """Least-squares u (M, R) for latent coordinates (N, R)."""
        if self.centres is self.X:
            return solve_triangular(self.factor, latent, lower=True)
        return np.linalg.lstsq(self.basis, latent, rcond=None)[0]

    def transform(self, X: FloatArray, weights: FloatArray) -> FloatArray:
        """Latent coordinates of samples, (M', D) -> (M', R)."""
        return self._kernel(X) @ weights

    def _kernel(self, X: FloatArray) -> FloatArray:
        return rbf(X, None if X is self.centres else self.centres, self.width**-0.5)


def log_theta_bounds(
    gram: FeatureGram, *, hold_width: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest log theta, (4,) each; with ``hold_width`` theta_2 is 1."""
    low, high = np.log(_LOWEST) + _log_units(gram), np.log(_HIGHEST) + _log_units(gram)
    if hold_width:
        low[1] = high[1] = 0.0
    return low, high


def initial_log_theta(gram: FeatureGram) -> FloatArray:
    """Initial log theta (4,) for latent coordinates of unit variance."""
    return np.log(_INITIAL) + _log_units(gram)


def _log_units(gram: FeatureGram) -> FloatArray:
    return float(np.log(gram.variance)) * np.array([1.0, 0.0, 1.0, -1.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperObjective:
    """F of a vector of coordinates u, or of X, and logarithms of theta.

    ``weight`` is 1 / sigma_d**2, ``spherical`` tau, 1 for Eq. (7), 0 for Eq. (13); latent
    coordinates are free without a kernel mapping. ``dynamics`` add Eq. (20) and the priors of its
    kernel, and with ``hold_width`` theta_2 is fixed at 1, so that the scale is that of the latent
    coordinates.
    """

    gram: FeatureGram
    criterion: Callable[[FloatArray], tuple[float, FloatArray]]
    weight: float
    n_components: int
    kernel_mapping: KernelMapping | None = None
    spherical: float = 0.0
    dynamics: Dynamics | None = None
    dynamics_priors: DynamicsPriors = field(default=DynamicsPriors())
    hold_width: bool = False

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """F in nats, with the constants of L_r and L_d, and its gradient."""
        u, log_theta, log_dynamics = self.unpack(x)
        values, by_latent, by_theta, by_dynamics = self._evaluate(u, log_theta, log_dynamics)
        by_u = by_latent
        if self.kernel_mapping is not None:
            by_u = self.kernel_mapping.basis.T @ by_latent
        return sum(values.values()), np.concatenate([by_u.ravel(), by_theta, by_dynamics])

    def terms(self, x: FloatArray) -> dict[str, float]:
        """Terms of F by name."""
        return self._evaluate(*self.unpack(x))[0]

    def _evaluate(
        self, u: FloatArray, log_theta: FloatArray, log_dynamics: FloatArray
    ) -> tuple[dict[str, float], FloatArray, FloatArray, FloatArray]:
        """Terms, and gradients by latent coordinates, log theta and log dynamics."""
        X = self._coordinates(u)
        found = evaluate_paper(X, log_theta, self.gram)
        J, slope = self.criterion(X)
        values = {
            "likelihood": found.value,
            "criterion": self.weight * J,
            "theta": float(log_theta.sum()),  # p(theta) = 1 / theta
        }
        by_latent = found.latent + self.weight * slope
        by_dynamics = np.empty(0)
        if self.spherical:
            values["spherical"] = 0.5 * self.spherical * float(np.vdot(X, X))
            by_latent += self.spherical * X
        if self.dynamics is not None:
            transitions = self.dynamics.evaluate(X, log_dynamics)
            prior, by_prior = self.dynamics_priors.negative_log_density(log_dynamics)
            values["dynamics"] = transitions.value + prior
            by_latent += transitions.latent
            by_dynamics = transitions.log_parameters + by_prior
        return values, by_latent, found.log_kernel + 1.0, by_dynamics

    def latent(self, x: FloatArray) -> FloatArray:
        """Latent coordinates (N, R) of an optimisation vector."""
        return self._coordinates(self.unpack(x)[0])

    def pack(
        self, latent: FloatArray, log_theta: FloatArray, log_dynamics: FloatArray | None = None
    ) -> FloatArray:
        """Optimisation vector of latent coordinates, or of their least-squares fit by the mapping.

        Parameters of the dynamics are the medians of their priors by default.
        """
        u = latent if self.kernel_mapping is None else self.kernel_mapping.coordinates(latent)
        if self.dynamics is None:
            log_dynamics = np.empty(0)
        elif log_dynamics is None:
            log_dynamics = self.dynamics_priors.log_median
        return np.concatenate([u.ravel(), log_theta, log_dynamics])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """u (M, R) or X (N, R), log theta (4,), log dynamics (4,) or ()."""
        size = self._n_coordinates * self.n_components
        return x[:size].reshape(-1, self.n_components), x[size : size + 4], x[size + 4 :]

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of log theta and, from the priors, of log dynamics; the rest is unbounded."""
        free = np.full(self._n_coordinates * self.n_components, np.inf)
        low, high = log_theta_bounds(self.gram, hold_width=self.hold_width)
        low, high = np.concatenate([-free, low]), np.concatenate([free, high])
        if self.dynamics is None:
            return low, high
        lowest, highest = self.dynamics_priors.bounds
        return np.concatenate([low, lowest]), np.concatenate([high, highest])

    @property
    def _n_coordinates(self) -> int:
        if self.kernel_mapping is None:
            return len(self.gram.root)
        return len(self.kernel_mapping.centres)

    def _coordinates(self, u: FloatArray) -> FloatArray:
        return u if self.kernel_mapping is None else self.kernel_mapping.basis @ u
