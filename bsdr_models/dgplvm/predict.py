"""Latent coordinates and class probabilities of new samples, from a mode or from draws."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.back_constraint import MappingPrior
from bsdr_models.dgplvm.decoder import Decoder
from bsdr_models.dgplvm.dynamics import Predictor
from bsdr_models.dgplvm.gp_classifier.fit import GPClassifier
from bsdr_models.dgplvm.latent_inference import infer_latent, infer_latent_sequence
from bsdr_models.numerics.kernels import squared_distances
from bsdr_models.numerics.relevance import LatentCoordinates

# Samples whose derivatives are in memory at a time.
CHUNK = 512


def mixture(parts: Sequence[LatentCoordinates]) -> LatentCoordinates:
    """Mean and covariance of the mixture of the parts with equal weights."""
    means = np.stack([part.mean for part in parts])
    mean = means.mean(axis=0)
    between = np.einsum("smr,smq->mrq", means - mean, means - mean) / len(parts)
    return LatentCoordinates(mean=mean, cov=np.mean([part.cov for part in parts], axis=0) + between)


class Embedder(Protocol):
    """A method that embeds new samples (M, D), given in scaled units."""

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances of the latent coordinates, (M, R) and (M, R, R)."""

    def latent(self, X: FloatArray) -> FloatArray:
        """Means of the latent coordinates, (M, R)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEmbedder:
    r"""Embedding by the back-constraint, Eqs. (17)-(18) of the paper, in closed form.

    .. math::
        x(y) \sim N\!\left(m + k_b(y)^\top M (X - 1 m^\top),\;
        s^2 (1 + \omega + \lambda - k_b(y)^\top M k_b(y))\, I\right), \qquad m = X^\top c

    ``weights`` (P, R) are coefficients of the features of the mapping, ``scale`` is s**2, and
    ``typical_variance`` the mean variance of leave-one-out latent coordinates, without the scale.
    """

    prior: MappingPrior
    mean: FloatArray
    weights: FloatArray
    scale: float
    typical_variance: float = 1.0

    @classmethod
    def of(
        cls, prior: MappingPrior, latent: FloatArray, scale: float, typical_variance: float = 1.0
    ) -> "MappingEmbedder":
        """Condition the mapping on the latent coordinates of the training samples, (N, R)."""
        mean = prior.mean_weights @ latent
        return cls(
            prior=prior,
            mean=mean,
            weights=prior.weights(latent - mean),
            scale=scale,
            typical_variance=typical_variance,
        )

    def latent(self, X: FloatArray) -> FloatArray:
        """Means of the latent coordinates, (M, R)."""
        return self.mean + self.prior.features(X) @ self.weights

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances of the latent coordinates, (M, R) and (M, R, R)."""
        return self.embed_features(*self.features(X))

    def features(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Features of the mapping (M, P), and variances (M,) without the scale."""
        features = self.prior.features(X)
        return features, self.prior.variance(features)

    def embed_features(self, features: FloatArray, variance: FloatArray) -> LatentCoordinates:
        """Means and covariances from features of the mapping (M, P), and variances (M,)."""
        return LatentCoordinates(
            mean=self.mean + features @ self.weights,
            cov=(self.scale * variance)[:, None, None] * np.eye(len(self.mean)),
        )

    def out_of_range(self, X: FloatArray) -> FloatArray:
        """Variance relative to that of an infinitely distant sample, (M,)."""
        return self._relative(self.prior.variance(self.prior.features(X)))

    def out_of_range_left_out(self) -> FloatArray:
        """Relative variance of each training sample given the others, (N,)."""
        return self._relative(self.prior.left_out_variance())

    def _relative(self, variance: FloatArray) -> FloatArray:
        far = float(self.prior.variance(self.prior.far_features())[0])
        return np.minimum(variance / far, 1.0)

    def sensitivity(self, X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean and sd (D, R) over samples (M, D) of the derivatives of the latent coordinates.

        Also the share (D,) of each feature in the sum of squares over samples and components.
        """
        centres, factors = self.prior.expansion(self.weights)
        decay, n = self.prior.decay, len(X)
        total, square = np.zeros((2, X.shape[1], factors.shape[1]))
        size = max(1, CHUNK * 64 // max(X.shape[1], 64))
        for start in range(0, n, size):
            chunk = X[start : start + size]
            kernel = np.exp(-decay * squared_distances(chunk, centres))  # (M, m)
            slope = np.einsum("mr,md->mdr", kernel @ factors, chunk)
            for r in range(factors.shape[1]):
                slope[:, :, r] -= (kernel * factors[:, r]) @ centres
            slope *= -2.0 * decay
            total += slope.sum(axis=0)
            square += (slope**2).sum(axis=0)
        mean = total / n
        sd = np.sqrt(np.maximum(square / n - mean**2, 0.0))
        share = square.sum(axis=1)
        return mean, sd, share / (share.sum() or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodEmbedder:
    """Embedding by likelihood tempered by a factor, Eq. (14) of the paper: a search per sample.

    ``dynamics`` predict the next latent coordinates of a sequence.
    """

    decoder: Decoder
    temper: float
    dynamics: Predictor | None = None

    def latent(self, X: FloatArray) -> FloatArray:
        """Optima, (M, R)."""
        return infer_latent(self.decoder, X, temper=self.temper).latent

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Optima (M, R), and the inverse Hessians there (M, R, R)."""
        found = infer_latent(self.decoder, X, temper=self.temper)
        return LatentCoordinates(mean=found.latent, cov=found.cov)

    def embed_sequence(self, X: FloatArray, sequence: np.ndarray) -> LatentCoordinates:
        """Optima with priors predicted from the sample before in its sequence, named in (M,)."""
        mean = np.empty((len(X), self.decoder.latent.shape[1]))
        cov = np.empty((*mean.shape, mean.shape[1]))
        for name in np.unique(sequence):
            index = np.flatnonzero(sequence == name)
            found = infer_latent_sequence(self.decoder, X[index], self._next, temper=self.temper)
            mean[index], cov[index] = found.latent, found.cov
        return LatentCoordinates(mean=mean, cov=cov)

    def _next(self, latent: FloatArray) -> tuple[FloatArray, float]:
        if self.dynamics is None:
            raise ValueError("samples of sequences need a fit to sequences")
        mean, variance = self.dynamics.predict(latent[None])
        return mean[0], float(variance[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Embedder and classifier, given one set of latent coordinates of the training samples."""

    embedder: Embedder
    classifier: GPClassifier


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Average over posterior draws, whose components are aligned; a mode is a single draw.

    Several draws have embedders by the same mapping.
    """

    draws: tuple[Draw, ...]

    @property
    def embedder(self) -> Embedder:
        """The embedder of the last draw."""
        return self.draws[-1].embedder

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates of samples (M, D), (M, R)."""
        return self.embedder.latent(X) if len(self.draws) == 1 else self.embed(X).mean

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of the latent coordinates of samples (M, D), over draws."""
        embedders = self._mappings
        if not embedders:
            return self.embedder.embed(X)
        features, variance = embedders[0].features(X)
        return mixture([each.embed_features(features, variance) for each in embedders])

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log of the mean class probabilities of samples (M, D), (M, K)."""
        embedders = self._mappings
        if not embedders:
            return self.log_probabilities_at(self.embedder.latent(X))
        features, variance = embedders[0].features(X)
        return self._log_mean(
            draw.classifier.log_probabilities(
                embedder.mean + features @ embedder.weights, variance / embedder.typical_variance
            )
            for draw, embedder in zip(self.draws, embedders, strict=True)
        )

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """Log of the mean class probabilities at latent coordinates (G, R), (G, K)."""
        return self._log_mean(draw.classifier.log_probabilities(latent) for draw in self.draws)

    def left_out(self) -> FloatArray:
        """Log of the mean leave-one-out probabilities of the training samples, (N, K)."""
        return self._log_mean(draw.classifier.left_out for draw in self.draws)

    @property
    def _mappings(self) -> list[MappingEmbedder]:
        return [draw.embedder for draw in self.draws if isinstance(draw.embedder, MappingEmbedder)]

    def _log_mean(self, log_p: Iterable[FloatArray]) -> FloatArray:
        return np.asarray(reduce(np.logaddexp, log_p) - np.log(len(self.draws)))
