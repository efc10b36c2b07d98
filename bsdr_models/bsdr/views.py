r"""Views: groups of features, each with a map and a scale of its own.

The latent coordinates are :math:`z = \sum_v \lambda_v P_v^\top \phi_v(x_v)`, with whitened features
:math:`\phi_v` of view v and its relative scale :math:`\lambda_v`, so that each matters alike
however many features it has. New samples may lack views.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import gen_batches

from bsdr_models.bsdr.feature_map import FeatureMap, MapLearner
from bsdr_models.data.training import Fold, Training
from bsdr_models.learned_metric.metric import ClassBasis, Metric, MetricName
from bsdr_models.learned_metric.weights import MetricWeights
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from bsdr_models.bsdr.kernels import Kernel

# Penalties of the regression of a view on others, relative to the largest singular value squared.
_PENALTIES = np.logspace(-6.0, 2.0, 25)
# Names and features of views.
type Views = Sequence[tuple[str, IntArray]]


def lacking_views(X: FloatArray, columns: Sequence[IntArray]) -> BoolArray:
    """Which views each sample has no values of, (N, V)."""
    return np.stack([np.isnan(X[:, own]).all(axis=1) for own in columns], axis=1)


def check_views(X: FloatArray, views: Views) -> None:
    """Raise ValueError unless new samples (M, D) have one whole view or several."""
    lacking = lacking_views(X, [columns for _, columns in views])
    for (name, columns), absent in zip(views, lacking.T, strict=True):
        partial = np.isnan(X[:, columns]).any(axis=1) & ~absent
        if partial.any():
            raise ValueError(
                f"sample {int(partial.argmax())} has NaN in some features of view {name!r}: only "
                "whole views may be missing; BM2PCAClassifier takes any missing values"
            )
    if (none := lacking.all(axis=1)).any():
        raise ValueError(f"sample {int(none.argmax())} has no view: all its values are NaN")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewMap(FeatureMap):
    """Whitened features of several views, each with its own scale.

    A new sample that lacks a view has the normal distribution of its whitened features given those
    of its other views: a ridge regression on the training samples, whose penalty minimises the
    squared leave-one-out residuals, and the second moments of these residuals as covariance.
    """

    columns: tuple[IntArray, ...]  # features of each view
    training: FloatArray  # whitened (N, B)

    @property
    def metric_weights(self) -> Mapping[str, object]:
        """Weights of the candidates of the metric by view and name."""
        return {
            name: (own if isinstance(own, Metric) else own.metric).shares
            for name, own in zip(self.names, self.maps, strict=True)
        }

    @property
    def index(self) -> IntArray:
        """View of each whitened feature, (B,)."""
        return np.repeat(np.arange(self.n_views), [own.width for own in self.maps])

    @property
    def effects(self) -> FloatArray:
        """Of the features in those of all maps, (D, B)."""
        n_features = 1 + max(int(columns.max()) for columns in self.columns)
        out = np.zeros((n_features, len(self.index)))
        for v, (own, columns) in enumerate(zip(self.maps, self.columns, strict=True)):
            out[np.ix_(columns, self.index == v)] = own.effects
        return out

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of scaled samples, conditional means of missing views."""
        out = np.empty((len(X), len(self.index)))
        for samples, whitened, _ in self.blocks(X, len(X)):
            out[samples] = whitened
        return out

    def blocks(
        self, X: FloatArray, size: int
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray | None]]:
        """As of :class:`FeatureMap`."""
        lacking = lacking_views(X, self.columns)
        for pattern in np.unique(lacking, axis=0):
            missing = pattern[self.index]
            residuals = None
            if missing.any():
                coefficients, left_out = self._regress(~missing)
                residuals = np.zeros_like(self.training)
                residuals[:, missing] = left_out
            samples = np.flatnonzero((lacking == pattern).all(axis=1))
            for block in gen_batches(len(samples), size):
                whitened = self._whiten(X[samples[block]])
                if missing.any():
                    whitened[:, missing] = whitened[:, ~missing] @ coefficients
                yield samples[block], whitened, residuals

    def outside_sd(self, X: FloatArray) -> FloatArray:
        """Prior sd of what each view does not determine, (M, V); 0 for views without values."""
        out = np.zeros((len(X), self.n_views))
        for v, present, part in self._parts(X):
            out[present, v] = self.maps[v].outside_sd(part)
        return out

    def loadings(
        self, inside: FloatArray, outside: FloatArray, view_scale: FloatArray | None
    ) -> FloatArray:
        """As of :class:`FeatureMap`, with the scales of views (S, V)."""
        assert view_scale is not None
        out: FloatArray = inside @ self.effects.T
        for v, (own, columns) in enumerate(zip(self.maps, self.columns, strict=True)):
            if isinstance(own, Metric):
                scale = view_scale[:, v, None, None]
                out[..., columns] += scale * own.outside_loadings(outside[..., columns])
        return out

    def shares(
        self, projection: FloatArray, weights: FloatArray, whitened: FloatArray
    ) -> FloatArray:
        """As of :class:`FeatureMap`."""
        parts = []
        for v in range(self.n_views):
            own = self.index == v
            factor = np.linalg.qr(whitened[:, own] - whitened[:, own].mean(axis=0), mode="r")
            effect = np.swapaxes(projection[..., own] @ factor.T, 1, 2) @ weights
            parts.append(np.sum(effect**2, axis=(1, 2)))
        variance = np.stack(parts, axis=1)
        total = variance.sum(axis=1, keepdims=True)
        return np.divide(
            variance, total, out=np.full_like(variance, 1 / len(parts)), where=total > 0
        )

    def _parts(self, X: FloatArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Number of each view, samples that have it, and their features."""
        for v, absent in enumerate(lacking_views(X, self.columns).T):
            present = np.flatnonzero(~absent)
            if present.size:
                yield v, present, X[np.ix_(present, self.columns[v])]

    def _whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B), zero of missing views."""
        out = np.zeros((len(X), len(self.index)))
        for v, present, part in self._parts(X):
            out[np.ix_(present, self.index == v)] = self.maps[v].whiten(part)
        return out

    def _regress(self, known: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Ridge regression on some whitened features: coefficients, and leave-one-out residuals."""
        from sklearn.linear_model import RidgeCV  # takes .2 s to load

        given = self.training[:, known]
        wanted = self.training[:, ~known]
        penalties = _PENALTIES * np.linalg.norm(given, 2) ** 2
        # With a score it keeps the left-out predictions of every penalty.
        ridge = RidgeCV(penalties, scoring="neg_mean_squared_error", store_cv_results=True)
        ridge.fit(given, wanted)
        best = int(np.flatnonzero(penalties == ridge.alpha_)[0])
        return ridge.coef_.T, wanted - ridge.cv_results_[..., best]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewLearner(MapLearner):
    """Maps of several views, each with weights of its metric."""

    views: Views
    weights: tuple[MetricWeights, ...]

    @classmethod
    def of(
        cls, training: Training, *, metric: MetricName, kernel: "str | Kernel", views: Views
    ) -> "ViewLearner":
        """With weights of the metric of each view."""
        order = np.argsort(training.keys)
        weights = [
            MetricWeights.choose(
                metric,
                training.X[np.ix_(order, columns)],
                None if training.classes is None else training.classes[order],
                training.units[columns],
                [own[order] for own in training.divisions],
                n_folds=training.n_folds,
                share=training.share,
            )
            for _, columns in views
        ]
        return cls(training=training, kernel=kernel, views=views, weights=tuple(weights))

    def learn(self, fold: Fold | None = None) -> FeatureMap:
        """The maps learned from all samples, or from those that are not in a fold."""
        training = self.training
        known = self._known(fold)
        classes = ClassBasis.one(int(known.sum()))
        if training.classes is not None:
            classes = ClassBasis.of(training.classes[known], training.share)
        maps = []
        for (_, columns), weights in zip(self.views, self.weights, strict=True):
            row = weights.every if fold is None else weights.without[fold[0]][fold[1]]
            X = training.X[:, columns]
            metric = Metric.learn(X[known], classes, row, training.units[columns], centred=True)
            maps.append(self._map(known, X, metric))
        names, places = zip(*self.views, strict=True)
        learned = ViewMap(maps=tuple(maps), names=names, columns=places, training=np.empty((0, 0)))
        return replace(learned, training=learned.whiten(training.X[known]))
