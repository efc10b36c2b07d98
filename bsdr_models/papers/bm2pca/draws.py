"""Latent coordinates and predictions of the paper's model, by draws of its posterior."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import xarray as xr

from bsdr_models.bm2pca.posterior import link_of
from bsdr_models.inference.datatree import SAMPLE_DIMS, read_draws
from bsdr_models.inference.dims import FEATURE
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.latent import LatentCoordinates, spread
from bsdr_models.papers.bm2pca.mean_field import with_ones
from bsdr_models.papers.reading import stack_draws

# Most draws that latent coordinates of new samples average over.
N_DRAWS = 300
# Variables of which they are functions.
NAMES = ("loadings", "offset", "noise_precision", "weights", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanScores:
    """Mean class scores as functions of the features (M, P), and their softmax.

    The model has a pseudo-likelihood, so these are no probabilities of the model, and they are not
    calibrated: scores are about 1 where a margin is met, whatever the cost.
    """

    coef: FloatArray  # means over all draws, (P, K)
    intercept: FloatArray  # (K,)
    exclusive: bool  # whether a sample has one class

    @staticmethod
    def of_tree(tree: xr.DataTree) -> "MeanScores":
        """Those of a tree, of the paper's or of the recommended model."""
        mean = read_draws(tree, "posterior", "coef", "intercept").mean(SAMPLE_DIMS)
        return MeanScores(
            coef=mean["coef"].transpose(FEATURE, ...).to_numpy(),
            intercept=mean["intercept"].to_numpy(),
            exclusive=tree.attrs["target"] == "multiclass",
        )

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of features on mean class scores, (P, K), and intercepts, (K,)."""
        return self.coef, self.intercept

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of classes, or that each label is one, of samples (M, P): (M, K)."""
        return self._link(X @ self.coef + self.intercept)

    def _link(self, scores: FloatArray) -> FloatArray:
        """Log probabilities (M, K) of classes, of which two may share a score, or of labels."""
        log_p = link_of(self.exclusive, lapse=0.0)(scores, 1.0)
        return log_p if self.exclusive else log_p[..., 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCADraws(MeanScores):
    """S draws, with stacked chains. Two classes have one score, J = 1 and K = 2; else J = K."""

    maps: FloatArray  # from features to latent coordinates, (S, P, R)
    origin: FloatArray  # product of the offset t and the map, (S, R)
    cov: FloatArray  # mean covariance of latent coordinates given the draw, (R, R)
    weights: FloatArray  # [bias; weights], (S, 1 + R, J)

    @classmethod
    def of(cls, draws: Mapping[str, Any] | xr.Dataset, *, exclusive: bool) -> Self:
        """From at most `N_DRAWS` of the draws (chain, draw, ...) by name.

        The covariance is V(z_new) of the paper, after Eq. (5).
        """
        some = stack_draws(draws, NAMES, N_DRAWS)
        W = some["loadings"]
        tau = some["noise_precision"][:, None, None]
        cov = np.linalg.inv(np.eye(W.shape[2]) + tau * (W.mT @ W))
        maps = W @ (tau * cov)
        return cls(
            maps=maps,
            origin=np.squeeze(some["offset"][:, None] @ maps, axis=1),
            cov=cov.mean(axis=0),
            weights=np.concatenate([some["bias"][:, None], some["weights"]], axis=1),
            coef=np.asarray(draws["coef"]).mean(axis=(0, 1)),
            intercept=np.asarray(draws["intercept"]).mean(axis=(0, 1)),
            exclusive=exclusive,
        )

    @property
    def mean_projection(self) -> FloatArray:
        """Mean of the linear map from features to latent coordinates, (P, R)."""
        return self.maps.mean(axis=0)

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, J)."""
        return self.weights[:, 1:].mean(axis=0)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances, within and between draws, of latent coordinates of (M, P)."""
        each = X @ self.maps - self.origin[:, None]
        mean = each.mean(axis=0)
        return LatentCoordinates(mean=mean, cov=spread(each, mean) + self.cov)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R): (G, K)."""
        return self._link(with_ones(latent) @ self.weights.mean(axis=0))
