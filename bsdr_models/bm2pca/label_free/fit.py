"""Label-free variant: the embedding depends on features alone, in the within-class metric."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca.conjugate.factor_model import Rows
from bsdr_models.bm2pca.label_free import one_vs_rest, one_vs_rest_fit, subspace
from bsdr_models.bm2pca.label_free.transduction import fit_responsibilities
from bsdr_models.bm2pca.label_free.truncated_metric import (
    TruncatedMetric,
    TruncatedSpectrum,
    fit_spectrum,
)
from bsdr_models.bm2pca.label_free.within_class_metric import Metric, Spectrum
from bsdr_models.bm2pca.task import FitResult, Task
from bsdr_models.numerics.linalg import inv_spd
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.tasks import by_task

# Most axes of a metric for which the covariance of the projection is computed.
MAX_AXES = 2000
# Limits of the optimisation in cross-validation. They take 1 / 6 of the time, and the order of the
# candidates, the temperature and the accuracy of the chosen one are those at convergence.
PATH_ITER, PATH_TOL, PATH_SUBSPACE_TOL = 200, 1e-3, 1e-8


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

    def score_moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the class scores, each (M, K)."""
        A = self.metric.transform(X)
        variance = subspace.score_variance(self.state, A, self.weight_cov, self.settings)
        return self.state.scores(A), variance

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to latent coordinates, (P, R)."""
        return self.metric.back(self.state.projection)

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of the projection, (P, R); NaN without ``projection_cov``."""
        if self.projection_cov is None:
            return np.full(self.projection.shape, np.nan)
        basis = self.metric.back(np.eye(self.projection_cov.shape[-1]))  # (P, A)
        return np.stack(
            [np.sqrt(np.sum((basis @ cov) * basis, axis=1)) for cov in self.projection_cov],
            axis=1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OneVsRestPosterior:
    """One classifier for each outcome in the within-class metric; scores are the embedding.

    state
        q of the classifiers.
    data
        Training samples in metric coordinates.
    """

    metric: Metric | TruncatedMetric
    state: one_vs_rest.OneVsRestState
    data: one_vs_rest.Data

    def latent(self, X: Rows) -> FloatArray:
        """Mean class scores, (M, K)."""
        mean = self.state.weights.mean
        return self.metric.transform(X) @ mean[1:] + mean[0]

    def embed(self, X: Rows) -> LatentCoordinates:
        """Class scores as latent coordinates, independent given the features."""
        mean, variance = self.score_moments(X)
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """The same: latent coordinates are class scores."""
        return latent

    def score_means(self, X: Rows) -> FloatArray:
        """Mean class scores, (M, K)."""
        return self.latent(X)

    def score_moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the class scores, each (M, K)."""
        A, outside = self.metric.transform(X), self.metric.outside(X)
        return one_vs_rest.predict(self.state, self.data, A, outside)

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to class scores, (P, K)."""
        return self.metric.back(self.state.weights.mean[1:])

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of the projection, (P, K)."""
        basis = self.metric.back(np.eye(self.data.ridge.rows.shape[1] - 1))  # (P, A)
        X, weights = np.column_stack([np.zeros(len(basis)), basis]), self.state.weights
        variances = [
            self.data.ridge.variance(X, precision, weights.row_precision[:, label])
            for label, precision in enumerate(weights.prior_precision)
        ]
        return np.sqrt(np.stack(variances, axis=1))


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
    task: Task,
    train: IntArray,
    test: IntArray,
    *,
    scales: Sequence[float],
    costs: Sequence[float],
    quick: bool = False,
) -> FloatArray:
    """Held-out class scores for every cost and metric scale, (G, M, K), costs first.

    If ``quick``, classifiers one-vs-rest have the covariances of their first sweep. The order of
    the candidates is the same, but their best temperatures are not.
    """
    own = task.subset(train)
    (spectrum, signs), X = learn_within_class(own), task.X[test]
    found, metrics = [], [metric_of(spectrum, scale) for scale in scales]
    for cost, metric in product(costs, metrics):
        A = metric.transform(X)
        if task.strategy == "shared":
            settings = _settings(task, cost)
            fitted = subspace.fit_subspace(
                metric.A,
                signs,
                n_components=task.n_components,
                settings=settings,
                tol=PATH_SUBSPACE_TOL,
                max_iter=PATH_ITER,
            )
            if fitted.interrupted:
                raise KeyboardInterrupt
            found.append(fitted.state.scores(A))
        else:
            data = one_vs_rest.make_label_data(metric.A, signs)
            if quick:
                mean = one_vs_rest_fit.fit_means(data, task.priors, cost=cost)
            else:
                result = one_vs_rest_fit.fit_one_vs_rest(data, task.priors, cost=cost, tol=PATH_TOL)
                if result.interrupted:
                    raise KeyboardInterrupt
                mean = result.state.weights.mean
            found.append(A @ mean[1:] + mean[0])
    return np.stack(found)


def fit_label_free(task: Task, *, cost: float, scale: float, max_iter: int) -> FitResult:
    """Fit in the metric of a given scale."""
    spectrum, signs = learn_within_class(task)
    metric = metric_of(spectrum, scale)
    if task.strategy == "one_vs_rest":
        data = one_vs_rest.make_label_data(metric.A, signs)
        result = one_vs_rest_fit.fit_one_vs_rest(data, task.priors, cost=cost, max_iter=max_iter)
        return FitResult(
            posterior=OneVsRestPosterior(metric=metric, state=result.state, data=data),
            factor_model=None,
            elbo=result.elbo,
            terms={name: np.array([value]) for name, value in result.terms.items()},
            converged=result.converged,
            interrupted=result.interrupted,
        )
    settings = _settings(task, cost)
    found = subspace.fit_subspace(
        metric.A,
        signs,
        n_components=task.n_components,
        settings=settings,
        max_iter=max_iter,
    )
    posterior = SubspacePosterior(
        metric=metric,
        state=found.state,
        weight_cov=subspace.weight_covariance(found.state, metric.A, signs, settings),
        projection_cov=_projection_covariance(found.state, metric.A, signs, settings),
        settings=settings,
    )
    return FitResult(
        posterior=posterior,
        factor_model=None,
        elbo=found.objective,
        terms={"objective": found.objective[-1:]},
        converged=found.converged,
        interrupted=found.interrupted,
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
