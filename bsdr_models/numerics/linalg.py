"""Cholesky factors, inverses and draws by positive definite matrices; row spaces."""

import logging

import numpy as np
from scipy.linalg import lapack, svd

from bsdr_models.numerics.arrays import FloatArray

logger = logging.getLogger(__name__)

# Multiples of the mean diagonal added, in turn, to a matrix that fails to factorise.
JITTERS = (1e-12, 1e-10, 1e-8)


def cholesky(matrix: FloatArray, *, name: str = "matrix") -> FloatArray:
    """Lower Cholesky factor of a stack (..., P, P), with jitter if that is needed."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        pass
    scale = np.einsum("...ii->...", matrix)[..., None, None] / matrix.shape[-1]
    for jitter in JITTERS:
        try:
            factor = np.linalg.cholesky(matrix + jitter * scale * np.eye(matrix.shape[-1]))
        except np.linalg.LinAlgError:
            continue
        logger.info("%s: jitter of %g on the diagonal", name, jitter)
        return factor
    raise np.linalg.LinAlgError(f"{name} is not positive definite")


def inv_spd(matrix: FloatArray, *, name: str = "matrix") -> tuple[FloatArray, FloatArray]:
    """Inverse and log determinant *of the inverse* of small SPD matrices (..., P, P)."""
    factor = cholesky(matrix, name=name)
    half = np.linalg.inv(factor)
    log_det = -2.0 * np.log(np.einsum("...ii->...i", factor)).sum(axis=-1)
    return half.mT @ half, log_det


def factorise_inplace(matrix: FloatArray, *, name: str) -> tuple[FloatArray, float]:
    """Overwrite one large SPD matrix (P, P) by its lower Cholesky factor; and its log determinant.

    It has Fortran order, and only its lower triangle is read.
    """
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise np.linalg.LinAlgError(f"{name} is not positive definite")
    return factor, 2.0 * float(np.log(np.diagonal(factor)).sum())


# Directions with a smaller singular value, relative to the largest, are left out.
RANK_TOL = 1e-8


def row_space(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Non-zero singular values (r,) and right singular vectors (P, r)."""
    n, p = X.shape
    if n >= p:
        triangle = np.linalg.qr(X, mode="r")
        _, values, vt = svd(triangle, full_matrices=False, check_finite=False)
        basis = vt.T
    else:
        q, triangle = np.linalg.qr(X.T)
        _, values, vt = svd(triangle.T, full_matrices=False, check_finite=False)
        basis = q @ vt.T
    keep = values > RANK_TOL * values[0]
    keep[0] = True
    return values[keep], np.ascontiguousarray(basis[:, keep])


def standardise(scores: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1; constant columns become 0."""
    centred = scores - scores.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 1e-10 * scale.max(initial=0.0), scale, np.inf)


# Relative gain in agreement at which rotations have converged, and most iterations.
_ROTATION_TOL = 1e-10
_MAX_ROTATIONS = 50


def rotations(stacked: FloatArray) -> FloatArray:
    r"""Orthogonal matrices (S, R, R) under which the components of draws (S, P, R) agree best.

    For models with a rotation-invariant prior: minimises :math:`\sum_s |A_s O_s - M|^2` over
    orthogonal :math:`O_s` and the reference M, by Gower's generalised Procrustes analysis. Rows are
    divided by their root mean square over draws, which rotations do not change. M ends in its
    principal axes, largest first.
    """
    size = np.sqrt(np.mean(stacked**2, axis=(0, 2)))[:, None]
    scaled = stacked / np.where(size > 0.0, size, 1.0)
    reference = scaled[-1]
    found = np.empty((len(scaled), scaled.shape[2], scaled.shape[2]))
    agreement = -np.inf
    for _ in range(_MAX_ROTATIONS):
        u, _, vt = np.linalg.svd(np.swapaxes(scaled, 1, 2) @ reference)
        found = u @ vt
        reference = np.mean(scaled @ found, axis=0)
        before = agreement
        agreement = float(np.linalg.norm(reference))
        if agreement - before <= _ROTATION_TOL * agreement:
            break
    _, _, axes = np.linalg.svd(reference, full_matrices=False)
    return found @ axes.T
