"""Steps of trajectories, compiled, in single precision.

The gradient of the log density is that of :meth:`bsdr_models.bsdr.problem.Problem.evaluate`, whose
letters are used, for all chains at once: linear predictors have the shape (N, S, K). A trajectory
needs no Python code, which would take half of its time with few samples, and be done by one thread
at a time.
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
    """What the log density depends on but for parameters.

    Of matrices there are the transposes, since products of each layout take time to compile.
    """

    X: SingleArray  # whitened features, (N, B)
    X_t: SingleArray
    y: np.ndarray  # classes (N,), or whether samples have labels (N, K)
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
def product(normal: Normal, z: SingleArray) -> SingleArray:
    """L z of vectors (C, P)."""
    m, n = normal.cross.shape
    out = np.empty(z.shape, np.float32)
    before = np.empty((len(z), n), np.float32)
    last = np.empty((len(z), m), np.float32)
    for s in range(len(z)):
        for i in range(z.shape[1]):
            out[s, i] = normal.deviations[i] * z[s, i]
        for i in range(n):
            before[s, i] = out[s, i]
        for i in range(m):
            last[s, i] = z[s, n + i]
    own = np.dot(last, normal.root_t)
    shift = np.dot(before, normal.cross_t)
    for s in range(len(z)):
        for i in range(m):
            out[s, n + i] = own[s, i] - shift[s, i]
    return out


@njit(**OPTIONS)
def transposed(normal: Normal, gradient: SingleArray) -> SingleArray:
    """L' times gradients (C, P)."""
    m, n = normal.cross.shape
    out = np.empty(gradient.shape, np.float32)
    last = np.empty((len(gradient), m), np.float32)
    for s in range(len(gradient)):
        for i in range(m):
            last[s, i] = gradient[s, n + i]
    own = np.dot(last, normal.root)
    shift = np.dot(last, normal.cross)
    for s in range(len(gradient)):
        for i in range(gradient.shape[1]):
            out[s, i] = normal.deviations[i] * gradient[s, i]
        for i in range(n):
            out[s, i] -= normal.deviations[i] * shift[s, i]
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
def _log_likelihood(
    density: Density, y: np.ndarray, eta: SingleArray, value: SingleArray, slope: SingleArray
) -> None:
    """Fill the log likelihood (N, S), and its gradient in eta (N, S, K), which is zero before."""
    n_samples, n_chains, k = eta.shape
    if y.ndim == 1:  # the compiler takes only the branch of this type of y
        repeated = np.empty(n_samples * n_chains, y.dtype)
        for n in range(n_samples):
            for s in range(n_chains):
                repeated[n * n_chains + s] = y[n]
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
        _label_log_likelihood(eta, y, density.lapse, value, slope)


@njit(**OPTIONS)
def evaluate(
    density: Density, theta: SingleArray, value: SingleArray, gradient: SingleArray
) -> None:
    """Fill the log likelihood (N, S) of vectors (S, P), and the gradients (S, P)."""
    n_samples, n_features = density.X.shape
    j, k = density.contrasts.shape
    n_chains = len(theta)
    n = n_features * j
    n_views = theta.shape[1] - n - j - 1
    scale = np.empty((n_chains, n_features), np.float32)
    weights = np.empty((n_features, n_chains * k), np.float32)
    by_class = np.empty((n_features, k), np.float32)
    bias = np.empty(n_chains * k, np.float32)
    for s in range(n_chains):
        for b in range(n_features):
            log_scale = theta[s, -1]
            if n_views > 0:
                log_scale += density.view_width * theta[s, n + j + density.views[b]]
            scale[s, b] = math.exp(min(max(log_scale, -FARTHEST), FARTHEST))
        np.dot(theta[s, :n].reshape(n_features, j), density.contrasts, by_class)
        for b in range(n_features):
            for c in range(k):
                weights[b, s * k + c] = scale[s, b] * by_class[b, c]
        for c in range(k):
            total = np.float32(0.0)
            for i in range(j):
                total += theta[s, n + i] * density.contrasts[i, c]
            bias[s * k + c] = density.bias_scale * total
    eta = np.dot(density.X, weights)
    slope = np.empty(eta.shape, np.float32)
    for m in range(n_samples):
        for c in range(n_chains * k):
            eta[m, c] += bias[c]
            slope[m, c] = 0.0
    shape = (n_samples, n_chains, k)
    _log_likelihood(density, density.y, eta.reshape(shape), value, slope.reshape(shape))
    by_class_total = np.zeros(n_chains * k, np.float32)
    for m in range(n_samples):
        for s in range(n_chains):
            value[m, s] *= density.sample_weight[m]
        for c in range(n_chains * k):
            slope[m, c] *= density.sample_weight[m]
            by_class_total[c] += slope[m, c]
    np.dot(density.X_t, slope, weights)
    by_loading = np.empty((n_features, j), np.float32)
    for s in range(n_chains):
        for b in range(n_features):
            for c in range(k):
                by_class[b, c] = weights[b, s * k + c]
        np.dot(by_class, density.contrasts_t, by_loading)
        for i in range(n_views):
            gradient[s, n + j + i] = -theta[s, n + j + i]
        by_scale = np.float32(0.0)
        for b in range(n_features):
            by_feature = np.float32(0.0)
            for i in range(j):
                each = scale[s, b] * by_loading[b, i]
                by_feature += each * theta[s, b * j + i]
                gradient[s, b * j + i] = each - theta[s, b * j + i]
            by_scale += by_feature
            if n_views > 0:
                gradient[s, n + j + density.views[b]] += density.view_width * by_feature
        for i in range(j):
            total = np.float32(0.0)
            for c in range(k):
                total += density.contrasts[i, c] * by_class_total[s * k + c]
            gradient[s, n + i] = density.bias_scale * total - theta[s, n + i]
        ratio = math.exp(theta[s, -1]) / density.scale
        gradient[s, -1] = by_scale + 1.0 - ratio * ratio


@njit(**OPTIONS)
def leapfrog(
    density: Density,
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
            evaluate(density, theta, value, gradient)
            force = transposed(normal, gradient)
            for s in range(len(z)):
                for i in range(z.shape[1]):
                    p[s, i] += step * (force[s, i] + z[s, i])
        for s in range(len(z)):
            for i in range(z.shape[1]):
                before = z[s, i]
                z[s, i] = cos * before + sin * p[s, i]
                p[s, i] = cos * p[s, i] - sin * before
