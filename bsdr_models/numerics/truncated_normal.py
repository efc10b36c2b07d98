r"""Unit-variance normals cut on one side, exact arbitrarily far in the tail.

x ~ N(mean, 1) given x > bound (*above*) or x < bound (*below*). Everything is computed from the
logarithm of the normal distribution function, whose inverse SciPy provides (``ndtri_exp``), so
that a bound 40 standard deviations on the wrong side is as good as any other.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtri_exp

from bsdr_models.typing import FloatArray

# The smallest exponential variate that is used: zero would be drawn as an infinite normal.
_TINY = 1e-300


def hazard(x: ArrayLike) -> FloatArray:
    """Ratio phi(x) / Phi(x) of the normal density to its distribution function."""
    return np.sqrt(2.0 / np.pi) / erfcx(-np.asarray(x) / np.sqrt(2.0))


def log_prob_above(mean: ArrayLike, bound: ArrayLike) -> FloatArray:
    """Log probability that N(mean, 1) exceeds ``bound``; the arguments broadcast."""
    return log_ndtr(np.subtract(mean, bound))


def mean_above(mean: ArrayLike, bound: ArrayLike) -> FloatArray:
    """E[x | x > bound] for x ~ N(mean, 1); the arguments broadcast."""
    return np.add(mean, hazard(np.subtract(mean, bound)))


def draw_above(mean: ArrayLike, bound: ArrayLike, *, rng: np.random.Generator) -> FloatArray:
    """One draw of x ~ N(mean, 1) given x > bound for each element; the arguments broadcast."""
    return -draw_below(np.negative(mean), np.negative(bound), rng=rng)


def draw_below(mean: ArrayLike, bound: ArrayLike, *, rng: np.random.Generator) -> FloatArray:
    """One draw of x ~ N(mean, 1) given x < bound for each element; the arguments broadcast."""
    draw = np.add(mean, quantile_below(log_ndtr(np.subtract(bound, mean)), rng=rng))
    return np.minimum(draw, np.nextafter(bound, -np.inf))


def quantile_below(log_cdf: FloatArray, *, rng: np.random.Generator) -> FloatArray:
    r"""Draws of a standard normal below the point at which its log distribution is ``log_cdf``.

    :math:`\Phi^{-1}(U \Phi(x))` with U uniform, on the log scale: -log U is exponential.
    """
    fall = np.maximum(rng.standard_exponential(np.shape(log_cdf)), _TINY)
    return ndtri_exp(log_cdf - fall)
