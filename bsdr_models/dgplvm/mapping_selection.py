r"""Selection of the settings of the mapping by leave-one-out error, in closed form.

In the limit of infinite weight the latent coordinates are whitened class indicators, and the model
is a penalised kernel discriminant analysis. These are known before any fit, so the width g of the
mapping and its noise lambda minimise their leave-one-out error.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import (
    DenseMapping,
    LowRankMapping,
    MappingPrior,
    centroid_weights,
)
from bsdr_models.dgplvm.leave_one_out import leave_one_out, leave_out_tuples
from bsdr_models.dgplvm.priors import LogNormal
from bsdr_models.numerics.folds import stratified_subset

WIDTHS = (0.5, 1.0, 2.0, 4.0)
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3)
# Weak priors; without that of the width the selection is poor for many samples.
WIDTH_PRIOR = LogNormal(2.0, 0.5)
NOISE_PRIOR = LogNormal(0.03, 1.5)
# Maximum number of labelled samples for the selection, whose cost is cubic.
SETTING_SAMPLES = 1000


class MappingSettings(NamedTuple):
    """Width g of the mapping, and its noise lambda, relative to the variance of the smooth part."""

    width: float
    noise: float


def make_mapping(
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    settings: MappingSettings,
    *,
    mean_variance: float,
    centres: FloatArray | None = None,
) -> MappingPrior:
    """Prior of the mapping on training samples (N, D), with kernels at all or at centres (m, D)."""
    weights, (width, noise) = centroid_weights(y_index, n_labels), settings
    options = {"width": width, "noise": noise, "mean_variance": mean_variance}
    if centres is None:
        return DenseMapping.of(X, weights, **options)
    return LowRankMapping.of(X, weights, centres, **options)


def choose_settings(
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    *,
    mean_variance: float,
    tuples: IntArray | None = None,
    widths: Sequence[float] = WIDTHS,
    noises: Sequence[float] = NOISES,
) -> MappingSettings:
    """Settings with the smallest penalised leave-one-out error of the class indicators.

    Samples are (N, D), all with a class (N,), and tuples from `leave_one_out.leave_out_tuples`. A
    single pair of candidates is returned without any computation.
    """
    candidates = [MappingSettings(width=g, noise=noise) for g in widths for noise in noises]
    if len(candidates) == 1:
        return candidates[0]
    if len(X) > SETTING_SAMPLES:
        subset = stratified_subset(y_index, SETTING_SAMPLES)
        X, y_index, tuples = X[subset], y_index[subset], None
    targets = whitened_indicators(y_index, n_labels)
    sets = leave_out_tuples(y_index, X) if tuples is None else tuples

    def loss(settings: MappingSettings) -> float:
        prior = make_mapping(X, y_index, n_labels, settings, mean_variance=mean_variance)
        fit = leave_one_out(prior, targets, y_index, sets)
        error = 0.5 * targets.size * np.log(np.mean((targets - fit.latent) ** 2))
        width, _ = WIDTH_PRIOR.negative_log_density(np.log(settings.width))
        noise, _ = NOISE_PRIOR.negative_log_density(np.log(settings.noise))
        return float(error) + width + noise

    return min(candidates, key=loss)


def whitened_indicators(y_index: IntArray, n_labels: int) -> FloatArray:
    """Whitened indicators of the classes present, (N, K - 1); unlabelled samples have zeros.

    Over labelled samples the columns have mean 0, variance 1 and no correlation.
    """
    known = y_index >= 0
    indicator = np.equal.outer(y_index[known], np.arange(n_labels)).astype(np.float64)
    indicator = indicator[:, indicator.any(axis=0)]
    left, _, _ = np.linalg.svd(indicator - indicator.mean(axis=0), full_matrices=False)
    whitened = np.zeros((len(y_index), indicator.shape[1] - 1))
    whitened[known] = np.sqrt(known.sum()) * left[:, : whitened.shape[1]]
    return whitened


def initial_coordinates(
    prior: MappingPrior,
    X: FloatArray,
    y_index: IntArray,
    n_labels: int,
    n_components: int,
    tuples: IntArray | None = None,
) -> FloatArray:
    """Whitened initial latent coordinates of labelled samples, (N, R).

    Of more whitened indicators than components, the combinations with the best leave-one-out
    prediction are taken. Missing components are leading principal components of the features,
    uncorrelated with the indicators.
    """
    indicators = whitened_indicators(y_index, n_labels)
    n_indicators = indicators.shape[1]
    if n_indicators > n_components:
        sets = leave_out_tuples(y_index, X) if tuples is None else tuples
        agreement = indicators.T @ leave_one_out(prior, indicators, y_index, sets).latent
        values, directions = np.linalg.eigh(agreement + agreement.T)
        return indicators @ directions[:, np.argsort(-values)[:n_components]]
    if n_indicators < n_components:
        more = _principal_components(X, indicators, n_components - n_indicators)
        return np.column_stack([indicators, more])
    return indicators


def extend(prior: MappingPrior, latent: FloatArray, X: FloatArray) -> FloatArray:
    """Mean latent coordinates (M, R) of new samples, given those of the training samples."""
    mean = prior.mean_weights @ latent
    return mean + prior.features(X) @ prior.weights(latent - mean)


def _principal_components(X: FloatArray, indicators: FloatArray, n_more: int) -> FloatArray:
    """Whitened principal components of the features, uncorrelated with the indicators."""
    n, n_indicators = indicators.shape
    total = n_indicators + n_more
    if n - 1 < total:
        raise ValueError(
            f"n_components={total} is too large for {n} labelled samples: {n - 1} at most"
        )
    centred = X - X.mean(axis=0)
    residual = centred - indicators @ (indicators.T @ centred) / n
    left, size, _ = np.linalg.svd(residual, full_matrices=False)
    rank = int((size > 1e-8 * np.linalg.norm(X)).sum())
    if rank < n_more:
        raise ValueError(
            f"n_components={total} is too large: there are {n_indicators} directions of the "
            f"classes and {rank} of the features within classes"
        )
    return np.sqrt(n) * left[:, :n_more]
