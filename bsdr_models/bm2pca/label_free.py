"""The label-free variant: latents that see features alone, in the metric of the nuisance."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bm2pca import one_vs_rest, one_vs_rest_fit, subspace
from bsdr_models.bm2pca.factor_model import Rows
from bsdr_models.bm2pca.task import Learned, Task
from bsdr_models.bm2pca.transduction import fit_responsibilities
from bsdr_models.bm2pca.truncated_metric import TruncatedMetric, TruncatedSpectrum, fit_spectrum
from bsdr_models.bm2pca.within_class_metric import Metric, Spectrum
from bsdr_models.numerics.latent_coordinates import LatentCoordinates
from bsdr_models.numerics.linalg import inv_spd

# Metrics with more axes than this say of a position only what is common to all rows.
MAX_AXES = 2000
# Where settings are compared a climb ends early: after this the order of the candidates, the
# temperature and the accuracy of what is chosen no longer change, and 1 / 6 of the time is spent.
PATH_ITER, PATH_TOL = 200, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class SubspacePosterior:
    """One subspace in the nuisance metric.

    metric
        Of the features.
    state
        Q and H.
    weight_cov
        Covariance of each column of H given Q, (K, 1 + R, 1 + R).
    projection_cov
        Covariance of each column of Q given H and the other columns, (R, A, A) over the A axes
        of the metric; None where there are too many axes.
    settings
        Of the objective.
    """

    metric: Metric | TruncatedMetric
    state: subspace.State
    weight_cov: FloatArray
    projection_cov: FloatArray | None
    settings: subspace.Settings

    def latent(self, rows: Rows) -> FloatArray:
        """Mean positions, (M, R)."""
        return self.state.latent(self.metric.transform(rows))

    def embed(self, rows: Rows) -> LatentCoordinates:
        """LatentCoordinates of rows; their covariance is that of the latent and of each column of Q.

        What the columns of Q and the classifier do to each other is left out, which makes it
        too small.
        """
        A = self.metric.transform(rows)
        mean = self.state.latent(A)
        variance = np.full(mean.shape, self.settings.latent_variance)
        if self.projection_cov is not None:
            variance += np.einsum("mr,krs,ms->mk", A, self.projection_cov, A, optimize=True)
        variance += self.metric.outside(rows)[:, None] / self.settings.projection_precision
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def score_means(self, rows: Rows) -> FloatArray:
        """Mean scores, (M, K)."""
        return self.state.scores(self.metric.transform(rows))

    def score_moments(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the scores, each (M, K)."""
        A = self.metric.transform(rows)
        variance = subspace.score_variance(self.state, A, self.weight_cov, self.settings)
        return self.state.scores(A), variance

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to positions, (P, R)."""
        return self.metric.back(self.state.projection)

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of its entries as far as they are known, (P, R)."""
        if self.projection_cov is None:
            return np.full(self.projection.shape, np.nan)
        basis = self.metric.back(np.eye(self.projection_cov.shape[-1]))  # (P, A)
        return np.stack(
            [np.sqrt(np.sum((basis @ cov) * basis, axis=1)) for cov in self.projection_cov],
            axis=1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OneVsRestPosterior:
    """One classifier for each outcome in the nuisance metric; its score is the position.

    metric
        Of the features.
    state
        q of the classifiers.
    data
        Training rows in metric coordinates.
    """

    metric: Metric | TruncatedMetric
    state: one_vs_rest.State
    data: one_vs_rest.Data

    def latent(self, rows: Rows) -> FloatArray:
        """Mean scores, (M, K)."""
        mean = self.state.weights.mean
        return self.metric.transform(rows) @ mean[1:] + mean[0]

    def embed(self, rows: Rows) -> LatentCoordinates:
        """Scores as positions, independent of each other given the features."""
        mean, variance = self.score_moments(rows)
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def score_means(self, rows: Rows) -> FloatArray:
        """Mean scores, (M, K)."""
        return self.latent(rows)

    def score_moments(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the scores, each (M, K)."""
        A, outside = self.metric.transform(rows), self.metric.outside(rows)
        return one_vs_rest.predict(self.state, self.data, A, outside)

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to scores, (P, K)."""
        return self.metric.back(self.state.weights.mean[1:])

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of its entries, (P, K)."""
        basis = self.metric.back(np.eye(self.data.ridge.rows.shape[1] - 1))  # (P, A)
        rows, weights = np.column_stack([np.zeros(len(basis)), basis]), self.state.weights
        variances = [
            self.data.ridge.variance(rows, precision, weights.row_precision[:, label])
            for label, precision in enumerate(weights.prior_precision)
        ]
        return np.sqrt(np.stack(variances, axis=1))


def learn_within_class(task: Task) -> tuple[Spectrum | TruncatedSpectrum, FloatArray]:
    """Decomposition of the nuisance, and the signs (N, K) that the margins are asked for.

    Rows without a label take part in both where their classes are all but certain
    (:mod:`bsdr_models.bm2pca.transduction`); where labels do not exclude each other, in neither.
    """
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


def metric_of(spectrum: Spectrum | TruncatedSpectrum, scale: float) -> Metric | TruncatedMetric:
    """Metric of a scale; the Euclidean one where rows of one class do not differ."""
    return spectrum.metric(scale if spectrum.varies else np.inf)


def path_scores(
    task: Task, train: IntArray, test: IntArray, *, scales: Sequence[float], cost: float
) -> FloatArray:
    """Scores of held-out rows in the metric of every scale, (G, M, K)."""
    own = task.subset(train)
    (spectrum, signs), rows = learn_within_class(own), task.X[test]
    found = []
    for scale in scales:
        metric = metric_of(spectrum, scale)
        A = metric.transform(rows)
        if task.strategy == "shared":
            settings = subspace.Settings(cost=cost)
            fitted = subspace.fit(
                metric.A,
                signs,
                n_components=task.n_components,
                settings=settings,
                max_iter=PATH_ITER,
            )
            if fitted.interrupted:
                raise KeyboardInterrupt
            found.append(fitted.state.scores(A))
        else:
            data = one_vs_rest.make_data(metric.A, signs)
            climb = one_vs_rest_fit.fit(data, task.priors, cost=cost, tol=PATH_TOL)
            if climb.interrupted:
                raise KeyboardInterrupt
            mean = climb.state.weights.mean
            found.append(A @ mean[1:] + mean[0])
    return np.stack(found)


def fit(task: Task, *, cost: float, scale: float, max_iter: int) -> Learned:
    """Fit in the metric of one scale."""
    spectrum, signs = learn_within_class(task)
    metric = metric_of(spectrum, scale)
    if task.strategy == "one_vs_rest":
        data = one_vs_rest.make_data(metric.A, signs)
        climb = one_vs_rest_fit.fit(data, task.priors, cost=cost, max_iter=max_iter)
        return Learned(
            posterior=OneVsRestPosterior(metric=metric, state=climb.state, data=data),
            factor_model=None,
            elbo=climb.elbo,
            terms={name: np.array([value]) for name, value in climb.terms.items()},
            converged=climb.converged,
            interrupted=climb.interrupted,
        )
    settings = subspace.Settings(cost=cost)
    found = subspace.fit(
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
    return Learned(
        posterior=posterior,
        factor_model=None,
        elbo=found.objective,
        terms={"objective": found.objective[-1:]},
        converged=found.converged,
        interrupted=found.interrupted,
    )


def _projection_covariance(
    state: subspace.State, A: FloatArray, Y: FloatArray, settings: subspace.Settings
) -> FloatArray | None:
    r"""Covariance of each column of Q given all else, (R, A, A).

    That of the conjugate factor at the maximum,
    :math:`(\rho I + C^2 \sum_{nc} w_{nc} h_{jc}^2 a_n a_n^\top)^{-1}`.
    """
    if A.shape[1] > MAX_AXES:
        return None
    curvature = subspace.curvature(state, A, Y, settings)  # (N, K)
    weights = curvature @ (state.weights[1:] ** 2).T  # (N, R)
    eye = settings.projection_precision * np.eye(A.shape[1])
    stack = np.stack([eye + (A * own[:, None]).T @ A for own in weights.T])
    return inv_spd(stack, name="projection precision")[0]
