r"""Compiled sums of smoothed hinge losses over samples.

With a sign y (zero if unlabelled), a class score f of variance s and :math:`u = 1 - y f`, the loss
of a label is

.. math::
    u + D, \qquad D = \sqrt{u^2 + s},

that is :math:`2 \max(0, u)`, smoothed at its corner by s. If classes exclude each other, the loss
of a sample of class y is the hinge of all classes [1]_,
:math:`\max_c (f_c - f_y + [c \ne y])`, smoothed by the entropy:

.. math::
    \log \sum_c \exp(f_c + [c \ne y] + s_c / 2) - f_y,

an upper bound of its mean over normal class scores by Jensen's inequality.

References
----------
.. [1] K. Crammer, Y. Singer (2001). On the algorithmic implementation of multiclass kernel-based
       vector machines. Journal of Machine Learning Research 2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.compiled import njit

# Lower bound of D, for a sample exactly on the margin and s = 0.
TINY_WIDTH = 1e-150
# Infinities and NaN are allowed: class scores may overflow during a line search.
_FLAGS = {"contract", "nsz", "arcp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge:
    """Sum over the labelled entries, and slopes. N samples, K labels."""

    total: float  # Sum of the losses
    slope: FloatArray  # Minus its derivative by each class score, (N, K)
    variance_slope: FloatArray  # Twice its derivative by s, (K,)


def smooth_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """Sum of the losses of all labels, for signs Y (N, K), 0 if unlabelled, and s (K,).

    ``scores`` (N, K) are overwritten by the slope if contiguous.
    """
    return _collect(_pass, scores, Y, square)


def multiclass_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """Sum over samples that have a class, of which one of sign 0 is no alternative."""
    return _collect(_multiclass_pass, scores, Y, square)


def _collect(one_pass: Any, scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    slope = np.ascontiguousarray(scores, np.float64)
    total, variance_slope = one_pass(slope, np.ascontiguousarray(Y, np.float64), square)
    return Hinge(total=float(total.sum()), slope=slope, variance_slope=variance_slope)


@njit(cache=True, fastmath=_FLAGS, error_model="numpy")
def _pass(scores: FloatArray, Y: FloatArray, square: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Replace ``scores`` by slopes; sums by class of losses and of variance slopes, (K,)."""
    total, variance_slope = np.zeros(len(square)), np.zeros(len(square))
    for n in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            y = Y[n, c]
            gap = 1.0 - y * scores[n, c]
            width = max(np.sqrt(gap * gap + square[c]), TINY_WIDTH)
            inverse = 1.0 / width
            scores[n, c] = y * (1.0 + gap * inverse)
            total[c] += y * y * (gap + width)
            variance_slope[c] += y * y * inverse
    return total, variance_slope


@njit(cache=True, fastmath=_FLAGS, error_model="numpy")
def _multiclass_pass(
    scores: FloatArray, Y: FloatArray, square: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """As `_pass`."""
    total, variance_slope = np.zeros(len(square)), np.zeros(len(square))
    for n in range(scores.shape[0]):
        own, largest = -1, -np.inf
        for c in range(scores.shape[1]):
            if Y[n, c] > 0.0:
                own = c
        if own < 0:
            scores[n] = 0.0
            continue
        target, mass = scores[n, own], 0.0
        for c in range(scores.shape[1]):
            if Y[n, c] == 0.0:
                scores[n, c] = -np.inf
            scores[n, c] += 0.5 * square[c] + (0.0 if c == own else 1.0)
            largest = max(largest, scores[n, c])
        for c in range(scores.shape[1]):
            scores[n, c] = np.exp(scores[n, c] - largest)
            mass += scores[n, c]
        total[own] += largest + np.log(mass) - target
        for c in range(scores.shape[1]):
            share = scores[n, c] / mass
            variance_slope[c] += share
            scores[n, c] = (1.0 if c == own else 0.0) - share
    return total, variance_slope
