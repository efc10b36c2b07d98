r"""Factor model of a fit: x = W z + t plus noise, with or without missing values.

The posterior of z given the features alone,

.. math::
    S_* = (I + \sum_v E[\tau_v] E[W_v^\top W_v])^{-1}, \qquad
    m_* = S_* \sum_v E[\tau_v] M_v^\top (x_v - E[t_v]),

sums over the observed values of a sample. X is (M, P), scaled; NaN marks a missing value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.paper import views
from bsdr_models.bm2pca.paper.views import Moments, View, ViewState, make_view
from bsdr_models.bm2pca.spec import Priors
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.row_space import Rows

# Numbers per block of incomplete samples.
BLOCK = 4_000_000
# Sweeps of a decoder, which converges fast.
DECODER_SWEEPS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Factors of one view over its features, whose indices are ``columns``; None for all."""

    columns: IntArray | None
    state: ViewState

    @property
    def loadings(self) -> FloatArray:
        """E[W], (P, D, R)."""
        return self.state.loadings.mean

    @property
    def offset(self) -> FloatArray:
        """E[t], (P, D)."""
        return self.state.offset.mean

    @property
    def noise_precision(self) -> FloatArray:
        """E[tau], (P,)."""
        return self.state.noise_precision.mean


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorModel:
    """Factor model x = W z + t plus noise, one part per view, for P problems."""

    parts: tuple[Part, ...]

    @classmethod
    def of(
        cls,
        states: Sequence[ViewState],
        data: Sequence[View],
        columns: Sequence[IntArray | None],
    ) -> "FactorModel":
        """Map the factors of the views from working coordinates to features."""
        parts = []
        for state, view, own in zip(states, data, columns, strict=True):
            loadings = replace(state.loadings, mean=view.to_features(state.loadings.mean))
            offset = view.to_features(state.offset.mean[..., None])[..., 0]
            over_features = replace(
                state, loadings=loadings, offset=replace(state.offset, mean=offset)
            )
            parts.append(Part(columns=own, state=over_features))
        return cls(parts=tuple(parts))

    @property
    def shape(self) -> tuple[int, int]:
        """Problems and components, (P, R)."""
        p, _, r = self.parts[0].loadings.shape
        return p, r

    def embed(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean (P, M, R) and covariance (P, M, R, R) of the latent coordinates.

        For complete samples the covariance is a broadcast view.
        """
        if issparse(X) or not np.isnan(X).any():
            return self._embed_block(X)
        (p, r), m = self.shape, X.shape[0]
        mean, cov = np.empty((p, m, r)), np.empty((p, m, r, r))
        missing = np.isnan(X).any(axis=1)
        complete, incomplete = np.flatnonzero(~missing), np.flatnonzero(missing)
        size = max(1, BLOCK // (X.shape[1] + p * r * r))
        blocks = [incomplete[begin : begin + size] for begin in range(0, len(incomplete), size)]
        for rows in (complete, *blocks) if len(complete) else blocks:
            mean[:, rows], cov[:, rows] = self._embed_block(X[rows])
        return mean, cov

    def _embed_block(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Posterior of z as under q(Z) of mean field, without margins."""
        p, r = self.shape
        precision, linear_term = np.eye(r)[None, None], np.zeros((p, X.shape[0], r))
        for part in self.parts:
            view = make_view(X if part.columns is None else X[:, part.columns], reduce=False)
            precision = precision + views.latent_precision(part.state, view)
            linear_term = linear_term + views.latent_linear_term(part.state, view)
        cov = np.linalg.inv(precision)
        if cov.shape[1] > 1:
            return np.einsum("pmrs,pms->pmr", cov, linear_term), cov
        return linear_term @ cov[:, 0], np.broadcast_to(cov, (p, X.shape[0], r, r))

    def _complete_cov(self) -> FloatArray:
        """S of a complete sample, (P, R, R)."""
        precision = np.eye(self.shape[1]) + sum(
            part.noise_precision[:, None, None] * part.state.loadings.second for part in self.parts
        )
        return np.linalg.inv(precision)

    def projection(self) -> FloatArray:
        """Linear map from centred complete samples to latent coordinates, (P, D, R)."""
        cov = self._complete_cov()
        blocks = [part.noise_precision[:, None, None] * part.loadings @ cov for part in self.parts]
        return self._concatenate_views(blocks)

    def projection_sd(self) -> FloatArray:
        """Standard deviation of the projection, from q(W) alone: (P, D, R)."""
        cov = self._complete_cov()
        blocks = []
        for part in self.parts:
            spread = cov[:, None] @ part.state.loadings.cov @ cov[:, None]  # (P, J, R, R)
            sd = part.noise_precision[:, None, None] * np.sqrt(np.einsum("pjrr->pjr", spread))
            blocks.append(np.broadcast_to(sd, part.loadings.shape))
        return self._concatenate_views(blocks)

    def _concatenate_views(self, blocks: list[FloatArray]) -> FloatArray:
        """Values (P, D, R) of all features from those of each view."""
        if self.parts[0].columns is None:
            return blocks[0]
        width = sum(block.shape[1] for block in blocks)
        out = np.empty((blocks[0].shape[0], width, blocks[0].shape[2]))
        for part, block in zip(self.parts, blocks, strict=True):
            out[:, part.columns] = block
        return out

    def coefficients(
        self,
        loadings: Sequence[FloatArray],
        offsets: Sequence[FloatArray],
        precisions: Sequence[FloatArray],
        weights: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Effect of features on mean class scores, (D, P K), and intercept, (P K,), of one draw.

        The draw is of W (P, D, R), t (P, D) and tau (P,) of each view, and of eta (P, 1 + R, K).
        """
        r = weights.shape[1] - 1
        scaled = [tau[:, None, None] * W for W, tau in zip(loadings, precisions, strict=True)]
        precision = np.eye(r) + sum(
            np.swapaxes(W, 1, 2) @ own for W, own in zip(loadings, scaled, strict=True)
        )
        direction = np.linalg.solve(precision, weights[:, 1:])
        coef = [own @ direction for own in scaled]
        shift = sum(np.einsum("pd,pdk->pk", t, own) for t, own in zip(offsets, coef, strict=True))
        intercept: FloatArray = weights[:, 0] - shift
        return concatenate_problems(self._concatenate_views(coef)), intercept.ravel()

    def reconstruct(self, latent: FloatArray) -> FloatArray:
        """E[x] at latent coordinates (P, M, R), averaged over problems: (M, D)."""
        loadings = self._concatenate_views([part.loadings for part in self.parts])
        offset = self._concatenate_views([part.offset[..., None] for part in self.parts])
        X = latent @ np.swapaxes(loadings, 1, 2) + np.swapaxes(offset, 1, 2)
        return X.mean(axis=0)

    def impute(self, X: FloatArray) -> FloatArray:
        """Replace NaN by E[x_missing | x_observed], (M, D)."""
        missing = np.isnan(X)
        incomplete = missing.any(axis=1)
        if not incomplete.any():
            return X
        out = X.copy()
        mean, _ = self.embed(X[incomplete])
        out[incomplete] = np.where(missing[incomplete], self.reconstruct(mean), X[incomplete])
        return out


def concatenate_problems(values: FloatArray) -> FloatArray:
    """Concatenate the columns of all problems: (P, M, K) -> (M, P K)."""
    return np.moveaxis(values, 0, 1).reshape(values.shape[1], -1)


def fit_decoder(X: Rows, latent: LatentCoordinates, priors: Priors) -> FactorModel:
    """Factor model of complete X given the latent coordinates of its samples."""
    view, mean, cov = make_view(X), latent.mean[None], latent.cov[None]
    moments = Moments(
        total=mean.sum(axis=1)[:, None],
        second=(np.swapaxes(mean, 1, 2) @ mean + cov.sum(axis=1))[:, None],
        cross=view.project_back(mean),
    )
    state = views.initial_state(view, n_problems=1, n_components=mean.shape[2])
    for _ in range(DECODER_SWEEPS):
        state = views.update(state, moments, view, priors)
    return FactorModel.of((state,), (view,), (None,))
