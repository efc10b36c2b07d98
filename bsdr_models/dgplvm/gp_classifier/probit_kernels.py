"""Kernels of the latent functions of a classifier in the latent space.

Both have a smooth part and a variance independent between samples, which samples with equal latent
coordinates do not share.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.kernels import squared_distances

# Default independent variance; it keeps kernel matrices positive definite.
NUGGET = 1e-6


class Kernel(Protocol):
    """Covariance function of latent coordinates with R components."""

    @property
    def own_variance(self) -> float:
        """Variance independent between samples."""

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Covariances of different samples, (M, R) and (N, R) -> (M, N)."""

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Variances of samples, (M, R) -> (M,), with ``own_variance``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothLinearKernel:
    r"""A smooth and a linear part, of coordinates in units of the distance between classes.

    .. math::
        k(u, u') = e^{t_0} \exp(-|u - u'|^2 / 2 e^{2 t_1}) + e^{t_2} u^\top u'

    centre
        Mean of the class centroids, (R,).
    scale
        Root mean square distance of the class centroids from it.
    log_values
        t, (3,): logs of the smooth variance, the length-scale and the linear variance.
    """

    centre: FloatArray
    scale: float
    log_values: FloatArray

    @property
    def own_variance(self) -> float:
        """A millionth."""
        return NUGGET

    def inputs(self, latent: FloatArray) -> FloatArray:
        """u, (N, R)."""
        return (latent - self.centre) / self.scale

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Covariances of different samples, (M, N)."""
        a, b = self.inputs(new), self.inputs(latent)
        signal, lengthscale, linear = np.exp(self.log_values)
        covariance = squared_distances(a, b)
        covariance /= -2.0 * lengthscale**2
        np.exp(covariance, out=covariance)
        covariance *= signal
        covariance += linear * (a @ b.T)
        return covariance

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Variances of samples, (M,)."""
        u = self.inputs(new)
        signal, _, linear = np.exp(self.log_values)
        return np.asarray(signal + NUGGET + linear * np.einsum("mr,mr->m", u, u))


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothBiasKernel:
    """A smooth part, a constant and noise: the kernel of features given latent coordinates.

    signal_variance
    lengthscale
    bias_variance
    noise_variance
        Independent between samples.
    """

    signal_variance: float
    lengthscale: float
    bias_variance: float
    noise_variance: float

    @property
    def own_variance(self) -> float:
        """Noise variance plus a millionth."""
        return self.noise_variance + NUGGET

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Covariances of different samples, (M, N)."""
        exponents = squared_distances(new, latent) / (-2.0 * self.lengthscale**2)
        return np.asarray(self.signal_variance * np.exp(exponents) + self.bias_variance)

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Variances of samples, (M,)."""
        return np.full(len(new), self.signal_variance + self.bias_variance + self.own_variance)
