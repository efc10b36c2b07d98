"""Weights of a mixture of predictive distributions by their log score."""

import numpy as np

from bsdr_models.typing import FloatArray

# Updates of the weights at most, each of which raises the concave log score, and the change of a
# weight that ends them. A weight whose optimum is 0 shrinks geometrically, so it takes many.
MAX_UPDATES, TOL = 3000, 1e-9
# Smaller weights are dropped: they change no digit that is read, and cost a prediction each.
NEGLIGIBLE = 1e-4


def stack_weights(log_prob: FloatArray) -> FloatArray:
    """Weights w on the simplex that maximise the mean of log sum_m w_m p_mn.

    Parameters
    ----------
    log_prob : (C, N)
        Log probability that candidate m gave to what happened in row n, out of sample.

    Returns
    -------
    (C,)

    References
    ----------
    Y. Yao, A. Vehtari, D. Simpson, A. Gelman (2018). Using stacking to average Bayesian
    predictive distributions. Bayesian Analysis 13(3).
    """
    prob = np.exp(log_prob - log_prob.max(axis=0))
    weights = np.full(len(prob), 1.0 / len(prob))
    for _ in range(MAX_UPDATES):
        previous = weights
        weights = weights * np.mean(prob / (weights @ prob), axis=1)
        if np.abs(weights - previous).max() < TOL:
            break
    weights[weights < NEGLIGIBLE] = 0.0
    return weights / weights.sum()
