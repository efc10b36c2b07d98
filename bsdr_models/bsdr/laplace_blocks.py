"""Laplace's method of the hierarchical model for samples in blocks and streams.

Every evaluation of the posterior density is one sum over samples, which may be on disk or on the
workers of a cluster (:func:`fit_blocks`), or arrive in batches (:class:`Stream`). A subsample is
kept in memory, for the coordinates of the latent space, trees and plots.
"""

import os
import warnings
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bsdr import hierarchical
from bsdr_models.bsdr.hierarchical import N_LAPLACE, HierarchicalFit
from bsdr_models.bsdr.laplace import (
    Laplace,
    Normal,
    Prepared,
    check_size,
    fit_laplace_blocks,
    prepare,
)
from bsdr_models.bsdr.populations import evidence_without_features
from bsdr_models.bsdr.posterior import Metric, Problem
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.checks import check_variation
from bsdr_models.inference.sample_blocks import Block, InProcess, SampleBlocks
from bsdr_models.numerics.scaling import Scaler

# Samples of one update of a stream, and of the subsample.
CHUNK = N_SUBSAMPLE = 2000
# Chunks that the first update may take, to have samples of every class.
_LONGEST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Settings of a fit.

    n_components
        R; at most K - 1 are used.
    power
        Power of pooling.
    """

    n_labels: int
    n_components: int
    priors: HierarchicalPriors
    power: float = 1.0
    n_draws: int = N_LAPLACE

    def check(self, n_features: int) -> None:
        """Raise a ValueError for too many features."""
        check_size(n_features, min(self.n_components, self.n_labels - 1))

    def prepare(self, blocks: SampleBlocks, scaler: Scaler) -> Prepared:
        """Read all samples once."""
        return prepare(
            blocks, scaler, n_labels=self.n_labels, target="multiclass", priors=self.priors
        )

    def width(self, metric: Metric) -> int:
        """Number of components that are used."""
        return min(self.n_components, self.n_labels - 1, len(metric.size))

    def problem(self, metric: Metric, X: FloatArray, y: IntArray) -> Problem:
        """The problem of some scaled samples (M, D)."""
        return Problem.build(
            metric.whiten(X),
            y,
            n_labels=self.n_labels,
            n_components=self.width(metric),
            target="multiclass",
            priors=self.priors,
        )

    def evidence_without_features(self, counts: IntArray, rng: np.random.Generator) -> float:
        """Log evidence of the class frequencies alone."""
        y = np.repeat(np.arange(self.n_labels), counts)
        return evidence_without_features(y, self.n_labels, "multiclass", self.priors, rng=rng)


def fit_blocks(
    blocks: SampleBlocks,
    scaler: Scaler,
    subsample: tuple[FloatArray, IntArray],
    counts: IntArray,
    model: Model,
    *,
    rng: np.random.Generator,
    checkpoint: str | os.PathLike[str] | None = None,
    progressbar: bool = False,
) -> HierarchicalFit:
    """Laplace's method on samples in blocks.

    Parameters
    ----------
    blocks : SampleBlocks
        With class indices as targets.
    subsample : (M, D), (M,)
        Scaled samples and their class indices.
    counts : (K,)
        Samples of each class.
    checkpoint : path, optional
        Folder to which the search is written, and from which it resumes.

    Raises
    ------
    ValueError
        If there are too many features, or the checkpoint is of another fit.
    KeyboardInterrupt
        If the user stops the fit before its first evaluation.
    """
    model.check(blocks.n_features)
    draw_rng, empty_rng, outside_rng = rng.spawn(3)
    prepared = model.prepare(blocks, scaler)
    assert prepared.metric is not None
    with hierarchical.search_progress(progressbar) as on_evaluation:
        normal = fit_laplace_blocks(
            blocks,
            prepared,
            n_components=model.width(prepared.metric),
            rng=draw_rng,
            n_draws=model.n_draws,
            checkpoint=checkpoint,
            on_evaluation=on_evaluation,
        )
    return hierarchical.fit_from_laplace(
        normal,
        model.problem(prepared.metric, *subsample),
        prepared.metric,
        power=model.power,
        log_evidence_empty=model.evidence_without_features(counts, empty_rng),
        rng=outside_rng,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Posterior given the samples of a stream that have been processed.

    scaler, prepared
        Of the first update.
    normal
        Posterior, the prior of further samples.
    log_evidence, n_evaluations
        Totals over updates.
    converged
        Whether every update found a mode.
    """

    scaler: Scaler
    prepared: Prepared
    normal: Normal
    log_evidence: float
    n_evaluations: int
    converged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Samples that arrive in batches, each of which is processed once.

    Samples are queued until there are :data:`CHUNK` of them (the first, which give the scales, up
    to five times as many, until every class is present). Laplace's method then updates the
    posterior with them. So the result depends neither on how the stream was cut into batches, nor
    on when it was read.

    standardize
        Whether features are scaled by the standard deviations of the first samples.
    seed
        Of all random numbers.
    counts
        Samples of each class so far, (K,).
    X, y
        Queued samples, unscaled, (M, D), and their class indices.
    subsample_X, subsample_y, subsample_key
        Random subsample of the processed samples: those with the lowest random keys.
    learned
        None before the first update.
    """

    model: Model
    standardize: bool
    seed: int
    counts: IntArray
    X: FloatArray
    y: IntArray
    subsample_X: FloatArray
    subsample_y: IntArray
    subsample_key: FloatArray
    learned: Learned | None = None

    @classmethod
    def begin(cls, model: Model, n_features: int, *, standardize: bool, seed: int) -> Self:
        """Before the first sample."""
        model.check(n_features)
        return cls(
            model=model,
            standardize=standardize,
            seed=seed,
            counts=np.zeros(model.n_labels, dtype=np.int64),
            X=np.empty((0, n_features)),
            y=np.empty(0, dtype=np.int64),
            subsample_X=np.empty((0, n_features)),
            subsample_y=np.empty(0, dtype=np.int64),
            subsample_key=np.empty(0),
        )

    def add(self, X: FloatArray, y: IntArray) -> "Stream":
        """The stream with further samples (M, D) and their class indices."""
        stream = replace(
            self,
            counts=self.counts + np.bincount(y, minlength=self.model.n_labels),
            X=np.concatenate([self.X, X]),
            y=np.concatenate([self.y, y]),
        )
        while size := stream._n_ready():
            stream = stream._learn(size)
        return stream

    def _n_ready(self) -> int:
        """Number of samples of the next update, 0 if too few are queued; some always remain."""
        if self.learned is not None or len(self.X) <= CHUNK:
            return CHUNK if len(self.X) > CHUNK else 0
        for size in range(CHUNK, _LONGEST * CHUNK + 1, CHUNK):
            if len(self.X) <= size:
                return 0
            if len(np.unique(self.y[:size])) == self.model.n_labels:
                return size
        missing = np.flatnonzero(np.bincount(self.y[:size], minlength=self.model.n_labels) == 0)
        warnings.warn(
            f"the first {size} samples have none of {len(missing)} classes, which may be fitted "
            "poorly: shuffle the samples if you can",
            UserWarning,
            stacklevel=4,
        )
        return size

    @property
    def n_samples(self) -> int:
        """Number of samples so far."""
        return int(self.counts.sum())

    def _learn(self, size: int) -> "Stream":
        """Update the posterior with the first queued samples."""
        X, y = self.X[:size], self.y[:size]
        rng = np.random.default_rng([self.seed, self._n_learned])
        learned = self.learned
        if learned is None:
            scaler = Scaler.fit(X, standardize=self.standardize)
            check_variation(scaler)
            prepared = self.model.prepare(InProcess([Block(X=X, y=y, begin=0)]), scaler)
        else:
            scaler, prepared = learned.scaler, learned.prepared
        found = self._search(X, y, prepared, n_draws=N_LAPLACE, rng=rng)
        if found.interrupted:
            raise KeyboardInterrupt("before the posterior was updated with these samples")
        learned = Learned(
            scaler=scaler,
            prepared=prepared,
            normal=found.normal,
            log_evidence=found.log_evidence + (learned.log_evidence if learned else 0.0),
            n_evaluations=found.n_evaluations + (learned.n_evaluations if learned else 0),
            converged=found.converged and (learned is None or learned.converged),
        )
        subsample_X, subsample_y, subsample_key = self._draw_subsample(X, y)
        return replace(
            self,
            X=self.X[size:],
            y=self.y[size:],
            subsample_X=subsample_X,
            subsample_y=subsample_y,
            subsample_key=subsample_key,
            learned=learned,
        )

    @property
    def _n_learned(self) -> int:
        return self.n_samples - len(self.X)

    def _draw_subsample(
        self, X: FloatArray, y: IntArray
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """The subsample after these samples, and its keys."""
        of_chunk = np.random.default_rng([self.seed, self._n_learned, 1]).random(len(X))
        key = np.concatenate([self.subsample_key, of_chunk])
        chosen = np.sort(np.argsort(key)[:N_SUBSAMPLE])
        X, y = np.concatenate([self.subsample_X, X]), np.concatenate([self.subsample_y, y])
        return X[chosen], y[chosen], key[chosen]

    def _search(
        self,
        X: FloatArray,
        y: IntArray,
        prepared: Prepared,
        *,
        n_draws: int,
        rng: np.random.Generator,
    ) -> Laplace:
        """Laplace's method on some samples, with the posterior so far as their prior."""
        assert prepared.metric is not None
        return fit_laplace_blocks(
            InProcess([Block(X=X, y=y, begin=0)]),
            prepared,
            n_components=self.model.width(prepared.metric),
            rng=rng,
            n_draws=n_draws,
            previous=None if self.learned is None else self.learned.normal,
        )

    def fit(self) -> HierarchicalFit:
        """The fit to all samples so far, after at least one update."""
        learned, model = self.learned, self.model
        assert learned is not None
        rng = np.random.default_rng([self.seed, self.n_samples, 2])
        draw_rng, empty_rng, outside_rng = rng.spawn(3)
        normal = self._search(self.X, self.y, learned.prepared, n_draws=model.n_draws, rng=draw_rng)
        if normal.interrupted:
            raise KeyboardInterrupt("before the posterior was updated with the last samples")
        normal = replace(normal, converged=normal.converged and learned.converged)
        metric = learned.prepared.metric
        assert metric is not None
        fit = hierarchical.fit_from_laplace(
            normal,
            model.problem(metric, *self.subsample()),
            metric,
            power=model.power,
            log_evidence_empty=model.evidence_without_features(self.counts, empty_rng),
            log_evidence_before=learned.log_evidence,
            n_evaluations_before=learned.n_evaluations,
            rng=outside_rng,
        )
        return replace(fit, log_likelihood=None)  # that of the queued samples alone

    def subsample(self) -> tuple[FloatArray, IntArray]:
        """Scaled subsample and its class indices."""
        assert self.learned is not None
        X, y, _ = self._draw_subsample(self.X, self.y)
        return self.learned.scaler.transform(X), y
