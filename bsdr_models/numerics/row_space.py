r"""Rows in orthonormal axes of their own span, and new rows in the same axes.

Where there are fewer rows than features, all that depends on inner products only can be done in
the R <= N coordinates of the span of the centred rows; sparse rows are then neither centred nor
densified, since only X X' is needed.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from bsdr_models.arrays import FloatArray

# Dense (N, D), or any of SciPy's sparse arrays and matrices, which share no annotated type.
type Rows = Any

# Axes along which the rows have less than this share of the largest sum of squares are absent:
# products of rows know no more.
RANK_TOL = 1e-12


class Axes(Protocol):
    """R orthonormal directions of feature space, seen from a centre."""

    @property
    def mean(self) -> FloatArray:
        """The centre, (D,)."""

    def project(self, rows: Rows) -> FloatArray:
        """Coordinates of rows minus centre: (M, D) -> (M, R)."""

    def back(self, coordinates: FloatArray) -> FloatArray:
        """Directions over features of columns over axes: (R, K) -> (D, K)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseAxes:
    """Axes written out.

    mean
        (D,).
    matrix
        (D, R).
    """

    mean: FloatArray
    matrix: FloatArray

    def project(self, rows: Rows) -> FloatArray:
        """See :class:`Axes`."""
        if sparse.issparse(rows):
            return np.asarray(rows @ self.matrix - self.mean @ self.matrix)
        return np.asarray((rows - self.mean) @ self.matrix)

    def back(self, coordinates: FloatArray) -> FloatArray:
        """See :class:`Axes`."""
        return self.matrix @ coordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAxes:
    """Axes (X - 1 t')' T as combinations of sparse rows.

    mean
        t, (D,).
    rows
        X, (N, D), sparse.
    combination
        T, (N, R).
    """

    mean: FloatArray
    rows: Rows
    combination: FloatArray

    def project(self, rows: Rows) -> FloatArray:
        """See :class:`Axes`."""
        total = self.combination.sum(axis=0)
        products = rows @ self.rows.T  # (M, N)
        products = products.toarray() if sparse.issparse(products) else np.asarray(products)
        products = products - self.rows @ self.mean
        along_mean = np.asarray(rows @ self.mean) - self.mean @ self.mean
        return products @ self.combination - np.multiply.outer(along_mean, total)

    def back(self, coordinates: FloatArray) -> FloatArray:
        """See :class:`Axes`."""
        combined = self.combination @ coordinates
        return np.asarray(self.rows.T @ combined) - np.multiply.outer(
            self.mean, combined.sum(axis=0)
        )


def make_axes(rows: Rows, mean: FloatArray, combination: FloatArray) -> Axes:
    """Axes (X - 1 t')' T: written out for dense rows, implicit for sparse ones."""
    if sparse.issparse(rows):
        return SparseAxes(mean=mean, rows=rows, combination=combination)
    return DenseAxes(mean=mean, matrix=(rows - mean).T @ combination)


def centred_gram(rows: Rows, mean: FloatArray) -> FloatArray:
    """(X - 1 t')(X - 1 t')', (N, N); a sparse X is not centred but its products are."""
    if not sparse.issparse(rows):
        centred = rows - mean
        return np.asarray(centred @ centred.T)
    along = np.asarray(rows @ mean)
    products = (rows @ rows.T).toarray()
    return np.asarray(products - along[:, None] - along + mean @ mean)


def weighted_mean(rows: Rows, weight: FloatArray) -> FloatArray:
    """Mean of the rows under weights (N,) that need not sum to one: (D,)."""
    return np.asarray(rows.T @ weight) / weight.sum()


def squared_distance(rows: Rows, mean: FloatArray) -> FloatArray:
    """|x - t|**2 for each row, (M,)."""
    if not sparse.issparse(rows):
        return np.asarray(np.sum((rows - mean) ** 2, axis=1))
    square = np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1)
    return np.asarray(square - 2.0 * (rows @ mean) + mean @ mean)
