"""Variational factors of any model: moments, entropies and divergences from priors."""

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln

from bsdr_models.numerics.arrays import FloatArray

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Independent Gammas, density proportional to x**(shape - 1) exp(-rate x), of any shape."""

    shape: FloatArray
    rate: FloatArray

    @property
    def mean(self) -> FloatArray:
        """Mean of the Gamma, E[x]."""
        return self.shape / self.rate

    @property
    def mean_log(self) -> FloatArray:
        """Mean of its logarithm, E[log x]."""
        return digamma(self.shape) - np.log(self.rate)

    def negative_divergence(
        self, shape: float | FloatArray, rate: float | FloatArray
    ) -> FloatArray:
        """E[log Gamma(x; shape, rate)] plus entropy of every entry: minus KL from the prior."""
        a = self.shape
        log_x = self.mean_log
        prior = (shape - 1.0) * log_x - rate * self.mean + shape * np.log(rate) - gammaln(shape)
        entropy = a - np.log(self.rate) + gammaln(a) + (1.0 - a) * digamma(a)
        return np.asarray(prior + entropy)
