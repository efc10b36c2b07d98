r"""The objective of the paper, Eqs. (13), (17)-(20), with bounds.

.. math::
    F = L_r(X, \theta) + \sum_{i=1}^4 \ln \theta_i + \tfrac{1}{\sigma_d^2} J(X)
        \;\Big[ + L_d(X) \Big]

F has no minimum: :math:`F(cX, \theta_2 / c^2) = F(X, \theta_2) - 2 \ln c` without :math:`L_d`, and
F is unbounded as the bias or the signal goes to 0. The result therefore depends on the bounds of
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

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.likelihood import Evaluation, FeatureGram, evaluate_paper
from bsdr_models.dgplvm.objective import Gradient, LatentObjective
from bsdr_models.dgplvm.priors import LogUniform
from bsdr_models.numerics.kernels import rbf
from bsdr_models.numerics.linalg import cholesky

THETA = ("output variance", "inverse squared width", "bias", "inverse noise variance")
# Lowest and highest theta for features of unit variance; initial theta there for latent
# coordinates of unit variance: half of the variance is signal.
_LOWEST = np.array([1e-4, 1e-3, 1e-6, 1e-2])
_HIGHEST = np.array([1e2, 1e3, 1e2, 1e4])
_INITIAL = np.array([0.5, 1.0, 1e-2, 2.0])
# Power of the variance of a feature in the units of theta.
_UNITS = np.array([1.0, 0.0, 1.0, -1.0])


def theta_priors(gram: FeatureGram) -> tuple[LogUniform, ...]:
    """Priors of theta, 1 / theta within bounds, for features of the variance in a Gram matrix."""
    units = float(np.log(gram.variance)) * _UNITS
    logs = (np.log(theta) + units for theta in (_INITIAL, _LOWEST, _HIGHEST))
    return tuple(LogUniform(start, (low, high)) for start, low, high in zip(*logs, strict=True))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperObjective(LatentObjective):
    """F of a vector of coordinates u, or of X without a mapping, and logarithms of theta.

    ``weight`` is 1 / sigma_d**2; ``dynamics`` add Eq. (20) and the priors of its kernel.
    """

    kernel_mapping: KernelMapping | None = None

    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Latent coordinates of u; see the base class."""
        if self.kernel_mapping is None:
            return raw, lambda gradient: gradient
        basis = self.kernel_mapping.basis
        return basis @ raw, lambda gradient: basis.T @ gradient

    def pack(self, latent: FloatArray, log_parameters: FloatArray) -> FloatArray:
        """Optimisation vector of latent coordinates, or of their least-squares fit."""
        u = latent if self.kernel_mapping is None else self.kernel_mapping.coordinates(latent)
        return np.concatenate([u.ravel(), log_parameters])

    def _likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        return evaluate_paper(latent, log_kernel, self.gram)
