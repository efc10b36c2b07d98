r"""What the labels say about the projection, with latents and scores integrated out.

Mean field holds Z and T at their own factors while it looks at Q, and with a small latent scale
it then reports next to no uncertainty in Q: what a position owes to Q would be far too sure. Here
the curvature of the marginal likelihood takes the place of that of the augmented one. With
weights W and scores eta_n at the fit,

.. math::
    H_n = -\nabla^2_\eta \log p(y_n \mid \eta_n) = I - \operatorname{Cov}(t_n), \qquad
    A_n = W H_n W^\top (I + \sigma_z^2 W H_n W^\top)^{-1},

and the component s of the projection has covariance
:math:`(\operatorname{diag} E[\phi_s] + \sum_n (A_n)_{ss} x_n x_n^\top)^{-1}`. Rows that are far
inside the region of their label have H_n near 0 and say nothing about Q; mean field counts them
in full. The uncertainty of the weights themselves is not added.
"""

import numpy as np

from bsdr_models.bsdr.mean_field import State, make_scores, noise_mean
from bsdr_models.data import Data, Targets
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.gram_design import GramDesign, SpectralGramDesign
from bsdr_models.typing import FloatArray

# Step of the central differences in the scores, which are in units of the probit noise.
STEP = 1e-4


def row_information(state: State, data: Data | Targets, latent_scale: float) -> FloatArray:
    """Information of each row on each component, (A_n)_ss above: (N, R)."""
    W, b = state.weights.mean[1:], state.weights.mean[0]
    if data.target == "regression":
        curved = np.broadcast_to(W * noise_mean(state), (len(state.latent.mean), *W.shape))
    else:
        eta = state.projection.fitted @ W + b
        curved = np.stack([_curve(eta, w, data) for w in W], axis=1)  # H_n w_s, (N, R, K)
    seen = curved @ W.T  # (N, R, R)
    seen = 0.5 * (seen + np.swapaxes(seen, 1, 2))
    total = np.linalg.solve(np.eye(len(W)) + latent_scale**2 * seen, seen)
    return np.maximum(np.einsum("nss->ns", total), 0.0)


def _curve(eta: FloatArray, w: FloatArray, data: Data | Targets) -> FloatArray:
    """H_n w for every row: w less the change of E[t] along w, (N, K)."""
    size = float(np.linalg.norm(w))
    if size == 0.0:
        return np.zeros_like(eta)
    move = STEP / size * w
    change = make_scores(eta + move, data).mean - make_scores(eta - move, data).mean
    return w - change * size / (2.0 * STEP)


def row_variance(
    rows: FloatArray,
    state: State,
    data: Data,
    latent_scale: float,
    matrices: FloatArray | None = None,
) -> FloatArray:
    """Variance of Q' x for rows in working coordinates of the design: (M, D) -> (M, R).

    Parameters
    ----------
    rows : (M, D)
    state : State
    data : Data
    latent_scale : float
    matrices : (R, D, D), optional
        The sums over n above, where the design has no rows to make them of.
    """
    designs: list[GramDesign | DenseDesign]
    if matrices is None:
        information = row_information(state, data, latent_scale)
        designs = [data.design.weighted(weights) for weights in information.T]
    else:
        designs = [GramDesign(matrix, data.n_rows) for matrix in matrices]
    columns = [
        design.row_variance(rows, precision[:, None], 1.0, 1)
        for design, precision in zip(designs, _precisions(state), strict=True)
    ]
    return np.concatenate(columns, axis=1)


def loading_variance(
    state: State, data: Data, latent_scale: float, matrices: FloatArray | None = None
) -> FloatArray:
    """Variance of every entry of the projection over features, (P, R); see `row_variance`."""
    if matrices is not None:
        design = data.design
        assert isinstance(design, GramDesign | SpectralGramDesign)
        pairs = zip(matrices, _precisions(state), strict=True)
        return np.stack([design.variance_under(m, precision) for m, precision in pairs], axis=1)
    information = row_information(state, data, latent_scale)
    columns = [
        data.design.weighted_variance(weights, precision)
        for weights, precision in zip(information.T, _precisions(state), strict=True)
    ]
    return np.stack(columns, axis=1)


def _precisions(state: State) -> FloatArray:
    """E[phi_s] of every component, (R, D)."""
    return np.broadcast_to(state.projection_precision.mean, state.projection.mean.shape).T
