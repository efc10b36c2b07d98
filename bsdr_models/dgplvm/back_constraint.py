r"""Back-constraint: a Gaussian process from features to latent coordinates, dense or low-rank.

The paper's Eqs. (17)-(18), with as many kernels as samples, constrain nothing. Here, for features y
in a metric and each component j of the latent coordinates x,

.. math::
    x_{\cdot j} \sim N(m_j 1,\; s^2 K_b), \qquad
    K_b = \exp(-g\,|y - y'|^2 / 2\,\mathrm{med}) + \omega\,1 1^\top + \lambda I,

where :math:`m_j = c^\top x_{\cdot j}` is the mean of the class centroids, med the median squared
distance of the training samples, and s has an inverse Gamma prior and is integrated out. With
centres the first term is of low rank (Nyström), and cost and memory are linear in the number of
samples. M is the inverse of K_b and :math:`E = I - 1 c^\top`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import blas, cho_solve, lapack, solve_triangular

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.kernels import squared_distances
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.relevance import LatentCoordinates

# Maximum number of samples for the median distance.
MEDIAN_SAMPLES = 2000
# Array elements in memory at a time for derivatives.
CHUNK_NUMBERS = 2**15
# Added to the diagonal of the kernel of the centres, of unit variance.
CENTRE_JITTER = 1e-8

# Prior of one component of the latent coordinates given the features, up to its scale.
type MappingPrior = DenseMapping | LowRankMapping


def median_distance(X: FloatArray) -> float:
    """Median squared distance between samples (N, D), or their mean if the median is 0, or 1.

    Of evenly spaced samples if there are more than ``MEDIAN_SAMPLES``.
    """
    if len(X) > MEDIAN_SAMPLES:
        X = X[np.linspace(0, len(X) - 1, MEDIAN_SAMPLES).astype(int)]
    distances = squared_distances(X)[np.triu_indices(len(X), 1)]
    median = float(np.median(distances))
    return median if median > 0.0 else float(distances.mean()) or 1.0


def centroid_weights(y_index: IntArray) -> FloatArray:
    """Weights c (N,) of the samples in the mean of the class centroids; 0 without a label."""
    known = y_index >= 0
    counts = np.bincount(y_index[known])
    weights = np.zeros(len(y_index))
    weights[known] = 1.0 / ((counts > 0).sum() * counts[y_index[known]])
    return weights


def energy(prior: MappingPrior, latent: FloatArray) -> tuple[float, FloatArray]:
    """tr(X' Pi X) with Pi = E' M E, and Pi X, (N, R)."""
    solved = prior.solve(latent - prior.mean_weights @ latent)
    product = solved - np.outer(prior.mean_weights, solved.sum(axis=0))
    return float(np.vdot(latent, product)), product


def shrink_towards_loo(prior: MappingPrior, latent: FloatArray) -> FloatArray:
    """Class indicators (N, R), shrunk halfway to their leave-one-out predictions.

    At the indicators themselves the gradient of the criterion is zero.
    """
    residual = prior.solve(latent - prior.mean_weights @ latent)
    return latent - 0.5 * residual / prior.diagonal()[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapping:
    """Kernels exp(-decay d2) at centres (m, D), of squared distances; ``decay`` is g / (2 med).

    ``mean_variance`` is omega, ``noise`` lambda, and ``mean_weights`` c (N,).
    """

    decay: float
    mean_variance: float
    noise: float
    mean_weights: FloatArray
    centres: FloatArray

    def kernel(self, X: FloatArray) -> FloatArray:
        """Kernels of samples (M, D) at the centres, (M, m)."""
        return np.exp(-self.decay * squared_distances(X, self.centres))


@dataclass(frozen=True, kw_only=True)
class DenseMapping(_Mapping):
    """With kernels at all training samples, and the lower factor of K_b, (N, N)."""

    factor: FloatArray

    @cached_property
    def inverse(self) -> FloatArray:
        """Inverse M of the covariance of the mapping, (N, N)."""
        upper, _ = lapack.dpotri(self.factor.T)
        return np.asarray(np.triu(upper) + np.triu(upper, 1).T)

    def root(self, raw: FloatArray) -> FloatArray:
        """Product of a root of K_b and raw coordinates, (N, R)."""
        return np.asarray(blas.dtrmm(1.0, self.factor.T, raw, lower=0, trans_a=1))

    def root_transposed(self, values: FloatArray) -> FloatArray:
        """Product of the transposed root and values (N, R)."""
        return np.asarray(blas.dtrmm(1.0, self.factor.T, values, lower=0))

    def raw(self, values: FloatArray) -> FloatArray:
        """Raw coordinates of least norm whose product with the root is values (N, R)."""
        return np.asarray(solve_triangular(self.factor, values, lower=True))

    def solve(self, values: FloatArray) -> FloatArray:
        """M times values, (N, R)."""
        return np.asarray(blas.dsymm(1.0, self.inverse.T, values))

    def blocks(self, index: IntArray) -> FloatArray:
        """Square blocks M_II for sets of samples, (B, L) -> (B, L, L)."""
        return self.inverse[index[:, :, None], index[:, None, :]]

    def diagonal(self) -> FloatArray:
        """Diagonal of M, (N,)."""
        return np.diagonal(self.inverse)

    def features(self, kernel: FloatArray) -> FloatArray:
        """Features, of which the mean is linear, of samples with such kernels, (M, m) -> (M, P)."""
        return kernel + self.mean_variance

    def weights(self, values: FloatArray) -> FloatArray:
        """Coefficients of the features in the mean, given centred latent coordinates, (P, R)."""
        return np.asarray(cho_solve((self.factor, True), values))

    def kernel_weights(self, weights: FloatArray) -> FloatArray:
        """Coefficients of the kernels at the centres, (P, R) -> (m, R)."""
        return weights

    def variance(self, features: FloatArray) -> FloatArray:
        """Predictive variance of new samples, without the scale, (M, P) -> (M,)."""
        half = solve_triangular(self.factor, features.T, lower=True)
        left = 1.0 + self.mean_variance + self.noise - (half**2).sum(axis=0)
        return np.maximum(left, self.noise)

    def left_out_variance(self) -> FloatArray:
        """Predictive variance of each training sample given the others, (N,)."""
        return np.maximum(1.0 / self.diagonal(), self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankMapping(_Mapping):
    r"""Of low rank but for the noise: :math:`K_b = \Psi \Psi^\top + \lambda I`.

    ``psi`` (N, P), P = m + 1, are the Nyström features of the samples and a column of the root of
    omega; ``centre_factor`` and ``inner`` are the lower Cholesky factors of the kernel of the
    centres and of lambda I + Psi' Psi, and ``theta`` is Psi times the inverse transpose of
    ``inner``, so that M = (I - theta theta') / lambda. The root is [Psi, sqrt(lambda) I].
    """

    centre_factor: FloatArray
    psi: FloatArray
    inner: FloatArray
    theta: FloatArray

    def root(self, raw: FloatArray) -> FloatArray:
        """Product of a root of K_b and raw coordinates, (N, R)."""
        p = self.psi.shape[1]
        return self.psi @ raw[:p] + np.sqrt(self.noise) * raw[p:]

    def root_transposed(self, values: FloatArray) -> FloatArray:
        """Product of the transposed root and values (N, R)."""
        return np.concatenate([self.psi.T @ values, np.sqrt(self.noise) * values])

    def raw(self, values: FloatArray) -> FloatArray:
        """Raw coordinates of least norm whose product with the root is values (N, R)."""
        return self.root_transposed(self.solve(values))

    def solve(self, values: FloatArray) -> FloatArray:
        """M times values, (N, R)."""
        return (values - self.theta @ (self.theta.T @ values)) / self.noise

    def blocks(self, index: IntArray) -> FloatArray:
        """Square blocks M_II for sets of samples, (B, L) -> (B, L, L)."""
        theta = self.theta[index]
        return (np.eye(index.shape[1]) - theta @ theta.mT) / self.noise

    def diagonal(self) -> FloatArray:
        """Diagonal of M, (N,)."""
        return (1.0 - (self.theta**2).sum(axis=1)) / self.noise

    def features(self, kernel: FloatArray) -> FloatArray:
        """Nyström features and the constant, (M, m) -> (M, P)."""
        return _nystroem(kernel, self.centre_factor, self.mean_variance)

    def weights(self, values: FloatArray) -> FloatArray:
        """Coefficients of the features in the mean, given centred latent coordinates, (P, R)."""
        return cho_solve((self.inner, True), self.psi.T @ values)

    def kernel_weights(self, weights: FloatArray) -> FloatArray:
        """Coefficients of the kernels at the centres, (P, R) -> (m, R)."""
        return solve_triangular(self.centre_factor, weights[:-1], lower=True, trans="T")

    def variance(self, features: FloatArray) -> FloatArray:
        """Predictive variance of new samples, without the scale, (M, P) -> (M,)."""
        half = solve_triangular(self.inner, features.T, lower=True)
        return self._residual_variance(features) + self.noise * (half**2).sum(axis=0)

    def left_out_variance(self) -> FloatArray:
        """Predictive variance of each training sample given the others, (N,)."""
        return 1.0 / self.diagonal() - self.noise + self._residual_variance(self.psi)

    def _residual_variance(self, features: FloatArray) -> FloatArray:
        """1 + omega + lambda minus psi psi', at least lambda."""
        left = 1.0 + self.mean_variance + self.noise - (features**2).sum(axis=1)
        return np.maximum(left, self.noise)


def make_mapping(
    X: FloatArray,
    mean_weights: FloatArray,
    centres: FloatArray | None = None,
    *,
    width: float,
    noise: float,
    mean_variance: float,
) -> MappingPrior:
    """Prior on samples (N, D) with kernels at all of them or at centres (m, D); width is g."""
    decay = width / (2.0 * median_distance(X))
    places = X if centres is None else centres
    common: dict[str, Any] = {
        "decay": decay,
        "mean_variance": mean_variance,
        "noise": noise,
        "mean_weights": mean_weights,
        "centres": places,
    }
    cov = np.exp(-decay * squared_distances(places))
    diagonal = np.diag_indices_from(cov)
    if centres is None:
        cov += mean_variance
        cov[diagonal] += noise
        return DenseMapping(factor=cholesky(cov, name="covariance of the mapping"), **common)
    cov[diagonal] += CENTRE_JITTER
    centre_factor = cholesky(cov, name="kernel of the centres")
    kernel = np.exp(-decay * squared_distances(X, centres))
    psi = _nystroem(kernel, centre_factor, mean_variance)
    gram = psi.T @ psi
    gram[np.diag_indices_from(gram)] += noise
    inner = cholesky(gram, name="inner matrix of the mapping")
    theta = np.ascontiguousarray(solve_triangular(inner, psi.T, lower=True).T)
    return LowRankMapping(centre_factor=centre_factor, psi=psi, inner=inner, theta=theta, **common)


def _nystroem(kernel: FloatArray, factor: FloatArray, mean_variance: float) -> FloatArray:
    """Nyström features from kernels at the centres (N, m), and the constant, (N, m + 1)."""
    psi = solve_triangular(factor, kernel.T, lower=True).T
    return np.column_stack([psi, np.full(len(kernel), np.sqrt(mean_variance))])


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEmbedder:
    r"""Embedding by the back-constraint, Eqs. (17)-(18) of the paper, in closed form.

    .. math::
        x(y) \sim N\!\left(m + k_b(y)^\top M (X - 1 m^\top),\;
        s^2 (1 + \omega + \lambda - k_b(y)^\top M k_b(y))\, I\right), \qquad m = X^\top c

    ``weights`` (P, R) are coefficients of the features of the mapping, and ``scale`` is s**2.
    Without the scale, ``typical_variance`` is the mean variance of left-out latent coordinates, and
    ``left_out_variance`` (N,) are those of all training samples, by default each without itself.
    """

    prior: MappingPrior
    mean: FloatArray
    weights: FloatArray
    scale: float = 1.0
    typical_variance: float = 1.0
    left_out_variance: FloatArray | None = None

    @classmethod
    def of(cls, prior: MappingPrior, latent: FloatArray, **more: Any) -> "MappingEmbedder":
        """Condition the mapping on the latent coordinates of the training samples, (N, R)."""
        mean = prior.mean_weights @ latent
        return cls(prior=prior, mean=mean, weights=prior.weights(latent - mean), **more)

    def _features(self, X: FloatArray) -> FloatArray:
        """Features of the mapping, (M, P)."""
        return self.prior.features(self.prior.kernel(X))

    def _moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (M, R), and variances (M,) without the scale."""
        features = self._features(X)
        return self.mean + features @ self.weights, self.prior.variance(features)

    def latent(self, X: FloatArray) -> FloatArray:
        """Means of the latent coordinates of samples (M, D), (M, R)."""
        return self.mean + self._features(X) @ self.weights

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
        return self._relative(self.prior.variance(self._features(X)))

    def out_of_range_left_out(self) -> FloatArray:
        """Relative variance of each training sample given the others, (N,)."""
        variance = self.left_out_variance
        return self._relative(self.prior.left_out_variance() if variance is None else variance)

    def _relative(self, variance: FloatArray) -> FloatArray:
        far = self.prior.features(np.zeros((1, len(self.prior.centres))))
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
        factors = prior.kernel_weights(self.weights).T
        places = prior.centres
        total, square = np.zeros((2, len(factors), len(effects)))
        size = max(1, CHUNK_NUMBERS // max(len(effects), len(places)))
        for start in range(0, n, size):
            chunk = X[start : start + size]
            kernel = prior.kernel(chunk)[:, None] * factors  # (M, R, m)
            moved = kernel.sum(axis=2, keepdims=True) * chunk[:, None] - kernel @ places
            gradient = -2.0 * prior.decay * moved @ effects.T  # (M, R, D)
            total += gradient.sum(axis=0)
            square += (gradient**2).sum(axis=0)
        mean = total / n
        share = square.sum(axis=0)
        sd = np.sqrt(np.maximum(square / n - mean**2, 0.0))
        return mean.T, sd.T, share / (share.sum() or 1.0)
