"""Initial values of mean field: latent coordinates from targets or principal axes.

Shapes: N samples, R components, K outcomes.
"""

from collections.abc import Sequence

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.factor_model import side_by_side
from bsdr_models.bm2pca.paper.loss_augmentation import Margins
from bsdr_models.bm2pca.views import View


def complete_targets(margins: Margins) -> FloatArray:
    """Targets (N, K), those that are missing at the mean of their outcome."""
    count = np.maximum(margins.observed.sum(axis=0), 1)
    mean = np.sum(margins.y * margins.observed, axis=0) / count
    return np.where(margins.observed, margins.y, mean)


def target_coordinates(y: FloatArray, parts: Sequence[View]) -> FloatArray:
    """Targets as latent coordinates: y itself, or axes of several, (N, <= K).

    Axes of targets of equal variance, such as classes of equal size, are defined by the features:
    those which explain most of them come first.
    """
    if y.shape[1] == 1:
        return y
    u, s, _ = np.linalg.svd(y - y.mean(axis=0), full_matrices=False)
    u = u[:, s > 1e-9 * s[0]]
    rotation, _, _ = np.linalg.svd((side_by_side(parts).T @ u).T, full_matrices=False)
    return np.asarray(u @ rotation * np.sqrt(len(y)))


def residual(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Scores (N, R) less their least-squares fit on centred targets (N, J)."""
    centred = targets - targets.mean(axis=0)
    return scores - centred @ (np.linalg.pinv(centred) @ scores)
