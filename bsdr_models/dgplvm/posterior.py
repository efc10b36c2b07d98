"""Latent coordinates and class probabilities of new samples, by draws or the mode, and the fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bsdr_models.dgplvm.back_constraint import Embedder
from bsdr_models.dgplvm.gp_classifier import Functions, damp_log_odds, link, probit_log_odds
from bsdr_models.estimators.calibration import Calibration
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.process_state import one_thread
from bsdr_models.numerics.relevance import LatentCoordinates


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Embedder and latent functions, given one set of latent coordinates of the samples."""

    embedder: Embedder
    functions: Functions

    def log_odds_at(self, latent: FloatArray) -> FloatArray:
        """Log odds of the problems at latent coordinates (M, R) of typical variance, (M, P)."""
        return probit_log_odds(self.functions.probits(latent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Average over posterior draws, whose components are aligned.

    A mode has a draw for each division of the samples, with the same embedder.
    """

    draws: tuple[Draw, ...]
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def classified(self) -> bool:
        """Whether the classifiers of all draws have converged."""
        return all(draw.functions.converged for draw in self.draws)

    @property
    def embedder(self) -> Embedder:
        """The embedder of the last draw."""
        return self.draws[-1].embedder

    @property
    def _embedders(self) -> list[Embedder]:
        """Embedders that differ."""
        return list({id(draw.embedder): draw.embedder for draw in self.draws}.values())

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates of samples (M, D), (M, R)."""
        with one_thread():
            return np.asarray(np.mean([each.latent(X) for each in self._embedders], axis=0))

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of the latent coordinates of samples (M, D), over draws."""
        with one_thread():
            return mixture([each.embed(X) for each in self._embedders])

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log of the mean class probabilities of samples (M, D), (M, K)."""
        with one_thread():
            places = {id(each): each.to_classify(X) for each in self._embedders}
            parts = []
            for draw in self.draws:
                latent, relative_variance = places[id(draw.embedder)]
                parts.append(damp_log_odds(draw.log_odds_at(latent), relative_variance))
            return self._mix(parts)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """Log of the mean class probabilities at latent coordinates (G, R), (G, K)."""
        with one_thread():
            return self._mix([draw.log_odds_at(latent) for draw in self.draws])

    def _mix(self, log_odds: list[FloatArray]) -> FloatArray:
        return self.calibration.apply(np.stack(log_odds, axis=1), link)


@dataclass(frozen=True, kw_only=True)
class FitResult(Result[Posterior]):
    """Result of a fit by any engine, with latent coordinates (N, R) of the training samples.

    ``left_out`` are the leave-one-out latent coordinates, which plots show. ``variables`` are at
    the mode, or means over draws; ``terms``, ``trace`` and ``restarts`` are those of the search of
    the mode, and ``settings`` those of the mapping.
    """

    latent: FloatArray
    left_out: LatentCoordinates
    variables: Mapping[str, float | FloatArray]
    settings: Mapping[str, float]


def mixture(parts: Sequence[LatentCoordinates]) -> LatentCoordinates:
    """Mean and covariance of the mixture of the parts with equal weights."""
    means = np.stack([part.mean for part in parts])
    mean = means.mean(axis=0)
    between = np.einsum("smr,smq->mrq", means - mean, means - mean) / len(parts)
    return LatentCoordinates(mean=mean, cov=np.mean([part.cov for part in parts], axis=0) + between)
