"""Choice of cost and sweeps of the paper's model, the best by cross-validation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.bm2pca.engines import ENOUGH_SAMPLES, LOG_T, spread
from bsdr_models.bm2pca.posterior import link_of
from bsdr_models.bm2pca.problem import Candidate, Problem
from bsdr_models.data.training import Training
from bsdr_models.estimators.calibration import Judged, Likelihoods, judge
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.numerics.arrays import BoolArray, FloatArray
from bsdr_models.numerics.row_space import Rows

# Class scores (G, M, K) of new samples under fits of G candidates to a problem.
type PathScores = Callable[[Problem, Rows, Sequence[Candidate], np.random.Generator], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The best candidate, and held-out log losses of all, (G,); its predictions are judged."""

    best: int
    log_loss: FloatArray
    judged: Judged


def cross_validate(
    problem: Problem,
    training: Training,
    path_scores: PathScores,
    candidates: Sequence[Candidate],
    *,
    rng: np.random.Generator,
    n_jobs: int | None = 1,
    progressbar: bool = False,
) -> Selection:
    """Compare candidates by the folds of one division; class scores are those of `path_scores`.

    Each fold is predicted by the candidate that the others choose.
    """
    assert training.classes is not None
    folds = [fold for fold in training.folds(ENOUGH_SAMPLES) if fold[0] == 0]
    streams = rng.spawn(len(folds))

    def held_out(number: int) -> FloatArray:
        out = training.out(folds[number])
        rest = problem.subset(np.flatnonzero(~out))
        return path_scores(rest, problem.X[out], candidates, streams[number])

    numbers = range(len(folds))
    what = "BM2PCA, folds"
    parts = run_tasks(held_out, numbers, n_jobs=n_jobs, what=what, progressbar=progressbar)
    division = np.full(len(training.keys), -1)
    scores = np.full((len(candidates), len(division), problem.Y.shape[1]), np.nan)
    for fold, part in zip(folds, parts.complete(), strict=True):
        out = training.out(fold)
        scores[:, out] = part
        division[out] = fold[1]
    return choose_best(scores, division, problem.exclusive, training)


def choose_best(
    scores: FloatArray, division: np.ndarray, exclusive: bool, training: Training
) -> Selection:
    """From class scores (G, N, K) and folds (N,), each candidate at its own size of the scores."""
    y = training.classes
    assert y is not None
    link = link_of(exclusive, lapse=0.0)
    sizes = [spread([[own]], exclusive) for own in scores]
    scaled = [own / size for own, size in zip(scores, sizes, strict=True)]
    tables = [Likelihoods.of([own], y, [division], link, LOG_T) for own in scaled]

    def best_of(used: BoolArray) -> int:
        return int(np.argmax([table.log_evidence(used) for table in tables]))

    held_out = division >= 0
    chosen = best_of(held_out)
    nested = np.full(scaled[0].shape, np.nan)
    for number in np.unique(division[held_out]):
        out = division == number
        others = held_out & ~out
        nested[out] = scaled[best_of(others if others.any() else held_out)][out]
    groups = training.groups
    share = training.share
    judged = judge([nested], y, [division], link, LOG_T, groups=groups, share=share)
    calibration = replace(
        judged.calibration, temperature=sizes[chosen] * judged.calibration.temperature
    )
    n = np.count_nonzero(held_out)
    return Selection(
        best=chosen,
        log_loss=np.array([-table.log_evidence(held_out) / n for table in tables]),
        judged=replace(judged, calibration=calibration),
    )
