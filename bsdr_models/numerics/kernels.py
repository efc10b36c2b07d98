"""Squared distances between rows, their Gaussian kernel, and its gradient."""

import numpy as np
from scipy.linalg import blas
from scipy.spatial.distance import cdist, pdist, squareform

from bsdr_models.numerics.arrays import FloatArray

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
