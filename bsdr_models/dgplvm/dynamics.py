r"""Dynamical prior of the latent coordinates of sequences, Eqs. (19) and (20) of [1]_.

Every component of the next latent coordinates is a Gaussian process of the present ones, with zero
mean and a common kernel, for T transitions from the rows of :math:`X_{in}` to those of
:math:`X_{out}`:

.. math::
    k(x_i, x_j) = s \exp(-|x_i - x_j|^2 / 2 l^2) + m\, x_i^\top x_j + q\, \delta_{ij}, \qquad
    L_d = \tfrac{R}{2} \ln|K_X| + \tfrac12 tr(K_X^{-1} X_{out} X_{out}^\top)
        + \tfrac{T R}{2} \ln 2\pi .

All sequences share the function. Given their first samples, exp(-L_d) is a proper density of the
others: the product over time of predictive densities given earlier transitions.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. ICML.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, lapack

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.priors import LogNormal
from bsdr_models.numerics.kernels import rbf, rbf_gradient
from bsdr_models.numerics.linalg import factorise_inplace

_LN_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicsPriors:
    """Priors of the kernel of the dynamics, for latent coordinates of unit variance.

    The linear part has a variance m of about 1, for the identity has coefficients 1; if nothing
    else constrains the latent coordinates, the mode has q near its lower bound.
    """

    signal_variance: LogNormal = field(default=LogNormal(0.3, 1.0))
    lengthscale: LogNormal = field(default=LogNormal(1.0, 0.5))
    linear_variance: LogNormal = field(default=LogNormal(1.0, 1.0))
    noise_variance: LogNormal = field(default=LogNormal(0.1, 1.0))

    @property
    def kernel(self) -> tuple[LogNormal, LogNormal, LogNormal, LogNormal]:
        """Signal variance, length-scale, linear variance, noise variance."""
        return self.signal_variance, self.lengthscale, self.linear_variance, self.noise_variance

    @property
    def log_median(self) -> FloatArray:
        """Initial values of the log parameters, (4,)."""
        return np.array([prior.log_median for prior in self.kernel])

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of the log parameters, (4,) each."""
        low, high = np.array([prior.bounds for prior in self.kernel]).T
        return low, high

    def negative_log_density(self, log_parameters: FloatArray) -> tuple[float, FloatArray]:
        """Negative log density of the log parameters (4,), in nats, and its gradient (4,)."""
        parts = [
            prior.negative_log_density(t)
            for prior, t in zip(self.kernel, log_parameters, strict=True)
        ]
        values, slopes = zip(*parts, strict=True)
        return math.fsum(values), np.array(slopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicsEvaluation:
    """L_d and its gradients in latent coordinates (N, R) and log s, l, m and q, (4,)."""

    value: float
    latent: FloatArray
    log_parameters: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamics:
    """Transitions between N samples, by the indices of consecutive ones, (T,) each."""

    before: IntArray
    after: IntArray
    n_samples: int

    @classmethod
    def of(cls, sequence: ArrayLike) -> "Dynamics":
        """From the name or number (N,) of the sequence of each sample.

        Samples of one sequence are in order of time; sequences may be interleaved.
        """
        names = np.asarray(sequence)
        if names.ndim != 1:
            raise ValueError(f"sequence must have shape (N,), got {names.shape}")
        index = np.unique(names, return_inverse=True)[1]
        order = np.argsort(index, kind="stable")
        follows = index[order[1:]] == index[order[:-1]]
        if not follows.any():
            raise ValueError("no sequence has two samples: there is no transition")
        return cls(before=order[:-1][follows], after=order[1:][follows], n_samples=len(names))

    def evaluate(self, latent: FloatArray, log_parameters: FloatArray) -> DynamicsEvaluation:
        r"""L_d and its gradients at latent coordinates (N, R) and log s, l, m and q, (4,).

        With :math:`A = K_X^{-1} X_{out}` the gradient with respect to :math:`K_X` is
        :math:`G = (R K_X^{-1} - A A^\top) / 2`, and that with respect to :math:`X_{out}` is A.
        """
        _, lengthscale, linear, noise = np.exp(log_parameters)
        start, end = latent[self.before], latent[self.after]  # X_in, X_out, (T, R)
        n, r = end.shape
        smooth, factor, log_det = _factorise(start, log_parameters)
        half = blas.dtrsm(1.0, factor, end, lower=1)
        value = 0.5 * r * (log_det + n * _LN_2PI) + 0.5 * float(np.vdot(half, half))
        A = blas.dtrsm(1.0, factor, half, lower=1, trans_a=1)
        inverse, info = lapack.dpotri(factor, lower=1, overwrite_c=1)
        if info != 0:
            raise np.linalg.LinAlgError("kernel matrix of the dynamics has no inverse")
        G = blas.dsyrk(-0.5, A, beta=0.5 * r, c=inverse, lower=1, overwrite_c=1)

        by_smooth, by_input = rbf_gradient(start, smooth, lengthscale, G)
        by_scale = -float(np.vdot(by_input, start))  # the smooth part depends on start / l
        m_G_X = linear * blas.dsymm(1.0, G, start, lower=1)
        gradient = np.zeros(latent.shape)
        gradient[self.after] += A
        gradient[self.before] += by_input + 2.0 * m_G_X
        slopes = [by_smooth, by_scale, float(np.vdot(m_G_X, start)), noise * np.trace(G)]
        return DynamicsEvaluation(value=value, latent=gradient, log_parameters=np.array(slopes))

    def predictor(self, latent: FloatArray, log_parameters: FloatArray) -> "Predictor":
        """Predictor of transitions, given the latent coordinates (N, R) of the samples."""
        start = latent[self.before]
        _, factor, _ = _factorise(start, log_parameters)
        half = blas.dtrsm(1.0, factor, latent[self.after], lower=1)
        return Predictor(
            start=start,
            coefficients=blas.dtrsm(1.0, factor, half, lower=1, trans_a=1),
            factor=factor,
            log_parameters=log_parameters,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """Predictive distribution of the next latent coordinates.

    ``start`` (T, R) is X_in, ``coefficients`` (T, R) K_X^-1 X_out, ``factor`` (T, T) the lower
    Cholesky factor of K_X, and ``log_parameters`` (4,) are those of :class:`Dynamics`.
    """

    start: FloatArray
    coefficients: FloatArray
    factor: FloatArray
    log_parameters: FloatArray

    def predict(self, latent_in: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (M, R) and variance (M,) of what follows latent coordinates (M, R)."""
        signal, lengthscale, linear, noise = np.exp(self.log_parameters)
        cross = rbf(self.start, latent_in, lengthscale, signal)  # (T, M)
        cross += linear * self.start @ latent_in.T
        half = blas.dtrsm(1.0, self.factor, cross, lower=1)
        own = signal + linear * np.einsum("mr,mr->m", latent_in, latent_in)
        explained = np.einsum("tm,tm->m", half, half)
        return cross.T @ self.coefficients, np.maximum(own - explained, 0.0) + noise


def _factorise(
    start: FloatArray, log_parameters: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Smooth part of K_X for inputs (T, R), lower Cholesky factor of K_X, and ln|K_X|."""
    signal, lengthscale, linear, noise = np.exp(log_parameters)
    smooth = rbf(start, None, lengthscale, signal)
    K = (smooth + linear * start @ start.T).T  # in Fortran order
    K[np.diag_indices_from(K)] += noise
    factor, log_det = factorise_inplace(K, name="kernel matrix of the dynamics")
    return smooth, factor, log_det
