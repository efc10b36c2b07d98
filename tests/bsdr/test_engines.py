"""Estimators of the model at full rank: draws, coordinates, temperature, summaries."""

import dataclasses
import warnings

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy.special import ndtr
from sklearn.datasets import load_iris

from bsdr_models import BSDRClassifier, BSDRRegressor, HierarchicalPriors
from bsdr_models.bsdr import engines as fits
from bsdr_models.bsdr import hmc, probit_choice
from bsdr_models.bsdr import posterior as draws_module
from bsdr_models.bsdr.feature_map import make_learner
from bsdr_models.bsdr.posterior import Coordinates
from bsdr_models.bsdr.problem import BSDRProblem
from bsdr_models.data.training import Training
from bsdr_models.data.validation import R_HAT_LIMIT
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import Priors

N, D, K = 36, 4, 3
TARGETS = ("multiclass", "multilabel", "regression")
LABELS = ("multiclass", "multilabel")
# Sufficient for tests of properties of any draws.
FEW = {"sampling__draws": 40, "sampling__chains": 2, "random_state": 0}
pytestmark = [
    pytest.mark.usefixtures("short_runs"),
    pytest.mark.filterwarnings("ignore:the chains have not mixed"),
]


def toy(target, *, n=N, d=D, k=K, seed=0, noise=1.0):
    """Targets of any type from K linear predictors in two latent dimensions."""
    rng = np.random.default_rng([17, seed])
    z = rng.standard_normal((n, min(d, 4)))
    X = z @ rng.standard_normal((z.shape[1], d)) + 0.1 * rng.standard_normal((n, d))
    angle = 2.0 * np.pi * np.arange(k) / k
    eta = 2.0 * z[:, :2] @ np.stack([np.cos(angle), np.sin(angle)])[: z.shape[1]]
    eta += noise * rng.standard_normal(eta.shape)
    if target == "multiclass":
        return X, eta.argmax(axis=1)
    return X, (eta > 0.0).astype(int) if target == "multilabel" else eta


def estimator(target, r=None, **more):
    kind = BSDRRegressor if target == "regression" else BSDRClassifier
    return kind(r).set_params(**FEW | more)


# With the same B and J, many features, and fewer features than contrasts.
every_target = pytest.mark.parametrize("target", TARGETS)
every_width = pytest.mark.parametrize(
    ("target", "d"),
    [
        *((target, D) for target in TARGETS),
        *(("multiclass", d) for d in (60, 1)),
        *(("regression", d) for d in (60, 1)),
    ],
)


@pytest.fixture(scope="module")
def fitted():
    """Cached fits of each target and number of features."""
    cache = {}

    def fit(target, d=D):
        if (target, d) not in cache:
            X, y = toy(target, d=d)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "no evidence that the targets")
                warnings.filterwarnings("ignore", "what the features tell of y rests")
                cache[target, d] = estimator(target).fit(X, y), X, y
        return cache[target, d]

    return fit


def answers(model, X):
    return model.predict(X) if isinstance(model, BSDRRegressor) else model.predict_proba(X)


def flat(variable):
    """Draws of all chains, stacked."""
    return variable.values.reshape(-1, *variable.shape[2:])


def pose(X, y, target="multiclass", k=K):
    return BSDRProblem(X=X, y=y, n_labels=k, target=target, priors=HierarchicalPriors())


def training(model):
    """Whitened features of the training samples, and their problem."""
    context, posterior = model._context, model._posterior
    whitened = posterior.feature_map.whiten(context.X)
    targets = context.targets
    return pose(whitened, targets.coded, targets.kind, len(targets.names))


# --------------------------------------------------------------------------------- any target


@every_width
def test_every_target_can_be_fitted(fitted, target, d):
    model, X, y = fitted(target, d)
    r = min(d, K - (target == "multiclass"))
    assert model.n_components_ == r
    assert model.components_.shape == (r, d)
    assert model.get_feature_names_out().shape == (r,)
    assert not model.interrupted_
    assert np.all(np.diff(model.relevance_) <= 0.0)
    assert model.relevance_.sum() == pytest.approx(1.0)
    mean, cov = model.transform(X, return_cov=True)
    assert mean.shape == (N, r)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    if target == "regression":
        prediction, std = model.predict(X, return_std=True)
        assert prediction.shape == std.shape == y.shape
        assert (std > 0.0).all()
        assert model.temperature_ == 1.0
        assert np.isfinite(model.log_evidence_)
    else:
        p = model.predict_proba(X)
        assert p.shape == (N, K)
        assert ((p > 0.0) & (p < 1.0)).all()
        assert 0.1 <= model.temperature_ <= 5.0
        if target == "multiclass":
            np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-9)
        if d == D:
            assert np.mean(model.predict(X) == y) > 0.8


