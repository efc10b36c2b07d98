"""Initial values of mean field: latent coordinates from targets or principal axes.

Shapes: P problems, N samples, D features in working coordinates, R components, K outcomes.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, hstack, issparse
from scipy.sparse.linalg import LinearOperator, svds

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper.loss_augmentation import Margins
from bsdr_models.bm2pca.paper.views import View
from bsdr_models.numerics.row_space import Rows, centred_gram, squared_distance

# Size of the smaller Gram matrix beyond which the principal axes are found by Lanczos iterations.
MAX_GRAM = 1000
# Axes with a smaller share of the largest eigenvalue are numerical noise.
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
    stack, _ = _side_by_side(parts)  # its centre does not matter, as u is centred
    explained = np.stack([np.asarray(stack.T @ own).T for own in u])
    rotation, _, _ = np.linalg.svd(explained, full_matrices=False)
    return u @ rotation * np.sqrt(y.shape[1])


def residual(scores: FloatArray, targets: FloatArray) -> FloatArray:
    """Scores (N, R) less their least-squares fit on centred targets (P, N, J): (P, N, R)."""
    centred = targets - targets.mean(axis=1, keepdims=True)
    return scores - centred @ (np.linalg.pinv(centred) @ scores)


def principal_scores(parts: Sequence[View], n_components: int) -> FloatArray:
    """Unit-variance principal component scores of all views together, (N, <= R).

    Uses the smaller Gram matrix, or products with X alone if that is large; sparse X is neither
    centred nor made dense.
    """
    stack, centre = _side_by_side(parts)
    n, d = stack.shape
    if min(n, d) > max(MAX_GRAM, n_components):
        centred = LinearOperator(
            (n, d),
            matvec=lambda v: stack @ v.ravel() - centre @ v.ravel(),
            rmatvec=lambda u: stack.T @ u.ravel() - u.sum() * centre,
            dtype=np.float64,
        )
        left, singular, _ = svds(centred, k=n_components, v0=np.ones(min(n, d)))
        return left[:, ::-1][:, : _rank(singular**2, n_components)] * np.sqrt(n)
    if d > n:
        values, vectors = np.linalg.eigh(centred_gram(stack, centre))
        return vectors[:, ::-1][:, : _rank(values, n_components)] * np.sqrt(n)
    products = stack.T @ stack
    products = products.toarray() if issparse(products) else products
    values, vectors = np.linalg.eigh(products - n * np.outer(centre, centre))
    rank = _rank(values, n_components)
    axes = vectors[:, ::-1][:, :rank] * np.sqrt(n / values[::-1][:rank])
    return np.asarray(stack @ axes - centre @ axes)


def _side_by_side(parts: Sequence[View]) -> tuple[Rows, FloatArray]:
    """All views, each of unit total variance, (N, D), and their centre (D,)."""
    blocks, centres = [], []
    for view in parts:
        X: Rows = view.X
        centre = view.total / np.maximum(view.count, 1.0)
        if view.mask is not None:
            X, centre = (X - centre) * view.mask, np.zeros(len(centre))
        size = np.sqrt(max(float(squared_distance(X, centre).sum()), 1e-300))
        blocks.append(X / size)
        centres.append(centre / size)
    if any(issparse(block) for block in blocks):
        stack = hstack([csr_array(block) for block in blocks], format="csr")
    else:
        stack = np.concatenate(blocks, axis=1)
    return stack, np.concatenate(centres)


def _rank(values: FloatArray, n_components: int) -> int:
    """Numerical rank, at most R, from the eigenvalues of a Gram matrix."""
    return min(n_components, int((values > _RANK_TOL * values.max(initial=0.0)).sum()))
