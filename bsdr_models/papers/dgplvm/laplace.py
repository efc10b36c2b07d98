"""Laplace's method for a binary Gaussian process classifier with a probit link [1]_.

Sites expand the log factors about the mode; :mod:`bsdr_models.dgplvm.probit` defines them.

References
----------
.. [1] C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning.
       Chapter 3, Algorithm 3.1.
"""

import numpy as np
from scipy.special import log_ndtr

from bsdr_models.dgplvm.probit import (
    Approximation,
    Evidence,
    Sites,
    kernel_gradient,
    times_features,
    weights_of,
)
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.papers.normal_tail import inverse_mills, positive_mean

# Most steps.
MAX_STEPS = 100
# Smallest step of the line search.
LEAST_STEP = 1e-6


def find_sites(
    features: FloatArray, sign: FloatArray, *, start: Sites | None = None, tol: float = 1e-7
) -> tuple[Sites, bool]:
    """Sites at the mode, and whether it was found.

    By Newton's method with a line search, until no latent value moves by ``tol`` of the largest.
    """
    w = np.zeros(features.shape[1]) if start is None else weights_of(features, start)[0]
    f = features @ w
    converged = True
    for _ in range(MAX_STEPS):
        dw = weights_of(features, _expanded_sites(sign, f))[0] - w
        df = features @ dw
        step = 1.0
        value = _log_joint(sign, w, f)
        limit = value - 1e-12 * (1.0 + abs(value))
        while step > LEAST_STEP and _log_joint(sign, w + step * dw, f + step * df) < limit:
            step *= 0.5
        if step <= LEAST_STEP:
            break
        w = w + step * dw
        f = f + step * df
        if step == 1.0 and np.abs(df).max() <= tol * (1.0 + np.abs(f).max()):
            break
    else:
        converged = False
    return _expanded_sites(sign, f), converged


def _log_joint(sign: FloatArray, w: FloatArray, f: FloatArray) -> float:
    """Log density of signs and weights (M,), of latent values f (N,), but for a constant."""
    return float(log_ndtr(sign * f).sum() - 0.5 * (w @ w))


def evidence(
    features: FloatArray, sign: FloatArray, *, start: Sites | None = None, tol: float = 1e-7
) -> Evidence:
    """Log evidence by the curvature at the mode."""
    sites, _ = find_sites(features, sign, start=start, tol=tol)
    w, root, half_log_det = weights_of(features, sites)
    mean = features @ w
    half = times_features(root, features)
    covariance = half.T @ half
    # d log Z / d f at fixed K, and its product with the derivative of the mode in the prior values.
    _, W, third = derivatives(sign, mean)
    by_f = 0.5 * np.diagonal(covariance) * third
    return Evidence(
        value=_log_joint(sign, w, mean) - half_log_det,
        gradient=kernel_gradient(mean, covariance, sites, by_f - W * (covariance @ by_f)),
        sites=sites,
    )


def derivatives(sign: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""First derivative, minus the second, and the third of :math:`\log \Phi(z f)`, each (N,)."""
    a = sign * f
    r = inverse_mills(a)
    p = positive_mean(a)  # p = r + a, without cancellation
    return sign * r, r * p, sign * r * (p * (r + p) - 1.0)


def _expanded_sites(sign: FloatArray, f: FloatArray) -> Sites:
    """Sites of the log factors about latent values f (N,)."""
    g, W, _ = derivatives(sign, f)
    return Sites(precision=W, location=W * f + g)


LAPLACE = Approximation(find_sites=find_sites, evidence=evidence)
