r"""Inverse Mills ratio, and moments of a binary probit utility."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtri_exp

from bsdr_models.arrays import FloatArray

_FAR = 100.0  # beyond it the series of `positive_mean` is accurate to rounding


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


def positive_probit_moments(eta: ArrayLike, sign: ArrayLike) -> tuple[FloatArray, FloatArray]:
    r"""Log probability and mean of t ~ N(eta, 1) given its sign.

    .. math::
        \log P(s t > 0) = \log \Phi(s \eta), \qquad E[t \mid s t > 0] = \eta + s \, h(s \eta)

    The difference E[t] - eta is the gradient of the log probability in eta.

    ``sign`` is -1 for an absent label, +1 for a present one; the arguments broadcast.
    """
    side = np.asarray(sign, dtype=np.float64)
    if not np.all(np.abs(side) == 1.0):
        raise ValueError("sign must hold +1 and -1 only")
    a = side * np.asarray(eta, dtype=np.float64)
    if not np.isfinite(a).all():
        raise ValueError("eta must be finite")
    return log_ndtr(a), side * positive_mean(a)


# Lower bound of the exponential variate: zero would give an infinite draw.
_TINY = 1e-300


def draw_above(mean: ArrayLike, bound: ArrayLike, *, rng: np.random.Generator) -> FloatArray:
    """One draw of x ~ N(mean, 1) given x > bound for each element; the arguments broadcast."""
    log_tail = log_ndtr(np.subtract(mean, bound))
    fall = np.maximum(rng.standard_exponential(np.shape(log_tail)), _TINY)
    draw = np.subtract(mean, ndtri_exp(log_tail - fall))
    return np.maximum(draw, np.nextafter(bound, np.inf))
