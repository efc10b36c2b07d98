r"""Expectation of a product of probits under a normal distribution.

.. math::
    I = \int N(a; 0, I_P) \prod_j \Phi(c_j^\top a + d_j) \, da

is the probability of a label, or of a set of labels, with P latent coordinates integrated out; also
that of the orthant :math:`x > 0` under :math:`x \sim N(d, I + c c^\top)`. Both I and the computed
value depend on :math:`c c^\top` alone: a is first rotated to axes defined by it, and reduced to its
rank.

The integrand is log-concave. In up to three dimensions a product of Gauss-Hermite rules is centred
at its mode and scaled by its curvature there; in more, quasi-random normals.
"""

from functools import cache

import numpy as np
from scipy.special import log_ndtr, ndtri
from scipy.stats import qmc

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics._argmax_kernel import (
    _INV_SQRT_2PI,
    _OPTIONS,
    DENOMINATOR,
    NUMERATOR,
    _exp,
    _factor,
)
from bsdr_models.numerics.compiled import njit
from bsdr_models.numerics.orthant import gauss_hermite

# Gauss-Hermite nodes per axis in one, two and three dimensions; quasi-random points beyond.
N_NODES, N_POINTS = (48, 14, 8), 1024
# Fraction of the curvature of the probits at the mode that scales a rule, and its width relative to
# the normal density of that curvature. Where probits saturate the integrand falls off no faster
# than N(0, I), so the full curvature would miss a tail.
_SHARE_NODES, _WIDTH_NODES = 0.75, 0.875
_SHARE_POINTS, _WIDTH_POINTS = 0.5, 1.15
_MAX_NEWTON, _MAX_HALVINGS, _CENTRED = 60, 40, 1e-2
# Nodes per vectorised loop, and factors of a product that cannot underflow.
BLOCK, _IN_A_PRODUCT = 64, 16
# If the other labels have less probability than this, it is integrated instead.
_NEARLY_CERTAIN = 0.1


def log_mean(loadings: FloatArray, offsets: FloatArray) -> FloatArray:
    """Log of the integrals above (G, M), for c (G, J, P) of each group and d (G, M, J) of its M.

    One probit has a closed form. P dimensions are reduced to Q = J - 1 if P >= J. Observed errors,
    root mean square and largest, in nats: for ten classes under posterior draws (digits, loadings
    of 1 to 4) 2e-7 and 9e-7 at Q = 2, 7e-5 and 4e-4 at Q = 3, 6e-4 and 2e-3 at Q = 4, 3e-3 and
    1e-2 at Q = 6; for three classes (Iris and Wine, loadings up to 14) 6e-6 and 5e-4 at Q = 1.
    They increase with the loadings, up to 0.1 for loadings of 30 at Q = 1.
    """
    if loadings.shape[1] == 1:
        size = np.sqrt(1.0 + np.sum(loadings[:, 0] ** 2, axis=1))
        return np.asarray(log_ndtr(offsets[:, :, 0] / size[:, None]))
    factors, scale = principal_factors(loadings)
    sure = 1.0 / np.sqrt(1.0 + np.sum(factors**2, axis=2))
    nodes, log_weights, share, width = _rule(factors.shape[2])
    out = np.empty(offsets.shape[:2])
    _log_means(factors, scale, sure, offsets, nodes, log_weights, share, width, out)
    return out


