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

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from bsdr_models.numerics.kernels import squared_distances
from bsdr_models.typing import FloatArray

_LN_2PI = float(np.log(2.0 * np.pi))
# Directions of the rows with less than this share of the largest sum of squares, per row, are
# rounding of products.
_RANK_TOL = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
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
    def of(cls, X: FloatArray) -> "Rows":
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
        n_rows, n_features = X.shape
        if n_rows < 2:
            raise ValueError(f"a density over latent positions needs two rows, got {n_rows}")
        wide = n_features >= n_rows
        size, axes = np.linalg.eigh(X @ X.T if wide else X.T @ X)
        total = float(size.sum())
        if not total > 0.0:
            raise ValueError("all rows are equal")
        kept = size > _RANK_TOL * n_rows * size[-1]
        axes = axes[:, kept]
        return cls(
            root=np.asfortranarray(axes * np.sqrt(size[kept]) if wide else X @ axes),
            total=total,
            variance=total / ((n_rows - 1) * n_features),
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


def evaluate(latent: FloatArray, log_kernel: FloatArray, rows: Rows) -> Evaluation:
    """Density with the means of the features integrated out.

    Parameters
    ----------
    latent : (N, R)
    log_kernel : (3,)
        Logs of signal a and noise b, both in units of the variance of the features, around the log
        of the length-scale l: (a, l, b).
    rows : Rows

    Raises
    ------
    numpy.linalg.LinAlgError
        If the kernel matrix is not positive definite in floating point.
    """
    signal, lengthscale, noise = np.exp(log_kernel)
    signal, noise = signal * rows.variance, noise * rows.variance
    n, d = len(latent), rows.n_features
    distances = squared_distances(latent)
    R = signal * np.exp(-0.5 / lengthscale**2 * distances)
    factor, log_det = _factorise(R + noise * np.eye(n))
    ones = lapack.dpotrs(factor, np.ones(n), lower=1)[0]  # K^-1 1
    weight = ones.sum()
    W = lapack.dpotrs(factor, rows.root, lower=1)[0]
    W -= np.outer(ones, ones @ rows.root) / weight  # P root
    inverse = lapack.dpotri(factor, lower=1)[0]
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    G = 0.5 * (d * (inverse - np.outer(ones, ones) / weight) - W @ W.T)
    H = G * R
    gradient = (-2.0 / lengthscale**2) * (H.sum(axis=1)[:, None] * latent - H @ latent)
    value = 0.5 * d * (log_det + np.log(weight / n) + (n - 1) * _LN_2PI)
    value += 0.5 * float(np.sum(rows.root * W))
    return Evaluation(
        value=value,
        latent=gradient,
        log_kernel=np.array([H.sum(), -np.sum(gradient * latent), noise * np.trace(G)]),
    )


def evaluate_paper(latent: FloatArray, log_theta: FloatArray, rows: Rows) -> Evaluation:
    """Eq. (8) of the paper with its constant, under the kernel (5); the mean is zero.

    The noise is on the diagonal, also where two positions coincide. The prior of theta is not
    included.

    Parameters
    ----------
    latent : (N, R)
    log_theta : (4,)
        Logs of output variance, inverse squared width, bias and inverse noise variance.
    rows : Rows
        Its ``variance`` is not used.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the kernel matrix is not positive definite in floating point.
    """
    signal, precision, bias, noise_precision = np.exp(log_theta)
    n, d = len(latent), rows.n_features
    R = signal * np.exp(-0.5 * precision * squared_distances(latent))
    factor, log_det = _factorise(R + bias + np.eye(n) / noise_precision)
    W = lapack.dpotrs(factor, rows.root, lower=1)[0]
    inverse = lapack.dpotri(factor, lower=1)[0]
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    G = 0.5 * (d * inverse - W @ W.T)
    H = G * R
    gradient = -2.0 * precision * (H.sum(axis=1)[:, None] * latent - H @ latent)
    value = 0.5 * d * (log_det + n * _LN_2PI) + 0.5 * float(np.sum(rows.root * W))
    slopes = [H.sum(), 0.5 * np.sum(gradient * latent), bias * G.sum()]
    slopes.append(-np.trace(G) / noise_precision)
    return Evaluation(value=value, latent=gradient, log_kernel=np.array(slopes))


def _factorise(K: FloatArray) -> tuple[FloatArray, float]:
    factor, info = lapack.dpotrf(K, lower=1, clean=0)
    if info != 0:
        raise np.linalg.LinAlgError("the kernel matrix is not positive definite")
    return factor, 2.0 * float(np.log(np.diagonal(factor)).sum())
