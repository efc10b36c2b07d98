"""From a fit to new rows: positions and scores, whichever engine made it.

New rows say nothing of labels, so a position is the posterior of z given the features alone.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.factor_model import FactorModel, Part, Rows, outcomes_side_by_side
from bsdr_models.bm2pca.mean_field import Weights, with_ones
from bsdr_models.numerics.latent_coordinates import LatentCoordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginPosterior:
    """What prediction needs of the paper's model: P problems of K outcomes.

    generative
        t, W, tau.
    weights
        q(eta).
    """

    factor_model: FactorModel
    weights: Weights

    def latent(self, rows: Rows) -> FloatArray:
        """Mean positions, (M, R P)."""
        mean, _ = self.factor_model.embed(rows)
        return outcomes_side_by_side(mean)

    def embed(self, rows: Rows) -> LatentCoordinates:
        """Where rows lie, the components of all problems side by side: R times P of them."""
        return side_by_side(*self.factor_model.embed(rows))

    def score_means(self, rows: Rows) -> FloatArray:
        """Mean of f under q, (M, P K)."""
        mean, _ = self.factor_model.embed(rows)
        return outcomes_side_by_side(with_ones(mean) @ self.weights.mean)

    def score_moments(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f under q, each (M, P K)."""
        mean, cov = self.factor_model.embed(rows)
        first, second = score_moments(mean, cov, self.weights)
        return outcomes_side_by_side(first), outcomes_side_by_side(second)

    @property
    def projection(self) -> FloatArray:
        """Linear map from complete scaled rows to positions, (D, R P)."""
        return outcomes_side_by_side(self.factor_model.projection())

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of its entries, from q(W) alone, (D, R P)."""
        return outcomes_side_by_side(self.factor_model.projection_sd())


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior:
    """What prediction needs of a sampler: draws of one subspace, aligned, chains stacked.

    loadings, offset, noise_precision
        (S, D, R), (S, D), (S,).
    weights
        [bias; weights], (S, 1 + R, K).
    """

    loadings: FloatArray
    offset: FloatArray
    noise_precision: FloatArray
    weights: FloatArray

    def _each(self) -> FactorModel:
        """The draws as so many problems, each known exactly."""
        s, _, r = self.loadings.shape
        second = np.swapaxes(self.loadings, 1, 2) @ self.loadings
        part = Part(
            columns=None,
            loadings=self.loadings,
            cov=np.zeros((s, 1, r, r)),
            second=second,
            offset=self.offset,
            noise_precision=self.noise_precision,
        )
        return FactorModel(parts=(part,))

    def _spread(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """LatentCoordinates under every draw: means (S, M, R) and covariances (S, M, R, R)."""
        return self._each().embed(rows)

    def latent(self, rows: Rows) -> FloatArray:
        """Mean positions, (M, R)."""
        return self._spread(rows)[0].mean(axis=0)

    def embed(self, rows: Rows) -> LatentCoordinates:
        """LatentCoordinates, averaged over draws, with the spread within and between these."""
        mean, cov = self._spread(rows)
        centred = mean - mean.mean(axis=0)
        between = np.einsum("smr,smq->mrq", centred, centred) / len(mean)
        return LatentCoordinates(mean=mean.mean(axis=0), cov=between + cov.mean(axis=0))

    def score_means(self, rows: Rows) -> FloatArray:
        """Mean scores, (M, K)."""
        return self.score_moments(rows)[0]

    def score_moments(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the scores, each (M, K)."""
        s, q, k = self.weights.shape
        known = Weights(
            mean=self.weights, cov=np.zeros((s, k, q, q)), log_det=np.full((s, k), -np.inf)
        )
        mean, variance = score_moments(*self._spread(rows), known)
        return mean.mean(axis=0), variance.mean(axis=0) + mean.var(axis=0)

    @property
    def projection(self) -> FloatArray:
        """Mean of the linear map from features to positions, (D, R)."""
        return self._each().projection().mean(axis=0)

    @property
    def projection_sd(self) -> FloatArray:
        """Its standard deviation over draws, (D, R)."""
        return self._each().projection().std(axis=0)

    def factor_model(self) -> FactorModel:
        """One generative part in place of all draws, at their mean."""
        second = np.mean(np.swapaxes(self.loadings, 1, 2) @ self.loadings, axis=0)
        mean = self.loadings.mean(axis=0)
        part = Part(
            columns=None,
            loadings=mean[None],
            cov=(self.loadings.var(axis=0)[:, :, None] * np.eye(mean.shape[1]))[None],
            second=second[None],
            offset=self.offset.mean(axis=0)[None],
            noise_precision=np.array([self.noise_precision.mean()]),
        )
        return FactorModel(parts=(part,))


def score_moments(
    mean: FloatArray, cov: FloatArray, weights: Weights
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of f = eta' [1; z], z ~ N(mean, cov) and eta under q: (P, M, K) each.

    Parameters
    ----------
    mean : (P, M, R)
    cov : (P, M, R, R)
    weights : Weights
    """
    full = with_ones(mean)
    forms = weights.second[..., 1:, 1:]  # (P, K, R, R)
    shared = cov.strides[1] == 0 if cov.shape[1] else False
    if shared:
        spread = np.einsum("prs,pkrs->pk", cov[:, 0], forms)[:, None]
    else:
        spread = np.einsum("pmrs,pkrs->pmk", cov, forms, optimize=True)
    own = np.einsum("pmq,pkqs,pms->pmk", full, weights.cov, full, optimize=True)
    return full @ weights.mean, own + spread


def side_by_side(mean: FloatArray, cov: FloatArray) -> LatentCoordinates:
    """LatentCoordinates of P independent problems as one, block-diagonal covariance."""
    p, m, r = mean.shape
    if p == 1:
        return LatentCoordinates(mean=mean[0], cov=np.ascontiguousarray(cov[0]))
    out = np.zeros((m, p, r, p, r))
    for index in range(p):
        out[:, index, :, index] = cov[index]
    return LatentCoordinates(mean=outcomes_side_by_side(mean), cov=out.reshape(m, p * r, p * r))
