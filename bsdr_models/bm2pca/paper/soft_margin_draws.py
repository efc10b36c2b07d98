r"""Draws of a linear soft-margin classifier whose inputs are normal latent coordinates.

Sample n has the class score :math:`f_n = e_0 + e^\top z_n`, :math:`z_n \sim N(m_n, S_n)`, and a
factor :math:`\phi_n(f_n)` that is flat on an interval (`soft_interval`).
With weights :math:`\eta = [e_0; e] \sim N(0, I / \nu)`, :math:`\nu \sim Ga(a, b)`, the latent
coordinates integrate out in closed form, and the marginal posterior,

.. math::
    p(\eta, \nu) \propto Ga(\nu; a, b)\, N(\eta; 0, I / \nu) \prod_n E[\phi_n(f_n)], \qquad
    f_n \sim N(e_0 + e^\top m_n,\; e^\top S_n e),

is sampled by slice sampling. Conditionally on the latent coordinates, or on slack scales, mixing of
the weights would be slow.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import polygamma

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import slice_draws, soft_interval

# Number of weights per elliptical slice.
_PER_ELLIPSE = 3
# Lower bound of variances, for zero weights.
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Normal latent coordinates of N samples, and the factors of their class scores. C chains.

    mean
        m, (C, N, k).
    cov
        S, (C, N, k, k), or (C, 1, k, k) if equal for all samples.
    lower, upper, cost
        Ends of the interval and C of the factors, broadcast to (C, N).
    """

    mean: FloatArray
    cov: FloatArray
    lower: FloatArray
    upper: FloatArray
    cost: FloatArray

    def moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (C, N, J) and covariances (C, N or 1, J, J) of J scores, weights (C, 1 + k, J)."""
        e = weights[:, None, 1:]
        cov: FloatArray = np.swapaxes(e, 2, 3) @ (self.cov @ e)
        return self.mean @ weights[:, 1:] + weights[:, :1], cov

    def log_margin(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Sum over samples of log E[phi(f)], f ~ N(mean, variance), (C,)."""
        sd = np.sqrt(np.maximum(variance, _TINY))
        each = soft_interval.log_mean(mean, sd, self.lower, self.upper, self.cost)
        total: FloatArray = each.sum(axis=1)
        return total


def draw_soft_margin(
    weights: FloatArray,
    precision: FloatArray,
    scores: Scores,
    *,
    shape: float,
    rate: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Update weights and their precision, then draw the class scores given them.

    Parameters
    ----------
    weights : (C, 1 + k)
        [e_0; e].
    precision : (C,)
        nu.
    scores : Scores
    shape, rate : float
        a and b.
    rng : numpy.random.Generator

    Returns
    -------
    weights, precision
        Of the same shapes.
    values : (C, N)
        f, exact draws given the weights.
    """
    weights, precision = _along_ray(weights, precision, scores, shape, rate, rng)
    for _ in range(-(-weights.shape[1] // _PER_ELLIPSE)):
        weights = _around_ellipse(weights, precision, scores, rng)
    mean, variance = scores.moments(weights[..., None])
    sd = np.sqrt(np.maximum(variance[..., 0, 0], _TINY))
    ends = (scores.lower, scores.upper, scores.cost)
    return weights, precision, soft_interval.draw_soft_interval(mean[..., 0], sd, *ends, rng=rng)


def _along_ray(
    weights: FloatArray,
    precision: FloatArray,
    scores: Scores,
    shape: float,
    rate: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    r"""Slice update to :math:`(g \eta, \nu / g^2)`.

    With the Haar measure dg / g, log g has the log density

    .. math:: -2 a \log g - b \nu / g^2 + \sum_n \log E[\phi_n(g f_n)] .
    """
    mean, cov = scores.moments(weights[..., None])
    mean, variance = mean[..., 0], cov[..., 0, 0]

    def log_density(log_g: FloatArray) -> FloatArray:
        g = np.exp(log_g)
        prior = -2.0 * shape * log_g - rate * precision / g**2
        return prior + scores.log_margin(g[:, None] * mean, g[:, None] ** 2 * variance)

    # Sixteen times the prior standard deviation of log g, which mixed best in experiments.
    width = 8.0 * float(np.sqrt(polygamma(1, shape)))
    g = np.exp(slice_draws.draw_slices(log_density, width, n_chains=len(weights), rng=rng))
    return g[:, None] * weights, precision / g**2


def _around_ellipse(
    weights: FloatArray, precision: FloatArray, scores: Scores, rng: np.random.Generator
) -> FloatArray:
    """Slice update on the ellipse through the weights and a draw from their prior."""
    other = rng.standard_normal(weights.shape) / np.sqrt(precision)[:, None]
    mean, cov = scores.moments(np.stack([weights, other], axis=2))

    def log_density(angle: FloatArray) -> FloatArray:
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        centre = c * mean[..., 0] + s * mean[..., 1]
        cross = 2.0 * c * s * cov[..., 0, 1]
        return scores.log_margin(centre, c**2 * cov[..., 0, 0] + cross + s**2 * cov[..., 1, 1])

    angle = slice_draws.draw_slices(log_density, 2.0 * np.pi, n_chains=len(weights), rng=rng)[
        :, None
    ]
    found: FloatArray = np.cos(angle) * weights + np.sin(angle) * other
    return found
