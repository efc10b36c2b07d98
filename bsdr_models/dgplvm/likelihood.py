r"""Density of the rows given their latent positions, every feature a Gaussian process.

The features are independent functions of the position, so with the kernel matrix K over the rows
and S = X X' the density depends on D and S only. Two forms are here.

:func:`evaluate` has the kernel

.. math::
    K = v a \exp(-|x_i - x_j|^2 / 2 l^2) + v b I,

v the variance of the features, and integrates the mean of each feature out under a flat prior. That
is the density of any N - 1 orthonormal contrasts of the rows, and it depends on K through
:math:`P = K^{-1} - K^{-1} 1 1' K^{-1} / 1' K^{-1} 1`:

.. math::
    \tfrac{D}{2} [\ln|K| + \ln(1' K^{-1} 1) - \ln N + (N - 1) \ln 2\pi] + \tfrac12 tr(P S).

A centred matrix of features has no energy along 1 while K has a large eigenvalue near it; a zero
mean would make every signal pay for that.

:func:`evaluate_paper` has the kernel (5) and the density (8) of [1]_, in which the mean is zero and
the bias is a hyper-parameter.

Both cost one Cholesky factor, one inverse from it, two triangular solutions for a root of S and one
symmetric product; S is formed once. Values are negative log densities in nats with all constants.

References
----------
.. [1] R. Urtasun and T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. ICML.
"""

import math
import threading
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.kernels import rbf_slopes, rbf_triangle

