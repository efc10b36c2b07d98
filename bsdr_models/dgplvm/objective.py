r"""The well-posed objective: tempered likelihood, criterion and smooth mapping of whitened latents.

The paper's objective, Eq. (13), has no minimum: the criterion is invariant to the scale of the
latent coordinates, and the likelihood identifies it only up to a kernel parameter. Here labelled
samples are whitened, which fixes scale and translation,

.. math::
    X = \sqrt n\,(A - 1 \bar a^\top)\,(A_c^\top A_c)^{-1/2}, \qquad A = L_b U,

with n labelled samples, :math:`\bar a` their mean and :math:`A_c` their centred rows, and

.. math::
    F(U, t) = \tau L(X, t) + w J(X)
        + \tfrac{(N - 1) R + \nu}{2} \log(1 + \operatorname{tr}(X^\top \Pi X) / \nu)
        - \sum_i \log p(t_i).

L is the negative log likelihood with the means of the features integrated out, tempered by
:math:`\tau = D_{\mathrm{eff}} / D` because correlated features are not independent. Of many samples
it is that of some, times their share. J is the
criterion, with weight :math:`w = \kappa\,n\,D_{\mathrm{eff}}`. The third term is the prior of the
mapping (:mod:`~bsdr_models.dgplvm.back_constraint`) with its scale integrated out; t are log
kernel parameters. Together with :math:`U_{ij} \sim N(0, 1)`, exp(-F) is a proper density.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior, energy
from bsdr_models.dgplvm.dynamics import Dynamics
from bsdr_models.dgplvm.likelihood import Evaluation, FeatureGram, evaluate
from bsdr_models.dgplvm.settings import LogNormal

type Gradient = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of the objective by name, in nats, J without its weight, and the gradients."""

    values: dict[str, float]
    criterion: float
    latent: FloatArray
    log_parameters: FloatArray

    @property
    def total(self) -> float:
        """F."""
        return sum(self.values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentObjective(ABC):
    """Objective of a vector of raw coordinates and log parameters.

    ``gram`` is of the features, and ``weight`` that of the criterion; a mapping has methods `root`,
    `root_transposed` and `raw`. The log parameters are those of the kernel of the features,
    followed by the four of the dynamics, if any.
    """

    gram: FeatureGram
    criterion: Callable[[FloatArray], tuple[float, FloatArray]]
    weight: float
    n_components: int
    parameter_priors: Sequence[Any]
    mapping: Any = None
    dynamics: Dynamics | None = None

    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Latent coordinates (N, R) of raw ones, and the map of gradients back to these."""
        if self.mapping is None:
            return raw, lambda gradient: gradient
        return self.mapping.root(raw), self.mapping.root_transposed

    def pack(self, latent: FloatArray, log_parameters: FloatArray) -> FloatArray:
        """Optimisation vector of latent coordinates (N, R), before whitening."""
        raw = latent if self.mapping is None else self.mapping.raw(latent)
        return np.concatenate([raw.ravel(), log_parameters])

    @abstractmethod
    def _likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        """Negative log likelihood of the features, as it enters the objective."""

    def _mapping_term(self, latent: FloatArray) -> tuple[float, FloatArray] | None:
        """Prior of the mapping, if there is one, and its gradient (N, R)."""
        return None

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """F and its gradient, for the optimiser."""
        raw, log_parameters = self.unpack(x)
        latent, gradient_to_raw = self.transform(raw)
        terms = self.terms(latent, log_parameters)
        return terms.total, np.concatenate(
            [gradient_to_raw(terms.latent).ravel(), terms.log_parameters]
        )

    def terms(self, latent: FloatArray, log_parameters: FloatArray) -> Terms:
        """Terms of F, and gradients in latent coordinates (N, R) and log parameters."""
        n_kernel = len(log_parameters) - (0 if self.dynamics is None else 4)
        J, by_criterion = self.criterion(latent)
        likelihood = self._likelihood(latent, log_parameters[:n_kernel])
        values = {"likelihood": likelihood.value, "criterion": self.weight * J}
        gradient = self.weight * by_criterion + likelihood.latent
        by_log = np.zeros(len(log_parameters))
        by_log[:n_kernel] = likelihood.log_parameters
        if (mapping := self._mapping_term(latent)) is not None:
            values["map"] = mapping[0]
            gradient += mapping[1]
        if self.dynamics is not None:
            transitions = self.dynamics.evaluate(latent, log_parameters[n_kernel:])
            values["dynamics"] = transitions.value
            gradient += transitions.latent
            by_log[n_kernel:] = transitions.log_parameters
        values["priors"] = 0.0
        for i, prior in enumerate(self.parameter_priors):
            value, derivative = prior.negative_log_density(log_parameters[i])
            values["priors"] += value
            by_log[i] += derivative
        return Terms(values=values, criterion=J, latent=gradient, log_parameters=by_log)

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Raw coordinates and log parameters."""
        size = len(x) - len(self.parameter_priors)
        return x[:size].reshape(-1, self.n_components), x[size:]

    def latent(self, x: FloatArray) -> FloatArray:
        """Latent coordinates (N, R) of an optimisation vector."""
        return self.transform(self.unpack(x)[0])[0]

    @property
    def log_medians(self) -> FloatArray:
        """Initial log parameters."""
        return np.array([prior.log_median for prior in self.parameter_priors])

    @property
    def parameter_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of the log parameters."""
        low, high = np.array([prior.bounds for prior in self.parameter_priors]).T
        return low, high

    def bounds(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Bounds of an optimisation vector of that size; only log parameters are bounded."""
        low, high = self.parameter_bounds
        free = np.full(size - len(low), np.inf)
        return np.concatenate([-free, low]), np.concatenate([free, high])


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(LatentObjective):
    """F of the well-posed model.

    ``gram`` is of the ``modelled`` samples, whose density enters F (None for all), and ``temper``
    is tau, divided by their share; ``weight`` is w, ``known`` are the labelled samples, and
    ``map_dof`` is nu. Without a mapping, raw coordinates are those before whitening.
    """

    parameter_priors: Sequence[LogNormal]
    mapping: MappingPrior | None = None
    known: IntArray
    map_dof: float
    temper: float
    modelled: IntArray | None = None

    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Whitened coordinates; see the base class."""
        coordinates, to_raw = LatentObjective.transform(self, raw)
        latent, to_coordinates = whiten(coordinates, self.known)
        return latent, lambda gradient: to_raw(to_coordinates(gradient))

    def _likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        rows = slice(None) if self.modelled is None else self.modelled
        density = evaluate(latent[rows], log_kernel, self.gram)
        gradient = np.zeros(latent.shape)
        gradient[rows] = self.temper * density.latent
        return Evaluation(
            value=self.temper * density.value,
            latent=gradient,
            log_parameters=self.temper * density.log_parameters,
        )

    def _mapping_term(self, latent: FloatArray) -> tuple[float, FloatArray] | None:
        """A multivariate t: the normal prior with its inverse Gamma scale integrated out."""
        if self.mapping is None:
            return None
        size = (len(latent) - 1) * latent.shape[1] + self.map_dof
        square, product = energy(self.mapping, latent)
        value = 0.5 * size * float(np.log1p(square / self.map_dof))
        return value, size / (self.map_dof + square) * product


def whiten(raw: FloatArray, known: IntArray) -> tuple[FloatArray, Gradient]:
    """Transform (N, R) linearly so that labelled samples have mean 0 and covariance I.

    The second result maps gradients with respect to whitened coordinates to those with respect to
    raw ones.
    """
    centred = raw - raw[known].mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred[known], full_matrices=False)
    if len(sizes) < raw.shape[1] or not sizes[-1] > 1e-12 * sizes[0]:
        raise np.linalg.LinAlgError("labelled samples do not span all components")
    V, r, root, n = axes.T, sizes, np.sqrt(len(known)), len(known)

    def gradient_to_raw(gradient: FloatArray) -> FloatArray:
        # With A_c' A_c = V diag(r^2) V' the derivative of (A_c' A_c)^(-1/2) has, in the axes V,
        # the factors -1 / (r_k r_l (r_k + r_l)).
        factors = -1.0 / (np.outer(r, r) * np.add.outer(r, r))
        B = root * V.T @ (centred.T @ gradient) @ V
        Z = V @ (factors * B) @ V.T
        by_raw = root * gradient @ ((V / r) @ V.T)
        by_raw[known] += centred[known] @ (Z + Z.T)
        by_raw[known] -= by_raw.sum(axis=0) / n
        return by_raw

    return root * centred @ ((V / r) @ V.T), gradient_to_raw
