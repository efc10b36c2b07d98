r"""Binary Gaussian process classification with a probit link, by expectation propagation [1]_.

A kernel matrix :math:`K = F F^\top` has M features, at most as many as samples: latent values are
:math:`f = F w` with w ~ N(0, I), and a sign :math:`z_i = \pm 1` has probability
:math:`\Phi(z_i f_i)`. Every factor is replaced by a normal *site* of precision S and location nu,

.. math::
    q(w) \propto N(w; 0, I) \prod_i \exp(\nu_i f_i - S_i f_i^2 / 2)
        = N(A^{-1} F^\top \nu, A^{-1}), \qquad A = I + F^\top S F.

A smooth kernel of few coordinates has a low numerical rank M, and every step costs N M^2.

The posterior with the site of a sample has the same mean and variance as that with the true factor.
Sites are updated sequentially. Those of a block of samples change the moments of its latent values,
and then together those of the weights, which are the latent values if M is about N. The paper's
model has Laplace's method, too.

References
----------
.. [1] C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning.
       Chapter 3, Algorithm 3.5.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack
from scipy.special import log_ndtr

from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.compiled import njit
from bsdr_models.numerics.linalg import factorise_inplace

# Tolerance of an approximation, in standard deviations of its marginals. Probabilities of new
# samples are within 1e-6 in the mean, and 2e-4 at most, of those with a tolerance of 1e-8.
TOL = 1e-4
# Sweeps between recomputations of the covariance, few enough that rounding does not accumulate.
SWEEPS = 10
# Most sweeps.
MAX_SWEEPS = 200
# Sums may be reordered, so that loops are vectorised.
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
}

# Samples whose rank-one updates are applied together.
_BLOCK = 32
# Most samples, in units of the number of features, whose latent values take the place of weights: a
# sweep takes 2 N^3 operations in place of 4 N M^2.
_FEW_SAMPLES = 1.4
# Damping of the next step after a sweep that changes sites by more than the one before it.
_SHORTER = 0.5
_LEAST_STEP = 0.1
# Argument below which the hazard is a continued fraction.
_FAR = -5.0
# Terms of this fraction.
_TERMS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Normal factors that approximate those of the signs: precisions and locations, (N,) each."""

    precision: FloatArray
    location: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePosterior:
    """Normal posterior of M weights, and of the latent values of N samples.

    ``root`` (M, M) is the inverse of the lower Cholesky factor of A, so that the covariance of the
    weights is root' root; ``mean`` and ``variance`` (N,) are of the latent values. ``converged`` is
    whether it met its tolerance.
    """

    weights: FloatArray
    root: FloatArray
    mean: FloatArray
    variance: FloatArray
    sites: Sites
    converged: bool

    @property
    def cavity(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent values without the sample's own site, (N,)."""
        return _cavity(self.mean, self.variance, self.sites)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Log evidence of a kernel matrix (N, N), its derivative in this matrix, and the sites."""

    value: float
    gradient: FloatArray
    sites: Sites


@dataclass(frozen=True, slots=True, kw_only=True)
class Approximation:
    """How sites are found, and the log evidence with them.

    Both are functions of features (N, M) and signs (N,), with sites to begin at, ``start``, and a
    tolerance ``tol``. The first also returns whether it met its tolerance.
    """

    find_sites: Callable[..., tuple[Sites, bool]]
    evidence: Callable[..., Evidence]

    def posterior(self, features: FloatArray, sign: FloatArray, **options: Any) -> FeaturePosterior:
        """Normal posterior of the weights of features (N, M)."""
        sites, converged = self.find_sites(features, sign, **options)
        w, root, _ = weights_of(features, sites)
        return FeaturePosterior(
            weights=w,
            root=root,
            mean=features @ w,
            variance=row_squares(features, root),
            sites=sites,
            converged=converged,
        )


def _match_sites(
    features: FloatArray, sign: FloatArray, start: Sites | None, tol: float
) -> tuple[Sites, bool, FloatArray, FloatArray, float]:
    """Sweep until no mean changes by more than ``tol`` deviations, and no variance in relation.

    Sites, whether they met the tolerance, mean and covariance of latent values, of few samples, or
    else of weights, and log |A| / 2.
    """
    S, nu = np.zeros((2, len(sign)))
    if start is not None:
        S = start.precision.copy()
        nu = start.location.copy()
    sites = Sites(precision=S, location=nu)
    sign = np.ascontiguousarray(sign)  # each layout would be compiled by itself
    step = 1.0
    change = math.inf
    few = len(features) <= _FEW_SAMPLES * features.shape[1]
    for _ in range(MAX_SWEEPS // SWEEPS):
        mean, root, half_log_det = weights_of(features, sites)
        if few:
            mean = features @ mean
            root = times_features(root, features)
        covariance = root.T @ root
        rows = None if few else features
        change, step, growth = sweep(rows, sign, S, nu, covariance, mean, change, step, tol)
        if change <= tol:
            break
    return sites, change <= tol, mean, covariance, half_log_det + 0.5 * growth


def _ep_sites(
    features: FloatArray, sign: FloatArray, *, start: Sites | None = None, tol: float = TOL
) -> tuple[Sites, bool]:
    """Moment-matched sites, and whether they met the tolerance."""
    sites, converged, *_ = _match_sites(features, sign, start, tol)
    return sites, converged


def _ep_evidence(
    features: FloatArray, sign: FloatArray, *, start: Sites | None = None, tol: float = TOL
) -> Evidence:
    """Log evidence with moment-matched sites, in which it is stationary."""
    sites, _, mean, covariance, half_log_det = _match_sites(features, sign, start, tol)
    S = sites.precision
    nu = sites.location
    if len(mean) < len(features):
        mean = features @ mean
        covariance = features @ covariance @ features.T
    mu, s2 = _cavity(mean, np.diagonal(covariance), sites)
    gain = 1.0 + s2 * S
    value = log_ndtr(sign * mu / np.sqrt(1.0 + s2)).sum() + 0.5 * np.log(gain).sum()
    value += 0.5 * (nu @ mean)
    value += 0.5 * ((mu * (S * mu - 2.0 * nu) - s2 * nu**2) / gain).sum()
    return Evidence(
        value=float(value) - half_log_det,
        gradient=kernel_gradient(mean, covariance, sites),
        sites=sites,
    )


def kernel_gradient(
    mean: FloatArray, covariance: FloatArray, sites: Sites, drift: FloatArray | float = 0.0
) -> FloatArray:
    """Derivative of the log evidence in K, from the mean (N,) and covariance (N, N) of f.

    With b = nu - S E[f] it is half of bb' - S + S cov[f] S + ub' + bu', the drift u being the
    gradient of the log evidence through the mode in the prior values, for Laplace's method.
    """
    S = sites.precision
    b = sites.location - S * mean
    G = covariance * S
    G *= S[:, None]
    G += np.outer(b + 2.0 * drift, b)
    G += G.T
    G *= 0.25
    G.flat[:: len(G) + 1] -= 0.5 * S
    return G


def weights_of(features: FloatArray, sites: Sites) -> tuple[FloatArray, FloatArray, float]:
    """Mean of w, inverse of the factor of A, half of log |A|."""
    scaled = features * np.sqrt(sites.precision[:, None])
    A = np.eye(features.shape[1], order="F")
    A += scaled.T @ scaled
    factor, log_det = factorise_inplace(A, name="I + F' S F")
    root, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    return root.T @ (root @ (features.T @ sites.location)), root, 0.5 * log_det


def times_features(root: FloatArray, features: FloatArray) -> FloatArray:
    """A lower triangular root (M, M) times the features of every sample, (M, N)."""
    return np.asarray(blas.dtrmm(1.0, root, features.T, lower=1))


def row_squares(features: FloatArray, root: FloatArray) -> FloatArray:
    """Squared lengths of root times the features of every sample, (N,)."""
    projected = times_features(root, features)
    return np.asarray(np.einsum("mn,mn->n", projected, projected))


def _cavity(mean: FloatArray, variance: FloatArray, sites: Sites) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of latent values without their sites, from those with them, (N,) each."""
    left = 1.0 - variance * sites.precision
    return (mean - variance * sites.location) / left, variance / left


EP = Approximation(find_sites=_ep_sites, evidence=_ep_evidence)


@njit(**_OPTIONS)
def hazard(a: float) -> tuple[float, float]:
    """h = phi(a) / Phi(a), and h + a without cancellation."""
    if a > _FAR:
        h = 0.7978845608028654 * math.exp(-0.5 * a * a) / math.erfc(-a * 0.7071067811865476)
        return h, h + a
    x = -a
    tail = x
    for k in range(_TERMS, 1, -1):
        tail = x + k / tail
    return x + 1.0 / tail, 1.0 / tail


@njit(**_OPTIONS)
def _matched(sign: float, mean: float, variance: float, S: float, nu: float) -> tuple[float, float]:
    """Precision and location of the moment-matched site, from marginal and old site."""
    left = 1.0 - variance * S
    s2 = variance / left  # the cavity
    mu = (mean - variance * nu) / left
    inverse_sd = 1.0 / math.sqrt(1.0 + s2)
    h, distance = hazard(sign * mu * inverse_sd)
    first = sign * h * inverse_sd
    second = h * distance * inverse_sd * inverse_sd
    new_S = second / (1.0 - s2 * second)
    return new_S, new_S * (mu + s2 * first) + first


@njit(**_OPTIONS)
def _update_block(
    covariance: FloatArray,
    mean: FloatArray,
    sign: FloatArray,
    S: FloatArray,
    nu: FloatArray,
    step: float,
) -> tuple[FloatArray, FloatArray, float, float]:
    """Update the sites of B samples, whose latent values have such a covariance (B, B) and mean.

    All but the signs is changed in place. With C the covariances of the block before, (B, .), those
    of anything fall by C' H C and its mean rises by C' h: returned are H, h, the largest change, as
    of :func:`sweep`, and the growth of log |A|.
    """
    n_samples = len(sign)
    turn = np.eye(n_samples)  # from C to the covariances at the time of each update
    fall = np.zeros((n_samples, n_samples))
    rise = np.zeros(n_samples)
    largest = 0.0
    growth = 0.0
    for i in range(n_samples):
        variance = covariance[i, i]
        m = mean[i]
        new_S, new_nu = _matched(sign[i], m, variance, S[i], nu[i])
        d_S = step * (new_S - S[i])
        d_nu = step * (new_nu - nu[i])
        S[i] += d_S
        nu[i] += d_nu
        ratio = 1.0 + d_S * variance
        growth += math.log(ratio)
        shift = (d_nu - d_S * m) / ratio
        shrink = d_S / ratio
        largest = max(largest, abs(shift) * math.sqrt(variance), abs(d_S) * variance)
        for j in range(i + 1, n_samples):  # the samples to come
            mean[j] += shift * covariance[i, j]
            shared = shrink * covariance[i, j]
            for k in range(i + 1, n_samples):
                covariance[j, k] -= shared * covariance[i, k]
            for k in range(i + 1):
                turn[j, k] -= shared * turn[i, k]
        for j in range(i + 1):
            rise[j] += shift * turn[i, j]
            shared = shrink * turn[i, j]
            for k in range(i + 1):
                fall[j, k] += shared * turn[i, k]
    return fall, rise, largest, growth


def sweep(
    features: FloatArray | None,
    sign: FloatArray,
    S: FloatArray,
    nu: FloatArray,
    covariance: FloatArray,
    mean: FloatArray,
    before: float,
    step: float,
    tol: float,
) -> tuple[float, float, float]:
    """Update all sites in up to ``SWEEPS`` sweeps, for a posterior of M weights.

    Features are (N, M), or None if weights are the latent values; signs are +1 or -1. Sites S and
    nu (N,), covariance (M, M) and mean of the weights are changed in place. ``step`` is the share
    of a moment-matching update that is made, and ``before`` the change of the sweep before the
    first. Returned are the largest change of a marginal in the last one, of its mean in standard
    deviations and of its log variance, the step, and the growth of log |A|.
    """
    growth = 0.0
    for _ in range(SWEEPS):
        largest = 0.0
        for start in range(0, len(sign), _BLOCK):
            block = slice(start, start + _BLOCK)
            if features is None:
                columns = covariance[block].copy()
                own = columns[:, block].copy()
                m = mean[block].copy()
            else:
                columns = features[block] @ covariance
                own = columns @ features[block].T
                m = features[block] @ mean
            fall, rise, change, grown = _update_block(
                own, m, sign[block], S[block], nu[block], step
            )
            growth += grown
            covariance -= columns.T @ (fall @ columns)
            mean += rise @ columns
            largest = max(largest, change)
        if largest > before:
            step = max(_SHORTER * step, _LEAST_STEP)
        before = largest
        if largest <= tol:
            break
    return before, step, growth
