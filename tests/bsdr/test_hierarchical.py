"""Estimators of the hierarchical model: draws, coordinates, pooling, summaries."""

import dataclasses
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from bsdr_models.bsdr.pooling import POWERS, as_power, choose_power, make_folds, pool, weigh_powers
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError

from bsdr_models import BSDRClassifier, BSDRRegressor, HierarchicalPriors, Priors, load
from bsdr_models.bsdr import draws as draws_module
from bsdr_models.bsdr import hierarchical, populations, probit_choice
from bsdr_models.bsdr import pooling as pooling_module
from bsdr_models.bsdr.draws import Coordinates, Posterior
from bsdr_models.bsdr.model import build_model
from bsdr_models.bsdr.posterior import Metric, Problem
from bsdr_models.checks import R_HAT_LIMIT

N, D, K = 36, 4, 3
TARGETS = ("multiclass", "multilabel", "regression")
# Sufficient for tests of properties of any draws.
FEW = {"sampling__draws": 64, "sampling__chains": 2, "pooling": "linear", "random_state": 0}


def toy(target, *, n=N, d=D, k=K, seed=0, noise=1.0):
    """Targets of any type from K linear predictors in two latent dimensions."""
    rng = np.random.default_rng([17, seed])
    z = rng.standard_normal((n, min(d, 4)))
    X = z @ rng.standard_normal((z.shape[1], d)) + 0.1 * rng.standard_normal((n, d))
    angle = 2.0 * np.pi * np.arange(k) / k
    eta = 2.0 * z[:, :2] @ np.stack([np.cos(angle), np.sin(angle)])
    eta += noise * rng.standard_normal(eta.shape)
    if target == "multiclass":
        return X, eta.argmax(axis=1)
    return X, (eta > 0.0).astype(int) if target == "multilabel" else eta


def estimator(target, r=2, **more):
    kind = BSDRRegressor if target == "regression" else BSDRClassifier
    return kind(r).set_params(**FEW | more)


@pytest.fixture(scope="module")
def fitted():
    """Cached fits of each target, with more or fewer samples than features."""
    cache = {}

    def fit(target, *, wide=False):
        if (target, wide) not in cache:
            X, y = toy(target, d=60 if wide else D)
            cache[target, wide] = estimator(target).fit(X, y), X, y
        return cache[target, wide]

    return fit


def answers(model, X):
    return model.predict(X) if isinstance(model, BSDRRegressor) else model.predict_proba(X)


def flat(variable):
    """Draws of all chains, stacked."""
    return variable.values.reshape(-1, *variable.shape[2:])


# --------------------------------------------------------------------------------- any target


@pytest.mark.parametrize("wide", [False, True], ids=["many samples", "many features"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_be_fitted(fitted, target, wide):
    model, X, y = fitted(target, wide=wide)
    d = X.shape[1]
    assert model.variant_ == "hierarchical"
    assert model.n_components_ == 2
    assert model.components_.shape == (2, d)
    assert model.get_feature_names_out().shape == (2,)
    assert np.isfinite(model.log_evidence_)
    assert np.isnan(model.held_out_score_)  # nothing was held out
    assert model.pooling_power_ == 1.0
    assert not model.interrupted_
    assert np.all(np.diff(model.relevance_) <= 0.0)
    assert 0.0 < model.relevance_.sum() < 1.0 + 1e-9
    mean, cov = model.transform(X, return_cov=True)
    assert mean.shape == (len(X), 2)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    if target == "regression":
        prediction, std = model.predict(X, return_std=True)
        assert prediction.shape == std.shape == y.shape
        assert (std > 0.0).all()
        assert np.corrcoef(prediction.ravel(), y.ravel())[0, 1] > (0.3 if wide else 0.8)
    else:
        p = model.predict_proba(X)
        assert p.shape == (len(X), K)
        assert ((p > 0.0) & (p < 1.0)).all()
        assert np.mean(model.predict(X) == y) > 0.8
        if target == "multiclass":
            np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "k", "asked", "expected"),
    [
        ("multiclass", 2, 2, 1),
        ("multiclass", 3, 4, 2),
        ("multilabel", 3, 4, 3),
        ("regression", 1, 2, 1),
        ("regression", 3, 1, 1),
    ],
)
@pytest.mark.filterwarnings("ignore:the targets are not predictable")
def test_number_of_components_is_at_most_that_of_the_contrasts(target, k, asked, expected):
    X, y = toy(target, k=k)
    model = estimator(target, asked).fit(X, y)
    assert model.n_components_ == expected
    assert model.transform(X).shape == (N, expected)
    assert model.components_.shape == (expected, D)
    assert model.idata_["posterior"].sizes["component"] == expected
    assert model.get_feature_names_out().shape == (expected,)