_LN_2PI = math.log(2.0 * math.pi)
# Entries that stay allocated between evaluations.
_KEPT_ENTRIES = 2**20
_kept = threading.local()
# Directions of the rows with less than this share of the largest sum of squares, per row, are
# rounding of products.
_RANK_TOL = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGram:
    """What the densities need of the features; made once.

    root
        (N, r), Fortran order, with root root' = X X'; r is the rank of X.
    total
        tr(X X').
    variance
        v, of one feature about its mean, averaged over features: total / ((N - 1) D).
    n_features
        D.
    n_effective
        Number of independent features with the same spread of tr(X X'): at most D.
    """

    root: FloatArray
    total: float
    variance: float
    n_features: int
    n_effective: float

    @classmethod
    def of(cls, X: FloatArray) -> "FeatureGram":
        """From centred features.

        Parameters
        ----------
        X : (N, D)
            Its columns have mean zero.

        Raises
        ------
        ValueError
            If there are fewer than two rows or all are equal.
        """
        n_samples, n_features = X.shape
        if n_samples < 2:
            raise ValueError(f"a density over latent positions needs two rows, got {n_samples}")
        wide = n_features >= n_samples
        size, axes = np.linalg.eigh(X @ X.T if wide else X.T @ X)
        total = float(size.sum())
        if not total > 0.0:
            raise ValueError("all rows are equal")
        kept = size > _RANK_TOL * n_samples * size[-1]
        axes = axes[:, kept]
        # Formed as the transpose it is already in Fortran order.
        root = np.asfortranarray(axes * np.sqrt(size[kept])) if wide else (axes.T @ X.T).T
        return cls(
            root=root,
            total=total,
            variance=total / ((n_samples - 1) * n_features),
            n_features=n_features,
            n_effective=min(float(n_features), total**2 / float(size @ size)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A negative log density and its gradients.

    value
        In nats, all constants included.
    latent
        Gradient with respect to the positions, (N, R).
    log_kernel
        Gradient with respect to the logs of the kernel's hyper-parameters.
    """

    value: float
    latent: FloatArray
    log_kernel: FloatArray


def evaluate(latent: FloatArray, log_kernel: FloatArray, gram: FeatureGram) -> Evaluation:
    """Density with the means of the features integrated out.

    Parameters
    ----------
    latent : (N, R)
    log_kernel : (3,)
        Logs of signal a and noise b, both in units of the variance of the features, around the log
        of the length-scale l: (a, l, b).
    gram : FeatureGram

    Raises
    ------
    numpy.linalg.LinAlgError
        If a position is not finite, or the kernel matrix not positive definite in floating point.
    """
    check_latent(latent)
    signal, lengthscale, noise = np.exp(log_kernel)
    signal, noise = signal * gram.variance, noise * gram.variance
    n, d = len(latent), gram.n_features
    K, half = _arrays(n, gram.root.shape[1] + 1)
    rbf_triangle(latent, lengthscale, signal, out=K)
    _diagonal(K)[:] += noise
    factor, log_det = _factorise(K)
    half[:, :-1], half[:, -1] = gram.root, 1.0
    half = blas.dtrsm(1.0, factor, half, lower=1, overwrite_b=1)  # L^-1 [root, 1]
    root, ones = half[:, :-1], half[:, -1]
    weight = ones @ ones  # 1' K^-1 1
    blas.dger(-1.0 / weight, ones, ones @ root, a=root, overwrite_a=1)
    value = 0.5 * d * (log_det + math.log(weight / n) + (n - 1) * _LN_2PI)
    value += 0.5 * _sum_of_squares(root)  # P = L^-T (I - e e') L^-1, e along L^-1 1
    ones *= math.sqrt(d / weight)

    G = _slope(factor, half, d)
    total, gradient = rbf_slopes(latent, lengthscale, signal, G)
    by_scale = -float(np.vdot(gradient, latent))  # only distances over l matter
    slopes = np.array([total, by_scale, noise * _diagonal(G).sum()])
    return Evaluation(value=value, latent=gradient, log_kernel=slopes)


def evaluate_paper(latent: FloatArray, log_theta: FloatArray, gram: FeatureGram) -> Evaluation:
    """Eq. (8) of the paper with its constant, under the kernel (5); the mean is zero.

    The noise is on the diagonal, also where two positions coincide. The prior of theta is not
    included.

    Parameters
    ----------
    latent : (N, R)
    log_theta : (4,)
        Logs of output variance, inverse squared width, bias and inverse noise variance.
    gram : FeatureGram
        Its ``variance`` is not used.

    Raises
    ------
    numpy.linalg.LinAlgError
        If a position is not finite, or the kernel matrix not positive definite in floating point.
    """
    check_latent(latent)
    signal, precision, bias, noise_precision = np.exp(log_theta)
    n, d = len(latent), gram.n_features
    lengthscale, ones = 1.0 / math.sqrt(precision), np.ones(n)
    K = rbf_triangle(latent, lengthscale, signal)
    K = blas.dsyr(bias, ones, lower=1, a=K, overwrite_a=1)
    _diagonal(K)[:] += 1.0 / noise_precision
    factor, log_det = _factorise(K)
    half = blas.dtrsm(1.0, factor, gram.root, lower=1)
    value = 0.5 * d * (log_det + n * _LN_2PI) + 0.5 * _sum_of_squares(half)

    G = _slope(factor, half, d)
    total, gradient = rbf_slopes(latent, lengthscale, signal, G)
    by_precision = 0.5 * float(np.vdot(gradient, latent))
    by_bias = bias * float(ones @ blas.dsymv(1.0, G, ones, lower=1))
    by_noise = -_diagonal(G).sum() / noise_precision
    slopes = np.array([total, by_precision, by_bias, by_noise])
    return Evaluation(value=value, latent=gradient, log_kernel=slopes)


def check_latent(*positions: FloatArray) -> None:
    """Refuse what is not finite: compiled exponentials would not carry it on.

    Raises
    ------
    numpy.linalg.LinAlgError
        What a search takes as a point to step back from.
    """
    if not all(math.isfinite(each.sum()) for each in positions):
        raise np.linalg.LinAlgError("the positions are not finite")


def _arrays(n: int, width: int) -> tuple[FloatArray, FloatArray]:
    """Two arrays, (n, n) and (n, width), in Fortran order, for the length of one evaluation.

    A search asks for the same sizes again and again. Fresh pages from the system would take a
    tenth of the time at a few hundred rows; each thread keeps its own, up to a few megabytes.
    """
    flat: FloatArray | None = getattr(_kept, "flat", None)
    size = n * (n + width)
    if flat is None or flat.size < size:
        flat = np.empty(size)
        if size <= _KEPT_ENTRIES:
            _kept.flat = flat
    square, rest = flat[: n * n], flat[n * n : size]
    return square.reshape(n, n).T, rest.reshape(width, n).T


def _factorise(K: FloatArray) -> tuple[FloatArray, float]:
    """Lower factor in place of K, and ln|K|; the upper triangle is left as it is."""
    factor, info = lapack.dpotrf(K, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError("the kernel matrix is not positive definite")
    return factor, 2.0 * float(np.log(_diagonal(factor)).sum())


def _slope(factor: FloatArray, half: FloatArray, n_features: int) -> FloatArray:
    """G = (D K^-1 - W W') / 2 with W = L^-T half, the slope of the value along K.

    Both arguments are overwritten, the factor by the lower triangle of G.
    """
    W = blas.dtrsm(1.0, factor, half, lower=1, trans_a=1, overwrite_b=1)
    inverse, info = lapack.dpotri(factor, lower=1, overwrite_c=1)
    if info != 0:
        raise np.linalg.LinAlgError("the kernel matrix has no inverse")
    return np.asarray(blas.dsyrk(-0.5, W, beta=0.5 * n_features, c=inverse, lower=1, overwrite_c=1))


def _diagonal(matrix: FloatArray) -> FloatArray:
    """Diagonal of a matrix in Fortran order, as a view that can be written to."""
    return matrix.T.reshape(-1)[:: len(matrix) + 1]


def _sum_of_squares(matrix: FloatArray) -> float:
    """Of a matrix in Fortran order."""
    entries = matrix.T.reshape(-1)
    return float(entries @ entries)
