r"""Predictions of the paper's model for new samples: embedding, label probabilities, outputs.

Latent coordinates of a sample are integrated by a fixed set of quasi-random normal nodes; given
these, utilities in closed form or by one-dimensional quadrature [1]_. The likelihood under a single
draw, where errors of such nodes would not average out, is a quadrature over the utilities
(:mod:`bsdr_models.bsdr.paper.probit_product`). Real targets given the parameters are normal.

Letters: M new samples, S nodes of the latent coordinates (times draws of the parameters), R
components, K labels.

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
       IEEE Transactions on Cybernetics 43(6), Section II-B3. What is printed there as scales of
       the utilities are variances: the integral over u needs standard deviations.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr, logsumexp
from sklearn.utils import gen_batches

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.paper.mean_field import Data, State
from bsdr_models.bsdr.paper.probit_product import log_mean, normal_points
from bsdr_models.numerics import orthant
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.relevance import LatentCoordinates

# Quasi-random nodes of the latent coordinates under q.
N_POINTS = 32
# Fewest nodes for each draw of a sampler.
N_POINTS_PER_DRAW = 4
# Fewest nodes over all draws.
N_POINTS_ALL_DRAWS = 1024
# Draws that colour a map.
GRID_DRAWS = 50
# Utilities held in memory at once.
BLOCK = 1 << 19


class Predictive(ABC):
    """Predictions of new samples (M, P), scaled as for the fit, averaged over the posterior."""

    __slots__ = ()

    target: Target

    @property
    @abstractmethod
    def size(self) -> int:
        """Utilities of a sample: K at each of S nodes of the latent coordinates, of all draws."""

    @abstractmethod
    def utilities(self, X: FloatArray, *, projected: bool = False) -> tuple[FloatArray, FloatArray]:
        """Means and standard deviations (with the noise) of utilities at the nodes, (M, S, K).

        Or of samples whose projection (M, R) is known to be X, if they are ``projected``.
        """

    @abstractmethod
    def mean_effects(self) -> tuple[FloatArray, FloatArray]:
        """Mean effects of scaled features, (P, K), and mean intercept, (K,)."""

    @abstractmethod
    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the real targets, each (M, K)."""

    def blocks(self, n_samples: int) -> Iterator[slice]:
        """Blocks of samples whose utilities are held in memory at once."""
        return gen_batches(n_samples, max(1, BLOCK // self.size))

    def log_probabilities(self, X: FloatArray, *, projected: bool = False) -> FloatArray:
        """Log probabilities of the classes, or of each label being 1, (M, K)."""
        out = []
        for block in self.blocks(len(X)):
            mean, std = self.utilities(X[block], projected=projected)
            if self.target == "multilabel":
                log_p = log_ndtr(mean / std)
            else:
                flat = (-1, mean.shape[2])
                log_p = orthant.label_log_probs(mean.reshape(flat), std.reshape(flat))
            # Mean over nodes.
            out.append(logsumexp(log_p.reshape(mean.shape), axis=1) - np.log(mean.shape[1]))
        return np.concatenate(out)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same for samples whose projection is known to be ``latent`` (G, R): (G, K)."""
        return self.log_probabilities(latent, projected=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanFieldPosterior(Predictive):
    """Posterior of a mean-field fit, for predictions."""

    state: State
    data: Data  # training samples, whose design transforms new samples, and targets
    latent_scale: float

    @property
    def target(self) -> Target:  # type: ignore[override]
        """Type of the targets."""
        return self.data.target

    @property
    def size(self) -> int:
        """As in the base class."""
        return N_POINTS * self.data.n_labels

    def components(self) -> FloatArray:
        """Posterior mean of the projection of features, (R, P)."""
        return self.data.design.loadings(self.state.projection.mean).T

    def mean_effects(self) -> tuple[FloatArray, FloatArray]:
        """As in the base class."""
        bias, *weights = self.state.weights.mean
        return self.components().T @ np.array(weights), bias

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Latent coordinates of new samples under q, which underestimates their covariance."""
        mean, variance = self._moments(X)
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and marginal variance of the latent coordinates under q, each (M, R)."""
        mean = X @ self.components().T
        v = self.latent_scale**2
        precision = self.state.projection_precision.mean
        variance = self.data.design.row_variance(X, precision, v) + v
        return mean, np.broadcast_to(variance, mean.shape)

    def utilities(self, X: FloatArray, *, projected: bool = False) -> tuple[FloatArray, FloatArray]:
        """As in the base class."""
        mean, variance = (X, self.latent_scale**2 + 0.0 * X) if projected else self._moments(X)
        weights = self.state.weights
        nodes = normal_points(mean.shape[1], N_POINTS)
        z = mean[:, None, :] + np.sqrt(variance[:, None, :]) * nodes
        full = np.concatenate([np.ones((*z.shape[:-1], 1)), z], axis=-1)  # (M, S, 1 + R)
        spread = np.einsum("msp,kpq,msq->msk", full, weights.cov, full, optimize=True)
        return full @ weights.mean, np.sqrt(1.0 + spread)

    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As in the base class, exact under q."""
        mean, variance = self._moments(X)
        weights = self.state.weights
        tau = self.state.noise_precision
        assert tau is not None
        full = np.column_stack([np.ones(len(mean)), mean])  # (M, 1 + R)
        square = tau.rate / np.maximum(tau.shape - 1.0, 0.5)  # E[1 / tau]
        square = square + np.einsum("mp,kpq,mq->mk", full, weights.cov, full, optimize=True)
        square += variance @ (weights.variance[1:] + weights.mean[1:] ** 2)
        return full @ weights.mean, np.sqrt(square)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior(Predictive):
    """Posterior draws of a sampler, with stacked chains, for predictions."""

    projection: FloatArray  # (S, D, R)
    weights: FloatArray  # (S, R, K)
    bias: FloatArray  # (S, K)
    latent_scale: float
    target: Target
    noise_precision: FloatArray | None = None  # (S, K), of real targets

    @property
    def size(self) -> int:
        """As in the base class."""
        return self.bias.size * self._per_draw

    @property
    def _per_draw(self) -> int:
        return max(N_POINTS_PER_DRAW, -(-N_POINTS_ALL_DRAWS // len(self.bias)))

    def thin(self, n_draws: int) -> "DrawPosterior":
        """At most so many draws, evenly spaced."""
        taken = evenly_spaced(len(self.bias), n_draws)
        names = ("projection", "weights", "bias", "noise_precision")
        arrays = {name: getattr(self, name) for name in names}
        return replace(self, **{k: v[taken] for k, v in arrays.items() if v is not None})

    def mean_effects(self) -> tuple[FloatArray, FloatArray]:
        """As in the base class."""
        coef = np.einsum("sdr,srk->dk", self.projection, self.weights, optimize=True)
        return coef / len(self.bias), self.bias.mean(axis=0)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of z over draws and latent noise; draws must be aligned."""
        mean = X @ self.projection.mean(axis=0)
        centred = self.projection - self.projection.mean(axis=0)
        covs = []
        for block in self.blocks(len(X)):
            z = np.einsum("md,sdr->msr", X[block], centred, optimize=True)
            covs.append(np.einsum("msr,msq->mrq", z, z, optimize=True) / len(centred))
        noise = self.latent_scale**2 * np.eye(mean.shape[1])
        return LatentCoordinates(mean=mean, cov=np.concatenate(covs) + noise)

    def _linear(self, X: FloatArray, *, projected: bool = False) -> FloatArray:
        """Linear predictors, (M, S, K), without biases."""
        coef = self.weights if projected else self.projection @ self.weights  # (S, P, K)
        return np.einsum("md,sdk->msk", X, coef, optimize=True)

    def utilities(self, X: FloatArray, *, projected: bool = False) -> tuple[FloatArray, FloatArray]:
        """As in the base class; each draw of the parameters has its own nodes."""
        n_draws, r, k = self.weights.shape
        nodes = normal_points(r, n_draws * self._per_draw).reshape(n_draws, self._per_draw, r)
        offset = self.latent_scale * (nodes @ self.weights) + self.bias[:, None, :]
        linear = self._linear(X, projected=projected)
        mean = (linear[:, :, None] + offset).reshape(len(X), -1, k)
        return mean, np.ones_like(mean)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """As in the base class, of at most `GRID_DRAWS` draws."""
        return self.thin(GRID_DRAWS).log_probabilities(latent, projected=True)

    def _output_covariance(self) -> FloatArray:
        """Covariance of real targets given each draw, latent coordinates integrated, (S, K, K)."""
        assert self.noise_precision is not None
        shared = self.latent_scale**2 * self.weights.mT @ self.weights
        return shared + np.eye(self.weights.shape[2]) / self.noise_precision[:, None]

    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As in the base class."""
        noise = np.einsum("skk->k", self._output_covariance()) / len(self.bias)
        mean, std = (np.empty((len(X), len(noise))) for _ in range(2))
        for block in self.blocks(len(X)):
            eta = self._linear(X[block]) + self.bias
            mean[block] = eta.mean(axis=1)
            std[block] = np.sqrt(noise + eta.var(axis=1))
        return mean, std

    def log_likelihood(self, X: FloatArray, y: np.ndarray) -> FloatArray:
        """Log p(y_n | x_n, draw) with latent coordinates and utilities integrated out: (S, M)."""
        out = np.empty((len(self.bias), len(y)))
        if self.target == "regression":
            cov = self._output_covariance()
            constant = np.linalg.slogdet(cov)[1] + y.shape[1] * LOG_2PI
            for block in self.blocks(len(X)):
                residual = y[block, None] - self._linear(X[block]) - self.bias
                solved = np.linalg.solve(cov, residual[..., None])[..., 0]
                out[:, block] = -0.5 * (np.sum(residual * solved, axis=-1) + constant).T
            return out
        # Samples with the same labels share their loadings.
        kinds, kind = np.unique(y, axis=0, return_inverse=True)
        for i, label in enumerate(kinds):
            members = np.flatnonzero(kind == i)
            for block in self.blocks(len(members)):
                at = members[block]
                eta = np.swapaxes(self._linear(X[at]) + self.bias, 0, 1)  # (S, m, K)
                out[:, at] = self._log_label(eta, label)
        return out

    def _log_label(self, eta: FloatArray, label: np.ndarray) -> FloatArray:
        """Log probability of a label, or a set of labels, for linear predictors (S, m, K)."""
        loadings = self.latent_scale * self.weights.mT  # (S, K, R)
        if self.target == "multilabel":
            sign = np.where(label, 1.0, -1.0)  # (K,)
            return log_mean(sign[:, None] * loadings, sign * eta)
        own = int(label)
        others = np.delete(np.arange(eta.shape[2]), label)
        contrast = loadings[:, [own]] - loadings[:, others]
        shared = np.ones((*contrast.shape[:2], 1))  # of the noise of the own utility
        return log_mean(
            np.concatenate([shared, contrast], axis=2), eta[..., [own]] - eta[..., others]
        )
