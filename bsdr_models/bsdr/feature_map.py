r"""Whitened features, whose loadings are standard normal a priori.

The latent coordinates are :math:`z = \sum_v \lambda_v P_v^\top \phi_v(x_v)`, with whitened features
:math:`\phi_v` of view v, linear (:class:`~bsdr_models.learned_metric.metric.Metric`) or of a kernel
(:class:`~bsdr_models.bsdr.kernels.KernelMap`), and its relative scale :math:`\lambda_v`, so that
each matters alike however many features it has. Views are groups of features, each with a metric of
its own; one of all features has no relative scale.

If every training sample has exactly one view, views are instruments that measure the same classes,
each with its own projection to one latent space (Gönen 2013, Section V). A constant feature of each
view then allows for another mean.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils import gen_batches

from bsdr_models.bsdr.kernels import Kernel, KernelMap, as_kernel
from bsdr_models.bsdr.views import Views, lacking_views
from bsdr_models.data.training import Training
from bsdr_models.learned_metric.metric import ClassBasis, Metric, MetricName
from bsdr_models.learned_metric.weights import MetricWeights
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray

# Penalties of the regression of a view on others, relative to the largest singular value squared.
_PENALTIES = np.logspace(-6.0, 2.0, 25)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMap:
    """Whitened features of one view or several, each with its own scale.

    A new sample that lacks a view has the normal distribution of its whitened features given those
    of its other views: a ridge regression on the training samples, whose penalty minimises the
    squared leave-one-out residuals, and the second moments of these residuals as covariance.
    """

    names: tuple[str, ...]
    columns: tuple[IntArray, ...]  # features of each view
    maps: tuple[Metric | KernelMap, ...]
    exclusive: bool = False  # whether every sample has exactly one view
    training: FloatArray  # whitened (N, B), if samples may lack views

    @property
    def n_views(self) -> int:
        """Number of views, V."""
        return len(self.maps)

    @property
    def metric(self) -> Metric | None:
        """The map, if it is linear in all features."""
        return self.maps[0] if self.n_views == 1 and isinstance(self.maps[0], Metric) else None

    @property
    def metric_weights(self) -> Mapping[str, object]:
        """Weights of the candidates of the metric by name, for several views by view and name."""
        metrics = {
            name: own if isinstance(own, Metric) else own.metric
            for name, own in zip(self.names, self.maps, strict=True)
        }
        shares = {name: metric.shares for name, metric in metrics.items()}
        return shares if self.n_views > 1 else shares[self.names[0]]

    @property
    def index(self) -> IntArray | None:
        """View of each whitened feature, (B,); None for one view."""
        return None if self.n_views == 1 else np.repeat(np.arange(self.n_views), self._widths)

    @property
    def is_linear(self) -> bool:
        """Whether latent coordinates are linear in the features of complete samples."""
        return not self.exclusive and all(isinstance(each, Metric) for each in self.maps)

    @property
    def effects(self) -> FloatArray:
        """Of the features in those of all maps, (D, B)."""
        n_features = 1 + max(int(columns.max()) for columns in self.columns)
        out = np.zeros((n_features, sum(self._widths)))
        for own, columns, place in zip(self.maps, self.columns, self._places, strict=True):
            out[columns, place] = own.effects
        return out

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of scaled samples, conditional means of missing views."""
        out = np.empty((len(X), sum(self._widths)))
        for samples, whitened, _ in self.blocks(X, len(X)):
            out[samples] = whitened
        return out

    def blocks(
        self, X: FloatArray, size: int
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray | None]]:
        """At most ``size`` samples with the same views, and their whitened features (M, B).

        Also residuals (N, B) of the features that they lack, those of the training samples, each
        left out; None for complete samples.
        """
        lacking = lacking_views(X, self.columns) & (not self.exclusive)
        for pattern in np.unique(lacking, axis=0):
            missing = np.repeat(pattern, self._widths)
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
        """Projection of features (S, R, D) from normals (S, R, B) and, outside, (S, R, D).

        For a kernel, its linear effects.
        """
        out: FloatArray = inside @ self.effects.T
        for v, (own, columns) in enumerate(zip(self.maps, self.columns, strict=True)):
            if isinstance(own, Metric):
                scale = 1.0 if view_scale is None else view_scale[:, v, None, None]
                out[..., columns] += scale * own.outside_loadings(outside[..., columns])
        return out

    def shares(
        self, projection: FloatArray, weights: FloatArray, whitened: FloatArray
    ) -> FloatArray:
        """Share of each view in the sum of variances of their parts of eta, (S, V).

        From draws of the projection (S, R, B) and weights (S, R, K), and whitened features (N, B).
        """
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

    @property
    def _widths(self) -> list[int]:
        """Number of whitened features of each view, with the constant of exclusive ones."""
        return [own.width + self.exclusive for own in self.maps]

    @property
    def _places(self) -> list[slice]:
        """Whitened features of each view, without the constant, which is the next one."""
        starts = np.cumsum([0, *self._widths]).tolist()
        return [slice(i, i + own.width) for i, own in zip(starts, self.maps, strict=False)]

    def _parts(self, X: FloatArray) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Number of each view, samples that have it, and their features."""
        for v, absent in enumerate(lacking_views(X, self.columns).T):
            present = np.flatnonzero(~absent)
            if present.size:
                yield v, present, X[np.ix_(present, self.columns[v])]

    def _whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B), zero of missing views."""
        out = np.zeros((len(X), sum(self._widths)))
        for v, present, part in self._parts(X):
            place = self._places[v]
            out[present, place] = self.maps[v].whiten(part)
            if self.exclusive:
                out[present, place.stop] = 1.0
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
class MapLearner:
    """Whitened features of the training samples, and of those without a fold.

    Folds are those of the first division of the samples, which may lack views (NaN).
    """

    training: Training
    kernel: str | Kernel
    views: tuple[tuple[str, IntArray], ...]  # names and features
    # For each of several views, of its metrics; None of one view, which has those of the samples.
    weights: tuple[MetricWeights, ...] | None

    @classmethod
    def of(
        cls,
        training: Training,
        *,
        metric: MetricName = "auto",
        kernel: str | Kernel = "linear",
        views: Views | None = None,
    ) -> "MapLearner":
        """With weights of the metric of each view from the samples that have it."""
        X = training.X
        if views is None:
            every = (("", np.arange(X.shape[1])),)
            return cls(training=training, kernel=kernel, views=every, weights=None)
        order = np.argsort(training.keys)
        lacking = lacking_views(X, [columns for _, columns in views])
        weights = []
        for (_, columns), absent in zip(views, lacking.T, strict=True):
            own = order[~absent[order]]
            weights.append(
                MetricWeights.choose(
                    metric,
                    X[np.ix_(own, columns)],
                    None if training.classes is None else training.classes[own],
                    training.units[columns],
                    [training.divisions[0][own]],
                    n_folds=training.n_folds,
                    share=training.share,
                )
            )
        return cls(training=training, kernel=kernel, views=tuple(views), weights=tuple(weights))

    def learn(self, fold: int | None = None) -> FeatureMap:
        """The map learned from all samples, or from those that are not in a fold."""
        training = self.training
        X = training.X
        kernel = as_kernel(self.kernel)
        n = len(X)
        train = np.ones(n, bool) if fold is None else ~training.out((0, fold))
        names, all_columns = zip(*self.views, strict=True)
        lacking = lacking_views(X, all_columns)
        maps: list[Metric | KernelMap] = []
        for view, (columns, absent) in enumerate(zip(all_columns, lacking.T, strict=True)):
            own = train & ~absent
            if not own.any():  # all samples of an instrument are in one fold
                own = ~absent
            part = X[np.ix_(own, columns)]
            metric = self._metric(view, own, part, fold)
            linear = kernel.name == "linear"
            maps.append(metric if linear else KernelMap.learn(part, kernel, metric))
        learned = FeatureMap(
            names=names,
            columns=all_columns,
            maps=tuple(maps),
            exclusive=bool(lacking.any()),
            training=np.empty((0, 0)),
        )
        if learned.exclusive or len(maps) == 1:
            return learned
        return replace(learned, training=learned.whiten(X[train]))

    def _metric(self, view: int, own: BoolArray, part: FloatArray, fold: int | None) -> Metric:
        """Metric of a view, from samples ``own`` (N,) and their features (M, D)."""
        training = self.training
        if self.weights is None:
            return training.metric(None if fold is None else (0, fold))
        weights = self.weights[view]
        row = weights.every if fold is None else weights.without[0][fold]
        classes = ClassBasis.one(len(part))
        if training.classes is not None:
            classes = ClassBasis.of(training.classes[own], training.share)
        columns = self.views[view][1]
        return Metric.learn(part, classes, row, training.units[columns], centred=True)


def learn_map(
    X: FloatArray,
    classes: IntArray | None = None,
    *,
    metric: MetricName = "auto",
    kernel: str | Kernel = "linear",
    views: Views | None = None,
) -> FeatureMap:
    """The map of samples (N, D) alone, for declared models."""
    training = Training.of(
        X,
        classes,
        0 if classes is None else int(classes.max()) + 1,
        np.ones(X.shape[1]),
        metric=metric,
        rng=np.random.default_rng(0),
    )
    return MapLearner.of(training, metric=metric, kernel=kernel, views=views).learn()
