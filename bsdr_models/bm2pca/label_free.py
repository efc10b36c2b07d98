"""The recommended model: an embedding by features alone, in the within-class metric."""

from collections.abc import Sequence

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.task import Candidate, Task
from bsdr_models.bm2pca.transduction import fit_responsibilities
from bsdr_models.bm2pca.within_class_metric import (
    Metric,
    SparseMetric,
    Spectrum,
    is_large,
)
from bsdr_models.inference.result import Result
from bsdr_models.numerics.row_space import Rows
from bsdr_models.tasks import by_task

# Gain of an iteration, relative to the objective, at which to stop.
TOL = 1e-10
# Limits of the optimisation in cross-validation. They take 1 / 6 of the time, and the order of the
# candidates, the temperature and the accuracy of the chosen one are those at convergence.
PATH_TOL, PATH_ITER = 1e-8, 200


def learn_within_class(task: Task) -> tuple[Spectrum | SparseMetric, FloatArray]:
    """Spectrum of the within-class scatter, if affordable, and signs (N, K) for the margins.

    Both use unlabelled samples of nearly certain class (`transduction`),
    if classes exclude each other; with several tasks, those unlabelled in one of them.
    """
    X, Y, labelled = task.X, task.Y, task.observed.any(axis=1)
    small = min(X.shape) <= subspace.MAX_AXES
    if small and len(task.sizes) > 1:
        signs = [fit_responsibilities(X, own).signs for own in by_task(Y, task.sizes)]
        Y = np.concatenate(signs, axis=1)
    elif small and not labelled.all() and _exclusive(Y[labelled]):
        classes = fit_responsibilities(X, Y)
        if (shares := classes.shares) is not None:
            return Spectrum.fit(X, Y, responsibilities=shares), classes.signs
    return SparseMetric.fit(X, Y) if is_large(X, Y) else Spectrum.fit(X, Y), Y


def _exclusive(Y: FloatArray) -> bool:
    """Whether signs of labelled samples, (N, K), have one class each."""
    return Y.shape[1] == 1 or bool(((Y > 0.0).sum(axis=1) == 1).all() and Y.all())


def fit_label_free(task: Task, *, cost: float, scale: float, max_iter: int) -> Result:
    """Fit in the metric of a given scale."""
    spectrum, signs = learn_within_class(task)
    metric = spectrum.metric(scale)
    fit, settings = _maximise(task, metric, signs, cost, tol=TOL, max_iter=max_iter)
    posterior = subspace.SubspacePosterior(
        metric=metric,
        state=fit.state,
        weight_cov=subspace.weight_covariance(fit.state, metric.A, signs, settings),
        projection_cov=subspace.projection_covariance(fit.state, metric.A, signs, settings),
        settings=settings,
    )
    return Result(
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
    metrics = {scale: spectrum.metric(scale) for scale in {c["metric_scale"] for c in candidates}}
    scores = []
    for candidate in candidates:
        metric = metrics[candidate["metric_scale"]]
        fit, _ = _maximise(task, metric, signs, candidate["C"], tol=PATH_TOL, max_iter=PATH_ITER)
        if fit.interrupted:
            raise KeyboardInterrupt
        scores.append(fit.state.scores(metric.transform(X)))
    return np.stack(scores)


def _maximise(
    task: Task,
    metric: Metric | SparseMetric,
    signs: FloatArray,
    cost: float,
    *,
    tol: float,
    max_iter: int,
) -> tuple[subspace.Fit, subspace.Settings]:
    """Maximise the objective, of one subspace or of one classifier for each label."""
    n_components = task.n_components if task.strategy == "shared" else None
    settings = subspace.Settings(cost=cost, multiclass=task.multiclass, task_sizes=task.sizes)
    fit = subspace.fit_subspace(
        metric.A,
        signs,
        n_components=n_components,
        settings=settings,
        tol=tol,
        max_iter=max_iter,
    )
    return fit, settings
