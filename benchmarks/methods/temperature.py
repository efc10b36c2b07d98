r"""Temperature scaling: calibrated class probabilities from class scores.

:math:`p = \operatorname{softmax}(f / T)` with T fitted to held-out samples calibrates the class
scores f of a margin classifier, whose scale is arbitrary, without changing their ranking [1]_.

References
----------
.. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger (2017). On calibration of modern neural
       networks. ICML.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

# One pseudo-sample, spread evenly over samples and classes, keeps T positive if all held-out
# samples are classified correctly.
PSEUDO_SAMPLES = 1.0
# T stays within this factor of the spread of the class scores.
RANGE = 1e4


def fit_temperature(scores: np.ndarray, y: np.ndarray) -> float:
    r"""T that minimises the log loss of softmax(scores / T), (N, K), of class indices y (N,).

    The loss is convex in 1/T, with a gradient of
    :math:`\sum_n \{ \sum_c p_{nc} f_{nc} - \sum_c q_{nc} f_{nc} \}`, where q is the one-hot label
    mixed with the uniform distribution, by ``PSEUDO_SAMPLES`` samples in total. A single column is
    of class 1 against class 0. T is 1 if the class scores of every sample are equal.
    """
    if scores.shape[1] == 1:
        scores = np.column_stack([np.zeros(len(scores)), scores])
    n = len(scores)
    centred = scores - scores.mean(axis=1, keepdims=True)
    spread = float(np.sqrt(np.mean(centred**2))) if n else 0.0
    if spread == 0.0:
        return 1.0
    centred = centred / spread
    # The uniform part of q vanishes, since scores are centred.
    labelled = n / (n + PSEUDO_SAMPLES) * centred[np.arange(n), y].sum()

    def gradient(log_inverse: float) -> float:
        p = softmax(np.exp(log_inverse) * centred, axis=1)
        return float(np.vdot(p, centred)) - labelled

    low = -np.log(RANGE)
    high = np.log(RANGE)
    if gradient(low) >= 0.0:  # no better than chance
        return spread * RANGE
    if gradient(high) <= 0.0:
        return spread / RANGE
    inverse = float(np.exp(brentq(gradient, low, high, xtol=1e-10)))
    return spread / inverse
