r"""Draws of a linear soft-margin classifier whose inputs are normal latent coordinates.

Sample n has the class score :math:`f_n = e_0 + e^\top z_n`, :math:`z_n \sim N(m_n, S_n)`, and the
factor

.. math::
    \phi_n(f) = e^{-2 C \max(0,\; 1 - y_n f)}

of its label :math:`y_n = \pm 1`, or 1 without a label. With weights
:math:`\eta = [e_0; e] \sim N(0, I / \nu)`, :math:`\nu \sim Ga(a, b)`, the latent coordinates
integrate out in closed form, and the marginal posterior,

.. math::
    p(\eta, \nu) \propto Ga(\nu; a, b)\, N(\eta; 0, I / \nu) \prod_n E[\phi_n(f_n)], \qquad
    f_n \sim N(e_0 + e^\top m_n,\; e^\top S_n e),

is sampled by slice sampling [1]_ [2]_. Conditionally on the latent coordinates, or on slack
scales, mixing of the weights would be slow.

References
----------
.. [1] R. M. Neal (2003). Slice sampling. The Annals of Statistics 31(3).
.. [2] I. Murray, R. P. Adams, D. J. C. MacKay (2010). Elliptical slice sampling. AISTATS.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, expit, log_ndtr, polygamma

from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.papers.normal_tail import draw_above

# Number of weights per elliptical slice.
_PER_ELLIPSE = 3
# Lower bound of variances, for zero weights.
_TINY = 1e-300
# A bracket shrinks by a quarter or more in expectation, so this many steps reach rounding.
_MAX_SHRINKS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Normal latent coordinates of N samples, and the factors of their class scores. C chains."""

    mean: FloatArray  # m, (C, N, k)
    cov: FloatArray  # S, (C, N, k, k), or (C, 1, k, k) if equal for all samples
    sign: FloatArray  # y, (N,), 0 without a label
    cost: float  # C of the factors

    def moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (C, N, J) and covariances (C, N or 1, J, J) of J scores, weights (C, 1 + k, J)."""
        e = weights[:, None, 1:]
        return self.mean @ weights[:, 1:] + weights[:, :1], e.mT @ (self.cov @ e)

    def log_margin(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Sum over samples of log E[phi(f)], f ~ N(mean, variance), (C,)."""
        sd = np.sqrt(np.maximum(variance, _TINY))
        total: FloatArray = np.logaddexp(*log_masses(mean, sd, self.sign, self.cost)).sum(axis=1)
        return total


def log_masses(
    mean: FloatArray, sd: FloatArray, sign: FloatArray, cost: float
) -> tuple[FloatArray, FloatArray]:
    r"""Logs of E[phi] for f ~ N(mean, sd**2) beyond the margin, y f >= 1, and short of it.

    With :math:`R(x) = \Phi(-x) e^{x^2/2}` and the distance x of the margin in standard deviations,
    the mass short of it is :math:`e^{-x^2/2} R(2 C s - x)`, which neither overflows nor cancels.
    """
    edge = _edge(mean, sd, sign)
    rate = 2.0 * cost * sd
    x = rate - edge
    with np.errstate(invalid="ignore", divide="ignore"):
        far = -0.5 * edge**2 + np.log(0.5 * erfcx(np.maximum(x, 0.0) / np.sqrt(2.0)))
        near = rate * (0.5 * rate - edge) + log_ndtr(-x)
        short = np.where(np.isneginf(edge), -np.inf, np.where(x >= 0.0, far, near))
        return log_ndtr(-edge), short


def _edge(mean: FloatArray, sd: FloatArray, sign: FloatArray) -> FloatArray:
    """Distance of the margin from the mean, in standard deviations; -inf without a label."""
    return np.where(sign == 0.0, -np.inf, (1.0 - sign * mean) / sd)


