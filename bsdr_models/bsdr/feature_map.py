r"""Whitened features, whose loadings are standard normal a priori.

They are linear in the features (:class:`~bsdr_models.learned_metric.metric.Metric`), or those of a
kernel (:class:`~bsdr_models.bsdr.kernels.KernelMap`). Views, groups of features, have maps and
scales of their own: the latent coordinates are :math:`z = \sum_v \lambda_v P_v^\top \phi_v(x_v)`,
with whitened features :math:`\phi_v` of view v and its relative scale :math:`\lambda_v`, so that
each matters alike however many features it has. New samples may lack views.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import gen_batches

from bsdr_models.data.training import Fold, Training
from bsdr_models.learned_metric.metric import Metric, MetricName
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from bsdr_models.bsdr.kernels import Kernel, KernelMap

# Penalties of the regression of a view on others, relative to the largest singular value squared.
_PENALTIES = np.logspace(-6.0, 2.0, 25)
# Positions of the features of a view, or a slice.
type Columns = Any
# Names and features of views.
type Views = Sequence[tuple[str, Columns]]
# All features.
ONE_VIEW: Views = [("", slice(None))]


def lacking_views(X: FloatArray, columns: Sequence[Columns]) -> BoolArray:
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
class FeatureMap:
    """Whitened features of one view, or of several, each with its own scale.

    A new sample that lacks a view has the normal distribution of its whitened features given those
    of its other views: a ridge regression on the training samples, whose penalty minimises the
    squared leave-one-out residuals, and the second moments of these residuals as covariance.
    """

    maps: "tuple[Metric | KernelMap, ...]"
    names: tuple[str, ...] = ("",)
    columns: tuple[Columns, ...] = (slice(None),)  # features of each view
    training: FloatArray | None = None  # whitened (N, B), if there are several views

    @property
    def n_views(self) -> int:
        """Number of views, V."""
        return len(self.maps)

    @property
    def is_linear(self) -> bool:
        """Whether latent coordinates are linear in the features of complete samples."""
        return all(isinstance(each, Metric) for each in self.maps)

    @property
    def metric(self) -> Metric | None:
        """The map, if it is linear in all features."""
        return self.maps[0] if self.n_views == 1 and isinstance(self.maps[0], Metric) else None

    @property
    def metric_weights(self) -> Mapping[str, object]:
        """Weights of the candidates of the metric by name, for several views by view and name."""
        metrics = [own if isinstance(own, Metric) else own.metric for own in self.maps]
        shares = [metric.shares for metric in metrics]
        return dict(zip(self.names, shares, strict=True)) if len(shares) > 1 else shares[0]

    @property
    def _place(self) -> IntArray:
        """View of each whitened feature, (B,)."""
        return np.repeat(np.arange(self.n_views), [own.width for own in self.maps])

    @property
    def index(self) -> IntArray | None:
        """View of each whitened feature, (B,); None for one view."""
        return self._place if self.n_views > 1 else None

    @property
    def effects(self) -> FloatArray:
        """Of the features in the whitened ones, (D, B)."""
        if self.n_views == 1:
            return self.maps[0].effects
        n_features = 1 + max(int(columns.max()) for columns in self.columns)
        out = np.zeros((n_features, len(self._place)))
        for v, (own, columns) in enumerate(zip(self.maps, self.columns, strict=True)):
            out[np.ix_(columns, self._place == v)] = own.effects
        return out

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of scaled samples, conditional means of missing views."""
        if self.n_views == 1:  # without copies
            return self.maps[0].whiten(X)
        out = np.empty((len(X), len(self._place)))
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
        if self.n_views == 1:  # without copies
            every = np.arange(len(X))
            for block in gen_batches(len(X), size):
                yield every[block], self.maps[0].whiten(X[block]), None
            return
        lacking = lacking_views(X, self.columns)
        for pattern in np.unique(lacking, axis=0) if lacking.any() else lacking[:1]:
            missing = pattern[self._place]
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

        Also from the scales of several views (S, V). For a kernel, its linear effects.
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
            own = self._place == v
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
            part = X[:, self.columns[v]]
            if present.size:
                yield v, present, part[present] if absent.any() else part

    def _whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B), zero of missing views."""
        out = np.zeros((len(X), len(self._place)))
        for v, present, part in self._parts(X):
            out[np.ix_(present, self._place == v)] = self.maps[v].whiten(part)
        return out

    def _regress(self, known: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Ridge regression on some whitened features: coefficients, and leave-one-out residuals."""
        from sklearn.linear_model import RidgeCV  # takes .2 s to load

        assert self.training is not None
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
    """Whitened features of the training samples, and of those without a fold."""

    training: Training
    kernel: "str | Kernel" = "linear"
    views: Views
    parts: tuple[Training, ...]  # the features of each view

    def learn(self, fold: Fold | None = None) -> FeatureMap:
        """The map learned from all samples, or from those that are not in a fold."""
        X = self.training.X
        known = np.ones(len(X), bool) if fold is None else ~self.training.out(fold)
        names, columns = zip(*self.views, strict=True)
        if len(names) == 1:
            return FeatureMap(maps=(self._map(known, X, self.training.metric(fold)),))
        maps = []
        for part in self.parts:
            metric = replace(part.metric(fold), mean=np.zeros(part.X.shape[1]))  # centred already
            maps.append(self._map(known, part.X, metric))
        learned = FeatureMap(maps=tuple(maps), names=names, columns=columns)
        return replace(learned, training=learned.whiten(X[known]))

    def _map(self, samples: BoolArray, X: FloatArray, metric: Metric) -> "Metric | KernelMap":
        """The metric of some samples (N,) of X (N, D), or the kernel in it."""
        if self.kernel == "linear" or getattr(self.kernel, "name", "") == "linear":
            return metric
        from bsdr_models.bsdr.kernels import KernelMap, as_kernel

        return KernelMap.learn(X[samples], as_kernel(self.kernel), metric)


def make_learner(
    training: Training,
    *,
    metric: MetricName = "auto",
    kernel: "str | Kernel" = "linear",
    views: Views | None = None,
) -> MapLearner:
    """The learner of one view, with the metric of the samples, or of several."""
    parts: tuple[Training, ...] = ()
    if views is None or len(views) == 1:
        views = ONE_VIEW
    else:
        parts = tuple(training.of_features(columns, metric) for _, columns in views)
    return MapLearner(training=training, kernel=kernel, views=views, parts=parts)


def learn_map(
    X: FloatArray,
    classes: IntArray | None = None,
    *,
    metric: MetricName = "auto",
    kernel: "str | Kernel" = "linear",
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
    return make_learner(training, metric=metric, kernel=kernel, views=views).learn()
