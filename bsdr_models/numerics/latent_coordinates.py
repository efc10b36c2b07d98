"""Latent coordinates of samples with their uncertainty."""

from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCoordinates:
    """Latent coordinates of M samples, one normal distribution each.

    mean
        (M, R).
    cov
        (M, R, R).
    """

    mean: FloatArray
    cov: FloatArray

    @property
    def std(self) -> FloatArray:
        """Marginal standard deviations, (M, R)."""
        return np.sqrt(np.einsum("mrr->mr", self.cov))
