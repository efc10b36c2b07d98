"""Kernels of the latent functions of a classifier in the latent space.

Both have a smooth part and a variance independent between samples, which samples with equal latent
coordinates do not share.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.kernels import squared_distances

# Default independent variance; it keeps kernel matrices positive definite.
NUGGET = 1e-6


# Covariance function of latent coordinates.
type Kernel = SmoothLinearKernel | SmoothBiasKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothLinearKernel:
    r"""A smooth and a linear part, of coordinates in units of the distance between classes.

    .. math::
        k(u, u') = e^{t_0} \exp(-|u - u'|^2 / 2 e^{2 t_1}) + e^{t_2} u^\top u'

    The centre (R,) is the mean of the class centroids, the scale their root mean square distance
    from it; ``log_values`` is t.
    """

    centre: FloatArray
    scale: float
    log_values: FloatArray

    @property
    def own_variance(self) -> float:
        """Variance independent between samples, which keeps kernel matrices positive definite."""
        return NUGGET

    def inputs(self, latent: FloatArray) -> FloatArray:
        """Centred and scaled coordinates u, (N, R)."""
        return (latent - self.centre) / self.scale

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Covariances of different samples, (M, R) and (N, R) -> (M, N)."""
        a, b = self.inputs(new), self.inputs(latent)
        signal, lengthscale, linear = np.exp(self.log_values)
        covariance = squared_distances(a, b)
        covariance /= -2.0 * lengthscale**2
        np.exp(covariance, out=covariance)
        covariance *= signal
        covariance += linear * (a @ b.T)
        return covariance

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Variances of samples (M, R), with ``own_variance``, (M,)."""
        u = self.inputs(new)
        signal, _, linear = np.exp(self.log_values)
        return np.asarray(signal + NUGGET + linear * np.einsum("mr,mr->m", u, u))


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothBiasKernel:
    """A smooth part, a constant and noise: the kernel of features given latent coordinates."""

    signal_variance: float
    lengthscale: float
    bias_variance: float
    noise_variance: float

    @property
    def own_variance(self) -> float:
        """Variance independent between samples, the noise among it."""
        return self.noise_variance + NUGGET

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Covariances of different samples, (M, R) and (N, R) -> (M, N)."""
        exponents = squared_distances(new, latent) / (-2.0 * self.lengthscale**2)
        return np.asarray(self.signal_variance * np.exp(exponents) + self.bias_variance)

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Variances of samples (M, R), with ``own_variance``, (M,)."""
        return np.full(len(new), self.signal_variance + self.bias_variance + self.own_variance)
