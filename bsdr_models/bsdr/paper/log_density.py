r"""Log densities of draws under the prior and under the q of mean field.

Both are densities of projection, weights, bias and noise precision, with all other variables
integrated out. A group x of n entries with a common precision has the density

.. math::
    p(x) = \int \mathrm{Ga}(\phi; a, b) \prod_i N(x_i; 0, \phi^{-1}) \, d\phi
    = \frac{\Gamma(a + n/2)}{\Gamma(a)} \frac{b^a}{(2\pi)^{n/2}}
      \Bigl(b + \tfrac12 |x|^2\Bigr)^{-(a + n/2)} ,

a multivariate Student-t. With the pointwise log likelihoods of
:func:`bsdr_models.bsdr.paper.predict.log_likelihood` it gives the log joint density, so that draws
from q can be weighted by p / q (Yao et al. 2018, Magnusson et al. 2019).

Letters: S draws, D features (with more features than samples, coordinates of the row space of X,
outside of which p and q are equal), R components, K labels.
"""

import numpy as np
from scipy.special import gammaln

from bsdr_models.arrays import FloatArray
from bsdr_models.bsdr.paper.data import Data
from bsdr_models.bsdr.paper.mean_field import State
from bsdr_models.bsdr.paper.predict import DrawPosterior
from bsdr_models.bsdr.priors import Priors
from bsdr_models.numerics.factors import LOG_2PI


def log_prior(draws: DrawPosterior, priors: Priors) -> FloatArray:
    """Log prior density of each draw, precisions integrated out: (S,).

    The projection is in the coordinates of the design, here and below.
    """
    axes: dict[str, tuple[int, ...]] = {"entrywise": (), "columnwise": (1,), "rowwise": (2,)}
    tied = axes[priors.projection_prior]
    out = _scale_mixture(draws.projection, tied, priors.projection_shape, priors.projection_rate)
    out += _scale_mixture(draws.weights, (), priors.weight_shape, priors.weight_rate)
    out += _scale_mixture(draws.bias, (), priors.bias_shape, priors.bias_rate)
    if draws.noise_precision is not None:
        out += _log_gamma(draws.noise_precision, priors.noise_shape, priors.noise_rate).sum(axis=1)
    return out


def log_q(draws: DrawPosterior, state: State, data: Data, latent_scale: float) -> FloatArray:
    """Log density of each draw under the factors of mean field: (S,)."""
    q, w = state.projection, state.weights
    gap = draws.projection - q.mean  # (S, D, R)
    seen = np.einsum("nd,sdr->snr", data.design.rows, gap, optimize=True) / latent_scale
    square = np.sum(state.projection_precision.mean * gap**2, axis=(1, 2))
    square += np.sum(seen**2, axis=(1, 2))
    out = -0.5 * (square + q.mean.size * LOG_2PI + q.log_det.sum())

    full = np.concatenate([draws.bias[:, None], draws.weights], axis=1) - w.mean  # (S, 1 + R, K)
    solved = np.linalg.solve(w.cov, full.transpose(2, 1, 0))  # (K, 1 + R, S)
    square = np.einsum("spk,kps->s", full, solved)
    out -= 0.5 * (square + w.mean.size * LOG_2PI + w.log_det.sum())
    if draws.noise_precision is not None:
        tau = state.noise_precision
        assert tau is not None
        out += _log_gamma(draws.noise_precision, tau.shape, tau.rate).sum(axis=1)
    return out


def _scale_mixture(
    values: FloatArray, tied: tuple[int, ...], shape: float, rate: float
) -> FloatArray:
    """Log density of draws (S, ...) whose entries along some axes share a precision: (S,)."""
    square = np.sum(values**2, axis=tied, keepdims=True)
    after = shape + 0.5 * values.size / square.size
    constant = gammaln(after) - gammaln(shape) + shape * np.log(rate)
    each = constant - after * np.log(rate + 0.5 * square)
    flat = each.reshape(len(values), -1).sum(axis=1)
    return flat - 0.5 * LOG_2PI * values[0].size


def _log_gamma(
    values: FloatArray, shape: float | FloatArray, rate: float | FloatArray
) -> FloatArray:
    """Log density of Ga(shape, rate)."""
    constant = shape * np.log(rate) - gammaln(shape)
    return constant + (shape - 1.0) * np.log(values) - rate * values
