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
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import qmc

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.compiled import njit
from bsdr_models.numerics.normal_tail import OPTIONS, inverse_mills, probit

# Gauss-Hermite nodes per axis in one, two and three dimensions.
N_NODES = (48, 14, 8)
# Quasi-random points in more dimensions.
N_POINTS = 1024
# Fraction of the curvature of the probits at the mode that scales a rule of nodes, and of points.
# Where probits saturate the integrand falls off no faster than N(0, I), so the full curvature would
# miss a tail.
_SHARE_NODES = 0.75
_SHARE_POINTS = 0.5
# Width of a rule relative to the normal density of that curvature.
_WIDTH_NODES = 0.875
_WIDTH_POINTS = 1.15
# Most Newton steps to the mode.
_MAX_NEWTON = 60
# Most halvings of a step.
_MAX_HALVINGS = 40
# Length of a step at which the mode is found; a rule need not be centred exactly.
_CENTRED = 1e-2
# If the other labels have less probability than this, it is integrated instead.
_NEARLY_CERTAIN = 0.1
# A product of probits below this moves to the exponent.
_SMALL = 1e-200


def log_mean(loadings: FloatArray, offsets: FloatArray) -> FloatArray:
    """Log of the integrals above (G, M), for c (G, J, P) of each group and d (G, M, J) of its M.

    One probit has a closed form. P dimensions are reduced to Q = J - 1 if P >= J. Largest observed
    errors in nats: for ten classes under posterior draws (digits, loadings of 1 to 4) 9e-7 at
    Q = 2, 4e-4 at Q = 3, 2e-3 at Q = 4 and 1e-2 at Q = 6; for three classes (Iris and Wine,
    loadings up to 14) 5e-4 at Q = 1. They increase with the loadings, to 0.1 for loadings of 30.
    """
    if loadings.shape[1] == 1:
        size = np.sqrt(1.0 + np.sum(loadings[:, 0] ** 2, axis=1))
        return np.asarray(log_ndtr(offsets[:, :, 0] / size[:, None]))
    factors, scale = principal_factors(loadings)
    offsets = offsets / scale[:, None]
    nodes, log_weights, share, width = _rule(factors.shape[2])
    modes, peaks, curvature = _find_modes(factors, offsets)
    root = np.linalg.cholesky(np.eye(factors.shape[2]) + share * curvature)
    axes = np.linalg.inv(root).mT  # (G, M, Q, Q)
    # Probability outside of the half-space of each probit, summed.
    beyond = ndtr(-offsets / np.sqrt(1.0 + np.sum(factors**2, axis=2))[:, None]).sum(axis=2)
    out = np.empty(offsets.shape[:2])
    _log_means(factors, offsets, modes, peaks, width * axes, beyond, nodes, log_weights, out)
    return out


