r"""The normal average of a product of probits.

.. math::
    I = \int N(a; 0, I_P) \prod_j \Phi(c_j^\top a + d_j) \, da

is the probability of a label, or of a set of labels, once a latent position of P coordinates is
integrated out. The integrand is log-concave; quasi-random normals are centred at its mode and
weighted, so that the estimate keeps its relative accuracy far out in the tail, where points drawn
from the prior of a never fall.
"""

from functools import cache

import numpy as np
from numba import njit
from scipy.special import log_ndtr, ndtri
from scipy.stats import qmc

from bsdr_models.numerics._cone_kernel import _INV_SQRT_2PI, _OPTIONS, _factor
from bsdr_models.typing import FloatArray

# Quasi-random points of a row.
N_POINTS = 32
# Share of the curvature of the probits that narrows the points: where they saturate the integrand
# falls off no faster than N(0, I), so the full curvature at the mode would miss a tail.
_SHARE = 0.5
_MAX_NEWTON, _CENTRED = 20, 1e-2


def log_mean(loadings: FloatArray, offsets: FloatArray, *, n_points: int = N_POINTS) -> FloatArray:
    """Log of the integral above, row by row.

    Parameters
    ----------
    loadings : (B, J, P)
        c.
    offsets : (B, J)
        d.
    n_points : int

    Returns
    -------
    (B,)

    Notes
    -----
    One probit has a closed form. Root mean square errors at 32 points, seen for 2 to 9 probits:
    below 0.02 with loadings of size 0.7 in 2 or 3 dimensions, 0.035 in 6; 0.1 and 0.2 with
    loadings of size 3.
    """
    if loadings.shape[1] == 1:
        size = np.sqrt(1.0 + np.sum(loadings[:, 0] ** 2, axis=1))
        return np.asarray(log_ndtr(offsets[:, 0] / size))
    points = normal_points(loadings.shape[2], n_points)
    out = np.empty(len(offsets))
    _log_means(np.ascontiguousarray(loadings), np.ascontiguousarray(offsets), points, out)
    return out


@cache
def normal_points(n_dims: int, n_points: int) -> FloatArray:
    """Scrambled Sobol normals (S, P), of mean exactly 0 and, if 4 P <= S, covariance I."""
    sobol = qmc.Sobol(n_dims, scramble=True, rng=np.random.default_rng(20130601))
    points = ndtri(sobol.random_base2((n_points - 1).bit_length())[:n_points])
    points -= points.mean(axis=0)
    if 4 * n_dims <= n_points:
        factor = np.linalg.cholesky(points.T @ points / n_points)
        points = np.ascontiguousarray(np.linalg.solve(factor, points.T).T)
    points.flags.writeable = False
    return points


@njit(**_OPTIONS)
def _log_means(
    loadings: FloatArray, offsets: FloatArray, points: FloatArray, out: FloatArray
) -> None:
    """Fill ``out`` (B,)."""
    n_rows, n_factors, n_dims = loadings.shape
    n_points = points.shape[0]
    a, at, step, slope = np.zeros(n_dims), np.zeros(n_dims), np.zeros(n_dims), np.zeros(n_dims)
    curvature, factor = np.zeros((n_dims, n_dims)), np.zeros((n_dims, n_dims))
    log_f = np.zeros(n_points)
    for row in range(n_rows):
        c, d = loadings[row], offsets[row]
        a[:] = 0.0
        for _ in range(_MAX_NEWTON):
            _slope_and_curvature(c, d, a, slope, curvature)
            _factorise(curvature, 1.0, factor)
            gain = _newton_step(factor, slope, step)
            if gain < _CENTRED:
                break
            for p in range(n_dims):
                a[p] += step[p]
        _factorise(curvature, _SHARE, factor)
        top = -np.inf
        for s in range(n_points):
            value = 0.0
            for p in range(n_dims - 1, -1, -1):  # factor' (at - a) = point
                shift = points[s, p]
                for q in range(p + 1, n_dims):
                    shift -= factor[q, p] * (at[q] - a[q])
                at[p] = a[p] + shift / factor[p, p]
                value += 0.5 * (points[s, p] - at[p]) * (points[s, p] + at[p])
            for j in range(n_factors):
                x = d[j]
                for p in range(n_dims):
                    x += c[j, p] * at[p]
                value += _log_probit(x)
            log_f[s] = value
            top = max(top, value)
        below = 0.0  # so summed, a probability next to 1 keeps its distance from it
        for s in range(n_points):
            below += np.expm1(log_f[s] - top)
        out[row] = top + np.log1p(below / n_points)
        for p in range(n_dims):
            out[row] -= np.log(factor[p, p])


@njit(forceinline=True, **_OPTIONS)
def _log_probit(x: float) -> float:
    """Compute log Phi(x) with its relative accuracy in both tails."""
    r, _, _ = _factor(-abs(x))  # log Phi(-|x|) = -x^2 / 2 - log r
    return np.log1p(-np.exp(-0.5 * x * x) / r) if x > 0.0 else -0.5 * x * x - np.log(r)


@njit(**_OPTIONS)
def _slope_and_curvature(
    c: FloatArray, d: FloatArray, a: FloatArray, slope: FloatArray, curvature: FloatArray
) -> None:
    """Gradient of the log integrand at a, and the curvature of the probits alone, lower half."""
    n_factors, n_dims = c.shape
    for p in range(n_dims):
        slope[p] = -a[p]
        for q in range(p + 1):
            curvature[p, q] = 0.0
    for j in range(n_factors):
        x = d[j]
        for p in range(n_dims):
            x += c[j, p] * a[p]
        _, _, h = _factor(x)
        h *= _INV_SQRT_2PI
        bend = min(max(h * (x + h), 0.0), 1.0)
        for p in range(n_dims):
            slope[p] += h * c[j, p]
            for q in range(p + 1):
                curvature[p, q] += bend * c[j, p] * c[j, q]


@njit(**_OPTIONS)
def _factorise(curvature: FloatArray, share: float, factor: FloatArray) -> None:
    """Lower Cholesky factor of I + share * curvature, which is never singular."""
    n_dims = curvature.shape[0]
    for p in range(n_dims):
        for q in range(p + 1):
            value = share * curvature[p, q]
            for k in range(q):
                value -= factor[p, k] * factor[q, k]
            if p == q:
                factor[p, p] = np.sqrt(1.0 + value)
            else:
                factor[p, q] = value / factor[q, q]


@njit(**_OPTIONS)
def _newton_step(factor: FloatArray, slope: FloatArray, step: FloatArray) -> float:
    """Solve factor factor' step = slope; what the step would gain, twice, if f were quadratic."""
    n_dims = factor.shape[0]
    gain = 0.0
    for p in range(n_dims):
        value = slope[p]
        for q in range(p):
            value -= factor[p, q] * step[q]
        step[p] = value / factor[p, p]
        gain += step[p] ** 2
    for p in range(n_dims - 1, -1, -1):
        value = step[p]
        for q in range(p + 1, n_dims):
            value -= factor[q, p] * step[q]
        step[p] = value / factor[p, p]
    return gain
