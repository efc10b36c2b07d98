r"""The scale of a hinge: draws and moments of GIG(1/2, 1, s**2), for s from 0 to 1e150.

.. math::
    p(\lambda) = (2 \pi \lambda)^{-1/2} e^{s - (\lambda + s^2 / \lambda) / 2}

is the conditional of a slack scale given u, s = abs(u), and its optimal mean-field factor, s =
sqrt(E[u**2]) [1]_. Its reciprocal is inverse Gaussian, of mean 1 / s and shape 1, so that
E[1 / lambda] = 1 / s, while E[lambda] = s + 1.

References
----------
.. [1] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines. Bayesian
       Analysis 6(1).
.. [2] J. R. Michael, W. R. Schucany, R. W. Haas (1976). Generating random variates using
       transformations with multiple roots. The American Statistician 30(2).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import exp1, hyperu

from bsdr_models.arrays import FloatArray

# exp(x) E1(x) is computed as a product up to here, beyond as Tricomi's U(1, 1, x).
_FAR = 50.0
# Replaces 0 where a logarithm or a ratio has a limit.
_TINY = 1e-300


def draw_inverse_gaussian(s: ArrayLike, *, rng: np.random.Generator) -> FloatArray:
    r"""One draw of lambda for each element of ``s``.

    With Y a squared standard normal, lambda is one of the roots of
    :math:`\lambda + s^2 / \lambda = 2 s + Y`: the larger with probability
    lambda / (lambda + s) [2]_. The larger root is a sum of positive terms and the smaller s**2 over
    it, so neither loses digits, unlike ``Generator.wald`` for the reciprocal (means above 1e8).

    Parameters
    ----------
    s : array-like
        Non-negative; 0 gives a squared normal.
    rng : numpy.random.Generator
    """
    s = np.asarray(s, dtype=np.float64)
    half = 0.5 * rng.standard_normal(s.shape) ** 2
    larger = s + half + np.sqrt(half * (2.0 * s + half))
    keep = rng.random(s.shape) * (larger + s) <= larger
    smaller = s * (s / np.maximum(larger, _TINY))
    return np.where(keep, larger, smaller)


def mean_log(s: ArrayLike) -> FloatArray:
    r"""E[log lambda]: :math:`\log s + e^{2s} E_1(2s)`; -log 2 - Euler's constant at 0."""
    s = np.maximum(s, _TINY)
    x = 2.0 * s
    near = np.minimum(x, _FAR)
    scaled = np.where(x < _FAR, np.exp(near) * exp1(near), hyperu(1.0, 1.0, np.maximum(x, _FAR)))
    found: FloatArray = np.log(s) + scaled
    return found


def entropy(s: ArrayLike) -> FloatArray:
    r"""Entropy in nats: :math:`(\log 2 \pi + E[\log \lambda] + 1) / 2`."""
    return 0.5 * (np.log(2.0 * np.pi) + mean_log(s) + 1.0)
