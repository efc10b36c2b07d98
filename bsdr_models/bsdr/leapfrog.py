"""Steps of trajectories, compiled, in single precision.

The gradient of the log density is that of :meth:`bsdr_models.bsdr.problem.BSDRProblem.evaluate`,
whose letters are used, for all chains at once: linear predictors have the shape (N, S, K). A
trajectory needs no Python code, which would take half of its time with few samples, and be done by
one thread at a time.

Compiling takes longer than a fit of few samples, and each caller compiles what it calls again:
there are few levels of calls, fields of tuples are read before loops, and products have one layout.
"""

import math
from typing import NamedTuple

import numpy as np

from bsdr_models.bsdr.probit_choice import OPTIONS, Nodes, fill_log_likelihood
from bsdr_models.numerics.arrays import IntArray, SingleArray
from bsdr_models.numerics.compiled import njit

# Log scales are clipped to this, so that exp does not overflow.
FARTHEST = 30.0
# Linear predictors of labels are clipped to this; probabilities beyond are those of the lapse.
DECIDED = 30.0


class Density(NamedTuple):
    """What the log density depends on but for parameters and y."""

    X: SingleArray  # whitened features and ones, whose loadings are the biases, (N, B + 1)
    X_t: SingleArray
    sample_weight: SingleArray  # (N,)
    contrasts: SingleArray  # (J, K)
    contrasts_t: SingleArray
    views: IntArray  # view of each whitened feature, (B,)
    lapse: np.float32
    bias_scale: np.float32
    view_width: np.float32
    scale: np.float32
    nodes: Nodes


class Normal(NamedTuple):
    """L of a normal distribution theta = c + L z, in single precision.

    It is diagonal but for the last M of loadings and biases: all of them, the biases, or none.
    """

    deviations: SingleArray  # (P,); 1 of the M, 0 of what is fixed, the scales of views
    cross: SingleArray  # decrease of the mean of the M for each loading before them, (M, .)
    cross_t: SingleArray
    root: SingleArray  # of the covariance of the M given the loadings before them, (M, M)
    root_t: SingleArray


@njit(**OPTIONS)
def multiply(left: SingleArray, right: SingleArray, out: SingleArray) -> None:
    """Fill ``out`` with the product of two matrices; compiled once for all of its calls."""
    np.dot(left, right, out)


@njit(inline="always", **OPTIONS)
def product(normal: Normal, z: SingleArray) -> SingleArray:
    """L z of vectors (C, P), as :meth:`bsdr_models.bsdr.hmc.Whitening.product`."""
    m, n = normal.cross.shape
    deviations = normal.deviations
    out = np.empty(z.shape, np.float32)
    before = np.empty((len(z), n), np.float32)
    last = np.empty((len(z), m), np.float32)
    for s in range(len(z)):
        for i in range(z.shape[1]):
            out[s, i] = deviations[i] * z[s, i]
        for i in range(n):
            before[s, i] = out[s, i]
        for i in range(m):
            last[s, i] = z[s, n + i]
    own = np.empty((len(z), m), np.float32)
    shift = np.empty((len(z), m), np.float32)
    multiply(last, normal.root_t, own)
    multiply(before, normal.cross_t, shift)
    for s in range(len(z)):
        for i in range(m):
            out[s, n + i] = own[s, i] - shift[s, i]
    return out


@njit(inline="always", **OPTIONS)
def transposed(normal: Normal, gradient: SingleArray) -> SingleArray:
    """L' times gradients (C, P), as :meth:`bsdr_models.bsdr.hmc.Whitening.transposed`."""
    m, n = normal.cross.shape
    deviations = normal.deviations
    out = np.empty(gradient.shape, np.float32)
    last = np.empty((len(gradient), m), np.float32)
    for s in range(len(gradient)):
        for i in range(m):
            last[s, i] = gradient[s, n + i]
    own = np.empty((len(gradient), m), np.float32)
    shift = np.empty((len(gradient), n), np.float32)
    multiply(last, normal.root, own)
    multiply(last, normal.cross, shift)
    for s in range(len(gradient)):
        for i in range(gradient.shape[1]):
            out[s, i] = deviations[i] * gradient[s, i]
        for i in range(n):
            out[s, i] -= deviations[i] * shift[s, i]
        for i in range(m):
            out[s, n + i] = own[s, i]
    return out


@njit(**OPTIONS)
def _label_log_likelihood(
    eta: SingleArray, y: np.ndarray, lapse: np.float32, value: SingleArray, slope: SingleArray
) -> None:
    """Fill the log likelihood (N, S) of labels (N, K), and its gradient in eta (N, S, K)."""
    n_samples, n_chains, k = eta.shape
    for n in range(n_samples):
        for s in range(n_chains):
            value[n, s] = 0.0
            for c in range(k):
                sign = 1.0 if y[n, c] else -1.0
                margin = min(max(sign * eta[n, s, c], -DECIDED), DECIDED)
                below = 0.5 * math.erfc(-margin / math.sqrt(2.0))
                p = (1.0 - lapse) * below + 0.5 * lapse
                density = math.exp(-0.5 * margin**2) / math.sqrt(2.0 * math.pi)
                value[n, s] += math.log(p)
                slope[n, s, c] = sign * (1.0 - lapse) * density / p


