r"""Dynamical prior of positions that come in sequences: the next one is a function of this one.

Eqs. (19) and (20) of [1]_, after [2]_. Every component of the next position is a Gaussian process
of the whole present position, with zero mean and one kernel for all,

.. math::
    k(x_i, x_j) = s \exp(-|x_i - x_j|^2 / 2 l^2) + m\, x_i^\top x_j + q\, \delta_{ij} .

With T transitions from the rows of :math:`X_{in}` to those of :math:`X_{out}`

.. math::
    L_d = \tfrac{R}{2} \ln|K_X| + \tfrac12 tr(K_X^{-1} X_{out} X_{out}^\top)
        + \tfrac{T R}{2} \ln 2\pi .

Noise belongs to a transition (:math:`\delta_{ij}` is by index), also where two of them begin at
the same position. All sequences share the function; the first row of each has no predecessor, and
this prior says nothing of where it is. Given those first rows, exp(-L_d) is a proper density of
the others although their positions also stand in :math:`K_X`: it is the product over time of what
the transitions so far predict of the next position.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. ICML.
.. [2] J. Wang, D. Fleet, A. Hertzmann (2005). Gaussian process dynamical models. NIPS.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, lapack

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.priors import LogNormal
from bsdr_models.numerics.kernels import rbf, rbf_slopes, rbf_triangle
from bsdr_models.numerics.linalg import factorise_inplace

_LN_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicsPriors:
    """Priors of the kernel of the dynamics, for positions of unit variance along every axis.

    Parameters
    ----------
    signal_variance : LogNormal
        s: variance of the smooth part of the next position.
    lengthscale : LogNormal
        l.
    linear_variance : LogNormal
        m: variance of the coefficients of a linear map from this position to the next. About 1:
        staying where one is has coefficients 1.
    noise_variance : LogNormal
        q: variance of a step that the present position does not explain. Latent coordinates that nothing
        else holds give way to the dynamics, and a mode then has q near its lowest value.

    Raises
    ------
    ValueError
        If one of them is not a LogNormal.
    """

    signal_variance: LogNormal = field(default=LogNormal(0.3, 1.0))
    lengthscale: LogNormal = field(default=LogNormal(1.0, 0.5))
    linear_variance: LogNormal = field(default=LogNormal(1.0, 1.0))
    noise_variance: LogNormal = field(default=LogNormal(0.1, 1.0))

    def __post_init__(self) -> None:
        for name in (part.name for part in fields(self)):
            value = getattr(self, name)
            if not isinstance(value, LogNormal):
                raise ValueError(f"{name} must be a LogNormal, got {value!r}")

    @property
    def kernel(self) -> tuple[LogNormal, LogNormal, LogNormal, LogNormal]:
        """Signal variance, length-scale, linear variance, noise variance."""
        return self.signal_variance, self.lengthscale, self.linear_variance, self.noise_variance

    @property
    def log_median(self) -> FloatArray:
        """Logarithms to start from, (4,)."""
        return np.array([prior.log_median for prior in self.kernel])

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest logarithms of a mode, (4,) each."""
        low, high = np.array([prior.bounds for prior in self.kernel]).T
        return low, high

    def negative_log_density(self, log_parameters: FloatArray) -> tuple[float, FloatArray]:
        """Of the logarithms (4,), in nats, and its gradient (4,)."""
        parts = [
            prior.negative_log_density(t)
            for prior, t in zip(self.kernel, log_parameters, strict=True)
        ]
        values, slopes = zip(*parts, strict=True)
        return math.fsum(values), np.array(slopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicsEvaluation:
    """L_d and its gradients.

    value
        In nats, all constants included; the priors of the parameters are not.
    latent
        Gradient by the positions, (N, R).
    log_parameters
        Gradient by the logarithms of s, l, m and q, (4,).
    """

    value: float
    latent: FloatArray
    log_parameters: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Dynamics:
    """Which row follows which.

    before, after
        Rows between which there is a transition, (T,) each.
    n_samples
        N.
    """

    before: IntArray
    after: IntArray
    n_samples: int

    @classmethod
    def of(cls, sequence: ArrayLike) -> "Dynamics":
        """From the sequence each row belongs to.

        Parameters
        ----------
        sequence : (N,)
            Names or numbers. Rows of one sequence are in the order of time; rows of others may
            stand between them.

        Raises
        ------
        ValueError
            If the shape is wrong, or no sequence has two rows.
        """
        names = np.asarray(sequence)
        if names.ndim != 1:
            raise ValueError(f"sequence must have shape (N,), got {names.shape}")
        index = np.unique(names, return_inverse=True)[1]
        order = np.argsort(index, kind="stable")
        follows = index[order[1:]] == index[order[:-1]]
        if not follows.any():
            raise ValueError("no sequence has two rows: there is no transition")
        return cls(before=order[:-1][follows], after=order[1:][follows], n_samples=len(names))

    def evaluate(self, latent: FloatArray, log_parameters: FloatArray) -> DynamicsEvaluation:
        r"""L_d and its gradients.

        With :math:`A = K_X^{-1} X_{out}` and :math:`G = (R K_X^{-1} - A A^\top) / 2`, the slope
        along :math:`K_X`, positions get :math:`A` as what comes out, and the slopes of the
        kernel weighed by G as what goes in.

        Parameters
        ----------
        latent : (N, R)
        log_parameters : (4,)
            Logarithms of s, l, m and q.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the kernel matrix is not positive definite in floating point.
        """
        signal, lengthscale, linear, noise = np.exp(log_parameters)
        start, end = latent[self.before], latent[self.after]  # X_in, X_out, (T, R)
        n, r = end.shape
        factor, log_det = factorise_inplace(
            _kernel_triangle(start, log_parameters), name="kernel matrix of the dynamics"
        )
        half = blas.dtrsm(1.0, factor, end, lower=1)
        value = 0.5 * r * (log_det + n * _LN_2PI) + 0.5 * float(np.vdot(half, half))
        A = blas.dtrsm(1.0, factor, half, lower=1, trans_a=1)
        inverse, info = lapack.dpotri(factor, lower=1, overwrite_c=1)
        if info != 0:
            raise np.linalg.LinAlgError("kernel matrix of the dynamics has no inverse")
        G = blas.dsyrk(-0.5, A, beta=0.5 * r, c=inverse, lower=1, overwrite_c=1)

        by_smooth, into = rbf_slopes(start, lengthscale, signal, G)
        by_scale = -float(np.vdot(into, start))  # only distances over l matter
        weighed = linear * blas.dsymm(1.0, G, start, lower=1)  # m G X_in
        gradient = np.zeros(latent.shape)
        gradient[self.after] += A
        gradient[self.before] += into + 2.0 * weighed
        slopes = [by_smooth, by_scale, float(np.vdot(weighed, start)), noise * np.trace(G)]
        return DynamicsEvaluation(value=value, latent=gradient, log_parameters=np.array(slopes))

    def penalty(
        self, log_parameters: FloatArray
    ) -> Callable[[FloatArray], tuple[float, FloatArray]]:
        """L_d as a function of the positions alone, (N, R) to its value and gradient."""

        def of_positions(latent: FloatArray) -> tuple[float, FloatArray]:
            found = self.evaluate(latent, log_parameters)
            return found.value, found.latent

        return of_positions

    def predictor(self, latent: FloatArray, log_parameters: FloatArray) -> "Predictor":
        """What comes next after any position, given the transitions between these, (N, R)."""
        start = latent[self.before]
        factor, _ = factorise_inplace(
            _kernel_triangle(start, log_parameters), name="kernel matrix of the dynamics"
        )
        half = blas.dtrsm(1.0, factor, latent[self.after], lower=1)
        return Predictor(
            start=start,
            coefficients=blas.dtrsm(1.0, factor, half, lower=1, trans_a=1),
            factor=factor,
            log_parameters=log_parameters,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictor:
    """Distribution of the next position.

    start
        X_in, (T, R).
    coefficients
        K_X^-1 X_out, (T, R).
    factor
        Lower Cholesky factor of K_X, (T, T).
    log_parameters
        Logarithms of s, l, m and q, (4,).
    """

    start: FloatArray
    coefficients: FloatArray
    factor: FloatArray
    log_parameters: FloatArray

    def predict(self, latent_in: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the position that follows each of these.

        Parameters
        ----------
        latent_in : (M, R)

        Returns
        -------
        mean : (M, R)
        variance : (M,)
            Of every component, the noise of the step included.
        """
        signal, lengthscale, linear, noise = np.exp(self.log_parameters)
        cross = rbf(self.start, latent_in, lengthscale, signal)  # (T, M)
        cross += linear * self.start @ latent_in.T
        half = blas.dtrsm(1.0, self.factor, cross, lower=1)
        own = signal + linear * np.einsum("mr,mr->m", latent_in, latent_in)
        explained = np.einsum("tm,tm->m", half, half)
        return cross.T @ self.coefficients, np.maximum(own - explained, 0.0) + noise


def _kernel_triangle(start: FloatArray, log_parameters: FloatArray) -> FloatArray:
    """Lower triangle of K_X over the rows of X_in, in Fortran order."""
    signal, lengthscale, linear, noise = np.exp(log_parameters)
    K = rbf_triangle(start, lengthscale, signal)
    K = blas.dsyrk(linear, start, beta=1.0, c=K, lower=1, overwrite_c=1)
    K.T.reshape(-1)[:: len(K) + 1] += noise
    return K