@pytest.mark.parametrize("target", ["multiclass", "regression"])
def test_number_of_components_is_that_of_the_columns_only(fitted, target):
    every, X, y = fitted(target)
    model = estimator(target, 1).fit(X, y)
    assert model.n_components_ == 1
    assert model.components_.shape == (1, D)
    assert model.idata_["posterior"].sizes["component"] == 1
    np.testing.assert_array_equal(answers(model, X), answers(every, X))
    np.testing.assert_allclose(model.transform(X), every.transform(X)[:, :1])
    for name in ("coef", "bias"):
        assert model.idata_["posterior"][name].equals(every.idata_["posterior"][name])


def test_two_classes_have_one_component():
    model = estimator("multiclass", 2, temperature=1.0).fit(*toy("multiclass", k=2))
    assert model.n_components_ == 1


@pytest.mark.filterwarnings("ignore:.* samples are unlike the training samples")
def test_uncertainty_grows_with_distance_from_the_training_samples(fitted):
    """Outside the row space of the training samples the posterior is the prior."""
    for d in (D, 60):
        model, X, _ = fitted("multiclass", d)
        outside = np.random.default_rng(1).standard_normal((20, d))
        spread = [
            np.einsum("nrr->n", model.transform(rows, return_cov=True)[1]).mean()
            for rows in (X, outside, 10.0 * outside)
        ]
        assert spread[2] > 20.0 * spread[1]
        assert d == D or spread[1] > spread[0]


def test_moments_are_those_of_the_mixture_over_draws(fitted):
    model, X, _ = fitted("regression")
    posterior = model._posterior
    eta = posterior.draws.linear_predictor(training(model).X)
    sigma = posterior.draws.noise_scale
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, eta.mean(axis=0) * model.y_scale_ + model.y_mean_, atol=1e-6)
    second = np.mean(eta**2 + sigma[:, None] ** 2, axis=0)
    np.testing.assert_allclose(std, np.sqrt(second - eta.mean(axis=0) ** 2) * model.y_scale_)


# --------------------------------------------------------------------------------- temperature


def frequencies(y):
    """Of the classes, or of the labels that are 1, (K,)."""
    return np.bincount(y) / len(y) if y.ndim == 1 else y.mean(axis=0)


@pytest.mark.parametrize("target", LABELS)
def test_probabilities_are_powers_of_the_posterior_predictive(fitted, target):
    """Mixed with the class frequencies."""
    model, X, y = fitted(target)
    eta = model._posterior.draws.linear_predictor(training(model).X)
    if target == "multiclass":
        p = probit_choice.mean_probabilities(np.swapaxes(eta, 0, 1), 0.003)
    else:
        p = np.mean(0.997 * ndtr(eta) + 0.0015, axis=0)
        p = np.stack([p, 1.0 - p], axis=-1)
    power = p ** (1.0 / model.temperature_)
    power /= power.sum(axis=-1, keepdims=True)
    power = 0.997 * power + 0.003 / power.shape[-1]
    expected = power if target == "multiclass" else power[..., 0]
    signal = model.idata_.attrs["signal"]
    assert signal > 0.9
    mixed = signal * expected + (1.0 - signal) * frequencies(y)
    np.testing.assert_allclose(model.predict_proba(X), mixed, rtol=1e-6)


def test_with_a_temperature_no_sample_is_held_out(monkeypatch, fitted):
    """The class frequencies have no part in predictions then."""
    model, X, y = fitted("multiclass")
    monkeypatch.setattr(hmc, "continue_on", None)
    given = estimator("multiclass", temperature=model.temperature_).fit(X, y)
    assert given.temperature_ == model.temperature_
    assert given.idata_.attrs["signal"] == 1.0
    assert np.isnan(given.held_out_score_)
    assert given.held_out_log_proba_ is None
    assert given.idata_["posterior"].equals(model.idata_["posterior"])
    signal = model.idata_.attrs["signal"]
    mixed = signal * given.predict_proba(X) + (1.0 - signal) * frequencies(y)
    np.testing.assert_allclose(model.predict_proba(X), mixed, rtol=1e-9)


