"""Engine of the recommended model: its mode, given a metric of the features."""

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.posterior import Posterior, whiten
from bsdr_models.bm2pca.problem import Problem, class_index
from bsdr_models.bm2pca.sparse_metric import SparseMetric, as_dense, is_large
from bsdr_models.bm2pca.transduction import fit_responsibilities
from bsdr_models.inference.result import Result
from bsdr_models.metric import Groups, Metric


def learn_metric(problem: Problem, row: int = 0) -> tuple[Metric | SparseMetric, FloatArray]:
    """Metric by a row of the weights, and signs (N, K) for the margins, see `pseudo_labels`."""
    signs, shares = pseudo_labels(problem)
    used = (signs != 0.0).any(axis=1)
    if problem.metric_weights is None or problem.units is None:
        return SparseMetric.learn(problem.X[used]), signs
    if shares is None:
        groups = Groups.of(class_index(signs[used], problem.exclusive), problem.share)
    else:
        groups = Groups.of_probabilities(shares[used])
    X = as_dense(problem.X[used])
    return Metric.learn(X, groups, problem.metric_weights[row], problem.units), signs


def pseudo_labels(problem: Problem) -> tuple[FloatArray, FloatArray | None]:
    """Signs (N, K) with those of unlabelled samples of nearly certain class.

    Also the class probabilities of the samples used, (N, J), if there are such samples.
    """
    large = is_large(problem.X) or min(problem.X.shape) > subspace.MAX_AXES
    if large or not problem.exclusive or problem.observed.all():
        return problem.Y, None
    return fit_responsibilities(as_dense(problem.X), problem.Y)


def fit_problem(problem: Problem, *, cost: float, max_iter: int) -> Result[Posterior]:
    """Fit to all samples."""
    metric, signs = learn_metric(problem)
    A = whiten(metric, problem.X)
    settings = subspace.Settings(cost=cost, multiclass=problem.multiclass)
    fit = subspace.fit_subspace(
        A, signs, n_components=problem.n_shared, settings=settings, max_iter=max_iter
    )
    posterior = Posterior(
        metric=metric,
        state=fit.posterior,
        weight_cov=subspace.weight_covariance(fit.posterior, A, signs, settings),
        projection_cov=subspace.projection_covariance(fit.posterior, A, signs, settings),
        settings=settings,
    )
    return fit.with_posterior(posterior)