def principal_factors(loadings: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Loadings c (G, J, Q) and scales s (G, J) with the same integrals at offsets d / s.

    s s' (I + c c') is preserved. If P < J, c is rotated to principal axes. Otherwise the
    correlation matrix is split into isotropic noise, as much as possible, and J - 1 factors. The
    largest entry of each column is positive.
    """
    n_groups, j, p = loadings.shape
    if p < j:
        _, axes = np.linalg.eigh(loadings.mT @ loadings)
        factors = loadings @ axes[:, :, ::-1]
        scale = np.ones((n_groups, j))
    else:
        cov = np.eye(j) + loadings @ loadings.mT
        size = np.sqrt(np.einsum("gjj->gj", cov))
        value, axes = np.linalg.eigh(cov / size[:, :, None] / size[:, None, :])
        # At least 1 / max(size**2), the unit noise of the probits.
        noise = np.maximum(value[:, 0], 1.0 / size.max(axis=1) ** 2)[:, None]
        spread = np.sqrt(np.maximum(value - noise, 0.0) / noise)[:, None]
        factors = (axes * spread)[:, :, :0:-1]
        scale = size * np.sqrt(noise)
    largest = np.take_along_axis(factors, np.abs(factors).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(np.where(largest < 0.0, -factors, factors)), scale


@cache
def _rule(n_dims: int) -> tuple[FloatArray, FloatArray, float, float]:
    """Nodes t (S, Q), log weights plus t^2 / 2 (S,), share of the curvature, width."""
    if n_dims > len(N_NODES):
        nodes = normal_points(n_dims, N_POINTS)
        weights = np.full(N_POINTS, 1.0 / N_POINTS)
        share = _SHARE_POINTS
        width = _WIDTH_POINTS
    else:
        node, weight = np.polynomial.hermite_e.hermegauss(N_NODES[n_dims - 1])
        weight /= weight.sum()
        nodes = np.stack(np.meshgrid(*[node] * n_dims), axis=-1).reshape(-1, n_dims)
        weights = np.prod(np.meshgrid(*[weight] * n_dims), axis=0).ravel()
        share = _SHARE_NODES
        width = _WIDTH_NODES
    log_weights = np.log(weights) + 0.5 * np.sum(nodes**2, axis=1)
    return np.array(nodes, order="C"), log_weights, share, width


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


def _find_modes(c: FloatArray, d: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Modes (G, M, Q) of the integrands, logs of their values, and curvatures of the probits there.

    Newton's method; steps are halved until the integrand rises.
    """
    a = np.zeros((*d.shape[:2], c.shape[2]))
    value, gradient, curvature = _log_integrand(c, d, a)
    active = np.ones(value.shape, dtype=bool)
    for _ in range(_MAX_NEWTON):
        step = np.linalg.solve(np.eye(c.shape[2]) + curvature, gradient[..., None])[..., 0]
        active &= np.sum(step * gradient, axis=-1) >= _CENTRED
        if not active.any():
            break
        step[~active] = 0.0
        for _ in range(_MAX_HALVINGS):
            reached, *derivatives = _log_integrand(c, d, a + step)
            if not (low := active & ~(reached > value)).any():
                break
            step[low] *= 0.5
        active &= reached > value
        a[active] += step[active]
        value[active] = reached[active]
        gradient[active], curvature[active] = (each[active] for each in derivatives)
    return a, value, curvature


def _log_integrand(
    c: FloatArray, d: FloatArray, a: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log of the product of probits times exp(-|a|^2 / 2), gradient, curvature of the probits."""
    x = d + a @ c.mT  # (G, M, J)
    h = inverse_mills(x)
    bend = np.clip(h * (x + h), 0.0, 1.0)
    value = log_ndtr(x).sum(axis=-1) - 0.5 * np.sum(a**2, axis=-1)
    return value, h @ c - a, np.einsum("gmj,gjp,gjq->gmpq", bend, c, c, optimize=True)


@njit(**OPTIONS)
def _log_means(
    c: FloatArray,
    d: FloatArray,
    modes: FloatArray,
    peaks: FloatArray,
    axes: FloatArray,
    beyond: FloatArray,
    nodes: FloatArray,
    log_weights: FloatArray,
    out: FloatArray,
) -> None:
    """Fill ``out`` (G, M) by rules with nodes (S, Q) around the modes along given axes."""
    n_groups, n_samples, n_factors = d.shape
    n_dims = c.shape[2]
    at = np.empty(n_dims)
    for g in range(n_groups):
        for m in range(n_samples):
            certain = beyond[g, m] < _NEARLY_CERTAIN
            total = 0.0
            for s in range(len(nodes)):
                exponent = log_weights[s] - (0.0 if certain else peaks[g, m])
                for p in range(n_dims):
                    at[p] = modes[g, m, p]
                    for q in range(p, n_dims):
                        at[p] += axes[g, m, p, q] * nodes[s, q]
                    exponent -= 0.5 * at[p] * at[p]
                product = 1.0
                excess = 0.0
                for j in range(n_factors):
                    x = d[g, m, j]
                    for p in range(n_dims):
                        x += c[g, j, p] * at[p]
                    part, log_part, _, rest = probit(x)
                    if certain:  # Bonferroni's excess
                        excess += (1.0 - product) * rest
                        product *= 1.0 - rest
                        continue
                    exponent += log_part
                    product *= part
                    if product < _SMALL:
                        exponent += np.log(product)
                        product = 1.0
                total += (excess if certain else product) * np.exp(exponent)
            for p in range(n_dims):
                total *= axes[g, m, p, p]
            if certain:
                value = np.log1p(total - beyond[g, m])
            else:
                value = peaks[g, m] + np.log(max(total, 1e-300))
            out[g, m] = min(value, 0.0)
