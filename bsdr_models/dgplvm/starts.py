"""Initial latent coordinates: class indicators, principal components and discriminants."""

from collections.abc import Sequence

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.scatter import SHRINKAGE, label_indicators, standardise

NAMES = ("pca", "lda", "shrinkage_lda", "random")

# Without shrinkage, more features than samples would collapse each class to a point.
_LITTLE_SHRINKAGE = 1e-3


def starts(
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    *,
    n_components: int,
    names: Sequence[str],
    rng: np.random.Generator,
) -> list[FloatArray]:
    """Initial latent coordinates (N, R) for each name, with columns of mean 0 and variance 1.

    From features (N, D) and classes (N,), -1 without a label; such samples are projected on the
    directions of the others. Names are 'pca', 'lda' (shrinkage 0.001), 'shrinkage_lda' (shrinkage
    0.1) and 'random' (standard normal). Discriminant directions, at most the classes present less
    one, are followed by principal axes of the residuals, and by random columns beyond the rank of
    X.
    """
    X, found = X - X.mean(axis=0), []
    for name in names:
        columns = np.empty((len(X), 0))
        if name in ("lda", "shrinkage_lda"):
            share = SHRINKAGE if name == "shrinkage_lda" else _LITTLE_SHRINKAGE
            columns = _discriminants(X, y_index, n_labels, share)[:, :n_components]
        missing = n_components - columns.shape[1]
        if name != "random" and missing > 0:
            residuals = X - columns @ np.linalg.lstsq(columns, X, rcond=None)[0]
            columns = np.hstack([columns, DenseDesign(residuals).principal_scores(missing)])
        missing = n_components - columns.shape[1]
        columns = np.hstack([columns, rng.standard_normal((len(X), missing))])
        found.append(standardise(columns))
    return found


def _discriminants(X: FloatArray, y_index: IntArray, n_labels: int, share: float) -> FloatArray:
    """Shrunken discriminant scores of all samples, (N, classes present - 1).

    By optimal scoring: ridge regression of the class indicators of the labelled samples.
    """
    labelled = y_index >= 0
    centre = X[labelled].mean(axis=0)
    design = DenseDesign(X[labelled] - centre)
    Y = label_indicators(y_index[labelled], n_labels)  # (N_l, K)
    Y = Y - Y.mean(axis=0)
    shrinkage = design.mean_eigenvalue * share / (1.0 - share)
    columns = design.ridge(Y, np.ones((1, 1)), shrinkage)
    _, _, directions = np.linalg.svd(Y.T @ columns.fitted)
    n_directions = len(np.unique(y_index[labelled])) - 1
    return (X - centre) @ (columns.mean @ directions[:n_directions].T)


def whitened_indicators(y_index: IntArray, n_labels: int) -> FloatArray:
    """Whitened indicators of the classes present, (N, K - 1); unlabelled samples have zeros.

    Over labelled samples the columns have mean 0, variance 1 and no correlation.
    """
    known = y_index >= 0
    indicator = np.equal.outer(y_index[known], np.arange(n_labels)).astype(np.float64)
    indicator = indicator[:, indicator.any(axis=0)]
    left, _, _ = np.linalg.svd(indicator - indicator.mean(axis=0), full_matrices=False)
    whitened = np.zeros((len(y_index), indicator.shape[1] - 1))
    whitened[known] = np.sqrt(known.sum()) * left[:, : whitened.shape[1]]
    return whitened


def with_principal_components(
    indicators: FloatArray, X: FloatArray, n_components: int
) -> FloatArray:
    """Whitened indicators (N, P), followed by whitened principal components of the features.

    The latter are uncorrelated with the indicators. A ValueError names the largest possible number
    of components.
    """
    n, n_indicators = indicators.shape
    if n - 1 < n_components:
        raise ValueError(
            f"n_components={n_components} is too large for {n} labelled samples: {n - 1} at most"
        )
    centred = X - X.mean(axis=0)
    residual = centred - indicators @ (indicators.T @ centred) / n
    left, size, _ = np.linalg.svd(residual, full_matrices=False)
    rank = int((size > 1e-8 * np.linalg.norm(X)).sum())
    n_more = n_components - n_indicators
    if rank < n_more:
        raise ValueError(
            f"n_components={n_components} is too large: there are {n_indicators} directions of the "
            f"classes and {rank} of the features within classes"
        )
    return np.column_stack([indicators, np.sqrt(n) * left[:, :n_more]])
