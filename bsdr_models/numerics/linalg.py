"""Linear algebra: Cholesky factors, inverses, row spaces, rotations; distances, kernels of rows."""

import logging

import numpy as np
from scipy.linalg import blas, lapack, svd
from scipy.spatial.distance import cdist, pdist, squareform

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


# Up to this many columns distances are sums of squared differences: as fast as a matrix product,
# and exactly zero between equal rows.
_FEW_COLUMNS = 8


def squared_distances(A: FloatArray, B: FloatArray | None = None) -> FloatArray:
    """|a - b|**2 between rows.

    (N, D) and (M, D), ``A`` by default, -> (N, M), non-negative, without ``B`` symmetric with an
    exactly zero diagonal. With many columns the squares are expanded about the mean of B, so that
    the rounding error is proportional to the scatter, not to the distance from the origin.
    """
    if A.shape[1] <= _FEW_COLUMNS:
        return np.asarray(cdist(A, A if B is None else B, "sqeuclidean"))
    centre = (A if B is None else B).mean(axis=0)
    A = A - centre
    squares = np.einsum("nd,nd->n", A, A)
    if B is None:
        distances: FloatArray = A @ A.T
        distances *= -2.0
        distances += np.add.outer(squares, squares)  # one addition, for symmetry
        np.fill_diagonal(distances, 0.0)
    else:
        B = B - centre
        distances = A @ B.T
        distances *= -2.0
        distances += squares[:, None]
        distances += np.einsum("md,md->m", B, B)
    return np.maximum(distances, 0.0, out=distances)


def rbf(
    A: FloatArray, B: FloatArray | None, lengthscale: float, amplitude: float = 1.0
) -> FloatArray:
    """Gaussian kernel amplitude * exp(-|a - b|**2 / (2 lengthscale**2)) between rows.

    (N, D) and (M, D), ``A`` if None, -> (N, M); the length scale is in the units of the rows.
    """
    rate = -0.5 / lengthscale**2
    size = np.log(amplitude)
    if B is None and A.shape[1] <= _FEW_COLUMNS:  # half as many exponentials
        kernel: FloatArray = squareform(np.exp(rate * pdist(A, "sqeuclidean") + size), checks=False)
        np.fill_diagonal(kernel, amplitude)
        return kernel
    kernel = squared_distances(A, B)
    kernel *= rate
    kernel += size
    return np.exp(kernel, out=kernel)


def rbf_gradient(
    A: FloatArray, kernel: FloatArray, lengthscale: float, weight: FloatArray
) -> tuple[float, FloatArray]:
    """Sum of weight * kernel over all pairs of rows (N, R), and its gradient in the rows (N, R).

    ``kernel`` is that of the rows; ``weight`` (N, N) is symmetric, and its lower triangle is read.
    """
    columns = np.column_stack([A, np.ones(len(A))])
    products = blas.dsymm(1.0, weight * kernel.T, columns, lower=1)
    sums = products[:, -1:]
    return float(sums.sum()), (products[:, :-1] - sums * A) * (2.0 / lengthscale**2)
