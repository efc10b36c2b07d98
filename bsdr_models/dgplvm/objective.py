r"""The objective of latent coordinates and log parameters.

In that of the recommended model (docs/derivations/dgplvm.md) the n labelled samples are whitened,

.. math::
    X = \sqrt n\,(A - 1 \bar a^\top)\,(A_c^\top A_c)^{-1/2}, \qquad A = L_b U, \\
    F(U, t) = \tau L(X, t) + w J(X)
        + \tfrac{(N - 1) R + \nu}{2} \log(1 + \operatorname{tr}(X^\top \Pi X) / \nu)
        - \sum_i \log p(t_i),

with :math:`\bar a` their mean, :math:`A_c` their centred rows, L the negative log likelihood
with the means of the features integrated out (of many samples that of some, times their share), J
the criterion, the third term the prior of the mapping with its scale integrated out, and t log
kernel parameters.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bsdr_models.dgplvm.back_constraint import MappingPrior
from bsdr_models.dgplvm.criteria import Criterion
from bsdr_models.dgplvm.likelihood import Evaluation, FeatureGram, evaluate
from bsdr_models.dgplvm.priors import MAP_DOF, LogNormal, ParameterPrior
from bsdr_models.numerics.arrays import FloatArray, IntArray

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
        """The objective F, in nats."""
        return sum(self.values.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective(ABC):
    """F of a vector of raw coordinates and log parameters, for the optimiser.

    The log parameters are those of the kernel of the features; ``gram`` is that of the features,
    and ``weight`` w.
    """

    gram: FeatureGram
    criterion: Criterion
    weight: float
    n_components: int
    parameter_priors: Sequence[ParameterPrior]
    mapping: MappingPrior

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """F and its gradient."""
        raw, log_parameters = self.unpack(x)
        latent, gradient_to_raw = self.transform(raw)
        terms = self.terms(latent, log_parameters)
        by_raw = gradient_to_raw(terms.latent)
        return terms.total, np.concatenate([by_raw.ravel(), terms.log_parameters])

    @abstractmethod
    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Latent coordinates (N, R) of raw ones, and the map of gradients back to these."""

    @abstractmethod
    def likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        """Negative log density of the features, given latent coordinates (N, R)."""

    def mapping_terms(self, latent: FloatArray) -> dict[str, tuple[float, FloatArray]]:
        """Terms of the mapping by name, with gradients in latent coordinates; by default none."""
        return {}

    def pack(self, latent: FloatArray, log_parameters: FloatArray) -> FloatArray:
        """Optimisation vector of latent coordinates (N, R), before whitening."""
        return np.concatenate([self.mapping.raw(latent).ravel(), log_parameters])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Raw coordinates and log parameters."""
        size = len(x) - len(self.parameter_priors)
        return x[:size].reshape(-1, self.n_components), x[size:]

    def latent(self, x: FloatArray) -> FloatArray:
        """Latent coordinates (N, R) of an optimisation vector."""
        return self.transform(self.unpack(x)[0])[0]

    def terms(self, latent: FloatArray, log_parameters: FloatArray) -> Terms:
        """Terms of F, and gradients in latent coordinates (N, R) and log parameters."""
        J, by_criterion = self.criterion(latent)
        density = self.likelihood(latent, log_parameters)
        values = {"likelihood": density.value, "criterion": self.weight * J}
        gradient = self.weight * by_criterion + density.latent
        for name, (value, by_latent) in self.mapping_terms(latent).items():
            values[name] = value
            gradient += by_latent
        value, derivative = self.priors(log_parameters)
        values["priors"] = value
        return Terms(
            values=values,
            criterion=J,
            latent=gradient,
            log_parameters=density.log_parameters + derivative,
        )

    def priors(self, log_parameters: FloatArray) -> tuple[float, FloatArray]:
        """Negative log prior density of the log parameters, and its gradient."""
        pairs = zip(self.parameter_priors, log_parameters, strict=True)
        value, derivative = np.array([prior.negative_log_density(t) for prior, t in pairs]).T
        return value.sum(), derivative

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
class WellPosedObjective(Objective):
    """That of the recommended model.

    The ``known`` samples are whitened. The density is that of the ``modelled`` ones, of which
    ``gram`` is, to the power ``temper``, tau, times their number over that of all.
    """

    parameter_priors: Sequence[LogNormal]
    known: IntArray
    temper: float
    modelled: IntArray | slice = slice(None)

    def transform(self, raw: FloatArray) -> tuple[FloatArray, Gradient]:
        """Whitened latent coordinates (N, R) of raw ones, and the map of gradients back."""
        latent, to_image = whiten(self.mapping.root(raw), self.known)
        return latent, lambda gradient: self.mapping.root_transposed(to_image(gradient))

    def likelihood(self, latent: FloatArray, log_kernel: FloatArray) -> Evaluation:
        """Density of the modelled samples to a power, with the means of the features integrated."""
        density = evaluate(latent[self.modelled], log_kernel, self.gram)
        gradient = np.zeros(latent.shape)
        gradient[self.modelled] = self.temper * density.latent
        return Evaluation(
            value=self.temper * density.value,
            latent=gradient,
            log_parameters=self.temper * density.log_parameters,
        )

    def mapping_terms(self, latent: FloatArray) -> dict[str, tuple[float, FloatArray]]:
        """Negative log prior of the mapping, its scale integrated out."""
        size = (len(latent) - 1) * latent.shape[1] + MAP_DOF
        square, product = self.mapping.energy(latent)
        value = 0.5 * size * float(np.log1p(square / MAP_DOF))
        return {"map": (value, size / (MAP_DOF + square) * product)}


def whiten(raw: FloatArray, known: IntArray) -> tuple[FloatArray, Gradient]:
    """Transform (N, R) linearly so that labelled samples have mean 0 and covariance I.

    The second result maps gradients with respect to whitened coordinates to those with respect to
    raw ones.
    """
    centred = raw - raw[known].mean(axis=0)
    _, r, axes = np.linalg.svd(centred[known], full_matrices=False)
    if len(r) < raw.shape[1] or not r[-1] > 1e-12 * r[0]:
        raise np.linalg.LinAlgError("labelled samples do not span all components")
    V = axes.T
    n = len(known)
    transform = np.sqrt(n) * (V / r) @ V.T

    def gradient_to_raw(gradient: FloatArray) -> FloatArray:
        # With A_c' A_c = V diag(r^2) V' the derivative of (A_c' A_c)^(-1/2) has, in the axes V,
        # the factors -1 / (r_k r_l (r_k + r_l)).
        factors = -np.sqrt(n) / (np.outer(r, r) * np.add.outer(r, r))
        Z = V @ (factors * (V.T @ (centred.T @ gradient) @ V)) @ V.T
        by_raw = gradient @ transform
        by_raw[known] += centred[known] @ (Z + Z.T)
        by_raw[known] -= by_raw.sum(axis=0) / n
        return by_raw

    return centred @ transform, gradient_to_raw
