r"""Back-constraint: a Gaussian process from features to latent coordinates.

The paper's Eqs. (17)-(18), with as many kernels as samples, constrain nothing. Here, for features y
in a metric and each component j of the latent coordinates x,

.. math::
    x_{\cdot j} \sim N(m_j 1,\; s^2 K_b), \qquad
    K_b = \exp(-g\,|y - y'|^2 / 2\,\mathrm{med}) + \omega\,1 1^\top + \lambda I,

where :math:`m_j = c^\top x_{\cdot j}` is the mean of the class centroids, med the median squared
distance of the training samples, and s has an inverse Gamma prior and is integrated out. M is the
inverse of K_b and :math:`E = I - 1 c^\top`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import blas, cho_solve, lapack, solve_triangular
from scipy.spatial.distance import squareform

from bsdr_models.dgplvm.priors import MAP_MEAN_VARIANCE
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.numerics.latent import LatentCoordinates
from bsdr_models.numerics.linalg import cholesky, squared_distances

# Array elements in memory at a time for derivatives.
CHUNK_NUMBERS = 2**15


def typical_distance(squares: FloatArray) -> float:
    """Median of squared distances (N, N) between samples, or their mean if it is 0, or 1."""
    distances = squareform(squares, checks=False)
    median = float(np.median(distances))
    return median if median > 0.0 else float(distances.mean()) or 1.0


def centroid_weights(y_index: IntArray) -> FloatArray:
    """Weights c (N,) of the samples in the mean of the class centroids; 0 without a label."""
    known = y_index >= 0
    counts = np.bincount(y_index[known])
    weights = np.zeros(len(y_index))
    weights[known] = 1.0 / ((counts > 0).sum() * counts[y_index[known]])
    return weights


@dataclass(frozen=True, kw_only=True)
class MappingPrior:
    """Prior of a component of the latent coordinates of samples (N, D), up to its scale.

    Its smooth part is exp(-decay d2) of squared distances; ``decay`` is g / (2 med).
    ``mean_variance`` is omega, ``noise`` lambda, ``mean_weights`` c (N,), and ``factor`` (N, N) the
    lower Cholesky factor of K_b.
    """

    samples: FloatArray
    decay: float
    mean_variance: float
    noise: float
    mean_weights: FloatArray
    factor: FloatArray

    @cached_property
    def inverse(self) -> FloatArray:
        """Inverse M of the covariance of the mapping, (N, N)."""
        upper, _ = lapack.dpotri(self.factor.T)
        return np.asarray(np.triu(upper) + np.triu(upper, 1).T)

    def raw(self, values: FloatArray) -> FloatArray:
        """Raw coordinates (N, R) of values."""
        return np.asarray(solve_triangular(self.factor, values, lower=True))

    def solve(self, values: FloatArray) -> FloatArray:
        """M times values, (N, R)."""
        return np.asarray(blas.dsymm(1.0, self.inverse.T, values))

    def covariances(self, X: FloatArray) -> FloatArray:
        """Covariances of new samples (M, D) with those of the prior, (M, N)."""
        return self.covariances_at(squared_distances(X, self.samples))

    def covariances_at(self, squares: FloatArray) -> FloatArray:
        """Covariances of samples at squared distances (M, N) from those of the prior, (M, N)."""
        return np.exp(-self.decay * squares) + self.mean_variance

    def weights(self, latent: FloatArray) -> FloatArray:
        """Coefficients (N, R) of the covariances in the mean, given latent coordinates (N, R)."""
        return np.asarray(cho_solve((self.factor, True), latent - self.mean_weights @ latent))

    def predict(self, values: FloatArray, covariances: FloatArray) -> FloatArray:
        """Values (M, R) of samples of such covariances (M, N), given those of (N, R)."""
        return self.mean_weights @ values + covariances @ self.weights(values)

    def variance(self, covariances: FloatArray) -> FloatArray:
        """Predictive variance of new samples, without the scale, (M, N) -> (M,)."""
        half = solve_triangular(self.factor, covariances.T, lower=True)
        left = 1.0 + self.mean_variance + self.noise - (half**2).sum(axis=0)
        return np.maximum(left, self.noise)

    def leave_out(self, values: FloatArray) -> FloatArray:
        """Values (N, R) of each sample, predicted from those of the others."""
        residual = self.solve(values - self.mean_weights @ values)
        return values - residual / np.diagonal(self.inverse)[:, None]

    def left_out_variance(self) -> FloatArray:
        """Predictive variance of each training sample given the others, (N,)."""
        return np.maximum(1.0 / np.diagonal(self.inverse), self.noise)

    def leave_out_together(
        self, values: FloatArray, out: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Values (M, R) and variances (M,) of some samples (N,), predicted from those of others."""
        residual = self.solve(values - self.mean_weights @ values)
        cov = np.linalg.inv(self.inverse[np.ix_(out, out)])
        return values[out] - cov @ residual[out], np.maximum(np.diagonal(cov), self.noise)

    def energy(self, latent: FloatArray) -> tuple[float, FloatArray]:
        """tr(X' Pi X) with Pi = E' M E, and Pi X, (N, R)."""
        solved = self.solve(latent - self.mean_weights @ latent)
        product = solved - np.outer(self.mean_weights, solved.sum(axis=0))
        return float(np.vdot(latent, product)), product

    def shrink_towards_loo(self, latent: FloatArray) -> FloatArray:
        """Class indicators (N, R), shrunk halfway to their leave-one-out predictions.

        At the indicators themselves the gradient of the criterion is zero.
        """
        return 0.5 * (latent + self.leave_out(latent))


