r"""Samples left out of the mapping and of its metric; latent coordinates of class indicators.

Training samples lie closer to their class centroids than new samples, and a metric that was learned
from the classes knows that of each sample. So folds are left out of both metric and mapping. The
classifier is fitted to left-out latent coordinates, and width and noise of the mapping are averages
by the errors of left-out class indicators. The only samples of their classes are left out of the
mapping alone, all together, in closed form.

Samples of a group are dependent, and new samples are of other groups. The classifier is fitted as
if there were no groups, because left-out groups of few move together, and functions fitted to them
predict new groups worse. It is judged by groups that are left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from scipy.special import softmax

from bsdr_models.data.training import Training
from bsdr_models.dgplvm.back_constraint import (
    MappingPrior,
    centroid_weights,
    make_mapping,
    typical_distance,
)
from bsdr_models.dgplvm.priors import LogNormal
from bsdr_models.learned_metric.metric import Metric
from bsdr_models.learned_metric.weights import SHARPNESS
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.linalg import squared_distances
from bsdr_models.numerics.scaling import bounded

# Weak priors of the settings; without that of the width the choice is poor for many samples.
WIDTH_PRIOR = LogNormal(2.0, 0.5)
NOISE_PRIOR = LogNormal(0.03, 1.5)
# Share of their fitted coordinates that samples keep if every class has one only.
ALONE = 0.15


def in_metric(metric: Metric, X: FloatArray) -> FloatArray:
    """Whitened features of samples (M, D), and their distance from the training samples' span.

    Euclidean distances of these (M, B + 1) are those in the metric, to a training sample.
    """
    whitened = metric.whiten(X)
    return np.column_stack([whitened, metric.outside_sd(X, whitened)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Samples left out, the others, and their distances in a metric learned from the others."""

    left_out: IntArray  # (M,)
    rest: IntArray  # (N - M,)
    X: FloatArray  # of the others, (N - M, B + 1)
    squares: FloatArray  # squared distances of the others, (N - M, N - M)
    typical: float  # the typical one of these
    cross: FloatArray  # those of the samples left out from the others, (M, N - M)

    @classmethod
    def of(cls, X: FloatArray, fold: IntArray, number: int, metric: Metric) -> "Part":
        """From scaled samples (N, D) and the metric of those that are not in a fold (N,)."""
        left_out = np.flatnonzero(fold == number)
        rest = np.flatnonzero(fold != number)
        X_new = in_metric(metric, bounded(X[left_out], X[rest]))
        Z = np.pad(metric.whiten(X[rest]), ((0, 0), (0, 1)))  # in their span
        squares = squared_distances(Z)
        return cls(
            left_out=left_out,
            rest=rest,
            X=Z,
            squares=squares,
            typical=typical_distance(squares),
            cross=squared_distances(X_new, Z),
        )

    def mapping(
        self, y_index: IntArray, make: Callable[..., MappingPrior]
    ) -> tuple[MappingPrior, FloatArray]:
        """Prior of the others, and covariances of the samples left out with them, (M, N - M)."""
        weights = centroid_weights(y_index[self.rest])
        prior = make(self.X, weights, squares=self.squares, typical=self.typical)
        return prior, prior.covariances_at(self.cross)

    def predict(
        self, values: FloatArray, y_index: IntArray, make: Callable[..., MappingPrior]
    ) -> tuple[FloatArray, FloatArray]:
        """Values (M, R), and variances (M,) up to their scale, given those of the others."""
        prior, covariances = self.mapping(y_index, make)
        return prior.predict(values[self.rest], covariances), prior.variance(covariances)


