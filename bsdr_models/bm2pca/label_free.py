"""The recommended model: an embedding by features alone, in the within-class metric."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.settings import HingeLoss
from bsdr_models.bm2pca.task import Candidate, FitResult, Task
from bsdr_models.bm2pca.transduction import fit_responsibilities
from bsdr_models.bm2pca.truncated_metric import (
    TruncatedMetric,
    TruncatedSpectrum,
    fit_spectrum,
)
from bsdr_models.bm2pca.within_class_metric import Metric, Spectrum
from bsdr_models.numerics.linalg import cholesky, inv_spd
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.row_space import Rows
from bsdr_models.tasks import by_task

# Most axes of a metric for which the covariance of the projection is computed.
MAX_AXES = 2000
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SubspacePosterior:
    """One subspace in the within-class metric, or one classifier for each outcome.

    Without a projection in the state, one-vs-rest, class scores are the latent coordinates.

    state
        Q and H.
    weight_cov
        Covariance of each column of H given Q, (K, 1 + R, 1 + R).
    projection_cov
        Covariance of each column of Q given H and the other columns, (R, A, A) over the A axes
        of the metric; None with too many axes.
    """

    metric: Metric | TruncatedMetric
    state: subspace.SubspaceState
    weight_cov: FloatArray
    projection_cov: FloatArray | None
    settings: subspace.Settings
    factor_model: ClassVar[None] = None

    @property
    def one_vs_rest(self) -> bool:
        """Whether each outcome has a classifier of its own."""
        return self.state.projection is None

    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        A = self.metric.transform(X)
        return self.state.scores(A) if self.one_vs_rest else self.state.latent(A)

    def embed(self, X: Rows) -> LatentCoordinates:
        """Latent coordinates; their covariance neglects correlations of Q's columns and H."""
        if self.one_vs_rest:
            mean, variance = self.score_moments(X)
        else:
            A = self.metric.transform(X)
            mean = self.state.latent(A)
            variance = np.full(mean.shape, self.settings.latent_variance)
            if self.projection_cov is not None:
                variance += np.einsum("mr,krs,ms->mk", A, self.projection_cov, A, optimize=True)
            variance += self.metric.outside(X)[:, None] / self.settings.projection_precision
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean class scores at latent coordinates (G, R): (G, K)."""
        return latent if self.one_vs_rest else self.state.scores_at(latent)

    def score_means(self, X: Rows) -> FloatArray:
        """Mean class scores, (M, K)."""
        return self.scores_at(self.latent(X))

    def score_moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the class scores, each (M, K)."""
        A = self.metric.transform(X)
        variance = subspace.score_variance(self.state, A, self.weight_cov, self.settings)
        if self.one_vs_rest:
            variance = variance + self.metric.outside(X)[:, None] / self.settings.weight_precision
        return self.state.scores(A), variance

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""
        weights = self.state.weights
        return np.eye(weights.shape[1]) if self.one_vs_rest else weights[1:]

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws of the classifiers, given the subspace, by name."""
        half = cholesky(self.weight_cov, name="weight covariance")
        noise = half @ rng.standard_normal((*half.shape[:2], n_draws))  # (K, 1 + R, S)
        full = self.state.weights + noise.T
        weights, bias = full[:, 1:], full[:, 0]
        if self.one_vs_rest:
            coef = np.stack([self.metric.back(each) for each in weights])
            return {"coef": coef, "intercept": bias - self.metric.mean @ coef}
        coef = self.projection @ weights
        intercept = bias - self.metric.mean @ coef
        return {"weights": weights, "bias": bias, "coef": coef, "intercept": intercept}

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to latent coordinates, (P, R)."""
        Q = self.state.projection
        return self.metric.back(self.state.weights[1:] if Q is None else Q)

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of the projection, (P, R); NaN with too many axes."""
        covariances = self.weight_cov[:, 1:, 1:] if self.one_vs_rest else self.projection_cov
        if covariances is None:
            return np.full(self.projection.shape, np.nan)
        basis = self.metric.back(np.eye(covariances.shape[-1]))  # (P, A)
        each = [np.sqrt(np.sum((basis @ cov) * basis, axis=1)) for cov in covariances]
        return np.stack(each, axis=1)


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
    if not labelled.all() and exclusive and min(task.X.shape) <= MAX_AXES:
        classes = fit_responsibilities(task.X, task.Y)
        if (shares := classes.shares) is not None:
            return Spectrum.fit(task.X, task.Y, responsibilities=shares), classes.signs
    return fit_spectrum(task.X, task.Y), task.Y


def _pseudo_labels(task: Task, Y: FloatArray) -> FloatArray:
    """Signs of one task with those of unlabelled samples of nearly certain class."""
    if not Y.any() or min(task.X.shape) > MAX_AXES:
        return Y
    return fit_responsibilities(task.X, Y).signs


def metric_of(spectrum: Spectrum | TruncatedSpectrum, scale: float) -> Metric | TruncatedMetric:
    """Metric of a scale; the Euclidean one without within-class variation."""
    return spectrum.metric(scale if spectrum.varies else np.inf)


def fit_label_free(task: Task, *, cost: float, scale: float, max_iter: int) -> FitResult:
    """Fit in the metric of a given scale."""
    spectrum, signs = learn_within_class(task)
    metric, settings = metric_of(spectrum, scale), task_settings(task, cost)
    fit = subspace.fit_subspace(
        metric.A,
        signs,
        n_components=task.n_components if task.strategy == "shared" else None,
        settings=settings,
        tol=TOL,
        max_iter=max_iter,
    )
    posterior = SubspacePosterior(
        metric=metric,
        state=fit.state,
        weight_cov=subspace.weight_covariance(fit.state, metric.A, signs, settings),
        projection_cov=_projection_covariance(fit.state, metric.A, signs, settings),
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
    metrics = {
        scale: metric_of(spectrum, scale) for scale in {c["metric_scale"] for c in candidates}
    }
    scores = []
    for candidate in candidates:
        metric = metrics[candidate["metric_scale"]]
        fit = subspace.fit_subspace(
            metric.A,
            signs,
            n_components=task.n_components if task.strategy == "shared" else None,
            settings=task_settings(task, candidate["C"]),
            tol=PATH_TOL,
            max_iter=PATH_ITER,
        )
        if fit.interrupted:
            raise KeyboardInterrupt
        scores.append(fit.state.scores(metric.transform(X)))
    return np.stack(scores)


def task_settings(task: Task, cost: float) -> subspace.Settings:
    """Parameters and loss of the objective."""
    return subspace.Settings(cost=cost, multiclass=task.multiclass, task_sizes=task.sizes)


def _projection_covariance(
    state: subspace.SubspaceState, A: FloatArray, Y: FloatArray, settings: subspace.Settings
) -> FloatArray | None:
    r"""Conditional covariance of each column of Q, (R, A, A); None without Q, or too many axes.

    It is that of the conjugate factor at the maximum,
    :math:`(\rho I + C^2 \sum_{nc} w_{nc} h_{jc}^2 a_n a_n^\top)^{-1}`.
    """
    if state.projection is None or A.shape[1] > MAX_AXES:
        return None
    curvature = subspace.curvature(state, A, Y, settings)  # (N, K)
    weights = curvature @ (state.weights[1:] ** 2).T  # (N, R)
    eye = settings.projection_precision * np.eye(A.shape[1])
    stack = np.stack([eye + (A * own[:, None]).T @ A for own in weights.T])
    return inv_spd(stack, name="projection precision")[0]
