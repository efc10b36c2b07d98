r"""The criterion of maximally collapsing metric learning (MCML) [1]_ in the latent space.

.. math::
    p_s(j | i) \propto \exp(-s |x_i - x_j|^2 / m), \quad j \ne i, \qquad
    p_0(j | i) = \frac{[y_i = y_j]}{N_{y_i} - 1}, \qquad
    J = \min_s \tfrac{1}{n} \sum_i KL(p_0(\cdot | i) \,\|\, p_s(\cdot | i)),

with m the mean squared distance from the mean, over the n labelled samples whose class has another
one. The metric of the paper includes a scale; that of the latent coordinates is fixed by whitening,
and s takes its place. J is invariant to rotation, translation and scale, and defined for any number
of components. An evaluation costs O(N_l^2 R), and a few exponentials of each pair.

References
----------
.. [1] A. Globerson, S. Roweis (2005). Metric learning by collapsing classes. Advances in Neural
       Information Processing Systems 18.
"""

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.kernels import squared_distances

# Largest number of labelled samples: an evaluation takes some matrices of all pairs.
MAX_SAMPLES = 2000
# Bounds of log s, beyond which the softmax is uniform or selects the nearest sample; Newton steps
# for log s, and its tolerance.
_LOG_SCALE = (np.log(1e-3), np.log(1e4))
_STEPS, _TOL = 100, 1e-11


def smallest_divergence(X: FloatArray, counts: IntArray) -> tuple[float, FloatArray]:
    """J and its gradient at centred coordinates (N_l, R), sorted by class, with class sizes (C,).

    J is a minimum over s, so that its gradient is that at a fixed s: with :math:`d_{ij} =
    |x_i - x_j|^2 / m`, :math:`dJ / dd_{ij} = s (p_0 - p_s)(j | i) / n`.
    """
    peak = float(np.abs(X).max())
    if not (np.isfinite(peak) and peak > 0.0):
        raise np.linalg.LinAlgError("the latent coordinates are all equal or not finite")
    size = peak * float(np.sqrt(np.mean(np.square(X / peak).sum(axis=1))))  # sqrt(m)
    value, slope = _at_unit_scale(X / size, counts)
    return value, slope / size


def _at_unit_scale(Z: FloatArray, counts: IntArray) -> tuple[float, FloatArray]:
    """J and its gradient on the surface m = 1, at centred coordinates (N_l, R) with m = 1."""
    label = np.repeat(np.arange(len(counts)), counts)
    others = np.repeat(counts, counts) - 1.0
    target = np.equal.outer(label, label) / np.maximum(others, 1.0)[:, None]
    np.fill_diagonal(target, 0.0)
    target = target[others > 0.0]  # (n, N_l)
    n = len(target)
    if n == 0:
        return 0.0, np.zeros(Z.shape)
    distance = squared_distances(Z, Z)
    np.fill_diagonal(distance, np.inf)
    # The divergence does not change if a number is subtracted from a row.
    distance -= distance.min(axis=1, keepdims=True)
    distance = distance[others > 0.0]
    own = ~np.isfinite(distance)
    distance[own] = 0.0
    within = float(np.vdot(target, distance))

    def softmax(log_scale: float) -> tuple[FloatArray, FloatArray]:
        p = np.exp(-np.exp(log_scale) * distance)
        p[own] = 0.0
        total = p.sum(axis=1, keepdims=True)
        return p / total, np.log(total)

    def slope_and_curvature(log_scale: float) -> tuple[float, float]:
        """Derivatives of n J by log s."""
        p, _ = softmax(log_scale)
        weighted = p * distance
        mean = weighted.sum(axis=1)
        scale = np.exp(log_scale)
        slope = scale * (within - mean.sum())
        variance = np.vdot(weighted, distance) - mean @ mean
        return float(slope), float(slope + scale**2 * variance)

    log_scale = _root(slope_and_curvature, *_LOG_SCALE)
    p, log_total = softmax(log_scale)
    scale = float(np.exp(log_scale))
    entropy = float(np.log(others[others > 0.0]).sum())
    value = (scale * within + float(log_total.sum()) - entropy) / n
    W = np.zeros((len(Z), len(Z)))
    W[others > 0.0] = target - p
    W += W.T
    gradient = (2.0 * scale / n) * (W.sum(axis=1)[:, None] * Z - W @ Z)
    return max(value, 0.0), gradient - Z * (np.vdot(Z, gradient) / len(Z))


def _root(function, low: float, high: float) -> float:
    """Root of an increasing function by Newton steps within a bracket, or the nearer bound.

    ``function`` returns value and derivative. A step out of the bracket is replaced by its middle.
    """
    x = 0.5 * (low + high)
    for _ in range(_STEPS):
        value, slope = function(x)
        if value > 0.0:
            high = x
        else:
            low = x
        step = x - value / slope if slope > 0.0 else np.inf
        new = step if low < step < high else 0.5 * (low + high)
        if abs(new - x) < _TOL:
            return new
        x = new
    return x
