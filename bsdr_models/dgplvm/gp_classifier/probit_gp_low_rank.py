r"""Binary Gaussian process classification with a probit link, by expectation propagation [1]_.

A kernel matrix :math:`K = F F^\top` has M features, at most as many as samples: latent values are
:math:`f = F w` with w ~ N(0, I), and a sign :math:`z_i = \pm 1` has probability
:math:`\Phi(z_i f_i)`. Every factor is replaced by a normal *site* of precision S and location nu,

.. math::
    q(w) \propto N(w; 0, I) \prod_i \exp(\nu_i f_i - S_i f_i^2 / 2)
        = N(A^{-1} F^\top \nu, A^{-1}), \qquad A = I + F^\top S F.

A smooth kernel of few coordinates has a low numerical rank M, and every step costs N M^2.

References
----------
.. [1] C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning.
       Chapter 3.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.gp_classifier.probit_ep import sweep_weights
from bsdr_models.numerics.linalg import factorise_inplace

# Samples whose features are multiplied at a time.
CHUNK = 8192
# Sweeps between recomputations of the covariance, few enough that rounding does not accumulate.
SWEEPS = 5
# Part of the largest variance that a factor of the numerical rank leaves to a sample.
RANK_TOL = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Normal factors that approximate those of the signs: precisions and locations, (N,) each."""

    precision: FloatArray
    location: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePosterior:
    """Normal posterior of M weights, and of the latent values of N samples.

    ``root`` (M, M) is the inverse of the lower Cholesky factor of A, so that the covariance of the
    weights is root' root; ``mean`` and ``variance`` (N,) are of the latent values. ``drift`` (N,)
    is the gradient of the log evidence through the mode, in the prior values, and zero for EP,
    whose evidence is stationary in the sites.
    """

    weights: FloatArray
    root: FloatArray
    mean: FloatArray
    variance: FloatArray
    log_evidence: float
    sites: Sites
    drift: FloatArray
    converged: bool
    n_iterations: int

    def kernel_gradient(self, features: FloatArray) -> FloatArray:
        r"""Derivative of the log evidence in K, (N, N), from the features (N, M) of the fit.

        .. math::
            G = \tfrac12 (b b^\top - S + S F A^{-1} F^\top S) + \tfrac12 (u b^\top + b u^\top)

        with b = nu - S E[f], so that E[f] = K b, and u = ``drift``.
        """
        S = self.sites.precision
        b = self.sites.location - S * self.mean
        half = S[:, None] * (features @ self.root.T)
        G = half @ half.T
        G += np.outer(b + 2.0 * self.drift, b)
        G += G.T
        G *= 0.25
        G.flat[:: len(G) + 1] -= 0.5 * S
        return G

    @property
    def cavity(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent values without the sample's own site, (N,)."""
        return _cavity(self.mean, self.variance, self.sites)

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent function at samples with features (L, M), each (L,)."""
        return features @ self.weights, row_squares(features, self.root)


# From features (N, M) and signs (N,) to the posterior of the weights.
type Approximate = Callable[..., FeaturePosterior]


def pivoted_cholesky(
    column: Callable[[int], FloatArray],
    diagonal: FloatArray,
    max_rank: int,
    rng: np.random.Generator,
    tol: float = 1e-10,
) -> tuple[FloatArray, IntArray]:
    """Features (N, M) of a low-rank kernel matrix, M at most ``max_rank``, and pivots (M,).

    Features of the pivots are a lower triangular matrix. Each pivot is drawn with probability
    proportional to the remaining diagonal [1]_, for the largest would choose outliers, and not if
    at most ``tol`` of the largest diagonal is left.

    References
    ----------
    .. [1] Y. Chen, E. N. Epperly, J. A. Tropp, R. J. Webber (2025). Randomly pivoted Cholesky.
           Communications on Pure and Applied Mathematics 78(5).
    """
    left = diagonal.copy()
    n, limit = len(left), tol * float(left.max(initial=0.0))
    features, pivots = np.empty((min(max_rank, n), n)), []
    for m in range(len(features)):
        left[left <= limit] = 0.0
        total = np.cumsum(left)
        if total[-1] == 0.0:
            break
        i = int(np.searchsorted(total, total[-1] * rng.random(), side="right"))
        row = features[m]
        row[:] = column(i) - features[:m, i] @ features[:m]
        row /= math.sqrt(left[i])
        left -= row**2
        left[i] = 0.0
        pivots.append(i)
    return np.ascontiguousarray(features[: len(pivots)].T), np.array(pivots, dtype=np.int64)


def numerical_factor(kernel: FloatArray) -> tuple[FloatArray, IntArray]:
    """Features of the numerical rank of a kernel matrix (N, N): (N, M), and their pivots (M,)."""
    limit = RANK_TOL * float(np.diagonal(kernel).max(initial=0.0))
    factor, pivots, rank, _ = lapack.dpstrf(kernel, lower=1, tol=limit)
    features = np.empty((len(kernel), rank))
    features[pivots - 1] = np.tril(factor[:, :rank])
    return features, pivots[:rank] - 1


def ep_by_features(
    features: FloatArray,
    sign: FloatArray,
    *,
    start: Sites | None = None,
    tol: float = 1e-6,
    max_sweeps: int = 200,
) -> FeaturePosterior:
    """Normal posterior with moment-matched sites, of features (N, M) and signs (N,).

    Sites are updated sequentially, from those of a similar kernel matrix if given, until no
    marginal changes by more than ``tol``: its mean in standard deviations, its variance in
    relation.
    """
    n = len(sign)
    S = np.zeros(n) if start is None else start.precision.copy()
    nu = np.zeros(n) if start is None else start.location.copy()
    sites = Sites(precision=S, location=nu)
    w, root, half_log_det = weights_of(features, sites)
    step, change, n_sweeps = 1.0, math.inf, 0
    while change > tol and n_sweeps < max_sweeps:
        most = min(SWEEPS, max_sweeps - n_sweeps)
        done, change, step = sweep_weights(
            features, sign, S, nu, root.T @ root, w, change, step, tol, most
        )
        n_sweeps += done
        w, root, half_log_det = weights_of(features, sites)
    mean, variance = features @ w, row_squares(features, root)
    return FeaturePosterior(
        weights=w,
        root=root,
        mean=mean,
        variance=variance,
        log_evidence=_ep_evidence(sign, sites, mean, variance) - half_log_det,
        sites=sites,
        drift=np.zeros(n),
        converged=change <= tol,
        n_iterations=n_sweeps,
    )


def weights_of(features: FloatArray, sites: Sites) -> tuple[FloatArray, FloatArray, float]:
    """Mean of w, inverse of the factor of A, half of log |A|."""
    n_features = features.shape[1]
    A = np.eye(n_features, order="F")
    for start in range(0, len(features), CHUNK):
        rows = slice(start, start + CHUNK)
        scaled = features[rows] * np.sqrt(sites.precision[rows, None])
        A += scaled.T @ scaled
    factor, log_det = factorise_inplace(A, name="I + F' S F")
    root, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    return root.T @ (root @ (features.T @ sites.location)), root, 0.5 * log_det


def row_squares(features: FloatArray, root: FloatArray) -> FloatArray:
    """Squared lengths of root times the features of every sample, (N,)."""
    result = np.empty(len(features))
    for start in range(0, len(features), CHUNK):
        rows = slice(start, start + CHUNK)
        projected = features[rows] @ root.T
        np.einsum("nm,nm->n", projected, projected, out=result[rows])
    return result


def _cavity(mean: FloatArray, variance: FloatArray, sites: Sites) -> tuple[FloatArray, FloatArray]:
    """Marginals without the sample's own site."""
    left = 1.0 - variance * sites.precision
    return (mean - variance * sites.location) / left, variance / left


def _ep_evidence(sign: FloatArray, sites: Sites, mean: FloatArray, variance: FloatArray) -> float:
    """Log evidence without - log |A| / 2, in cavity moments."""
    S, nu = sites.precision, sites.location
    mu, s2 = _cavity(mean, variance, sites)
    gain = 1.0 + s2 * S
    total = log_ndtr(sign * mu / np.sqrt(1.0 + s2)).sum() + 0.5 * np.log(gain).sum()
    total += 0.5 * (nu @ mean)
    return float(total + 0.5 * ((mu * (S * mu - 2.0 * nu) - s2 * nu**2) / gain).sum())
