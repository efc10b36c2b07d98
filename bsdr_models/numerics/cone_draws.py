r"""Exact draws of scores t ~ N(eta, I) given that label y has the largest of them.

With :math:`u = t_y - \eta_y` and the margins :math:`d_j = \eta_y - \eta_j`, the marginal density
of u is proportional to

.. math::
    e^{-u^2/2 + g(u)}, \qquad g(u) = \sum_{j \ne y} \log \Phi(u + d_j) .

g is concave, so it lies below its tangent at any centre c, and :math:`N(g'(c), 1)` is an envelope
of the density: a draw u is accepted with probability
:math:`\exp\{g(u) - g(c) - g'(c)(u - c)\}`. It is exact for every c; near the mode it accepts
most. Given u the other scores are independent normals cut at :math:`t_y`. A row of an unlikely
label costs what any other row costs, where drawing until the argmax is right would never end.
"""

import numpy as np
from scipy.special import log_ndtr

from bsdr_models.numerics.truncated_normal import hazard, quantile_below
from bsdr_models.typing import FloatArray, IntArray

# Newton's method for the mode stops when no row has further to go than this, in standard
# deviations of its density: the acceptance is then within a few per cent of that at the mode.
_CENTRED = 0.3
_MAX_NEWTON = 60


def draw(eta: FloatArray, y: IntArray, *, rng: np.random.Generator) -> FloatArray:
    """One draw of t for each row.

    Parameters
    ----------
    eta : (..., N, K)
        Means; any leading axes (chains).
    y : (N,)
        Label in 0..K-1, the same for all leading axes.
    rng : numpy.random.Generator

    Returns
    -------
    (..., N, K)
        ``argmax`` along the last axis is y, without ties.
    """
    k = eta.shape[-1]
    flat = eta.reshape(-1, k)
    label = np.broadcast_to(y, eta.shape[:-1]).reshape(-1, 1)
    rival = (label + np.arange(1, k)) % k  # (M, K - 1)
    own, others = np.take_along_axis(flat, label, axis=1), np.take_along_axis(flat, rival, axis=1)

    u, log_cdf = _draw_excess(own - others, rng)
    top = own + u[:, None]
    below = np.minimum(others + quantile_below(log_cdf, rng=rng), np.nextafter(top, -np.inf))
    t = np.empty_like(flat)
    np.put_along_axis(t, label, top, axis=1)
    np.put_along_axis(t, rival, below, axis=1)
    return t.reshape(eta.shape)


def _draw_excess(margin: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draws of u, (M,), and log Phi(u + d_j), (M, K - 1), for margins d (M, K - 1)."""
    centre = _near_mode(margin)
    at_centre = centre[:, None] + margin
    slope = hazard(at_centre).sum(axis=1)
    # Acceptance compares g(u) - slope * u with its value at the centre.
    level = log_ndtr(at_centre).sum(axis=1) - slope * centre

    u, log_cdf = np.empty_like(centre), np.empty_like(margin)
    pending = np.arange(len(centre))
    while pending.size:
        proposal = slope[pending] + rng.standard_normal(pending.size)
        log_parts = log_ndtr(proposal[:, None] + margin[pending])
        log_ratio = log_parts.sum(axis=1) - slope[pending] * proposal - level[pending]
        accepted = log_ratio > -rng.standard_exponential(pending.size)
        done = pending[accepted]
        u[done], log_cdf[done] = proposal[accepted], log_parts[accepted]
        pending = pending[~accepted]
    return u, log_cdf


def _near_mode(margin: FloatArray) -> FloatArray:
    r"""A point close to the mode of -u^2/2 + g(u), (M,).

    The hazard h = g' of one margin exceeds max(0, -x), so the root of the piecewise linear
    :math:`-u + \sum_j \max(0, -u - d_j)` lies below the mode; from there Newton's steps on the
    convex, falling derivative stay below it.
    """
    n_rivals = margin.shape[1]
    falls = -np.cumsum(np.sort(margin, axis=1), axis=1) / (1.0 + np.arange(1, n_rivals + 1))
    u = np.maximum(falls.max(axis=1), 0.0)
    for _ in range(_MAX_NEWTON):
        x = u[:, None] + margin
        h = hazard(x)
        curvature = 1.0 + np.clip(h * (x + h), 0.0, 1.0).sum(axis=1)
        step = (h.sum(axis=1) - u) / curvature
        u = u + step
        if np.max(step**2 * curvature, initial=0.0) < _CENTRED**2:
            break
    return u
