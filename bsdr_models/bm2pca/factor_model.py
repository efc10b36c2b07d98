r"""Factor model of a fit: x = W z + t plus noise, with or without missing values.

The posterior of z given the features alone, V(z_new) of the paper after Eq. (5),

.. math::
    S_* = (I + \sum_v E[\tau_v] E[W_v^\top W_v])^{-1}, \qquad
    m_* = S_* \sum_v E[\tau_v] M_v^\top (x_v - E[t_v]),

sums over the observed values of a sample. X is (M, D), scaled; NaN marks a missing value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.decomposition import PCA

from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.bm2pca.views import View, ViewState, make_view, split_views
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.linalg import inv_spd
from bsdr_models.numerics.scaling import squared_distance

# Components of the factor model that imputes missing values, as many as its data allow.
N_COMPLETE = 20
# Sweeps of this model, after which imputed values change little.
COMPLETE_SWEEPS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorModel:
    """Factor model of D features with R components."""

    states: tuple[ViewState, ...]  # Factors of each view over its features
    columns: tuple[IntArray | None, ...] = (None,)  # Indices of these features; None for all

    @classmethod
    def of(
        cls, states: Sequence[ViewState], data: Sequence[View], columns: Sequence[IntArray | None]
    ) -> "FactorModel":
        """Map the factors of the views from working coordinates to features."""
        over_features = []
        for state, view in zip(states, data, strict=True):
            loadings = replace(state.loadings, mean=view.to_features(state.loadings.mean))
            offset = replace(state.offset, mean=view.to_features(state.offset.mean))
            over_features.append(replace(state, loadings=loadings, offset=offset))
        return cls(states=tuple(over_features), columns=tuple(columns))

    def view(self, X: FloatArray) -> list[View]:
        """The views of samples, (M, D)."""
        return [make_view(own, reduce=False) for own in split_views(X, self.columns)]

    def embed(self, parts: Sequence[View]) -> tuple[FloatArray, FloatArray]:
        """Mean (M, R) and covariance of the latent coordinates, (M, R, R), or (1, R, R) of all."""
        precision, linear_term = views.latent_terms(self.states, parts)
        cov = np.linalg.inv(precision)
        return np.einsum("mrs,ms->mr", cov, linear_term), cov

    def projection(self) -> FloatArray:
        """Linear map from centred complete samples to latent coordinates, (D, R)."""
        pairs = [(q.noise_precision.mean, q.loadings) for q in self.states]
        precision = sum((tau * W.second for tau, W in pairs), np.eye(pairs[0][1].mean.shape[1]))
        cov = np.linalg.inv(precision)
        return self.concatenate_views([tau * W.mean @ cov for tau, W in pairs])

    def concatenate_views(self, blocks: Sequence[FloatArray], axis: int = 0) -> FloatArray:
        """Values of all features, along an axis, from those of each view."""
        if self.columns[0] is None:
            return blocks[0]
        order = np.concatenate([columns for columns in self.columns if columns is not None])
        return np.take(np.concatenate(blocks, axis), np.argsort(order), axis)

    @property
    def _offset(self) -> FloatArray:
        """E[t] of all features, (D,)."""
        return self.concatenate_views([q.offset.mean for q in self.states])

    def effects(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effects of features (D, K) and intercept (K,), by the weights [bias; eta] (1 + R, K)."""
        coef = self.projection() @ weights[1:]
        return coef, weights[0] - self._offset @ coef

    def reconstruct(self, latent: FloatArray) -> FloatArray:
        """E[x] at latent coordinates (M, R): (M, D)."""
        loadings = self.concatenate_views([q.loadings.mean for q in self.states])
        return latent @ loadings.T + self._offset


def impute(model: FactorModel, X: FloatArray) -> FloatArray:
    """Replace NaN by E[x_missing | x_observed], (M, D)."""
    missing = np.isnan(X)
    rows = missing.any(axis=1)
    if not rows.any():
        return X
    mean, _ = model.embed(model.view(X[rows]))
    out = X.copy()
    out[rows] = np.where(missing[rows], model.reconstruct(mean), X[rows])
    return out


def spread_of_missing(model: FactorModel, X: FloatArray, effects: FloatArray) -> FloatArray:
    r"""Covariance (M, K, K) of linear functions of samples given their observed values.

    With effects B (D, K) of the missing values, :math:`B^\top (W S_* W^\top + I / \tau) B`, of a
    model of one view.
    """
    (state,) = model.states
    missing = np.isnan(X).astype(np.float64)
    _, cov = model.embed(model.view(X))
    W = state.loadings.mean
    r = W.shape[1]
    k = effects.shape[1]
    by_latent = missing @ (W[:, :, None] * effects[:, None]).reshape(-1, r * k)
    by_latent = by_latent.reshape(-1, r, k)
    rest = missing @ (effects[:, :, None] * effects[:, None]).reshape(-1, k * k)
    cov = np.broadcast_to(cov, (len(X), r, r))
    explained = by_latent.mT @ cov @ by_latent
    return explained + rest.reshape(-1, k, k) / state.noise_precision.mean


def fit_factor_model(X: FloatArray, rng: np.random.Generator) -> FactorModel:
    """Factor model of scaled features (N, D) alone, which imputes missing values."""
    n, d = X.shape
    r = max(min(N_COMPLETE, min(n, d) - 1), 1)
    view = make_view(X)
    mean = rng.standard_normal((n, r))
    found = principal_scores([view], r)
    mean[:, : found.shape[1]] = found
    cov = np.broadcast_to(np.eye(r), (n, r, r))
    state = views.initial_state(view, n_components=r)
    for _ in range(COMPLETE_SWEEPS):
        state = views.update(state, views.latent_moments(mean, cov, view), view, PAPER)
        precision, linear_term = views.latent_terms([state], [view])
        cov, _ = inv_spd(np.broadcast_to(precision, (n, r, r)), name="latent precision")
        mean = np.einsum("nrs,ns->nr", cov, linear_term)
    return FactorModel.of([state], [view], (None,))


# Axes with a smaller share of the largest variance are numerical noise.
_RANK_TOL = 1e-12


def principal_scores(parts: Sequence[View], n_components: int) -> FloatArray:
    """Unit-variance principal component scores of all views together, (N, <= R)."""
    stack = side_by_side(parts)
    n, d = stack.shape
    k = min(n_components, n - 1, d)
    if k == 0 or np.abs(stack).max() == 0.0:
        return np.zeros((n, 0))
    # Lanczos iterations find a few components of many samples fast; they do not find all.
    solver = "covariance_eigh" if k == d else "arpack"
    pca = PCA(k, svd_solver=solver, whiten=True, random_state=0)
    scores = np.asarray(pca.fit_transform(stack)) * np.sqrt(n / (n - 1.0))
    variance = pca.explained_variance_
    return np.asarray(scores[:, variance > _RANK_TOL * variance[0]])


def side_by_side(parts: Sequence[View]) -> FloatArray:
    """All views, each of unit total variance, or zero without variation, (N, D)."""
    blocks = []
    for view in parts:
        X = view.X
        centre = view.total / np.maximum(view.count, 1.0)
        if view.mask is not None:
            X = (X - centre) * view.mask
            centre = np.zeros(len(centre))
        square = float(squared_distance(X, centre).sum())
        blocks.append(X * (square**-0.5 if square > _RANK_TOL * view.square else 0.0))
    return np.concatenate(blocks, axis=1)
