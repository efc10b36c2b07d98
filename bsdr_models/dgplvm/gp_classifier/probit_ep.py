r"""Expectation propagation for binary Gaussian process classification with a probit link [1]_.

The site of a sample is set such that the posterior with the site has the same mean and variance as
that with the true factor. Sites are updated sequentially, each with a rank-one update of the
posterior covariance, which is recomputed after some sweeps.

References
----------
.. [1] C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning.
       Algorithms 3.5, 3.6 and 5.2.
"""

import math
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.gp_classifier.probit_gp import Approximation, Posterior, Sites, solve_sites
from bsdr_models.numerics.compiled import njit

# Sums may be reordered, so that loops are vectorised.
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc", "nsz"},
}

# Sweeps between recomputations of the covariance, few enough that rounding does not accumulate.
_SWEEPS = 10
# Damping of the next step after a sweep that changes sites by more than the one before it.
_SHORTER = 0.5
_LEAST_STEP = 0.1
# Below it the hazard is a continued fraction of this many terms.
_FAR, _TERMS = -5.0, 60


def expectation_propagation(
    kernel: FloatArray,
    sign: FloatArray,
    *,
    start: Sites | None = None,
    tol: float = 1e-9,
    max_sweeps: int = 200,
) -> Approximation:
    """Normal posterior with moment-matched sites.

    Parameters
    ----------
    kernel : (N, N)
    sign : (N,)
        +1 or -1.
    start : Sites, optional
        Those of a similar kernel matrix.
    tol : float
        Largest change of a marginal in the last sweep: of its mean in standard deviations, and
        of the logarithm of its variance.
    max_sweeps : int

    Returns
    -------
    Approximation
        With ``drift`` zero: the evidence is stationary in the sites.
    """
    K, z = kernel, np.ascontiguousarray(sign, dtype=np.float64)
    n = len(z)
    S = np.zeros(n) if start is None else start.precision.copy()
    nu = np.zeros(n) if start is None else start.location.copy()
    sites = Sites(precision=S, location=nu)
    posterior = solve_sites(K, sites, with_covariance=True)
    step, before, n_sweeps, converged = 1.0, math.inf, 0, False
    while not converged and n_sweeps < max_sweeps:
        covariance, mean = posterior.covariance, posterior.mean.copy()
        assert covariance is not None
        most = min(_SWEEPS, max_sweeps - n_sweeps)
        done, before, step = _sweeps(covariance.T, mean, z, S, nu, step, before, tol, most)
        n_sweeps += done
        converged = before <= tol
        posterior = solve_sites(K, sites, with_covariance=not converged)
    return Approximation(
        log_evidence=_log_evidence(z, sites, posterior),
        sites=sites,
        posterior=posterior,
        drift=np.zeros(n),
        converged=converged,
        n_iterations=n_sweeps,
    )


def _log_evidence(z: FloatArray, sites: Sites, posterior: Posterior) -> float:
    """Equations (3.65), (3.73) and (3.74) of the book, in cavity variances."""
    S, nu = sites.precision, sites.location
    mu, s2 = posterior.cavity_mean, posterior.cavity_variance
    gain = 1.0 + s2 * S
    total = log_ndtr(z * mu / np.sqrt(1.0 + s2)).sum() + 0.5 * np.log(gain).sum()
    total += 0.5 * (nu @ posterior.mean)
    total += 0.5 * ((mu * (S * mu - 2.0 * nu) - s2 * nu**2) / gain).sum()
    return float(total) - posterior.half_log_det


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
    slope = sign * h * inverse_sd
    bend = h * distance * inverse_sd * inverse_sd
    new_S = bend / (1.0 - s2 * bend)
    return new_S, new_S * (mu + s2 * slope) + slope


@njit(**_OPTIONS)
def _sweeps(
    covariance: FloatArray,
    mean: FloatArray,
    sign: FloatArray,
    S: FloatArray,
    nu: FloatArray,
    step: float,
    before: float,
    tol: float,
    most: int,
) -> tuple[int, float, float]:
    """Update all sites in up to ``most`` sweeps; covariance, mean, S and nu change in place.

    Returns
    -------
    n_sweeps, change of the last sweep, step
    """
    n = len(sign)
    for sweep in range(most):
        largest = 0.0
        for i in range(n):
            variance, m = covariance[i, i], mean[i]
            new_S, new_nu = _matched(sign[i], m, variance, S[i], nu[i])
            d_S, d_nu = step * (new_S - S[i]), step * (new_nu - nu[i])
            S[i] += d_S
            nu[i] += d_nu
            shift = (d_nu - d_S * m) / (1.0 + d_S * variance)
            shrink = d_S / (1.0 + d_S * variance)
            largest = max(largest, abs(shift) * math.sqrt(variance), abs(d_S) * variance)
            if shift == 0.0 and shrink == 0.0:
                continue
            column = covariance[i].copy()
            for j in range(n):
                mean[j] += shift * column[j]
                c = shrink * column[j]
                for k in range(n):
                    covariance[j, k] -= c * column[k]
        if largest > before:
            step = max(_SHORTER * step, _LEAST_STEP)
        before = largest
        if largest <= tol:
            return sweep + 1, largest, step
    return most, before, step


@njit(**_OPTIONS)
def sweep_weights(
    features: FloatArray,
    sign: FloatArray,
    index: IntArray,
    S: FloatArray,
    nu: FloatArray,
    covariance: FloatArray,
    weights: FloatArray,
) -> float:
    """Update the sites of some samples once, for a posterior of M weights.

    Parameters
    ----------
    features : (N, M)
    sign : (N,)
    index : (L,)
        Samples to update.
    S, nu : (N,)
        Sites, changed in place.
    covariance : (M, M)
        Of the weights; changed in place.
    weights : (M,)
        Their mean; changed in place.

    Returns
    -------
    float
        Largest change of a marginal, as in `expectation_propagation`.
    """
    n_features = features.shape[1]
    largest = 0.0
    column = np.empty(n_features)
    for i in index:
        variance, m = 0.0, 0.0
        for j in range(n_features):
            total = 0.0
            for k in range(n_features):
                total += covariance[j, k] * features[i, k]
            column[j] = total
            variance += total * features[i, j]
            m += weights[j] * features[i, j]
        new_S, new_nu = _matched(sign[i], m, variance, S[i], nu[i])
        d_S, d_nu = new_S - S[i], new_nu - nu[i]
        S[i], nu[i] = new_S, new_nu
        shift = (d_nu - d_S * m) / (1.0 + d_S * variance)
        shrink = d_S / (1.0 + d_S * variance)
        largest = max(largest, abs(shift) * math.sqrt(variance), abs(d_S) * variance)
        for j in range(n_features):
            weights[j] += shift * column[j]
            c = shrink * column[j]
            for k in range(n_features):
                covariance[j, k] -= c * column[k]
    return largest
