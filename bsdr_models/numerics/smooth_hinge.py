r"""Compiled sums of the smoothed hinge over rows and labels.

With a sign y (zero where there is no label), a score f and :math:`u = 1 - y f`,

.. math::
    u + D, \qquad D = \sqrt{u^2 + s},

is :math:`2 \max(0, u)` but for the rounding of its corner by s.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from bsdr_models.arrays import FloatArray

# D is never below this: a row exactly on its margin, of a label without weights.
TINY_WIDTH = 1e-150
# Infinities and NaN stay what they are: a search may ask at points where scores overflow.
_FLAGS = {"contract", "nsz", "arcp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge:
    """Sums over the labelled entries, and slopes. N rows, K labels.

    total
        Sum of u + D.
    slope
        y (1 + u / D), (N, K): minus the derivative of the sum by each score.
    inverse_width
        Sum over rows of 1 / D, (K,).
    """

    total: float
    slope: FloatArray
    inverse_width: FloatArray


def smooth_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """One pass over scores and signs.

    Parameters
    ----------
    scores : (N, K)
        Overwritten by the slope, where it is contiguous.
    Y : (N, K)
        Signs; 0 where there is no label.
    square : (K,)
        s.
    """
    slope = np.ascontiguousarray(scores, np.float64)
    inverse_width, total = np.zeros(len(square)), np.zeros(len(square))
    _pass(slope, np.ascontiguousarray(Y, np.float64), square, inverse_width, total)
    return Hinge(total=float(total.sum()), slope=slope, inverse_width=inverse_width)


@njit(cache=True, fastmath=_FLAGS, error_model="numpy")
def _pass(
    scores: FloatArray,
    Y: FloatArray,
    square: FloatArray,
    inverse_width: FloatArray,
    total: FloatArray,
) -> None:
    """Turn ``scores`` into slopes, and add to the last two, (K,)."""
    for n in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            y = Y[n, c]
            gap = 1.0 - y * scores[n, c]
            width = max(np.sqrt(gap * gap + square[c]), TINY_WIDTH)
            inverse = 1.0 / width
            scores[n, c] = y * (1.0 + gap * inverse)
            total[c] += y * y * (gap + width)
            inverse_width[c] += y * y * inverse
