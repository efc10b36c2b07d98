r"""One number that turns scores into calibrated class probabilities.

Scores of a margin classifier rank the classes but are on a scale of their own.
:math:`p = \operatorname{softmax}(f / T)` with T fitted to rows that were held out puts them on the
scale of log odds [1]_; the ranking stays.

References
----------
.. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger (2017). On calibration of modern neural
       networks. ICML.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from bsdr_models.arrays import FloatArray, IntArray

# One imagined row that is spread evenly over all rows and classes keeps T positive where the
# held-out rows are all classified correctly, as Laplace's rule does for a rate.
PSEUDO_SAMPLES = 1.0
# T stays within this factor of the spread of the scores, both ways.
RANGE = 1e4


def fit_temperature(scores: FloatArray, y: IntArray) -> float:
    r"""T that minimises the log loss of softmax(scores / T).

    The loss is convex in 1/T, with a slope of
    :math:`\sum_n \{ \sum_c p_{nc} f_{nc} - \sum_c q_{nc} f_{nc} \}`, where q is the label of the
    row mixed with the even distribution to the extent of ``PSEUDO_SAMPLES`` rows in all.

    Parameters
    ----------
    scores : (N, K) or (N, 1)
        Of rows that were not trained on. One column is a score of class 1 against class 0, for
        which the probability is logistic(scores / T).
    y : (N,)
        Class index.

    Returns
    -------
    float
        1 if no score differs from another of its row.
    """
    scores = both_columns(scores)
    n = len(scores)
    centred = scores - scores.mean(axis=1, keepdims=True)
    spread = float(np.sqrt(np.mean(centred**2))) if n else 0.0
    if spread == 0.0:
        return 1.0
    centred = centred / spread
    # The even part of q meets centred scores only and drops out of the slope.
    labelled = n / (n + PSEUDO_SAMPLES) * centred[np.arange(n), y].sum()

    def slope(log_inverse: float) -> float:
        p = softmax(np.exp(log_inverse) * centred, axis=1)
        return float(np.vdot(p, centred)) - labelled

    low, high = -np.log(RANGE), np.log(RANGE)
    if slope(low) >= 0.0:  # no better than chance
        return spread * RANGE
    if slope(high) <= 0.0:
        return spread / RANGE
    return spread * float(np.exp(-brentq(slope, low, high, xtol=1e-10)))


def both_columns(scores: FloatArray) -> FloatArray:
    """Scores with a column for each class: a single one becomes [0, f]."""
    if scores.shape[1] == 1:
        return np.column_stack([np.zeros(len(scores)), scores])
    return scores


def log_probabilities(scores: FloatArray, temperature: float) -> FloatArray:
    """log softmax(scores / T), (N, K); two columns for a single column of scores."""
    return np.asarray(log_softmax(both_columns(scores) / temperature, axis=1))
