"""Engine of the recommended model: its mode, with cost and calibration by held-out samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax

from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.posterior import (
    BM2PCAPosterior,
    SparseMetric,
    is_large,
    link_of,
    whiten,
    whiten_with_scale,
)
from bsdr_models.bm2pca.subspace import SubspaceState, Whitened, signs_of
from bsdr_models.bm2pca.transduction import fit_responsibilities
from bsdr_models.data.training import Fold, Training
from bsdr_models.estimators.calibration import (
    Calibration,
    Judged,
    Likelihoods,
    TemperaturePrior,
    judge,
)
from bsdr_models.inference.result import Result
from bsdr_models.inference.tasks import run_tasks
from bsdr_models.learned_metric.metric import ClassBasis, Metric, weigh
from bsdr_models.learned_metric.weights import SHARPNESS
from bsdr_models.numerics.arrays import BoolArray, FloatArray
from bsdr_models.numerics.folds import make_folds
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.scaling import as_dense

# Most labelled samples of the folds.
MOST_SAMPLES = 1250
# Held-out samples after which folds are skipped: the standard error of the mean log loss is 0.05.
ENOUGH_SAMPLES = 500
# Prior of log T, in units of the root mean square of the class scores, from the best temperatures
# of new samples of ten data sets, and wide enough for those of weak signals, which are above one.
LOG_T = TemperaturePrior(mean=-1.0, sd=1.0)
# Variance of the noise of a regression on whitened features, whose mean square length is one.
NOISE = 0.1
# Gain of an iteration, relative to the objective, and iterations at which fits of folds stop. They
# take 1 / 6 of the time to convergence, with the same costs, temperature and accuracy.
OF_FOLD = {"tol": 1e-8, "max_iter": 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class FitSettings:
    """What the fits to all samples and to folds have in common."""

    n_components: int  # of the subspace, at most
    multiclass: bool  # whether the loss is the hinge of all classes
    exclusive: bool  # whether a sample has one class


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Whitened training samples, with signs, also of unlabelled samples of nearly certain class."""

    metric: Metric | SparseMetric
    A: Whitened  # (N, B)
    signs: FloatArray  # times the weights of the samples, (N, K)
    settings: FitSettings

    @classmethod
    def of(cls, training: Training, settings: FitSettings, fold: Fold | None = None) -> "Task":
        """From all samples, or those that are not in a fold."""
        assert training.classes is not None
        rest = np.arange(len(training.keys))
        rest = rest if fold is None else np.flatnonzero(~training.out(fold))
        X = training.X[rest]
        signs = signs_of(training.classes[rest], training.n_classes)
        signs *= training.counts[rest][:, None]
        metric: Metric | SparseMetric
        if is_large(X):
            known = (signs != 0.0).any(axis=1)
            metric = SparseMetric.learn(X[known], np.abs(signs[known]).max(axis=1))
            return cls(metric=metric, A=metric.whiten(X), signs=signs, settings=settings)
        shares = None
        if uses_unlabelled(X, signs, settings.exclusive):
            groups = None if training.groups is None else training.groups[rest]
            inner = make_folds(training.keys[rest], training.classes[rest], groups)
            signs, shares = fit_responsibilities(as_dense(X), signs, inner)
        if shares is None:
            metric = training.metric(fold)
        else:
            used = (signs != 0.0).any(axis=1)
            basis = ClassBasis.of_probabilities(shares[used])
            weights = training.metric_weights(fold)
            metric = Metric.learn(as_dense(X[used]), basis, weights, training.units)
        return cls(metric=metric, A=whiten(metric, X), signs=signs, settings=settings)

    @property
    def known(self) -> tuple[FloatArray, float] | None:
        """Root of the covariance of coefficients, (B, B), and variance of a new sample; or None."""
        A = self.A
        if A.shape[1] > subspace.MAX_AXES or not isinstance(A, np.ndarray):
            return None
        weights = np.abs(self.signs).max(axis=1)
        precision = np.eye(A.shape[1]) + (A.T * weights) @ A / NOISE
        root = np.linalg.inv(cholesky(precision, name="precision of coefficients")).T
        n = max(weights.sum(), np.count_nonzero(weights))
        # Of a new sample by generalised cross-validation.
        leverage = float(weights @ np.sum((A @ root) ** 2, axis=1)) / (NOISE * n)
        return root, NOISE * leverage / (1.0 - leverage)

    def fit(
        self, cost: float, start: SubspaceState | None = None, **options: Any
    ) -> Result[SubspaceState]:
        """Mode at a cost."""
        settings = subspace.Settings(cost=cost, multiclass=self.settings.multiclass)
        return subspace.fit_subspace(
            self.A,
            self.signs,
            n_components=self.settings.n_components,
            settings=settings,
            start=start,
            **options,
        )


