"""Initial values of mean field: latent coordinates from targets or principal axes.

Shapes: P problems, N samples, D features in working coordinates, R components, K outcomes.
"""

from collections.abc import Sequence

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.factor_model import _side_by_side
from bsdr_models.bm2pca.paper.loss_augmentation import Margins
from bsdr_models.bm2pca.views import View


def complete_targets(margins: Margins) -> FloatArray:
    """Targets (P, N, K), those that are missing at the mean of their outcome."""
    count = np.maximum(margins.observed.sum(axis=1, keepdims=True), 1)
    mean = np.sum(margins.y * margins.observed, axis=1, keepdims=True) / count
    return np.where(margins.observed, margins.y, mean)


def target_coordinates(y: FloatArray, parts: Sequence[View]) -> FloatArray:
    """Targets as latent coordinates: y itself, or axes of several, (P, N, <= K).

    Axes of targets of equal variance, such as classes of equal size, are defined by the features:
    those which explain most of them come first.
    """
    if y.shape[-1] == 1:
        return y
    u, s, _ = np.linalg.svd(y - y.mean(axis=1, keepdims=True), full_matrices=False)
    live = s > 1e-9 * s[:, :1]
    u = u[..., : int(live.sum(axis=1).min())]
    stack = _side_by_side(parts)
    explained = np.stack([np.asarray(stack.T @ own).T for own in u])
    rotation, _, _ = np.linalg.svd(explained, full_matrices=False)
    return u @ rotation * np.sqrt(y.shape[1])


def residual(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Scores (N, R) less their least-squares fit on centred targets (P, N, J): (P, N, R)."""
    centred = targets - targets.mean(axis=1, keepdims=True)
    return scores - centred @ (np.linalg.pinv(centred) @ scores)
