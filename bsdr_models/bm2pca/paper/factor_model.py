r"""Factor model of a fit: x = W z + t plus noise, with or without missing values.

The posterior of z given the features alone,

.. math::
    S_* = (I + \sum_v E[\tau_v] E[W_v^\top W_v])^{-1}, \qquad
    m_* = S_* \sum_v E[\tau_v] M_v^\top (x_v - E[t_v]),

sums over the observed values of a sample. X is (M, D), scaled; NaN marks a missing value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.paper import views
from bsdr_models.bm2pca.paper.views import View, ViewState, make_view
from bsdr_models.bm2pca.spec import Priors
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.row_space import Rows

# Sweeps of a decoder, which converges fast.
DECODER_SWEEPS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorModel:
    """Factor model of D features with R components, for P problems."""

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
            centre = view.to_features(state.offset.mean[..., None])[..., 0]
            offset = replace(state.offset, mean=centre)
            over_features.append(replace(state, loadings=loadings, offset=offset))
        return cls(states=tuple(over_features), columns=tuple(columns))

    @property
    def shape(self) -> tuple[int, int]:
        """Problems and components, (P, R)."""
        p, _, r = self.states[0].loadings.mean.shape
        return p, r

    def embed(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean (P, M, R) and covariance of the latent coordinates, as under q(Z) without margins.

        The covariance is (P, M, R, R), or (P, 1, R, R) for complete samples, which share it.
        """
        p, r = self.shape
        precision, linear_term = np.eye(r)[None, None], np.zeros((p, X.shape[0], r))
        for state, columns in zip(self.states, self.columns, strict=True):
            view = make_view(X if columns is None else X[:, columns], reduce=False)
            precision = precision + views.latent_precision(state, view)
            linear_term = linear_term + views.latent_linear_term(state, view)
        cov = np.linalg.inv(precision)
        if cov.shape[1] > 1:
            return np.einsum("pmrs,pms->pmr", cov, linear_term), cov
        return linear_term @ cov[:, 0], cov

    def projection(self) -> FloatArray:
        """Linear map from centred complete samples to latent coordinates, (P, D, R)."""
        pairs = [(q.noise_precision.mean[:, None, None], q.loadings) for q in self.states]
        precision = np.eye(self.shape[1]) + sum(tau * W.second for tau, W in pairs)
        cov = np.linalg.inv(precision)
        return self._concatenate_views([tau * W.mean @ cov for tau, W in pairs])

    def _concatenate_views(self, blocks: list[FloatArray]) -> FloatArray:
        """Values (P, D, R) of all features from those of each view."""
        if self.columns[0] is None:
            return blocks[0]
        order = np.concatenate([columns for columns in self.columns if columns is not None])
        return np.concatenate(blocks, axis=1)[:, np.argsort(order)]

    @property
    def _offset(self) -> FloatArray:
        """E[t] of all features, (P, D, 1)."""
        return self._concatenate_views([q.offset.mean[..., None] for q in self.states])

    def coefficients(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effect of features on mean class scores, (D, P K), and intercept, (P K,).

        The weights are [bias; eta], (P, 1 + R, K).
        """
        coef = self.projection() @ weights[:, 1:]
        intercept = weights[:, 0] - np.sum(self._offset * coef, axis=1)
        return concatenate_problems(coef), intercept.ravel()

    def reconstruct(self, latent: FloatArray) -> FloatArray:
        """E[x] at latent coordinates (P, M, R), averaged over problems: (M, D)."""
        loadings = self._concatenate_views([q.loadings.mean for q in self.states])
        X = latent @ np.swapaxes(loadings, 1, 2) + np.swapaxes(self._offset, 1, 2)
        return X.mean(axis=0)

    def impute(self, X: FloatArray) -> FloatArray:
        """Replace NaN by E[x_missing | x_observed], (M, D)."""
        missing = np.isnan(X)
        rows = missing.any(axis=1)
        if not rows.any():
            return X
        out = X.copy()
        out[rows] = np.where(missing[rows], self.reconstruct(self.embed(X[rows])[0]), X[rows])
        return out


def concatenate_problems(values: FloatArray) -> FloatArray:
    """Concatenate the columns of all problems: (P, M, K) -> (M, P K)."""
    return np.moveaxis(values, 0, 1).reshape(values.shape[1], -1)


def fit_decoder(X: Rows, latent: LatentCoordinates, priors: Priors) -> FactorModel:
    """Factor model of complete X given the latent coordinates of its samples."""
    view = make_view(X)
    moments = views.latent_moments(latent.mean[None], latent.cov[None], view)
    state = views.initial_state(view, n_problems=1, n_components=latent.mean.shape[1])
    for _ in range(DECODER_SWEEPS):
        state = views.update(state, moments, view, priors)
    return FactorModel.of((state,), (view,), (None,))
