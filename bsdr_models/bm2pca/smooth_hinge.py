r"""Sums of smoothed hinge losses over samples.

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

import numpy as np

from bsdr_models.numerics.arrays import FloatArray

# Lower bound of D, for a sample exactly on the margin and s = 0.
TINY_WIDTH = 1e-150


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge:
    """Sum over the labelled entries, and slopes. N samples, K labels."""

    total: float  # Sum of the losses
    slope: FloatArray  # Minus its derivative by each class score, (N, K)
    variance_slope: FloatArray  # Twice its derivative by s, (K,)


def smooth_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """Sum of the losses of all labels, for signs Y (N, K), 0 if unlabelled, and s (K,)."""
    known = np.abs(Y)
    u = 1.0 - Y * scores
    width = np.maximum(np.sqrt(u**2 + square), TINY_WIDTH)
    return Hinge(
        total=float(np.vdot(known, u + width)),
        slope=Y * (1.0 + u / width),
        variance_slope=(known / width).sum(axis=0),
    )


def multiclass_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """Sum over samples that have a class, of which one of sign 0 is no alternative."""
    labelled = (Y > 0.0).any(axis=1)
    f = scores[labelled]
    y = Y[labelled]
    own = y > 0.0
    alternatives = np.where(y == 0.0, -np.inf, f + 0.5 * square + ~own)
    top = alternatives.max(axis=1, keepdims=True)
    share = np.exp(alternatives - top)
    mass = share.sum(axis=1, keepdims=True)
    share /= mass
    slope = np.zeros(scores.shape)
    slope[labelled] = own - share
    return Hinge(
        total=float((top + np.log(mass)).sum() - f[own].sum()),
        slope=slope,
        variance_slope=share.sum(axis=0),
    )
