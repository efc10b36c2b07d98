r"""Factor model of a fit: x = W z + t plus noise, with or without missing values.

The posterior of z given the features alone,

.. math::
    S_* = (I + \sum_v E[\tau_v] E[W_v^\top W_v])^{-1}, \qquad
    m_* = S_* \sum_v E[\tau_v] M_v^\top (x_v - E[t_v]),

sums over the observed values of a sample. X is (M, P), scaled; NaN marks a missing value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Factor model of one view, for P problems.

    columns
        Indices of its features, (D,); None for all of them.
    loadings
        E[W], (P, D, R).
    cov
        Covariance of the loadings, (P, J, R, R) with J = 1 (shared) or D.
    second
        E[W'W], (P, R, R).
    offset
        E[t], (P, D).
    noise_precision
        E[tau], (P,).
    """

    columns: IntArray | None
    loadings: FloatArray
    cov: FloatArray
    second: FloatArray
    offset: FloatArray
    noise_precision: FloatArray

    def of(self, X: Rows) -> Rows:
        """Columns of the view in X."""
        return X if self.columns is None else X[:, self.columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorModel:
    """Factor model x = W z + t plus noise, one part per view."""

    parts: tuple[Part, ...]

    @classmethod
    def of(
        cls,
        states: Sequence[ViewState],
        data: Sequence[View],
        columns: Sequence[IntArray | None],
    ) -> "FactorModel":
        """Map the factors of the views from working coordinates to features."""
        found = []
        for state, view, own in zip(states, data, columns, strict=True):
            offset = view.to_features(state.offset.mean[..., None])[..., 0]
            found.append(
                Part(
                    columns=own,
                    loadings=view.to_features(state.loadings.mean),
                    cov=state.loadings.cov,
                    second=state.loadings.second(view),
                    offset=offset,
                    noise_precision=state.noise_precision.mean,
                )
            )
        return cls(parts=tuple(found))

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
            return self._complete(X)
        p, r = self.shape
        m = X.shape[0]
        mean, cov = np.empty((p, m, r)), np.empty((p, m, r, r))
        missing = np.isnan(X).any(axis=1)
        if not missing.all():
            mean[:, ~missing], cov[:, ~missing] = self._complete(X[~missing])
        size = max(1, BLOCK // (X.shape[1] + p * r * r))
        index = np.flatnonzero(missing)
        for begin in range(0, len(index), size):
            part = index[begin : begin + size]
            mean[:, part], cov[:, part] = self._incomplete(X[part])
        return mean, cov

    def _complete(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        (p, r), linear_term = self.shape, 0.0
        for part in self.parts:
            tau, own = part.noise_precision[:, None, None], part.of(X)
            centre = np.einsum("pd,pdr->pr", part.offset, part.loadings)[:, None]
            seen = np.stack([np.asarray(own @ loadings) for loadings in part.loadings])
            linear_term = linear_term + tau * (seen - centre)
        cov = self._complete_cov()
        shape = (p, X.shape[0], r, r)
        return linear_term @ cov, np.broadcast_to(cov[:, None], shape)

    def _complete_cov(self) -> FloatArray:
        """S of a complete sample, (P, R, R)."""
        p, r = self.shape
        precision = np.tile(np.eye(r), (p, 1, 1))
        for part in self.parts:
            precision = precision + part.noise_precision[:, None, None] * part.second
        return np.linalg.inv(precision)

    def _incomplete(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, r = self.shape
        precision, linear_term = (
            np.tile(np.eye(r), (p, len(X), 1, 1)),
            np.zeros((p, len(X), r)),
        )
        for part in self.parts:
            tau, own = part.noise_precision, np.asarray(part.of(X))
            mask = (~np.isnan(own)).astype(np.float64)
            own = np.where(mask > 0.0, own, 0.0)
            d = own.shape[1]
            for index in range(p):
                W, cov = part.loadings[index], part.cov[index]
                second = (W[:, :, None] * W[:, None, :] + cov).reshape(d, r * r)
                precision[index] += tau[index] * (mask @ second).reshape(-1, r, r)
                centre = mask @ (part.offset[index][:, None] * W)
                linear_term[index] += tau[index] * (own @ W - centre)
        cov = np.linalg.inv(precision)
        return np.einsum("pmrs,pms->pmr", cov, linear_term), cov

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
            spread = cov[:, None] @ part.cov @ cov[:, None]  # (P, J, R, R)
            own = part.noise_precision[:, None, None] * np.sqrt(np.einsum("pjrr->pjr", spread))
            blocks.append(np.broadcast_to(own, part.loadings.shape))
        return self._concatenate_views(blocks)

    def offset(self) -> FloatArray:
        """E[t] of all features, (P, D)."""
        blocks = [part.offset[..., None] for part in self.parts]
        return self._concatenate_views(blocks)[..., 0]

    def loadings(self) -> FloatArray:
        """E[W] of all features, (P, D, R)."""
        return self._concatenate_views([part.loadings for part in self.parts])

    def _concatenate_views(self, blocks: list[FloatArray]) -> FloatArray:
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
        X = latent @ np.swapaxes(self.loadings(), 1, 2) + self.offset()[:, None]
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
