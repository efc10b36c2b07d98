r"""Cross-validation of settings and softmax temperature.

The candidate with the smallest held-out log loss is chosen, each at its own best temperature. With
few samples this loss is too small, so temperature and score are those of `judge_choice`.
Accuracy is too coarse for few held-out samples. Folds differ by model:

- The paper's model overfits with the number of sweeps, and how fast depends on the size of the
  classes, so there are as many folds as a class has samples (`balanced_folds`).
- The within-class metric needs two samples of one class, which five folds leave to some classes.

At most `MAX_SAMPLES` are used, and folds are skipped once `ENOUGH_SAMPLES` have been held out.
Several tasks have one setting and a temperature each. A sample is held out with its labels of all
tasks; the loss is the mean over all known labels of held-out samples.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.task import Candidate, Task, at_temperature, log_probabilities
from bsdr_models.inference.callbacks import ProgressBar
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.folds import assign_folds, sample_keys
from bsdr_models.numerics.row_space import Rows
from bsdr_models.numerics.temperature import fit_temperature
from bsdr_models.tasks import by_task

logger = logging.getLogger(__name__)

N_FOLDS = 5
# Most labelled samples of a cross-validation.
MAX_SAMPLES = 1250
# With so many held-out samples the standard error of the mean log loss is about 0.05.
ENOUGH_SAMPLES = 500

# Class scores (G, M, K) of new samples under fits of G candidates to a task.
type PathScores = Callable[[Task, Rows, Sequence[Candidate], np.random.Generator], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Result of the cross-validation of G candidates."""

    best: int  # Index of the chosen candidate
    # accuracy, log_loss: Of held-out samples, (G,); the loss is at the best temperature.
    accuracy: FloatArray
    log_loss: FloatArray
    # Softmax temperature of the chosen candidate; of several tasks, (T,), NaN without a held-out
    # label.
    temperature: float | FloatArray
    held_out: HeldOutScore  # Log score of `log_proba`
    log_proba: FloatArray  # of held-out samples, (M, .), as of `log_probabilities`
    samples: IntArray  # Indices of these samples, (M,)


def subsample(groups: IntArray, keys: IntArray) -> IntArray:
    """Stratified subsample of at most `MAX_SAMPLES` of the labelled samples, and all others.

    ``groups`` (N,) is the class of each sample, -1 without; or (N, T) its class in each of several
    tasks, by which the subsample is not stratified. ``keys`` (N,) are
    :func:`~bsdr_models.numerics.folds.sample_keys`.
    """
    if groups.ndim == 2:
        groups = np.where((groups >= 0).any(axis=1), 0, -1)
    rank = np.full(len(groups), -1.0)
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        rank[members[np.argsort(keys[members], kind="stable")]] = np.arange(len(members))
        rank[members] /= len(members)
    grouped = np.flatnonzero(groups >= 0)
    kept = grouped[np.argsort(rank[grouped], kind="stable")[:MAX_SAMPLES]]
    return np.sort(np.concatenate([kept, np.flatnonzero(groups < 0)]))


def balanced_folds(groups: IntArray) -> int:
    """As many folds as the median class has samples, from 2 to `N_FOLDS`.

    ``groups`` are (N,), or (N, T) for several tasks.
    """
    tasks = groups.reshape(len(groups), -1).T
    sizes = np.concatenate([np.bincount(own[own >= 0]) for own in tasks])
    return int(np.clip(np.median(sizes[sizes > 0]), 2, N_FOLDS))


def cross_validate(
    task: Task,
    groups: IntArray,
    path_scores: PathScores,
    candidates: Sequence[Candidate],
    *,
    rng: np.random.Generator,
    balanced: bool,
    n_jobs: int | None = 1,
    progressbar: bool = False,
) -> Selection | None:
    """Compare candidates on held-out samples of `Labels.groups`; None if none can be held out.

    ``balanced`` is for folds as of `balanced_folds`.
    """
    keys = sample_keys(task.X)
    index = subsample(groups, keys)
    if len(index) < len(groups):
        logger.info("%d of %d samples are used for cross-validation", len(index), len(groups))
    groups, task = groups[index], task.subset(index)
    n_folds = balanced_folds(groups) if balanced else N_FOLDS
    fold = assign_folds(groups, keys[index], n_folds=n_folds)
    rows = rows_to_hold_out(fold, task.Y, task.sizes)
    if not rows:
        return None
    streams = rng.spawn(len(rows))

    def held_out(number: int) -> FloatArray:
        train = np.setdiff1d(np.arange(len(fold)), rows[number])
        return path_scores(task.subset(train), task.X[rows[number]], candidates, streams[number])

    with ProgressBar(len(rows), "BM2PCA, folds", enabled=progressbar) as bar:
        outcome = run_tasks(
            held_out, range(len(rows)), n_jobs=n_jobs, what="folds", on_done=lambda _: bar.update()
        )
    if outcome.interrupted:
        raise KeyboardInterrupt
    scores = np.concatenate(list(outcome.results.values()), axis=1)
    out = np.concatenate([rows[number] for number in outcome.results])
    fold = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
    return replace(judge_choice(scores, task.Y[out], task.sizes, fold), samples=index[out])


