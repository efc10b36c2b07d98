"""Choice of cost and sweeps of the paper's model, the best by cross-validation."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.problem import Candidate, Problem, class_index
from bsdr_models.bm2pca.select import (
    Selection,
    Split,
    best_of,
    judge,
    known_labels,
    log_probabilities,
)
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.numerics.row_space import Rows
from bsdr_models.numerics.temperature import fit_temperature

# Class scores (G, M, K) of new samples under fits of G candidates to a problem.
type PathScores = Callable[[Problem, Rows, Sequence[Candidate], np.random.Generator], FloatArray]


def cross_validate(
    problem: Problem,
    split: Split,
    path_scores: PathScores,
    candidates: Sequence[Candidate],
    *,
    rng: np.random.Generator,
    n_jobs: int | None = 1,
    progressbar: bool = False,
) -> Selection:
    """Choose the best of the candidates by held-out samples."""
    problem = problem.subset(split.index)
    rows = split.rows
    streams = rng.spawn(len(rows))

    def held_out(number: int) -> FloatArray:
        train = np.setdiff1d(np.arange(len(split.fold)), rows[number])
        return path_scores(
            problem.subset(train), problem.X[rows[number]], candidates, streams[number]
        )

    numbers = range(len(rows))
    what = "BM2PCA, folds"
    outcome = run_tasks(held_out, numbers, n_jobs=n_jobs, what=what, progressbar=progressbar)
    scores = np.concatenate(outcome.complete(), axis=1)
    truth = class_index(problem.Y[split.held_out], problem.exclusive)
    return choose_best(scores, truth, problem.exclusive, *split.units)


def choose_best(
    scores: FloatArray,
    truth: IntArray,
    exclusive: bool,
    fold: IntArray,
    groups: IntArray | None = None,
) -> Selection:
    """Choose as `best_of`, and judge the choice by those that do not see the fold of a sample.

    Each fold is predicted by candidate and temperature that the others choose. The temperature that
    these predictions lack, shrunk since samples may be few, is a factor of that of the choice.
    """
    chosen = best_of(scores, truth, exclusive)
    scaled = np.empty(scores.shape[1:])
    if len(numbers := np.unique(fold)) < 2:
        return chosen
    for number in numbers:
        own = fold == number
        other = best_of(scores[:, ~own], truth[~own], exclusive)
        scaled[own] = scores[other.best, own] / other.temperature
    factor = fit_temperature(*known_labels(scaled, truth, exclusive)[:2], shrink=True)
    return replace(
        chosen,
        temperature=chosen.temperature * factor,
        held_out=judge(scaled / factor, truth, exclusive, groups=groups)[1],
        log_proba=log_probabilities(scaled / factor, exclusive),
    )
