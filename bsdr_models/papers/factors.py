"""Factors of mean field, and log densities, of the papers' conjugate models."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import digamma, gammaln

from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.factors import LOG_2PI, Gamma
from bsdr_models.numerics.linalg import cholesky

# Up to this order a stack of factors is inverted in one call, faster than solving one by one.
_SMALL = 48


def normal_log_density(deviation: FloatArray, precision: FloatArray) -> FloatArray:
    """Log density of zero-mean normals, sums over all axes but the first, (C,)."""
    each = 0.5 * (np.log(precision) - LOG_2PI) - 0.5 * precision * deviation**2
    return np.asarray(each.reshape(len(each), -1).sum(axis=1))


def gamma_log_density(value: FloatArray, shape: float, rate: float) -> FloatArray:
    """Log density of Gammas, sums over all axes but the first, (C,)."""
    each = (shape - 1.0) * np.log(value) - rate * value + shape * np.log(rate) - gammaln(shape)
    return np.asarray(each.reshape(len(each), -1).sum(axis=1))


def mean_log(q: Gamma) -> FloatArray:
    """E[log x] of every entry."""
    return digamma(q.shape) - np.log(q.rate)


def negative_divergence(
    q: Gamma, shape: float | FloatArray, rate: float | FloatArray
) -> FloatArray:
    """E[log Gamma(x; shape, rate)] plus entropy of every entry: minus KL from the prior."""
    log_x = mean_log(q)
    a = q.shape
    prior = (shape - 1.0) * log_x - rate * q.mean + shape * np.log(rate) - gammaln(shape)
    entropy = a - np.log(q.rate) + gammaln(a) + (1.0 - a) * digamma(a)
    return np.asarray(prior + entropy)


def draw_normal(
    precision: FloatArray, linear: FloatArray, *, name: str, rng: np.random.Generator
) -> FloatArray:
    r"""Independent draws from :math:`N(P^{-1} l, P^{-1})` for P (..., p, p), l (..., p, m)."""
    factor = cholesky(precision, name=name)
    noise = rng.standard_normal(linear.shape)
    if precision.shape[-1] <= _SMALL:
        half = np.linalg.inv(factor)  # P^{-1} = half' half
        return half.mT @ (half @ linear + noise)
    for at in np.ndindex(linear.shape[:-2]):
        noise[at] += solve_triangular(factor[at], linear[at], lower=True, check_finite=False)
        noise[at] = solve_triangular(
            factor[at], noise[at], lower=True, trans="T", check_finite=False
        )
    return noise


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalRows:
    """One normal per row (sample), all with the same covariance."""

    mean: FloatArray  # (N, R)
    cov: FloatArray  # (R, R)
    log_det: float  # log |cov|

    def entropy(self) -> float:
        """Entropy in nats, summed over the rows."""
        n, r = self.mean.shape
        return n * 0.5 * (r * (LOG_2PI + 1.0) + self.log_det)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalColumns:
    """One normal per column, each with its own full covariance."""

    mean: FloatArray  # (P, K)
    cov: FloatArray  # (K, P, P)
    log_det: FloatArray  # (K,), log |cov_k|

    @property
    def variance(self) -> FloatArray:
        """Marginal variances, (P, K)."""
        return np.einsum("kpp->pk", self.cov)

    @property
    def second(self) -> FloatArray:
        """Second moments, (K, P, P)."""
        mean = self.mean.T
        return self.cov + mean[:, :, None] * mean[:, None]

    def entropy(self) -> float:
        """Entropy in nats, summed over the columns."""
        return 0.5 * (self.mean.size * (LOG_2PI + 1.0) + float(self.log_det.sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeColumns:
    """Summaries of one normal per column, of covariance S_s = (diag phi_s + X'X / v)^-1.

    Updates and the bound need only these, so no (R, D, D) array is stored.
    """

    mean: FloatArray  # (D, R)
    variance: FloatArray  # (D, R), the diagonals of S_s
    log_det: FloatArray  # (R,), log |S_s|
    gram_trace: FloatArray  # (R,), tr(X'X S_s)
    fitted: FloatArray  # (N, R), X @ mean

    @property
    def mean_square(self) -> FloatArray:
        """E[q**2], (D, R)."""
        return self.mean**2 + self.variance

    def entropy(self) -> float:
        """Entropy in nats, summed over the columns."""
        return 0.5 * (self.mean.size * (LOG_2PI + 1.0) + float(self.log_det.sum()))
