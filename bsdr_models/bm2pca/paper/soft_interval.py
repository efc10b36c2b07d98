r"""A normal class score times a pseudo-likelihood that is flat on an interval.

.. math::
    \phi(f) = e^{-2 C \max(0,\; a - f,\; f - b)}, \qquad f \sim N(m, s^2)

is the hinge loss of a label (a = 1, b infinite; mirrored for the other sign), the
epsilon-insensitive loss of a real target, or 1 without target. With R(x) = Phi(-x) exp(x**2 / 2),

.. math::
    E[\phi] = e^{-\alpha^2/2} R(2Cs - \alpha) + [\Phi(-\beta) - \Phi(\alpha)]
        + e^{-\beta^2/2} R(2Cs - \beta), \qquad
    \alpha = (a - m) / s, \quad \beta = (m - b) / s .

This neither overflows nor cancels for means far outside or large 2 C s.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri_exp

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics._argmax_kernel import DENOMINATOR, NUMERATOR
from bsdr_models.numerics.compiled import njit

_FAR = 1e6  # beyond it R(x) is 1 / (x sqrt(2 pi)) to rounding
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


def log_mean(
    mean: ArrayLike, sd: ArrayLike, lower: ArrayLike, upper: ArrayLike, cost: ArrayLike
) -> FloatArray:
    """Log of E[phi(f)], f ~ N(mean, sd**2), for each element; the arguments broadcast.

    Parameters
    ----------
    mean, sd : array-like
        m and s > 0.
    lower, upper : array-like
        a <= b; may be infinite.
    cost : array-like
        C > 0.
    """
    arrays = np.broadcast_arrays(mean, sd, lower, upper, cost)
    return _log_means(*_flat(arrays)).reshape(arrays[0].shape)


def draw_soft_interval(
    mean: ArrayLike,
    sd: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    cost: ArrayLike,
    *,
    rng: np.random.Generator,
) -> FloatArray:
    """One draw of f from N(mean, sd**2) times phi, normalised; arguments as for `log_mean`.

    A piece is drawn by its mass, then f from a truncated normal with mean shifted by 2 C s**2.
    """
    arrays = np.broadcast_arrays(mean, sd, lower, upper, cost)
    mean, sd, lower, upper, cost = arrays
    masses = _log_masses(*_flat(arrays)).reshape(3, *mean.shape)
    piece = np.argmax(masses - np.log(rng.standard_exponential(masses.shape)), axis=0)
    ends = np.stack([np.full(mean.shape, -np.inf), lower, upper, np.full(mean.shape, np.inf)])
    low, high = np.take_along_axis(ends, np.stack([piece, piece + 1]), axis=0)
    shift = 2.0 * cost * sd * (1.0 - piece)
    standard = _truncated_normal((low - mean) / sd - shift, (high - mean) / sd - shift, rng)
    return np.clip(mean + sd * (standard + shift), low, high)


def _truncated_normal(low: FloatArray, high: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Truncated standard normals, by inversion on the log scale in the nearer tail."""
    mirrored = low > 0.0
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    fall = rng.standard_exponential(low.shape)
    log_rank = np.logaddexp(log_ndtr(high) - fall, log_ndtr(low) + np.log(-np.expm1(-fall)))
    found = np.clip(ndtri_exp(np.minimum(log_rank, 0.0)), low, high)
    return np.where(mirrored, -found, found)


def _flat(
    arrays: tuple[np.ndarray, ...],
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    m, s, a, b, c = (np.ascontiguousarray(array, dtype=np.float64).ravel() for array in arrays)
    return m, s, a, b, c


@njit(cache=True, error_model="numpy")
def _log_masses(
    mean: FloatArray, sd: FloatArray, lower: FloatArray, upper: FloatArray, cost: FloatArray
) -> FloatArray:
    """Log of E[phi; below], E[phi; inside] and E[phi; above], (3, M)."""
    out = np.empty((3, mean.size))
    for i in range(mean.size):
        low, high = (lower[i] - mean[i]) / sd[i], (upper[i] - mean[i]) / sd[i]
        rate = 2.0 * cost[i] * sd[i]
        out[0, i] = _log_outside(low, rate)
        out[1, i] = _log_inside(low, high)
        out[2, i] = _log_outside(-high, rate)
    return out


@njit(cache=True, error_model="numpy")
def _log_means(
    mean: FloatArray, sd: FloatArray, lower: FloatArray, upper: FloatArray, cost: FloatArray
) -> FloatArray:
    masses = _log_masses(mean, sd, lower, upper, cost)
    out = np.empty(mean.size)
    for i in range(mean.size):
        top = max(masses[0, i], masses[1, i], masses[2, i])
        total = 0.0
        for j in range(3):
            if masses[j, i] > -np.inf:
                total += math.exp(masses[j, i] - top)
        out[i] = top + math.log(total)
    return out


@njit(cache=True, error_model="numpy")
def _log_outside(edge: float, rate: float) -> float:
    """Log mass of the exponential tail beyond an edge, in standard deviations from the mean."""
    if edge == -np.inf:
        return -np.inf
    x = rate - edge
    if x >= 0.0:
        return -0.5 * edge * edge + math.log(_ratio(x))
    return rate * (0.5 * rate - edge) + _log_tail(x)


@njit(cache=True, error_model="numpy")
def _log_inside(low: float, high: float) -> float:
    """Log of Phi(high) - Phi(low)."""
    if low == -np.inf or high == np.inf:
        return _log_tail(low) if high == np.inf else _log_tail(-high)
    if low < 0.0 < high:
        return math.log1p(-math.exp(_log_tail(-low)) - math.exp(_log_tail(high)))
    near, far = (low, high) if low >= 0.0 else (-high, -low)
    top = _log_tail(near)
    return top + math.log1p(-math.exp(_log_tail(far) - top))


@njit(cache=True, error_model="numpy")
def _log_tail(x: float) -> float:
    """Log of Phi(-x)."""
    if x == np.inf:
        return -np.inf
    if x >= 0.0:
        return -0.5 * x * x + math.log(_ratio(x))
    return math.log1p(-math.exp(-0.5 * x * x) * _ratio(-x))


@njit(cache=True, error_model="numpy")
def _ratio(x: float) -> float:
    """R(x) for x >= 0."""
    if x > _FAR:
        return _INV_SQRT_2PI / x
    above, below = 0.0, 0.0
    for i in range(len(NUMERATOR) - 1, -1, -1):
        above = above * x + NUMERATOR[i]
    for i in range(len(DENOMINATOR) - 1, -1, -1):
        below = below * x + DENOMINATOR[i]
    return above / below
