"""Supervised and unsupervised directions that a fit can start from."""

import numpy as np

from bsdr_models.numerics.design import Design
from bsdr_models.numerics.gram_design import GramDesign, SpectralGramDesign
from bsdr_models.typing import FloatArray, IntArray

# Share of an isotropic matrix in the covariance that whitens the features.
SHRINKAGE = 0.1


def label_indicators(y: IntArray, n_labels: int) -> FloatArray:
    """One column per class, each of unit length: (N, K)."""
    indicator = np.equal.outer(y, np.arange(n_labels)).astype(np.float64)
    return indicator / np.sqrt(np.maximum(indicator.sum(axis=0), 1.0))


def discriminant_scores(design: Design, Y: FloatArray, n_scores: int) -> FloatArray:
    """Positions of the rows along the leading shrunken discriminant directions.

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
    fitted = design.ridge(Y, np.ones((1, 1)), _shrinkage(design.mean_eigenvalue)).fitted
    return fitted @ _leading(Y.T @ fitted, n_scores)


def discriminant_axes(
    design: GramDesign | SpectralGramDesign, cross: FloatArray, n_scores: int
) -> FloatArray:
    """The same directions from sums over rows: B with scores X @ B.

    Parameters
    ----------
    design : GramDesign or SpectralGramDesign
    cross : (D, K)
        X'Y in working coordinates of the design, for Y as above with its means taken off.
    n_scores : int

    Returns
    -------
    (D, min(n_scores, K))
    """
    shrinkage = _shrinkage(design.mean_eigenvalue)
    axes = design.ridge_from(cross, np.ones((1, 1)), shrinkage).mean
    return axes @ _leading(cross.T @ axes, n_scores)


def _shrinkage(mean_eigenvalue: float) -> float:
    """Variance with which a ridge penalty of 1 shrinks as much as is wanted."""
    return mean_eigenvalue * SHRINKAGE / (1.0 - SHRINKAGE)


def _leading(explained: FloatArray, n_scores: int) -> FloatArray:
    """Combinations of the targets that are explained best, (K, n_scores), given Y'X B."""
    _, _, directions = np.linalg.svd(explained)
    return directions[:n_scores].T


def standardise(scores: FloatArray) -> FloatArray:
    """Columns with mean 0 and standard deviation 1; columns without variation become 0."""
    centred = scores - scores.mean(axis=0)
    scale = centred.std(axis=0)
    return centred / np.where(scale > 1e-10 * scale.max(initial=0.0), scale, np.inf)
