"""Latent coordinates and class probabilities of new samples, by draws or the mode, and the fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bsdr_models.dgplvm.back_constraint import Embedder
from bsdr_models.dgplvm.gp_classifier import Functions, link, probit_log_odds
from bsdr_models.estimators.calibration import Calibration
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.latent import LatentCoordinates
from bsdr_models.numerics.process_state import one_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Embedder and latent functions, given one set of latent coordinates of the samples.

    A mode has functions for each division of the samples.
    """

    embedder: Embedder
    functions: tuple[Functions, ...]

    def log_odds_at(self, latent: FloatArray) -> list[FloatArray]:
        """Log odds of the problems at latent coordinates (M, R) of typical variance, (M, P)."""
        return [probit_log_odds(each.probits(latent)) for each in self.functions]

    def log_odds(self, X: FloatArray) -> list[FloatArray]:
        """Log odds of the problems of samples (M, D), smaller of uncertain ones, (M, P)."""
        latent, relative_variance = self.embedder.to_classify(X)
        return [moderate(each, relative_variance) for each in self.log_odds_at(latent)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DGPLVMPosterior:
    """Average over posterior draws, whose components are aligned; a mode is one draw."""

    draws: tuple[Draw, ...]
    calibration: Calibration = field(default_factory=Calibration)

    @property
    def classified(self) -> bool:
        """Whether the classifiers of all draws have converged."""
        return all(each.converged for draw in self.draws for each in draw.functions)

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
            return self._mix([each for draw in self.draws for each in draw.log_odds(X)])

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """Log of the mean class probabilities at latent coordinates (G, R), (G, K)."""
        with one_thread():
            return self._mix([each for draw in self.draws for each in draw.log_odds_at(latent)])

    def _mix(self, log_odds: list[FloatArray]) -> FloatArray:
        return self.calibration.apply(np.stack(log_odds, axis=1), link)


@dataclass(frozen=True, kw_only=True)
class FitResult(Result[DGPLVMPosterior]):
    """Result of a fit by any engine, with latent coordinates (N, R) of the training samples.

    ``left_out`` are the leave-one-out latent coordinates, which plots show. ``variables`` are at
    the mode, or means over draws; ``terms``, ``trace`` and ``restarts`` are those of the search of
    the mode, and ``settings`` those of the mapping.
    """

    latent: FloatArray
    left_out: LatentCoordinates
    variables: Mapping[str, float | FloatArray]
    settings: Mapping[str, float]


def moderate(log_odds: FloatArray, relative_variance: FloatArray) -> FloatArray:
    """Log odds (M, P), smaller of samples of uncertain latent coordinates, by variances (M,)."""
    return log_odds / np.sqrt(0.5 * (1.0 + relative_variance))[:, None]


def mixture(parts: Sequence[LatentCoordinates]) -> LatentCoordinates:
    """Mean and covariance of the mixture of the parts with equal weights."""
    means = np.stack([part.mean for part in parts])
    mean = means.mean(axis=0)
    between = np.einsum("smr,smq->mrq", means - mean, means - mean) / len(parts)
    return LatentCoordinates(mean=mean, cov=np.mean([part.cov for part in parts], axis=0) + between)
