r"""Compiled integrals of a normal density times a product of normal distribution functions.

Every integral over the argmax region is of the form

.. math::
    Z = \int e^{f(u)} \frac{du}{\sqrt{2\pi}}, \qquad
    f(u) = -u^2/2 + \sum_j \log \Phi(\beta_j u + d_j), \qquad
    E_f[h_j] = E_f[\phi(\beta_j u + d_j) / \Phi(\beta_j u + d_j)],

with f concave and f'' <= -1. A Gauss-Hermite rule is centred at the mode of f and scaled with
(-f'')^{-1/2}: a rule fixed at the origin misses the mass of samples whose class is unlikely.
If all beta are one, :mod:`bsdr_models.numerics._argmax_moments` uses the trapezoidal rule instead.

The inner loops run over ``BLOCK`` samples; an element takes one division and one exponential, and
the compiler vectorises them because calls are inlined and branches are selections. No array of size
samples x classes x nodes is stored, and no logarithm is taken at the nodes: the product of the
factors relative to their values at the centre is of order one.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.compiled import njit

BLOCK = 64
# Without reassociation, which would cancel the rounding trick of ``_exp``. Infinities and NaN never
# occur: callers check their input.
_FLAGS = {"contract", "nnan", "ninf", "nsz", "arcp"}
_OPTIONS: dict[str, Any] = {"cache": True, "fastmath": _FLAGS, "error_model": "numpy"}

# erfcx(x / sqrt 2) / 2 = P(x) / Q(x) on all of [0, inf), with positive coefficients (lowest power
# first) and a relative error below 5e-14: equality at the 18 points x = 4 (1 + t) / (1 - t) with
# t the Chebyshev points, Q(0) = 1. The tests derive them again.
NUMERATOR = (
    0.5000000000000138,
    0.7533001865758359,
    0.5568470950231781,
    0.2585671470749526,
    0.08183061942365916,
    0.018049656702953176,
    0.0027211127332368128,
    0.0002591337105859339,
    1.2222821344683534e-05,
)
DENOMINATOR = (
    1.0,
    2.3044849339589257,
    2.4524071393436193,
    1.587591141810589,
    0.6920764410283181,
    0.21187848536095263,
    0.04589333173830674,
    0.006851456185076748,
    0.0006495518858649808,
    3.063806957834696e-05,
)

_INV_SQRT_2PI = 0.3989422804014327
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693147180369123816490  # 32 leading bits: n * _LN2_HIGH is exact
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer in the low bits
_MAX_NEWTON = 60
# A rule narrower than the curvature at the mode has five to forty times smaller errors (K = 5, 10;
# 32 nodes), since the curvature varies with the number of active factors.
_NARROWING = 0.875
_CENTRED = 0.05  # distance from the mode, in units of the scale, at which Newton may stop


@intrinsic
def _read_float(typingctx: Any, bits: Any) -> Any:
    """Read the bits of an int64 as a float64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def _read_bits(typingctx: Any, value: Any) -> Any:
    """Read the bits of a float64 as an int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@njit(forceinline=True, **_OPTIONS)
def _exp(x: float) -> float:
    """Compute exp(x) for |x| < 700 without a branch or a call, so that loops vectorise."""
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW  # |r| <= ln(2)/2
    p = 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _read_float((_read_bits(shifted) + 1023) << 52)  # type: ignore[call-arg]


@njit(forceinline=True, **_OPTIONS)
def _tail_ratio(x: float) -> tuple[float, float]:
    """P(x) and Q(x), x >= 0."""
    p = NUMERATOR[8]
    p = p * x + NUMERATOR[7]
    p = p * x + NUMERATOR[6]
    p = p * x + NUMERATOR[5]
    p = p * x + NUMERATOR[4]
    p = p * x + NUMERATOR[3]
    p = p * x + NUMERATOR[2]
    p = p * x + NUMERATOR[1]
    p = p * x + NUMERATOR[0]
    q = DENOMINATOR[9]
    q = q * x + DENOMINATOR[8]
    q = q * x + DENOMINATOR[7]
    q = q * x + DENOMINATOR[6]
    q = q * x + DENOMINATOR[5]
    q = q * x + DENOMINATOR[4]
    q = q * x + DENOMINATOR[3]
    q = q * x + DENOMINATOR[2]
    q = q * x + DENOMINATOR[1]
    q = q * x + DENOMINATOR[0]
    return p, q


@njit(forceinline=True, **_OPTIONS)
def _factor(a: float) -> tuple[float, float, float]:
    r"""One normal distribution function: (r, log_part, h) with h = sqrt(2 pi) phi(a) / Phi(a).

    log Phi(a) = log_part - log r, where log_part = -a^2/2 if a < 0, else 0.
    """
    p, q = _tail_ratio(abs(a))
    half = 0.5 * a * a
    e = _exp(-min(half, 300.0))  # products of denormals would be slow
    r = q / (p if a < 0.0 else q - e * p)
    return r, (-half if a < 0.0 else 0.0), (r if a < 0.0 else r * e)


@njit(**_OPTIONS)
def _centre(
    d: FloatArray, beta: FloatArray, u: FloatArray, inverse: FloatArray, work: FloatArray
) -> None:
    """Newton's method for the modes, from ``u``; it converges, as f' is convex and decreasing.

    On return ``u`` is the last point of evaluation; ``inverse`` holds 1 / r of each factor there,
    and ``work`` f', f'', f without its logarithms, and the sum of log r.
    """
    n_others = d.shape[0]
    slope, curvature, value, log_r, product = work[0], work[1], work[2], work[3], work[4]
    for _ in range(_MAX_NEWTON):
        for b in range(BLOCK):
            slope[b] = -u[b]
            curvature[b] = -1.0
            value[b] = -0.5 * u[b] * u[b]
        for j in range(n_others):
            for b in range(BLOCK):
                a = beta[j, b] * u[b] + d[j, b]
                r, log_part, h = _factor(a)
                h *= _INV_SQRT_2PI
                slope[b] += beta[j, b] * h
                # 0 < h (a + h) < 1, but cancels for a << 0.
                curvature[b] -= beta[j, b] * beta[j, b] * min(max(h * (a + h), 0.0), 1.0)
                value[b] += log_part
                inverse[j, b] = 1.0 / r
        moved = 0
        for b in range(BLOCK):  # a centred sample stays, so that none depends on its block
            if slope[b] * slope[b] > -curvature[b] * _CENTRED**2:
                u[b] -= slope[b] / curvature[b]
                moved += 1
        if moved == 0:
            break
    for b in range(BLOCK):
        log_r[b] = 0.0
    for first in range(0, n_others, 16):  # products of 16 factors cannot leave the range
        for b in range(BLOCK):
            product[b] = 1.0
        for j in range(first, min(first + 16, n_others)):
            for b in range(BLOCK):
                product[b] *= inverse[j, b]
        for b in range(BLOCK):
            log_r[b] -= np.log(product[b])


@njit(**_OPTIONS)
def _integrate(
    d: FloatArray,
    beta: FloatArray,
    u: FloatArray,
    nodes: FloatArray,
    log_weights: FloatArray,
    log_z: FloatArray,
    inverse: FloatArray,
    work: FloatArray,
) -> None:
    """One block: ``log_z`` (BLOCK,), with the search for the mode started at ``u`` (BLOCK,)."""
    _centre(d, beta, u, inverse, work)
    slope, curvature, value, log_r, product = work[0], work[1], work[2], work[3], work[4]
    scale, at, exponent, total = work[5], work[6], work[7], work[8]
    for b in range(BLOCK):
        u[b] -= slope[b] / curvature[b]  # a free Newton step from the last evaluation
        scale[b] = _NARROWING / np.sqrt(-curvature[b])
        total[b] = 0.0
    for q in range(nodes.shape[0]):
        for b in range(BLOCK):
            at[b] = u[b] + scale[b] * nodes[q]
            exponent[b] = log_weights[q] - 0.5 * at[b] * at[b] - value[b]
            product[b] = 1.0
        for j in range(d.shape[0]):
            for b in range(BLOCK):
                r, log_part, _ = _factor(beta[j, b] * at[b] + d[j, b])
                exponent[b] += log_part
                product[b] *= r * inverse[j, b]
        for b in range(BLOCK):
            total[b] += _exp(min(max(exponent[b], -690.0), 690.0)) / product[b]
    for b in range(BLOCK):
        log_z[b] = value[b] - log_r[b] + np.log(scale[b] * total[b])


@njit(**_OPTIONS)
def _start(d: FloatArray, beta: FloatArray, u: FloatArray) -> None:
    """Initial values: the mode for the worst class alone, far in its tail."""
    for b in range(BLOCK):
        u[b] = 0.0
    for j in range(d.shape[0]):
        for b in range(BLOCK):
            u[b] = max(u[b], -beta[j, b] * d[j, b] / (1.0 + beta[j, b] * beta[j, b]))


@njit(**_OPTIONS)
def label_log_probs(
    mean: FloatArray,
    sd: FloatArray,
    nodes: FloatArray,
    log_weights: FloatArray,
    log_prob: FloatArray,
) -> None:
    """Fill ``log_prob`` (M, K): each class by a rule centred at the mode of its own integrand."""
    n_samples, n_labels = mean.shape
    n_others = n_labels - 1
    shape = (n_others, BLOCK)
    d, beta = np.zeros(shape), np.ones(shape)
    inverse, work = np.zeros(shape), np.zeros((9, BLOCK))
    u, log_z = np.zeros(BLOCK), np.zeros(BLOCK)
    for first in range(0, n_samples, BLOCK):
        size = min(BLOCK, n_samples - first)
        for c in range(n_labels):
            for b in range(size):
                row = first + b
                for j in range(n_others):
                    other = j + (j >= c)
                    d[j, b] = (mean[row, c] - mean[row, other]) / sd[row, other]
                    beta[j, b] = sd[row, c] / sd[row, other]
            _start(d, beta, u)
            _integrate(d, beta, u, nodes, log_weights, log_z, inverse, work)
            for b in range(size):
                log_prob[first + b, c] = log_z[b]
