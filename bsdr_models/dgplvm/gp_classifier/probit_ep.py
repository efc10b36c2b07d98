r"""Compiled sweeps of expectation propagation for a probit classifier of features [1]_.

The site of a sample is set such that the posterior with the site has the same mean and variance as
that with the true factor. Sites are updated sequentially, each with a rank-one update of the
covariance of the weights. The updates of a block of samples are applied together, as matrix
products: until then only the columns of the covariance that the block needs are kept up to date.

References
----------
.. [1] C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning.
       Algorithm 3.5.
"""

import math
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.compiled import njit

# Sums may be reordered, so that loops are vectorised.
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
}

# Samples whose rank-one updates are applied together.
_BLOCK = 16
# Damping of the next step after a sweep that changes sites by more than the one before it.
_SHORTER = 0.5
_LEAST_STEP = 0.1
# Below it the hazard is a continued fraction of this many terms.
_FAR, _TERMS = -5.0, 60


@njit(**_OPTIONS)
def hazard(a: float) -> tuple[float, float]:
    """h = phi(a) / Phi(a), and h + a without cancellation."""
    if a > _FAR:
        h = 0.7978845608028654 * math.exp(-0.5 * a * a) / math.erfc(-a * 0.7071067811865476)
        return h, h + a
    x = -a
    tail = x
    for k in range(_TERMS, 1, -1):
        tail = x + k / tail
    return x + 1.0 / tail, 1.0 / tail


@njit(**_OPTIONS)
def _matched(sign: float, mean: float, variance: float, S: float, nu: float) -> tuple[float, float]:
    """Precision and location of the moment-matched site, from marginal and old site."""
    left = 1.0 - variance * S
    s2 = variance / left  # the cavity
    mu = (mean - variance * nu) / left
    inverse_sd = 1.0 / math.sqrt(1.0 + s2)
    h, distance = hazard(sign * mu * inverse_sd)
    slope = sign * h * inverse_sd
    bend = h * distance * inverse_sd * inverse_sd
    new_S = bend / (1.0 - s2 * bend)
    return new_S, new_S * (mu + s2 * slope) + slope


@njit(**_OPTIONS)
def sweep_weights(
    features: FloatArray,
    sign: FloatArray,
    S: FloatArray,
    nu: FloatArray,
    covariance: FloatArray,
    weights: FloatArray,
    before: float,
    step: float,
    tol: float,
    most: int,
) -> tuple[int, float, float]:
    """Update all sites in up to ``most`` sweeps, for a posterior of M weights.

    Features are (N, M), signs +1 or -1; sites S and nu (N,), covariance (M, M) and mean of the
    weights are changed in place. ``step`` is the share of a moment-matching update that is made,
    and ``before`` the change of the sweep before the first. Returned are the number of sweeps, the
    largest change of a marginal in the last one, of its mean in standard deviations and of its log
    variance, and the step.
    """
    n_features = features.shape[1]
    shrinks = np.empty(_BLOCK)
    for sweep in range(most):
        largest = 0.0
        for start in range(0, len(sign), _BLOCK):
            rows = features[start : start + _BLOCK]
            columns = np.dot(rows, covariance)
            for b in range(len(rows)):
                i, row, column = start + b, rows[b], columns[b]
                for a in range(b):  # updates of this block
                    shared = 0.0
                    for k in range(n_features):
                        shared += columns[a, k] * row[k]
                    shared *= shrinks[a]
                    for k in range(n_features):
                        column[k] -= shared * columns[a, k]
                variance, m = 0.0, 0.0
                for k in range(n_features):
                    variance += column[k] * row[k]
                    m += weights[k] * row[k]
                new_S, new_nu = _matched(sign[i], m, variance, S[i], nu[i])
                d_S, d_nu = step * (new_S - S[i]), step * (new_nu - nu[i])
                S[i] += d_S
                nu[i] += d_nu
                shift = (d_nu - d_S * m) / (1.0 + d_S * variance)
                shrinks[b] = d_S / (1.0 + d_S * variance)
                largest = max(largest, abs(shift) * math.sqrt(variance), abs(d_S) * variance)
                for k in range(n_features):
                    weights[k] += shift * column[k]
            scaled = columns.copy()
            for b in range(len(rows)):
                for k in range(n_features):
                    scaled[b, k] *= shrinks[b]
            covariance -= np.dot(scaled.T, columns)
        if largest > before:
            step = max(_SHORTER * step, _LEAST_STEP)
        before = largest
        if largest <= tol:
            return sweep + 1, largest, step
    return most, before, step
