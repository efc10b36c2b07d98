"""PyMC model against SciPy densities."""

import functools
import math
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import log_ndtr

from bsdr_models.bsdr.model import _centre, log_choice_probability, log_phi
from bsdr_models.papers.bsdr import build_model as build_paper_model
from bsdr_models.papers.bsdr.priors import Priors
from tests.toys import FAST, central, on_value_scale, random_point

N, D, R, K = 7, 4, 2, 3
PRIORS = Priors(
    projection_shape=2.5,
    projection_rate=0.7,
    weight_shape=1.5,
    weight_rate=2.2,
    bias_shape=3.1,
    bias_rate=0.4,
    noise_shape=1.7,
    noise_rate=2.9,
    latent_scale=0.6,
)
KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")


def toy(target, rng):
    X = rng.normal(size=(N, D))
    if target == "multiclass":
        return X, np.array([0, 1, 2, 1, 0, 2, 2])
    if target == "multilabel":
        return X, rng.integers(0, 2, size=(N, K))
    return X, rng.normal(size=(N, K))


def gamma_log_density(value, shape, rate):
    return stats.gamma(shape, scale=1.0 / rate).logpdf(value).sum()


def normal_log_density(value, mean, precision):
    return stats.norm(mean, np.broadcast_to(precision, value.shape) ** -0.5).logpdf(value).sum()


def student_log_density(value, shape, rate):
    return stats.t(2 * shape, scale=math.sqrt(rate / shape)).logpdf(value).sum()


def joint_log_density(point, X, y, kind, target):
    Q, W, b = point["projection"], point["weights"], point["bias"]
    total = student_log_density(W, PRIORS.weight_shape, PRIORS.weight_rate)
    total += student_log_density(b, PRIORS.bias_shape, PRIORS.bias_rate)
    Z = X @ Q + PRIORS.latent_scale * point["latent_offset"]
    total += normal_log_density(point["latent_offset"], 0.0, 1.0)
    if kind == "entrywise":
        total += student_log_density(Q, PRIORS.projection_shape, PRIORS.projection_rate)
    else:
        phi = point["projection_precision"]
        total += gamma_log_density(phi, PRIORS.projection_shape, PRIORS.projection_rate)
        total += normal_log_density(Q, 0.0, phi[:, None] if kind == "rowwise" else phi)
    eta = Z @ W + b
    if target == "regression":
        tau = point["noise_precision"]
        total += gamma_log_density(tau, PRIORS.noise_shape, PRIORS.noise_rate)
        return total + normal_log_density(y, eta, tau)
    if target == "multilabel":
        return total + stats.norm.logcdf(np.where(y == 1, eta, -eta)).sum()
    return total + sum(dense_log_choice(eta[n], y[n]) for n in range(N))


@pytest.mark.parametrize(
    ("kind", "target"),
    [*(("entrywise", target) for target in TARGETS), *((k, "multilabel") for k in KINDS[1:])],
)
def test_log_density_is_the_joint(kind, target):
    rng = np.random.default_rng(11)
    X, y = toy(target, rng)
    model = build_paper_model(
        X,
        y,
        n_components=R,
        priors=replace(PRIORS, projection_prior=kind),
        target=target,
    )
    log_density = model.compile_logp(jacobian=False, **FAST)
    for _ in range(2):
        point = random_point(model, rng)
        expected = joint_log_density(point, X, y, kind, target)
        found = log_density(on_value_scale(model, point))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_utilities_outside_the_argmax_region_have_no_density(target):
    X, y = toy(target, np.random.default_rng(3))
    model = build_paper_model(X, y, n_components=R, target=target, augmented=True)
    log_density = model.compile_logp(**FAST)
    start = model.initial_point()
    assert np.isfinite(log_density(start))
    assert log_density(start | {"utilities": -start["utilities"]}) == -np.inf


@functools.cache
def compiled_choice(n_labels):
    y, eta = pt.lvector("y"), pt.dmatrix("eta")
    log_prob = log_choice_probability(y, eta, n_labels=n_labels)
    gradient = pytensor.grad(log_prob.sum(), eta)
    return pytensor.function([y, eta], [log_prob, gradient], **FAST)


