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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior, energy
from bsdr_models.dgplvm.dynamics import Dynamics, DynamicsPriors
from bsdr_models.dgplvm.likelihood import FeatureGram, evaluate
from bsdr_models.dgplvm.priors import LogNormal, Priors

# Number of parameters of the kernel of the features.
N_KERNEL = 3

type Penalty = Callable[[FloatArray], tuple[float, FloatArray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whitened:
    """Whitened latent coordinates X (N, R), with what their derivatives need.

    ``centred`` (N, R) are raw coordinates less the mean of the labelled samples, whose rows have
    right singular vectors ``axes`` (R, R) and singular values ``sizes``.
    """

    latent: FloatArray
    centred: FloatArray
    known: IntArray
    axes: FloatArray
    sizes: FloatArray

    def pullback(self, gradient: FloatArray) -> FloatArray:
        r"""Gradient with respect to raw coordinates from that with respect to X, (N, R).

        With :math:`A_c^\top A_c = V \operatorname{diag}(r^2) V^\top` the derivative of
        :math:`(A_c^\top A_c)^{-1/2}` has, in the axes V, the factors
        :math:`-1 / (r_k r_l (r_k + r_l))`.
        """
        V, r, n = self.axes, self.sizes, len(self.known)
        root = np.sqrt(n)
        factors = -1.0 / (np.outer(r, r) * np.add.outer(r, r))
        B = root * V.T @ (self.centred.T @ gradient) @ V
        Z = V @ (factors * B) @ V.T
        raw = root * gradient @ ((V / r) @ V.T)
        raw[self.known] += self.centred[self.known] @ (Z + Z.T)
        raw[self.known] -= raw.sum(axis=0) / n
        return raw


def whiten(raw: FloatArray, known: IntArray) -> Whitened:
    """Transform (N, R) linearly so that labelled samples have mean 0 and covariance I."""
    centred = raw - raw[known].mean(axis=0)
    _, sizes, axes = np.linalg.svd(centred[known], full_matrices=False)
    if len(sizes) < raw.shape[1] or not sizes[-1] > 1e-12 * sizes[0]:
        raise np.linalg.LinAlgError("labelled samples do not span all components")
    latent = np.sqrt(len(known)) * centred @ ((axes.T / sizes) @ axes)
    return Whitened(latent=latent, centred=centred, known=known, axes=axes.T, sizes=sizes)


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
class Objective:
    """F of a vector of raw coordinates and log parameters.

    The log parameters are those of the kernel of the features, (3,), followed by those of the
    dynamics, (4,), for sequences. ``gram`` is of the ``modelled`` samples, whose density enters F
    (None for all), and ``temper`` is tau, divided by their share; ``weight`` is w. Without a prior
    of the mapping, raw coordinates are those before whitening.
    """

    gram: FeatureGram
    mapping_prior: MappingPrior | None
    criterion: Penalty
    weight: float
    known: IntArray
    priors: Priors
    n_components: int
    temper: float
    modelled: IntArray | None = None
    dynamics: Dynamics | None = None
    dynamics_priors: DynamicsPriors | None = None

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """F and its gradient, for the optimiser."""
        raw, log_parameters = self.unpack(x)
        white = whiten(self._coordinates(raw), self.known)
        terms = self.terms(white.latent, log_parameters)
        gradient = white.pullback(terms.latent)
        if self.mapping_prior is not None:
            gradient = self.mapping_prior.root_transposed(gradient)
        return terms.total, np.concatenate([gradient.ravel(), terms.log_parameters])

    def terms(self, latent: FloatArray, log_parameters: FloatArray) -> Terms:
        """Terms of F, and gradients in latent coordinates (N, R) and log parameters."""
        J, gradient = self.criterion(latent)
        gradient = self.weight * gradient
        rows = slice(None) if self.modelled is None else self.modelled
        density = evaluate(latent[rows], log_parameters[:N_KERNEL], self.gram)
        values = {"likelihood": self.temper * density.value, "criterion": self.weight * J}
        gradient[rows] += self.temper * density.latent
        log_gradient = np.zeros(len(log_parameters))
        log_gradient[:N_KERNEL] = self.temper * density.log_kernel
        if self.mapping_prior is not None:
            values["map"], by_mapping = self._mapping_term(latent)
            gradient += by_mapping
        if self.dynamics is not None:
            transitions = self.dynamics.evaluate(latent, log_parameters[N_KERNEL:])
            values["dynamics"] = transitions.value
            gradient += transitions.latent
            log_gradient[N_KERNEL:] = transitions.log_parameters
        values["priors"] = 0.0
        for i, prior in enumerate(self._parameter_priors):
            value, by_log = prior.negative_log_density(log_parameters[i])
            values["priors"] += value
            log_gradient[i] += by_log
        return Terms(values=values, criterion=J, latent=gradient, log_parameters=log_gradient)

    @property
    def _parameter_priors(self) -> tuple[LogNormal, ...]:
        if self.dynamics_priors is None:
            return self.priors.kernel
        return self.priors.kernel + self.dynamics_priors.kernel

    def _mapping_term(self, latent: FloatArray) -> tuple[float, FloatArray]:
        """A multivariate t: the normal prior with its inverse Gamma scale integrated out."""
        assert self.mapping_prior is not None
        nu = self.priors.map_dof
        size = (len(latent) - 1) * latent.shape[1] + nu
        square, product = energy(self.mapping_prior, latent)
        return 0.5 * size * float(np.log1p(square / nu)), size / (nu + square) * product

    def latent(self, x: FloatArray) -> FloatArray:
        """Latent coordinates (N, R) of an optimisation vector."""
        return whiten(self._coordinates(self.unpack(x)[0]), self.known).latent

    def pack(self, latent: FloatArray, log_parameters: FloatArray) -> FloatArray:
        """Optimisation vector with given latent coordinates, before whitening."""
        raw = latent if self.mapping_prior is None else self.mapping_prior.raw(latent)
        return np.concatenate([raw.ravel(), log_parameters])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Raw coordinates and log parameters."""
        size = len(x) - len(self._parameter_priors)
        return x[:size].reshape(-1, self.n_components), x[size:]

    @property
    def log_medians(self) -> FloatArray:
        """Initial log parameters: the medians of their priors."""
        return np.array([prior.log_median for prior in self._parameter_priors])

    @property
    def parameter_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of the log parameters, from their priors."""
        low, high = np.array([prior.bounds for prior in self._parameter_priors]).T
        return low, high

    def bounds(self, size: int) -> tuple[FloatArray, FloatArray]:
        """Bounds of an optimisation vector of that size; only log parameters are bounded."""
        low, high = self.parameter_bounds
        free = np.full(size - len(low), np.inf)
        return np.concatenate([-free, low]), np.concatenate([free, high])

    def _coordinates(self, raw: FloatArray) -> FloatArray:
        return raw if self.mapping_prior is None else self.mapping_prior.root(raw)
