"""Initial latent coordinates."""

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
    X = X - X.mean(axis=0)
    return [_start(name, X, y_index, n_labels, n_components, rng) for name in names]


def first_names(n_starts: int) -> list[str]:
    """The first names of initialisations, the last one repeated."""
    return [NAMES[min(i, len(NAMES) - 1)] for i in range(n_starts)]


def _start(
    name: str,
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    n_components: int,
    rng: np.random.Generator,
) -> FloatArray:
    columns = np.empty((len(X), 0))
    if name != "random":
        if name != "pca":
            share = SHRINKAGE if name == "shrinkage_lda" else _LITTLE_SHRINKAGE
            columns = _discriminants(X, y_index, n_labels, share)[:, :n_components]
        missing = n_components - columns.shape[1]
        if missing > 0:
            residuals = X - columns @ np.linalg.lstsq(columns, X, rcond=None)[0]
            columns = np.hstack([columns, DenseDesign(residuals).principal_scores(missing)])
    missing = n_components - columns.shape[1]
    return standardise(np.hstack([columns, rng.standard_normal((len(X), missing))]))


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
