"""Settings of a classifier by cross-validation: the engines that score rows held out."""

import numpy as np

from bsdr_models.bm2pca import label_free, paper, selection
from bsdr_models.bm2pca.selection import Selection
from bsdr_models.bm2pca.settings import Grid, Variant
from bsdr_models.bm2pca.task import Task
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.typing import FloatArray, IntArray

# Sweeps after which a held-out score stands for a fit that goes on to convergence.
CONVERGED = 50


def choose(
    task: Task,
    grid: Grid,
    groups: IntArray,
    *,
    variant: Variant,
    exclusive: bool,
    rng: np.random.Generator,
    progressbar: bool,
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
    """
    kept = selection.thin(groups, rng)
    task, groups = task.subset(kept).reduced(), groups[kept]
    n_folds = selection.balanced_folds(groups) if variant == "paper" else selection.N_FOLDS
    fold = selection.deal_folds(groups, rng, n_folds=n_folds)
    total = len(np.unique(fold[fold >= 0]))
    with ProgressBar(total, "BM2PCA, folds", enabled=progressbar) as bar:

        def scorer(train: IntArray, test: IntArray) -> FloatArray:
            scores = path_scores(task, grid, train, test, variant=variant, rng=rng)
            bar.update()
            return scores

        return selection.select(scorer, task.Y, fold, exclusive=exclusive)


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
    return paper.path_scores(task, train, test, costs=grid.costs, sweeps=sweeps, rng=rng)
