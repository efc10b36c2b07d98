"""The recommended model: an embedding by features alone, in the within-class metric."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.paper.factor_model import Rows
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
from bsdr_models.tasks import by_task

# Most axes of a metric for which the covariance of the projection is computed.
MAX_AXES = 2000
# Gain of an iteration, relative to the objective, at which to stop.
TOL = 1e-10
# Limits of the optimisation in cross-validation. They take 1 / 6 of the time, and the order of the
# candidates, the temperature and the accuracy of the chosen one are those at convergence.
PATH_TOL, PATH_ITER = 1e-8, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SubspacePosterior:
    """One subspace in the within-class metric.

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

    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        return self.state.latent(self.metric.transform(X))

    def embed(self, X: Rows) -> LatentCoordinates:
        """Latent coordinates; their covariance neglects correlations of Q's columns and H."""
        A = self.metric.transform(X)
        mean = self.state.latent(A)
        variance = np.full(mean.shape, self.settings.latent_variance)
        if self.projection_cov is not None:
            variance += np.einsum("mr,krs,ms->mk", A, self.projection_cov, A, optimize=True)
        variance += self.metric.outside(X)[:, None] / self.settings.projection_precision
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean class scores at latent coordinates (G, R): (G, K)."""
        return self.state.scores_at(latent)

    def score_means(self, X: Rows) -> FloatArray:
        """Mean class scores, (M, K)."""
        return self.state.scores(self.metric.transform(X))

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""
        return self.state.weights[1:]

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws of the classifier given the subspace, by name."""
        half = cholesky(self.weight_cov, name="weight covariance")
        noise = half @ rng.standard_normal((*half.shape[:2], n_draws))  # (K, 1 + R, S)
        full = self.state.weights + noise.T
        coef = self._over_features(full[:, 1:])
        intercept = full[:, 0] - self.metric.mean @ coef
        return {"weights": full[:, 1:], "bias": full[:, 0], "coef": coef, "intercept": intercept}

    def _over_features(self, weights: FloatArray) -> FloatArray:
        """Weights of features, (S, P, K), from those of latent coordinates, (S, R, K)."""
        return self.projection @ weights

    def score_moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the class scores, each (M, K)."""
        A = self.metric.transform(X)
        variance = subspace.score_variance(self.state, A, self.weight_cov, self.settings)
        return self.state.scores(A), variance

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to latent coordinates, (P, R)."""
        assert self.state.projection is not None
        return self.metric.back(self.state.projection)

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of the projection, (P, R); NaN without ``projection_cov``."""
        if self.projection_cov is None:
            return np.full(self.projection.shape, np.nan)
        return _feature_sd(self.metric, self.projection_cov)


def _feature_sd(metric: Metric | TruncatedMetric, covariances: FloatArray) -> FloatArray:
    """Standard deviations over features, (P, K), from covariances over axes, (K, A, A)."""
    basis = metric.back(np.eye(covariances.shape[-1]))  # (P, A)
    each = [np.sqrt(np.sum((basis @ cov) * basis, axis=1)) for cov in covariances]
    return np.stack(each, axis=1)


class OneVsRestPosterior(SubspacePosterior):
    """One classifier for each outcome in the within-class metric; scores are the embedding."""

    def latent(self, X: Rows) -> FloatArray:
        """Mean class scores, (M, K)."""
        return self.score_means(X)

    def embed(self, X: Rows) -> LatentCoordinates:
        """Class scores as latent coordinates, independent given the features."""
        mean, variance = self.score_moments(X)
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """The same: latent coordinates are class scores."""
        return latent

    def score_moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the class scores, each (M, K)."""
        mean, variance = SubspacePosterior.score_moments(self, X)
        outside = self.metric.outside(X)[:, None] / self.settings.weight_precision
        return mean, variance + outside

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, which are the embedding: (K, K)."""
        return np.eye(self.state.weights.shape[1])

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws of the classifiers in the row space of the training samples, by name."""
        draws = SubspacePosterior.draw(self, n_draws, rng)
        return {name: draws[name] for name in ("coef", "intercept")}

    def _over_features(self, weights: FloatArray) -> FloatArray:
        return np.stack([self.metric.back(each) for each in weights])

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to class scores, (P, K)."""
        return self.metric.back(self.state.weights[1:])

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of the projection, (P, K)."""
        return _feature_sd(self.metric, self.weight_cov[:, 1:, 1:])