def test_more_components_than_features_raise():
    with pytest.raises(ValueError, match="n_components=5 must be at most n_features=4"):
        estimator("multiclass", 5).fit(*toy("multiclass"))


def test_uncertainty_grows_with_distance_from_the_training_samples(fitted):
    """Outside the row space of the training samples the posterior is the prior."""
    for wide in (False, True):
        model, X, _ = fitted("multiclass", wide=wide)
        rng = np.random.default_rng(1)
        outside = rng.standard_normal((20, X.shape[1]))
        spread = [
            np.einsum("nrr->n", model.transform(rows, return_cov=True)[1]).mean()
            for rows in (X, outside, 10.0 * outside)
        ]
        assert spread[2] > 20.0 * spread[1]
        assert not wide or spread[1] > spread[0]


def test_moments_are_those_of_the_mixture_over_draws(fitted):
    model, X, _ = fitted("regression")
    posterior = model._hierarchical.posterior
    scaled = (X - model.mean_) / model.scale_
    eta = posterior.draws.linear_predictor(posterior.metric.whiten(scaled), np.zeros(N))
    sigma = posterior.draws.noise_scale
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, eta.mean(axis=0) * model.y_scale_ + model.y_mean_, atol=1e-6)
    second = np.mean(eta**2 + sigma[:, None] ** 2, axis=0)
    np.testing.assert_allclose(std, np.sqrt(second - eta.mean(axis=0) ** 2) * model.y_scale_)


# --------------------------------------------------------------------------------- components


def test_the_number_of_components_is_the_fewest_within_the_error_of_the_largest_evidence():
    """The standard error of a difference, 2 nats, is that of two means of two."""
    pairs = np.array([[-22.0, -18.0], [-13.0, -13.0], [-12.0 - np.sqrt(2.0), -12.0 + np.sqrt(2.0)]])
    spread = np.sqrt(np.mean([8.0, 0.0, 4.0]))
    comparison = populations.Comparison(log_evidence=pairs)
    assert comparison.error == pytest.approx(spread)
    assert comparison.chosen == 2
    assert populations.Comparison(log_evidence=pairs - [[0.0], [9.0], [0.0]]).chosen == 3
    assert populations.Comparison(log_evidence=pairs - [[-9.0], [0.0], [0.0]]).chosen == 1


@pytest.mark.slow
def test_the_number_of_components_is_that_of_the_evidence():
    """Three classes along a line need one, three at the corners of a triangle two."""
    rng = np.random.default_rng(3)
    y = np.arange(60) % 3
    line = rng.standard_normal((60, 5))
    line[:, 0] += 1.5 * y
    corners = rng.standard_normal((60, 5))
    corners[:, :2] += 6.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[y]
    for X, expected in ((line, 1), (corners, 2)):
        model = estimator("multiclass", "auto").fit(X, y)
        comparison = model._hierarchical.comparison
        found = dict(enumerate(comparison.means, start=1))
        assert model.n_components_ == comparison.chosen
        assert found[expected] > max(found.values()) - 4.0  # populations differ by a few nats
        assert list(found) == list(range(1, len(found) + 1))
        assert len(found) <= 2
        assert model.idata_.attrs["components_compared"] == list(found)
        np.testing.assert_array_equal(
            model.idata_.attrs["components_log_evidence"], list(found.values())
        )
        line = dict(model.summary().sections["latent space"])["log evidence of"]
        assert line.startswith(f"{found[1]:.1f} for 1, {found[2]:.1f} for 2")
    assert found[2] > found[1]


@pytest.mark.filterwarnings("ignore:the targets are not predictable")
def test_two_classes_have_one_component():
    X, y = toy("multiclass", k=2)
    model = estimator("multiclass", "auto").fit(X, y)
    assert model.n_components_ == 1
    assert len(model._hierarchical.comparison.means) == 1


def test_auto_components_need_an_evidence():
    with pytest.raises(ValueError, match="n_components='auto' needs inference='smc'"):
        BSDRClassifier("auto", inference="nuts").fit(*toy("multiclass"))


# --------------------------------------------------------------------------------- pooling


