r"""Cross-validation of settings and softmax temperature.

Candidates are compared by held-out log loss, each at its own best temperature. Accuracy is too
coarse for few held-out samples. Of the paper's model the best one is chosen. Of the recommended one
costs are averaged, with weights that are powers of the held-out likelihood. Folds differ by model:

- The paper's model overfits with the number of sweeps, and how fast depends on the size of the
  classes, so there are as many folds as a class has samples (`balanced_folds`).
- The metric needs two samples of one class, which five folds leave to some classes.

Several labels have one setting and one temperature. The loss is the mean over all known labels of
held-out samples.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.sparse import issparse
from scipy.special import log_expit, log_softmax, softmax

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.engines import learn_metric
from bsdr_models.bm2pca.posterior import whiten
from bsdr_models.bm2pca.problem import Problem, class_index
from bsdr_models.bm2pca.sparse_metric import Whitened, as_dense, is_large
from bsdr_models.bm2pca.subspace import SubspaceState
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.metric import SHARPNESS, MetricName, choose_weights
from bsdr_models.metrics import HeldOutScore, lack_of_signal
from bsdr_models.numerics.dependence import effective_share
from bsdr_models.numerics.folds import assign_folds, make_folds, sample_keys, stratified_subset
from bsdr_models.numerics.row_space import Rows
from bsdr_models.numerics.temperature import fit_temperature

logger = logging.getLogger(__name__)

N_FOLDS = 5
# Most labelled samples of a cross-validation.
MAX_SAMPLES = 1250
# Held-out samples after which folds are skipped: the standard error of the mean log loss is 0.05.
ENOUGH_SAMPLES = 500
# Probability that a class is random, of the recommended model. A few wrong samples far from the
# boundary would otherwise decide the temperature.
LAPSE = 0.01
# Mean and standard deviation of the prior of log T, in units of the root mean square of the class
# scores, from the best temperatures of new samples of ten data sets.
LOG_T = -1.0
LOG_T_WIDTH = 0.6
# Root mean square of class scores below which they are rounding errors of zero; margins are one.
NO_SCORES = 1e-12

# Gain of an iteration, relative to the objective, and iterations at which fits of folds stop. They
# take 1 / 6 of the time to convergence, with the same costs, temperature and accuracy.
PATH_TOL = 1e-8
PATH_ITER = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Result of the cross-validation of G candidates."""

    weight: FloatArray  # Of each candidate, (G,): one for the chosen one, or of an average
    # accuracy, log_loss: Of held-out samples, (G,); the loss is at the best temperature.
    accuracy: FloatArray
    log_loss: FloatArray
    temperature: float  # Softmax temperature of the choice, or of the average
    held_out: HeldOutScore  # Log score of `log_proba`
    log_proba: FloatArray  # As of `log_probabilities`, of held-out samples

    @property
    def best(self) -> int:
        """Index of the candidate of largest weight."""
        return int(self.weight.argmax())


def subsample(groups: IntArray, keys: IntArray) -> IntArray:
    """About `MAX_SAMPLES` of the labelled samples, stratified by class (N,), and all others."""
    order = np.argsort(keys, kind="stable")
    order = order[groups[order] >= 0]
    kept = order[stratified_subset(groups[order], MAX_SAMPLES)]
    return np.sort(np.concatenate([kept, np.flatnonzero(groups < 0)]))


