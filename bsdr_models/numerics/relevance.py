"""Relevance of components and features in a linear classifier."""

import numpy as np

from bsdr_models.arrays import FloatArray

# Relevance below which a component counts as switched off.
ALIVE = 0.01


def relevance(latent: FloatArray, contrast: FloatArray) -> FloatArray:
    """Share of each component in the variance of class scores over samples, (R,).

    Parameters
    ----------
    latent : (N, R)
    contrast : (R, K)
        Weights, centred over classes if only their differences matter.
    """
    return _shares(latent.var(axis=0) * np.sum(contrast**2, axis=1))


def feature_relevance(projection: FloatArray, contrast: FloatArray) -> FloatArray:
    """Share of each feature in the squared coefficients, (P,).

    Parameters
    ----------
    projection : (P, R)
    contrast : (R, K)
        As in :func:`relevance`.
    """
    return _shares(np.sum((projection @ contrast) ** 2, axis=-1))


def _shares(values: FloatArray) -> FloatArray:
    total = values.sum()
    return values / total if total > 0.0 else np.full(len(values), 1.0 / len(values))
