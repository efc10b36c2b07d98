r"""Compiled sums of the smoothed hinge loss over samples and labels.

With a sign y (zero if unlabelled), a class score f and :math:`u = 1 - y f`,

.. math::
    u + D, \qquad D = \sqrt{u^2 + s},

is :math:`2 \max(0, u)`, smoothed at its corner by s.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.compiled import njit

# Lower bound of D, for a sample exactly on the margin and s = 0.
TINY_WIDTH = 1e-150
# Infinities and NaN are allowed: class scores may overflow during a line search.
_FLAGS = {"contract", "nsz", "arcp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge:
    """Sums over the labelled entries, and slopes. N samples, K labels.

    total
        Sum of u + D.
    slope
        y (1 + u / D), (N, K): minus the derivative of the sum by each class score.
    inverse_width
        Sum over samples of 1 / D, (K,).
    """

    total: float
    slope: FloatArray
    inverse_width: FloatArray


def smooth_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """One pass over class scores and signs.

    Parameters
    ----------
    scores : (N, K)
        Overwritten by the slope if contiguous.
    Y : (N, K)
        Signs; 0 if unlabelled.
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
    """Replace ``scores`` by slopes, and add to the last two, (K,)."""
    for n in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            y = Y[n, c]
            gap = 1.0 - y * scores[n, c]
            width = max(np.sqrt(gap * gap + square[c]), TINY_WIDTH)
            inverse = 1.0 / width
            scores[n, c] = y * (1.0 + gap * inverse)
            total[c] += y * y * (gap + width)
            inverse_width[c] += y * y * inverse