def make_parts(training: Training, division: int | None) -> list[Part]:
    """The parts of a division of the samples, which are judged.

    With None those without regard to the groups of the user, whose metrics have the weights of all.
    """
    fold = training.singly if division is None else training.divisions[division]
    assert fold is not None
    parts = []
    for number in np.unique(fold[fold >= 0]).tolist():
        if division is None:
            metric = training.learn_metric(fold != number)
        else:
            metric = training.metric((division, number))
        parts.append(Part.of(training.X, fold, number, metric))
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Left-out latent coordinates (N, R), and their variances (N,) up to the scale.

    Unlabelled samples keep their fitted ones, of variance 0.
    """

    latent: FloatArray
    variance: FloatArray

    @classmethod
    def of(
        cls,
        prior: MappingPrior,
        latent: FloatArray,
        y_index: IntArray,
        parts: Sequence[Part],
        make: Callable[..., MappingPrior],
    ) -> "LeftOut":
        """By parts where they have a sample; other labelled ones in closed form.

        These are left out one by one, but the only samples of their classes together: with one
        sample of every class each would look like those of all other classes.
        """
        known = y_index >= 0
        left_out = np.where(known[:, None], prior.leave_out(latent), latent)
        variance = np.where(known, prior.left_out_variance(), 0.0)
        only = known & (np.bincount(y_index[known])[y_index] == 1)
        left_out[only], variance[only] = prior.leave_out_together(latent, only)
        if only[known].all():  # without any order of the classes all predictions would be one
            left_out[only] += ALONE * latent[only]
        for part in parts:
            left_out[part.left_out], variance[part.left_out] = part.predict(latent, y_index, make)
        return cls(latent=left_out, variance=variance)

    @property
    def typical_variance(self) -> float:
        """Mean variance of the labelled samples."""
        return float(self.variance[self.variance > 0.0].mean())

    @property
    def relative_variance(self) -> FloatArray:
        """Variance relative to the typical one, (N,); 1 without a label."""
        return np.where(self.variance > 0.0, self.variance / self.typical_variance, 1.0)

    def scale(self, latent: FloatArray, y_index: IntArray) -> float:
        """Moment estimate of the variance s**2 of the mapping from the residuals."""
        known = y_index >= 0
        square = ((latent - self.latent)[known] ** 2).mean(axis=1)
        return float(np.mean(square / self.variance[known]))


# Width and noise of the mapping


def mean_settings(
    parts: Sequence[Part],
    y_index: IntArray,
    widths: Sequence[float],
    noises: Sequence[float],
    *,
    n_divisions: int = 1,
    share: float = 1.0,
) -> tuple[float, float]:
    """Width g and noise lambda, relative to the variance of the smooth part, of the mapping.

    Geometric means, by the penalised errors of left-out whitened class indicators, which are the
    latent coordinates of infinite weight, in several divisions. Without parts by the prior alone.
    """
    candidates = list(product(widths, noises))
    if len(candidates) == 1:
        return candidates[0]
    targets = whitened_indicators(y_index)

    def loss(width: float, noise: float) -> float:
        own = partial(make_mapping, width=width, noise=noise)
        residual = []
        for part in parts:
            prior, covariances = part.mapping(y_index, own)
            predicted = prior.predict(targets[part.rest], covariances)
            residual.append((targets[part.left_out] - predicted) ** 2)
        penalty, _ = WIDTH_PRIOR.negative_log_density(np.log(width))
        penalty += NOISE_PRIOR.negative_log_density(np.log(noise))[0]
        if not residual:
            return penalty
        square = np.concatenate(residual)
        return 0.5 * share * square.size / n_divisions * float(np.log(square.mean())) + penalty

    weights = softmax([-SHARPNESS * loss(*each) for each in candidates])
    width, noise = np.exp(weights @ np.log(candidates))
    return float(width), float(noise)


# Class indicators


def whitened_indicators(y_index: IntArray) -> FloatArray:
    """Whitened indicators of the classes present, (N, K - 1); unlabelled samples have zeros.

    Over labelled samples the columns have mean 0, variance 1 and no correlation.
    """
    known = y_index >= 0
    indicator = np.equal.outer(y_index[known], np.unique(y_index[known])).astype(np.float64)
    left, _, _ = np.linalg.svd(indicator - indicator.mean(axis=0), full_matrices=False)
    whitened = np.zeros((len(y_index), indicator.shape[1] - 1))
    whitened[known] = np.sqrt(known.sum()) * left[:, : whitened.shape[1]]
    return whitened


def with_principal_components(
    indicators: FloatArray, X: FloatArray, n_components: int
) -> FloatArray:
    """Whitened indicators (N, P), then whitened principal components of the rest of X (N, D)."""
    n, n_indicators = indicators.shape
    centred = X - X.mean(axis=0)
    residual = centred - indicators @ (indicators.T @ centred) / n
    left, size, _ = np.linalg.svd(residual, full_matrices=False)
    rank = int((size > 1e-8 * np.linalg.norm(X)).sum())
    n_more = n_components - n_indicators
    if rank < n_more:
        raise ValueError(
            f"n_components={n_components} is too large: there are {n_indicators} directions of the "
            f"classes and {rank} of the features within classes"
        )
    return np.column_stack([indicators, np.sqrt(n) * left[:, :n_more]])


def initial_coordinates(
    prior: MappingPrior, X: FloatArray, y_index: IntArray, n_components: int
) -> FloatArray:
    """The best predicted whitened indicators (N, R), then principal components of the features."""
    indicators = whitened_indicators(y_index)
    n_indicators = indicators.shape[1]
    if n_indicators > n_components:
        agreement = indicators.T @ prior.leave_out(indicators)
        values, directions = np.linalg.eigh(agreement + agreement.T)
        return indicators @ directions[:, np.argsort(-values)[:n_components]]
    if n_indicators < n_components:
        return with_principal_components(indicators, X, n_components)
    return indicators
