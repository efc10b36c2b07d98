"""GP classification of latent coordinates: against plain formulas, edge cases and large N."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from bsdr_models.dgplvm import gp_classifier
from bsdr_models.dgplvm.gp_classifier import (
    fit_functions,
    fit_gp_classifier,
    from_log_odds,
    kernel_at_prior,
    one_against_rest,
    probit_log_odds,
)
from bsdr_models.dgplvm.priors import CLASSIFIER_PRIORS
from bsdr_models.dgplvm.probit import EP, LAPLACE
from bsdr_models.numerics.folds import stratified_subset

both = pytest.mark.parametrize("approximation", [LAPLACE, EP], ids=["laplace", "ep"])


def problem(n_labels=3, n=45, spread=0.8, seed=0):
    """Latent coordinates with R = K - 1 components around class centres, unsorted; new ones."""
    rng = np.random.default_rng([12, seed])
    y = rng.permutation(np.arange(n) % n_labels)
    centres = 2.0 * np.eye(n_labels)[:, : n_labels - 1] - 0.4
    latent = centres[y] + spread * rng.standard_normal((n, n_labels - 1))
    y_new = rng.integers(0, n_labels, 400)
    new = centres[y_new] + spread * rng.standard_normal((400, n_labels - 1))
    return latent, y, new, y_new


def plain_kernel(a, b, classifier_inputs, t):
    """The kernel by its formula, without noise."""
    centre, scale = classifier_inputs
    u, v = (a - centre) / scale, (b - centre) / scale
    d2 = ((u[:, None] - v) ** 2).sum(-1)
    return np.exp(t[0]) * np.exp(-d2 / (2.0 * np.exp(2.0 * t[1]))) + np.exp(t[2]) * u @ v.T


class ByMatrix:
    """A fit to a kernel matrix, by its Cholesky factor."""

    def __init__(self, approximation, K, sign):
        self.factor = np.linalg.cholesky(K)
        self.posterior = approximation.posterior(self.factor, sign, tol=1e-9)

    def predict(self, cross, diagonal):
        features = np.linalg.solve(self.factor, cross.T).T
        variance = ((features @ self.posterior.root.T) ** 2).sum(axis=1)
        left = diagonal - (features**2).sum(axis=1)
        return features @ self.posterior.weights, variance + left


def inputs_of(latent, y):
    centroids = np.array([latent[y == k].mean(axis=0) for k in np.unique(y)])
    centre = centroids.mean(axis=0)
    return centre, np.sqrt(((centroids - centre) ** 2).sum() / len(centroids))


def prior_mean():
    return np.array([prior.log_median for prior in CLASSIFIER_PRIORS])


def log_loss(log_p, y):
    return -log_p[np.arange(len(y)), y].mean()


@both
def test_two_classes_are_one_probit(approximation):
    latent, y, new, _ = problem(2)
    got = fit_gp_classifier(latent, y, approximation=approximation, kernel_parameters=prior_mean())
    scale, t = inputs_of(latent, y), prior_mean()
    K = plain_kernel(latent, latent, scale, t) + 1e-6 * np.eye(len(y))
    mean, variance = ByMatrix(approximation, K, 2.0 * y - 1.0).predict(
        plain_kernel(new, latent, scale, t), np.diagonal(plain_kernel(new, new, scale, t)) + 1e-6
    )
    moments = got.functions.moments(new)
    np.testing.assert_allclose(moments[0][:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(moments[1][:, 0], variance, atol=1e-4)
    z = mean / np.sqrt(1.0 + variance)
    log_odds = (norm.logcdf(z) - norm.logcdf(-z)) / got.temperature
    expected = -np.logaddexp(0.0, np.column_stack([log_odds, -log_odds]))
    np.testing.assert_allclose(got.log_probabilities(new), expected, atol=1e-4)


@both
def test_probabilities_are_normalised_odds_of_the_problems(approximation):
    """p_c is proportional to (odds of c)^(1/T)."""
    latent, y, new, _ = problem(4)
    got = fit_gp_classifier(latent, y, approximation=approximation)
    mean, variance = got.functions.moments(new)
    assert mean.shape == variance.shape == (400, 4)
    p = norm.cdf(mean / np.sqrt(1.0 + variance))
    power = (p / (1.0 - p)) ** (1.0 / got.temperature)
    expected = power / power.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(got.log_probabilities(new)), expected, atol=1e-10)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("why", ["not predictive", "no better than chance"])
def test_without_a_signal_the_class_frequencies_are_predicted(n_classes, why):
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(n_classes), [30, 12, 6][:n_classes])
    latent = rng.standard_normal((len(y), 1))
    if why == "not predictive":
        latent += 3.0 * y[:, None]
    got = fit_gp_classifier(latent, y, predictive=why != "not predictive")
    frequency = np.bincount(y) / len(y)
    for log_p in (got.left_out, got.log_probabilities(10.0 * latent)):
        np.testing.assert_allclose(np.exp(log_p), np.tile(frequency, (len(y), 1)))


@both
def test_kernel_parameters_maximise_evidence_and_prior(approximation):
    """Against an optimiser without gradients."""
    latent, y, _, _ = problem(3, n=30)
    got = fit_gp_classifier(latent, y, approximation=approximation)
    scale = inputs_of(latent, y)
    sd = np.array([prior.log_sd for prior in CLASSIFIER_PRIORS])

    def value(t):
        K = plain_kernel(latent, latent, scale, t) + 1e-6 * np.eye(len(y))
        total = 0.5 * (((t - prior_mean()) / sd) ** 2).sum()
        for k in range(3):
            sign = np.where(y == k, 1.0, -1.0)
            total -= approximation.evidence(np.linalg.cholesky(K), sign, tol=1e-9).value
        return total

    best = minimize(
        value, prior_mean(), method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-8}
    )
    t = got.functions.kernel.log_values
    assert value(t) == pytest.approx(best.fun, abs=1e-5)
    np.testing.assert_allclose(t, best.x, atol=0.02)
    assert value(t) < value(prior_mean()) - 0.1


@both
def test_leave_one_out_approximates_a_fit_without_the_sample(approximation):
    """With kernel and temperature held fixed; cavities ignore changes of the other sites."""
    latent, y, _, _ = problem(3, n=40)
    got = fit_gp_classifier(latent, y, approximation=approximation)
    loo = got.left_out
    kernel = got.functions.kernel
    expected = np.empty((40, 3))
    for i in range(40):
        keep = np.arange(40) != i
        signs = one_against_rest(y[keep])
        fit, _ = fit_functions(kernel, latent[keep], signs, np.arange(39), approximation)
        mean, variance = fit.moments(latent[i : i + 1])
        expected[i] = from_log_odds(
            probit_log_odds(mean / np.sqrt(1.0 + variance)), got.temperature
        )[0]
    np.testing.assert_allclose(np.exp(loo), np.exp(expected), atol=0.05)
    assert log_loss(loo, y) == pytest.approx(log_loss(expected, y), abs=0.015)


@both
def test_unlabelled_samples_are_ignored(approximation):
    latent, y, new, _ = problem(3)
    rng = np.random.default_rng(8)
    where = np.sort(rng.permutation(50)[:45])
    more, labels = rng.standard_normal((50, 2)), np.full(50, -1)
    more[where], labels[where] = latent, y
    a = fit_gp_classifier(latent, y, approximation=approximation)
    b = fit_gp_classifier(more, labels, approximation=approximation)
    np.testing.assert_array_equal(a.log_probabilities(new), b.log_probabilities(new))
    np.testing.assert_array_equal(a.left_out, b.left_out[where])
    others = labels < 0
    np.testing.assert_array_equal(b.left_out[others], b.log_probabilities(more[others]))


@pytest.mark.parametrize(("approximation", "n"), [(LAPLACE, 1000), (EP, 500)])
def test_some_inducing_points_approximate_the_exact_fit(approximation, n):
    """Probabilities agree to 0.01, with a considerable smooth part."""
    latent, y, new, _ = problem(3, n=n)
    signs = one_against_rest(y)[:1]
    kernel = kernel_at_prior(latent, y)
    kernel = replace(kernel, log_values=kernel.log_values + np.array([1.5, 0.0, 0.0]))
    exact, exact_probits = fit_functions(kernel, latent, signs, np.arange(n), approximation)
    some = stratified_subset(y, 150)
    sparse, probits = fit_functions(kernel, latent, signs, some, approximation)
    assert len(sparse.inducing) < len(exact.inducing)
    got, expected = (norm.cdf(functions.probits(new)) for functions in (sparse, exact))
    np.testing.assert_allclose(got, expected, atol=0.01)
    np.testing.assert_allclose(norm.cdf(probits), norm.cdf(exact_probits), atol=0.01)


def test_many_samples_use_inducing_points(monkeypatch):
    """The kernel is optimised on a stratified subset."""
    monkeypatch.setattr(gp_classifier, "SEARCH_SAMPLES", 40)
    monkeypatch.setattr(gp_classifier, "INDUCING_SAMPLES", 50)
    latent, y, new, y_new = problem(3, n=300)
    some = stratified_subset(y, 40)
    assert len(np.unique(some)) == len(some) <= 43
    assert set(y[some]) == {0, 1, 2}
    got = fit_gp_classifier(latent, y)
    monkeypatch.undo()
    exact = fit_gp_classifier(latent, y)
    a, b = (log_loss(fit.log_probabilities(new), y_new) for fit in (got, exact))
    assert a == pytest.approx(b, abs=0.01)


def test_the_kernel_of_many_classes_is_that_of_some_problems(monkeypatch):
    """It depends on no order of the classes, and new samples have nearly the same probabilities."""
    latent, y, new, y_new = problem(14, 112)
    found = fit_gp_classifier(latent, y)
    order = np.random.default_rng(0).permutation(14)
    renamed = fit_gp_classifier(latent, order[y])
    log_p = found.log_probabilities(new)
    np.testing.assert_allclose(renamed.log_probabilities(new)[:, order], log_p, atol=1e-3)
    monkeypatch.setattr(gp_classifier, "SEARCH_PROBLEMS", 14)
    every = fit_gp_classifier(latent, y)
    assert not np.array_equal(every.functions.kernel.log_values, found.functions.kernel.log_values)
    own = np.arange(len(new)), y_new
    assert log_p[own].mean() == pytest.approx(every.log_probabilities(new)[own].mean(), abs=0.02)
