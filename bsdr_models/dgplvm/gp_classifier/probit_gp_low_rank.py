r"""Binary Gaussian process classification by features: cost and memory linear in the samples.

For a kernel matrix :math:`K = F F^\top` with M features, the latent values are :math:`f = F w` with
w ~ N(0, I), and the (N, N) matrices of `probit_gp` are replaced by the (M, M) matrix
:math:`A = I + F^\top S F`:

.. math::
    q(w) = N(A^{-1} F^\top \nu, A^{-1}), \qquad |B| = |A|.

Laplace's method updates all sites at once by Newton steps, expectation propagation updates them
sequentially.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.gp_classifier.probit_ep import sweep_weights
from bsdr_models.dgplvm.gp_classifier.probit_gp import Sites
from bsdr_models.dgplvm.gp_classifier.probit_laplace import derivatives
from bsdr_models.numerics.linalg import factorise_inplace
from bsdr_models.numerics.normal_tail import inverse_mills, positive_mean

# Samples whose features are multiplied at a time.
CHUNK = 8192
# Smallest step of the line search.
LEAST_STEP = 1e-6
# Sites whose marginal would change by less than this fraction of the tolerance are skipped.
IDLE = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturePosterior:
    """Normal posterior of M weights, and of the latent values of N samples.

    weights
        Mean of w, (M,).
    root
        Inverse of the lower Cholesky factor of A, (M, M): the covariance of w is root' root.
    mean, variance
        Of the latent values, (N,).
    log_evidence
        In nats.
    sites
    converged
    n_iterations
    """

    weights: FloatArray
    root: FloatArray
    mean: FloatArray
    variance: FloatArray
    log_evidence: float
    sites: Sites
    converged: bool
    n_iterations: int

    @property
    def cavity(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent values without the sample's own site, (N,)."""
        return _cavity(self.mean, self.variance, self.sites)

    def predict(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent function at samples with features (L, M), each (L,)."""
        return features @ self.weights, _row_squares(features, self.root)


def pivoted_cholesky(
    column: Callable[[int], FloatArray],
    diagonal: FloatArray,
    max_rank: int,
    rng: np.random.Generator,
    tol: float = 1e-10,
) -> tuple[FloatArray, IntArray]:
    """Features of a low-rank approximation of a kernel matrix.

    Each pivot is drawn with probability proportional to the remaining diagonal [1]_; taking the
    largest would choose outliers.

    Parameters
    ----------
    column : callable
        Column i of the kernel matrix, (N,).
    diagonal : (N,)
    max_rank : int
    rng : numpy.random.Generator
    tol : float
        A sample with at most this fraction of the largest diagonal left is not chosen.

    Returns
    -------
    features : (N, M)
        M at most ``max_rank``.
    pivots : (M,)
        Indices of samples, whose features are a lower triangular matrix.

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


def laplace_by_features(
    features: FloatArray, sign: FloatArray, *, tol: float = 1e-7, max_iter: int = 100
) -> FeaturePosterior:
    """Normal posterior at the mode, by Newton's method with a line search.

    Parameters
    ----------
    features : (N, M)
    sign : (N,)
        +1 or -1.
    tol : float
        Largest move of a latent value, relative to the largest of them, that ends the search.
    max_iter : int
    """
    n, n_features = features.shape
    w, f = np.zeros(n_features), np.zeros(n)
    value, converged, n_steps = float(log_ndtr(sign * f).sum()), False, 0
    while not converged and n_steps < max_iter:
        n_steps += 1
        target, _, _ = _weights(features, _laplace_sites(sign, f))
        df = features @ (target - w)
        step = 1.0
        while step > LEAST_STEP:
            w_new, f_new = w + step * (target - w), f + step * df
            new = float(log_ndtr(sign * f_new).sum() - 0.5 * (w_new @ w_new))
            if new >= value - 1e-12 * (1.0 + abs(value)):
                break
            step *= 0.5
        else:
            break
        w, f, value = w_new, f_new, new
        moved = step * float(np.abs(df).max())
        converged = step == 1.0 and moved <= tol * (1.0 + float(np.abs(f).max()))
    sites = _laplace_sites(sign, f)
    w, root, half_log_det = _weights(features, sites)
    mean = features @ w
    evidence = float(log_ndtr(sign * mean).sum() - 0.5 * (w @ w)) - half_log_det
    return FeaturePosterior(
        weights=w,
        root=root,
        mean=mean,
        variance=_row_squares(features, root),
        log_evidence=evidence,
        sites=sites,
        converged=converged,
        n_iterations=n_steps,
    )


def ep_by_features(
    features: FloatArray, sign: FloatArray, *, tol: float = 1e-6, max_sweeps: int = 100
) -> FeaturePosterior:
    """Normal posterior with moment-matched sites, initialised at the mode.

    Sites are updated sequentially, each with a rank-one update of the covariance of the weights.
    Converged sites are skipped.

    Parameters
    ----------
    features : (N, M)
    sign : (N,)
        +1 or -1.
    tol : float
        Largest change of a marginal in the last sweep: of its mean in standard deviations, and
        relative change of its variance.
    max_sweeps : int
    """
    near = laplace_by_features(features, sign)
    S, nu = near.sites.precision.copy(), near.sites.location.copy()
    sites = Sites(precision=S, location=nu)
    w, root, mean, variance = near.weights, near.root, near.mean, near.variance
    converged, n_sweeps, half_log_det = False, 0, 0.0
    while not converged and n_sweeps < max_sweeps:
        n_sweeps += 1
        index = np.flatnonzero(_ep_changes(sign, sites, mean, variance) > IDLE * tol)
        change = sweep_weights(features, sign, index, S, nu, root.T @ root, w)
        w, root, half_log_det = _weights(features, sites)
        mean, variance = features @ w, _row_squares(features, root)
        converged = change <= tol
    evidence = _ep_evidence(sign, sites, mean, variance) - half_log_det
    return FeaturePosterior(
        weights=w,
        root=root,
        mean=mean,
        variance=variance,
        log_evidence=evidence,
        sites=sites,
        converged=converged,
        n_iterations=n_sweeps,
    )


def _weights(features: FloatArray, sites: Sites) -> tuple[FloatArray, FloatArray, float]:
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


def _row_squares(features: FloatArray, root: FloatArray) -> FloatArray:
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


def _laplace_sites(sign: FloatArray, f: FloatArray) -> Sites:
    g, W, _ = derivatives(sign, f)
    return Sites(precision=W, location=W * f + g)


def _ep_changes(
    sign: FloatArray, sites: Sites, mean: FloatArray, variance: FloatArray
) -> FloatArray:
    """Change of the marginal of every sample by a moment-matching update, (N,)."""
    mu, s2 = _cavity(mean, variance, sites)
    scale = 1.0 / np.sqrt(1.0 + s2)
    a = sign * mu * scale
    h = inverse_mills(a)
    slope = sign * h * scale
    bend = h * positive_mean(a) * scale**2
    precision = bend / (1.0 - s2 * bend)
    d_S = precision - sites.precision
    d_nu = precision * (mu + s2 * slope) + slope - sites.location
    shift = np.abs(d_nu - d_S * mean) * np.sqrt(variance)
    return np.maximum(shift, np.abs(d_S) * variance)


def _ep_evidence(sign: FloatArray, sites: Sites, mean: FloatArray, variance: FloatArray) -> float:
    """Log evidence without - log |A| / 2, in cavity moments."""
    S, nu = sites.precision, sites.location
    mu, s2 = _cavity(mean, variance, sites)
    gain = 1.0 + s2 * S
    total = log_ndtr(sign * mu / np.sqrt(1.0 + s2)).sum() + 0.5 * np.log(gain).sum()
    total += 0.5 * (nu @ mean)
    return float(total + 0.5 * ((mu * (S * mu - 2.0 * nu) - s2 * nu**2) / gain).sum())
