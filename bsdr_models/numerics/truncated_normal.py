r"""Draws of one-sided truncated normals of unit variance, accurate arbitrarily far in the tail.

x ~ N(mean, 1) given x > bound (*above*) or x < bound (*below*), by inversion of the distribution
function on the log scale, :math:`\Phi^{-1}(U \Phi(\text{bound} - \text{mean}))` with -log U
exponential. For their moments see :mod:`bsdr_models.numerics.normal_tail`.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri_exp

from bsdr_models.arrays import FloatArray

# Lower bound of the exponential variate: zero would give an infinite draw.
_TINY = 1e-300


def draw_above(mean: ArrayLike, bound: ArrayLike, *, rng: np.random.Generator) -> FloatArray:
    """One draw of x ~ N(mean, 1) given x > bound for each element; the arguments broadcast."""
    return -draw_below(np.negative(mean), np.negative(bound), rng=rng)


def draw_below(mean: ArrayLike, bound: ArrayLike, *, rng: np.random.Generator) -> FloatArray:
    """One draw of x ~ N(mean, 1) given x < bound for each element; the arguments broadcast."""
    log_cdf = log_ndtr(np.subtract(bound, mean))
    fall = np.maximum(rng.standard_exponential(np.shape(log_cdf)), _TINY)
    draw = np.add(mean, ndtri_exp(log_cdf - fall))
    return np.minimum(draw, np.nextafter(bound, -np.inf))
