"""Cholesky factors, inverses and log determinants of symmetric positive definite matrices."""

import logging

import numpy as np
from scipy.linalg import lapack

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.compiled import njit

logger = logging.getLogger(__name__)

# Multiples of the mean diagonal added, in turn, to a matrix that fails to factorise.
JITTERS = (1e-12, 1e-10, 1e-8)
# Up to this order compiled loops are faster than LAPACK for a stack of matrices.
_SMALL = 48


def cholesky(matrix: FloatArray, *, name: str = "matrix") -> FloatArray:
    """Lower Cholesky factor of a stack (..., P, P), with jitter if that is needed."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        pass
    eye = np.eye(matrix.shape[-1])
    scale = np.einsum("...ii->...", matrix)[..., None, None] / matrix.shape[-1]
    for jitter in JITTERS:
        try:
            factor = np.linalg.cholesky(matrix + jitter * scale * eye)
        except np.linalg.LinAlgError:
            continue
        logger.info("%s: jitter of %g on the diagonal", name, jitter)
        return factor
    raise np.linalg.LinAlgError(f"{name} is not positive definite")


def inv_spd(matrix: FloatArray, *, name: str = "matrix") -> tuple[FloatArray, FloatArray]:
    """Inverse and log determinant *of the inverse* of small SPD matrices (..., P, P)."""
    if matrix.shape[-1] <= _SMALL:
        inverse, log_det = np.empty(matrix.shape), np.empty(matrix.shape[:-2])
        stack = np.ascontiguousarray(matrix).reshape(-1, *matrix.shape[-2:])
        if _invert_stack(stack, inverse.reshape(stack.shape), log_det.reshape(-1)):
            return inverse, log_det
    factor = cholesky(matrix, name=name)
    half = np.linalg.inv(factor)
    log_det = -2.0 * np.log(np.einsum("...ii->...i", factor)).sum(axis=-1)
    return np.swapaxes(half, -1, -2) @ half, log_det


@njit(cache=True, error_model="numpy")
def _invert_stack(matrix: FloatArray, inverse: FloatArray, log_det: FloatArray) -> bool:
    """Fill ``inverse`` (M, P, P) and ``log_det`` (M,); False if a matrix has no factor."""
    n_matrices, order, _ = matrix.shape
    half = np.empty((order, order))  # the lower factor, then its inverse
    for m in range(n_matrices):
        log_det[m] = 0.0
        for i in range(order):
            for j in range(i + 1):
                rest = matrix[m, i, j]
                for k in range(j):
                    rest -= half[i, k] * half[j, k]
                if j < i:
                    half[i, j] = rest / half[j, j]
                elif rest > 0.0:
                    half[i, i] = np.sqrt(rest)
                    log_det[m] -= np.log(rest)
                else:
                    return False
        for j in range(order):
            half[j, j] = 1.0 / half[j, j]
            for i in range(j + 1, order):
                rest = 0.0
                for k in range(j, i):
                    rest -= half[i, k] * half[k, j]
                half[i, j] = rest / half[i, i]
        for i in range(order):
            for j in range(i + 1):
                total = 0.0
                for k in range(i, order):
                    total += half[k, i] * half[k, j]
                inverse[m, i, j] = total
                inverse[m, j, i] = total
    return True


def factorise_inplace(matrix: FloatArray, *, name: str) -> tuple[FloatArray, float]:
    """Overwrite one large SPD matrix (P, P) by its lower Cholesky factor; and its log determinant.

    It has Fortran order, and only its lower triangle is read.
    """
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"{name} is not positive definite")
    return factor, 2.0 * float(np.log(np.diagonal(factor)).sum())


def draw_normal(
    precision: FloatArray, linear: FloatArray, *, name: str, rng: np.random.Generator
) -> FloatArray:
    r"""Independent draws from :math:`N(P^{-1} l, P^{-1})` for P (..., p, p), l (..., p, m)."""
    half = np.linalg.inv(cholesky(precision, name=name))  # P^{-1} = half' half
    white = half @ linear + rng.standard_normal(linear.shape)
    return np.swapaxes(half, -1, -2) @ white
