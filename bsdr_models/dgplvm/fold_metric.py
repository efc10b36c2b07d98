"""Samples in a metric of the features, which folds learn without their left-out samples."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior, centroid_weights
from bsdr_models.dgplvm.leave_one_out import Fold
from bsdr_models.metric import Groups, Metric, MetricName, choose_weights
from bsdr_models.numerics.folds import make_folds


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldMetric:
    """Scaled features (N, D) and classes (N,) from which metrics are learned.

    ``fold`` (N,) is 0 to F - 1, or -1 of samples that are never left out; samples of one of the
    ``groups`` (N,), if there are any, are in one fold. All folds share the
    ``weights`` (J,), as they share width and noise of the mapping: with weights of their own their
    metrics could differ much from that of all samples, for which they stand.
    """

    features: FloatArray
    y_index: IntArray
    units: FloatArray
    fold: IntArray
    weights: FloatArray
    groups: IntArray | None = None

    @classmethod
    def of(
        cls,
        name: MetricName,
        X: FloatArray,
        y_index: IntArray,
        units: FloatArray,
        groups: IntArray | None = None,
    ) -> "FoldMetric":
        """Choose weights of a metric.

        Only one that is learned from the classes, or samples in groups, have folds: others are
        left out one by one.
        """
        known = y_index >= 0
        fold = np.full(len(X), -1)
        if name == "auto" or groups is not None:
            fold = make_folds(X, y_index, groups)
        (weights,) = choose_weights(
            name, X[known], y_index[known], units, fold[known], by_fold=False
        )
        return cls(
            features=X, y_index=y_index, units=units, fold=fold, weights=weights, groups=groups
        )

    def learn(self, fold: int | None = None) -> Metric:
        """The metric of all labelled samples, or of those that are not in a fold."""
        rest = np.ones(len(self.fold), dtype=np.bool_) if fold is None else self.fold != fold
        known = rest & (self.y_index >= 0)
        X, groups = self.features[known], Groups.of(self.y_index[known])
        return Metric.learn(X, groups, self.weights, self.units, every=self.features[rest])


def in_metric(metric: Metric, X: FloatArray) -> FloatArray:
    """Whitened features of samples (M, D), and their distance from the training samples' span.

    Euclidean distances of these (M, B + 1) are those in the metric, to a training sample.
    """
    return np.column_stack([metric.whiten(X), metric.outside_sd(X)])


def predict_folds(
    X: FloatArray,
    y_index: IntArray,
    fold: IntArray,
    targets: FloatArray,
    make: Callable[..., MappingPrior],
) -> FloatArray:
    """Targets (N, P) as predicted without the fold of each sample; as they are in no fold."""
    predicted = targets.copy()
    for number in range(fold.max() + 1):
        out, rest = fold == number, fold != number
        prior = make(X[rest], centroid_weights(y_index[rest]))
        mean = prior.mean_weights @ targets[rest]
        weights = prior.weights(targets[rest] - mean)
        predicted[out] = mean + prior.features(prior.kernel(X[out])) @ weights
    return predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Folds:
    """Mappings without each fold, with kernels at all samples or at the centres among them.

    They are made whenever they are needed: those of many samples take much memory.
    """

    data: FoldMetric
    centres: IntArray | None
    make: Callable[..., MappingPrior]

    def __iter__(self) -> Iterator[Fold]:
        data = self.data
        for fold in range(data.fold.max() + 1):
            left_out, rest = np.flatnonzero(data.fold == fold), np.flatnonzero(data.fold != fold)
            metric = data.learn(fold)
            X, new = (in_metric(metric, data.features[part]) for part in (rest, left_out))
            places = None if self.centres is None else X[np.isin(rest, self.centres)]
            prior = self.make(X, centroid_weights(data.y_index[rest]), places)
            features = prior.features(prior.kernel(new))
            variance = prior.variance(features)
            yield Fold(
                left_out=left_out, rest=rest, prior=prior, features=features, variance=variance
            )
