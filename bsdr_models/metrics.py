"""Log loss and calibration error of class probabilities."""

import numpy as np
from numpy.typing import ArrayLike

from bsdr_models.numerics.arrays import FloatArray, IntArray


def expected_calibration_error(
    probability: ArrayLike, y_index: ArrayLike, *, n_bins: int = 10
) -> float:
    """Mean absolute difference between confidence and accuracy over bins.

    Samples are put into bins of equal width by the probability of their most probable class.

    Parameters
    ----------
    probability : array-like of shape (n_samples, n_classes)
        Class probabilities of the samples.
    y_index : array-like of shape (n_samples,)
        Column of the true class.
    n_bins : int
        Number of bins.

    Returns
    -------
    float
        Calibration error, between 0 and 1.

    See Also
    --------
    log_losses : scores of single samples.
    sklearn.calibration.CalibrationDisplay : the plot.

    Examples
    --------
    >>> from bsdr_models.metrics import expected_calibration_error
    >>> round(expected_calibration_error([[0.8, 0.2], [0.6, 0.4]], [0, 1]), 2)
    0.4
    """
    stated = np.asarray(probability)
    confidence = stated.max(axis=1)
    right = stated.argmax(axis=1) == np.asarray(y_index)
    bins = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    gap = np.bincount(bins, weights=confidence - right)
    return float(np.abs(gap).sum() / len(confidence))


def log_losses(probability: FloatArray, y_index: IntArray) -> FloatArray:
    """Log loss of each sample, (N,), in nats.

    As in scikit-learn's ``log_loss``, their mean, zero probabilities become the machine epsilon.

    See Also
    --------
    expected_calibration_error : of the probability of the most probable class.

    Examples
    --------
    >>> import numpy as np
    >>> from bsdr_models.metrics import log_losses
    >>> log_losses(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 0])).round(2).tolist()
    [0.69, -0.0]
    """
    given = probability[np.arange(len(y_index)), y_index]
    return -np.log(np.maximum(given, np.finfo(np.float64).eps))
