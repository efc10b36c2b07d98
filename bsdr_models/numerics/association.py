"""How far features go with the targets, one by one, and which of them more than by chance."""

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.stats import false_discovery_control

from bsdr_models.numerics.arrays import FloatArray, IntArray, Rows

# Permutations of the samples; false discovery rates below their reciprocal are not resolved.
N_PERMUTATIONS = 100
# Most values of all features under permutations that are held in memory, by fewer permutations.
MOST_VALUES = 5_000_000
# Fewest permutations of so many features.
LEAST_PERMUTATIONS = 20
# Directions of the targets below this share of the largest, and differences of shares of variance,
# that are rounding errors.
ROUNDING = 1e-10
# False discovery rate at which a feature counts as found.
FOUND = 0.05


def associate(
    X: Rows, targets: FloatArray, groups: IntArray | None = None
) -> dict[str, FloatArray]:
    """Association of P features with the targets (N, K) of samples (N, P), each feature alone.

    ``independent_samples`` (), their number; ``correlation`` (P, K); ``explained`` (P,), the share
    of the variance of a feature that the targets explain; ``false_discovery_rate`` (P,), the
    smallest at which a feature is found. Its p-values are those of ``explained`` under permutations
    of the samples, with the values of all features together [1]_, so that neither a distribution
    nor independence of features is assumed; rates are by Benjamini and Hochberg. Missing values are
    at the mean of the feature. With groups (N,) the mean of the samples of a group, and of one
    target if targets are 0 or 1, counts as one sample.

    References
    ----------
    .. [1] V. G. Tusher, R. Tibshirani, G. Chu (2001). Significance analysis of microarrays applied
           to the ionizing radiation response. PNAS 98(9), 5116-5121.
    """
    X, targets, square = independent(X, targets, groups)
    basis = basis_of(targets)
    explained = np.sum((basis @ X) ** 2, axis=0) / square
    n, p = X.shape
    rng = np.random.default_rng(0)
    n_permutations = int(np.clip(MOST_VALUES // p, LEAST_PERMUTATIONS, N_PERMUTATIONS))
    null = np.empty((n_permutations, p))
    for values in null:
        values[:] = np.sum((rng.permutation(basis, axis=1) @ X) ** 2, axis=0) / square
    ordered = np.sort(null, axis=None)
    larger = ordered.size - np.searchsorted(ordered, explained - ROUNDING)
    product = X.T @ targets
    length = np.sqrt(square[:, None] * np.sum(targets**2, axis=0))
    correlation = np.divide(product, length, out=np.zeros_like(product), where=length > 0.0)
    return {
        "independent_samples": np.array(n),
        "correlation": correlation.clip(-1.0, 1.0),
        "explained": explained.clip(0.0, 1.0),
        "false_discovery_rate": false_discovery_control((1.0 + larger) / (1.0 + ordered.size)),
    }


def basis_of(targets: FloatArray) -> FloatArray:
    """Orthonormal basis of the columns of centred targets, (J, N)."""
    basis, size, _ = np.linalg.svd(targets, full_matrices=False)
    return basis[:, size > ROUNDING * size[0]].T


def independent(
    X: Rows, targets: FloatArray, groups: IntArray | None
) -> tuple[Rows, FloatArray, FloatArray]:
    """Samples that count as one, (N, P), targets (N, K), centred, and sums of squares (P,).

    These are of centred features, and infinite of constant ones. Sparse samples are not centred.
    """
    if not issparse(X):
        seen = np.isfinite(X)
        X = np.where(seen, X, 0.0)
        X = np.where(seen, X - X.sum(axis=0) / np.maximum(seen.sum(axis=0), 1), 0.0)
    if groups is not None:
        kinds = targets if np.isin(targets, (0.0, 1.0)).all() else targets[:, :0]
        cells = np.column_stack([groups, kinds])
        _, cell, count = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
        mean = csr_array((1.0 / count[cell], (cell, np.arange(len(cell)))))
        X = mean @ X
        targets = mean @ targets
    square = (X * X).sum(axis=0) - len(targets) * X.mean(axis=0) ** 2
    return X, targets - targets.mean(axis=0), np.where(square > 0.0, square, np.inf)
