"""Relevance of components and features in a linear classifier."""

from dataclasses import dataclass

import numpy as np

from bsdr_models.numerics.arrays import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCoordinates:
    """Latent coordinates of M samples, one normal distribution each."""

    mean: FloatArray  # (M, R)
    cov: FloatArray  # (M, R, R)

    @property
    def std(self) -> FloatArray:
        """Marginal standard deviations, (M, R)."""
        return np.sqrt(np.einsum("mrr->mr", self.cov))


def spread(draws: FloatArray, mean: FloatArray) -> FloatArray:
    """Covariance (M, R, R) of draws of latent coordinates (S, M, R) about their mean (M, R)."""
    gap = draws - mean
    return np.einsum("smr,smq->mrq", gap, gap, optimize=True) / len(gap)


# Relevance below which a component counts as switched off.
ALIVE = 0.01


def relevance(
    latent: FloatArray, contrast: FloatArray, sample_weight: FloatArray | None = None
) -> FloatArray:
    """Share of each component (N, R) in the variance of class scores with weights (R, K), (R,).

    Weights are centred over classes if only their differences matter.
    """
    centred = latent - np.average(latent, axis=0, weights=sample_weight)
    variance = np.average(centred**2, axis=0, weights=sample_weight)
    return _shares(variance * np.sum(contrast**2, axis=1))


def feature_relevance(projection: FloatArray, contrast: FloatArray) -> FloatArray:
    """Share of each feature in the squared coefficients (P, R) @ (R, K), (P,)."""
    return _shares(np.sum((projection @ contrast) ** 2, axis=-1))


def rescale_to_median_size(coef: FloatArray, *, centred: bool) -> FloatArray:
    """Draws of coefficients, rescaled to the median of their root mean squares, (S, P, K).

    If classes separate, the common size of the coefficients of a draw is hardly bounded by the
    data, and would be most of the spread of each. Signs, and ratios within a draw, do not change.
    Root mean squares may be those of coefficients centred over the K classes.
    """
    values = coef - coef.mean(axis=-1, keepdims=True) if centred else coef
    size = np.sqrt(np.mean(values**2, axis=(1, 2)))
    factor = np.divide(np.median(size), size, out=np.ones_like(size), where=size > 0.0)
    return coef * factor[:, None, None]


def _shares(values: FloatArray) -> FloatArray:
    total = values.sum()
    return values / total if total > 0.0 else np.full(len(values), 1.0 / len(values))
