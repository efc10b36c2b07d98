"""GP classification of latent coordinates: against plain formulas, edge cases and large N."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from bsdr_models.dgplvm import gp_classifier
from bsdr_models.dgplvm.gp_classifier import (
    LAPSE,
    fit_functions,
    fit_gp_classifier,
    kernel_at_prior,
    link,
    one_against_rest,
    probit_log_odds,
)
from bsdr_models.dgplvm.priors import CLASSIFIER_PRIORS
from bsdr_models.dgplvm.probit import EP
from bsdr_models.numerics.folds import stratified_subset
from bsdr_models.papers.dgplvm.laplace import LAPLACE

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


def log_probabilities(log_odds):
    """Of one classifier at temperature one."""
    return link(log_odds[:, None], 1.0)


def log_loss(log_odds, y):
    return -log_probabilities(log_odds)[np.arange(len(y)), y].mean()


@both
def test_two_classes_are_one_probit(approximation):
    latent, y, new, _ = problem(2)
    kernel = kernel_at_prior(latent, y)
    got, _ = fit_gp_classifier(latent, y, approximation=approximation, kernel=kernel)
    scale, t = inputs_of(latent, y), prior_mean()
    K = plain_kernel(latent, latent, scale, t) + 1e-6 * np.eye(len(y))
    mean, variance = ByMatrix(approximation, K, 2.0 * y - 1.0).predict(
        plain_kernel(new, latent, scale, t), np.diagonal(plain_kernel(new, new, scale, t)) + 1e-6
    )
    moments = got.moments(new)
    np.testing.assert_allclose(moments[0][:, 0], mean, atol=1e-4)
    np.testing.assert_allclose(moments[1][:, 0], variance, atol=1e-4)
    p = norm.cdf(mean / np.sqrt(1.0 + variance))
    found = np.exp(log_probabilities(probit_log_odds(got.probits(new))))
    expected = (1.0 - LAPSE) * np.column_stack([1.0 - p, p]) + LAPSE / 2.0
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("n_labels", [2, 4])
def test_probabilities_are_mean_normalised_odds_of_the_classifiers(n_labels):
    """p_c is proportional to (odds of c)^(1/T), and any class has a small probability."""
    n_problems = 1 if n_labels == 2 else n_labels
    p = np.random.default_rng(4).uniform(0.02, 0.98, (400, 3, n_problems))
    power = (p / (1.0 - p)) ** (1.0 / 1.7)
    if n_labels == 2:
        power = np.concatenate([np.ones_like(power), power], axis=-1)
    expected = (power / power.sum(axis=-1, keepdims=True)).mean(axis=1)
    expected = (1.0 - LAPSE) * expected + LAPSE / n_labels
    np.testing.assert_allclose(np.exp(link(probit_log_odds(norm.ppf(p)), 1.7)), expected)


@pytest.mark.slow
@both
def test_kernel_parameters_maximise_evidence_and_prior(approximation):
    """Against an optimiser without gradients."""
    latent, y, _, _ = problem(3, n=30)
    got, _ = fit_gp_classifier(latent, y, approximation=approximation)
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
    t = got.kernel.log_values
    assert value(t) == pytest.approx(best.fun, abs=1e-5)
    np.testing.assert_allclose(t, best.x, atol=0.02)
    assert value(t) < value(prior_mean()) - 0.1


@both
def test_leave_one_out_approximates_a_fit_without_the_sample(approximation):
    """With the kernel held fixed; cavities ignore changes of the other sites.

    The error is small beside that of the fit to all samples.
    """
    latent, y, _, _ = problem(3, n=40)
    got, left_out = fit_gp_classifier(latent, y, approximation=approximation)
    expected = np.empty((40, 3))
    for i in range(40):
        keep = np.arange(40) != i
        signs = one_against_rest(y[keep])
        fit, _ = fit_functions(got.kernel, latent[keep], signs, np.arange(39), approximation)
        expected[i] = probit_log_odds(fit.probits(latent[i : i + 1]))[0]
    of_all = probit_log_odds(got.probits(latent))
    each = (left_out, expected, of_all)
    p, p_expected, p_of_all = (np.exp(log_probabilities(odds)) for odds in each)
    assert np.abs(p - p_expected).max() < 0.25 * np.abs(p_of_all - p_expected).max()
    loss, loss_expected, loss_of_all = (log_loss(odds, y) for odds in each)
    assert abs(loss - loss_expected) < 0.25 * abs(loss_of_all - loss_expected)


@both
def test_a_fold_is_predicted_by_functions_without_it(approximation):
    """At latent coordinates that others are not fitted to; of the kernel of all samples."""
    latent, y, _, _ = problem(3, n=41)
    fold = np.arange(41) // 14
    fold[40] = -1
    y[3] = -1
    held_out = latent + np.random.default_rng(5).standard_normal(latent.shape)
    got, log_odds = fit_gp_classifier(
        latent, y, approximation=approximation, fold=fold, held_out=held_out
    )
    assert np.isnan(log_odds[3]).all()
    scale, t = inputs_of(latent[y >= 0], y[y >= 0]), got.kernel.log_values
    for number in range(3):
        out = (fold == number) & (y >= 0)
        rest = (fold != number) & (y >= 0)
        K = plain_kernel(latent[rest], latent[rest], scale, t) + 1e-6 * np.eye(rest.sum())
        cross = plain_kernel(held_out[out], latent[rest], scale, t)
        diagonal = np.diagonal(plain_kernel(held_out[out], held_out[out], scale, t)) + 1e-6
        for k in range(3):
            signs = np.where(y[rest] == k, 1.0, -1.0)
            mean, variance = ByMatrix(approximation, K, signs).predict(cross, diagonal)
            z = mean / np.sqrt(1.0 + variance)
            expected = norm.logcdf(z) - norm.logcdf(-z)
            np.testing.assert_allclose(log_odds[out, k], expected, atol=1e-3)
    # The functions are those of all samples.
    every, _ = fit_gp_classifier(latent, y, approximation=approximation)
    np.testing.assert_array_equal(got.weights, every.weights)


@both
def test_unlabelled_samples_are_ignored(approximation):
    latent, y, new, _ = problem(3)
    rng = np.random.default_rng(8)
    where = np.sort(rng.permutation(50)[:45])
    more, labels = rng.standard_normal((50, 2)), np.full(50, -1)
    more[where], labels[where] = latent, y
    a, left_out = fit_gp_classifier(latent, y, approximation=approximation)
    b, of_more = fit_gp_classifier(more, labels, approximation=approximation)
    np.testing.assert_array_equal(a.probits(new), b.probits(new))
    np.testing.assert_array_equal(left_out, of_more[where])
    assert np.isnan(of_more[labels < 0]).all()


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
    got, _ = fit_gp_classifier(latent, y)
    monkeypatch.undo()
    exact, _ = fit_gp_classifier(latent, y)
    assert len(got.inducing) <= 53 < len(exact.inducing)
    a, b = (log_loss(probit_log_odds(fit.probits(new)), y_new) for fit in (got, exact))
    assert a == pytest.approx(b, abs=0.01)


@pytest.mark.slow
def test_the_kernel_of_many_classes_is_that_of_some_problems(monkeypatch):
    """It depends on no order of the classes, and new samples have nearly the same probabilities."""
    latent, y, new, y_new = problem(14, 112)
    found, _ = fit_gp_classifier(latent, y)
    order = np.random.default_rng(0).permutation(14)
    renamed, _ = fit_gp_classifier(latent, order[y])
    log_odds, of_renamed = (probit_log_odds(fit.probits(new)) for fit in (found, renamed))
    np.testing.assert_allclose(of_renamed[:, order], log_odds, atol=1e-3)
    monkeypatch.setattr(gp_classifier, "SEARCH_PROBLEMS", 14)
    every, _ = fit_gp_classifier(latent, y)
    assert not np.array_equal(every.kernel.log_values, found.kernel.log_values)
    expected = log_loss(probit_log_odds(every.probits(new)), y_new)
    assert log_loss(log_odds, y_new) == pytest.approx(expected, abs=0.02)
