"""Laplace's method for a probit classifier of features, as an alternative to EP."""

import numpy as np
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.probit_ep import FeaturePosterior, Sites, row_squares, weights_of
from bsdr_models.numerics.normal_tail import inverse_mills, positive_mean

# Smallest step of the line search.
LEAST_STEP = 1e-6


def laplace_by_features(
    features: FloatArray,
    sign: FloatArray,
    *,
    start: Sites | None = None,
    tol: float = 1e-7,
    max_iter: int = 100,
) -> FeaturePosterior:
    """Normal posterior at the mode, of features (N, M) and signs (N,).

    By Newton's method with a line search, from the sites of a similar kernel matrix if given, until
    no latent value moves by more than ``tol`` of the largest.
    """
    w = np.zeros(features.shape[1]) if start is None else weights_of(features, start)[0]
    f = features @ w

    def objective(w: FloatArray, f: FloatArray) -> float:
        return float(log_ndtr(sign * f).sum() - 0.5 * (w @ w))

    value, converged, n_steps = objective(w, f), False, 0
    while not converged and n_steps < max_iter:
        n_steps += 1
        target, _, _ = weights_of(features, _laplace_sites(sign, f))
        df = features @ (target - w)
        step = 1.0
        while step > LEAST_STEP:
            w_new, f_new = w + step * (target - w), f + step * df
            new = objective(w_new, f_new)
            if new >= value - 1e-12 * (1.0 + abs(value)):
                break
            step *= 0.5
        else:
            break
        w, f, value = w_new, f_new, new
        moved = step * float(np.abs(df).max())
        converged = step == 1.0 and moved <= tol * (1.0 + float(np.abs(f).max()))
    sites = _laplace_sites(sign, f)
    w, root, half_log_det = weights_of(features, sites)
    mean, variance = features @ w, row_squares(features, root)
    # d log Z / d f at fixed K, and its product with the derivative of the mode in the prior values.
    _, W, third = derivatives(sign, mean)
    by_f = 0.5 * variance * third
    return FeaturePosterior(
        weights=w,
        root=root,
        mean=mean,
        variance=variance,
        log_evidence=objective(w, mean) - half_log_det,
        sites=sites,
        drift=by_f - W * (features @ (root.T @ (root @ (features.T @ by_f)))),
        converged=converged,
    )


def derivatives(sign: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""First derivative, minus the second, and the third of :math:`\log \Phi(z f)`, each (N,)."""
    a = sign * f
    r, p = inverse_mills(a), positive_mean(a)  # p = r + a, without cancellation
    return sign * r, r * p, sign * r * (p * (r + p) - 1.0)


def _laplace_sites(sign: FloatArray, f: FloatArray) -> Sites:
    g, W, _ = derivatives(sign, f)
    return Sites(precision=W, location=W * f + g)
