"""Settings of a classifier by cross-validation: the engines that score rows held out."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca import label_free, paper, sampling, selection
from bsdr_models.bm2pca.selection import Selection
from bsdr_models.bm2pca.settings import Grid, Variant
from bsdr_models.bm2pca.task import Task
from bsdr_models.inference.callbacks import ProgressBar

logger = logging.getLogger(__name__)

# Sweeps after which a held-out score stands for a fit that goes on to convergence.
CONVERGED = 50
# Sweeps of Gibbs, warm-up and kept, by which held-out rows are scored for a temperature.
GIBBS_SWEEPS = 150


def choose(
    task: Task,
    grid: Grid,
    groups: IntArray,
    *,
    variant: Variant,
    exclusive: bool,
    rng: np.random.Generator,
    progressbar: bool,
    n_jobs: int | None = 1,
) -> Selection | None:
    """Compare the candidates of a grid; None where no row can be held out.

    Parameters
    ----------
    task : Task
    grid : Grid
    groups : (N,) of int
        Class of each row, -1 without; see :class:`bsdr_models.bm2pca.labels.Labels`.
    variant : {"label_free", "paper"}
    exclusive : bool
        Whether the outcomes of a row exclude each other.
    rng : numpy.random.Generator
    progressbar : bool
    n_jobs : int, optional
        Folds that run side by side.
    """

    def scorer(task: Task, train: IntArray, test: IntArray, rng: np.random.Generator) -> FloatArray:
        return path_scores(task, grid, train, test, variant=variant, rng=rng)

    kept = _thin(groups, rng)
    folds = _deal(groups[kept], variant, rng)
    options: dict[str, Any] = {
        "exclusive": exclusive,
        "progressbar": progressbar,
        "n_jobs": n_jobs,
    }
    return _select(scorer, task.subset(kept).reduced(), folds, rng, **options)


def sampled_temperature(
    task: Task,
    cost: float,
    groups: IntArray,
    *,
    exclusive: bool,
    rng: np.random.Generator,
    progressbar: bool,
    n_jobs: int | None = 1,
) -> float | None:
    """Temperature of the scores of a sampler; None where no row can be held out.

    Its scores are larger than those of mean field. Short runs of Gibbs speak for all samplers,
    whose posterior is the same.

    Parameters
    ----------
    task, groups, exclusive, rng, progressbar, n_jobs
        As for :func:`choose`.
    cost : float
        C.
    """

    def scorer(task: Task, train: IntArray, test: IntArray, rng: np.random.Generator) -> FloatArray:
        own = task.subset(train)
        sampled = sampling.sample(
            "gibbs",
            own.X,
            paper.make_margins(own, [cost]),
            own.priors,
            n_components=own.n_components,
            draws=GIBBS_SWEEPS,
            tune=GIBBS_SWEEPS,
            chains=1,
            rng=rng,
            progressbar=False,
        )
        if sampled.interrupted:
            raise KeyboardInterrupt
        return sampled.posterior.score_means(task.X[test])[None]

    kept = _thin(groups, rng)
    folds = _deal(groups[kept], "paper", rng)
    options: dict[str, Any] = {
        "exclusive": exclusive,
        "progressbar": progressbar,
        "n_jobs": n_jobs,
    }
    found = _select(scorer, task.subset(kept), folds, rng, **options)
    return None if found is None else found.temperature


def _thin(groups: IntArray, rng: np.random.Generator) -> IntArray:
    """Rows that take part."""
    kept = selection.thin(groups, rng)
    if len(kept) < len(groups):
        logger.info("%d of %d rows take part in the cross-validation", len(kept), len(groups))
    return kept


def _deal(groups: IntArray, variant: Variant, rng: np.random.Generator) -> IntArray:
    """Folds that suit the variant."""
    n_folds = selection.balanced_folds(groups) if variant == "paper" else selection.N_FOLDS
    return selection.deal_folds(groups, rng, n_folds=n_folds)


def _select(
    scorer: Callable[[Task, IntArray, IntArray, np.random.Generator], FloatArray],
    task: Task,
    fold: IntArray,
    rng: np.random.Generator,
    *,
    exclusive: bool,
    progressbar: bool,
    n_jobs: int | None,
) -> Selection | None:
    """Show a bar over the folds, each of which has a stream of its own."""
    numbers = np.unique(fold[fold >= 0])
    streams = dict(zip(numbers.tolist(), rng.spawn(len(numbers)), strict=True))

    def scored(train: IntArray, test: IntArray) -> FloatArray:
        return scorer(task, train, test, streams[int(fold[test[0]])])

    with ProgressBar(len(numbers), "BM2PCA, folds", enabled=progressbar) as bar:
        found = selection.select(
            scored,
            task.Y,
            fold,
            exclusive=exclusive,
            n_jobs=n_jobs,
            on_done=lambda scores: bar.update(),
        )
        bar.total = bar.count  # enough rows may have been held out before the last fold
        return found


def path_scores(
    task: Task,
    grid: Grid,
    train: IntArray,
    test: IntArray,
    *,
    variant: Variant,
    rng: np.random.Generator,
) -> FloatArray:
    """Scores of held-out rows under every candidate, (G, M, K)."""
    if variant == "label_free":
        found = [
            label_free.path_scores(task, train, test, scales=grid.scales, cost=cost)
            for cost in grid.costs
        ]
        return np.concatenate(found)
    sweeps = grid.sweeps or (CONVERGED,)
    options: dict[str, Any] = {"costs": grid.costs, "sweeps": sweeps, "rng": rng}
    return paper.path_scores(task, train, test, **options)
