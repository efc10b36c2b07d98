"""Weights of a mixture of predictive distributions by their log score."""

import numpy as np

from bsdr_models.typing import FloatArray

# Updates of the weights; each raises the concave log score.
N_UPDATES = 300
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
    for _ in range(N_UPDATES):
        weights = weights * np.mean(prob / (weights @ prob), axis=1)
    weights[weights < NEGLIGIBLE] = 0.0
    return weights / weights.sum()
