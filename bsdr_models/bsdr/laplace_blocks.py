"""The hierarchical model for samples in blocks and in streams: by Laplace's method.

Every evaluation of the posterior density is one sum over samples, so that these may be on disk or
on the workers of a cluster (:func:`fit_blocks`), or come a batch at a time (:class:`Stream`).
Some samples are kept in memory besides: the coordinates of the latent plane are learned from their
class means, and they are what trees and plots show.
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
from bsdr_models.bsdr.posterior import Metric, Problem
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.checks import check_variation
from bsdr_models.inference.sample_blocks import Block, InProcess, SampleBlocks
from bsdr_models.numerics.scaling import Scaler

# Samples of a stream that are learned from at a time, and that are kept in memory.
CHUNK = N_KEPT = 2000
# Chunks that the first may take, to have samples of every class.
_LONGEST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a fit is asked for.

    n_components
        R; at most K - 1 are used.
    power
        Of pooling.
    n_draws
        Of the normal approximation.
    """

    n_labels: int
    n_components: int
    priors: HierarchicalPriors
    power: float = 1.0
    n_draws: int = N_LAPLACE

    def check(self, n_features: int) -> None:
        """A ValueError if so many features are too many."""
        check_size(n_features, min(self.n_components, self.n_labels - 1))

    def prepare(self, blocks: SampleBlocks, scaler: Scaler) -> Prepared:
        """Read all samples once."""
        return prepare(
            blocks, scaler, n_labels=self.n_labels, target="multiclass", priors=self.priors
        )

    def width(self, metric: Metric) -> int:
        """Components that are used."""
        return min(self.n_components, self.n_labels - 1, len(metric.size))

    def pose(self, metric: Metric, X: FloatArray, y: IntArray) -> Problem:
        """The model on some samples, scaled, (M, D)."""
        return Problem.pose(
            metric.whiten(X),
            y,
            n_labels=self.n_labels,
            n_components=self.width(metric),
            target="multiclass",
            priors=self.priors,
        )

    def evidence_without_features(self, counts: IntArray, rng: np.random.Generator) -> float:
        """Log evidence of the frequencies of the classes alone."""
        y = np.repeat(np.arange(self.n_labels), counts)
        return hierarchical.evidence_without_features(
            y, self.n_labels, "multiclass", self.priors, rng=rng
        )


