r"""Compiled moments over the argmax region, by the trapezoidal rule.

The integrals of :mod:`bsdr_models.numerics._argmax_kernel` with all beta equal to one,

.. math::
    f(u) = -u^2/2 + \sum_j \log \Phi(u + d_j),

by the trapezoidal rule, which converges exponentially for entire integrands. On an equispaced grid
the exponentials follow a recurrence: with :math:`e_q = \exp(-a_q^2/2)` and :math:`a_{q+1} = a_q +
\delta`

.. math::
    e_{q+1} = e_q g_q, \qquad g_{q+1} = g_q e^{-\delta^2}, \qquad
    g_0 = e^{-\delta (a_0 + \delta/2)},

two products instead of an exponential, with a rounding error of about 1e-14.

The integrand is skewed: to the left of the mode all factors decrease, to the right none. Each end
of the range is therefore bounded separately, where f is at least ``drop`` nats below its peak: on
the left by the curvature at the mode, which increases there, on the right by
:math:`f(u) \le -u^2/2`.
"""

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics._argmax_kernel import (
    _INV_SQRT_2PI,
    _OPTIONS,
    BLOCK,
    _centre,
    _exp,
    _start,
    _tail_ratio,
)
from bsdr_models.numerics.compiled import njit

# Half a square beyond which an exponential is set to zero: nodes that matter are out of reach.
_GONE = 300.0


@njit(**_OPTIONS)
def _spread(
    d: FloatArray,
    u: FloatArray,
    n_nodes: int,
    drop: float,
    bell: FloatArray,
    ratio: FloatArray,
    work: FloatArray,
) -> None:
    """First node and step of each sample, and initial values of the recurrences."""
    slope, curvature, value, log_r = work[0], work[1], work[2], work[3]
    step, at, shrink = work[5], work[6], work[9]
    width = np.sqrt(2.0 * drop)
    for b in range(BLOCK):
        u[b] -= slope[b] / curvature[b]  # a free Newton step from the last evaluation
        left = width / np.sqrt(-curvature[b])
        end = np.sqrt(2.0 * max(drop - value[b] + log_r[b], 0.0))
        end = max(min(end, u[b] + width), u[b] + left)
        at[b] = u[b] - left
        step[b] = (end - at[b]) / (n_nodes - 1)
        shrink[b] = _exp(-step[b] * step[b])
    for j in range(d.shape[0]):
        for b in range(BLOCK):
            a = at[b] + d[j, b]
            half = 0.5 * a * a
            bell[j, b] = _exp(-min(half, _GONE)) if half < _GONE else 0.0
            ratio[j, b] = _exp(min(max(-step[b] * (a + 0.5 * step[b]), -690.0), 690.0))


@njit(**_OPTIONS)
def _integrate(
    d: FloatArray,
    n_nodes: int,
    with_hazard: bool,
    hazard: FloatArray,
    h: FloatArray,
    inverse: FloatArray,
    bell: FloatArray,
    ratio: FloatArray,
    work: FloatArray,
) -> None:
    """One block: total weight of the nodes and optionally ``hazard`` = E_f[h] (K - 1, BLOCK)."""
    n_others = d.shape[0]
    value, product, step, at = work[2], work[4], work[5], work[6]
    exponent, total, shrink = work[7], work[8], work[9]
    for b in range(BLOCK):
        total[b] = 0.0
    for j in range(n_others):
        for b in range(BLOCK):
            hazard[j, b] = 0.0
    for _ in range(n_nodes):
        for b in range(BLOCK):
            exponent[b] = -0.5 * at[b] * at[b] - value[b]
            product[b] = 1.0
        for j in range(n_others):
            for b in range(BLOCK):
                # As in `_factor`, with the exponential from the recurrence.
                a, e = at[b] + d[j, b], bell[j, b]
                p, q = _tail_ratio(abs(a))
                r = q / (p if a < 0.0 else q - e * p)
                exponent[b] += -0.5 * a * a if a < 0.0 else 0.0
                product[b] *= r * inverse[j, b]
                h[j, b] = r if a < 0.0 else r * e
                bell[j, b] = e * ratio[j, b]
                ratio[j, b] *= shrink[b]
        for b in range(BLOCK):
            weight = _exp(min(max(exponent[b], -690.0), 690.0)) / product[b]
            product[b] = weight
            total[b] += weight
            at[b] += step[b]
        if with_hazard:
            for j in range(n_others):
                for b in range(BLOCK):
                    hazard[j, b] += product[b] * h[j, b]
    for j in range(n_others):
        for b in range(BLOCK):
            hazard[j, b] *= _INV_SQRT_2PI / total[b]


@njit(**_OPTIONS)
def argmax_moments(
    eta: FloatArray,
    y: IntArray,
    n_nodes: int,
    drop: float,
    warm: bool,
    with_mean: bool,
    log_prob: FloatArray,
    mean: FloatArray,
    mode: FloatArray,
) -> None:
    """Fill ``log_prob`` (N,), optionally ``mean`` (N, K), and ``mode`` (N,), read if ``warm``."""
    n_samples, n_labels = eta.shape
    n_others = n_labels - 1
    shape = (n_others, BLOCK)
    d, beta, hazard = np.zeros(shape), np.ones(shape), np.zeros(shape)
    h, inverse, work = np.zeros(shape), np.zeros(shape), np.zeros((10, BLOCK))
    bell, ratio, u = np.zeros(shape), np.zeros(shape), np.zeros(BLOCK)
    value, log_r, step, total = work[2], work[3], work[5], work[8]
    for first in range(0, n_samples, BLOCK):
        size = min(BLOCK, n_samples - first)  # the last block is padded with old samples
        for b in range(size):
            row = first + b
            for j in range(n_others):
                d[j, b] = eta[row, y[row]] - eta[row, j + (j >= y[row])]
        _start(d, beta, u)
        if warm:
            for b in range(size):
                u[b] = mode[first + b]
        _centre(d, beta, u, inverse, work)
        _spread(d, u, n_nodes, drop, bell, ratio, work)
        _integrate(d, n_nodes, with_mean, hazard, h, inverse, bell, ratio, work)
        for b in range(size):
            row = first + b
            log_prob[row] = value[b] - log_r[b] + np.log(_INV_SQRT_2PI * step[b] * total[b])
            mode[row] = u[b]
            if with_mean:
                sum_of_hazards = 0.0
                for j in range(n_others):
                    other = j + (j >= y[row])
                    mean[row, other] = eta[row, other] - hazard[j, b]
                    sum_of_hazards += hazard[j, b]
                mean[row, y[row]] = eta[row, y[row]] + sum_of_hazards
