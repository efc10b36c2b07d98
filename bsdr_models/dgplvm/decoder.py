r"""Decoder: the mean features of the Gaussian process at latent coordinates, the paper's Eq. (15).

With k the kernel between new latent coordinates x and those of the training samples Y,

.. math::
    \mu(x) = m + (Y - 1 m^\top)^\top K^{-1} k(x), \qquad
    m = Y^\top K^{-1} 1 / 1^\top K^{-1} 1,

where m is the estimate of the means of the features under a flat prior, or 0.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve

from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.kernels import rbf
from bsdr_models.numerics.linalg import cholesky


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Training samples at latent coordinates (N, R), ``offset`` (D,) and ``weights`` (N, D).

    The kernel parameters are in the units of the features and of the latent coordinates.
    """

    latent: FloatArray
    lengthscale: float
    offset: FloatArray
    weights: FloatArray

    @classmethod
    def of(
        cls,
        latent: FloatArray,
        features: FloatArray,
        *,
        signal_variance: float,
        lengthscale: float,
        noise_variance: float,
        bias: float = 0.0,
        integrate_mean: bool = True,
    ) -> "Decoder":
        """Condition the Gaussian process on latent coordinates (N, R) and features (N, D).

        Without ``integrate_mean`` features are centred by the caller, as in the paper.
        """
        K = rbf(latent, None, lengthscale, signal_variance) + bias
        K[np.diag_indices_from(K)] += noise_variance
        factor = (cholesky(K, name="kernel matrix"), True)
        mean = np.zeros(features.shape[1])
        if integrate_mean:
            ones = cho_solve(factor, np.ones(len(K)))
            mean = ones @ features / ones.sum()
        weights = cho_solve(factor, features - mean)
        return cls(
            latent=latent,
            lengthscale=float(lengthscale),
            offset=mean + bias * weights.sum(axis=0),
            weights=signal_variance * weights,
        )

    def features(self, latent: FloatArray) -> FloatArray:
        """Mean features (M, D) at latent coordinates (M, R)."""
        return self.offset + rbf(latent, self.latent, self.lengthscale) @ self.weights
