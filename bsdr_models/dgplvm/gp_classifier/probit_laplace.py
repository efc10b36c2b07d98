r"""Laplace's method for binary Gaussian process classification with a probit link [1]_.

The log posterior :math:`\sum_i \log \Phi(z_i f_i) - f^\top K^{-1} f / 2` is concave. Newton's
method with a line search finds its mode, and sites of the precision W = minus the second derivative
of :math:`\log \Phi(z_i f_i)` there make the posterior normal.

References
----------
.. [1] C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning.
       Algorithms 3.1, 3.2 and 5.1.
"""

import numpy as np
from scipy.linalg import lapack
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.gp_classifier.probit_gp import Approximation, Sites, solve_sites
from bsdr_models.numerics.linalg import factorise_inplace
from bsdr_models.numerics.normal_tail import inverse_mills, positive_mean

_MAX_HALVINGS = 40
# Relative decrease of the objective attributed to rounding.
_ROUNDING = 1e-12


def laplace(
    kernel: FloatArray,
    sign: FloatArray,
    *,
    start: Sites | None = None,
    tol: float = 1e-7,
    max_iter: int = 100,
) -> Approximation:
    r"""Normal posterior at the mode.

    .. math::
        \log Z = \sum_i \log \Phi(z_i f_i) - \tfrac12 b^\top f - \tfrac12 \log |B|, \qquad f = K b

    Parameters
    ----------
    kernel : (N, N)
    sign : (N,)
        +1 or -1.
    start : Sites, optional
        Those of a similar kernel matrix.
    tol : float
        Largest change of a latent value, relative to the largest, in a full step that ends the
        search; the error is of the order of its square.
    max_iter : int
        Largest number of Newton steps.

    Returns
    -------
    Approximation
        Its ``drift`` is the gradient through the mode.
    """
    K, z = kernel, sign
    b, f = _begin(K, start)
    value = _objective(z, b, f)
    converged = False
    n_steps = 0
    while not converged and n_steps < max_iter:
        n_steps += 1
        direction = _newton(K, z, f) - b
        b, f, value, moved, full = _line_search(K, z, b, f, value, direction)
        converged = full and moved <= tol * (1.0 + float(np.abs(f).max()))
        if moved == 0.0:
            break
    return _at_mode(K, z, f, converged=converged, n_iterations=n_steps)


def derivatives(sign: FloatArray, f: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""First derivative, minus the second, and the third of :math:`\log \Phi(z f)`, each (N,)."""
    a = sign * f
    r, p = inverse_mills(a), positive_mean(a)  # p = r + a, without cancellation
    return sign * r, r * p, sign * r * (p * (r + p) - 1.0)


def _begin(K: FloatArray, start: Sites | None) -> tuple[FloatArray, FloatArray]:
    """Initial weights and latent values."""
    if start is None:
        zero = np.zeros(len(K))
        return zero, zero
    b = solve_sites(K, start).weights
    return b, K @ b


def _objective(z: FloatArray, b: FloatArray, f: FloatArray) -> float:
    return float(log_ndtr(z * f).sum() - 0.5 * (b @ f))


def _newton(K: FloatArray, z: FloatArray, f: FloatArray) -> FloatArray:
    """Weights after a full Newton step from f."""
    g, W, _ = derivatives(z, f)
    s = np.sqrt(W)
    B = np.asfortranarray(s[:, None] * K * s)
    B.flat[:: len(B) + 1] += 1.0
    factor, _ = factorise_inplace(B, name="I + W^1/2 K W^1/2")
    target = W * f + g
    solved, _ = lapack.dpotrs(factor, s * (K @ target), lower=1)
    return np.asarray(target - s * solved)


def _line_search(
    K: FloatArray, z: FloatArray, b: FloatArray, f: FloatArray, value: float, step: FloatArray
) -> tuple[FloatArray, FloatArray, float, float, bool]:
    """Halve the step until the objective does not fall: b, f, value, largest change, full step."""
    df = K @ step
    size = 1.0
    floor = value - _ROUNDING * (1.0 + abs(value))
    for _ in range(_MAX_HALVINGS):
        b_new, f_new = b + size * step, f + size * df
        new = _objective(z, b_new, f_new)
        if new >= floor:
            return b_new, f_new, new, size * float(np.abs(df).max()), size == 1.0
        size *= 0.5
    return b, f, value, 0.0, False


def _at_mode(
    K: FloatArray, z: FloatArray, f: FloatArray, *, converged: bool, n_iterations: int
) -> Approximation:
    """Sites, posterior and evidence at the mode."""
    g, W, third = derivatives(z, f)
    sites = Sites(precision=W, location=W * f + g)
    posterior = solve_sites(K, sites)
    # d log Z / d f at fixed K, and its product with the derivative of the mode in the prior values.
    slope = 0.5 * posterior.variance * third
    root = posterior.root
    drift = slope - root.T @ (root @ (K @ slope))
    fit = log_ndtr(z * posterior.mean).sum() - 0.5 * (posterior.weights @ posterior.mean)
    return Approximation(
        log_evidence=float(fit) - posterior.half_log_det,
        sites=sites,
        posterior=posterior,
        drift=drift,
        converged=converged,
        n_iterations=n_iterations,
    )
