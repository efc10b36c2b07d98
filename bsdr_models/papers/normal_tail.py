r"""The normal distribution function and truncated normals, accurate in both tails.

``exp`` and ``probit`` are for compiled loops: their calls are inlined and their branches are
selections, so that the compiler vectorises loops over arguments.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtri_exp

from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.compiled import njit

# Without reassociation, which would cancel the rounding trick of `exp`. Infinities and NaN never
# occur: callers check their input.
OPTIONS: dict[str, Any] = {
    "fastmath": {"contract", "nnan", "ninf", "nsz", "arcp"},
    "error_model": "numpy",
}

# erfcx(x / sqrt 2) / 2 = P(x) / Q(x) on all of [0, inf), with positive coefficients (lowest power
# first) and a relative error below 5e-14: equality at the 18 points x = 4 (1 + t) / (1 - t) with
# t the Chebyshev points, Q(0) = 1. The tests derive them again.
NUMERATOR = np.array(
    [
        0.5000000000000138,
        0.7533001865758359,
        0.5568470950231781,
        0.2585671470749526,
        0.08183061942365916,
        0.018049656702953176,
        0.0027211127332368128,
        0.0002591337105859339,
        1.2222821344683534e-05,
    ]
)
DENOMINATOR = np.array(
    [
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
    ]
)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_TAYLOR = np.array([1.0 / math.factorial(n) for n in range(12)])  # of exp
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693147180369123816490  # 32 leading bits: n * _LN2_HIGH is exact
_LN2_LOW = 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to an integer in the low bits

_FAR = 100.0  # beyond it the series of `positive_mean` is accurate to rounding
_TINY = 1e-300  # lower bound of the variate of `draw_above`: zero would give an infinite draw


@njit(forceinline=True, **OPTIONS)
def exp(x: float) -> float:
    """Compute exp(x) for |x| < 700 without a branch or a call, so that loops vectorise."""
    shifted = x * _LOG2_E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW  # |r| <= ln(2)/2
    p = _TAYLOR[11]
    for power in range(10, -1, -1):
        p = p * r + _TAYLOR[power]
    exponent = (np.float64(shifted).view(np.int64) + 1023) << 52
    return float(p * np.int64(exponent).view(np.float64))


@njit(forceinline=True, **OPTIONS)
def probit(x: float) -> tuple[float, float, float, float]:
    r"""(p, l, h, u) with Phi(x) = p exp(l), the hazard h = phi(x) / Phi(x), and u = Phi(-x)."""
    size = abs(x)
    half = 0.5 * x * x
    p = NUMERATOR[8]
    for power in range(7, -1, -1):
        p = p * size + NUMERATOR[power]
    q = DENOMINATOR[9]
    for power in range(8, -1, -1):
        q = q * size + DENOMINATOR[power]
    ratio = p / q
    bell = exp(-min(half, 300.0))  # products of denormals would be slow
    tail = ratio * bell
    part = ratio if x < 0.0 else 1.0 - tail
    return (
        part,
        -half if x < 0.0 else 0.0,
        INV_SQRT_2PI * (1.0 if x < 0.0 else bell) / part,
        1.0 - tail if x < 0.0 else tail,
    )


def inverse_mills(a: ArrayLike) -> FloatArray:
    r"""Ratio :math:`h(a) = \phi(a) / \Phi(a)`, the slope of :math:`\log \Phi`, for any finite a."""
    return np.sqrt(2.0 / np.pi) / erfcx(-np.asarray(a, dtype=np.float64) / np.sqrt(2.0))


def positive_mean(a: ArrayLike) -> FloatArray:
    r"""Mean of t ~ N(a, 1) given t > 0: :math:`a + h(a)`, without cancellation in the tail.

    Far below zero the sum loses its digits; there the asymptotic series in x = -a is used,
    :math:`x^{-1} (1 - 2 x^{-2} + 10 x^{-4} - 74 x^{-6} + \ldots)`.
    """
    a = np.asarray(a, dtype=np.float64)
    far = a < -_FAR
    z = 1.0 / np.where(far, a, -1.0) ** 2
    series = np.sqrt(z) * (1.0 + z * (-2.0 + z * (10.0 - 74.0 * z)))
    return np.where(far, series, a + inverse_mills(a))


def draw_above(mean: ArrayLike, bound: ArrayLike, *, rng: np.random.Generator) -> FloatArray:
    """One draw of x ~ N(mean, 1) given x > bound for each element; the arguments broadcast."""
    log_tail = log_ndtr(np.subtract(mean, bound))
    fall = np.maximum(rng.standard_exponential(np.shape(log_tail)), _TINY)
    draw = np.subtract(mean, ndtri_exp(log_tail - fall))
    return np.maximum(draw, np.nextafter(bound, np.inf))
