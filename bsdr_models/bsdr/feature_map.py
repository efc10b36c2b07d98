"""Whitened features, whose loadings are standard normal a priori.

They are linear in the features (:class:`~bsdr_models.learned_metric.metric.Metric`), or those of a
kernel (:class:`~bsdr_models.bsdr.kernels.KernelMap`). Several views have maps of their own
(:mod:`bsdr_models.bsdr.views`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import gen_batches

from bsdr_models.data.training import Fold, Training
from bsdr_models.learned_metric.metric import Metric, MetricName
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from bsdr_models.bsdr.kernels import Kernel, KernelMap
    from bsdr_models.bsdr.views import Views


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureMap:
    """Whitened features of one view; its subclass has several, each with its own scale."""

    maps: "tuple[Metric | KernelMap, ...]"
    names: tuple[str, ...] = ("",)

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
        own = self.maps[0]
        return (own if isinstance(own, Metric) else own.metric).shares

    @property
    def index(self) -> IntArray | None:
        """View of each whitened feature, (B,); None for one view."""
        return None

    @property
    def effects(self) -> FloatArray:
        """Of the features in the whitened ones, (D, B)."""
        return self.maps[0].effects

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of scaled samples, conditional means of missing views."""
        return self.maps[0].whiten(X)

    def blocks(
        self, X: FloatArray, size: int
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray | None]]:
        """At most ``size`` samples with the same views, and their whitened features (M, B).

        Also residuals (N, B) of the features that they lack, those of the training samples, each
        left out; None for complete samples.
        """
        every = np.arange(len(X))
        for block in gen_batches(len(X), size):
            yield every[block], self.whiten(X[block]), None

    def outside_sd(self, X: FloatArray) -> FloatArray:
        """Prior sd of what each view does not determine, (M, V); 0 for views without values."""
        return self.maps[0].outside_sd(X)[:, None]

    def loadings(
        self, inside: FloatArray, outside: FloatArray, view_scale: FloatArray | None
    ) -> FloatArray:
        """Projection of features (S, R, D) from normals (S, R, B) and, outside, (S, R, D).

        For a kernel, its linear effects.
        """
        found: FloatArray = inside @ self.effects.T
        own = self.maps[0]
        return found + own.outside_loadings(outside) if isinstance(own, Metric) else found

    def shares(
        self, projection: FloatArray, weights: FloatArray, whitened: FloatArray
    ) -> FloatArray:
        """Share of each view in the sum of variances of their parts of eta, (S, V).

        From draws of the projection (S, R, B) and weights (S, R, K), and whitened features (N, B).
        """
        return np.ones((len(projection), 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class MapLearner:
    """Whitened features of the training samples, and of those without a fold."""

    training: Training
    kernel: "str | Kernel" = "linear"

    def learn(self, fold: Fold | None = None) -> FeatureMap:
        """The map learned from all samples, or from those that are not in a fold."""
        X = self.training.X
        return FeatureMap(maps=(self._map(self._known(fold), X, self.training.metric(fold)),))

    def _known(self, fold: Fold | None) -> BoolArray:
        """Samples that are not in a fold, (N,)."""
        n = len(self.training.X)
        return np.ones(n, bool) if fold is None else ~self.training.out(fold)

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
    views: "Views | None" = None,
) -> MapLearner:
    """The learner of one view, with the metric of the samples, or of several."""
    if views is None or len(views) == 1:
        return MapLearner(training=training, kernel=kernel)
    from bsdr_models.bsdr.views import ViewLearner

    return ViewLearner.of(training, metric=metric, kernel=kernel, views=views)


def learn_map(
    X: FloatArray,
    classes: IntArray | None = None,
    *,
    metric: MetricName = "auto",
    kernel: "str | Kernel" = "linear",
    views: "Views | None" = None,
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