def balanced_folds(groups: IntArray) -> int:
    """As many folds as the median class of samples (N,) has samples, from 2 to `N_FOLDS`."""
    sizes = np.bincount(groups[groups >= 0])
    return int(np.clip(np.median(sizes[sizes > 0]), 2, N_FOLDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Samples of a cross-validation, about `MAX_SAMPLES` of the labelled ones and all others."""

    index: IntArray  # positions among all samples, (I,)
    keys: IntArray  # `numerics.folds.sample_keys`, (I,)
    fold: IntArray  # -1 if never held out, (I,)
    rows: list[IntArray]  # held-out samples by fold, positions in the index
    groups: IntArray | None = None  # group of each sample, (I,), if they are held out together

    @property
    def held_out(self) -> IntArray:
        """All held-out samples, positions in the index, (M,)."""
        return np.concatenate(self.rows)

    @property
    def units(self) -> tuple[IntArray, IntArray | None]:
        """Fold, and group if there are any, of each held-out sample, (M,)."""
        groups = None if self.groups is None else self.groups[self.held_out]
        return self.fold[self.held_out], groups

    def spread(self, values: FloatArray, n_samples: int) -> FloatArray:
        """Values of the held-out samples (M, K) among all (N, K), NaN of others."""
        found = np.full((n_samples, values.shape[1]), np.nan)
        found[self.index[self.held_out]] = values
        return found


def split(X: Rows, classes: IntArray, groups: IntArray | None = None, *, balanced: bool) -> Split:
    """Folds, stratified by class (N,) or of whole groups (N,); as `balanced_folds` if balanced."""
    keys = sample_keys(X)
    index = subsample(classes, keys)
    if len(index) < len(classes):
        logger.info("%d of %d samples are used for cross-validation", len(index), len(classes))
    keys = keys[index]
    classes = classes[index]
    if groups is not None:
        groups = groups[index]
        fold = make_folds(X, classes, groups)
    else:
        n_folds = balanced_folds(classes) if balanced else N_FOLDS
        fold = assign_folds(classes, keys, n_folds=n_folds)
    rows = rows_to_hold_out(fold, classes)
    return Split(index=index, keys=keys, fold=fold, rows=rows, groups=groups)


def rows_to_hold_out(fold: IntArray, groups: IntArray) -> list[IntArray]:
    """Samples of as many folds as give enough labels."""
    rows: list[IntArray] = []
    for number in np.unique(fold[fold >= 0]):
        rows.append(np.flatnonzero(fold == number))
        if np.count_nonzero(groups[np.concatenate(rows)] >= 0) >= ENOUGH_SAMPLES:
            break
    return rows


def best_of(scores: FloatArray, truth: IntArray, exclusive: bool) -> Selection:
    """The candidate of smallest log loss, from scores (G, M, K) and `class_index` (M, T)."""
    temperature = [fit_temperature(*known_labels(each, truth, exclusive)[:2]) for each in scores]
    scaled = [each / t for each, t in zip(scores, temperature, strict=True)]
    accuracy, held_out = zip(*(judge(each, truth, exclusive) for each in scaled), strict=True)
    log_loss = np.array([-each.score for each in held_out])
    best = int(log_loss.argmin())
    return Selection(
        weight=np.eye(len(scores))[best],
        accuracy=np.array(accuracy),
        log_loss=log_loss,
        temperature=temperature[best],
        held_out=held_out[best],
        log_proba=log_probabilities(scaled[best], exclusive),
    )


def average(scores: FloatArray, truth: IntArray, exclusive: bool, share: float = 1.0) -> FloatArray:
    """Weights (G,) of an average of candidates; equal without a held-out score."""
    equal = np.full(len(scores), 1.0 / len(scores))
    if len(truth) == 0:
        return equal
    loss = best_of(scores, truth, exclusive).log_loss
    if np.isnan(loss).any():
        return equal
    return np.asarray(softmax(-SHARPNESS * share * len(truth) * loss))


def known_labels(
    scores: FloatArray, truth: IntArray, exclusive: bool, groups: IntArray | None = None
) -> tuple[FloatArray, IntArray, IntArray]:
    """Class scores, class and unit, the sample or its group, of each known label.

    Scores (M, K) of several labels are those of M K pairs of classes, which have one temperature.
    """
    unit = np.arange(len(truth)) if groups is None else groups
    if not exclusive:
        scores = scores.reshape(-1, 1)
    unit = np.repeat(unit, truth.shape[1])
    truth = truth.ravel()
    known = truth >= 0
    return scores[known], truth[known], unit[known]


def probable_temperature(scores: FloatArray, y: IntArray, unit: IntArray | None = None) -> float:
    """Temperature of the largest posterior density with `LAPSE`; without a signal a shrunk one.

    Scores are (M, K), or one column of class 1 against class 0, and those of one unit (M,), a
    sample or a group of them, are not independent.
    """
    both = scores if scores.shape[1] > 1 else np.column_stack([0.0 * scores, scores])
    spread = float(np.sqrt(np.mean((both - both.mean(axis=1, keepdims=True)) ** 2)))
    if spread < NO_SCORES:
        return 1.0

    def log_likelihood(log_t: float) -> FloatArray:
        scaled = both / (spread * np.exp(log_t))
        return _log_softmax(scaled, LAPSE)[np.arange(len(y)), y]

    def loss(log_t: float) -> float:
        penalty = 0.5 * ((log_t - LOG_T) / LOG_T_WIDTH) ** 2
        return penalty - float(log_likelihood(log_t).sum())

    bounds = LOG_T - 8.0 * LOG_T_WIDTH, LOG_T + 8.0 * LOG_T_WIDTH
    log_t = float(minimize_scalar(loss, bounds=bounds, method="bounded").x)
    if lack_of_signal(HeldOutScore.of(log_likelihood(log_t), y, groups=unit).attrs()) is not None:
        return fit_temperature(scores, y, shrink=True)
    return spread * float(np.exp(log_t))


def judge(
    scaled: FloatArray,
    truth: IntArray,
    exclusive: bool,
    lapse: float = 0.0,
    groups: IntArray | None = None,
) -> tuple[float, HeldOutScore]:
    """Accuracy and log score of class scores, over all known labels."""
    log_p = _log_softmax(scaled, lapse)[:, None] if exclusive else _log_of_labels(scaled, lapse)
    predicted = log_p.argmax(axis=2)
    of_truth = np.take_along_axis(log_p, truth[:, :, None], axis=2)[:, :, 0]
    known = truth >= 0
    accuracy = float(np.mean((predicted == truth)[known]))
    of_truth = np.where(known, of_truth, np.nan)
    return accuracy, HeldOutScore.of(of_truth, truth, groups=groups)


def log_probabilities(scaled: FloatArray, exclusive: bool, lapse: float = 0.0) -> FloatArray:
    """Log probabilities of the classes, or of each label, from class scores over temperature.

    With the probability ``lapse`` a class is random.
    """
    return _log_softmax(scaled, lapse) if exclusive else _log_of_labels(scaled, lapse)[:, :, 1]


def _log_of_labels(scores: FloatArray, lapse: float) -> FloatArray:
    """Log probabilities that each label is absent and present, (M, K, 2)."""
    return _log_softmax(scores.reshape(-1, 1), lapse).reshape(*scores.shape, 2)


def _log_softmax(scores: FloatArray, lapse: float = 0.0) -> FloatArray:
    """Log probabilities of the classes; two columns for a single class score."""
    if scores.shape[1] == 1:
        log_p = np.concatenate([log_expit(-scores), log_expit(scores)], axis=1)
    else:
        log_p = np.asarray(log_softmax(scores, axis=1))
    if lapse == 0.0:
        return log_p
    return np.asarray(np.log((1.0 - lapse) * np.exp(log_p) + lapse / log_p.shape[1]))


def weigh_metric(
    problem: Problem, metric: MetricName, units: FloatArray, split: Split, *, by_fold: bool
) -> Problem:
    """The problem with weights of the metric from its labelled samples; without, if it is large."""
    if is_large(problem.X):
        return problem
    if issparse(problem.X):
        units = np.full(problem.X.shape[1], 1.0 / np.abs(problem.X.data).max())
    # In the order of folds, a subset of the samples has as many of each.
    order = np.lexsort((split.keys, split.fold))
    order = order[problem.observed[split.index[order]].any(axis=1)]
    known = problem.subset(split.index[order])
    classes = class_index(known.Y, known.exclusive)
    X = as_dense(known.X)
    groups = None if split.groups is None else split.groups[order]
    share = effective_share(X, classes, groups)
    weights = choose_weights(
        metric,
        X,
        classes,
        units,
        split.fold[order],
        by_fold=by_fold,
        share=share,
    )
    return replace(problem, units=units, metric_weights=weights, share=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutFold:
    """Whitened features of a held-out fold, and of its training samples with their signs."""

    signs: FloatArray  # (N, K)
    training: Whitened  # (N, B)
    held_out: Whitened  # (M, B)
    n_components: int | None  # as of `subspace.fit_subspace`
    multiclass: bool  # as of `subspace.Settings`

    @classmethod
    def of(cls, problem: Problem, split: Split, number: int) -> "HeldOutFold":
        """The metric is learned, and its candidates weighted, without the fold."""
        own = split.fold == number
        training = problem.subset(np.flatnonzero(~own))
        metric, signs = learn_metric(training, 1 + number)
        return cls(
            signs=signs,
            training=whiten(metric, training.X),
            held_out=whiten(metric, problem.X[own]),
            n_components=problem.n_shared,
            multiclass=problem.multiclass,
        )


def fit_fold(task: tuple[HeldOutFold, float, SubspaceState | None]) -> SubspaceState:
    """Fit of a cost without a held-out fold, from that of another cost if there is one."""
    fold, cost, start = task
    fit = subspace.fit_subspace(
        fold.training,
        fold.signs,
        n_components=fold.n_components,
        settings=subspace.Settings(cost=cost, multiclass=fold.multiclass),
        start=start,
        tol=PATH_TOL,
        max_iter=PATH_ITER,
    )
    if fit.interrupted:
        raise KeyboardInterrupt
    return fit.posterior


def choose_cost(
    problem: Problem,
    split: Split,
    costs: Sequence[float],
    *,
    n_jobs: int | None = 1,
    progressbar: bool = False,
) -> Selection:
    """Weights of the costs, and predictions of each fold at the mean cost by the other folds."""
    problem = problem.subset(split.index)
    exclusive = problem.exclusive
    numbers = [int(split.fold[rows[0]]) for rows in split.rows]
    run = partial(run_tasks, n_jobs=n_jobs, what="BM2PCA, folds", progressbar=progressbar)
    folds = run(partial(HeldOutFold.of, problem, split), numbers).complete()
    fits: dict[float, list[SubspaceState]] = {}

    def fit_folds(own: Sequence[float]) -> tuple[list[SubspaceState], FloatArray]:
        """Fits at a cost of each fold, from those of the nearest one; held-out class scores."""
        tasks = []
        for number, (fold, cost) in enumerate(zip(folds, own, strict=True)):
            nearest = min(fits, key=lambda other: abs(np.log(other / cost)), default=None)
            tasks.append((fold, cost, None if nearest is None else fits[nearest][number]))
        found = run(fit_fold, tasks).complete()
        pairs = zip(found, folds, strict=True)
        return found, np.concatenate([state.scores(fold.held_out) for state, fold in pairs])

    parts = []
    for cost in costs:
        found, part = fit_folds([cost] * len(folds))
        fits[cost] = found
        parts.append(part)
    scores = np.stack(parts)
    truth = class_index(problem.Y[split.held_out], exclusive)
    fold, groups = split.units
    # A single fold, of very few samples, chooses for itself.
    others = [fold != number if len(numbers) > 1 else fold == number for number in numbers]
    predicted = scores[0]
    if len(costs) > 1:
        means = [
            mean_cost(costs, average(scores[:, other], truth[other], exclusive, problem.share))
            for other in others
        ]
        _, predicted = fit_folds(means)

    def temperature(chosen: BoolArray | slice) -> float:
        units = None if groups is None else groups[chosen]
        labels = known_labels(predicted[chosen], truth[chosen], exclusive, units)
        return probable_temperature(*labels)

    nested = np.empty_like(predicted)
    for number, other in zip(numbers, others, strict=True):
        own = fold == number
        nested[own] = predicted[own] / temperature(other)
    return replace(
        best_of(scores, truth, exclusive),
        weight=average(scores, truth, exclusive, problem.share),
        temperature=temperature(slice(None)),
        held_out=judge(nested, truth, exclusive, LAPSE, groups)[1],
        log_proba=log_probabilities(nested, exclusive, LAPSE),
    )


def mean_cost(costs: Sequence[float], weight: FloatArray) -> float:
    """Geometric mean, by weights of sum one."""
    return float(np.prod(np.array(costs) ** weight))
