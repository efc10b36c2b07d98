"""Squared distances between rows, their Gaussian kernel, and its gradients.

For repeated evaluation of a symmetric kernel matrix, :func:`rbf_triangle` fills the triangle that
LAPACK reads, and :func:`rbf_slopes` backpropagates a gradient to the rows; it recomputes the
exponentials to avoid a second matrix.
"""

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics._argmax_kernel import _OPTIONS, _exp
from bsdr_models.numerics.compiled import njit

# Up to this many columns differences are taken column by column: as fast as a matrix product, and
# exactly zero between equal rows.
_FEW_COLUMNS = 8
# Exponents are clipped at minus this: exp(-700) is 1e-304.
_LARGEST = 700.0


def squared_distances(A: FloatArray, B: FloatArray | None = None) -> FloatArray:
    """|a - b|**2 between rows.

    With many columns the squares are expanded about the mean of the rows, so that the rounding
    error is proportional to their scatter, not to their distance from the origin.

    Parameters
    ----------
    A : (N, D)
    B : (M, D), optional
        By default ``A``.

    Returns
    -------
    (N, M)
        Non-negative; without ``B`` symmetric with an exactly zero diagonal.
    """
    if A.shape[1] <= _FEW_COLUMNS:
        return _by_differences(A, A if B is None else B)
    centre = A.mean(axis=0)
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

    Parameters
    ----------
    A : (N, D)
    B : (M, D) or None
        ``A`` if None.
    lengthscale : float
        In the units of the rows.
    amplitude : float

    Returns
    -------
    (N, M)
    """
    rate = 0.5 / lengthscale**2
    if A.shape[1] <= _FEW_COLUMNS:
        B = A if B is None else B
        out = np.empty((len(A), len(B)))
        _fill_cross(np.ascontiguousarray(A), np.ascontiguousarray(B.T), rate, amplitude, out)
        return out
    kernel = squared_distances(A, B)
    kernel *= -rate
    np.exp(kernel, out=kernel)
    if amplitude != 1.0:
        kernel *= amplitude
    return kernel


def rbf_triangle(
    A: FloatArray, lengthscale: float, amplitude: float, out: FloatArray | None = None
) -> FloatArray:
    """Lower triangle of amplitude * exp(-|a_i - a_j|**2 / (2 lengthscale**2)).

    Parameters
    ----------
    A : (N, R)
        With few columns.
    lengthscale, amplitude : float
    out : (N, N), Fortran order, optional

    Returns
    -------
    (N, N), Fortran order
        Undefined above the diagonal.
    """
    kernel = np.empty((len(A), len(A)), order="F") if out is None else out
    _fill_triangle(np.ascontiguousarray(A.T), 0.5 / lengthscale**2, amplitude, kernel.T)
    return kernel


def rbf_slopes(
    A: FloatArray, lengthscale: float, amplitude: float, weight: FloatArray
) -> tuple[float, FloatArray]:
    """Sum of weight * kernel over all pairs of rows, and its gradient with respect to the rows.

    Parameters
    ----------
    A : (N, R)
    lengthscale, amplitude : float
        Those of the kernel; see :func:`rbf_triangle`.
    weight : (N, N), Fortran order
        Symmetric; only the lower triangle is read.

    Returns
    -------
    total : float
    gradient : (N, R)
        For fixed weights.
    """
    columns = np.ascontiguousarray(A.T)
    gradient, work = np.zeros(columns.shape), np.empty(len(A))
    rate = 0.5 / lengthscale**2
    total = _add_slopes(columns, rate, amplitude, weight.T, gradient, work)
    gradient *= -4.0 * rate
    return total, gradient.T


def rbf_cross_slopes(
    A: FloatArray, B: FloatArray, lengthscale: float, amplitude: float, weight: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Sum of weight * kernel over pairs of a row of ``A`` and one of ``B``, and its gradients.

    Parameters
    ----------
    A : (N, R)
    B : (M, R)
    lengthscale, amplitude : float
    weight : (N, M)

    Returns
    -------
    total : float
    gradient_A : (N, R)
    gradient_B : (M, R)
    """
    points, columns = np.ascontiguousarray(A), np.ascontiguousarray(B.T)
    by_point, by_column = np.zeros(points.shape), np.zeros(columns.shape)
    rate = 0.5 / lengthscale**2
    total = _add_cross_slopes(points, columns, rate, amplitude, weight, by_point, by_column)
    by_point *= -2.0 * rate
    by_column *= -2.0 * rate
    return total, by_point, by_column.T