def principal_factors(loadings: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Loadings c (G, J, Q) and scales s (G, J) with the same integrals at offsets d / s.

    s s' (I + c c') is preserved. If P < J, c is rotated to principal axes. Otherwise the
    correlation matrix is split into isotropic noise, as much as possible, and J - 1 factors. The
    largest entry of each column is positive.
    """
    n_groups, j, p = loadings.shape
    if p < j:
        _, axes = np.linalg.eigh(np.swapaxes(loadings, 1, 2) @ loadings)
        factors, scale = loadings @ axes[:, :, ::-1], np.ones((n_groups, j))
    else:
        cov = np.eye(j) + loadings @ np.swapaxes(loadings, 1, 2)
        size = np.sqrt(np.einsum("gjj->gj", cov))
        value, axes = np.linalg.eigh(cov / size[:, :, None] / size[:, None, :])
        # At least 1 / max(size**2), the unit noise of the probits.
        noise = np.maximum(value[:, 0], 1.0 / size.max(axis=1) ** 2)[:, None]
        spread = np.sqrt(np.maximum(value - noise, 0.0) / noise)[:, None]
        factors, scale = (axes * spread)[:, :, :0:-1], size * np.sqrt(noise)
    largest = np.take_along_axis(factors, np.abs(factors).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(np.where(largest < 0.0, -factors, factors)), scale


@cache
def _rule(n_dims: int) -> tuple[FloatArray, FloatArray, float, float]:
    """Nodes t (Q, S), log weights plus t^2 / 2 (S,), share of the curvature, width."""
    if n_dims > len(N_NODES):
        nodes = normal_points(n_dims, N_POINTS).T
        weights = np.full(N_POINTS, 1.0 / N_POINTS)
        share, width = _SHARE_POINTS, _WIDTH_POINTS
    else:
        node, weight = gauss_hermite(N_NODES[n_dims - 1])
        nodes = np.array(np.meshgrid(*[node] * n_dims)).reshape(n_dims, -1)
        weights = np.prod(np.meshgrid(*[weight] * n_dims), axis=0).ravel()
        share, width = _SHARE_NODES, _WIDTH_NODES
    log_weights = np.log(weights) + 0.5 * np.sum(nodes**2, axis=0) + n_dims * np.log(width)
    return np.ascontiguousarray(nodes), log_weights, share, width


@cache
def normal_points(n_dims: int, n_points: int) -> FloatArray:
    """Scrambled Sobol normals (S, P), with mean exactly 0 and, if 4 P <= S, covariance I."""
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
    loadings: FloatArray,
    scale: FloatArray,
    sure: FloatArray,
    offsets: FloatArray,
    nodes: FloatArray,
    log_weights: FloatArray,
    share: float,
    width: float,
    out: FloatArray,
) -> None:
    """Fill ``out`` (G, M)."""
    n_factors, n_dims = loadings.shape[1:]
    d, a = np.zeros(n_factors), np.zeros(n_dims)
    search = np.zeros((3, n_dims))
    curvature, factor = np.zeros((n_dims, n_dims)), np.zeros((n_dims, n_dims))
    at, work = np.zeros((n_dims, BLOCK)), np.zeros((4, BLOCK))
    for g in range(offsets.shape[0]):
        c = loadings[g]
        for m in range(offsets.shape[1]):
            beyond = 0.0
            for j in range(n_factors):
                d[j] = offsets[g, m, j] / scale[g, j]
                _, _, rest = _probit(d[j] * sure[g, j])
                beyond += rest
            certain = beyond < _NEARLY_CERTAIN
            peak = _find_mode(c, d, a, search, curvature, factor)
            _factorise(curvature, share, factor)
            peak, total = (0.0 if certain else peak), 0.0
            for first in range(0, nodes.shape[1], BLOCK):
                part = log_weights[first : first + BLOCK]
                _place(nodes[:, first : first + BLOCK], factor, a, width, at)
                total += _add_up(c, d, at, part, peak, certain, work)
            for p in range(n_dims):
                total /= factor[p, p]
            value = np.log1p(total - beyond) if certain else peak + np.log(max(total, 1e-300))
            out[g, m] = min(value, 0.0)


@njit(**_OPTIONS)
def _place(
    nodes: FloatArray, factor: FloatArray, a: FloatArray, width: float, at: FloatArray
) -> None:
    """Scaled nodes of a block: factor' (at - a) = width * node."""
    n_dims, size = nodes.shape
    for p in range(n_dims - 1, -1, -1):
        for b in range(size):
            at[p, b] = width * nodes[p, b]
        for q in range(p + 1, n_dims):
            for b in range(size):
                at[p, b] -= factor[q, p] * at[q, b]
        for b in range(size):
            at[p, b] /= factor[p, p]
    for p in range(n_dims):
        for b in range(size):
            at[p, b] += a[p]


