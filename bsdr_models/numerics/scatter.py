"""Supervised and unsupervised directions that a fit can start from."""

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.design import Design

# Share of an isotropic matrix in the covariance that whitens the features.
SHRINKAGE = 0.1


def label_indicators(y: IntArray, n_labels: int) -> FloatArray:
    """One column per class, each of unit length: (N, K)."""
    indicator = np.equal.outer(y, np.arange(n_labels)).astype(np.float64)
    return indicator / np.sqrt(np.maximum(indicator.sum(axis=0), 1.0))


def discriminant_scores(design: Design, Y: FloatArray, n_scores: int) -> FloatArray:
    """LatentCoordinates of the rows along the leading shrunken discriminant directions.

    With Y from :func:`label_indicators` these are the scores of linear discriminant analysis
    (optimal scoring: the eigenvectors of between- against within-class scatter are those of
    between-class against total scatter); with real targets, those of a ridge-regularised
    reduced-rank regression.

    Parameters
    ----------
    design : Design
        Rows, (N, D).
    Y : (N, K)
        Indicators or real targets.
    n_scores : int
        At most this many are returned.

    Returns
    -------
    (N, min(n_scores, K))
        Zero columns where there is no direction left.
    """
    Y = Y - Y.mean(axis=0)
    # The variance with which a ridge penalty of 1 shrinks as much as is wanted.
    variance = design.mean_eigenvalue * SHRINKAGE / (1.0 - SHRINKAGE)
    fitted = design.ridge(Y, np.ones((1, 1)), variance).fitted
    _, _, directions = np.linalg.svd(Y.T @ fitted)
    return fitted @ directions[:n_scores].T


def standardise(scores: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1; columns without variation become 0."""
    centred = scores - scores.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 1e-10 * scale.max(initial=0.0), scale, np.inf)
