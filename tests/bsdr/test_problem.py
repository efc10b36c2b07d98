"""Density of the model at full rank against independent formulas, and the PyMC model."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import ndtr

from bsdr_models.bsdr import leapfrog
from bsdr_models.bsdr.feature_map import FeatureMap
from bsdr_models.bsdr.model import declare_hierarchical
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem, label_log_likelihood, regression_log_likelihood
from bsdr_models.learned_metric.metric import NAMES, ClassBasis, Metric
from bsdr_models.papers import orthant
from tests.toys import central

# All differ, and none is neutral.
PRIORS = HierarchicalPriors(
    scale=1.3, view_width=0.7, bias_scale=2.7, noise_location=-0.8, noise_width=0.6, lapse=0.04
)
# Target, number of labels, views.
CASES = [
    ("multiclass", 4, False),
    ("multiclass", 2, False),
    ("multiclass", 3, True),
    ("multilabel", 3, False),
    ("multilabel", 2, True),
]
VIEWS = np.array([0, 0, 1, 1, 1])
every_case = pytest.mark.parametrize(("target", "k", "views"), CASES)


def make_problem(target="multiclass", k=4, views=False, *, n=9, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n) if target == "multiclass" else rng.random((n, k)) < 0.4
    X = rng.standard_normal((n, 5)) / np.sqrt(5)
    return BSDRProblem(
        X=X, y=y, n_labels=k, target=target, priors=PRIORS, views=VIEWS if views else None
    )


def draw(problem, s, seed=1):
    return np.random.default_rng(seed).standard_normal((s, problem.n_parameters))


def linear_predictor(problem, theta):
    """eta (S, N, K) from the definition of the model, one vector at a time."""
    b, (j, _) = problem.X.shape[1], problem.contrasts.shape
    out = []
    for vector in theta:
        P, bias = vector[: b * j].reshape(b, j), vector[b * j : b * j + j]
        scale = np.exp(vector[-1])
        if problem.views is not None:
            relative = np.exp(PRIORS.view_width * vector[b * j + j : -1])
            scale = scale * relative[problem.views][:, None]
        out.append((problem.X @ (scale * P) + PRIORS.bias_scale * bias) @ problem.contrasts)
    return np.array(out)


def log_likelihood(problem, theta):
    """(S,), from SciPy's distributions and quadrature of the probit."""
    eta, eps = linear_predictor(problem, theta), PRIORS.lapse
    k = eta.shape[2]
    if problem.target == "multiclass":
        p = np.exp([orthant.moments(each, problem.y, n_nodes=64).log_prob for each in eta])
        return np.log((1.0 - eps) * p + eps / k).sum(axis=1)
    p = np.where(problem.y, ndtr(eta), ndtr(-eta))
    return np.log((1.0 - eps) * p + eps / 2.0).sum(axis=(1, 2))


def log_prior(theta):
    """Standard normals, and the density of log tau."""
    scale = np.exp(theta[:, -1])
    value = stats.halfnorm.logpdf(scale, scale=PRIORS.scale) + theta[:, -1]
    return value + stats.norm.logpdf(theta[:, :-1]).sum(axis=1)


