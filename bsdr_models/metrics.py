"""Calibration of class probabilities, beside what scikit-learn's metrics already give."""

import numpy as np
from numpy.typing import ArrayLike


def expected_calibration_error(
    probability: ArrayLike, y_index: ArrayLike, *, n_bins: int = 10
) -> float:
    """Mean gap between how sure the predictions are and how often they are right.

    Rows are put into bins of equal width by the probability of their most probable class.

    Parameters
    ----------
    probability : array-like of shape (n_samples, n_classes)
    y_index : array-like of shape (n_samples,)
        Column of the true class.
    n_bins : int

    Returns
    -------
    float
        Between 0 and 1.
    """
    probability = np.asarray(probability)
    sure = probability.max(axis=1)
    right = probability.argmax(axis=1) == np.asarray(y_index)
    bins = np.minimum((sure * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(bins, weights=sure - right, minlength=n_bins)
    return float(np.abs(gap).sum() / len(sure))
