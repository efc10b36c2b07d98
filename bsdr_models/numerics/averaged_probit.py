r"""Compiled log likelihood of the multinomial probit, averaged over points of the noise, by chain.

A row x with label y has latent position :math:`z = Q^\top x + \sigma \epsilon` and scores
:math:`W^\top z + b + \xi` with standard normal :math:`\epsilon` (R,) and :math:`\xi` (K,). Given
:math:`\epsilon` and the noise :math:`u = \xi_y` of its own class the label has the probability

.. math::
    l(\epsilon, u) = \prod_{j \ne y} \Phi(u + \eta_y - \eta_j), \qquad \eta = W^\top z + b,

and :math:`M^{-1} \sum_m l(\epsilon_m, u_m)` over M standard normal points of a row is an unbiased
estimate of its likelihood with all noise integrated out.

The inner loops run over the rows of a block and become SIMD code, as in
:mod:`bsdr_models.numerics._cone_kernel`. No logarithm is taken of single points: their sizes
relative to the largest of the row suffice.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from bsdr_models.numerics._cone_kernel import _INV_SQRT_2PI, _OPTIONS, _exp, _factor
from bsdr_models.typing import FloatArray, IntArray

# Rows of a block: all that is kept of it stays in the cache.
BLOCK = 64
# Margins are cut here, where the probability is beyond any float; products of so many factors then
# stay within the range.
_FAR, _IN_A_PRODUCT = 1e28, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaged:
    """Averaged log likelihood of C chains with M points for each of N rows.

    log_likelihood
        Sum over rows of the log of the average, in nats, (C,).
    share
        Of each point in the average of its row, (C, M, N); sums to one over points.
    projection, weights, bias
        Gradient, (C, D, R), (C, R, K) and (C, K); zeros unless asked for.
    """

    log_likelihood: FloatArray
    share: FloatArray
    projection: FloatArray
    weights: FloatArray
    bias: FloatArray


def evaluate(
    columns: FloatArray,
    y: IntArray,
    projection: FloatArray,
    weights: FloatArray,
    bias: FloatArray,
    points: FloatArray,
    *,
    latent_scale: float,
    with_gradient: bool = True,
) -> Averaged:
    """Log likelihood, shares of the points, and the gradient.

    Parameters
    ----------
    columns : (D, N)
        Features, rows of the data along the last axis.
    y : (N,) or (C, N)
        Label in 0..K-1, the same in all chains or not.
    projection, weights, bias : (C, D, R), (C, R, K), (C, K)
        Q, W, b; they and all scores must be finite.
    points : (C, M, R + 1, N)
        Standard normals: epsilon, then u.
    latent_scale : float
        sigma.
    with_gradient : bool

    Returns
    -------
    Averaged
    """
    n_chains, n_points, _, n_rows = points.shape
    out = Averaged(
        log_likelihood=np.zeros(n_chains),
        share=np.empty((n_chains, n_points, n_rows)),
        projection=np.zeros(projection.shape),
        weights=np.zeros(weights.shape),
        bias=np.zeros(bias.shape),
    )
    _evaluate(
        columns,
        np.atleast_2d(y),
        np.ascontiguousarray(projection),
        np.ascontiguousarray(weights),
        np.ascontiguousarray(bias),
        points,
        latent_scale,
        with_gradient,
        out.log_likelihood,
        out.share,
        out.projection,
        out.weights,
        out.bias,
    )
    return out


@njit(**_OPTIONS)
def _evaluate(
    columns: FloatArray,
    y: IntArray,
    projection: FloatArray,
    weights: FloatArray,
    bias: FloatArray,
    points: FloatArray,
    latent_scale: float,
    with_gradient: bool,
    value: FloatArray,
    share: FloatArray,
    slope_projection: FloatArray,
    slope_weights: FloatArray,
    slope_bias: FloatArray,
) -> None:
    """Fill the last five, chain by chain and block by block."""
    n_chains, n_points, _, n_rows = points.shape
    n_components, n_labels = weights.shape[1:]
    z = np.zeros((n_points, n_components, BLOCK))
    # Hazards of the rivals stand one place up, between two rows of zeros; their sum is last.
    hazard = np.zeros((n_points, n_labels + 2, BLOCK))
    mean, slope_z = np.zeros((n_components, BLOCK)), np.zeros((n_components, BLOCK))
    eta, slope_eta = np.zeros((n_labels, BLOCK)), np.zeros((n_labels, BLOCK))
    exponent, product = np.zeros((n_points, BLOCK)), np.zeros((n_points, BLOCK))
    # A copy, since the compiler makes no SIMD code of columns of unknown stride.
    work, rows = np.zeros((2, BLOCK)), np.zeros((columns.shape[0], BLOCK))
    for c in range(n_chains):
        for first in range(0, n_rows, BLOCK):
            last = min(first + BLOCK, n_rows)
            size = last - first
            label = y[c % len(y), first:last]
            for d in range(len(rows)):
                for b in range(size):
                    rows[d, b] = columns[d, first + b]
            noise, part = points[c, :, :, first:last], share[c, :, first:last]
            _project(rows, projection[c], size, mean)
            for m in range(n_points):
                _place(mean, noise[m], latent_scale, z[m])
                _scores(z[m], weights[c], bias[c], size, eta)
                _point(
                    eta, noise[m, n_components], label, exponent[m], product[m], hazard[m], work[0]
                )
            value[c] += _average(exponent, product, part, work)
            if with_gradient:
                for k in range(n_labels):
                    for b in range(size):
                        slope_eta[k, b] = 0.0
                for m in range(n_points):
                    _add_slope(part[m], hazard[m], label, z[m], slope_weights[c], slope_eta, work)
                _pull_back(
                    rows, size, weights[c], slope_eta, slope_z, slope_projection[c], slope_bias[c]
                )


@njit(**_OPTIONS)
def _project(rows: FloatArray, projection: FloatArray, size: int, mean: FloatArray) -> None:
    """Means Q'x of the positions: ``mean`` (R, BLOCK)."""
    for s in range(projection.shape[1]):
        for b in range(size):
            mean[s, b] = 0.0
        for d in range(rows.shape[0]):
            for b in range(size):
                mean[s, b] += projection[d, s] * rows[d, b]