def correlated(n, d, seed=0):
    """Centred samples (N, D) with correlated features of different scales."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + rng.standard_normal((n, d))
    X *= np.linspace(0.5, 2.0, d)
    return X - X.mean(axis=0)


@every_case
def test_value(target, k, views):
    problem = make_problem(target, k, views)
    theta = draw(problem, 6)
    value, prior, _ = problem.log_density(theta)
    assert_allclose(value, log_likelihood(problem, theta), rtol=1e-5)
    assert_allclose(prior, log_prior(theta), rtol=1e-10)
    assert_allclose(problem.evaluate(theta)[0].sum(axis=1), value, rtol=1e-12)
    assert_allclose(
        problem.linear_predictor(theta).swapaxes(0, 1), linear_predictor(problem, theta)
    )


@every_case
def test_gradient(target, k, views):
    problem = make_problem(target, k, views)
    theta = draw(problem, 4, seed=2)
    expected = central(lambda at: log_likelihood(problem, at) + log_prior(at), theta, 1e-5)
    assert_allclose(problem.log_density(theta)[2], expected, rtol=2e-5, atol=2e-5)


@every_case
def test_compiled_gradient(target, k, views):
    """In single precision, as inside trajectories."""
    problem = make_problem(target, k, views)
    theta = draw(problem, 4, seed=2)
    value, gradient = problem.evaluate(theta)
    single = theta.astype(np.float32)
    found = np.empty((len(problem.X), 4), np.float32)
    slope = np.empty_like(single)
    leapfrog.evaluate(problem.single, problem.y, single, found, slope)
    assert_allclose(found.T, value, rtol=1e-4, atol=1e-4)
    assert_allclose(slope, gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("target", "k"), [("multiclass", 4), ("multiclass", 2), ("multilabel", 3)])
def test_curvature(target, k):
    """Against differences of the gradient in the linear predictor."""
    problem, h = make_problem(target, k), 1e-4
    theta = draw(problem, 3)
    eta, hessian = linear_predictor(problem, theta), []
    for unit in problem.contrasts:
        up, down = (
            label_log_likelihood(eta + sign * h * unit, problem.y, target, PRIORS.lapse)[1]
            for sign in (1.0, -1.0)
        )
        hessian.append((up - down) @ problem.contrasts.T / (2.0 * h))
    expected = -np.mean(hessian, axis=1).transpose(1, 0, 2)  # (N, J, J)
    assert_allclose(problem.curvature(theta), expected, atol=2e-3)


@every_case
def test_draws_agree_with_the_density(target, k, views):
    """Parameters have the linear predictor of the density."""
    problem = make_problem(target, k, views)
    theta = draw(problem, 6, seed=4)
    draws = problem.parameters(theta, rng=np.random.default_rng(0))
    expected = linear_predictor(problem, theta)
    assert_allclose(draws.linear_predictor(problem.X), expected, rtol=1e-10, atol=1e-12)
    assert_allclose(draws.scale, np.exp(theta[:, -1]))
    assert draws.noise_scale is None
    z = np.einsum("nb,sjb->snj", problem.X, draws.projection)
    outside = np.linspace(0.0, 2.0, len(problem.X))
    if views:
        outside = np.column_stack([outside, outside[::-1]])
        own = np.sqrt(np.einsum("nv,sv->sn", outside**2, draws.view_scale**2))
    else:
        own = np.broadcast_to(outside, z.shape[:2])
    z += own[..., None] * draws.scale[:, None, None] * draws.outside[:, None]
    assert_allclose(draws.latent(problem.X, outside), z, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_prior_of_the_classes(target):
    """The prior of effects and biases is exchangeable over classes, and sums to zero."""
    k = 4
    problem = make_problem(target, k)
    theta = draw(problem, 20_000, seed=5)
    theta[:, -1] = 0.0
    draws = problem.parameters(theta, rng=np.random.default_rng(0))
    coef = np.einsum("sj,sjk->sk", draws.projection[:, :, 0], draws.weights)
    centred = np.eye(k) - (target == "multiclass") / k
    for values, scale in ((coef, 1.0), (draws.bias, PRIORS.bias_scale)):
        assert_allclose(np.cov(values.T), scale**2 * centred, atol=0.05 * scale**2)


@pytest.mark.parametrize(
    ("target", "wide"),
    [
        ("multiclass", True),
        ("regression", False),
        pytest.param("multilabel", True, marks=pytest.mark.slow),
    ],
)
def test_pymc_model_has_the_density_that_is_sampled(target, wide):
    """Log densities of the PyMC model and of the sampler differ by a constant."""
    n, d, k = 8, 14 if wide else 3, 3
    rng = np.random.default_rng(10)
    X = correlated(n, d)
    y = {
        "multiclass": np.append(np.arange(k), rng.integers(0, k, n - k)),
        "multilabel": rng.random((n, k)) < 0.5,
        "regression": rng.standard_normal((n, k)),
    }[target]
    classes = np.arange(n) % 2
    equal = np.full(len(NAMES), 1.0 / len(NAMES))
    metric = Metric.learn(X, ClassBasis.of(classes), equal, 1.0 + np.arange(d))
    given = y if target != "multilabel" else y.astype(int)
    feature_map = FeatureMap(maps=(metric,))
    model = declare_hierarchical(X, given, PRIORS, target, feature_map, range(d))
    logp = model.compile_logp(mode="FAST_COMPILE")
    problem = BSDRProblem(X=metric.whiten(X), y=y, n_labels=k, target=target, priors=PRIORS)
    theta = 0.5 * draw(problem, 5)
    loadings, bias, _, log_scale = problem.split(theta)
    outside = rng.standard_normal((5, d, loadings.shape[2]))
    outside -= metric.axes @ (metric.axes.T @ outside)
    noise = PRIORS.noise_width * rng.standard_normal((5, k)) + PRIORS.noise_location
    difference = []
    for s in range(5):
        point = {
            "scale_log__": log_scale[s],
            "projection_offset": metric.axes @ loadings[s] + outside[s],
            "bias_contrasts": PRIORS.bias_scale * bias[s],
        }
        sampled = problem.log_prior(theta[s : s + 1])[0] - 0.5 * np.sum(outside[s] ** 2)
        if target == "regression":
            point["noise_scale_log__"] = noise[s]
            eta = problem.linear_predictor(theta[s : s + 1]).swapaxes(0, 1)
            sampled += regression_log_likelihood(eta, y, np.exp(noise[s : s + 1])).sum()
            sampled -= 0.5 * np.sum(((noise[s] - PRIORS.noise_location) / PRIORS.noise_width) ** 2)
        else:
            sampled += problem.evaluate(theta[s : s + 1])[0].sum(axis=1)[0]
        difference.append(float(logp(point)) - sampled)
    assert_allclose(difference, difference[0], rtol=1e-6, atol=1e-4)


def test_samples_are_selected():
    problem, out = make_problem(), np.array([1, 4, 7])
    theta = draw(problem, 3)
    left = np.delete(np.arange(9), out)
    parts = [problem.select(index).evaluate(theta)[0].sum(axis=1) for index in (out, left)]
    assert_allclose(sum(parts), problem.evaluate(theta)[0].sum(axis=1))


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_impossible_parameters_have_no_density(target):
    problem = make_problem(target)
    theta = draw(problem, 7, seed=7)
    expected, _, slope = problem.log_density(theta)
    bad = theta.copy()
    bad[1, 0], bad[3, -1], bad[4, 7] = np.nan, np.inf, -np.inf
    bad[5] *= 1e200
    value, _, gradient = problem.log_density(bad)
    lost, kept = [1, 3, 4, 5], [0, 2, 6]
    assert np.isneginf(value[lost]).all()
    assert not gradient[lost].any()
    assert_allclose(value[kept], expected[kept], rtol=1e-12)
    assert_allclose(gradient[kept], slope[kept], rtol=1e-9, atol=1e-12)


def test_log_scales_far_out_do_not_overflow():
    problem = make_problem()
    theta = draw(problem, 3, seed=8)
    theta[:, -1] = -1e4, 1e4, 9e5
    with np.errstate(over="ignore"):
        value, _, gradient = problem.log_density(theta)
    assert np.isfinite(gradient).all()
    assert not np.isnan(value).any()


def test_subset_of_draws():
    problem = make_problem("multiclass", 3, True)
    draws = problem.parameters(draw(problem, 10), rng=np.random.default_rng(0))
    some, outside = draws.take(np.array([0, 3, 6, 9])), np.ones((9, 2))
    assert_allclose(
        some.linear_predictor(problem.X, outside),
        draws.linear_predictor(problem.X, outside)[[0, 3, 6, 9]],
    )


def test_recentred_draws_have_the_mean_of_all():
    problem = make_problem("multiclass", 3, True)
    draws = problem.parameters(draw(problem, 40), rng=np.random.default_rng(0))
    few = draws.recentred(8)
    every = draws.linear_predictor(problem.X)
    found = few.linear_predictor(problem.X)
    assert found.shape[0] == 8
    assert_allclose(found.mean(axis=0), every.mean(axis=0), atol=1e-10)
    assert draws.recentred(40) is draws
