"""Samples in a metric of the features, which folds learn without their left-out samples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior, centroid_weights
from bsdr_models.dgplvm.leave_one_out import Fold
from bsdr_models.metric import Groups, Metric, MetricName, choose_weights
from bsdr_models.numerics.folds import assign_folds, sample_keys

# Folds, at most.
N_FOLDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldMetric:
    """Scaled features (N, D) and classes (N,) from which metrics are learned.

    ``fold`` (N,) is 0 to F - 1, or -1 of samples that are never left out, and ``weights``
    (1 + F, J) are of :func:`~bsdr_models.metric.choose_weights`.
    """

    features: FloatArray
    y_index: IntArray
    units: FloatArray
    fold: IntArray
    weights: FloatArray

    @classmethod
    def of(
        cls, name: MetricName, X: FloatArray, y_index: IntArray, units: FloatArray
    ) -> "FoldMetric":
        """Choose weights of a metric; only one that is learned from the classes has folds."""
        fold = np.full(len(X), -1)
        size = np.bincount(y_index[y_index >= 0])
        if name == "auto" and size.max() > 1:
            n_folds = min(N_FOLDS, int(size[size > 1].min()))
            fold = assign_folds(y_index, sample_keys(X), n_folds=n_folds)
        known = y_index >= 0
        weights = choose_weights(name, X[known], y_index[known], units, fold[known])
        return cls(features=X, y_index=y_index, units=units, fold=fold, weights=weights)

    def learn(self, fold: int = -1) -> Metric:
        """The metric from the labelled samples that are not in a fold."""
        rest = (self.fold < 0) | (self.fold != fold)
        known = rest & (self.y_index >= 0)
        X, groups = self.features[known], Groups.of(self.y_index[known])
        weights = self.weights[1 + fold]
        return Metric.learn(X, groups, weights, self.units, every=self.features[rest])


def in_metric(metric: Metric, X: FloatArray) -> FloatArray:
    """Whitened features of samples (M, D), and their distance from the training samples' span.

    Euclidean distances of these (M, B + 1) are those in the metric, to a training sample.
    """
    return np.column_stack([metric.whiten(X), metric.outside_sd(X)])


def make_folds(
    data: FoldMetric, centres: IntArray | None, make: Callable[..., MappingPrior]
) -> tuple[Fold, ...]:
    """Mappings without each fold, with kernels at all samples or at the centres among them."""
    folds = []
    for fold in range(len(data.weights) - 1):
        left_out, rest = np.flatnonzero(data.fold == fold), np.flatnonzero(data.fold != fold)
        metric = data.learn(fold)
        X, new = (in_metric(metric, data.features[part]) for part in (rest, left_out))
        places = None if centres is None else X[np.isin(rest, centres)]
        prior = make(X, centroid_weights(data.y_index[rest]), places)
        features = prior.features(prior.kernel(new))
        variance = prior.variance(features)
        folds.append(
            Fold(left_out=left_out, rest=rest, prior=prior, features=features, variance=variance)
        )
    return tuple(folds)