@njit(**OPTIONS)
def evaluate(
    density: Density, y: np.ndarray, theta: SingleArray, value: SingleArray, gradient: SingleArray
) -> None:
    """Fill the log likelihood (N, S) of y and vectors (S, P), and the gradients (S, P)."""
    contrasts = density.contrasts
    views = density.views
    view_width = density.view_width
    j, k = contrasts.shape
    n_samples, n_columns = density.X.shape
    n_features = n_columns - 1
    n = n_columns * j
    n_chains = len(theta)
    n_views = theta.shape[1] - n - 1
    scale = np.empty((n_chains, n_columns), np.float32)
    weights = np.empty((n_columns, n_chains * k), np.float32)
    by_class = np.empty((n_columns, k), np.float32)
    eta = np.empty((n_samples, n_chains * k), np.float32)
    slope = np.empty((n_samples, n_chains * k), np.float32)
    by_loading = np.empty((n_columns, j), np.float32)
    for s in range(n_chains):
        for b in range(n_features):
            log_scale = theta[s, -1]
            if n_views > 0:
                log_scale += view_width * theta[s, n + views[b]]
            scale[s, b] = math.exp(min(max(log_scale, -FARTHEST), FARTHEST))
        scale[s, n_features] = density.bias_scale
        multiply(theta[s, :n].reshape(n_columns, j), contrasts, by_class)
        for b in range(n_columns):
            for c in range(k):
                weights[b, s * k + c] = scale[s, b] * by_class[b, c]
    multiply(density.X, weights, eta)
    if y.ndim == 1:  # the compiler takes only the branch of this type of y
        repeated = np.empty(n_samples * n_chains, np.int64)
        for m in range(n_samples):
            for s in range(n_chains):
                repeated[m * n_chains + s] = y[m]
        flat = (1, n_samples * n_chains, k)
        fill_log_likelihood(
            eta.reshape(flat),
            repeated,
            density.lapse,
            density.nodes,
            value.reshape(flat[:2]),
            slope.reshape(flat),
        )
    else:
        shape = (n_samples, n_chains, k)
        _label_log_likelihood(eta.reshape(shape), y, density.lapse, value, slope.reshape(shape))
    for m in range(n_samples):
        for s in range(n_chains):
            value[m, s] *= density.sample_weight[m]
        for c in range(n_chains * k):
            slope[m, c] *= density.sample_weight[m]
    multiply(density.X_t, slope, weights)
    for s in range(n_chains):
        for b in range(n_columns):
            for c in range(k):
                by_class[b, c] = weights[b, s * k + c]
        multiply(by_class, density.contrasts_t, by_loading)
        for i in range(n_views):
            gradient[s, n + i] = -theta[s, n + i]
        by_scale = np.float32(0.0)
        for b in range(n_columns):
            by_feature = np.float32(0.0)
            for i in range(j):
                each = scale[s, b] * by_loading[b, i]
                by_feature += each * theta[s, b * j + i]
                gradient[s, b * j + i] = each - theta[s, b * j + i]
            if b < n_features:
                by_scale += by_feature
                if n_views > 0:
                    gradient[s, n + views[b]] += view_width * by_feature
        ratio = math.exp(theta[s, -1]) / density.scale
        gradient[s, -1] = by_scale + 1.0 - ratio * ratio


@njit(**OPTIONS)
def leapfrog(
    density: Density,
    y: np.ndarray,
    normal: Normal,
    centre: SingleArray,
    z: SingleArray,
    p: SingleArray,
    step: np.float32,
    n_steps: int,
) -> None:
    """Move coordinates z and momenta p, (C, P) each, by rotations with kicks between them."""
    cos = np.float32(math.cos(step))
    sin = np.float32(math.sin(step))
    gradient = np.empty(z.shape, np.float32)
    value = np.empty((len(density.X), len(z)), np.float32)
    for number in range(n_steps):
        if number > 0:
            theta = product(normal, z)
            for s in range(len(z)):
                for i in range(z.shape[1]):
                    theta[s, i] += centre[s, i]
            evaluate(density, y, theta, value, gradient)
            force = transposed(normal, gradient)
            for s in range(len(z)):
                for i in range(z.shape[1]):
                    p[s, i] += step * (force[s, i] + z[s, i])
        for s in range(len(z)):
            for i in range(z.shape[1]):
                before = z[s, i]
                z[s, i] = cos * before + sin * p[s, i]
                p[s, i] = cos * p[s, i] - sin * before
