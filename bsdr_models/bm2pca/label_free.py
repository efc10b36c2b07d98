"""The recommended model: an embedding by features alone, in the within-class metric."""

from collections.abc import Sequence

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.bm2pca.task import Candidate, FitResult, Task
from bsdr_models.bm2pca.transduction import fit_responsibilities
from bsdr_models.bm2pca.within_class_metric import (
    Metric,
    Spectrum,
    TruncatedMetric,
    TruncatedSpectrum,
    fit_spectrum,
)
from bsdr_models.numerics.row_space import Rows
from bsdr_models.tasks import by_task

# Gain of an iteration, relative to the objective, at which to stop.
TOL = 1e-10
# Limits of the optimisation in cross-validation. They take 1 / 6 of the time, and the order of the
# candidates, the temperature and the accuracy of the chosen one are those at convergence.
PATH_TOL, PATH_ITER = 1e-8, 200
# Compared costs, the first of which is the fallback. Few samples need one only, or two with the
# hinge of all classes.
COSTS: tuple[float, ...] = (10.0, 1.0, 0.1)
MULTICLASS_COSTS: tuple[float, ...] = (1.0, 3.0, 0.3)
# Compared scales of the metric, and the fallback.
SCALES = (1.0, 10.0, 100.0, np.inf)
SCALE = 10.0


def candidates(
    loss: HingeLoss, metric_scale: float | str, *, wide: bool, multiclass: bool
) -> list[Candidate]:
    """Compared values of C and of the metric scale.

    If samples do not outnumber features (``wide``), any labels are linearly separable, and all
    larger costs lead to about the same fit of the labels one by one.
    """
    costs = MULTICLASS_COSTS if multiclass else COSTS
    if loss.C is None and wide:
        costs = costs[: 1 + multiclass]
    elif not (loss.C is None or loss.C == "cv"):
        costs = (float(loss.C),)
    scales = SCALES if isinstance(metric_scale, str) else (float(metric_scale),)
    return [{"C": cost, "metric_scale": scale} for cost in costs for scale in scales]


def learn_within_class(task: Task) -> tuple[Spectrum | TruncatedSpectrum, FloatArray]:
    """Spectrum of the within-class scatter, and signs (N, K) for the margins.

    Both use unlabelled samples of nearly certain class (`transduction`),
    if classes exclude each other; with several tasks, those unlabelled in one of them.
    """
    if len(task.sizes) > 1:
        signs = np.concatenate(
            [_pseudo_labels(task, own) for own in by_task(task.Y, task.sizes)], axis=1
        )
        return fit_spectrum(task.X, signs), signs
    labelled = task.observed.any(axis=1)
    alone = (task.Y[labelled] > 0.0).sum(axis=1) == 1
    exclusive = task.Y.shape[1] == 1 or (alone.all() and task.observed[labelled].all())
    if not labelled.all() and exclusive and min(task.X.shape) <= subspace.MAX_AXES:
        classes = fit_responsibilities(task.X, task.Y)
        if (shares := classes.shares) is not None:
            return Spectrum.fit(task.X, task.Y, responsibilities=shares), classes.signs
    return fit_spectrum(task.X, task.Y), task.Y


def _pseudo_labels(task: Task, Y: FloatArray) -> FloatArray:
    """Signs of one task with those of unlabelled samples of nearly certain class."""
    if not Y.any() or min(task.X.shape) > subspace.MAX_AXES:
        return Y
    return fit_responsibilities(task.X, Y).signs


def metric_of(spectrum: Spectrum | TruncatedSpectrum, scale: float) -> Metric | TruncatedMetric:
    """Metric of a scale; the Euclidean one without within-class variation."""
    return spectrum.metric(scale if spectrum.varies else np.inf)


def fit_label_free(task: Task, *, cost: float, scale: float, max_iter: int) -> FitResult:
    """Fit in the metric of a given scale."""
    spectrum, signs = learn_within_class(task)
    metric, settings = metric_of(spectrum, scale), task_settings(task, cost)
    fit = _maximise(task, metric, signs, cost, tol=TOL, max_iter=max_iter)
    posterior = subspace.SubspacePosterior(
        metric=metric,
        state=fit.state,
        weight_cov=subspace.weight_covariance(fit.state, metric.A, signs, settings),
        projection_cov=subspace.projection_covariance(fit.state, metric.A, signs, settings),
        settings=settings,
    )
    return FitResult(
        posterior=posterior,
        trace=fit.objective,
        converged=fit.converged,
        interrupted=fit.interrupted,
    )


def path_scores(
    task: Task, X: Rows, candidates: Sequence[Candidate], rng: np.random.Generator
) -> FloatArray:
    """Class scores of new samples under fits of every candidate to the task, (G, M, K)."""
    spectrum, signs = learn_within_class(task)
    scales = {candidate["metric_scale"] for candidate in candidates}
    metrics = {scale: metric_of(spectrum, scale) for scale in scales}
    scores = []
    for candidate in candidates:
        metric = metrics[candidate["metric_scale"]]
        fit = _maximise(task, metric, signs, candidate["C"], tol=PATH_TOL, max_iter=PATH_ITER)
        if fit.interrupted:
            raise KeyboardInterrupt
        scores.append(fit.state.scores(metric.transform(X)))
    return np.stack(scores)


def _maximise(
    task: Task,
    metric: Metric | TruncatedMetric,
    signs: FloatArray,
    cost: float,
    *,
    tol: float,
    max_iter: int,
) -> subspace.Fit:
    """Maximise the objective, of one subspace or of one classifier for each label."""
    return subspace.fit_subspace(
        metric.A,
        signs,
        n_components=task.n_components if task.strategy == "shared" else None,
        settings=task_settings(task, cost),
        tol=tol,
        max_iter=max_iter,
    )


def task_settings(task: Task, cost: float) -> subspace.Settings:
    """Parameters and loss of the objective."""
    return subspace.Settings(cost=cost, multiclass=task.multiclass, task_sizes=task.sizes)
