"""Discriminant directions for the initialisation of fits."""

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.design import Design

# Weight of an isotropic matrix in the shrunken covariance of the features.
SHRINKAGE = 0.1


def label_indicators(y: IntArray, n_labels: int) -> FloatArray:
    """One unit-length indicator column per class, (N, K)."""
    indicator = np.equal.outer(y, np.arange(n_labels)).astype(np.float64)
    return indicator / np.sqrt(np.maximum(indicator.sum(axis=0), 1.0))


def discriminant_scores(design: Design, Y: FloatArray, n_scores: int) -> FloatArray:
    """Projections of the samples onto the leading shrunken discriminant directions.

    With Y from :func:`label_indicators` these are those of linear discriminant analysis (optimal
    scoring: the eigenvectors of between- against within-class scatter are those of between-class
    against total scatter); with real targets (N, K), those of a ridge-regularised reduced-rank
    regression. (N, min(n_scores, K)), with zero columns beyond the rank.
    """
    Y = Y - Y.mean(axis=0)
    # Variance for which a ridge penalty of 1 gives this shrinkage.
    variance = design.mean_eigenvalue * SHRINKAGE / (1.0 - SHRINKAGE)
    fitted = design.ridge(Y, np.ones((1, 1)), variance).fitted
    _, _, directions = np.linalg.svd(Y.T @ fitted)
    return fitted @ directions[:n_scores].T


def standardise(scores: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1; constant columns become 0."""
    centred = scores - scores.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 1e-10 * scale.max(initial=0.0), scale, np.inf)