def fit_blocks(
    blocks: SampleBlocks,
    scaler: Scaler,
    kept: tuple[FloatArray, IntArray],
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
        Their targets are indices of classes.
    scaler : Scaler
    kept : (M, D), (M,)
        Some samples, scaled, with the indices of their classes.
    counts : (K,)
        Samples of each class.
    model : Model
    rng : numpy.random.Generator
    checkpoint : path, optional
        Folder to which the search is written as it goes, and from which it goes on.
    progressbar : bool

    Returns
    -------
    HierarchicalFit

    Raises
    ------
    ValueError
        If there are too many features, or the checkpoint is of another fit.
    KeyboardInterrupt
        If the user stops the fit before its first evaluation.
    """
    model.check(blocks.n_features)
    draw_rng, empty_rng, beside_rng = rng.spawn(3)
    prepared = model.prepare(blocks, scaler)
    assert prepared.metric is not None
    with hierarchical.searched(progressbar) as on_evaluation:
        normal = fit_laplace_blocks(
            blocks,
            prepared,
            n_components=model.width(prepared.metric),
            rng=draw_rng,
            n_draws=model.n_draws,
            checkpoint=checkpoint,
            on_evaluation=on_evaluation,
        )
    return hierarchical.of_laplace(
        normal,
        model.pose(prepared.metric, *kept),
        prepared.metric,
        power=model.power,
        log_evidence_empty=model.evidence_without_features(counts, empty_rng),
        rng=beside_rng,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of samples of a stream that are no longer needed.

    scaler, prepared
        Of the samples that were learned from first.
    normal
        Posterior given all samples so far, the prior of those to come.
    log_evidence
        Of these samples.
    n_evaluations
        Sums over samples until now.
    converged
        Whether a mode was found each time.
    """

    scaler: Scaler
    prepared: Prepared
    normal: Normal
    log_evidence: float
    n_evaluations: int
    converged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Samples that come a batch at a time, each of which is met once.

    Samples wait until there are :data:`CHUNK` of them; the first, from which scales are learned, if
    need be for up to five times as many, until there is one of every class. Then Laplace's method
    turns the posterior so far, which is the prior at first, and these samples into the posterior
    from which the next ones go on. So what is learned does not depend on how the stream was cut
    into batches, nor on when it was asked for an answer.

    standardize
        Whether features are scaled by the standard deviations of the first samples.
    seed
        Of everything random.
    counts
        Samples of each class so far, (K,).
    X, y
        Samples that wait, unscaled, (M, D), and the indices of their classes.
    kept_X, kept_y, kept_key
        A random choice of those that were learned from, and the random number of each: of all
        samples those with the lowest are kept.
    learned
        None while all samples wait.
    """

    model: Model
    standardize: bool
    seed: int
    counts: IntArray
    X: FloatArray
    y: IntArray
    kept_X: FloatArray
    kept_y: IntArray
    kept_key: FloatArray
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
            kept_X=np.empty((0, n_features)),
            kept_y=np.empty(0, dtype=np.int64),
            kept_key=np.empty(0),
        )

    def add(self, X: FloatArray, y: IntArray) -> "Stream":
        """With further samples (M, D) and the indices of their classes."""
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
        """Samples to learn from now. The last always wait: an answer needs some to sum over."""
        if self.learned is not None or len(self.X) <= CHUNK:
            return CHUNK if len(self.X) > CHUNK else 0
        for size in range(CHUNK, _LONGEST * CHUNK + 1, CHUNK):
            if len(self.X) <= size:
                return 0
            if len(np.unique(self.y[:size])) == self.model.n_labels:
                return size
        missing = np.flatnonzero(np.bincount(self.y[:size], minlength=self.model.n_labels) == 0)
        warnings.warn(
            f"the first {size} samples have none of {len(missing)} classes: what is learned of "
            "these later may be poor; shuffle the samples if you can",
            UserWarning,
            stacklevel=4,
        )
        return size

    @property
    def n_samples(self) -> int:
        """All so far."""
        return int(self.counts.sum())

    def _learn(self, size: int) -> "Stream":
        """Learn from the first of those that wait."""
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
            raise KeyboardInterrupt("before these samples were learned from")
        learned = Learned(
            scaler=scaler,
            prepared=prepared,
            normal=found.normal,
            log_evidence=found.log_evidence + (learned.log_evidence if learned else 0.0),
            n_evaluations=found.n_evaluations + (learned.n_evaluations if learned else 0),
            converged=found.converged and (learned is None or learned.converged),
        )
        kept_X, kept_y, kept_key = self._choose(X, y)
        return replace(
            self,
            X=self.X[size:],
            y=self.y[size:],
            kept_X=kept_X,
            kept_y=kept_y,
            kept_key=kept_key,
            learned=learned,
        )

    @property
    def _n_learned(self) -> int:
        return self.n_samples - len(self.X)

    def _choose(self, X: FloatArray, y: IntArray) -> tuple[FloatArray, IntArray, FloatArray]:
        """Samples to keep of those that are kept and of the next ones, and their numbers."""
        of_chunk = np.random.default_rng([self.seed, self._n_learned, 1]).random(len(X))
        key = np.concatenate([self.kept_key, of_chunk])
        kept = np.sort(np.argsort(key)[:N_KEPT])
        X, y = np.concatenate([self.kept_X, X]), np.concatenate([self.kept_y, y])
        return X[kept], y[kept], key[kept]

    def _search(
        self,
        X: FloatArray,
        y: IntArray,
        prepared: Prepared,
        *,
        n_draws: int,
        rng: np.random.Generator,
    ) -> Laplace:
        """The posterior so far with some more samples."""
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
        """What is known of all samples so far, once some were learned from."""
        learned, model = self.learned, self.model
        assert learned is not None
        rng = np.random.default_rng([self.seed, self.n_samples, 2])
        draw_rng, empty_rng, beside_rng = rng.spawn(3)
        normal = self._search(self.X, self.y, learned.prepared, n_draws=model.n_draws, rng=draw_rng)
        if normal.interrupted:
            raise KeyboardInterrupt("before the samples that came last were learned from")
        normal = replace(normal, converged=normal.converged and learned.converged)
        metric = learned.prepared.metric
        assert metric is not None
        fit = hierarchical.of_laplace(
            normal,
            model.pose(metric, *self.kept()),
            metric,
            power=model.power,
            log_evidence_empty=model.evidence_without_features(self.counts, empty_rng),
            log_evidence_before=learned.log_evidence,
            n_evaluations_before=learned.n_evaluations,
            rng=beside_rng,
        )
        return replace(fit, log_likelihood=None)  # that of the last samples alone

    def kept(self) -> tuple[FloatArray, IntArray]:
        """Samples to look at, scaled, and the indices of their classes."""
        assert self.learned is not None
        X, y, _ = self._choose(self.X, self.y)
        return self.learned.scaler.transform(X), y