@njit(**_OPTIONS)
def _kernel_row(
    point: FloatArray, columns: FloatArray, rate: float, amplitude: float, row: FloatArray
) -> None:
    """Kernel of one point, (R,), with those of ``columns``, (R, N)."""
    row[:] = 0.0
    for r in range(len(columns)):
        here = point[r]
        for i in range(len(row)):
            step = columns[r, i] - here
            row[i] += step * step
    for i in range(len(row)):
        row[i] = amplitude * _exp(-min(rate * row[i], _LARGEST))


@njit(**_OPTIONS)
def _fill_triangle(columns: FloatArray, rate: float, amplitude: float, out: FloatArray) -> None:
    """Fill ``out``, in C order, on and above the diagonal."""
    for j in range(len(out)):
        _kernel_row(columns[:, j], columns[:, j:], rate, amplitude, out[j, j:])


@njit(**_OPTIONS)
def _fill_cross(
    points: FloatArray, columns: FloatArray, rate: float, amplitude: float, out: FloatArray
) -> None:
    """Kernel of ``points``, (N, R), with ``columns``, (R, M)."""
    for j in range(len(out)):
        _kernel_row(points[j], columns, rate, amplitude, out[j])


@njit(**_OPTIONS)
def _add_slopes(
    columns: FloatArray,
    rate: float,
    amplitude: float,
    weight: FloatArray,
    gradient: FloatArray,
    work: FloatArray,
) -> float:
    """Sum over all pairs; adds sums of weight * kernel * difference to ``gradient``, (R, N)."""
    total = 0.0
    for j in range(len(work)):
        row = work[j:]
        _kernel_row(columns[:, j], columns[:, j:], rate, amplitude, row)
        total -= weight[j, j] * row[0]
        total += 2.0 * _add_pairs(
            columns[:, j], columns[:, j:], weight[j, j:], row, gradient[:, j:], gradient[:, j]
        )
    return total


@njit(**_OPTIONS)
def _add_cross_slopes(
    points: FloatArray,
    columns: FloatArray,
    rate: float,
    amplitude: float,
    weight: FloatArray,
    by_point: FloatArray,
    by_column: FloatArray,
) -> float:
    """The same for two sets; adds to ``by_point``, (N, R), and ``by_column``, (R, M)."""
    total = 0.0
    row = np.empty(columns.shape[1])
    for j in range(len(points)):
        _kernel_row(points[j], columns, rate, amplitude, row)
        total += _add_pairs(points[j], columns, weight[j], row, by_column, by_point[j])
    return total


@njit(**_OPTIONS)
def _add_pairs(
    point: FloatArray,
    columns: FloatArray,
    weight: FloatArray,
    kernel: FloatArray,
    gradient: FloatArray,
    own: FloatArray,
) -> float:
    """Sum over pairs of one point with others; adds to their gradients and its own.

    ``kernel`` is overwritten by its product with the weights.
    """
    total = 0.0
    for i in range(len(kernel)):
        kernel[i] *= weight[i]
        total += kernel[i]
    for r in range(len(columns)):
        here, summed = point[r], 0.0
        for i in range(len(kernel)):
            part = kernel[i] * (columns[r, i] - here)
            gradient[r, i] += part
            summed += part
        own[r] -= summed
    return total


def _by_differences(A: FloatArray, B: FloatArray) -> FloatArray:
    """Sum over columns, with one buffer."""
    total = np.zeros((len(A), len(B)))
    difference = np.empty_like(total) if A.shape[1] > 1 else total
    for a, b in zip(A.T, B.T, strict=True):
        np.subtract.outer(a, b, out=difference)
        np.multiply(difference, difference, out=difference)
        if difference is not total:
            total += difference
    return total
