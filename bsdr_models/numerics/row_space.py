r"""Samples, and new samples, in orthonormal axes of the row space of the training samples.

With fewer samples than features, computations that depend on inner products only can be done in
R <= N coordinates of the centred row space. Sparse samples are then neither centred nor made dense,
since only X X' is needed.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bsdr_models.arrays import FloatArray

# Dense (N, D), or any of SciPy's sparse arrays and matrices, which share no annotated type.
type Rows = Any

# Axes with a smaller sum of squares, relative to the largest, are left out: they are below the
# precision of X X'.
RANK_TOL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseAxes:
    """Explicit axes."""

    mean: FloatArray  # (D,)
    matrix: FloatArray  # (D, R)

    def project(self, rows: Rows) -> FloatArray:
        """Coordinates of centred samples: (M, D) -> (M, R)."""
        if sparse.issparse(rows):
            return np.asarray(rows @ self.matrix - self.mean @ self.matrix)
        return np.asarray((rows - self.mean) @ self.matrix)

    def back(self, coordinates: FloatArray) -> FloatArray:
        """Map columns from axes to features: (R, K) -> (D, K)."""
        return self.matrix @ coordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseAxes:
    """Axes (X - 1 t')' T as combinations of sparse samples."""

    mean: FloatArray  # t, (D,)
    rows: Rows  # X, (N, D)
    combination: FloatArray  # T, (N, R)

    def project(self, rows: Rows) -> FloatArray:
        """Coordinates of centred samples: (M, D) -> (M, R)."""
        total = self.combination.sum(axis=0)
        products = rows @ self.rows.T  # (M, N)
        products = products.toarray() if sparse.issparse(products) else np.asarray(products)
        products = products - self.rows @ self.mean
        along_mean = np.asarray(rows @ self.mean) - self.mean @ self.mean
        return products @ self.combination - np.multiply.outer(along_mean, total)

    def back(self, coordinates: FloatArray) -> FloatArray:
        """Map columns from axes to features: (R, K) -> (D, K)."""
        combined = self.combination @ coordinates
        return np.asarray(self.rows.T @ combined) - np.multiply.outer(
            self.mean, combined.sum(axis=0)
        )


# R orthonormal directions of feature space, and a centre.
type Axes = DenseAxes | SparseAxes


def make_axes(rows: Rows, mean: FloatArray, combination: FloatArray) -> Axes:
    """Axes (X - 1 t')' T: explicit for dense samples, implicit for sparse ones."""
    if sparse.issparse(rows):
        return SparseAxes(mean=mean, rows=rows, combination=combination)
    return DenseAxes(mean=mean, matrix=(rows - mean).T @ combination)


def centred_gram(rows: Rows, mean: FloatArray) -> FloatArray:
    """(X - 1 t')(X - 1 t')', (N, N), without centring a sparse X."""
    if not sparse.issparse(rows):
        centred = rows - mean
        return np.asarray(centred @ centred.T)
    along = np.asarray(rows @ mean)
    products = (rows @ rows.T).toarray()
    return np.asarray(products - along[:, None] - along + mean @ mean)


def weighted_mean(rows: Rows, weight: FloatArray) -> FloatArray:
    """Weighted mean of the samples, (D,), with unnormalised weights (N,)."""
    return np.asarray(rows.T @ weight) / weight.sum()


def squared_distance(rows: Rows, mean: FloatArray) -> FloatArray:
    """|x - t|**2 for each sample, (M,)."""
    if not sparse.issparse(rows):
        return np.asarray(np.sum((rows - mean) ** 2, axis=1))
    square = np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1)
    return np.asarray(square - 2.0 * (rows @ mean) + mean @ mean)
