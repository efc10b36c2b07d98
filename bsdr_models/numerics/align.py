r"""Alignment of draws of latent components by signed permutations, rotations or linear maps.

Under an entry-wise or column-wise prior the posterior has 2^R R! equivalent modes: components may
be permuted and change sign, but not be rotated. Averages over draws are meaningful only after
alignment, which leaves products over the component axis unchanged.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.relevance import of_common_size

_N_STARTS = 4
_MAX_ITER = 50
# Relative gain in agreement at which rotations have converged.
_ROTATION_TOL = 1e-10


def align(stacked: FloatArray) -> tuple[IntArray, FloatArray]:
    r"""Order and sign of the components of each draw that agree best with all other draws.

    Minimises :math:`\sum_s \min_\pi |A_s \pi_s - M|^2` over signed permutations :math:`\pi_s` and
    the reference M, alternating assignment problems and means. ``stacked`` (S, P, R) are variables
    with a component axis, for example Q over W' (P = D + K); rows are divided by their median size
    and each draw by its norm, for robustness. ``order`` (S, R) is the component of the draw for
    each component of the reference, ``sign`` (S, R) is 1 or -1.
    """
    size = np.median(np.abs(stacked), axis=(0, 2))[:, None]
    scaled = stacked / np.where(size > 0.0, size, 1.0)
    norm = np.linalg.norm(scaled, axis=(1, 2), keepdims=True)
    scaled = scaled / np.where(norm > 0.0, norm, 1.0)

    starts = evenly_spaced(len(scaled), _N_STARTS)
    candidates = [_iterate(scaled, scaled[index]) for index in starts]
    _, order, sign = max(candidates, key=lambda candidate: candidate[0])
    return order, sign


def apply(draws: FloatArray, order: IntArray, sign: FloatArray) -> FloatArray:
    """Draws (S, ..., R) in the common order and sign of :func:`align`, ones for sizes."""
    between = (len(order),) + (1,) * (draws.ndim - 2) + (order.shape[1],)
    return np.take_along_axis(draws, order.reshape(between), axis=-1) * sign.reshape(between)


def _iterate(scaled: FloatArray, reference: FloatArray) -> tuple[float, IntArray, FloatArray]:
    """Agreement (higher is better), order and sign, from one reference (P, R)."""
    order = np.zeros((len(scaled), scaled.shape[2]), dtype=np.int64)
    sign = np.zeros(order.shape)
    for _ in range(_MAX_ITER):
        inner = reference.T @ scaled  # (S, R, R): component of the reference, of the draw
        last_order, last_sign = order, sign
        order = np.array([linear_sum_assignment(-each)[1] for each in np.abs(inner)])
        matched = np.take_along_axis(inner, order[:, :, None], axis=2)[:, :, 0]
        sign = np.where(matched < 0.0, -1.0, 1.0)
        if np.array_equal(order, last_order) and np.array_equal(sign, last_sign):
            break
        reference = apply(scaled, order, sign).mean(axis=0)
    return float(np.linalg.norm(reference)), order, sign


def rotations(stacked: FloatArray) -> FloatArray:
    r"""Orthogonal matrices under which the components of all draws agree best.

    For models with a rotation-invariant prior: minimises :math:`\sum_s |A_s O_s - M|^2` over
    orthogonal :math:`O_s` and the reference M, by generalised Procrustes analysis [1]_. Rows are
    divided by their root mean square over draws, which rotations do not change. M ends in its
    principal axes, largest first. ``stacked`` is (S, P, R), the result (S, R, R).

    References
    ----------
    .. [1] J. C. Gower (1975). Generalized Procrustes analysis. Psychometrika 40(1).
    """
    size = np.sqrt(np.mean(stacked**2, axis=(0, 2)))[:, None]
    scaled = stacked / np.where(size > 0.0, size, 1.0)
    reference = scaled[-1]
    found = np.empty((len(scaled), scaled.shape[2], scaled.shape[2]))
    agreement = -np.inf
    for _ in range(_MAX_ITER):
        u, _, vt = np.linalg.svd(np.swapaxes(scaled, 1, 2) @ reference)
        found = u @ vt
        reference = np.mean(scaled @ found, axis=0)
        before, agreement = agreement, float(np.linalg.norm(reference))
        if agreement - before <= _ROTATION_TOL * agreement:
            break
    _, _, axes = np.linalg.svd(reference, full_matrices=False)
    return found @ axes.T


def linear_maps(loadings: FloatArray, weights: FloatArray) -> FloatArray:
    r"""Invertible matrices that bring the loadings of all draws closest to canonical axes.

    For models that identify the product :math:`B_s = Q_s W_s` only. With B the mean of
    :math:`B_s`, each scaled to the median norm, and V its first R right singular vectors, the
    maps minimise :math:`|Q_s A_s - B V|^2`. The weights are to be multiplied by
    :math:`A_s^{-1}` from the left, which leaves the product unchanged. Shapes are (S, P, R) and
    (S, R, K), with R of at most P and K; the maps are (S, R, R).
    """
    mean = of_common_size(loadings @ weights, centred=False).mean(axis=0)
    axes = np.linalg.svd(mean, full_matrices=False)[2][: loadings.shape[2]].T
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1, 1)
    return np.asarray(np.linalg.pinv(loadings) @ (mean @ axes))
