"""Variational factors of any model: moments, entropies and expected log densities."""

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln

from bsdr_models.arrays import FloatArray

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Independent Gammas, density proportional to x**(shape - 1) exp(-rate x).

    shape, rate
        Arrays of one common shape; rate in units of 1 / x.
    """

    shape: FloatArray
    rate: FloatArray

    @property
    def mean(self) -> FloatArray:
        """E[x]."""
        return self.shape / self.rate

    @property
    def mean_log(self) -> FloatArray:
        """E[log x]."""
        return digamma(self.shape) - np.log(self.rate)

    def entropy(self) -> float:
        """Entropy in nats, summed over the entries."""
        return float(self._entropies().sum())

    def _entropies(self) -> FloatArray:
        a = self.shape
        found: FloatArray = a - np.log(self.rate) + gammaln(a) + (1.0 - a) * digamma(a)
        return found

    def expected_log_prior(self, shape: float, rate: float) -> float:
        """E[log Gamma(x; shape, rate)], summed over the entries."""
        each = (shape - 1.0) * self.mean_log - rate * self.mean
        return float(each.sum()) + each.size * (shape * np.log(rate) - float(gammaln(shape)))

    def negative_divergence(self, shape: float, rate: float) -> FloatArray:
        """E[log Gamma(x; shape, rate)] plus entropy of every entry: minus KL from the prior."""
        log_x = self.mean_log
        prior = (shape - 1.0) * log_x - rate * self.mean + shape * np.log(rate) - gammaln(shape)
        found: FloatArray = prior + self._entropies()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalRows:
    """One normal per row (sample), all with the same covariance.

    mean
        (N, R).
    cov
        (R, R).
    log_det
        log |cov|.
    """

    mean: FloatArray
    cov: FloatArray
    log_det: float

    @property
    def row_entropy(self) -> float:
        """Entropy of every row in nats."""
        return 0.5 * (self.mean.shape[1] * (LOG_2PI + 1.0) + self.log_det)

    def entropy(self) -> float:
        """Entropy in nats, summed over the rows."""
        return self.mean.shape[0] * self.row_entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalColumns:
    """One normal per column, each with its own full covariance.

    mean
        (P, K).
    cov
        (K, P, P).
    log_det
        (K,), log |cov_k|.
    """

    mean: FloatArray
    cov: FloatArray
    log_det: FloatArray

    @property
    def variance(self) -> FloatArray:
        """Marginal variances, (P, K)."""
        return np.einsum("kpp->pk", self.cov)

    def entropy(self) -> float:
        """Entropy in nats, summed over the columns."""
        p, k = self.mean.shape
        return 0.5 * (k * p * (LOG_2PI + 1.0) + float(self.log_det.sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeColumns:
    """Summaries of one normal per column, of covariance S_s = (diag phi_s + X'X / v)^-1.

    Updates and the bound need only these, so no (R, D, D) array is stored.

    mean
        (D, R).
    variance
        (D, R), the diagonals of S_s.
    log_det
        (R,), log |S_s|.
    gram_trace
        (R,), tr(X'X S_s).
    fitted
        (N, R), X @ mean.
    """

    mean: FloatArray
    variance: FloatArray
    log_det: FloatArray
    gram_trace: FloatArray
    fitted: FloatArray

    def entropy(self) -> float:
        """Entropy in nats, summed over the columns."""
        d, r = self.mean.shape
        return 0.5 * (d * r * (LOG_2PI + 1.0) + float(self.log_det.sum()))

    @property
    def mean_square(self) -> FloatArray:
        """E[q**2], (D, R)."""
        return self.mean**2 + self.variance