def make_mapping(
    X: FloatArray,
    mean_weights: FloatArray,
    *,
    width: float,
    noise: float,
    mean_variance: float = MAP_MEAN_VARIANCE,
    squares: FloatArray | None = None,
    typical: float | None = None,
) -> MappingPrior:
    """Prior on samples (N, D) of at least two; width is g.

    Their squared distances (N, N) and the typical one may be known.
    """
    if squares is None:
        squares = squared_distances(X)
    decay = width / (2.0 * (typical or typical_distance(squares)))
    cov = np.exp(-decay * squares)
    cov += mean_variance
    cov[np.diag_indices_from(cov)] += noise
    return MappingPrior(
        samples=X,
        decay=decay,
        mean_variance=mean_variance,
        noise=noise,
        mean_weights=mean_weights,
        factor=cholesky(cov, name="covariance of the mapping"),
    )


class Embedder(ABC):
    """Embeds samples (M, D) of the features; by default without uncertainty."""

    @abstractmethod
    def latent(self, X: FloatArray) -> FloatArray:
        """Means of the latent coordinates, (M, R)."""

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances of the latent coordinates."""
        return certain(self.latent(X))

    def to_classify(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means, (M, R), and variances relative to the typical one, (M,)."""
        return self.latent(X), np.ones(len(X))


def certain(latent: FloatArray) -> LatentCoordinates:
    """Latent coordinates (N, R) with covariances of zero."""
    return LatentCoordinates(mean=latent, cov=np.zeros((*latent.shape, latent.shape[1])))


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEmbedder(Embedder):
    """Embedding by the back-constraint in closed form: the Gaussian process given its values.

    ``mean`` is m (R,), ``weights`` (N, R) are the coefficients of the covariances, and ``scale`` is
    s**2. Without it, ``typical_variance`` is the mean variance of left-out latent coordinates, and
    ``left_out_variance`` (N,) are those of all training samples.
    """

    prior: MappingPrior
    mean: FloatArray
    weights: FloatArray
    scale: float
    typical_variance: float
    left_out_variance: FloatArray

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (M, R), and variances (M,) without the scale."""
        covariances = self.prior.covariances(X)
        return self.mean + covariances @ self.weights, self.prior.variance(covariances)

    def latent(self, X: FloatArray) -> FloatArray:
        """Means of the latent coordinates of samples (M, D), (M, R)."""
        return self.mean + self.prior.covariances(X) @ self.weights

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances of the latent coordinates of samples (M, D)."""
        mean, variance = self._moments(X)
        cov = (self.scale * variance)[:, None, None] * np.eye(len(self.mean))
        return LatentCoordinates(mean=mean, cov=cov)

    def to_classify(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (M, R), and variances relative to the typical one, (M,)."""
        mean, variance = self._moments(X)
        return mean, variance / self.typical_variance

    def out_of_range(self, X: FloatArray) -> FloatArray:
        """Variance relative to that of an infinitely distant sample, (M,)."""
        return self._relative(self.prior.variance(self.prior.covariances(X)))

    def out_of_range_left_out(self) -> FloatArray:
        """Relative variance of each training sample given the others, (N,)."""
        return self._relative(self.left_out_variance)

    def _relative(self, variance: FloatArray) -> FloatArray:
        far = np.full((1, len(self.prior.samples)), self.prior.mean_variance)
        return np.minimum(variance / self.prior.variance(far), 1.0)

    def outliers(self, out_of_range: FloatArray) -> dict[str, FloatArray]:
        """Relative variances (M,), and their empirical p-values, by name.

        Those are (1 + number of training samples with at least as much, each left out) / (1 + N).
        """
        reference = np.sort(self.out_of_range_left_out())
        above = len(reference) - np.searchsorted(reference, out_of_range)
        tail = np.asarray((1.0 + above) / (1.0 + len(reference)))
        return {"out_of_range": out_of_range, "tail_probability": tail}

    def sensitivity(
        self, X: FloatArray, effects: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and sd (D, R) over samples (M, B) of the derivatives of the latent coordinates.

        The samples are features times ``effects`` (D, B), and derivatives those in the features.
        Also the share (D,) of each in the sum of squares over samples and components.
        """
        prior = self.prior
        n = len(X)
        factors = self.weights.T
        places = prior.samples
        total, square = np.zeros((2, len(factors), len(effects)))
        size = max(1, CHUNK_NUMBERS // max(len(effects), len(places)))
        for start in range(0, n, size):
            chunk = X[start : start + size]
            smooth = np.exp(-prior.decay * squared_distances(chunk, places))
            kernel = smooth[:, None] * factors  # (M, R, N)
            moved = kernel.sum(axis=2, keepdims=True) * chunk[:, None] - kernel @ places
            gradient = -2.0 * prior.decay * moved @ effects.T  # (M, R, D)
            total += gradient.sum(axis=0)
            square += (gradient**2).sum(axis=0)
        mean = total / n
        share = square.sum(axis=0)
        sd = np.sqrt(np.maximum(square / n - mean**2, 0.0))
        return mean.T, sd.T, share / (share.sum() or 1.0)
