"""The recommended model: an embedding by features alone, in the metric of `bsdr_models.metric`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.selection import (
    LAPSE,
    Selection,
    Split,
    at_temperature,
    average,
    best_of,
    class_index,
    judge,
    log_probabilities,
    probable_temperature,
    temperature_of,
)
from bsdr_models.bm2pca.sparse_metric import SparseMetric, as_dense, is_large
from bsdr_models.bm2pca.task import Task
from bsdr_models.bm2pca.transduction import fit_responsibilities
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.inference.result import Result
from bsdr_models.metric import Groups, Metric, MetricName, choose_weights
from bsdr_models.tasks import by_task

# Gain of an iteration, relative to the objective, at which to stop.
TOL = 1e-10
# Limits of the optimisation in cross-validation. They take 1 / 6 of the time, and the order of the
# candidates, the temperature and the accuracy of the chosen one are those at convergence.
PATH_TOL, PATH_ITER = 1e-8, 200


def weigh_metric(
    task: Task, metric: MetricName, units: FloatArray, split: Split, *, by_fold: bool
) -> Task:
    """The task with weights of the metric from its labelled samples; without, if it is large."""
    if is_large(task.X):
        return task
    if issparse(task.X):
        units = np.full(task.X.shape[1], 1.0 / np.abs(task.X.data).max())
    # In the order of folds, a subset of the samples has as many of each.
    order = np.lexsort((split.keys, split.fold))
    order = order[task.observed[split.index[order]].any(axis=1)]
    known = task.subset(split.index[order])
    classes = class_index(known.Y, known.sizes)
    weights = choose_weights(
        metric, as_dense(known.X), classes, units, split.fold[order], by_fold=by_fold
    )
    return replace(task, units=units, metric_weights=weights)


def learn_metric(task: Task, row: int = 0) -> tuple[Metric | SparseMetric, FloatArray]:
    """Metric by a row of the weights, and signs (N, K) for the margins.

    Both use unlabelled samples of nearly certain class (`transduction`).
    """
    signs, shares = pseudo_labels(task)
    used = (signs != 0.0).any(axis=1)
    if task.metric_weights is None or task.units is None:
        return SparseMetric.learn(task.X[used]), signs
    if shares is None:
        groups = Groups.of(class_index(signs[used], task.sizes))
    else:
        groups = Groups.of_probabilities(shares[used])
    X = as_dense(task.X[used])
    return Metric.learn(X, groups, task.metric_weights[row], task.units), signs


def pseudo_labels(task: Task) -> tuple[FloatArray, FloatArray | None]:
    """Signs (N, K) with those of unlabelled samples of nearly certain class.

    Also the class probabilities of the samples used, (N, J), if one task has such samples.
    """
    Y = task.Y
    if is_large(task.X) or min(task.X.shape) > subspace.MAX_AXES:
        return Y, None
    if len(task.sizes) > 1:
        X = as_dense(task.X)
        signs = [fit_responsibilities(X, own).signs for own in by_task(Y, task.sizes)]
        return np.concatenate(signs, axis=1), None
    if task.sizes and not task.observed.all():
        found = fit_responsibilities(as_dense(task.X), Y)
        return found.signs, found.shares
    return Y, None


def fit_label_free(task: Task, *, cost: float, max_iter: int) -> Result:
    """Fit to all samples."""
    metric, signs = learn_metric(task)
    A = subspace.whiten(metric, task.X)
    fit, settings = _maximise(task, A, signs, cost, tol=TOL, max_iter=max_iter)
    posterior = subspace.SubspacePosterior(
        metric=metric,
        state=fit.state,
        weight_cov=subspace.weight_covariance(fit.state, A, signs, settings),
        projection_cov=subspace.projection_covariance(fit.state, A, signs, settings),
        settings=settings,
    )
    return Result(
        posterior=posterior,
        trace=fit.objective,
        converged=fit.converged,
        interrupted=fit.interrupted,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutFold:
    """Whitened features of a held-out fold, and of its training samples with their signs."""

    task: Task
    signs: FloatArray  # (N, K)
    training: Any  # (N, B)
    held_out: Any  # (M, B)

    @classmethod
    def of(cls, task: Task, split: Split, number: int) -> "HeldOutFold":
        """The metric is learned, and its candidates weighted, without the fold."""
        own = split.fold == number
        training = task.subset(np.flatnonzero(~own))
        metric, signs = learn_metric(training, 1 + number)
        return cls(
            task=training,
            signs=signs,
            training=subspace.whiten(metric, training.X),
            held_out=subspace.whiten(metric, task.X[own]),
        )

    def scores(self, cost: float) -> FloatArray:
        """Class scores of the fold, (M, K)."""
        fit, _ = _maximise(
            self.task, self.training, self.signs, cost, tol=PATH_TOL, max_iter=PATH_ITER
        )
        if fit.interrupted:
            raise KeyboardInterrupt
        return fit.state.scores(self.held_out)


def cross_validate(
    task: Task,
    split: Split,
    costs: Sequence[float],
    *,
    n_jobs: int | None = 1,
    progressbar: bool = False,
) -> Selection:
    """Weights of the costs, and predictions of each fold at the mean cost by the other folds."""
    task = task.subset(split.index)
    numbers = [int(split.fold[rows[0]]) for rows in split.rows]

    def compare(number: int) -> tuple[HeldOutFold, FloatArray]:
        fold = HeldOutFold.of(task, split, number)
        return fold, np.stack([fold.scores(cost) for cost in costs])

    def predict(pair: tuple[HeldOutFold, float]) -> FloatArray:
        fold, cost = pair
        return fold.scores(cost)

    options: Any = {"n_jobs": n_jobs, "what": "BM2PCA, folds", "progressbar": progressbar}
    compared = run_tasks(compare, numbers, **options)
    if compared.interrupted:
        raise KeyboardInterrupt
    folds, parts = zip(*compared.results.values(), strict=True)
    scores = np.concatenate(parts, axis=1)
    truth = class_index(task.Y[split.held_out], task.sizes)
    fold, groups = split.units
    predicted = scores[0]
    if len(costs) > 1:
        others = [fold != number for number in numbers]
        means = [
            mean_cost(costs, average(scores[:, other], truth[other], task.sizes))
            for other in others
        ]
        outcome = run_tasks(predict, list(zip(folds, means, strict=True)), **options)
        if outcome.interrupted:
            raise KeyboardInterrupt
        predicted = np.concatenate(list(outcome.results.values()))
    nested = np.empty_like(predicted)
    for number in numbers:
        own = fold == number
        other = ~own if len(numbers) > 1 else own
        units = None if groups is None else groups[other]
        temperature = temperature_of(
            predicted[other], truth[other], task.sizes, probable_temperature, units
        )
        nested[own] = at_temperature(
            predicted[own], np.nan_to_num(temperature, nan=1.0), task.sizes
        )
    return replace(
        best_of(scores, truth, task.sizes),
        weight=average(scores, truth, task.sizes),
        temperature=temperature_of(predicted, truth, task.sizes, probable_temperature, groups),
        held_out=judge(nested, truth, task.sizes, LAPSE, groups)[1],
        log_proba=log_probabilities(nested, 1.0, task.sizes, LAPSE),
    )


def mean_cost(costs: Sequence[float], weight: FloatArray) -> float:
    """Geometric mean, by weights of sum one."""
    return float(np.prod(np.array(costs) ** weight))


def _maximise(
    task: Task, A: Any, signs: FloatArray, cost: float, *, tol: float, max_iter: int
) -> tuple[subspace.Fit, subspace.Settings]:
    """Maximise the objective, of one subspace or of one classifier for each label."""
    n_components = task.n_components if task.strategy == "shared" else None
    settings = subspace.Settings(cost=cost, multiclass=task.multiclass, task_sizes=task.sizes)
    fit = subspace.fit_subspace(
        A, signs, n_components=n_components, settings=settings, tol=tol, max_iter=max_iter
    )
    return fit, settings
