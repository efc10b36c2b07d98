"""Cholesky factors, inverses and log determinants of symmetric positive definite matrices."""

import numpy as np
from scipy.linalg import lapack

from bsdr_models.typing import FloatArray

# A matrix that fails to factorise is tried again with these multiples of its mean diagonal.
JITTERS = (1e-12, 1e-10, 1e-8)


def cholesky(matrix: FloatArray, *, name: str = "matrix") -> FloatArray:
    """Lower Cholesky factor of one matrix or a stack of them, with a jitter ladder.

    Parameters
    ----------
    matrix : (..., P, P)
        Symmetric positive definite.
    name : str
        What the matrix is, for the error message.

    Returns
    -------
    (..., P, P)

    Raises
    ------
    numpy.linalg.LinAlgError
        If the matrix is not positive definite even with the largest jitter.
    """
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        pass
    eye = np.eye(matrix.shape[-1])
    scale = np.einsum("...ii->...", matrix)[..., None, None] / matrix.shape[-1]
    for jitter in JITTERS:
        try:
            return np.linalg.cholesky(matrix + jitter * scale * eye)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError(f"{name} is not positive definite")


def inv_spd(matrix: FloatArray, *, name: str = "matrix") -> tuple[FloatArray, FloatArray]:
    """Inverse and log determinant *of the inverse* of small SPD matrices, stacked.

    Parameters
    ----------
    matrix : (..., P, P)
    name : str
        What the matrix is, for the error message.

    Returns
    -------
    inverse : (..., P, P)
    log_det : (...)
        log |inverse|.
    """
    factor = cholesky(matrix, name=name)
    half = np.linalg.inv(factor)
    log_det = -2.0 * np.log(np.einsum("...ii->...i", factor)).sum(axis=-1)
    return np.swapaxes(half, -1, -2) @ half, log_det


def factorise_inplace(matrix: FloatArray, *, name: str) -> tuple[FloatArray, float]:
    """Overwrite one large SPD matrix by its lower Cholesky factor.

    Parameters
    ----------
    matrix : (P, P), Fortran order
        Only the lower triangle is read.
    name : str
        What the matrix is, for the error message.

    Returns
    -------
    factor : (P, P), Fortran order
    log_det : float
        log |matrix|.
    """
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"{name} is not positive definite")
    return factor, 2.0 * float(np.log(np.diagonal(factor)).sum())
