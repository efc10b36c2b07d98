"""Mean and distances of samples, dense or sparse."""

from typing import Any

import numpy as np
from scipy import sparse

from bsdr_models.numerics.arrays import FloatArray

# Dense (N, D), or any of SciPy's sparse arrays and matrices, which share no annotated type.
type Rows = Any

# Axes with a smaller sum of squares, relative to the largest, are left out: they are below the
# precision of X X'.
RANK_TOL = 1e-12


def weighted_mean(rows: Rows, weight: FloatArray) -> FloatArray:
    """Weighted mean of the samples, (D,), with unnormalised weights (N,)."""
    return np.asarray(rows.T @ weight) / weight.sum()


def squared_distance(rows: Rows, mean: FloatArray) -> FloatArray:
    """|x - t|**2 for each sample, (M,)."""
    if not sparse.issparse(rows):
        return np.asarray(np.sum((rows - mean) ** 2, axis=1))
    square = np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1)
    return np.asarray(square - 2.0 * (rows @ mean) + mean @ mean)


def as_dense(rows: Rows) -> FloatArray:
    """Samples as a dense array."""
    return rows.toarray() if sparse.issparse(rows) else rows
