"""Latent coordinates and class probabilities of new samples, by draws or the mode."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.back_constraint import Embedder
from bsdr_models.dgplvm.gp_classifier import GPClassifier
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.validation import one_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Embedder and classifier, given one set of latent coordinates of the training samples."""

    embedder: Embedder
    classifier: GPClassifier

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log class probabilities of samples (M, D), (M, K)."""
        return self.classifier.log_probabilities(*self.embedder.to_classify(X))


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Average over posterior draws, whose components are aligned; a mode is a single draw."""

    draws: tuple[Draw, ...]

    @property
    def classified(self) -> bool:
        """Whether the classifiers of all draws have converged."""
        return all(draw.classifier.functions.converged for draw in self.draws)

    @property
    def embedder(self) -> Embedder:
        """The embedder of the last draw."""
        return self.draws[-1].embedder

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates of samples (M, D), (M, R)."""
        with one_thread():
            return np.asarray(np.mean([draw.embedder.latent(X) for draw in self.draws], axis=0))

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of the latent coordinates of samples (M, D), over draws."""
        with one_thread():
            return mixture([draw.embedder.embed(X) for draw in self.draws])

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log of the mean class probabilities of samples (M, D), (M, K)."""
        with one_thread():
            return log_mean((draw.log_probabilities(X) for draw in self.draws), len(self.draws))

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """Log of the mean class probabilities at latent coordinates (G, R), (G, K)."""
        with one_thread():
            log_p = (draw.classifier.log_probabilities(latent) for draw in self.draws)
            return log_mean(log_p, len(self.draws))


def log_mean(log_p: Iterable[FloatArray], count: int) -> FloatArray:
    """Log of the mean of so many probabilities, one of which is in memory at a time."""
    return np.asarray(reduce(np.logaddexp, log_p) - np.log(count))


def mixture(parts: Sequence[LatentCoordinates]) -> LatentCoordinates:
    """Mean and covariance of the mixture of the parts with equal weights."""
    means = np.stack([part.mean for part in parts])
    mean = means.mean(axis=0)
    between = np.einsum("smr,smq->mrq", means - mean, means - mean) / len(parts)
    return LatentCoordinates(mean=mean, cov=np.mean([part.cov for part in parts], axis=0) + between)