def test_pooling_is_the_mean_of_powers():
    rng = np.random.default_rng(4)
    log_p = np.log(rng.dirichlet(np.ones(4), size=(50, 7)))  # (S, M, K)
    p = np.exp(log_p)
    np.testing.assert_allclose(np.exp(pool(log_p, 1.0)), p.mean(axis=0))
    for power in (0.5, 0.25):
        expected = np.mean(p**power, axis=0) ** (1.0 / power)
        expected /= expected.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(np.exp(pool(log_p, power)), expected)
    geometric = np.exp(log_p.mean(axis=0))
    np.testing.assert_allclose(
        np.exp(pool(log_p, 0.0)), geometric / geometric.sum(axis=1, keepdims=True)
    )
    np.testing.assert_allclose(pool(log_p, 1e-7), pool(log_p, 0.0), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_named_and_numeric_poolings(target):
    """The draws do not depend on the pooling."""
    X, y = toy(target)
    found = {
        pooling: estimator(target, pooling=pooling).fit(X, y) for pooling in ("linear", 0.5, "log")
    }
    posterior = found["linear"]._hierarchical.posterior
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    eta = posterior.draws.linear_predictor(posterior.metric.whiten(scaled), np.zeros(N))
    if target == "multilabel":
        p = 0.997 * norm.cdf(eta) + 0.0015
        log_p = np.log(np.stack([p, 1.0 - p], axis=-1))
        expected = {a: np.exp(pool(log_p, a))[..., 0] for a in (1.0, 0.5, 0.0)}
        np.testing.assert_allclose(expected[1.0], p.mean(axis=0))
    else:
        log_p = np.log(probit_choice.probabilities(eta, 0.003))
        expected = {a: np.exp(pool(log_p, a)) for a in (1.0, 0.5, 0.0)}
        np.testing.assert_allclose(expected[1.0], np.exp(log_p).mean(axis=0))
    for pooling, power in (("linear", 1.0), (0.5, 0.5), ("log", 0.0)):
        assert found[pooling].pooling_power_ == power
        np.testing.assert_allclose(found[pooling].predict_proba(X), expected[power], rtol=1e-5)
    # Disagreement between draws flattens the mean.
    certainty = [np.abs(found[a].predict_proba(X) - 0.5).mean() for a in ("linear", 0.5, "log")]
    assert certainty == sorted(certainty)


@pytest.mark.parametrize("pooling", ["geometric", -0.1, 1.5, np.nan, True, None])
def test_invalid_pooling_raises(pooling):
    with pytest.raises(ValueError, match="'pooling' parameter"):
        estimator("multiclass", pooling=pooling).fit(*toy("multiclass"))


def test_powers_are_weighted_by_the_held_out_likelihood():
    assert as_power("auto") is None
    assert as_power(1) == as_power("linear") == 1.0
    assert as_power(0) == as_power("log") == 0.0
    assert weigh_powers([-1000.0, -500.0, -100.0, -900.0]) == pytest.approx(POWERS[2])
    assert weigh_powers([-3.0] * 4) == pytest.approx(np.mean(POWERS))
    with_odds = weigh_powers([0.0, -np.inf, -np.inf, np.log(3.0)])
    assert with_odds == pytest.approx(0.25 * POWERS[0] + 0.75 * POWERS[3])


def test_power_is_selected_by_held_out_samples():
    X, y = toy("multiclass")
    model = estimator("multiclass", pooling="auto").fit(X, y)
    assert 0.0 <= model.pooling_power_ <= 1.0
    assert -np.log(3.0) < model.held_out_score_ < 0.0
    assert "chosen by held-out samples" in str(model.summary())
    assert f"{model.held_out_score_:.3f} nats" in str(model.summary())
    given = estimator("multiclass", pooling=model.pooling_power_).fit(X, y)
    np.testing.assert_array_equal(given.predict_proba(X), model.predict_proba(X))


def folds(y, target="multiclass"):
    X = np.random.default_rng(5).standard_normal((len(y), 3))
    k = y.max() + 1 if y.ndim == 1 else y.shape[1]
    given = {"n_labels": int(k), "n_components": 1, "priors": HierarchicalPriors()}
    return make_folds(Problem.build(X, y, target=target, **given))


def test_folds_are_stratified_and_leave_no_class_out():
    y = np.repeat([0, 1, 2], [23, 11, 1])
    fold = folds(y)
    assert fold[-1] == -1
    counts = np.array([np.bincount(y[fold == f], minlength=3)[:2] for f in range(5)])
    assert np.ptp(counts, axis=0).max() <= 1
    assert folds(np.arange(4)).max() == -1  # a single sample of each class
    for target in ("multilabel", "regression"):
        assert np.ptp(np.bincount(folds(np.zeros((12, 2)), target))) <= 1


def test_classes_of_one_sample_cannot_be_held_out():
    problem = Problem.build(
        np.random.default_rng(0).standard_normal((3, 2)),
        np.arange(3),
        n_labels=3,
        n_components=1,
        target="multiclass",
        priors=HierarchicalPriors(),
    )
    power, held_out = choose_power(problem, rng=np.random.default_rng(0))
    assert power == 1.0
    assert np.isnan(held_out.score)


# --------------------------------------------------------------------------------- invariance


@pytest.mark.slow
@pytest.mark.usefixtures("few_particles")
@pytest.mark.parametrize("target", TARGETS)
def test_fits_are_reproducible(target):
    X, y = toy(target)
    first, second = (estimator(target).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(answers(first, X), answers(second, X))
    assert first.log_evidence_ == second.log_evidence_
    assert first.idata_.equals(second.idata_)
    other = estimator(target, random_state=1).fit(X, y)
    assert not np.array_equal(answers(other, X), answers(first, X))


@pytest.mark.slow
def test_result_does_not_depend_on_n_jobs():
    X, y = toy("multiclass")
    alone, together = (
        estimator("multiclass", pooling="auto", n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(together.predict_proba(X), alone.predict_proba(X))
    assert together.held_out_score_ == alone.held_out_score_
    assert together.idata_["posterior"].equals(alone.idata_["posterior"])


@pytest.mark.slow
@pytest.mark.usefixtures("few_particles")
@pytest.mark.parametrize("target", TARGETS)
def test_permutations_change_predictions_by_monte_carlo_error_only(target):
    """Permutations of classes, samples and features, and signs of features."""
    X, y = toy(target)
    rng = np.random.default_rng(6)
    classes, features, samples = (rng.permutation(size) for size in (K, D, N))
    signs = np.array([1.0, -1.0, -1.0, 1.0])
    X_new = (signs * X)[:, features]
    y_new = classes[y] if target == "multiclass" else y[:, np.argsort(classes)]

    def fit(X, y, at, seeds):
        models = [estimator(target, random_state=seed).fit(X, y) for seed in seeds]
        return np.stack([answers(model, at) for model in models])

    before = fit(X, y, X, range(5))
    after = fit(X_new[samples], y_new[samples], X_new, range(5, 10))[..., classes]
    difference = after.mean(axis=0) - before.mean(axis=0)
    error = (after.var(axis=0, ddof=1) + before.var(axis=0, ddof=1)) / 5.0
    # Predictions of a fit are correlated; for independent ones the ratio would be 1.
    assert np.sqrt(np.mean(difference**2) / np.mean(error)) < 2.5
    assert np.sqrt(np.mean(error)) < 0.05


# --------------------------------------------------------------------------------- coordinates


@pytest.mark.parametrize("wide", [False, True], ids=["many samples", "many features"])
@pytest.mark.parametrize("target", TARGETS)
def test_alignment_keeps_the_linear_predictor(fitted, target, wide):
    model, X, _ = fitted(target, wide=wide)
    fit = model._hierarchical
    scaled = (X - model.mean_) / model.scale_
    whitened, none = fit.posterior.metric.whiten(scaled), np.zeros(N)
    raw = fit.draws.linear_predictor(whitened, none)
    aligned = fit.coordinates.align(fit.draws)
    size = np.abs(raw).max()
    np.testing.assert_allclose(aligned.linear_predictor(whitened, none), raw, atol=1e-8 * size)
    np.testing.assert_array_equal(aligned.noise_scale, fit.draws.noise_scale)
    # The same for the draws of the tree.
    posterior = model.idata_["posterior"]
    Q, W, b, coef = (flat(posterior[name]) for name in ("projection", "weights", "bias", "coef"))
    np.testing.assert_allclose(scaled @ Q @ W + b[:, None], raw, atol=1e-8 * size)
    np.testing.assert_allclose(Q @ W, coef, atol=1e-8 * np.abs(coef).max())
    if target == "multiclass":
        np.testing.assert_allclose(coef.sum(axis=2), 0.0, atol=1e-8 * np.abs(coef).max())


@pytest.mark.parametrize("wide", [False, True], ids=["many samples", "many features"])
@pytest.mark.parametrize("target", TARGETS)
def test_embedding_is_linear_in_scaled_features(fitted, target, wide):
    model, X, _ = fitted(target, wide=wide)
    new = np.random.default_rng(7).standard_normal((5, X.shape[1]))
    for rows in (X, new):
        scaled = (rows - model.mean_) / model.scale_
        np.testing.assert_allclose(model.transform(rows), scaled @ model.components_.T, atol=1e-8)
    fit = model.idata_["fit"]
    np.testing.assert_allclose(fit["projection_mean"].T, model.components_)
    np.testing.assert_allclose(fit["latent_mean"], model.transform(X))


@pytest.mark.parametrize("target", TARGETS)
def test_coordinates_are_canonical_variates_of_the_mean_linear_predictor(fitted, target):
    """Distances between embedded samples are those between their mean linear predictors."""
    model, X, y = fitted(target)
    fit = model._hierarchical
    scaled = (X - model.mean_) / model.scale_
    eta = fit.draws.linear_predictor(fit.posterior.metric.whiten(scaled), np.zeros(N))
    if target != "regression":  # all draws have the same size
        eta = eta - fit.draws.bias[:, None]
        size = np.linalg.norm(eta - eta.mean(axis=1, keepdims=True), axis=(1, 2))
        eta *= (np.median(size) / size)[:, None, None]
    mean = eta.mean(axis=0) - eta.mean(axis=(0, 1))
    u = model.transform(X)
    axes = fit.coordinates.axes
    np.testing.assert_allclose(axes.T @ axes, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(u, mean @ axes, atol=1e-8)
    if target == "multiclass":
        np.testing.assert_allclose(u @ axes.T, mean, atol=1e-8)
        means = np.stack([u[y == label].mean(axis=0) for label in range(K)])
        between = np.cov(means.T)
        np.testing.assert_allclose(between[0, 1], 0.0, atol=1e-8 * between.max())
        assert between[0, 0] >= between[1, 1]
        share = np.diag(between) / np.trace(between)
        np.testing.assert_allclose(model.relevance_, share, rtol=1e-6)


def test_coordinates_do_not_depend_on_the_components_of_single_draws(fitted):
    """Invertible linear maps and shifts of the latent space of each draw change nothing."""
    model, X, _ = fitted("multiclass")
    fit, rng = model._hierarchical, np.random.default_rng(0)
    draws, metric = fit.draws, fit.posterior.metric
    whitened = metric.whiten((X - model.mean_) / model.scale_)
    problem = Problem.build(
        whitened,
        model._context.targets,
        n_labels=K,
        n_components=2,
        target="multiclass",
        priors=HierarchicalPriors(),
    )
    maps = np.eye(2) + 0.3 * rng.standard_normal((len(draws.scale), 2, 2))
    mapped = dataclasses.replace(
        draws,
        projection=np.swapaxes(maps, 1, 2) @ draws.projection,
        weights=np.linalg.inv(maps) @ draws.weights,
    )
    first, second = (Coordinates.learn(problem, each) for each in (draws, mapped))
    u = first.embed(whitened)
    np.testing.assert_allclose(second.embed(whitened), u, atol=1e-8 * np.abs(u).max())
    own = [
        c.covariance(d.latent(whitened, np.zeros(N)), u)
        for c, d in ((first, draws), (second, mapped))
    ]
    np.testing.assert_allclose(own[1], own[0], atol=1e-8 * own[0].max())
    assert first.reliability == pytest.approx(second.reliability, abs=1e-10)
    assert 0.5 < first.reliability <= 1.0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("chunk", [5, 8192])
def test_maps_of_draws_are_least_squares_on_all_samples(fitted, target, chunk, monkeypatch):
    """Samples that are not centred, as a subsample; in several blocks, and in one."""
    monkeypatch.setattr(draws_module, "_CHUNK", chunk)
    model, X, _ = fitted(target)
    fit, some = model._hierarchical, slice(0, 25)
    scaled = (X[some] - model.mean_) / model.scale_
    whitened, draws = fit.posterior.metric.whiten(scaled), fit.draws
    problem = Problem.build(
        whitened,
        model._context.targets[some],
        n_labels=K,
        n_components=2,
        target=target,
        priors=HierarchicalPriors(),
    )
    found = Coordinates.learn(problem, draws)
    eta = whitened @ np.swapaxes(draws.projection, 1, 2) @ draws.weights
    if target != "regression":
        size = eta.std(axis=1)
        size = np.sqrt(np.mean(size**2, axis=1))
        eta *= (np.median(size) / size)[:, None, None]
    np.testing.assert_allclose(whitened @ found.coefficients, eta.mean(axis=0), atol=1e-10)
    u, ones = found.embed(whitened), np.ones((25, 1))
    unexplained = 0.0
    for own, map_ in zip(draws.projection, found.maps, strict=True):
        full = np.hstack([ones, whitened @ own.T])
        expected, square = np.linalg.lstsq(full, u, rcond=None)[:2]
        np.testing.assert_allclose(full @ map_, full @ expected, atol=1e-8 * np.abs(u).max())
        unexplained += square.sum() / len(draws.scale)
    assert found.reliability == pytest.approx(1.0 - unexplained / np.sum(u**2), abs=1e-10)


# --------------------------------------------------------------------------------- evidence


def test_absence_of_signal_warns():
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((60, 6)), np.arange(60) % 3
    with pytest.warns(UserWarning, match="not predictable from X.*Bayes factor"):
        model = estimator("multiclass", pooling="auto").fit(X, y)
    assert model.log_bayes_factor_ < np.log(3.0)
    assert model.pooling_power_ == 1.0
    assert np.isnan(model.held_out_score_)
    assert any("not predictable from X" in remark for remark in model.summary().remarks)
    assert np.abs(model.predict_proba(X) - 1.0 / 3.0).max() < 0.35


@pytest.fixture(scope="module")
def wine():
    return estimator("multiclass", sampling__draws=200).fit(*load_wine(return_X_y=True))


def test_wine_has_a_signal(wine):  # a warning would be an error
    model = wine
    assert model.log_bayes_factor_ > 50.0
    assert model.idata_.attrs["log_bayes_factor"] == model.log_bayes_factor_
    assert model.log_evidence_ == model.idata_.attrs["log_evidence"]


def test_few_samples_converge_by_default():
    """With short trajectories R-hat was 1.013 to 1.019, effective sample sizes 270 to 340."""
    X, y = load_iris(return_X_y=True)
    model = BSDRClassifier(2, random_state=0, pooling="linear").fit(X[::5], y[::5])
    assert model.idata_.attrs["r_hat"] <= 1.01
    assert model.idata_.attrs["ess_bulk"] > 500


def test_what_has_not_mixed_is_counted():
    """The second population disagrees on one of K labels of 16 samples, not on the likelihood."""
    X, y = toy("multilabel")
    rng = np.random.default_rng(0)
    problem = Problem.build(
        X, y, n_labels=K, n_components=2, target="multilabel", priors=HierarchicalPriors()
    )
    theta = rng.standard_normal((400, problem.n_parameters))
    theta[200:, problem.layout["bias"][0]] += 50.0
    draws = problem.parameters(theta, rng=rng)
    log_likelihood = rng.standard_normal((2, 200))
    r_hat, _, unmixed = hierarchical.mixing(problem, draws, log_likelihood)
    assert r_hat > R_HAT_LIMIT
    assert unmixed == pytest.approx(16 / (1 + 16 * K))
    assert np.isnan(hierarchical.mixing(problem, draws.take(slice(200)), log_likelihood[:1])).all()


def test_evidence_without_features_against_quadrature():
    """Two classes with a bias only."""
    y = np.repeat([0, 1], [12, 5])
    priors = HierarchicalPriors()
    found = populations.evidence_without_features(
        y, 2, "multiclass", priors, rng=np.random.default_rng(9)
    )
    b = np.linspace(-60.0, 60.0, 20_001)
    # The predictors differ by sqrt(2) b, and the difference of two noises has a variance of two.
    log_p = [np.log(0.997 * norm.cdf(sign * b) + 0.0015) for sign in (1.0, -1.0)]
    density = 12.0 * log_p[0] + 5.0 * log_p[1] + norm.logpdf(b, scale=priors.bias_scale)
    assert found == pytest.approx(logsumexp(density) + np.log(b[1] - b[0]), abs=0.3)


# --------------------------------------------------------------------------------- trees, files


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
@pytest.mark.parametrize("target", TARGETS)
def test_arviz_reads_the_tree(fitted, target):
    model = fitted(target)[0]
    tree = model.idata_
    assert tree.attrs["inference_method"] == "smc"
    assert "note" not in tree["posterior"].attrs  # not approximate
    stats = tree["sample_stats"]
    total = tree["log_likelihood/y"].sum("obs")
    np.testing.assert_allclose(total, stats["log_likelihood"], rtol=1e-6)
    np.testing.assert_allclose(stats["lp"], stats["log_likelihood"] + tree["log_prior/parameters"])
    table = az.summary(tree, var_names=["coef", "bias"])
    assert len(table) == D * K + K
    assert np.isfinite(table["mean"].astype(float)).all()
    found = az.loo(tree, pointwise=True)
    assert found.n_data_points == N
    assert np.isfinite(found.elpd_i).all()


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
def test_leave_one_out_of_samples_of_which_all_draws_are_certain(wine):
    values = wine.idata_["log_likelihood/y"].stack(s=("chain", "draw"))
    certain = (values.max("s") - values.min("s")) < 1e-5
    assert certain.any()
    found = az.loo(wine.idata_, pointwise=True)
    assert np.isfinite(found.pareto_k).all()
    expected = values.mean("s").where(certain)
    np.testing.assert_allclose(found.elpd_i.where(certain), expected, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_saved_models_predict_the_same(fitted, target, tmp_path):
    model, X, _ = fitted(target, wide=True)
    model.save(tmp_path / "model.skops")
    back = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(answers(back, X), answers(model, X))
    np.testing.assert_array_equal(
        back.transform(X, return_cov=True)[1], model.transform(X, return_cov=True)[1]
    )
    assert str(back.summary()) == str(model.summary())
    assert back.idata_["posterior"].equals(model.idata_["posterior"])


@pytest.mark.parametrize("target", TARGETS)
def test_summary_describes_the_fit(fitted, target):
    model, _, _ = fitted(target)
    said = str(model.summary())
    fit = dict(model.summary().sections["fit"])
    assert fit["draws"] == "64 from each of 2 chains"
    assert fit["log evidence"].startswith(f"{model.log_evidence_:.1f} nats")
    assert fit["log Bayes factor"].startswith(f"{model.log_bayes_factor_:.1f} nats")
    assert fit["mixing"].startswith("R-hat at most")
    assert ("1 is the posterior predictive" in said) == (target != "regression")
    assert model._repr_html_()


# --------------------------------------------------------------------------------- interrupts


def interrupt_at(monkeypatch, number, module=populations):
    """Interrupt a run of particles; the first is of the model without features."""
    run, calls = module.run_tempering, []

    def interrupting(*args, **kwargs):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return run(*args, **kwargs)

    monkeypatch.setattr(module, "run_tempering", interrupting)


@pytest.mark.parametrize("target", TARGETS)
def test_interrupted_fit_keeps_finished_populations(target, monkeypatch):
    X, y = toy(target)
    interrupt_at(monkeypatch, 3)
    model = estimator(target, sampling__chains=3, pooling="auto").fit(X, y)
    assert model.interrupted_
    assert not model.converged_
    assert model.pooling_power_ == 1.0
    tree = model.idata_
    assert tree.attrs["interrupted"] == 1
    assert tree["posterior"].sizes["chain"] == 1
    assert np.isfinite(answers(model, X)).all()
    assert "interrupted the fit" in str(model.summary())


def test_interrupt_before_the_posterior_leaves_the_model_unfitted(monkeypatch):
    X, y = toy("multiclass")
    model = estimator("multiclass").fit(X, y)
    interrupt_at(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_interrupted_folds_keep_the_draws(monkeypatch):
    X, y = toy("multiclass")
    whole = estimator("multiclass").fit(X, y)
    interrupt_at(monkeypatch, 2, module=pooling_module)  # after a fold
    model = estimator("multiclass", pooling="auto").fit(X, y)
    assert model.interrupted_
    assert model.pooling_power_ == 1.0
    np.testing.assert_array_equal(model.predict_proba(X), whole.predict_proba(X))


# --------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "probit"}, "'variant' parameter"),
        ({"inference": "mean_field"}, "inference='mean_field' is for variant='paper'"),
        ({"inference": "gibbs"}, "inference='gibbs' is for variant='paper'"),
        ({"variant": "paper", "inference": "smc"}, "inference='smc' is for variant='hierarchical'"),
        ({"variant": "paper", "pooling": "log"}, "pooling='log' is for variant='hierarchical'"),
        ({"variant": "paper", "n_components": "auto"}, "n_components"),
        ({"variant": "paper", "priors": HierarchicalPriors()}, "priors must be a Priors"),
        ({"priors": Priors()}, "priors must be a HierarchicalPriors"),
        ({"optimization__max_iter": 3}, "optimization is for variant='paper'"),
        ({"n_components": "many"}, "n_components"),
    ],
)
def test_incompatible_arguments_raise(arguments, message):
    model = BSDRClassifier().set_params(**arguments)
    with pytest.raises(ValueError, match=message):
        model.fit(*toy("multiclass"))
    assert not model.__sklearn_is_fitted__()


# --------------------------------------------------------------------------------- one model


def density_of(target, *, wide):
    """Log densities of the PyMC model and of the sampler at random parameters."""
    n, d, r = 8, 14 if wide else 3, 2
    X, y = toy(target, n=n, d=d, seed=2)
    X = X - X.mean(axis=0)
    if target == "multiclass":
        y[:K] = np.arange(K)
    priors = HierarchicalPriors(
        scale_location=-0.4, scale_width=1.3, bias_scale=2.7, noise_width=0.6, lapse=0.04
    )
    model = build_model(X, y, n_components=r, priors=priors, target=target)
    logp = model.compile_logp(mode="FAST_COMPILE")
    metric = Metric.learn(X)
    problem = Problem.build(
        metric.whiten(X),
        y > 0 if target == "multilabel" else y,
        n_labels=K,
        n_components=r,
        target=target,
        priors=priors,
    )
    rng = np.random.default_rng(10)
    theta = rng.standard_normal((6, problem.n_parameters))
    outside = rng.standard_normal((6, d, r))
    outside -= metric.axes @ (metric.axes.T @ outside)
    blocks = problem.split(theta)
    assert np.abs(outside).max() > 0.1 or not wide
    declared = []
    for s in range(6):
        point = {
            "scale_log__": np.log(problem.scale(theta)[s]),
            "projection_offset": metric.axes @ blocks["projection"][s].T + outside[s],
            "weight_contrasts": blocks["weights"][s],
            "bias_contrasts": priors.bias_scale * blocks["bias"][s],
        }
        if target == "regression":
            point["noise_scale_log__"] = np.log(problem.noise_scale(theta)[s])
        assert point.keys() == {variable.name for variable in model.value_vars}
        declared.append(float(logp(point)))
    sampled = problem.log_likelihood(theta)[0] - 0.5 * np.sum(theta**2, axis=1)
    return np.array(declared), sampled - 0.5 * np.sum(outside**2, axis=(1, 2))


@pytest.mark.parametrize("wide", [False, True], ids=["many samples", "many features"])
@pytest.mark.parametrize("target", TARGETS)
def test_pymc_model_has_the_density_that_is_sampled(target, wide):
    declared, sampled = density_of(target, wide=wide)
    assert np.ptp(sampled) > 3.0
    np.testing.assert_allclose(np.diff(declared), np.diff(sampled), rtol=1e-5, atol=1e-4)


def test_pymc_model_is_that_of_the_fit(fitted):
    for target in TARGETS:
        model, X, _ = fitted(target)
        declared = model.model_
        shapes = declared.eval_rv_shapes()
        assert tuple(shapes["projection_offset"]) == (D, 2)
        assert {"scale", "projection", "weights", "bias", "coef", "y"} <= set(declared.named_vars)
        np.testing.assert_allclose(
            declared["X"].get_value(), (X - model.mean_) / model.scale_, atol=1e-12
        )


def test_labels_of_the_pymc_model_are_exchangeable():
    X, y = toy("multiclass")
    model = build_model(X - X.mean(axis=0), y, n_components=2)
    found = pm.sample_prior_predictive(
        400, model=model, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"}
    )
    drawn = found["prior_predictive/y"].values[0]
    share = np.stack([(drawn == c).mean(axis=1) for c in range(K)], axis=1)
    error = share.std(axis=0) / np.sqrt(400)
    assert np.all(np.abs(share.mean(axis=0) - 1.0 / K) < 4.0 * error)


@pytest.mark.slow
def test_nuts_agrees_with_tempering(monkeypatch):
    """Means of identified quantities on overlapping classes of Iris, within 4 standard errors."""
    monkeypatch.setattr(hierarchical, "N_PREDICT", 4096)  # Monte Carlo error of 256 is .05
    X, y = load_iris(return_X_y=True)
    X, y = X[1::5, :2], y[1::5]
    trees, probabilities = {}, {}
    for engine, options in (
        ("smc", {"sampling__draws": 1024, "sampling__chains": 4}),
        ("nuts", {"sampling__draws": 600, "sampling__tune": 600, "sampling__chains": 2}),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="pymc|pytensor|arviz")
            model = (
                BSDRClassifier(2, inference=engine, pooling="linear", random_state=0)
                .set_params(**options)
                .fit(X, y)
            )
        trees[engine] = model.idata_["posterior"]
        probabilities[engine] = model.predict_proba(X)
    z = []
    for name in ("coef", "bias_centered"):
        first, second = (
            np.moveaxis(tree[name].values.reshape(*tree[name].shape[:2], -1), 2, 0)
            for tree in trees.values()
        )
        difference = first.mean(axis=(1, 2)) - second.mean(axis=(1, 2))
        errors = [[array_stats.mcse(values) for values in each] for each in (first, second)]
        z.append(difference / np.hypot(*errors))
    assert np.abs(np.concatenate(z)).max() < 4.0
    assert np.abs(probabilities["smc"] - probabilities["nuts"]).max() < 0.05


def test_predictions_use_at_most_n_predict_draws():
    model = estimator("multiclass", sampling__draws=256).fit(*toy("multiclass"))
    assert len(model._hierarchical.draws.scale) == 512
    posterior: Posterior = model._hierarchical.posterior
    assert len(posterior.draws.scale) == len(posterior.coordinates.maps) == 256
