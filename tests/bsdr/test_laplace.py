"""Laplace's method against finite differences, SciPy, quadrature and Metropolis sampling."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtr

from bsdr_models import BSDRClassifier
from bsdr_models.bsdr.feature_map import learn_map
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem, make_contrasts
from bsdr_models.large import laplace
from bsdr_models.large.chunks import Chunks, InMemory
from bsdr_models.large.laplace import Response, fit_laplace
from bsdr_models.numerics.scaling import Scaler

# All differ, and none is neutral.
PRIORS = HierarchicalPriors(scale=1.3, bias_scale=2.7, lapse=0.01)
# Target, labels.
CASES = (("multiclass", 4), ("multiclass", 2), ("multilabel", 3))
every_case = pytest.mark.parametrize(("target", "k"), CASES)


def make_samples(target, n, d, k, *, seed=0, size=1.2):
    """Correlated features on several scales, and targets from the model."""
    rng = np.random.default_rng(seed)
    X = 3.0 + rng.standard_normal((n, d)) @ (np.eye(d) + 0.3 * rng.standard_normal((d, d)))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    t = Z @ rng.standard_normal((d, k)) * size / np.sqrt(d) + 0.3 * rng.standard_normal(k)
    t += rng.standard_normal((n, k))
    return X * np.linspace(0.1, 9.0, d), t.argmax(axis=1) if target == "multiclass" else t > 0.0


def make_problem(target, n, d, k, **options):
    X, y = make_samples(target, n, d, k, **options)
    X = Scaler.fit(X).transform(X)
    return BSDRProblem(X=unit_metric(X).whiten(X), y=y, n_labels=k, target=target, priors=PRIORS)


def unit_metric(X):
    """Of scaled samples, without their labels."""
    return learn_map(X, metric="unit").metric


def in_chunks(X, y, size):
    da = pytest.importorskip("dask.array")
    return Chunks(da.from_array(X, chunks=(size, X.shape[1])), y)


def arguments(problem):
    """Samples and response."""
    response = Response(target=problem.target, contrasts=problem.contrasts, priors=problem.priors)
    return InMemory(problem.X, problem.y), response


def derivatives(problem, at):
    return laplace.derivatives(*arguments(problem), at)


def fit(problem, n_draws=200, **options):
    rng = np.random.default_rng(0)
    return fit_laplace(*arguments(problem), rng=rng, n_draws=n_draws, **options)


def loadings(problem, theta):
    """tau times the standard normals, biases, and log tau, (S, P)."""
    scaled = theta.copy()
    scaled[:, : problem.n_loadings] *= np.exp(theta[:, -1:])
    return scaled


# ------------------------------------------------------------------------------- derivatives


@every_case
def test_gradient_and_hessian_against_differences(target, k):
    problem = make_problem(target, 50, 3, k)
    at, h = np.random.default_rng(1).standard_normal((4, len(problem.contrasts))), 1e-5
    _, gradient, hessian = derivatives(problem, at)
    assert_allclose(hessian, hessian.T, atol=1e-10)
    for i, unit in enumerate(np.eye(at.size)):
        move = h * unit.reshape(at.shape)
        up, down = derivatives(problem, at + move), derivatives(problem, at - move)
        slope, curvature = ((a - b) / (2.0 * h) for a, b in zip(up[:2], down[:2], strict=True))
        assert_allclose(gradient.ravel()[i], slope, rtol=1e-4, atol=1e-4)
        assert_allclose(-hessian[i], curvature.ravel(), rtol=1e-3, atol=1e-2)


def test_derivatives_of_scaled_samples_in_chunks():
    X, y = make_samples("multiclass", 90, 4, 3)
    X[:, 2] = 1.0  # a constant feature has no loadings
    scaler = Scaler.fit(X)
    chunks = in_chunks(X, y, 40)
    contrasts = make_contrasts(3, "multiclass")
    response = Response(target="multiclass", contrasts=contrasts, priors=PRIORS, scaler=scaler)
    metric = unit_metric(scaler.transform(X))
    Z = metric.whiten(scaler.transform(X))
    problem = BSDRProblem(X=Z, y=y, n_labels=3, target="multiclass", priors=PRIORS)
    at = np.random.default_rng(1).standard_normal((4, 2))
    found = laplace.derivatives(chunks, replace(response, metric=metric), at)
    for ours, theirs in zip(found, derivatives(problem, at), strict=True):
        assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------- the expansion


def expand(problem, theta):
    """Expansion at a vector, that point, and the derivatives there."""
    at = loadings(problem, theta[None])[0, :-1].reshape(-1, len(problem.contrasts))
    there = derivatives(problem, at)
    return laplace._Expansion.learn(at, *there), at, *there


def test_expansion_is_the_normal_density():
    """It is the log likelihood at its point, a Newton step is its mode, and evidence its mean."""
    problem = make_problem("multiclass", 300, 2, 3)
    theta = fit(problem).mode + 0.1
    expansion, at, value, gradient, hessian = expand(problem, theta)
    n, prior = at.size, np.exp([[-2.0 * theta[-1]], [-2.0 * theta[-1]], [0.0]])
    precision = hessian + np.diag(np.repeat(prior, at.shape[1]))
    step = np.linalg.solve(precision, (gradient - prior * at).ravel())
    assert_allclose(expansion.mode(theta[-1]), at + step.reshape(at.shape), rtol=1e-8, atol=1e-9)
    # The integral of the normal density with the prior.
    peak = value + 0.5 * step @ precision @ step - 0.5 * np.sum(prior * at**2)
    expected = peak - 4 * theta[-1] - 0.5 * np.linalg.slogdet(precision)[1]
    found = expansion.log_evidence(theta[-1:])[0]
    assert_allclose(found, expected, rtol=1e-9)
    # Draws, and the density there.
    rng = np.random.default_rng(0)
    log_scale = np.full(20_000, theta[-1])
    normal = rng.standard_normal((20_000, n - 2)), rng.standard_normal((20_000, 2))
    draws, quadratic = expansion.draw(log_scale, *normal)
    flat = draws.reshape(len(draws), -1)
    covariance = np.linalg.inv(precision)
    assert_allclose(np.cov(flat.T), covariance, atol=0.03 * np.abs(covariance).max())
    change = flat - at.ravel()
    exact = value + change @ gradient.ravel() - 0.5 * np.sum((change @ hessian) * change, axis=1)
    exact -= 0.5 * np.sum(draws[:, -1] ** 2, axis=1)
    assert_allclose(quadratic, exact, rtol=1e-8)


def test_slope_of_the_log_scale_against_differences():
    expansion, *_ = expand(problem := make_problem("multiclass", 100, 3, 3), fit(problem).mode)
    for u in (-2.0, 0.1, 1.0):
        grid = np.array([u - 1e-5, u + 1e-5])
        density = expansion.log_evidence(grid) + laplace.log_prior_scale(grid, PRIORS.scale)
        assert expansion.slope(u, PRIORS.scale) == pytest.approx(np.diff(density)[0] / 2e-5, 1e-4)
    best = expansion.best_log_scale(PRIORS.scale)
    assert abs(expansion.slope(best, PRIORS.scale)) < 1e-6


# ------------------------------------------------------------------------------- the posterior


@every_case
def test_mode_is_that_of_the_density(target, k):
    """Of the density of the loadings given tau."""
    problem = make_problem(target, 200, 4, k)
    found = fit(problem)
    assert found.converged
    value = problem.evaluate(found.theta)[0].sum(axis=1)
    assert_allclose(found.log_likelihood, value, rtol=1e-9)

    def objective(x):
        value, prior, gradient = problem.log_density(np.append(x, found.mode[-1])[None])
        return -(value + prior)[0], -gradient[0, :-1]

    zero = np.zeros(len(found.mode) - 1)
    end = minimize(objective, zero, jac=True, method="BFGS", options={"gtol": 1e-6})
    assert_allclose(found.mode[:-1], end.x, atol=1e-5)


@pytest.mark.slow
def test_two_classes_agree_with_quadrature():
    """Evidence, means and standard deviations on a grid of two loadings, a bias and tau."""
    problem = make_problem("multiclass", 400, 2, 2)
    found = fit(problem, n_draws=4000)
    ours = loadings(problem, found.theta)
    mean, sd = ours.mean(axis=0), ours.std(axis=0)
    axes = [m + s * np.linspace(-6.0, 6.0, 21) for m, s in zip(mean[:3], sd[:3], strict=True)]
    point = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    sign = np.where(problem.y == 0, 1.0, -1.0) * np.sign(problem.contrasts[0, 0])
    t = (point[:, :2] @ problem.X.T + PRIORS.bias_scale * point[:, 2:]) * sign
    # The difference of two utilities has twice the variance, and that of two contrasts is sqrt 2.
    p = (1.0 - PRIORS.lapse) * ndtr(t) + 0.5 * PRIORS.lapse
    density = np.log(p).sum(axis=1) - 0.5 * point[:, 2] ** 2 - 1.5 * np.log(2.0 * np.pi)
    u = np.linspace(-6.0, 3.0, 400)
    square = np.sum(point[:, :2] ** 2, axis=1)[:, None]
    joint = density[:, None] - 0.5 * square * np.exp(-2.0 * u) - 2.0 * u
    joint += laplace.log_prior_scale(u, PRIORS.scale)
    weight = np.exp(joint - logsumexp(joint))
    by_point, by_scale = weight.sum(axis=1), weight.sum(axis=0)
    exact = np.append(by_point @ point, by_scale @ u)
    square = np.append(by_point @ point**2, by_scale @ u**2)
    exact_sd = np.sqrt(square - exact**2)
    assert_allclose((mean - exact) / exact_sd, 0.0, atol=0.15)
    assert_allclose(sd / exact_sd, 1.0, atol=0.07)


def test_pareto_k_is_large_for_few_samples():
    rng = np.random.default_rng(0)
    y = np.arange(20) % 3
    X = rng.standard_normal((20, 40)) + 3.0 * np.eye(40)[:3][y]
    X = Scaler.fit(X).transform(X)
    problem = BSDRProblem(
        X=unit_metric(X).whiten(X), y=y, n_labels=3, target="multiclass", priors=PRIORS
    )
    assert fit(problem, n_draws=1000).pareto_k > 0.7


def test_no_signal_has_a_small_scale():
    problem = make_problem("multiclass", 500, 3, 3, size=0.0)
    found = fit(problem)
    assert np.exp(found.mode[-1]) < 0.2
    assert np.isfinite(found.theta).all()


# ------------------------------------------------------------------------------- the search


@pytest.mark.parametrize("last", [1, 4])
def test_interrupted_search_returns_its_last_step(last):
    problem, values = make_problem("multiclass", 300, 5, 3), []

    def stop(count, value):
        values.append(value)
        if count == last:
            raise KeyboardInterrupt

    found = fit(problem, on_step=stop)
    assert found.interrupted
    assert not found.converged
    assert len(values) == len(found.trace) == last
    assert found.log_likelihood.mean() > 300 * np.log(1.0 / 3.0)


def test_interrupt_before_the_first_step_is_raised(monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(laplace, "_sum_derivatives", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(make_problem("multiclass", 50, 3, 3))


def test_too_many_loadings_raise(monkeypatch):
    monkeypatch.setattr(laplace, "MOST_LOADINGS", 10)
    problem = make_problem("multiclass", 50, 4, 4)
    with pytest.raises(ValueError, match="4 features times 3 contrasts of classes exceed 10"):
        fit(problem)


# ------------------------------------------------------------------------------- in chunks


def fit_chunks(samples, metric, scaler, target, k, n_draws=60):
    """Its result, and the metric."""
    response = Response(
        target=target,
        contrasts=make_contrasts(k, target),
        priors=PRIORS,
        scaler=scaler,
        metric=metric,
    )
    rng = np.random.default_rng(0)
    return fit_laplace(samples, response, rng=rng, n_draws=n_draws), metric


def predictors(found, metric, scaler, X, y, target, k):
    """eta of the samples under each draw, (S, N K)."""
    whitened = metric.whiten(scaler.transform(X))
    problem = BSDRProblem(X=whitened, y=y, n_labels=k, target=target, priors=PRIORS)
    return problem.linear_predictor(found.theta).swapaxes(0, 1).reshape(len(found.theta), -1)


def check_same(found, expected, *data):
    """The same mode, evidence, draws, and covariance of the predictors to 1e-4."""
    ours, theirs = (predictors(*each, *data) for each in (found, expected))
    (found, _), (expected, _) = found, expected
    assert found.converged
    assert expected.converged
    assert_allclose(found.log_likelihood, expected.log_likelihood, atol=1e-3)
    assert_allclose(ours, theirs, atol=1e-4)
    ours, theirs = (np.cov(each.T) for each in (ours, theirs))
    assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())


@every_case
def test_chunks_have_the_posterior_of_all_samples(target, k):
    X, y = make_samples(target, 400, 5, k)
    scaler = Scaler.fit(X)
    metric = unit_metric(scaler.transform(X))
    expected = fit_chunks(InMemory(X, y), metric, scaler, target, k)
    order = np.random.default_rng(0).permutation(400)
    chunks = in_chunks(X[order], y[order], (17, 73, 1, 209, 100))
    found = fit_chunks(chunks, metric, scaler, target, k)
    check_same(found, expected, scaler, X, y, target, k)


@pytest.mark.parametrize("where", [InMemory, lambda X, y: in_chunks(X, y, 130)])
def test_many_samples_begin_at_the_mode_of_some(monkeypatch, where):
    """The mode and draws are the same, after fewer steps."""
    X, y = make_samples("multiclass", 900, 4, 3)
    scaler = Scaler.fit(X)
    metric = unit_metric(scaler.transform(X))
    expected, _ = fit_chunks(where(X, y), metric, scaler, "multiclass", 3)
    monkeypatch.setattr(laplace, "_SOME", 300)
    monkeypatch.setattr(laplace, "_N_EXACT", 40)
    found, _ = fit_chunks(where(X, y), metric, scaler, "multiclass", 3)
    assert len(found.trace) < len(expected.trace)
    assert_allclose(found.theta, expected.theta, atol=1e-5)
    ours, theirs = found.log_likelihood, expected.log_likelihood
    assert_allclose(ours[:40], theirs[:40], atol=1e-3)
    # Beyond these the expansion has nearly all of the variation between draws.
    assert np.std(ours[40:] - theirs[40:]) < 0.2 * np.std(theirs)


def test_samples_are_processed_in_parts(monkeypatch):
    X, y = make_samples("multiclass", 300, 4, 3)
    scaler, samples = Scaler.fit(X), InMemory(X, y)
    metric = unit_metric(scaler.transform(X))
    expected = fit_chunks(samples, metric, scaler, "multiclass", 3)
    monkeypatch.setattr(laplace, "_ENTRIES", 200)
    found = fit_chunks(samples, metric, scaler, "multiclass", 3)
    check_same(found, expected, scaler, X, y, "multiclass", 3)


# ------------------------------------------------------------------------------- wrong labels


def with_random_labels(n, d, k, share, seed):
    """Nearly separable classes, their labels, and those of which a share is random."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = (X @ rng.standard_normal((d, k))).argmax(axis=1)
    return X, y, np.where(rng.random(n) < share, rng.integers(k, size=n), y)


@pytest.mark.filterwarnings("ignore:Laplace's approximation is not to be trusted")
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
@pytest.mark.parametrize(("n", "d", "k", "share"), [(150, 4, 3, 0.03), (400, 10, 5, 0.05)])
def test_wrong_labels_do_not_send_the_scale_to_infinity(n, d, k, share, seed):
    """Where the posterior is not concave."""
    X, truth, y = with_random_labels(n, d, k, share, seed)
    model = BSDRClassifier(inference="laplace", random_state=0).fit(X, y)
    assert model.score(X, truth) > 0.9
    assert 1.0 < model.idata_["posterior"]["scale"].mean() < 20.0


@pytest.mark.filterwarnings("ignore:Laplace's approximation is not to be trusted")
def test_a_cycle_of_the_scale_ends_at_good_predictions():
    X, truth, y = with_random_labels(1000, 20, 5, 0.01, 1)
    model = BSDRClassifier(inference="laplace", random_state=0).fit(X, y)
    assert model.score(X, truth) > 0.95
