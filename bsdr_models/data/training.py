"""Training samples as every model gets them, with what is held out and the metric.

A fit draws several divisions of the samples into folds. Weights of the metric, temperatures and
other choices are averages over the divisions. Within :func:`shared_training`, as in a stack, models
of the same samples share one object, and with it the divisions and the metrics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

import joblib
import numpy as np
from scipy.sparse import issparse

from bsdr_models.data.replicates import effective_share
from bsdr_models.learned_metric.metric import ClassBasis, Metric, MetricName
from bsdr_models.learned_metric.weights import MetricWeights
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray, Rows
from bsdr_models.numerics.folds import (
    find_copies,
    find_strata,
    make_folds,
    random_keys,
    stratified_subset,
)
from bsdr_models.numerics.scaling import as_dense

# A fit has as many divisions as together hold about so many samples out, within these limits: what
# one division decides differs from what another one does most with few samples.
HELD_OUT = 200
MOST_DIVISIONS = 2
# Numbers of samples whose divisions would take long.
LARGE = 2**18

# A fold: the number of its division, and its own number in it.
type Fold = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Scaled samples (N, D), complete or sparse, their classes, divisions into folds, and metric.

    Classes are (N,), or 0 and 1 of each label, (N, T); -1 if unknown; None for real outputs.
    ``groups`` (N,) are held out together: those of the user, or copies of a sample. The effective
    number of samples is a ``share`` of the sum of their weights, at most the number of samples, as
    a copy of a sample is no further evidence: only the ratios of the weights count.
    """

    X: Rows
    classes: IntArray | None
    n_classes: int  # classes, labels or outputs
    units: FloatArray  # (D,)
    keys: IntArray  # random permutation, (N,)
    divisions: tuple[IntArray, ...]  # fold of each sample, (N,), -1 if it is never held out
    weights: MetricWeights
    singly: IntArray | None  # a division without regard to groups of the user; None without these
    groups: IntArray | None = None
    share: float = 1.0
    sample_weight: FloatArray | None = None  # weights of the samples, (N,), if any are given
    kept: IntArray | slice = slice(None)  # positions of the samples, if they are some of others
    _metrics: dict[Fold | None, Metric] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        X: Rows,
        classes: IntArray | None,
        n_classes: int,
        units: FloatArray,
        *,
        metric: MetricName | None,
        rng: np.random.Generator,
        groups: IntArray | None = None,
        sample_weight: FloatArray | None = None,
    ) -> "Training":
        """Draw divisions, and choose weights of a metric unless it is None; or those shared."""
        store = _shared.get()
        key = None
        if store is not None:
            own = (metric, X, classes, units, groups, sample_weight)
            key = joblib.hash(own, hash_name="sha1")
            if key in store.found:
                return store.found[key]
            rng = np.random.default_rng(store.seed)
        copies = find_copies(X)
        given = groups is not None
        groups = groups if given else copies
        known = np.ones(X.shape[0], dtype=np.bool_) if classes is None else known_samples(classes)
        n_divisions = int(np.clip(round(HELD_OUT / max(known.sum(), 1)), 1, MOST_DIVISIONS))
        if np.prod(X.shape) > LARGE:
            n_divisions = 1
        keys = [random_keys(X, classes, rng) for _ in range(n_divisions)]
        divisions = tuple(make_folds(own, classes, groups) for own in keys)
        share = 1.0
        if classes is not None and groups is not None and not issparse(X):
            share = effective_share(np.nan_to_num(X[known]), classes[known], groups[known])
        if sample_weight is not None:
            share *= len(sample_weight) / float(sample_weight.sum())
        training = cls(
            X=X,
            classes=classes,
            n_classes=n_classes,
            units=units,
            keys=keys[0],
            divisions=divisions,
            weights=MetricWeights(every=np.empty(0)),
            singly=make_folds(keys[0], classes, copies) if given else None,
            groups=groups,
            share=share,
            sample_weight=sample_weight,
        )
        if metric is not None:
            training = replace(training, weights=training.weigh(metric))
        if store is not None:
            store.found[key] = training
        return training

    def weigh(self, metric: MetricName) -> MetricWeights:
        """Weights of the candidates of a metric of the samples."""
        order = np.argsort(self.keys)
        order = order[self.known[order]]
        return MetricWeights.choose(
            metric,
            as_dense(self.X[order]),
            None if self.classes is None else self.classes[order],
            self.units,
            [fold[order] for fold in self.divisions],
            share=self.share,
            sample_weight=None if self.sample_weight is None else self.sample_weight[order],
        )

    def of_features(self, columns: IntArray, metric: MetricName) -> "Training":
        """With some of the features, in a metric of their own."""
        part = replace(self, X=self.X[:, columns], units=self.units[columns], _metrics={})
        return replace(part, weights=part.weigh(metric))

    def limited(self, most: int) -> "Training":
        """With so many of the labelled samples at most, the same share of every class.

        Their metrics are of their own.
        """
        order = np.argsort(self.keys)
        order = order[self.known[order]]
        if self.classes is None or len(order) <= most:
            return self
        strata = find_strata(self.classes[order])
        kept = np.append(order[stratified_subset(strata, most)], np.flatnonzero(~self.known))
        kept.sort()
        of_each = ("X", "classes", "keys", "singly", "groups", "sample_weight")
        given = {name: getattr(self, name) for name in of_each}
        parts = {name: values[kept] for name, values in given.items() if values is not None}
        divisions = tuple(fold[kept] for fold in self.divisions)
        return replace(self, **parts, divisions=divisions, kept=kept, _metrics={})

    @property
    def known(self) -> BoolArray:
        """Samples of which a class or a label is known, (N,)."""
        if self.classes is None:
            return np.ones(len(self.keys), dtype=np.bool_)
        return known_samples(self.classes)

    @property
    def counts(self) -> FloatArray:
        """Weights of the samples, (N,), ones if none are given."""
        return np.ones(len(self.keys)) if self.sample_weight is None else self.sample_weight

    @property
    def n_folds(self) -> int:
        """Folds of the first division."""
        return int(self.divisions[0].max(initial=-1)) + 1

    def folds(self, most: float = np.inf) -> list[Fold]:
        """Folds that are held out, of each division as many as give so many labelled samples."""
        found = []
        for division, fold in enumerate(self.divisions):
            before = 0
            for number, size in enumerate(np.bincount(fold[fold >= 0])):
                if size and before < most:
                    found.append((division, number))
                before += int(size)
        return found

    def out(self, fold: Fold) -> BoolArray:
        """Samples of a fold, (N,)."""
        division, number = fold
        return self.divisions[division] == number

    def metric_weights(self, fold: Fold | None = None) -> FloatArray:
        """Weights of the candidates of the metric from all samples, or without a fold, (J,)."""
        if fold is None or not self.weights.divisions:
            return self.weights.every
        division, number = fold
        return self.weights.without[division][number]

    def metric(self, fold: Fold | None = None) -> Metric:
        """The metric of all labelled samples, or of those that are not in a fold.

        Its axes are those of all samples, or of all that are not in the fold.
        """
        if fold in self._metrics:
            return self._metrics[fold]
        rest = np.ones(len(self.keys), dtype=np.bool_) if fold is None else ~self.out(fold)
        found = self.learn_metric(rest, self.metric_weights(fold))
        if _shared.get() is not None:
            self._metrics[fold] = found
        return found

    def learn_metric(self, rest: BoolArray, weights: FloatArray | None = None) -> Metric:
        """The metric of some of the samples, (N,), by default with the weights of all."""
        known = rest & self.known
        own = None if self.sample_weight is None else self.sample_weight[known]
        basis = ClassBasis.one(int(known.sum()), own)
        if self.classes is not None:
            basis = ClassBasis.of(self.classes[known], self.share, own)
        every = None if known.sum() == rest.sum() else as_dense(self.X[rest])
        weights = self.weights.every if weights is None else weights
        return Metric.learn(as_dense(self.X[known]), basis, weights, self.units, every=every)


def known_samples(classes: IntArray) -> BoolArray:
    """Samples of which a class (N,), or one of the labels (N, T), is known, (N,)."""
    return np.asarray((classes >= 0).reshape(len(classes), -1).any(axis=1))


# Sharing


@dataclass(frozen=True, slots=True)
class _Store:
    """Seed of the divisions, and training samples by their contents."""

    seed: int
    found: dict[str | None, Training] = field(default_factory=dict)


_shared: ContextVar[_Store | None] = ContextVar("shared", default=None)


@contextmanager
def shared_training(seed: int) -> Iterator[None]:
    """Context in which fits to the same samples share divisions, drawn by a seed, and metrics.

    Within another such context nothing changes.
    """
    if _shared.get() is not None:
        yield
        return
    token = _shared.set(_Store(seed))
    try:
        yield
    finally:
        _shared.reset(token)


def is_shared() -> bool:
    """Whether fits share their training samples."""
    return _shared.get() is not None