def uses_unlabelled(X: Any, signs: FloatArray, exclusive: bool) -> bool:
    """Whether samples without a class may be used as those of nearly certain class."""
    many = min(X.shape) > subspace.MAX_AXES
    return exclusive and not many and bool((signs == 0.0).all(axis=1).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Cost and calibration, and how the costs compare; held-out predictions are judged."""

    cost: float
    weight: FloatArray  # of each cost, (G,)
    log_loss: FloatArray  # of held-out samples at each cost, (G,)
    judged: Judged


def select(
    training: Training,
    settings: FitSettings,
    costs: Sequence[float],
    *,
    n_jobs: int | None = 1,
    progressbar: bool = False,
) -> Selected:
    """Mean cost by the likelihood of held-out samples, and predictions of each by the others."""
    assert training.classes is not None
    folds = training.folds(ENOUGH_SAMPLES)
    divisions = [np.full(len(training.keys), -1) for _ in training.divisions]
    for division, number in folds:
        divisions[division][training.divisions[division] == number] = number
    run = partial(run_tasks, n_jobs=n_jobs, what="BM2PCA, folds", progressbar=progressbar)
    tasks = run(partial(Task.of, training, settings), folds).complete()
    new = [
        whiten_with_scale(task.metric, task.known, training.X[training.out(fold)])
        for task, fold in zip(tasks, folds, strict=True)
    ]
    fits: dict[float, list[SubspaceState]] = {}

    def scores(own: Sequence[float]) -> list[FloatArray]:
        """Held-out class scores (N, K) of each division, at a cost of each fold."""
        starts: list[SubspaceState | None] = []
        for number, cost in enumerate(own):
            nearest = min(fits, key=lambda other: abs(np.log(other / cost)), default=None)
            starts.append(None if nearest is None else fits[nearest][number])
        found = run(_fit_fold, list(zip(tasks, own, starts, strict=True))).complete()
        if len(set(own)) == 1:
            fits[own[0]] = found
        n_scores = found[0].weights.shape[1]
        every = [np.full((len(training.keys), n_scores), np.nan) for _ in divisions]
        for fold, state, (A, size) in zip(folds, found, new, strict=True):
            every[fold[0]][training.out(fold)] = state.scores(A) / size
        return every

    y = training.classes
    link = link_of(settings.exclusive)
    counts = training.counts
    by_cost = [scores([cost] * len(folds)) for cost in costs]
    size = spread(by_cost, settings.exclusive, counts)
    tables = [
        Likelihoods.of([own / size for own in each], y, divisions, link, LOG_T, counts)
        for each in by_cost
    ]

    def weights(used: BoolArray) -> FloatArray:
        """Weights of the costs by some of the samples (N,).

        A cost at which the subspace is empty predicts the class frequencies, with which
        predictions are mixed anyhow: costs that are worse than these count alike.
        """
        evidence = np.array([table.log_evidence(used) for table in tables])
        frequencies = tables[0].of_frequency[used].sum()
        return softmax(SHARPNESS * training.share * np.maximum(evidence, frequencies))

    def mean_cost(used: BoolArray) -> float:
        """Geometric mean by these weights."""
        return float(np.prod(np.array(costs) ** weights(used)))

    held_out = tables[0].held_out
    chosen = by_cost[0]
    if len(costs) > 1:
        others = [held_out & ~training.out(fold) for fold in folds]
        chosen = scores([mean_cost(own if own.any() else held_out) for own in others])
    size = spread([chosen], settings.exclusive, counts)
    judged = judge(
        [own / size for own in chosen],
        y,
        divisions,
        link,
        LOG_T,
        groups=training.groups,
        share=training.share,
        weights=counts,
    )
    calibration = judged.calibration
    calibration = replace(calibration, temperature=size * calibration.temperature)
    return Selected(
        cost=mean_cost(held_out),
        weight=weights(held_out),
        log_loss=np.array([-t.log_evidence(held_out) / counts[held_out].sum() for t in tables]),
        judged=replace(judged, calibration=calibration),
    )


def _fit_fold(arguments: tuple[Task, float, SubspaceState | None]) -> SubspaceState:
    """Fit to the training samples of a fold, from that of another cost if there is one."""
    task, cost, start = arguments
    fit = task.fit(cost, start, **OF_FOLD)
    if fit.interrupted:
        raise KeyboardInterrupt
    return fit.posterior


def spread(scores: Sequence[Sequence[FloatArray]], exclusive: bool, counts: FloatArray) -> float:
    """Root mean square of held-out class scores about their mean over classes; 1 if it is zero.

    Of samples of weights (N,). Two classes, and the two values of each label, have one score.
    """
    values = np.concatenate([own for each in scores for own in each])
    counts = np.tile(counts, len(values) // len(counts))
    known = ~np.isnan(values).any(axis=1)
    if not values[known].any():
        return 1.0
    values = weigh(values[known], counts[known] / counts[known].mean())
    several = exclusive and values.shape[1] > 1
    centred = values - values.mean(axis=1, keepdims=True) if several else 0.5 * values
    return float(np.sqrt(np.mean(centred**2)))


def fit_all(
    task: Task, cost: float, calibration: Calibration, max_iter: int
) -> Result[BM2PCAPosterior]:
    """Fit to all samples."""
    fit: Result[Any] = task.fit(cost, max_iter=max_iter)
    given = subspace.Settings(cost=cost, multiclass=task.settings.multiclass)
    posterior = BM2PCAPosterior(
        metric=task.metric,
        state=fit.posterior,
        weight_cov=subspace.weight_covariance(fit.posterior, task.A, task.signs, given),
        projection_cov=subspace.projection_covariance(fit.posterior, task.A, task.signs, given),
        known=task.known,
        settings=given,
        calibration=calibration,
        exclusive=task.settings.exclusive,
    )
    return replace(fit, posterior=posterior)