def dense_log_choice(eta, label):
    """Log P(argmax = label) from 20 001 nodes in log space around the largest integrand."""
    margin = eta[label] - np.delete(eta, label)
    coarse = np.linspace(-5.0, 5.0 + max(0.0, -margin.min()), 4001)
    height = -0.5 * coarse**2 + log_ndtr(coarse[:, None] + margin).sum(axis=1)
    fine = coarse[height.argmax()] + np.linspace(-12.0, 12.0, 20_001)
    f = stats.norm.logpdf(fine) + log_ndtr(fine[:, None] + margin).sum(axis=1)
    return np.logaddexp.reduce(f) + math.log(fine[1] - fine[0])


@pytest.mark.parametrize("n_labels", [2, 10])
def test_choice_probability_in_the_tails(n_labels):
    """Linear predictors of standard deviation up to 40; the grid is exact to rounding."""
    rng = np.random.default_rng(n_labels)
    evaluate = compiled_choice(n_labels)
    eta = np.concatenate([rng.normal(scale=s, size=(8, n_labels)) for s in (0.5, 5.0, 40.0)])
    y = rng.integers(0, n_labels, size=len(eta))
    expected = [dense_log_choice(row, label) for row, label in zip(eta, y, strict=True)]
    assert min(expected) < -500
    log_prob, _ = evaluate(y, eta)
    np.testing.assert_allclose(log_prob, expected, rtol=1e-9, atol=1e-6)


def test_choice_gradient_is_the_difference_quotient():
    rng = np.random.default_rng(1)
    eta = rng.normal(scale=4.0, size=(5, 3))
    y = rng.integers(0, 3, size=5)
    _, gradient = compiled_choice(3)(y, eta)

    def log_choice(eta):
        return np.array([dense_log_choice(row, c) for row, c in zip(eta, y, strict=True)])

    np.testing.assert_allclose(gradient, central(log_choice, eta, 1e-4), atol=1e-5)


def test_gradients_are_finite_at_extreme_linear_predictors():
    rng = np.random.default_rng(2)
    eta = rng.choice([-1000.0, 0.0, 1000.0], size=(40, 3))
    y = rng.integers(0, 3, size=40)
    log_prob, gradient = compiled_choice(3)(y, eta)
    assert np.isfinite(log_prob).all()
    assert np.isfinite(gradient).all()
    # The loss against one rival is about d^2 / 4 at a difference d, so the gradient is at most d.
    assert np.abs(gradient).max() < 2001


def test_the_centre_of_the_rule_has_finite_gradients():
    """JAX asks for them, as it does not hold the centre constant, and has no rewrites."""
    margin = pt.dmatrix("margin")
    mode, width = _centre(margin, n_rivals=2)
    outputs = [mode, width, pytensor.grad((mode + width).sum(), margin)]
    at = np.array([[50.0, 60.0], [-1000.0, 1000.0], [0.0, 1.0], [-45.0, 38.0]])
    for values in pytensor.function([margin], outputs, **FAST)(at):
        assert np.isfinite(values).all()


def test_log_phi_and_its_gradient():
    x = pt.dvector("x")
    evaluate = pytensor.function([x], [log_phi(x), pytensor.grad(log_phi(x).sum(), x)], **FAST)
    at = np.array([-1000.0, -40.0, -5.0, -1.0, -0.3, 0.0, 2.0, 8.0, 40.0, 1000.0])
    value, gradient = evaluate(at)
    np.testing.assert_allclose(value, log_ndtr(at), rtol=1e-12, atol=1e-300)
    hazard = np.exp(stats.norm.logpdf(at) - log_ndtr(at))
    np.testing.assert_allclose(gradient, hazard, rtol=1e-9, atol=1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_augmented_parametrisation_draws_targets_from_its_utilities(target):
    X, y = toy(target, np.random.default_rng(6))
    model = build_paper_model(X, y, n_components=R, target=target, augmented=True)
    drawn = pm.sample_prior_predictive(30, model=model, random_seed=2, compile_kwargs=FAST)
    values = drawn.prior_predictive["y"].values
    if target == "multiclass":
        np.testing.assert_array_equal(values, drawn.prior["utilities"].values.argmax(axis=-1))
    elif target == "multilabel":
        np.testing.assert_array_equal(values, drawn.prior["utilities"].values > 0)
    else:
        assert values.shape == (1, 30, N, K)
