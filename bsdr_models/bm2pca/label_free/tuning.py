"""Choose the settings of a classifier by cross-validation."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca import selection
from bsdr_models.bm2pca.conjugate import fit as paper
from bsdr_models.bm2pca.conjugate import sampling
from bsdr_models.bm2pca.label_free import fit as label_free
from bsdr_models.bm2pca.selection import Selection
from bsdr_models.bm2pca.settings import Grid, Variant
from bsdr_models.bm2pca.task import Task
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.inference.sampling import Schedule
from bsdr_models.numerics.folds import assign_folds, sample_keys

logger = logging.getLogger(__name__)

# Sweeps in cross-validation for a fit that runs to convergence.
CONVERGED = 50
# Gibbs sweeps, both warm-up and kept, for the temperature of a sampler.
GIBBS_SWEEPS = 150


def choose(
    task: Task,
    grid: Grid,
    groups: IntArray,
    *,
    variant: Variant,
    rng: np.random.Generator,
    progressbar: bool,
    n_jobs: int | None = 1,
) -> Selection | None:
    """Compare the candidates of a grid; None if no sample can be held out.

    ``groups`` is the class of each sample, -1 without, (N,), or (N, T) for several tasks
    (:class:`bsdr_models.bm2pca.labels.Labels`).
    """
    index, folds = _assign_folds(task, groups, variant)
    options: dict[str, Any] = {"progressbar": progressbar, "n_jobs": n_jobs}
    part = task.subset(index).reduced()

    def compare(grid: Grid, *, quick: bool) -> Selection | None:
        def scorer(
            task: Task, train: IntArray, test: IntArray, rng: np.random.Generator
        ) -> FloatArray:
            return path_scores(task, grid, train, test, variant=variant, rng=rng, quick=quick)

        return _select(scorer, part, folds, rng, **options)

    quick = variant == "label_free" and task.strategy == "one_vs_rest" and len(grid.candidates) > 1
    found = compare(grid, quick=quick)
    if found is None or not quick:
        return found
    chosen = grid.candidates[found.best]
    assert chosen.scale is not None
    own = compare(Grid(costs=(chosen.cost,), scales=(chosen.scale,)), quick=False)
    assert own is not None
    return replace(found, temperature=own.temperature, held_out=own.held_out)


def select_temperature(
    task: Task,
    cost: float,
    groups: IntArray,
    *,
    rng: np.random.Generator,
    progressbar: bool,
    n_jobs: int | None = 1,
) -> Selection | None:
    """Select the temperature of a sampler by short Gibbs runs; None if none can be held out.

    Its class scores are larger than those of mean field. All samplers have the same posterior.
    """

    def scorer(task: Task, train: IntArray, test: IntArray, rng: np.random.Generator) -> FloatArray:
        own = task.subset(train)
        sampled = sampling.sample(
            "gibbs",
            own.X,
            paper.make_margins(own, [cost]),
            own.priors,
            n_components=own.n_components,
            schedule=Schedule(draws=GIBBS_SWEEPS, tune=GIBBS_SWEEPS, chains=1),
            rng=rng,
        )
        if sampled.interrupted:
            raise KeyboardInterrupt
        return sampling.make_posterior(sampled.draws).score_means(task.X[test])[None]

    index, folds = _assign_folds(task, groups, "paper")
    options: dict[str, Any] = {"progressbar": progressbar, "n_jobs": n_jobs}
    return _select(scorer, task.subset(index), folds, rng, **options)


def _assign_folds(task: Task, groups: IntArray, variant: Variant) -> tuple[IntArray, IntArray]:
    """Samples for cross-validation, and their folds, as the variant needs them."""
    keys = sample_keys(task.X)
    index = selection.subsample(groups, keys)
    if len(index) < len(groups):
        logger.info("%d of %d samples are used for cross-validation", len(index), len(groups))
    groups, keys = groups[index], keys[index]
    n_folds = selection.balanced_folds(groups) if variant == "paper" else selection.N_FOLDS
    return index, assign_folds(groups, keys, n_folds=n_folds)


def _select(
    scorer: Callable[[Task, IntArray, IntArray, np.random.Generator], FloatArray],
    task: Task,
    fold: IntArray,
    rng: np.random.Generator,
    *,
    progressbar: bool,
    n_jobs: int | None,
) -> Selection | None:
    """Cross-validate with a progress bar and one random stream per fold."""
    numbers = np.unique(fold[fold >= 0])
    streams = dict(zip(numbers.tolist(), rng.spawn(len(numbers)), strict=True))

    def scored(train: IntArray, test: IntArray) -> FloatArray:
        return scorer(task, train, test, streams[int(fold[test[0]])])

    with ProgressBar(len(numbers), "BM2PCA, folds", enabled=progressbar) as bar:
        found = selection.select(
            scored,
            task.Y,
            fold,
            sizes=task.sizes,
            n_jobs=n_jobs,
            on_done=lambda scores: bar.update(),
        )
        bar.total = bar.count  # later folds may be skipped
        return found


def path_scores(
    task: Task,
    grid: Grid,
    train: IntArray,
    test: IntArray,
    *,
    variant: Variant,
    rng: np.random.Generator,
    quick: bool = False,
) -> FloatArray:
    """Held-out class scores of every candidate, (G, M, K)."""
    if variant == "label_free":
        settings: dict[str, Any] = {"scales": grid.scales, "costs": grid.costs}
        return label_free.path_scores(task, train, test, quick=quick, **settings)
    sweeps = grid.sweeps or (CONVERGED,)
    options: dict[str, Any] = {"costs": grid.costs, "sweeps": sweeps, "rng": rng}
    return paper.path_scores(task, train, test, **options)
