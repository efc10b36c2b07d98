"""Squared distances between rows, and the Gaussian kernel of them."""

import numpy as np

from bsdr_models.typing import FloatArray

# Up to this many columns differences are taken one column after the other: as quick as a product
# of matrices, and exactly zero between equal rows.
_FEW_COLUMNS = 8


def squared_distances(A: FloatArray, B: FloatArray | None = None) -> FloatArray:
    """|a - b|**2 between rows.

    With many columns the squares are expanded, about the mean of the rows, so that the error is of
    the order of rounding times their scatter and not times their distance from the origin.

    Parameters
    ----------
    A : (N, D)
    B : (M, D), optional
        The rows of ``A`` themselves without it.

    Returns
    -------
    (N, M)
        Never negative; symmetric with a diagonal of exact zeros without ``B``.
    """
    if A.shape[1] <= _FEW_COLUMNS:
        return _by_differences(A, A if B is None else B)
    centre = A.mean(axis=0)
    A = A - centre
    squares = np.einsum("nd,nd->n", A, A)
    if B is None:
        distances: FloatArray = A @ A.T
        distances *= -2.0
        distances += np.add.outer(squares, squares)  # in one go: two additions are not symmetric
        np.fill_diagonal(distances, 0.0)
    else:
        B = B - centre
        distances = A @ B.T
        distances *= -2.0
        distances += squares[:, None]
        distances += np.einsum("md,md->m", B, B)
    return np.maximum(distances, 0.0, out=distances)


def rbf(A: FloatArray, B: FloatArray | None, lengthscale: float) -> FloatArray:
    """exp(-|a - b|**2 / (2 lengthscale**2)) between rows.

    Parameters
    ----------
    A : (N, D)
    B : (M, D) or None
        The rows of ``A`` themselves if None.
    lengthscale : float
        In the units of the rows.

    Returns
    -------
    (N, M)
    """
    kernel = squared_distances(A, B)
    kernel *= -0.5 / lengthscale**2
    return np.exp(kernel, out=kernel)


def _by_differences(A: FloatArray, B: FloatArray) -> FloatArray:
    """One column after the other; the buffer is used again for each."""
    total = np.zeros((len(A), len(B)))
    difference = np.empty_like(total) if A.shape[1] > 1 else total
    for a, b in zip(A.T, B.T, strict=True):
        np.subtract.outer(a, b, out=difference)
        np.multiply(difference, difference, out=difference)
        if difference is not total:
            total += difference
    return total
