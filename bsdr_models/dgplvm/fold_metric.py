"""Samples in a metric of the features, which folds learn without their left-out samples."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.dgplvm.back_constraint import MappingPrior, centroid_weights, make_mapping
from bsdr_models.dgplvm.leave_one_out import Fold
from bsdr_models.dgplvm.priors import MAP_MEAN_VARIANCE
from bsdr_models.metric import Groups, Metric, MetricName, choose_weights
from bsdr_models.numerics.dependence import effective_share
from bsdr_models.numerics.folds import make_folds
from bsdr_models.numerics.kernels import squared_distances
from bsdr_models.numerics.scaling import bounded

# Mappings by which candidates of the metric are weighted: the prior median of the width, and noises
# about that of the noise.
JUDGE_WIDTH = 2.0
JUDGE_NOISES = (0.003, 0.03, 0.3)


class Part(NamedTuple):
    """Samples left out, the others, and both in a metric that is learned from the others."""

    left_out: IntArray  # (M,)
    rest: IntArray  # (N - M,)
    X: FloatArray  # of the others, (N - M, B + 1)
    squares: FloatArray  # squared distances of the others, (N - M, N - M)
    cross: FloatArray  # those of the samples left out from the others, (M, N - M)

    def fold(self, y_index: IntArray, make: Callable[..., MappingPrior]) -> Fold:
        """The mapping of the others, of classes (N,), from `make_mapping` with its settings."""
        prior = make(self.X, centroid_weights(y_index[self.rest]), squares=self.squares)
        covariances = prior.covariances_at(self.cross)
        return Fold(left_out=self.left_out, rest=self.rest, prior=prior, covariances=covariances)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldMetric:
    """Scaled features (N, D) and classes (N,) from which metrics are learned.

    ``fold`` (N,) is 0 to F - 1, or -1 of samples that are never left out. Samples may be in
    ``groups`` (N,), each of which is in one ``group_fold`` (N,). All folds share the
    ``weights`` (J,), as they share width and noise of the mapping: with weights of their own their
    metrics could differ much from that of all samples, for which they stand. The effective number
    of samples, if they are dependent, is a ``share`` of their number.
    """

    features: FloatArray
    y_index: IntArray
    units: FloatArray
    fold: IntArray
    weights: FloatArray
    groups: IntArray | None = None
    group_fold: IntArray | None = None
    share: float = 1.0

    @classmethod
    def of(
        cls,
        name: MetricName,
        X: FloatArray,
        y_index: IntArray,
        units: FloatArray,
        groups: IntArray | None = None,
    ) -> "FoldMetric":
        """Choose weights of a metric, by folds of groups if samples are in groups.

        Without a metric that is learned from the classes samples are left out one by one.
        """
        known = y_index >= 0
        of_known = None if groups is None else groups[known]
        share = effective_share(X[known], y_index[known], of_known)
        fold = make_folds(X, y_index) if name == "auto" else np.full(len(X), -1)
        group_fold = None if groups is None else make_folds(X, y_index, groups)
        held_out = fold if group_fold is None else group_fold
        (weights,) = choose_weights(
            name,
            X[known],
            y_index[known],
            units,
            held_out[known],
            by_fold=False,
            judge=mapping_predictions,
            share=share,
        )
        return cls(
            features=X,
            y_index=y_index,
            units=units,
            fold=fold,
            weights=weights,
            groups=groups,
            group_fold=group_fold,
            share=share,
        )

    def learn(self, rest: BoolArray | None = None) -> Metric:
        """The metric of all labelled samples, or of those of them in a set (N,)."""
        rest = np.ones(len(self.fold), dtype=np.bool_) if rest is None else rest
        known = rest & (self.y_index >= 0)
        X = self.features[known]
        groups = Groups.of(self.y_index[known], self.share)
        every = None if len(X) == np.count_nonzero(rest) else self.features[rest]
        return Metric.learn(X, groups, self.weights, self.units, every=every)

    def take(self, index: IntArray) -> "FoldMetric":
        """Of some samples, for parts without regard to groups."""
        return replace(
            self,
            features=self.features[index],
            y_index=self.y_index[index],
            fold=self.fold[index],
            groups=None,
            group_fold=None,
        )

    def parts(self) -> list[Part]:
        """The parts of all folds that have samples."""
        return self._parts(self.fold)

    def group_parts(self) -> list[Part]:
        """The parts of all folds of groups, if there are any."""
        return [] if self.group_fold is None else self._parts(self.group_fold)

    def _parts(self, fold: IntArray) -> list[Part]:
        """The parts of folds (N,)."""
        parts = []
        for number in np.unique(fold[fold >= 0]):
            metric = self.learn(fold != number)
            left_out = np.flatnonzero(fold == number)
            rest = np.flatnonzero(fold != number)
            X_new = in_metric(metric, bounded(self.features[left_out], self.features[rest]))
            X = np.pad(metric.whiten(self.features[rest]), ((0, 0), (0, 1)))  # in their span
            squares = squared_distances(X)
            parts.append(Part(left_out, rest, X, squares, squared_distances(X_new, X)))
        return parts


def in_metric(metric: Metric, X: FloatArray) -> FloatArray:
    """Whitened features of samples (M, D), and their distance from the training samples' span.

    Euclidean distances of these (M, B + 1) are those in the metric, to a training sample.
    """
    return np.column_stack([metric.whiten(X), metric.outside_sd(X)])


def mapping_predictions(
    X: FloatArray, targets: FloatArray, X_new: FloatArray, share: float
) -> FloatArray:
    """Class indicators (P, M, K) as predicted by mappings of samples (N, B), for each noise."""
    weights = centroid_weights(targets.argmax(axis=1))
    squares = squared_distances(X)
    cross = squared_distances(X_new, X)
    found = []
    for noise in JUDGE_NOISES:
        prior = make_mapping(
            X,
            weights,
            width=JUDGE_WIDTH,
            noise=noise / share,
            mean_variance=MAP_MEAN_VARIANCE,
            squares=squares,
        )
        found.append(prior.predict(targets, prior.covariances_at(cross)))
    return np.stack(found)
