"""Where a mean field of BM2PCA starts: positions from targets or principal axes, vague factors.

Shapes: P problems, N rows, D features in working coordinates, R components, K outcomes.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.views import View, ViewState
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.row_space import Rows, centred_gram, squared_distance

# Axes whose share of the largest sum of squares is below this are rounding.
_SMALLEST_SHARE = 1e-12


def view_state(view: View, *, n_problems: int, n_components: int) -> ViewState:
    """Factors of a view that knows where its rows lie and how far they spread, no more."""
    p = n_problems
    centre_square = float(view.total @ view.total) / max(float(view.count.mean()), 1.0)
    scale = max(view.n_observed, 1.0) / max(view.square - centre_square, 1e-300)
    d, j = view.total.size, view.count.size
    ones = np.ones((p, n_components))
    return ViewState(
        loadings=views.Loadings(
            mean=np.zeros((p, d, n_components)),
            cov=np.tile(np.eye(n_components) / scale, (p, j, 1, 1)),
            log_det=np.full((p, j), -n_components * np.log(scale)),
        ),
        loading_precision=Gamma(shape=ones, rate=ones / scale),
        offset=views.Offset(
            mean=np.tile(view.total / np.maximum(view.count, 1.0), (p, 1)),
            variance=np.tile(1.0 / (scale * np.maximum(view.count, 1.0)), (p, 1)),
        ),
        noise_precision=Gamma(shape=np.ones(p), rate=np.full(p, 1.0 / scale)),
    )


def target_scores(y: FloatArray) -> FloatArray:
    """Targets as latent positions: y itself, or the leading axes of several, (P, N, <= K)."""
    if y.shape[-1] == 1:
        return y
    u, s, _ = np.linalg.svd(y - y.mean(axis=1, keepdims=True), full_matrices=False)
    live = s[:, :] > 1e-9 * s[:, :1]
    rank = int(live.sum(axis=1).min())
    return u[..., :rank] * np.sqrt(y.shape[1])


def principal_scores(held: Sequence[View], n_components: int) -> FloatArray:
    """Unit-variance scores along the principal axes of all views together, (N, <= R).

    By the Gram matrix of the smaller side; sparse rows are neither centred nor written out.
    """
    blocks, centres = [], []
    for view in held:
        rows: Rows = view.X
        centre = view.total / np.maximum(view.count, 1.0)
        if view.mask is not None:
            rows, centre = (rows - centre) * view.mask, np.zeros(len(centre))
        size = np.sqrt(max(float(squared_distance(rows, centre).sum()), 1e-300))
        blocks.append(rows / size)
        centres.append(centre / size)
    centre = np.concatenate(centres)
    if any(issparse(block) for block in blocks):
        stack = hstack([csr_array(block) for block in blocks], format="csr")
    else:
        stack = np.concatenate(blocks, axis=1)
    n, d = stack.shape
    if d > n:
        values, vectors = np.linalg.eigh(centred_gram(stack, centre))
        rank = _rank(values, n_components)
        return vectors[:, ::-1][:, :rank] * np.sqrt(n)
    total = np.asarray(stack.sum(axis=0)).ravel()
    products = stack.T @ stack
    products = products.toarray() if issparse(products) else products
    axes = _principal_axes(products, total, centre, n, n_components)
    return np.asarray(stack @ axes - centre @ axes)


def _principal_axes(
    products: FloatArray, total: FloatArray, centre: FloatArray, n: int, n_components: int
) -> FloatArray:
    """Map from centred rows to unit-variance scores along their principal axes, (D, <= R).

    Parameters
    ----------
    products : (D, D)
        X'X.
    total : (D,)
        Sum of the rows.
    centre : (D,)
    n : int
        Number of rows.
    n_components : int
        R.
    """
    shift = np.multiply.outer(centre, total - 0.5 * n * centre)
    values, vectors = np.linalg.eigh(products - shift - shift.T)
    rank = _rank(values, n_components)
    return vectors[:, ::-1][:, :rank] * np.sqrt(n / values[::-1][:rank])


def _rank(values: FloatArray, n_components: int) -> int:
    """Number of the axes that rows have, at most R, from the eigenvalues of their products."""
    return min(n_components, int((values > _SMALLEST_SHARE * values.max(initial=0.0)).sum()))
