r"""Weights of several models by predictions of samples that their fits have not seen.

Log probabilities of M classifiers are pooled,

.. math::
    \log p(k \mid x) = \sum_m w_m \log p_m(k \mid x) - \log Z(x), \qquad w_m \ge 0 .

Weights maximise the log score of held-out samples and a prior of equal weights that is worth as
much as S samples. With v the mean information of a sample about a weight, at equal weights,

.. math::
    -\log p(w) = \frac{S v}{2} \Bigl[\sum_m \Bigl(w_m - \frac{1}{M}\Bigr)^2
    + 10 \Bigl(\sum_m w_m - 1\Bigr)^2\Bigr] .

The sum of the weights is an inverse temperature: the second term is for few held-out samples that
are all predicted well, and would make it overconfident.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from bsdr_models.numerics.arrays import FloatArray, IntArray

# Precision of the sum of the weights of a pool, in multiples of that of single ones.
OF_SUM = 10.0
# S: with fewer, weights of thirty samples follow the member that was lucky with them, even into
# confidence where there is no signal.
SHRINKAGE = 50.0


def log_pool(weights: FloatArray, log_p: FloatArray) -> FloatArray:
    """Log probabilities (..., K) of the log-linear pool of log_p (M, ..., K)."""
    return np.asarray(log_softmax(np.tensordot(weights, log_p, 1), axis=-1))


def pool_loss(
    weights: FloatArray, log_p: FloatArray, y: IntArray, precision: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Negative log posterior of weights (M,) given log_p (M, N, K), its gradient and Hessian."""
    rows = np.arange(len(y))
    shift = weights - 1.0 / len(weights)
    pooled = log_pool(weights, log_p)
    p = np.exp(pooled)
    centred = log_p - np.sum(p * log_p, axis=2, keepdims=True)
    value = float(0.5 * shift @ precision @ shift - pooled[rows, y].sum())
    gradient = precision @ shift - centred[:, rows, y].sum(axis=1)
    return value, gradient, precision + np.einsum("ink,nk,jnk->ij", centred, p, centred)


def pool_weights(
    log_p: FloatArray, y: IntArray, shrinkage: float = SHRINKAGE
) -> tuple[FloatArray, FloatArray]:
    """Weights (M,) by held-out log probabilities (M, N, K) of classes y (N,), and their errors."""
    n_members, n, _ = log_p.shape
    equal = np.full(n_members, 1.0 / n_members)
    eye = np.eye(n_members)
    information = np.trace(pool_loss(equal, log_p, y, 0.0 * eye)[2]) / n_members
    # The mean of the samples and one of unit information, which is all there is without samples.
    mean_information = (information + 1.0) / (n + 1.0)
    precision = shrinkage * mean_information * (eye + OF_SUM)
    weights = minimize(
        lambda weights: pool_loss(weights, log_p, y, precision)[:2],
        equal,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * n_members,
    ).x
    curvature = pool_loss(weights, log_p, y, precision)[2]
    return np.asarray(weights), np.sqrt(np.diag(np.linalg.inv(curvature)))
