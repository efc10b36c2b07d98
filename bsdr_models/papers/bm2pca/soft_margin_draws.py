r"""Draws of a linear soft-margin classifier whose inputs are normal latent coordinates.

Sample n has the class score :math:`f_n = e_0 + e^\top z_n`, :math:`z_n \sim N(m_n, S_n)`, and the
factor

.. math::
    \phi_n(f) = e^{-2 C \max(0,\; a - f,\; f - b)},

constant between a and b: the hinge loss of a label (a = 1, b infinite; mirrored for the other
sign), the epsilon-insensitive loss of a real target, or 1 without target. With weights
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
from scipy.special import erfcx, log_ndtr, ndtri_exp, polygamma

from bsdr_models.numerics.arrays import FloatArray

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
    lower: FloatArray  # Ends of the interval of each factor, (N,)
    upper: FloatArray
    cost: float  # C of the factors

    def moments(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (C, N, J) and covariances (C, N or 1, J, J) of J scores, weights (C, 1 + k, J)."""
        e = weights[:, None, 1:]
        return self.mean @ weights[:, 1:] + weights[:, :1], e.mT @ (self.cov @ e)

    def log_margin(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Sum over samples of log E[phi(f)], f ~ N(mean, variance), (C,)."""
        sd = np.sqrt(np.maximum(variance, _TINY))
        masses = log_masses(mean, sd, self.lower, self.upper, self.cost)
        top = masses.max(axis=0)
        total: FloatArray = (top + np.log(np.exp(masses - top).sum(axis=0))).sum(axis=1)
        return total


def log_masses(
    mean: FloatArray, sd: FloatArray, lower: FloatArray, upper: FloatArray, cost: float
) -> FloatArray:
    r"""Log of E[phi] for f ~ N(mean, sd**2) below, inside and above the interval, (3, ...).

    With :math:`R(x) = \Phi(-x) e^{x^2/2}` and the distance x of the edge in standard deviations,
    the mass outside is :math:`e^{-x^2/2} R(2 C s - x)`, which neither overflows nor cancels.
    """
    low = (lower - mean) / sd
    high = (mean - upper) / sd
    rate = 2.0 * cost * sd
    with np.errstate(invalid="ignore", divide="ignore"):
        below, above = (_log_outside(edge, rate) for edge in (low, high))
        # The difference of the tails on the nearer side does not cancel.
        near = np.maximum(low, high)
        far = -np.minimum(low, high)
        top = log_ndtr(-near)
        inside = top + np.log1p(-np.exp(np.minimum(log_ndtr(-far) - top, 0.0)))
    return np.stack([below, inside, above])


def _log_outside(edge: FloatArray, rate: FloatArray) -> FloatArray:
    """Log mass of the exponential tail beyond an edge, in standard deviations from the mean."""
    x = rate - edge
    far = -0.5 * edge**2 + np.log(0.5 * erfcx(np.maximum(x, 0.0) / np.sqrt(2.0)))
    near = rate * (0.5 * rate - edge) + log_ndtr(-x)
    return np.where(np.isneginf(edge), -np.inf, np.where(x >= 0.0, far, near))


def draw_scores(
    mean: FloatArray,
    sd: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    cost: float,
    *,
    rng: np.random.Generator,
) -> FloatArray:
    """One draw of f from N(mean, sd**2) times phi, normalised, for each element.

    A piece is drawn by its mass, then f from a truncated normal with mean shifted by 2 C s**2.
    """
    masses = log_masses(mean, sd, lower, upper, cost)
    piece = np.argmax(masses - np.log(rng.standard_exponential(masses.shape)), axis=0)
    low = np.choose(piece, [-np.inf, lower, upper])
    high = np.choose(piece, [lower, upper, np.inf])
    shift = 2.0 * cost * sd * (1.0 - piece)
    standard = _truncated_normal((low - mean) / sd - shift, (high - mean) / sd - shift, rng)
    return np.clip(mean + sd * (standard + shift), low, high)


def _truncated_normal(low: FloatArray, high: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Truncated standard normals, by inversion on the log scale in the nearer tail."""
    mirrored = low > 0.0
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    fall = rng.standard_exponential(low.shape)
    log_rank = np.logaddexp(log_ndtr(high) - fall, log_ndtr(low) + np.log(-np.expm1(-fall)))
    found = np.clip(ndtri_exp(np.minimum(log_rank, 0.0)), low, high)
    return np.where(mirrored, -found, found)


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
    ends = (scores.lower, scores.upper, scores.cost)
    return weights, precision, draw_scores(mean[..., 0], sd, *ends, rng=rng)


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