@njit(**_OPTIONS)
def _place(mean: FloatArray, noise: FloatArray, latent_scale: float, z: FloatArray) -> None:
    """Positions at one point of the noise, (R, BLOCK)."""
    for s in range(mean.shape[0]):
        for b in range(noise.shape[1]):
            z[s, b] = mean[s, b] + latent_scale * noise[s, b]


@njit(**_OPTIONS)
def _scores(
    z: FloatArray, weights: FloatArray, bias: FloatArray, size: int, eta: FloatArray
) -> None:
    """Linear predictors: ``eta`` (K, BLOCK)."""
    for k in range(weights.shape[1]):
        start, slope = bias[k], weights[0, k]
        for b in range(size):
            eta[k, b] = start + slope * z[0, b]
        for s in range(1, weights.shape[0]):
            slope = weights[s, k]
            for b in range(size):
                eta[k, b] += slope * z[s, b]


@njit(**_OPTIONS)
def _point(
    eta: FloatArray,
    u: FloatArray,
    label: IntArray,
    exponent: FloatArray,
    product: FloatArray,
    hazard: FloatArray,
    own: FloatArray,
) -> None:
    """l = exp(exponent) / product of one point, and sqrt(2 pi) times the hazards of the rivals."""
    size, n_labels = len(label), len(eta)
    total = hazard[n_labels + 1]
    for b in range(size):
        own[b] = u[b] + eta[label[b], b]
        total[b] = 0.0
        exponent[b] = 0.0
        product[b] = 1.0
    for j in range(n_labels - 1):
        if j > 0 and j % _IN_A_PRODUCT == 0:
            for b in range(size):
                exponent[b] -= np.log(product[b])
                product[b] = 1.0
        for b in range(size):
            below, above = eta[j, b], eta[j + 1, b]
            margin = own[b] - (below if j < label[b] else above)
            r, log_part, h = _factor(min(max(margin, -_FAR), _FAR))
            exponent[b] += log_part
            product[b] *= r
            hazard[j + 1, b] = h
            total[b] += h


@njit(**_OPTIONS)
def _average(
    exponent: FloatArray, product: FloatArray, share: FloatArray, work: FloatArray
) -> float:
    """Sum over rows of the log of the mean of l; fills the shares of the points."""
    n_points, size = share.shape
    top, total = work[0], work[1]
    for b in range(size):
        top[b] = exponent[0, b]
        total[b] = 0.0
    for m in range(1, n_points):
        for b in range(size):
            top[b] = max(top[b], exponent[m, b])
    for m in range(n_points):
        for b in range(size):
            part = _exp(max(exponent[m, b] - top[b], -690.0)) / product[m, b]
            share[m, b] = part
            total[b] += part
    value = 0.0
    for b in range(size):
        value += top[b] + np.log(total[b] / n_points)
        total[b] = 1.0 / total[b]
    for m in range(n_points):
        for b in range(size):
            share[m, b] *= total[b]
    return value


@njit(**_OPTIONS)
def _add_slope(
    share: FloatArray,
    hazard: FloatArray,
    label: IntArray,
    z: FloatArray,
    slope_weights: FloatArray,
    slope_eta: FloatArray,
    work: FloatArray,
) -> None:
    """Add what one point gives: to the slope in eta, row by row, and in W."""
    size = len(share)
    n_labels = slope_eta.shape[0]
    weight, slope, total = work[0], work[1], hazard[n_labels + 1]
    for b in range(size):
        weight[b] = share[b] * _INV_SQRT_2PI
    for k in range(n_labels):
        for b in range(size):
            before, after = hazard[k, b], hazard[k + 1, b]
            other = after if k < label[b] else before
            slope[b] = weight[b] * (total[b] if k == label[b] else -other)
            slope_eta[k, b] += slope[b]
        for s in range(z.shape[0]):
            slope_weights[s, k] += _dot(z[s], slope, size)


@njit(**_OPTIONS)
def _pull_back(
    rows: FloatArray,
    size: int,
    weights: FloatArray,
    slope_eta: FloatArray,
    slope_z: FloatArray,
    slope_projection: FloatArray,
    slope_bias: FloatArray,
) -> None:
    """Add the slopes in b and Q of the rows of a block."""
    n_features = len(rows)
    n_components, n_labels = weights.shape
    for k in range(n_labels):
        for b in range(size):
            slope_bias[k] += slope_eta[k, b]
    for s in range(n_components):
        for b in range(size):
            slope_z[s, b] = 0.0
        for k in range(n_labels):
            for b in range(size):
                slope_z[s, b] += weights[s, k] * slope_eta[k, b]
        for d in range(n_features):
            slope_projection[d, s] += _dot(rows[d], slope_z[s], size)


@njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
def _dot(a: FloatArray, b: FloatArray, size: int) -> float:
    """Inner product of the first entries; summed in any order, so that it vectorises."""
    total = 0.0
    for i in range(size):
        total += a[i] * b[i]
    return total
