r"""Predictions of the paper's model for new samples: embedding, label probabilities, outputs.

The prediction of a sample does not depend on its batch. Utilities of a sample are correlated
through its latent coordinates, which are integrated by a fixed set of quasi-random normal nodes;
given these, utilities are integrated in closed form or by one-dimensional quadrature [1]_. The
likelihood under a single draw, where errors of such nodes would not average out, has a quadrature
over the utilities (:mod:`bsdr_models.bsdr.paper.probit_product`). Real targets given the parameters
are normal, with a covariance of low rank besides the noise.

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

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.paper.mean_field import Data, State
from bsdr_models.bsdr.paper.probit_product import log_mean, normal_points
from bsdr_models.numerics import orthant
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.relevance import LatentCoordinates

# Quasi-random nodes of the latent coordinates; minimum per draw of a sampler, and over all draws.
N_POINTS, N_POINTS_PER_DRAW, N_POINTS_ALL_DRAWS = 32, 4, 1024
# Draws that colour a map.
GRID_DRAWS = 50
# Utilities held in memory at once.
BLOCK = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Predictive distribution of real targets: a mixture of S normals for each sample."""

    mean: FloatArray  # (M, S, K)
    noise: FloatArray  # independent variances, (M or 1, S, K)
    loadings: FloatArray  # L, (M or 1, S, R, K), of the shared part of the covariance, L' L

    def log_density(self, y: FloatArray) -> FloatArray:
        """Log densities of the mixture components at y, (M, K): (M, S)."""
        residual = y[:, None] - self.mean
        half = self.loadings / np.sqrt(self.noise)[..., None, :]
        inner = half @ np.swapaxes(half, -1, -2) + np.eye(half.shape[-2])  # (M or 1, S, R, R)
        seen = (half @ (residual / np.sqrt(self.noise))[..., None])[..., 0]
        square = np.sum(residual**2 / self.noise, axis=-1)
        square -= np.einsum("msr,msr->ms", seen, np.linalg.solve(inner, seen[..., None])[..., 0])
        log_det = np.linalg.slogdet(inner)[1] + np.log(self.noise).sum(axis=-1)
        return -0.5 * (square + log_det + residual.shape[-1] * LOG_2PI)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of each output, (M, K)."""
        variance = self.noise + np.sum(self.loadings**2, axis=-2)
        return self.mean.mean(axis=1), np.sqrt(variance.mean(axis=1) + self.mean.var(axis=1))


class Predictive(ABC):
    """Predictions of new samples (M, P), scaled as for the fit, averaged over the posterior."""

    __slots__ = ()

    target: Target

    @abstractmethod
    def utilities(self, X: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Means and standard deviations (with the noise) of utilities at the nodes, (m, S, K)."""

    @abstractmethod
    def utilities_at(self, latent: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """The same for samples whose projection is known to be ``latent``, (G, R)."""

    @abstractmethod
    def outputs(self, X: FloatArray) -> Iterator[Outputs]:
        """Distribution of real targets, by blocks of samples."""

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of the classes, or of each label being 1, (M, K)."""
        return np.concatenate([_label_log_mean(*each, self.target) for each in self.utilities(X)])

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same for samples whose projection is known to be ``latent`` (G, R): (G, K)."""
        utilities = self.utilities_at(latent)
        return np.concatenate([_label_log_mean(*each, self.target) for each in utilities])

    def moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of the real targets, each (M, K)."""
        means, stds = zip(*(part.moments() for part in self.outputs(X)), strict=True)
        return np.concatenate(means), np.concatenate(stds)


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

    def components(self) -> FloatArray:
        """Posterior mean of the projection of features, (R, P)."""
        return self.data.design.loadings(self.state.projection.mean).T

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Latent coordinates of new samples under q, which underestimates their covariance."""
        mean, variance = self._moments(X)
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and marginal variance of the latent coordinates under q, each (M, R)."""
        mean, v = X @ self.components().T, self.latent_scale**2
        precision = self.state.projection_precision.mean
        variance = self.data.design.row_variance(X, precision, v) + v
        return mean, np.broadcast_to(variance, mean.shape)

    def utilities(self, X: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """As in the base class."""
        yield from self._utilities(*self._moments(X))

    def utilities_at(self, latent: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """As in the base class."""
        yield from self._utilities(latent, np.full_like(latent, self.latent_scale**2))

    def _utilities(
        self, mean: FloatArray, variance: FloatArray
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Utilities for means and variances of the latent coordinates, each (M, R)."""
        weights = self.state.weights
        r = mean.shape[1]
        nodes = normal_points(r, N_POINTS)
        size = max(1, BLOCK // (nodes.shape[0] * weights.mean.shape[1]))
        for begin in range(0, mean.shape[0], size):
            part = slice(begin, begin + size)
            z = mean[part, None, :] + np.sqrt(variance[part, None, :]) * nodes
            full = np.concatenate([np.ones((*z.shape[:-1], 1)), z], axis=-1)  # (m, S, 1 + R)
            spread = np.einsum("msp,kpq,msq->msk", full, weights.cov, full, optimize=True)
            yield full @ weights.mean, np.sqrt(1.0 + spread)

    def outputs(self, X: FloatArray) -> Iterator[Outputs]:
        """Real targets of new samples, by blocks: normal, with the exact moments under q."""
        mean, variance = self._moments(X)
        weights, tau = self.state.weights, self.state.noise_precision
        assert tau is not None
        full = np.column_stack([np.ones(len(mean)), mean])  # (M, 1 + R)
        noise = tau.rate / np.maximum(tau.shape - 1.0, 0.5)  # E[1 / tau]
        noise = noise + np.einsum("mp,kpq,mq->mk", full, weights.cov, full, optimize=True)
        noise += variance @ weights.variance[1:]
        loadings = np.sqrt(variance)[:, :, None] * weights.mean[1:]  # (M, R, K)
        yield Outputs(
            mean=(full @ weights.mean)[:, None], noise=noise[:, None], loadings=loadings[:, None]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior(Predictive):
    """Posterior draws of a sampler, with stacked chains, for predictions."""

    projection: FloatArray  # (S, D, R)
    weights: FloatArray  # (S, R, K)
    bias: FloatArray  # (S, K)
    latent_scale: float
    target: Target
    noise_precision: FloatArray | None = None  # (S, K), of real targets

    def thin(self, n_draws: int) -> "DrawPosterior":
        """At most so many draws, evenly spaced."""
        taken = evenly_spaced(len(self.bias), n_draws)
        names = ("projection", "weights", "bias", "noise_precision")
        arrays = {name: getattr(self, name) for name in names}
        return replace(self, **{k: v[taken] for k, v in arrays.items() if v is not None})

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of z over draws and latent noise; draws must be aligned."""
        r = self.projection.shape[2]
        mean = X @ self.projection.mean(axis=0)
        centred = self.projection - self.projection.mean(axis=0)
        cov = np.empty((X.shape[0], r, r))
        size = max(1, BLOCK // (self.projection.shape[0] * r))
        for begin in range(0, X.shape[0], size):
            part = slice(begin, begin + size)
            z = np.einsum("md,sdr->msr", X[part], centred, optimize=True)
            cov[part] = np.einsum("msr,msq->mrq", z, z, optimize=True) / len(centred)
        return LatentCoordinates(mean=mean, cov=cov + self.latent_scale**2 * np.eye(r))

    def utilities(self, X: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """As in the base class; each draw of the parameters has its own nodes."""
        return self._utilities(X, self.projection @ self.weights)

    def utilities_at(self, latent: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """As in the base class."""
        return self._utilities(latent, self.weights)

    def _utilities(
        self, rows: FloatArray, coef: FloatArray
    ) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Utilities at the nodes of each draw, for coefficients (S, P, K) of samples (M, P)."""
        n_draws, r, k = self.weights.shape
        per_draw = max(N_POINTS_PER_DRAW, -(-N_POINTS_ALL_DRAWS // n_draws))
        nodes = normal_points(r, n_draws * per_draw).reshape(n_draws, per_draw, r)
        offset = self.latent_scale * (nodes @ self.weights) + self.bias[:, None, :]
        for _, linear in _linear(rows, coef, offset.size):
            mean = (linear[:, :, None] + offset).reshape(len(linear), -1, k)
            yield mean, np.ones_like(mean)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """As in the base class, of at most `GRID_DRAWS` draws."""
        return super(DrawPosterior, self.thin(GRID_DRAWS)).log_probabilities_at(latent)

    def outputs(self, X: FloatArray) -> Iterator[Outputs]:
        """Real targets of new samples, by blocks: one normal for each draw."""
        assert self.noise_precision is not None
        for _, linear in _linear(X, self.projection @ self.weights, self.weights.size):
            yield Outputs(
                mean=linear + self.bias,
                noise=1.0 / self.noise_precision[None],
                loadings=self.latent_scale * self.weights[None],
            )


def _linear(
    rows: FloatArray, coef: FloatArray, sample_size: int
) -> Iterator[tuple[slice, FloatArray]]:
    """Blocks of samples (M, P) and their products with coefficients (S, P, K): (m, S, K)."""
    size = max(1, BLOCK // sample_size)
    for begin in range(0, len(rows), size):
        part = slice(begin, begin + size)
        yield part, np.einsum("md,sdk->msk", rows[part], coef, optimize=True)


def _label_log_mean(mean: FloatArray, std: FloatArray, target: Target) -> FloatArray:
    """Log mean over nodes of the label probabilities, (m, K), for utilities (m, S, K)."""
    if target == "multilabel":
        return _log_mean(log_ndtr(mean / std))
    m, s, k = mean.shape
    flat = orthant.label_log_probs(mean.reshape(-1, k), std.reshape(-1, k))
    return _log_mean(flat.reshape(m, s, k))


def log_likelihood(posterior: DrawPosterior, X: FloatArray, y: np.ndarray) -> FloatArray:
    """Log p(y_n | x_n, draw) with latent coordinates and utilities integrated out: (S, M)."""
    if posterior.target == "regression":
        parts, begin = [], 0
        for outputs in posterior.outputs(X):
            parts.append(outputs.log_density(y[begin : begin + len(outputs.mean)]).T)
            begin += len(outputs.mean)
        return np.concatenate(parts, axis=1)
    # Samples with the same labels share their loadings.
    kinds, kind = np.unique(y, axis=0, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    n_draws, r, k = posterior.weights.shape
    out = np.empty((n_draws, len(y)))
    coef = posterior.projection @ posterior.weights
    for part, linear in _linear(X[order], coef, n_draws * k * (1 + r)):
        eta = np.swapaxes(linear + posterior.bias, 0, 1)  # (S, m, K)
        members = kind[order[part]]
        for i in np.unique(members):
            chosen = members == i
            out[:, order[part][chosen]] = _log_label(posterior, eta[:, chosen], kinds[i])
    return out


def _log_label(posterior: DrawPosterior, eta: FloatArray, label: np.ndarray) -> FloatArray:
    """Log probability of one label, or of one set of labels, for linear predictors (S, m, K)."""
    loadings = posterior.latent_scale * np.swapaxes(posterior.weights, 1, 2)  # (S, K, R)
    if posterior.target == "multilabel":
        sign = np.where(label, 1.0, -1.0)  # (K,)
        return log_mean(sign[:, None] * loadings, sign * eta)
    own, others = int(label), np.delete(np.arange(eta.shape[2]), label)
    contrast = loadings[:, [own]] - loadings[:, others]
    shared = np.ones((*contrast.shape[:2], 1))  # of the noise of the own utility
    return log_mean(np.concatenate([shared, contrast], axis=2), eta[..., [own]] - eta[..., others])


def _log_mean(log_p: FloatArray) -> FloatArray:
    """Log of the mean over nodes, (m, S, ...) -> (m, ...)."""
    return logsumexp(log_p, axis=1) - np.log(log_p.shape[1])
