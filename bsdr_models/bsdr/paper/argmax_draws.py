r"""Exact draws of latent utilities t ~ N(eta, I) given that t_y is the largest.

With :math:`u = t_y - \eta_y` and the margins :math:`d_j = \eta_y - \eta_j`, the marginal density
of u is proportional to

.. math::
    e^{-u^2/2 + g(u)}, \qquad g(u) = \sum_{j \ne y} \log \Phi(u + d_j) .

g is concave, so it lies below its tangent at any centre c, and :math:`N(g'(c), 1)` is an envelope
of the density: a draw u is accepted with probability
:math:`\exp\{g(u) - g(c) - g'(c)(u - c)\}`. This is exact for every c; near the mode the acceptance
is largest, about :math:`(-f'')^{-1/2} \ge K^{-1/2}` for f the log density. Given u the other
utilities are independent normals truncated at :math:`t_y`. The cost is the same for unlikely
labels, for which rejection sampling of the argmax would not end.
"""

import math

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.compiled import njit
from bsdr_models.numerics.normal_tail import probit

# Tolerance of Newton's method for the mode, in standard deviations of the density: the acceptance
# is then within a few per cent of that at the mode.
_CENTRED = 0.3
_MAX_NEWTON = 60
# Number of consecutive rejections that cannot occur for finite means.
_MAX_PROPOSALS = 1_000_000
# Above this bound normal proposals are accepted more often than those of the tail envelope.
_TAIL = -0.5
# Below this point h (x + h), which tends to one, would cancel.
_FAR = -1e4


def draw_argmax(eta: FloatArray, y: IntArray, *, rng: np.random.Generator) -> FloatArray:
    """One draw of t (..., N, K) with means eta for each label y, (N,) or (..., N).

    Its argmax is y, without ties; NaN for samples with non-finite means.
    """
    flat = np.ascontiguousarray(eta).reshape(-1, eta.shape[-1])
    t = np.empty_like(flat)
    _draw_rows(flat, np.broadcast_to(y, eta.shape[:-1]).flatten(), rng, t)
    return t.reshape(eta.shape)


@njit(cache=True, error_model="numpy")
def _draw_rows(eta: FloatArray, y: IntArray, rng: np.random.Generator, t: FloatArray) -> None:
    """Fill t (M, K) for labels y (M,)."""
    n_labels = eta.shape[1]
    margin = np.empty(n_labels)
    tangent = np.empty((2, n_labels))
    for row in range(eta.shape[0]):
        label = y[row]
        for j in range(n_labels):
            margin[j] = eta[row, label] - eta[row, j]
        top = eta[row, label] + _draw_excess(margin, label, tangent, rng)
        t[row, label] = top
        for j in range(n_labels):
            if j != label:
                below = eta[row, j] + _draw_below(top - eta[row, j], rng)
                t[row, j] = min(below, np.nextafter(top, -np.inf))


@njit(cache=True, error_model="numpy")
def _draw_excess(
    margin: FloatArray, label: int, tangent: FloatArray, rng: np.random.Generator
) -> float:
    """One draw of u; NaN if the margins are not finite. ``tangent`` (2, K) is work space."""
    centre, slope = _near_mode(margin, label, tangent)
    for _ in range(_MAX_PROPOSALS):
        u = slope + rng.standard_normal()
        step = u - centre
        log_ratio = 0.0
        for j in range(len(margin)):
            if j != label:
                a, b = u + margin[j], centre + margin[j]
                part, log_part, _, _ = probit(a)
                log_ratio += math.log(part) - tangent[1, j]
                if a < 0.0 and b < 0.0:  # without the difference of large squares
                    log_ratio -= step * (0.5 * (a + b) + tangent[0, j])
                else:
                    log_ratio += log_part + 0.5 * min(b, 0.0) ** 2 - step * tangent[0, j]
        if log_ratio > -rng.standard_exponential():
            return u
        if math.isnan(log_ratio):
            break
    return math.nan


@njit(cache=True, error_model="numpy")
def _near_mode(margin: FloatArray, label: int, tangent: FloatArray) -> tuple[float, float]:
    """Centre c of the tangent, near the mode of f, and its slope; fills h and log p by margin.

    The hazard h = g' of one margin exceeds max(0, -x), so the initial value lies below the mode;
    Newton's steps on f', which is convex and decreasing, never pass it.
    """
    u = 0.0
    for j in range(len(margin)):
        u = max(u, -0.5 * margin[j])
    slope = 0.0
    for iteration in range(_MAX_NEWTON):
        slope, curvature = 0.0, 1.0
        for j in range(len(margin)):
            if j != label:
                x = u + margin[j]
                part, _, h, _ = probit(x)
                slope += h
                curvature += h * (x + h) if x > _FAR else 1.0
                tangent[0, j], tangent[1, j] = h, math.log(part)
        gap = slope - u
        if gap * gap < _CENTRED * _CENTRED * curvature or iteration == _MAX_NEWTON - 1:
            break  # the tangent stays the one at u
        u += gap / curvature
    return u, slope


@njit(cache=True, error_model="numpy")
def _draw_below(bound: float, rng: np.random.Generator) -> float:
    """One standard normal below ``bound``; in the tail by an exponential envelope [1]_.

    References
    ----------
    .. [1] C. P. Robert (1995). Simulation of truncated normal variables. Statistics and
           Computing 5.
    """
    if not bound <= _TAIL:
        while True:
            x = rng.standard_normal()
            if not x >= bound:
                return x
    rate = 0.5 * (math.sqrt(bound * bound + 4.0) - bound)
    while True:
        x = bound - rng.standard_exponential() / rate
        if not 0.5 * (x + rate) ** 2 >= rng.standard_exponential():
            return x