def draw_scores(
    mean: FloatArray, sd: FloatArray, sign: FloatArray, cost: float, *, rng: np.random.Generator
) -> FloatArray:
    """One draw of f from N(mean, sd**2) times phi, normalised, for each element.

    The side of the margin is drawn by its mass. Short of it f is a truncated normal whose mean is
    shifted by 2 C s**2.
    """
    beyond, short = log_masses(mean, sd, sign, cost)
    is_short = rng.random(beyond.shape) < expit(short - beyond)
    edge = _edge(mean, sd, sign)
    shift = 2.0 * cost * sd
    z = draw_above(0.0, np.where(is_short, shift - edge, edge), rng=rng)
    return mean + np.where(sign < 0.0, -sd, sd) * np.where(is_short, shift - z, z)


def draw_slices(
    log_density: Callable[[FloatArray], FloatArray],
    width: float,
    *,
    n_chains: int,
    rng: np.random.Generator,
) -> FloatArray:
    """One slice sampling step of each chain along its line, displacements from 0, (C,).

    ``log_density`` maps displacements (C,) to (C,), up to a constant per chain. A bracket of fixed
    ``width``, which affects only speed, is placed at random around 0 and shrinks towards 0 at every
    point below the slice [1]_. With the angle of an ellipse and a width of 2 pi, this is elliptical
    slice sampling [2]_.
    """
    level = log_density(np.zeros(n_chains)) - rng.standard_exponential(n_chains)
    low = -width * rng.random(n_chains)
    high = low + width
    found = np.zeros(n_chains)
    searching = np.ones(n_chains, dtype=bool)
    for _ in range(_MAX_SHRINKS):
        trial = np.where(searching, rng.uniform(low, high), found)
        accepted = searching & (log_density(trial) > level)
        found = np.where(accepted, trial, found)
        searching &= ~accepted
        if not searching.any():
            break
        low = np.where(searching & (trial < 0.0), trial, low)
        high = np.where(searching & (trial >= 0.0), trial, high)
    return found


def draw_soft_margin(
    weights: FloatArray,
    precision: FloatArray,
    scores: Scores,
    *,
    shape: float,
    rate: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Update [e_0; e] (C, 1 + k) and nu ~ Ga(shape, rate), then draw the class scores (C, N)."""
    weights, precision = _along_ray(weights, precision, scores, shape, rate, rng)
    for _ in range(-(-weights.shape[1] // _PER_ELLIPSE)):
        weights = _around_ellipse(weights, precision, scores, rng)
    mean, variance = scores.moments(weights[..., None])
    sd = np.sqrt(np.maximum(variance[..., 0, 0], _TINY))
    found = draw_scores(mean[..., 0], sd, scores.sign, scores.cost, rng=rng)
    return weights, precision, found


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
    mean = mean[..., 0]
    variance = cov[..., 0, 0]

    def log_density(log_g: FloatArray) -> FloatArray:
        g = np.exp(log_g)
        prior = -2.0 * shape * log_g - rate * precision / g**2
        return prior + scores.log_margin(g[:, None] * mean, g[:, None] ** 2 * variance)

    # Sixteen times the prior standard deviation of log g, which mixed best in experiments.
    width = 8.0 * float(np.sqrt(polygamma(1, shape)))
    g = np.exp(draw_slices(log_density, width, n_chains=len(weights), rng=rng))
    return g[:, None] * weights, precision / g**2


def _around_ellipse(
    weights: FloatArray, precision: FloatArray, scores: Scores, rng: np.random.Generator
) -> FloatArray:
    """Slice update on the ellipse through the weights and a draw from their prior."""
    other = rng.standard_normal(weights.shape) / np.sqrt(precision)[:, None]
    mean, cov = scores.moments(np.stack([weights, other], axis=2))

    def log_density(angle: FloatArray) -> FloatArray:
        c = np.cos(angle)[:, None]
        s = np.sin(angle)[:, None]
        cross = 2.0 * c * s * cov[..., 0, 1]
        variance = c**2 * cov[..., 0, 0] + cross + s**2 * cov[..., 1, 1]
        return scores.log_margin(c * mean[..., 0] + s * mean[..., 1], variance)

    angle = draw_slices(log_density, 2.0 * np.pi, n_chains=len(weights), rng=rng)[:, None]
    found: FloatArray = np.cos(angle) * weights + np.sin(angle) * other
    return found