@njit(**_OPTIONS)
def _add_up(
    c: FloatArray,
    d: FloatArray,
    at: FloatArray,
    log_weights: FloatArray,
    peak: float,
    certain: bool,
    work: FloatArray,
) -> float:
    """Sum over a block: of the integrand over its peak or, if certain, of Bonferroni's excess."""
    n_factors, n_dims = c.shape
    size = len(log_weights)
    x, exponent, product, excess = work[0], work[1], work[2], work[3]
    for b in range(size):
        exponent[b] = log_weights[b] - peak
        product[b] = 1.0
        excess[b] = 0.0
    for p in range(n_dims):
        for b in range(size):
            exponent[b] -= 0.5 * at[p, b] * at[p, b]
    for j in range(n_factors):
        if j > 0 and j % _IN_A_PRODUCT == 0 and not certain:
            for b in range(size):
                exponent[b] += np.log(product[b])
                product[b] = 1.0
        for b in range(size):
            x[b] = d[j]
        for p in range(n_dims):
            for b in range(size):
                x[b] += c[j, p] * at[p, b]
        if certain:
            for b in range(size):
                _, _, rest = _probit(x[b])
                excess[b] += (1.0 - product[b]) * rest
                product[b] *= 1.0 - rest
        else:
            for b in range(size):
                part, log_part, _ = _probit(x[b])
                exponent[b] += log_part
                product[b] *= part
    total = 0.0
    for b in range(size):
        weight = _exp(min(max(exponent[b], -690.0), 690.0))
        total += weight * (excess[b] if certain else product[b])
    return total


@njit(forceinline=True, **_OPTIONS)
def _probit(x: float) -> tuple[float, float, float]:
    """Phi(x) as part * exp(log_part), and Phi(-x), each with full relative accuracy."""
    size = abs(x)
    p = NUMERATOR[8]
    p = p * size + NUMERATOR[7]
    p = p * size + NUMERATOR[6]
    p = p * size + NUMERATOR[5]
    p = p * size + NUMERATOR[4]
    p = p * size + NUMERATOR[3]
    p = p * size + NUMERATOR[2]
    p = p * size + NUMERATOR[1]
    p = p * size + NUMERATOR[0]
    q = DENOMINATOR[9]
    q = q * size + DENOMINATOR[8]
    q = q * size + DENOMINATOR[7]
    q = q * size + DENOMINATOR[6]
    q = q * size + DENOMINATOR[5]
    q = q * size + DENOMINATOR[4]
    q = q * size + DENOMINATOR[3]
    q = q * size + DENOMINATOR[2]
    q = q * size + DENOMINATOR[1]
    q = q * size + DENOMINATOR[0]
    ratio, half = p / q, 0.5 * x * x
    tail = ratio * _exp(-min(half, 690.0))
    return (
        (ratio if x < 0.0 else 1.0 - tail),
        (-half if x < 0.0 else 0.0),
        (1.0 - tail if x < 0.0 else tail),
    )


@njit(**_OPTIONS)
def _log_integrand(c: FloatArray, d: FloatArray, a: FloatArray) -> float:
    """Log of the product of probits at a, times exp(-|a|^2 / 2)."""
    value = 0.0
    for p in range(c.shape[1]):
        value -= 0.5 * a[p] * a[p]
    for j in range(c.shape[0]):
        x = d[j]
        for p in range(c.shape[1]):
            x += c[j, p] * a[p]
        part, log_part, _ = _probit(x)
        value += log_part + np.log(part)
    return value


@njit(**_OPTIONS)
def _find_mode(
    c: FloatArray,
    d: FloatArray,
    a: FloatArray,
    work: FloatArray,
    curvature: FloatArray,
    factor: FloatArray,
) -> float:
    """Mode ``a`` of the integrand, curvature of its probits there, and the log of its value.

    Newton's method; steps are halved until the integrand rises.
    """
    slope, step, at = work[0], work[1], work[2]
    a[:] = 0.0
    value = _log_integrand(c, d, a)
    for _ in range(_MAX_NEWTON):
        _slope_and_curvature(c, d, a, slope, curvature)
        _factorise(curvature, 1.0, factor)
        if _newton_step(factor, slope, step) < _CENTRED:
            break
        for _ in range(_MAX_HALVINGS):
            for p in range(len(a)):
                at[p] = a[p] + step[p]
            reached = _log_integrand(c, d, at)
            if reached > value:
                break
            for p in range(len(a)):
                step[p] *= 0.5
        if not reached > value:
            break
        value = reached
        a[:] = at
    return value


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
                factor[p, p] = np.sqrt(max(1.0 + value, 1.0))
            else:
                factor[p, q] = value / factor[q, q]


@njit(**_OPTIONS)
def _newton_step(factor: FloatArray, slope: FloatArray, step: FloatArray) -> float:
    """Solve factor factor' step = slope; returns twice the gain of the quadratic model."""
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
