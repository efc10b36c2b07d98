"""Initial values of mean field: latent coordinates from targets or principal axes.

Shapes: P problems, N samples, D features in working coordinates, R components, K outcomes.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, hstack, issparse
from sklearn.decomposition import PCA

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper.loss_augmentation import Margins
from bsdr_models.bm2pca.paper.views import View
from bsdr_models.numerics.row_space import Rows, squared_distance

# Axes with a smaller share of the largest variance are numerical noise.
_RANK_TOL = 1e-12


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


def principal_scores(parts: Sequence[View], n_components: int) -> FloatArray:
    """Unit-variance principal component scores of all views together, (N, <= R)."""
    stack = _side_by_side(parts)
    n, d = stack.shape
    k = min(n_components, n - 1, d)
    if k == 0 or np.abs(stack).max() == 0.0:
        return np.zeros((n, 0))
    # Lanczos iterations neither centre sparse samples nor make them dense; they do not find all.
    solver = "covariance_eigh" if k == d else "arpack"
    pca = PCA(k, svd_solver=solver, whiten=True, random_state=0)
    scores = pca.fit_transform(stack) * np.sqrt(n / (n - 1.0))
    variance = pca.explained_variance_
    return np.asarray(scores[:, variance > _RANK_TOL * variance[0]])


def _side_by_side(parts: Sequence[View]) -> Rows:
    """All views, each of unit total variance, or zero without variation, (N, D)."""
    blocks = []
    for view in parts:
        X: Rows = view.X
        centre = view.total / np.maximum(view.count, 1.0)
        if view.mask is not None:
            X, centre = (X - centre) * view.mask, np.zeros(len(centre))
        square = float(squared_distance(X, centre).sum())
        blocks.append(X * (square**-0.5 if square > _RANK_TOL * view.square else 0.0))
    if any(issparse(block) for block in blocks):
        return hstack([csr_array(block) for block in blocks], format="csr")
    return np.concatenate(blocks, axis=1)
