r"""Latent coordinates and predictions of the paper's model, by draws of its posterior.

Predictions are those of Appendix B of the paper [1]_: each draw of the parameters draws the latent
coordinates of a new sample by Eq. (1), and

.. math::
    p(y = c \mid x) = \frac{1}{S} \sum_s
        E_u \prod_{j \ne c} \Phi(u + \eta_c^{(s)} - \eta_j^{(s)})

is a mean over S draws. By mean field the draws are those of q, and the mean is the predictive
distribution of Section II-B3 with the latent coordinates integrated out. (What is printed there as
scales of the utilities are variances.) Draws from q are quasi-random, as are latent coordinates:
by mean field the largest error of a probability is .0003 for Iris, Wine, and digits by two
components, and .006 for digits by nine; of draws of a sampler it is .004 for Iris.

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
       IEEE Transactions on Cybernetics 43(6).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import gen_batches

from bsdr_models.bsdr.posterior import class_log_probabilities
from bsdr_models.bsdr.problem import label_log_likelihood
from bsdr_models.numerics.arrays import FloatArray, Target
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.normal_tail import positive_mean
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.papers import orthant
from bsdr_models.papers.bsdr.mean_field import Data, State

# Draws of latent coordinates that predictions average over, a power of two.
N_DRAWS = 2048
# Latent coordinates of a sample that its log likelihood under one draw averages over: elpd by PSIS
# is then within .001 nats of that by adaptive quadrature on Iris and Wine.
N_NODES = 64
# Steps to the modes around which they are.
N_STEPS = 8
# The paper has no lapses: this probability of one keeps logarithms finite.
LAPSE = 1e-12
# Linear predictors held in memory at once.
_BLOCK = 1 << 21
# Seed of the scrambled quasi-random numbers, the same for all fits.
_SEED = 20130601


@lru_cache(maxsize=8)
def standard_normals(n_draws: int, n_dims: int) -> FloatArray:
    """Quasi-random standard normals, (S, P), whose means are exactly zero."""
    from scipy.stats import qmc  # takes half a second to load

    points = qmc.MultivariateNormalQMC(np.zeros(n_dims), rng=np.random.default_rng(_SEED))
    normal = points.random(1 << (n_draws - 1).bit_length())[:n_draws]
    normal -= normal.mean(axis=0)
    normal.flags.writeable = False
    return normal


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperPosterior(ABC):
    """S draws of weights, biases and standard normals of the latent coordinates."""

    weights: FloatArray  # W, (S, R, K)
    bias: FloatArray  # b, (S, K)
    noise: FloatArray  # (S, R)
    latent_scale: float  # sigma_z
    target: Target
    noise_variance: FloatArray | None = None  # posterior mean of 1 / tau of real outputs, (K,)

    @abstractmethod
    def _project(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Centre of latent coordinates by draw, (S, M, R) or (1, M, R), and deviation, (M, R)."""

    @abstractmethod
    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Posterior means of the effects of scaled features, (P, K), and of the biases, (K,)."""

    def _blocks(self, X: FloatArray) -> Iterator[slice]:
        """Blocks of samples whose linear predictors under all draws fit into memory."""
        return gen_batches(len(X), max(1, _BLOCK // max(self.bias.size, self.noise.size)))

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances of latent coordinates of scaled samples (M, P)."""
        r = self.noise.shape[1]
        mean = np.empty((len(X), r))
        cov = np.empty((len(X), r, r))
        for part in self._blocks(X):
            centre, sd = self._project(X[part])
            mean[part] = centre.mean(axis=0)
            gap = centre - mean[part]
            cov[part] = np.einsum("smr,smq->mrq", gap, gap, optimize=True) / len(gap)
            np.einsum("mrr->mr", cov[part])[...] += sd**2
        return LatentCoordinates(mean=mean, cov=cov)

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of the classes, or of each label being 1, of scaled samples: (M, K)."""
        out = np.empty((len(X), self.bias.shape[1]))
        for part in self._blocks(X):
            out[part] = self._log_probabilities(*self._project(X[part]))
        return out

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same for samples whose projection is known to be ``latent`` (G, R): (G, K)."""
        out = np.empty((len(latent), self.bias.shape[1]))
        sd = np.full_like(latent, self.latent_scale)
        for part in self._blocks(latent):
            out[part] = self._log_probabilities(latent[None, part], sd[part])
        return out

    def _log_probabilities(self, centre: FloatArray, sd: FloatArray) -> FloatArray:
        """Log probabilities (M, K) of samples as `_project` describes them."""
        latent = centre + sd * self.noise[:, None]
        eta = latent @ self.weights + self.bias[:, None]
        return class_log_probabilities(eta, self.target, LAPSE)

    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of real outputs of scaled samples, each (M, K).

        The deviation of latent coordinates from their centres is integrated out.
        """
        assert self.noise_variance is not None
        square = np.mean(self.weights**2, axis=0)
        mean = np.empty((len(X), self.bias.shape[1]))
        variance = np.empty_like(mean)
        for part in self._blocks(X):
            centre, sd = self._project(X[part])
            eta = centre @ self.weights + self.bias[:, None]
            mean[part] = eta.mean(axis=0)
            variance[part] = eta.var(axis=0) + sd**2 @ square
        return mean, np.sqrt(variance + self.noise_variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanFieldPosterior(PaperPosterior):
    """Posterior of a mean-field fit, with draws of weights and biases from q."""

    state: State
    data: Data  # training samples, whose design transforms new samples, and targets

    @classmethod
    def of(cls, state: State, data: Data, latent_scale: float) -> Self:
        """From the factors of q at the end of a fit."""
        r, k = state.weights.mean[1:].shape
        noise, normal = np.split(standard_normals(N_DRAWS, r + k * (1 + r)), [r], axis=1)
        half = cholesky(state.weights.cov, name="weight covariance")  # (K, 1 + R, 1 + R)
        deviation = np.einsum("kpq,skq->spk", half, normal.reshape(N_DRAWS, k, 1 + r))
        full = state.weights.mean + deviation  # (S, 1 + R, K)
        tau = state.noise_precision
        return cls(
            weights=full[:, 1:],
            bias=full[:, 0],
            noise=noise,
            latent_scale=latent_scale,
            target=data.target,
            noise_variance=None if tau is None else tau.rate / np.maximum(tau.shape - 1.0, 0.5),
            state=state,
            data=data,
        )

    def components(self) -> FloatArray:
        """Posterior mean of the projection of features, (R, P)."""
        return self.data.design.loadings(self.state.projection.mean).T

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """As in the base class."""
        mean = self.state.weights.mean
        return self.components().T @ mean[1:], mean[0]

    def _project(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As in the base class: latent coordinates are independent normals under q."""
        centre = X @ self.components().T
        v = self.latent_scale**2
        precision = self.state.projection_precision.mean
        variance = self.data.design.row_variance(X, precision, v) + v
        return centre[None], np.sqrt(np.broadcast_to(variance, centre.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior(PaperPosterior):
    """L draws of a sampler, with stacked chains, repeated until there are N_DRAWS."""

    projection: FloatArray  # Q, (L, P, R)
    noise_precision: FloatArray | None = None  # tau of real outputs, (L, K)

    @classmethod
    def of(
        cls,
        projection: FloatArray,
        weights: FloatArray,
        bias: FloatArray,
        noise_precision: FloatArray | None = None,
        *,
        latent_scale: float,
        target: Target,
    ) -> Self:
        """From the draws: (L, P, R), (L, R, K), (L, K) and, of real outputs, (L, K)."""
        repeats = -(-N_DRAWS // len(bias))
        variance = None if noise_precision is None else np.mean(1.0 / noise_precision, axis=0)
        return cls(
            weights=np.repeat(weights, repeats, axis=0),
            bias=np.repeat(bias, repeats, axis=0),
            noise=standard_normals(repeats * len(bias), weights.shape[1]),
            latent_scale=latent_scale,
            target=target,
            noise_variance=variance,
            projection=projection,
            noise_precision=noise_precision,
        )

    @property
    def _repeats(self) -> int:
        """How often each draw of the sampler is taken."""
        return len(self.bias) // len(self.projection)

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """As in the base class."""
        weights = self.weights[:: self._repeats]
        coef = np.einsum("sdr,srk->dk", self.projection, weights, optimize=True)
        return coef / len(weights), self.bias.mean(axis=0)

    def _project(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As in the base class."""
        sd = np.full((len(X), self.noise.shape[1]), self.latent_scale)
        return np.repeat(X @ self.projection, self._repeats, axis=0), sd

    def log_likelihood(self, X: FloatArray, y: np.ndarray) -> FloatArray:
        """Log p(y_n | x_n, draw) with latent coordinates and utilities integrated out: (L, N)."""
        weights = self.weights[:: self._repeats]
        eta = X @ self.projection @ weights + self.bias[:: self._repeats, None]  # (L, N, K)
        if self.target == "regression":
            return self._output_log_density(y - eta, weights)
        loadings = self.latent_scale * weights
        centre = self._find_modes(eta, loadings, y)
        nodes = standard_normals(len(eta) * N_NODES, weights.shape[1])
        nodes = nodes.reshape(len(eta), N_NODES, -1)
        out = np.empty(eta.shape[:2])
        for s, mean in enumerate(centre):  # (N, R)
            moved = eta[s] + (mean + nodes[s][:, None]) @ loadings[s]  # (N_NODES, N, K)
            each, _ = label_log_likelihood(moved, y, self.target, LAPSE)
            each -= nodes[s] @ mean.T + 0.5 * np.sum(mean**2, axis=1)  # importance weights
            out[s] = logsumexp(each, axis=0) - np.log(N_NODES)
        return out

    def _find_modes(self, eta: FloatArray, loadings: FloatArray, y: np.ndarray) -> FloatArray:
        """Centres (L, N, R) of nodes, near the modes of label probability times normal density.

        Of standard normals that the loadings (L, R, K) add to linear predictors (L, N, K). A
        gradient step by the largest curvature that the log density may have never lowers it.
        """
        centre = np.zeros((*eta.shape[:2], loadings.shape[1]))
        step = 1.0 / (1.0 + np.linalg.norm(loadings, ord=2, axis=(1, 2)) ** 2)
        for _ in range(N_STEPS):
            slope = self._slope(eta + centre @ loadings, y)
            centre += step[:, None, None] * (slope @ loadings.mT - centre)
        return centre

    def _slope(self, eta: FloatArray, y: np.ndarray) -> FloatArray:
        """Gradient (L, N, K) of the log probability of labels, exact for improbable ones too."""
        if self.target == "multilabel":
            sign = np.where(y, 1.0, -1.0)
            return sign * positive_mean(sign * eta) - eta
        flat = eta.reshape(-1, eta.shape[2])
        return (orthant.moments(flat, np.tile(y, len(eta))).mean - flat).reshape(eta.shape)

    def _output_log_density(self, residual: FloatArray, weights: FloatArray) -> FloatArray:
        """Log densities of real outputs, (L, N), from their residuals (L, N, K)."""
        assert self.noise_precision is not None
        k = residual.shape[2]
        cov = self.latent_scale**2 * weights.mT @ weights
        cov += np.eye(k) / self.noise_precision[:, None]
        solved = np.linalg.solve(cov, residual.mT).mT
        constant = np.linalg.slogdet(cov)[1] + k * LOG_2PI
        return np.asarray(-0.5 * (np.sum(residual * solved, axis=2) + constant[:, None]))