def judge_choice(
    scores: FloatArray, signs: FloatArray, sizes: tuple[int, ...], fold: IntArray
) -> Selection:
    """Choose as `best_of`, and judge the choice by those that do not see the fold of a sample.

    Each fold is predicted by candidate and temperature that the others choose. The temperature that
    these predictions lack, shrunk since samples may be few, is a factor of that of the choice.
    """
    chosen, scaled = best_of(scores, signs, sizes), np.empty(signs.shape)
    if len(numbers := np.unique(fold)) < 2:
        return chosen
    for number in numbers:
        own = fold == number
        other = best_of(scores[:, ~own], signs[~own], sizes)
        known = np.nan_to_num(other.temperature, nan=1.0)
        scaled[own] = at_temperature(scores[other.best, own], known, sizes)
    factor = temperature_of(scaled, signs, sizes, shrink=True)
    log_proba = log_probabilities(scaled, factor, sizes)
    return replace(
        chosen,
        temperature=chosen.temperature * factor,
        held_out=_held_out_score(log_proba, signs, sizes),
        log_proba=log_proba,
    )


def best_of(scores: FloatArray, truth: FloatArray, sizes: tuple[int, ...]) -> Selection:
    """The candidate of smallest log loss, from scores (G, M, K) and signs (M, K) held out."""
    temperature = [temperature_of(each, truth, sizes) for each in scores]
    log_proba = [
        log_probabilities(each, own, sizes) for each, own in zip(scores, temperature, strict=True)
    ]
    scored = [_held_out_score(each, truth, sizes) for each in log_proba]
    log_loss = np.array([-each.score for each in scored])
    best = int(log_loss.argmin())
    return Selection(
        best=best,
        accuracy=np.array([_accuracy(each, truth, sizes) for each in scores]),
        log_loss=log_loss,
        temperature=temperature[best],
        held_out=scored[best],
        log_proba=log_proba[best],
        samples=np.arange(len(truth)),
    )


def rows_to_hold_out(fold: IntArray, signs: FloatArray, sizes: tuple[int, ...]) -> list[IntArray]:
    """Samples of as many folds as give enough labels of every task."""
    rows: list[IntArray] = []
    for number in np.unique(fold[fold >= 0]):
        rows.append(np.flatnonzero(fold == number))
        if _n_held_out(signs[np.concatenate(rows)], sizes) >= ENOUGH_SAMPLES:
            break
    return rows


def _n_held_out(signs: FloatArray, sizes: tuple[int, ...]) -> int:
    """Number of samples with a label, in the task that has the fewest."""
    if not sizes:
        return len(signs)
    return min(int(np.count_nonzero(own.any(axis=1))) for own in by_task(signs, sizes))


def _accuracy(scores: FloatArray, signs: FloatArray, sizes: tuple[int, ...]) -> float:
    """Accuracy over the known labels of all samples and tasks, or over those of several labels."""
    right = [
        _class_index(own) == _class_index(truth)
        for own, truth in _known_labels(scores, signs, sizes)
    ]
    return float(np.mean(np.concatenate(right)))


def _known_labels(
    scores: FloatArray, signs: FloatArray, sizes: tuple[int, ...]
) -> list[tuple[FloatArray, FloatArray]]:
    """Class scores and signs of the samples with a label of each task; of all labels together."""
    if not sizes:
        known = signs != 0.0
        return [(scores[known][:, None], signs[known][:, None])]
    blocks = zip(by_task(scores, sizes), by_task(signs, sizes), strict=True)
    return [(own[truth.any(axis=1)], truth[truth.any(axis=1)]) for own, truth in blocks]


def temperature_of(
    scores: FloatArray, signs: FloatArray, sizes: tuple[int, ...], *, shrink: bool = False
) -> float | FloatArray:
    """Temperature of the smallest log loss; of several tasks, (T,), NaN without a label."""
    found = [
        fit_temperature(own, _class_index(truth), shrink=shrink) if len(own) else np.nan
        for own, truth in _known_labels(scores, signs, sizes)
    ]
    return np.array(found) if len(found) > 1 else found[0]


def _class_index(signs: FloatArray) -> IntArray:
    """Class of each sample, (M,), from signs (M, K) of one task."""
    return signs.argmax(axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0.0).astype(np.int64)


def _held_out_score(log_p: FloatArray, signs: FloatArray, sizes: tuple[int, ...]) -> HeldOutScore:
    """Log score of the observed targets."""
    if sizes:
        blocks = by_task(log_p, tuple(max(size, 2) for size in sizes))
        truth = [_class_index(own) for own in by_task(signs, sizes)]
        each = np.column_stack(
            [own[np.arange(len(own)), y] for own, y in zip(blocks, truth, strict=True)]
        )
        known = np.column_stack([own.any(axis=1) for own in by_task(signs, sizes)])
        return HeldOutScore.of(np.where(known, each, np.nan), np.column_stack(truth))
    with np.errstate(divide="ignore"):
        off = np.log(-np.expm1(np.minimum(log_p, -1e-300)))
    each = np.where(signs > 0.0, log_p, off)
    return HeldOutScore.of(np.where(signs != 0.0, each, np.nan), signs)
