r"""Sums of smoothed hinge losses over samples, and their derivatives.

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

Both functions take class scores and signs Y, (N, K), and s (K,), and return the sum of the losses,
minus its derivatives by the class scores, (N, K), and the terms of each sample in twice its
derivative by s, (N, K): 1 / D, or the softmax p. Infinite class scores, as of a line search, give
an infinite sum or NaN.

References
----------
.. [1] K. Crammer, Y. Singer (2001). On the algorithmic implementation of multiclass kernel-based
       vector machines. Journal of Machine Learning Research 2.
"""

import numpy as np

from bsdr_models.arrays import FloatArray

# Lower bound of D, for a sample exactly on the margin and s = 0.
TINY_WIDTH = 1e-150


@np.errstate(over="ignore", invalid="ignore")
def smooth_hinge(
    scores: FloatArray, Y: FloatArray, square: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Of all labels, those of sign 0 left out."""
    u, known = 1.0 - Y * scores, Y * Y
    width = np.maximum(np.sqrt(u * u + square), TINY_WIDTH)
    inverse = known / width
    return float(np.vdot(known, u + width)), Y * (1.0 + u * inverse), inverse


@np.errstate(over="ignore", invalid="ignore")
def multiclass_hinge(
    scores: FloatArray, Y: FloatArray, square: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Of samples that have a class, of positive sign. A class of sign 0 is no alternative."""
    own, p = Y > 0.0, np.zeros(Y.shape)
    rows = own.any(axis=1)
    inside = np.where(Y[rows] != 0.0, scores[rows] + 0.5 * square + ~own[rows], -np.inf)
    largest = inside.max(axis=1, keepdims=True)
    mass = np.exp(inside - largest)
    total = mass.sum(axis=1, keepdims=True)
    p[rows] = mass / total
    return float(np.sum(largest + np.log(total)) - scores[own].sum()), own - p, p