def test_held_out_probabilities_of_label_sets_are_those_of_ones(fitted):
    model, _, y = fitted("multilabel")
    log_p = model.held_out_log_proba_
    assert log_p.shape == y.shape
    each = np.where(y == 1, log_p, np.log1p(-np.exp(log_p)))
    known = ~np.isnan(each)
    assert known.mean() > 0.9
    # The mean over the divisions of log probabilities is normalised, which the score is not.
    assert model.held_out_score_ < each[known].mean() < model.held_out_score_ + 0.1
    assert model.held_out_score_ > np.log(0.5)
    np.testing.assert_array_equal(model._context.targets.coded, y == 1)


@pytest.mark.parametrize("target", LABELS)
def test_a_fold_is_whitened_by_the_metric_of_all_others(target):
    """Which does not know its labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 12))
    X -= X.mean(axis=0)
    y = 1 * (X[:, 0] > 0.0) if target == "multiclass" else X[:, :2] > 0.0
    samples = Training.of(X, y.astype(int), 2, np.ones(12), metric="auto", rng=rng)
    metric = samples.metric((0, 1))
    out = samples.out((0, 1))
    assert 0 < np.count_nonzero(out) < 40

    def build(feature_map, index):
        return pose(feature_map.whiten(X[index]), y[index], target, 2)

    parts = fits._split(make_learner(samples), build, (0, 1))
    for part, rows in zip(parts, (~out, out), strict=True):
        np.testing.assert_array_equal(part.X, metric.whiten(X[rows]))
        np.testing.assert_array_equal(part.y, y[rows])
    assert np.abs(metric.whiten(X) - samples.metric().whiten(X)).max() > 1e-3


# --------------------------------------------------------------------------------- coordinates


@every_width
def test_alignment_keeps_the_linear_predictor(fitted, target, d):
    """Also with fewer features than contrasts."""
    model, _, _ = fitted(target, d)
    draws, problem = model._posterior.draws, training(model)
    raw = draws.linear_predictor(problem.X)
    aligned = model._posterior.coordinates.align(draws)
    assert aligned.projection.shape[1] == model.n_components_
    size = np.abs(raw).max()
    np.testing.assert_allclose(aligned.linear_predictor(problem.X), raw, atol=1e-7 * size)
    np.testing.assert_array_equal(aligned.noise_scale, draws.noise_scale)
    # The same for the draws of the tree.
    posterior, scaled = model.idata_["posterior"], model._context.X
    Q, W, b, coef = (flat(posterior[name]) for name in ("projection", "weights", "bias", "coef"))
    np.testing.assert_allclose(scaled @ Q @ W + b[:, None], raw, atol=1e-7 * size)
    np.testing.assert_allclose(scaled @ coef + b[:, None], raw, atol=1e-7 * size)
    if target == "multiclass":
        np.testing.assert_allclose(coef.sum(axis=2), 0.0, atol=1e-8 * np.abs(coef).max())


@every_target
def test_coefficients_are_posterior_means_in_the_units_of_the_features(fitted, target):
    model, X, _ = fitted(target)
    eta = model._posterior.draws.linear_predictor(training(model).X).mean(axis=0)
    if target == "regression":
        eta = eta * model.y_scale_ + model.y_mean_
    np.testing.assert_allclose(X @ model.coef_.T + model.intercept_, eta, atol=1e-6)
    mean = model.idata_["posterior"].mean(["chain", "draw"])
    size = model.y_scale_[:, None] if target == "regression" else 1.0
    np.testing.assert_allclose(model.coef_, size * mean["coef"].values.T / model.scale_, rtol=1e-5)


def test_coefficients_are_means_of_those_of_the_pymc_model(fitted):
    model, _, _ = fitted("multiclass")
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        free = model.idata_["posterior"].to_dataset()
        found = pm.compute_deterministics(
            free, model=model.model_, var_names=["coef", "bias"], progressbar=False
        )
    mean = found.mean(["chain", "draw"])
    np.testing.assert_allclose(model.coef_ * model.scale_, mean["coef"].T, rtol=1e-5)
    centred = model.intercept_ + model.coef_ @ model.mean_
    np.testing.assert_allclose(centred, mean["bias"], atol=1e-6)


@every_width
def test_embedding_is_linear_in_scaled_features(fitted, target, d):
    model, X, _ = fitted(target, d)
    new = np.random.default_rng(7).standard_normal((5, d))
    for rows in (X, new):
        scaled = (rows - model.mean_) / model.scale_
        np.testing.assert_allclose(model.transform(rows), scaled @ model.components_.T, atol=1e-8)
    fit = model.idata_["fit"]
    np.testing.assert_allclose(fit["projection_mean"].T, model.components_)
    np.testing.assert_allclose(fit["latent_mean"], model.transform(X))


@every_target
def test_coordinates_are_canonical_variates_of_the_mean_linear_predictor(fitted, target):
    """Distances between embedded samples are those between their mean linear predictors."""
    model, X, y = fitted(target)
    fit = model._result
    eta = (
        fit.posterior.draws.linear_predictor(training(model).X) - fit.posterior.draws.bias[:, None]
    )
    if target != "regression":  # all draws have the same size
        size = np.linalg.norm(eta - eta.mean(axis=1, keepdims=True), axis=(1, 2))
        eta *= (np.median(size) / size)[:, None, None]
    mean = eta.mean(axis=0) - eta.mean(axis=(0, 1))
    u, axes = model.transform(X), fit.posterior.coordinates.axes
    np.testing.assert_allclose(axes.T @ axes, np.eye(axes.shape[1]), atol=1e-10)
    np.testing.assert_allclose(u, mean @ axes, atol=1e-8)
    np.testing.assert_allclose(u @ axes.T, mean, atol=1e-8)
    if target == "multiclass":
        means = np.stack([u[y == label].mean(axis=0) for label in range(K)])
        between = np.cov(means.T)
        np.testing.assert_allclose(between[0, 1], 0.0, atol=1e-8 * between.max())
        assert between[0, 0] >= between[1, 1]
        share = np.diag(between) / np.trace(between)
        np.testing.assert_allclose(model.relevance_, share, rtol=1e-6)


def test_coordinates_do_not_depend_on_the_components_of_single_draws(fitted):
    """Invertible linear maps of the latent space of each draw change nothing."""
    model, _, _ = fitted("multiclass")
    problem, draws, rng = training(model), model._posterior.draws, np.random.default_rng(0)
    maps = np.eye(2) + 0.3 * rng.standard_normal((len(draws.scale), 2, 2))
    mapped = dataclasses.replace(
        draws,
        projection=np.swapaxes(maps, 1, 2) @ draws.projection,
        weights=np.linalg.inv(maps) @ draws.weights,
    )
    first, second = (
        Coordinates.learn(problem.X, problem.y, "multiclass", each) for each in (draws, mapped)
    )
    u = first.embed(problem.X)
    np.testing.assert_allclose(second.embed(problem.X), u, atol=1e-8 * np.abs(u).max())
    one, other = (
        c.covariance(d.latent(problem.X), u) for c, d in ((first, draws), (second, mapped))
    )
    np.testing.assert_allclose(other, one, atol=1e-8 * one.max())


@every_target
@pytest.mark.parametrize("chunk", [5, 8192])
def test_maps_of_draws_are_least_squares_on_all_samples(fitted, target, chunk, monkeypatch):
    """Samples that are not centred, as a subsample; in several blocks, and in one."""
    monkeypatch.setattr(draws_module, "_CHUNK", chunk)
    model, _, _ = fitted(target)
    draws, problem = model._posterior.draws, training(model).select(np.arange(25))
    found = Coordinates.learn(problem.X, problem.y, problem.target, draws)
    eta = problem.X @ np.swapaxes(draws.projection, 1, 2) @ draws.weights
    if target != "regression":
        size = np.sqrt(np.mean(eta.std(axis=1) ** 2, axis=1))
        eta *= (np.median(size) / size)[:, None, None]
    np.testing.assert_allclose(problem.X @ found.coefficients, eta.mean(axis=0), atol=1e-10)
    u = found.embed(problem.X)
    for projection, map_ in zip(draws.projection, found.maps, strict=True):
        full = np.hstack([np.ones((25, 1)), problem.X @ projection.T])
        expected = np.linalg.lstsq(full, u, rcond=None)[0]
        np.testing.assert_allclose(full @ map_, full @ expected, atol=1e-8 * np.abs(u).max())


# --------------------------------------------------------------------------------- verdicts


@pytest.mark.slow
def test_few_samples_converge_by_default(monkeypatch):
    monkeypatch.undo()
    X, y = load_iris(return_X_y=True)
    model = BSDRClassifier(random_state=0).fit(X[::5], y[::5])
    assert model.converged_
    assert model.idata_.attrs["r_hat"] < R_HAT_LIMIT
    assert model.idata_.attrs["ess_bulk"] > 200


def test_a_label_that_has_not_mixed_is_found():
    """The second chain disagrees on one of K labels of 16 samples, not on the likelihood."""
    X, y = toy("multilabel")
    rng = np.random.default_rng(0)
    problem = pose(X, y.astype(bool), "multilabel")
    theta = rng.standard_normal((400, problem.n_parameters))
    theta[200:, problem.n_loadings] += 50.0
    draws = problem.parameters(theta, rng=rng)
    log_likelihood = rng.standard_normal((2, 200))
    r_hat, _ = fits.mixing(problem, draws, log_likelihood)
    assert r_hat > R_HAT_LIMIT
    assert np.isnan(fits.mixing(problem, draws.take(slice(200)), log_likelihood[:1])).all()


def test_chains_that_have_not_mixed_warn(monkeypatch):
    X, y = toy("multiclass")
    model = estimator("multiclass", temperature=1.0)
    monkeypatch.setattr(fits, "mixing", lambda *args: (1.3, 30.0))
    with pytest.warns(match="the chains have not mixed: R-hat reaches 1.30; take more draws"):
        assert not model.fit(X, y).converged_
    monkeypatch.setattr(fits, "mixing", lambda *args: (1.01, 900.0))
    assert model.fit(X, y).converged_


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto")
@every_target
def test_arviz_reads_the_tree(fitted, target):
    tree = fitted(target)[0].idata_
    assert tree.attrs["inference_method"] == ("conjugate" if target == "regression" else "hmc")
    stats = tree["sample_stats"]
    total = tree["log_likelihood/y"].sum("obs")
    np.testing.assert_allclose(total, stats["log_likelihood"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(stats["lp"], stats["log_likelihood"] + tree["log_prior/parameters"])
    of_trajectories = {"acceptance_rate", "diverging", "energy", "n_steps", "step_size"}
    assert set(stats) - {"lp", "log_likelihood"} == (
        set() if target == "regression" else of_trajectories
    )
    table = az.summary(tree, var_names=["coef", "bias"])
    assert len(table) == D * K + K
    assert np.isfinite(table["mean"].astype(float)).all()
    found = az.loo(tree, pointwise=True)
    assert found.n_data_points == N
    assert np.isfinite(found.elpd_i).all()


# --------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize("target", LABELS)
def test_interrupted_fit_keeps_its_draws(target, interrupt):
    X, y = toy(target)
    n_before = hmc._PER_ROUND * hmc._ROUNDS  # of the warm-up
    interrupt(hmc, "move_scale", n_before + 9)
    model = estimator(target).fit(X, y)
    assert model.interrupted_
    assert not model.converged_
    assert model.temperature_ == 1.0
    tree = model.idata_
    assert tree.attrs["interrupted"] == 1
    assert tree["posterior"].sizes["chain"] == 2
    assert tree["posterior"].sizes["draw"] == 8
    assert np.isfinite(answers(model, X)).all()
    assert model.summary()["value"].str.contains("interrupted the fit").any()


def test_interrupted_folds_keep_the_draws(interrupt):
    X, y = toy("multiclass")
    whole = estimator("multiclass", temperature=1.0).fit(X, y)
    interrupt(hmc, "continue_on", 2)  # after a fold
    model = estimator("multiclass").fit(X, y)
    assert model.interrupted_
    assert model.temperature_ == 1.0
    np.testing.assert_array_equal(model.predict_proba(X), whole.predict_proba(X))


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (BSDRClassifier, {"inference": "mean_field"}, "'inference' parameter"),
        (BSDRClassifier, {"inference": "conjugate"}, "'inference' parameter"),
        (BSDRRegressor, {"inference": "hmc"}, "'inference' parameter"),
        (PaperBSDRClassifier, {"inference": "hmc"}, "'inference' parameter"),
        (PaperBSDRClassifier, {"priors": HierarchicalPriors()}, "an instance of .*priors.Priors'"),
        (BSDRClassifier, {"priors": Priors()}, "an instance of .*HierarchicalPriors'"),
        (BSDRClassifier, {"n_components": "auto"}, "n_components"),
    ],
)
def test_incompatible_arguments_raise(kind, arguments, message):
    model = kind().set_params(**arguments)
    with pytest.raises(ValueError, match=message):
        model.fit(*toy("regression" if kind is BSDRRegressor else "multiclass"))
    assert not model.__sklearn_is_fitted__()