def learn_within_class(task: Task) -> tuple[Spectrum | TruncatedSpectrum, FloatArray]:
    """Spectrum of the within-class scatter, and signs (N, K) for the margins.

    Both use unlabelled samples of nearly certain class (`transduction`),
    if classes exclude each other; with several tasks, those unlabelled in one of them.
    """
    if len(task.sizes) > 1:
        signs = np.concatenate(
            [_pseudo_labels(task, own) for own in by_task(task.Y, task.sizes)], axis=1
        )
        return fit_spectrum(task.X, signs, n_features=task.n_features[0]), signs
    labelled = task.observed.any(axis=1)
    alone = (task.Y[labelled] > 0.0).sum(axis=1) == 1
    exclusive = task.Y.shape[1] == 1 or (alone.all() and task.observed[labelled].all())
    spectrum = partial(fit_spectrum, task.X, task.Y, n_features=task.n_features[0])
    if labelled.all() or not exclusive or min(task.X.shape) > MAX_AXES:
        return spectrum(), task.Y
    found = fit_responsibilities(task.X, task.Y)
    if found.shares is None:
        return spectrum(), task.Y
    shares, n_features = found.shares, task.n_features[0]
    seen = Spectrum.fit(task.X, task.Y, responsibilities=shares, n_features=n_features)
    return seen, found.signs


def _pseudo_labels(task: Task, Y: FloatArray) -> FloatArray:
    """Signs of one task with those of unlabelled samples of nearly certain class."""
    if not Y.any() or min(task.X.shape) > MAX_AXES:
        return Y
    return fit_responsibilities(task.X, Y).signs


def metric_of(spectrum: Spectrum | TruncatedSpectrum, scale: float) -> Metric | TruncatedMetric:
    """Metric of a scale; the Euclidean one without within-class variation."""
    return spectrum.metric(scale if spectrum.varies else np.inf)


def path_scores(
    task: Task, X: Rows, rng: np.random.Generator, *, candidates: Sequence[Candidate]
) -> FloatArray:
    """Class scores of new samples under fits of every candidate to the task, (G, M, K)."""
    spectrum, signs = learn_within_class(task)
    scales = {each["metric_scale"] for each in candidates}
    metrics = {scale: metric_of(spectrum, scale) for scale in scales}
    scores = []
    for each in candidates:
        metric = metrics[each["metric_scale"]]
        fit = _fit_classifiers(task, metric.A, signs, each["C"], PATH_TOL, PATH_ITER)
        if fit.interrupted:
            raise KeyboardInterrupt
        scores.append(fit.state.scores(metric.transform(X)))
    return np.stack(scores)


def _fit_classifiers(
    task: Task, A: Any, signs: FloatArray, cost: float, tol: float, max_iter: int
) -> subspace.Fit:
    """Subspace, or classifiers one-vs-rest, in metric coordinates (N, R)."""
    return subspace.fit_subspace(
        A,
        signs,
        n_components=task.n_components if task.strategy == "shared" else None,
        settings=_settings(task, cost),
        tol=tol,
        max_iter=max_iter,
    )


def fit_label_free(task: Task, *, cost: float, scale: float, max_iter: int) -> FitResult:
    """Fit in the metric of a given scale."""
    spectrum, signs = learn_within_class(task)
    metric = metric_of(spectrum, scale)
    fit = _fit_classifiers(task, metric.A, signs, cost, TOL, max_iter)
    settings, shared = _settings(task, cost), task.strategy == "shared"
    posterior = (SubspacePosterior if shared else OneVsRestPosterior)(
        metric=metric,
        state=fit.state,
        weight_cov=subspace.weight_covariance(fit.state, metric.A, signs, settings),
        projection_cov=_projection_covariance(fit.state, metric.A, signs, settings)
        if shared
        else None,
        settings=settings,
    )
    return FitResult(
        posterior=posterior,
        factor_model=None,
        elbo=fit.objective,
        terms={"objective": fit.objective[-1:]},
        converged=fit.converged,
        interrupted=fit.interrupted,
    )


def _settings(task: Task, cost: float) -> subspace.Settings:
    return subspace.Settings(cost=cost, multiclass=task.multiclass, task_sizes=task.sizes)


def _projection_covariance(
    state: subspace.SubspaceState, A: FloatArray, Y: FloatArray, settings: subspace.Settings
) -> FloatArray | None:
    r"""Conditional covariance of each column of Q, (R, A, A).

    It is that of the conjugate factor at the maximum,
    :math:`(\rho I + C^2 \sum_{nc} w_{nc} h_{jc}^2 a_n a_n^\top)^{-1}`.
    """
    if A.shape[1] > MAX_AXES:
        return None
    curvature = subspace.curvature(state, A, Y, settings)  # (N, K)
    weights = curvature @ (state.weights[1:] ** 2).T  # (N, R)
    eye = settings.projection_precision * np.eye(A.shape[1])
    stack = np.stack([eye + (A * own[:, None]).T @ A for own in weights.T])
    return inv_spd(stack, name="projection precision")[0]
