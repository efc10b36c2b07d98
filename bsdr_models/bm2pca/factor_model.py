r"""The generative part of a fit: x = W z + t plus noise, for rows with or without gaps.

The posterior of z given the features alone,

.. math::
    S_* = (I + \sum_v E[\tau_v] E[W_v^\top W_v])^{-1}, \qquad
    m_* = S_* \sum_v E[\tau_v] M_v^\top (x_v - E[t_v]),

sums over the entries that a row has. Rows are (M, P) in scaled features; NaN marks what is
missing, and a view that is absent is a block of NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array, issparse

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.views import Moments, View, ViewState
from bsdr_models.numerics.factors import Gamma

# Rows with gaps are projected in blocks of about this many numbers.
BLOCK = 4_000_000
# Sweeps of a decoder, whose factors are few and settle at once.
DECODER_SWEEPS = 50

type Rows = FloatArray | csr_array


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one view contributes to the position of a row, for P problems.

    columns
        Its features among all, (D,); None for all of them.
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

    def of(self, rows: Rows) -> Rows:
        """Its columns of the rows."""
        return rows if self.columns is None else rows[:, self.columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorModel:
    """The generative part of a fit: x = W z + t plus noise, views side by side.

    parts
        One per view.
    """

    parts: tuple[Part, ...]

    @classmethod
    def of(
        cls,
        states: Sequence[ViewState],
        data: Sequence[View],
        columns: Sequence[IntArray | None],
    ) -> "FactorModel":
        """From the factors of the views, brought from working coordinates to features."""
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

    def embed(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean (P, M, R) and covariance (P, M, R, R) of the latent positions of rows.

        The covariance is broadcast, not copied, where all rows are complete.
        """
        if issparse(rows) or not np.isnan(rows).any():
            return self._complete(rows)
        p, r = self.shape
        m = rows.shape[0]
        mean, cov = np.empty((p, m, r)), np.empty((p, m, r, r))
        gaps = np.isnan(rows).any(axis=1)
        if not gaps.all():
            mean[:, ~gaps], cov[:, ~gaps] = self._complete(rows[~gaps])
        size = max(1, BLOCK // (rows.shape[1] + p * r * r))
        index = np.flatnonzero(gaps)
        for begin in range(0, len(index), size):
            part = index[begin : begin + size]
            mean[:, part], cov[:, part] = self._incomplete(rows[part])
        return mean, cov

    def _complete(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        (p, r), linear_term = self.shape, 0.0
        for part in self.parts:
            tau, own = part.noise_precision[:, None, None], part.of(rows)
            centre = np.einsum("pd,pdr->pr", part.offset, part.loadings)[:, None]
            seen = np.stack([np.asarray(own @ loadings) for loadings in part.loadings])
            linear_term = linear_term + tau * (seen - centre)
        cov = self._complete_cov()
        shape = (p, rows.shape[0], r, r)
        return linear_term @ cov, np.broadcast_to(cov[:, None], shape)

    def _complete_cov(self) -> FloatArray:
        """S of a row without gaps, (P, R, R)."""
        p, r = self.shape
        precision = np.tile(np.eye(r), (p, 1, 1))
        for part in self.parts:
            precision = precision + part.noise_precision[:, None, None] * part.second
        return np.linalg.inv(precision)

    def _incomplete(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        p, r = self.shape
        precision, linear_term = (
            np.tile(np.eye(r), (p, len(rows), 1, 1)),
            np.zeros((p, len(rows), r)),
        )
        for part in self.parts:
            tau, own = part.noise_precision, np.asarray(part.of(rows))
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
        """Linear map from complete rows, less their centre, to positions: (P, D, R) stacked."""
        cov = self._complete_cov()
        pieces = [part.noise_precision[:, None, None] * part.loadings @ cov for part in self.parts]
        return self._side_by_side(pieces)

    def projection_sd(self) -> FloatArray:
        """Standard deviation of the projection's entries, from q(W) alone: (P, D, R)."""
        cov = self._complete_cov()
        pieces = []
        for part in self.parts:
            spread = cov[:, None] @ part.cov @ cov[:, None]  # (P, J, R, R)
            own = part.noise_precision[:, None, None] * np.sqrt(np.einsum("pjrr->pjr", spread))
            pieces.append(np.broadcast_to(own, part.loadings.shape))
        return self._side_by_side(pieces)

    def offset(self) -> FloatArray:
        """E[t] of all features, (P, D)."""
        pieces = [part.offset[..., None] for part in self.parts]
        return self._side_by_side(pieces)[..., 0]

    def loadings(self) -> FloatArray:
        """E[W] of all features, (P, D, R)."""
        return self._side_by_side([part.loadings for part in self.parts])

    def _side_by_side(self, pieces: list[FloatArray]) -> FloatArray:
        if self.parts[0].columns is None:
            return pieces[0]
        width = sum(piece.shape[1] for piece in pieces)
        out = np.empty((pieces[0].shape[0], width, pieces[0].shape[2]))
        for part, piece in zip(self.parts, pieces, strict=True):
            out[:, part.columns] = piece
        return out

    def coefficients(
        self,
        loadings: Sequence[FloatArray],
        offsets: Sequence[FloatArray],
        precisions: Sequence[FloatArray],
        weights: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Linear effect of the features on the mean score, (D, P K), and intercept, (P K,).

        Parameters
        ----------
        loadings, offsets, precisions : sequences
            One draw of W (P, D, R), t (P, D) and tau (P,) of each view.
        weights : (P, 1 + R, K)
            One draw of eta.
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
        return outcomes_side_by_side(self._side_by_side(coef)), intercept.ravel()

    def reconstruct(self, positions: FloatArray) -> FloatArray:
        """E[x] at latent positions (P, M, R), averaged over problems: (M, D)."""
        rows = positions @ np.swapaxes(self.loadings(), 1, 2) + self.offset()[:, None]
        return rows.mean(axis=0)

    def impute(self, rows: FloatArray) -> FloatArray:
        """Rows with NaN replaced by E[x_missing | x_observed], (M, D)."""
        gaps = np.isnan(rows)
        incomplete = gaps.any(axis=1)
        if not incomplete.any():
            return rows
        out = rows.copy()
        mean, _ = self.embed(rows[incomplete])
        out[incomplete] = np.where(gaps[incomplete], self.reconstruct(mean), rows[incomplete])
        return out


def outcomes_side_by_side(values: FloatArray) -> FloatArray:
    """Columns of all problems side by side: (P, M, K) -> (M, P K)."""
    return np.moveaxis(values, 0, 1).reshape(values.shape[1], -1)


def fit_decoder(
    latent: Sequence[Moments], data: Sequence[View], priors: Priors
) -> tuple[ViewState, ...]:
    """Factors t, W, r, tau of every view with q(Z) held fixed, by coordinate ascent.

    For a fit whose positions were found without a generative part.
    """
    found = []
    for moments, view in zip(latent, data, strict=True):
        p, _, r = moments.total.shape
        size = view.n_observed / max(view.square, 1e-300)
        state = ViewState(
            loadings=views.Loadings(
                mean=np.zeros((p, view.total.size, r)),
                cov=np.zeros((p, view.count.size, r, r)),
                log_det=np.zeros((p, view.count.size)),
            ),
            loading_precision=Gamma(shape=np.ones((p, r)), rate=np.full((p, r), 1.0 / size)),
            offset=views.Offset(
                mean=np.tile(view.total / np.maximum(view.count, 1.0), (p, 1)),
                variance=np.zeros((p, view.count.size)),
            ),
            noise_precision=Gamma(shape=np.ones(p), rate=np.full(p, 1.0 / size)),
        )
        for _ in range(DECODER_SWEEPS):
            state = replace(state, loadings=views.loadings(state, moments, view))
            state = replace(state, loading_precision=views.loading_precision(state, view, priors))
            state = replace(state, offset=views.offset(state, moments, view, priors))
            tau = views.noise_precision(state, moments, view, priors)
            state = replace(state, noise_precision=tau)
        found.append(state)
    return tuple(found)
