"""Latent positions that a search for the mode can start from."""

from collections.abc import Sequence

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.scatter import SHRINKAGE, label_indicators, standardise

NAMES = ("pca", "lda", "shrinkage_lda", "random")

# Discriminant directions need some: without, more features than rows put each class on a point.
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
    """One set of positions for each name, every column of mean 0 and variance 1.

    Parameters
    ----------
    X : (N, D)
        Features, with or without their mean.
    y_index : (N,)
        Class of each row; -1 where there is no label. Such rows are placed by the directions
        that the others have given.
    n_labels : int
        K.
    n_components : int
        R. Discriminant directions, at most the classes present less one, are followed by the
        principal axes of what they leave of the rows.
    names : sequence of str
        'pca', 'lda' (shrinkage 0.001), 'shrinkage_lda' (shrinkage 0.1) or 'random' (standard
        normal), in any order, with repeats.
    rng : numpy.random.Generator
        For 'random', and for columns where the rows do not have enough directions.

    Returns
    -------
    list of (N, R)

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    unknown = set(names) - set(NAMES)
    if unknown:
        raise ValueError(f"starts must be among {NAMES}, got {sorted(unknown)}")
    X = X - X.mean(axis=0)
    return [_start(name, X, y_index, n_labels, n_components, rng) for name in names]


def make_starts(
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    n_components: int,
    *,
    n_starts: int,
    rng: np.random.Generator,
) -> list[FloatArray]:
    """The first ``n_starts`` of 'pca', 'lda', 'shrinkage_lda', 'random', 'random' and so on.

    As :func:`starts` otherwise.
    """
    names = [NAMES[min(i, len(NAMES) - 1)] for i in range(n_starts)]
    return starts(X, y_index, n_labels, n_components=n_components, names=names, rng=rng)


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
            columns = np.hstack([columns, _principal(_without(X, columns), missing)])
    missing = n_components - columns.shape[1]
    return standardise(np.hstack([columns, rng.standard_normal((len(X), missing))]))


def _discriminants(X: FloatArray, y_index: IntArray, n_labels: int, share: float) -> FloatArray:
    """Scores of all rows along the shrunken discriminant directions, (N, classes present - 1).

    By optimal scoring: ridge regression of the class indicators of the rows that have one.
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


def _principal(X: FloatArray, n_scores: int) -> FloatArray:
    """Scores of the leading principal axes, as many as there are."""
    return DenseDesign(X).principal_scores(n_scores)


def _without(X: FloatArray, columns: FloatArray) -> FloatArray:
    """Rows less their regression on columns, which have mean 0."""
    if columns.shape[1] == 0:
        return X
    return X - columns @ np.linalg.lstsq(columns, X, rcond=None)[0]
