"""Trees of fits: names, axes, contents, files, ArviZ and plots."""

import itertools
import json
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning

from bsdr_models import (
    BSDRClassifier,
    BSDROptimization,
    BSDRRegressor,
    Priors,
    diagnose,
    load,
    plots,
)
from bsdr_models.bsdr.priors import PAPER, SAMPLING
from bsdr_models.bsdr.problem import label_log_likelihood, regression_log_likelihood
from bsdr_models.inference import datatree
from bsdr_models.papers import PaperBSDRClassifier, PaperBSDRRegressor
from bsdr_models.papers.bsdr import build_model as build_paper_model
from bsdr_models.papers.bsdr.trees import align_components

N, D, R, K = 40, 5, 2, 3
FEATURES = [f"gene_{i}" for i in range(D)]
TARGETS = ("multiclass", "multilabel", "regression")
FAST = ("exact", "mean_field", "gibbs")  # the first is the default
SLOW = {"nuts": "multilabel", "advi": "multiclass"}
KINDS = (BSDRClassifier, BSDRRegressor)
PAPER_KINDS = (PaperBSDRClassifier, PaperBSDRRegressor)
COLUMNWISE = {
    "priors__projection_prior": "columnwise",
    "priors__latent_scale": 0.1,
    "optimization__max_iter": 100,
    "optimization__tol": 5e-3,
}
every_case = pytest.mark.parametrize(
    ("engine", "target"),
    [
        *itertools.product(FAST, TARGETS),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW.items()),
    ],
)
every_target = pytest.mark.parametrize("target", TARGETS)


def toy(target):
    rng = np.random.default_rng(61)
    X = 10.0 + 3.0 * rng.standard_normal((N, D))
    utilities = (X - 10.0) @ rng.standard_normal((D, K)) + 4.0 * rng.standard_normal((N, K))
    y = {
        "multiclass": np.array(["ham", "spam", "tofu"], dtype=object)[utilities.argmax(axis=1)],
        "multilabel": (utilities > 0.0).astype(int),
        "regression": utilities,
    }[target]
    return pd.DataFrame(X, columns=FEATURES), y


@pytest.fixture(scope="module")
def fitted(short_pymc):
    """Cached estimators by engine and target."""
    cache = {}

    def fit(engine, target):
        if (engine, target) not in cache:
            kinds = KINDS if engine == "exact" else PAPER_KINDS
            n_draws = 5 if engine == "nuts" else 60
            common = {
                "sampling__draws": n_draws,
                "sampling__tune": n_draws,
                "sampling__chains": 2,
                "random_state": 0,
            }
            options = {"exact": {}, "mean_field": COLUMNWISE}.get(engine, {"priors": SAMPLING})
            if engine != "exact":
                options = options | {"inference": engine}
            model = kinds[target == "regression"](R).set_params(**common, **options)
            with warnings.catch_warnings(), short_pymc():
                warnings.simplefilter("ignore", ConvergenceWarning)
                warnings.filterwarnings("ignore", "no evidence that the targets")
                warnings.filterwarnings("ignore", module="pymc|pytensor|arviz")
                cache[engine, target] = model.fit(*toy(target))
        return cache[engine, target]

    return fit


def method(engine, target):
    """Inference method in the attributes."""
    if engine != "exact":
        return engine
    return "conjugate" if target == "regression" else "hmc"


@every_case
def test_every_axis_has_its_name_and_coordinates(fitted, engine, target):
    model = fitted(engine, target)
    tree = model.idata_
    outcomes = {
        "multiclass": ["ham", "spam", "tofu"],
        "multilabel": [0, 1, 2],
        "regression": ["y0", "y1", "y2"],
    }[target]
    posterior = tree["posterior"]
    dims = {
        "projection": ("feature", "component"),
        "weights": ("component", "outcome"),
        "bias": ("outcome",),
        "weight_precision": ("component", "outcome"),
        "bias_precision": ("outcome",),
        "latent": ("obs", "component"),
        "latent_offset": ("obs", "component"),
        "coef": ("feature", "outcome"),
        "bias_centered": ("outcome",),
        "projection_precision": (
            ("component",) if engine == "mean_field" else ("feature", "component")
        ),
    }
    if target == "regression":
        dims["noise_precision"] = dims["noise_scale"] = ("outcome",)
    if engine == "exact":
        names = {"projection", "weights", "bias", "coef", "bias_centered", "noise_scale"}
        dims = {name: axes for name, axes in dims.items() if name in names} | {
            "scale": (),
            "projection_offset": ("feature", "contrast"),
            "bias_contrasts": ("contrast",),
        }
    else:
        dims.pop("noise_scale", None)
    if target != "multiclass":  # outcomes are not exclusive
        del dims["bias_centered"]
    if engine in SLOW:
        dims = {name: axes for name, axes in dims.items() if name in posterior}
        assert {"projection", "weights", "bias", "coef"} <= set(dims)
    for name, axes in dims.items():
        assert posterior[name].dims == ("chain", "draw", *axes), name
        assert np.isfinite(posterior[name]).all(), name
    assert set(posterior.data_vars) == set(dims)
    assert posterior["feature"].values.tolist() == FEATURES
    assert posterior["outcome"].values.tolist() == outcomes
    assert posterior.sizes["component"] == R

    fit = tree["fit"]
    for name, axes in {
        "latent_mean": ("obs", "component"),
        "latent_cov": ("obs", "component", "component_aux"),
        "projection_mean": ("feature", "component"),
        "projection_sd": ("feature", "component"),
        "relevance": ("component",),
        "feature_relevance": ("feature",),
    }.items():
        assert fit[name].dims == axes, name
        assert np.isfinite(fit[name]).all(), name
    assert ("y_index" in fit) == (target == "multiclass")
    np.testing.assert_allclose(fit["feature_relevance"].sum(), 1.0)
    if engine == "exact":  # of the mean linear predictor, of higher rank than the latent space
        assert 0.9 < float(fit["relevance"].sum()) < 1.0 + 1e-9
    else:
        np.testing.assert_allclose(fit["relevance"].sum(), 1.0)
    assert np.linalg.eigvalsh(fit["latent_cov"].values).min() > 0.0
    np.testing.assert_allclose(model.components_, fit["projection_mean"].T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.relevance_, fit["relevance"], rtol=1e-6, atol=1e-9)

    # ArviZ would take draws from an approximation for those of the posterior.
    assert ("log_likelihood" in tree.children) == (engine not in ("mean_field", "advi"))


@every_case
def test_attributes_of_a_tree(fitted, engine, target):
    model = fitted(engine, target)
    tree = model.idata_
    assert tree is model.idata_  # cached
    assert tree.attrs["inference_method"] == method(engine, target)
    assert tree.attrs["model"] == "bsdr"
    assert tree.attrs["target"] == target
    assert tree.attrs["created_by"].startswith("bsdr_models ")
    assert tree.attrs["interrupted"] == 0
    config = json.loads(tree.attrs["config"])
    assert config["n_components"] == R
    assert config["inference"] == (None if engine == "exact" else engine)
    if engine == "exact":
        assert config["priors"]["lapse"] == tree.attrs["lapse"] == 0.003
        assert tree.attrs["temperature"] == model.temperature_
        np.testing.assert_array_equal(tree.attrs["component_share"], model.relevance_)
    else:
        assert tree.attrs["latent_scale"] == model.latent_scale_
        assert config["priors"]["projection_shape"] == (1.0 if engine == "mean_field" else 5.0)
    approximate = engine in ("mean_field", "advi")
    one = approximate or (engine == "exact" and target == "regression")
    assert tree["posterior"].sizes["chain"] == (1 if one else 2)
    if approximate:
        np.testing.assert_array_equal(tree["fit/elbo"], model.lower_bounds_)
        assert model.n_iter_ == len(model.lower_bounds_)
    if engine == "mean_field":
        np.testing.assert_allclose(tree["fit/elbo_terms"].sum("term"), tree["fit/elbo"])


@every_target
@pytest.mark.parametrize("engine", FAST)
def test_trees_have_the_scaled_data(fitted, engine, target):
    X, y = toy(target)
    model = fitted(engine, target)
    observed = model.idata_["observed_data/y"]
    np.testing.assert_array_equal(observed, y)
    if target == "regression":
        np.testing.assert_array_equal(model.idata_.attrs["y_mean"], model.y_mean_)
        np.testing.assert_array_equal(model.idata_.attrs["y_scale"], model.y_scale_)
    scaled = (X - X.mean()) / X.std(ddof=0)
    np.testing.assert_allclose(model.idata_["constant_data/X"], scaled)
    if target == "multiclass":
        np.testing.assert_array_equal(model.classes_[model.idata_["fit/y_index"]], y)


@every_target
@pytest.mark.parametrize("engine", FAST)
def test_identified_quantities_and_likelihoods_are_those_of_the_draws(fitted, engine, target):
    tree = fitted(engine, target).idata_
    posterior = tree["posterior"].dataset
    if target == "multiclass":
        bias = posterior["bias"] - posterior["bias"].mean("outcome")
        xr.testing.assert_allclose(posterior["bias_centered"], bias)
    if engine != "exact" or K - (target == "multiclass") <= R:
        coef = xr.dot(posterior["projection"], posterior["weights"], dim="component")
        if target == "multiclass":
            coef = coef - coef.mean("outcome")
        xr.testing.assert_allclose(posterior["coef"], coef.transpose(*posterior["coef"].dims))

    y = tree["fit/y_index"] if target == "multiclass" else tree["observed_data/y"]
    log_scale = 0.0
    if target == "regression":
        y = (y - tree.attrs["y_mean"]) / tree.attrs["y_scale"]
        log_scale = np.log(tree.attrs["y_scale"]).sum()
    if engine in ("mean_field", "advi"):
        return
    X = tree["constant_data/X"].values
    if engine == "exact":
        effect, b, *sigma = (
            posterior[name].values.reshape(-1, *posterior[name].shape[2:])
            for name in ("coef", "bias", "noise_scale")
            if name in posterior
        )
        eta = X @ effect + b[:, None]
        expected = (
            regression_log_likelihood(eta, y.values, sigma[0])
            if target == "regression"
            else label_log_likelihood(eta, y.values, target, tree.attrs["lapse"])[0]
        )
    else:
        draws = fitted(engine, target)._context.posterior(posterior)
        expected = draws.log_likelihood(X, y.values)
    got = tree["log_likelihood/y"].stack(s=("chain", "draw")).transpose("s", "obs")
    np.testing.assert_allclose(got, expected - log_scale, rtol=1e-6)


@every_target
def test_draws_of_a_mean_field_fit_have_its_moments(fitted, target):
    tree = fitted("mean_field", target).idata_
    posterior, fit = tree["posterior"].dataset, tree["fit"].dataset
    n = posterior.sizes["draw"]
    assert n >= 100
    for name, centre in (("projection", "projection_mean"), ("latent", "latent_mean")):
        error = posterior[name].std("draw") / np.sqrt(n)
        difference = posterior[name].mean(("chain", "draw")) - fit[centre]
        assert float((np.abs(difference) / error).max()) < 4.5


def test_fewer_samples_than_features():
    rng = np.random.default_rng(62)
    X, y = rng.standard_normal((10, 60)), np.arange(10) % 2
    X[:, :10] += 2.0 * y[:, None]
    model = PaperBSDRClassifier(1, random_state=0).set_params(**COLUMNWISE).fit(X, y)
    posterior = model.idata_["posterior"]
    assert posterior["projection"].shape == (1, posterior.sizes["draw"], 60, 1)
    spread = posterior["projection"].std(("chain", "draw"))
    prior = float(model.idata_["fit/projection_precision_mean"][0]) ** -0.5
    assert 0.5 * prior < spread.median() < 1.5 * prior  # 50 of 60 directions have the prior


def test_large_variables_are_left_out(monkeypatch):
    monkeypatch.setattr(datatree, "MAX_NUMBERS", 150)
    model = PaperBSDRClassifier(
        R,
        priors=Priors(latent_scale=0.3),
        optimization=BSDROptimization(max_iter=30, tol=10.0),
    )
    model.fit(*toy("multiclass"))
    tree = model.idata_
    assert "constant_data" not in tree.children
    assert "latent" not in tree["posterior"]
    assert tree["posterior"].sizes["draw"] >= 20
    az.summary(tree, var_names=["coef"])


def test_alignment_undoes_permutations_and_flips():
    rng = np.random.default_rng(63)
    chains, n_draws, r = 2, 30, 3
    size = (chains, n_draws)
    draws = {
        "projection": 2.0 * rng.standard_normal((7, r)) + 0.1 * rng.standard_normal((*size, 7, r)),
        "weights": 2.0 * rng.standard_normal((r, K)) + 0.1 * rng.standard_normal((*size, r, K)),
        "latent": rng.standard_normal((*size, 4, r)),
        "weight_precision": rng.random((*size, r, K)),
        "projection_precision": rng.random((*size, 7, r)),
        "bias": rng.standard_normal((*size, K)),
    }
    axes = {"projection": 3, "weights": 2, "weight_precision": 2, "latent": 3}
    axes["projection_precision"] = 3
    mixed = {name: values.copy() for name, values in draws.items()}
    for index in np.ndindex(size):
        order, sign = rng.permutation(r), rng.choice([-1.0, 1.0], r)
        for name, axis in axes.items():
            values = draws[name][index].take(order, axis=axis - 2)
            if not name.endswith("precision"):
                shape = [1] * values.ndim
                shape[axis - 2] = r
                values = values * sign.reshape(shape)
            mixed[name][index] = values
    got = align_components(mixed, "entrywise")
    for name in ("projection", "weights"):
        assert got[name].std(axis=(0, 1)).max() < 0.2  # it was 2 before
        assert mixed[name].std(axis=(0, 1)).max() > 1.0
    coef = draws["projection"] @ draws["weights"]
    np.testing.assert_allclose(got["projection"] @ got["weights"], coef, rtol=1e-10)
    np.testing.assert_allclose(
        got["latent"] @ got["weights"], draws["latent"] @ draws["weights"], rtol=1e-10
    )
    # Precisions are permuted as their entries are.
    pairs = np.sort((got["projection"] ** 2 * got["projection_precision"]).sum(axis=(2, 3)))
    expected = np.sort((draws["projection"] ** 2 * draws["projection_precision"]).sum(axis=(2, 3)))
    np.testing.assert_allclose(pairs, expected, rtol=1e-10)
    np.testing.assert_array_equal(got["bias"], draws["bias"])


@pytest.fixture(scope="module")
def gibbs():
    X, y = toy("multiclass")
    options = {
        "inference": "gibbs",
        "sampling__draws": 40,
        "sampling__tune": 40,
        "sampling__chains": 2,
        "random_state": 0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains
        model = PaperBSDRClassifier(2).set_params(**options).fit(X, y)
    return model, (X - model.mean_) / model.scale_, np.asarray(y)


def from_tree(tree, *arguments, kind=PaperBSDRClassifier, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains
        return kind.from_posterior(tree, *arguments, **options)


def test_a_fit_from_draws_predicts_as_the_model_they_are_from(gibbs, tmp_path):
    model, X, y = gibbs
    tree = xr.DataTree.from_dict(
        {"posterior": model.idata_["posterior"].to_dataset(), "warmup": xr.Dataset({"note": 1})}
    )
    again = from_tree(tree, X, y, latent_scale=model.latent_scale_)
    expected = model.predict_proba(X * model.scale_ + model.mean_)
    np.testing.assert_allclose(again.predict_proba(X), expected, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(
        again.transform(X), model.transform(X * model.scale_ + model.mean_), atol=1e-10
    )
    assert {"warmup", "posterior", "fit"} <= set(again.idata_.children)
    assert "weight_precision" in again.idata_["posterior"]
    assert again.plot_map(X, y).has_data()
    assert "class_probability" in again.idata_["fit"]
    assert "BSDR" in str(again.summary())
    again.save(tmp_path / "draws.skops")
    np.testing.assert_array_equal(
        load(tmp_path / "draws.skops").predict_proba(X), again.predict_proba(X)
    )
    with pytest.raises(AttributeError, match="model of the user"):
        _ = again.model_


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.drop_vars("bias"), "no variable 'bias'"),
        (lambda p: p.isel(component=0), "posterior/projection has the dims"),
        (lambda p: p.rename(component="axis"), "posterior/projection has the dims .*'axis'"),
        (lambda p: p.isel(feature=slice(1)), r"the features \['gene_0'\], expected"),
        (lambda p: p.isel(outcome=slice(2)), r"the outcomes .*, expected"),
        (lambda p: p * np.nan, "not finite"),
        (lambda p: p.isel(draw=slice(0)), "posterior/projection has no draws"),
        (lambda p: p + 0j, "posterior/projection must hold real numbers, got complex128"),
        (
            lambda p: p.assign_coords(outcome=["ham", "spam", "eggs"]),
            r"the draws have the outcomes \['ham', 'spam', 'eggs'\], expected .*'tofu'",
        ),
        (lambda p: p.assign_coords(outcome=["ham", "ham", "tofu"]), "have the outcomes"),
        (lambda p: p.assign_coords(outcome=[0.0, 1.0, np.nan]), "have the outcomes"),
        (lambda p: p.assign_coords(feature=list("abcde")), "have the features"),
    ],
)
def test_draws_that_do_not_fit_are_refused(change, message, gibbs):
    model, X, y = gibbs
    posterior = model.idata_["posterior"].to_dataset()[["projection", "weights", "bias"]]
    tree = xr.DataTree.from_dict({"posterior": change(posterior)})
    with pytest.raises(ValueError, match=message):
        from_tree(tree, X, y)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.isel(outcome=[2, 0, 1]),
        lambda p: p.isel(feature=slice(None, None, -1)),
        lambda p: p.transpose(),
        lambda p: p.drop_vars(["outcome", "feature"]),
    ],
    ids=["outcomes", "features", "axes", "without coordinates"],
)
def test_draws_are_matched_by_name(change, gibbs):
    model, X, y = gibbs
    names = ["projection", "weights", "bias", "bias_precision"]
    posterior = model.idata_["posterior"].to_dataset()[names]
    one, other = (
        from_tree(xr.DataTree.from_dict({"posterior": draws}), X, y)
        for draws in (posterior, change(posterior))
    )
    np.testing.assert_array_equal(other.predict_proba(X), one.predict_proba(X))
    kept, moved = (m.idata_["posterior/bias_precision"] for m in (one, other))
    np.testing.assert_array_equal(moved.transpose(*kept.dims), kept)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda X, y: (X, np.eye(K, dtype=int)[np.unique(y, return_inverse=True)[1]]),
            "label sets",
        ),
        (lambda X, y: (X[1:], y), "inconsistent numbers of samples"),
        (lambda X, y: (X, np.full(N, "ham")), "one class only"),
        (lambda X, y: (X, np.where(y == "ham", "spam", y)), r"outcomes .*'ham'.*, expected"),
        (lambda X, y: (X, np.where(y == "ham", None, y)), "NaN or None"),
        (lambda X, y: (X * np.nan, y), "NaN"),
    ],
)
def test_classes_that_do_not_fit_draws_are_refused(change, message, gibbs):
    model, X, y = gibbs
    tree = xr.DataTree.from_dict({"posterior": model.idata_["posterior"].to_dataset()})
    with pytest.raises(ValueError, match=message):
        from_tree(tree, *change(X, y))


def test_a_model_from_draws_can_be_fitted(linear, gibbs):
    """With the scale of the features and outputs, and the prior, of a new fit."""
    draws, X, Y = linear
    model = from_tree(tree_of_outputs(draws), X, Y, kind=PaperBSDRRegressor, latent_scale=0.7)
    settings = {"inference": "mean_field", "standardize": True, "random_state": 0}
    fresh = PaperBSDRRegressor(R).set_params(**COLUMNWISE | settings).fit(X, Y)
    again = model.set_params(**COLUMNWISE | settings).fit(X, Y)
    np.testing.assert_allclose(again.y_scale_, Y.std(axis=0))
    np.testing.assert_array_equal(again.predict(X), fresh.predict(X))
    assert again.latent_scale_ == 0.1


@pytest.mark.parametrize("kind", PAPER_KINDS)
def test_from_posterior_takes_trees(kind):
    with pytest.raises(TypeError, match=r"expected an xarray\.DataTree, got dict"):
        kind.from_posterior({}, [[1.0]], [0])
    with pytest.raises(ValueError, match="no group 'posterior'"):
        kind.from_posterior(xr.DataTree(), [[1.0]], [0])


@pytest.fixture(scope="module")
def linear():
    """Draws of a regression model, as arrays, with samples and outputs far from standardised."""
    rng = np.random.default_rng(64)
    size = (2, 30)
    draws = {
        "projection": rng.standard_normal((D, R)) + 0.1 * rng.standard_normal((*size, D, R)),
        "weights": 8.0 * rng.standard_normal((R, K)) + rng.standard_normal((*size, R, K)),
        "bias": 50.0 + rng.standard_normal((*size, K)),
        "noise_scale": rng.uniform(2.0, 20.0, (*size, K)),
    }
    X = 3.0 + 2.0 * rng.standard_normal((N, D))
    eta = X @ draws["projection"][0, 0] @ draws["weights"][0, 0] + 50.0
    return draws, X, eta + 5.0 * rng.standard_normal((N, K))


def tree_of_outputs(draws):
    """A tree without coordinates."""
    axes = {"projection": ("feature", "component"), "weights": ("component", "outcome")}
    variables = {
        name: (("chain", "draw", *axes.get(name, ("outcome",))), values)
        for name, values in draws.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(variables)})


@pytest.mark.parametrize("latent_scale", [0.0, 0.7])
@pytest.mark.parametrize("noise", ["noise_scale", "noise_precision"])
def test_a_regressor_from_draws_predicts_their_mixture(linear, noise, latent_scale):
    draws, X, Y = linear
    given = {name: draws[name] for name in ("projection", "weights", "bias")}
    given[noise] = draws["noise_scale"] ** (1.0 if noise == "noise_scale" else -2.0)
    tree = tree_of_outputs(given)
    model = from_tree(tree, X, Y, kind=PaperBSDRRegressor, latent_scale=latent_scale)

    Q, W, b, sigma = (values.reshape(-1, *values.shape[2:]) for values in draws.values())
    means = X @ Q @ W + b[:, None]  # (S, N, K)
    covs = latent_scale**2 * np.swapaxes(W, 1, 2) @ W + sigma[:, None] ** 2 * np.eye(K)
    variance = np.einsum("skk->k", covs) / len(covs) + means.var(axis=0)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, means.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-10)
    expected = [
        multivariate_normal(cov=cov).logpdf(Y - mean) for mean, cov in zip(means, covs, strict=True)
    ]
    tree = model.idata_
    np.testing.assert_allclose(
        tree["log_likelihood/y"], np.reshape(expected, (2, 30, N)), rtol=1e-9
    )
    np.testing.assert_allclose(tree["posterior/coef"], draws["projection"] @ draws["weights"])
    np.testing.assert_array_equal(tree["posterior"][noise], given[noise])
    np.testing.assert_array_equal(model.y_mean_, np.zeros(K))
    np.testing.assert_array_equal(model.y_scale_, np.ones(K))
    np.testing.assert_array_equal(tree["observed_data/y"], Y)


def test_outputs_are_matched_by_name(linear):
    draws, X, Y = linear
    tree = tree_of_outputs(draws)
    columns = ["c", "a", "b"]
    want = from_tree(tree, X, Y, kind=PaperBSDRRegressor).predict(X)
    posterior = tree["posterior"].to_dataset().assign_coords(outcome=columns)
    named = xr.DataTree.from_dict({"posterior": posterior.sortby("outcome")})
    Y = pd.DataFrame(Y, columns=columns)
    np.testing.assert_array_equal(from_tree(named, X, Y, kind=PaperBSDRRegressor).predict(X), want)
    with pytest.raises(ValueError, match=r"outcomes \['a', 'b', 'c'\], expected \['d', 'a', 'b'\]"):
        from_tree(named, X, Y.rename(columns={"c": "d"}), kind=PaperBSDRRegressor)


@pytest.mark.parametrize("n_outputs", [None, K])
def test_everything_after_a_fit_takes_a_regressor_from_draws(linear, n_outputs, tmp_path):
    draws, X, Y = linear
    k = n_outputs or 1
    y = Y[:, 0] if n_outputs is None else Y[:, :k]
    given = {n: values if n == "projection" else values[..., :k] for n, values in draws.items()}
    tree = tree_of_outputs(given)
    tree["warmup"] = xr.DataTree(xr.Dataset({"note": 1}))
    tree["posterior/slope"] = xr.DataArray(np.ones((2, 30)), dims=("chain", "draw"))
    frame = pd.DataFrame(X, columns=FEATURES)
    model = from_tree(tree, frame, y, kind=PaperBSDRRegressor)
    assert model.predict(frame).shape == y.shape
    assert model.transform(frame).shape == (N, R)
    assert {"warmup", "fit", "log_likelihood"} <= set(model.idata_.children)
    assert "slope" in model.idata_["posterior"]
    assert model.idata_["posterior"].coords["outcome"].values.tolist() == [
        f"y{i}" for i in range(k)
    ]
    assert model.idata_["posterior"].coords["feature"].values.tolist() == FEATURES
    assert model.plot_map(frame, y).has_data()
    plots.plot_features(model.idata_)
    said = model.summary()["value"]
    assert said["outputs"] == f"{k}: {', '.join(f'y{i}' for i in range(k))}"
    assert said["features"] == f"{D}"
    assert "noise_scale" in diagnose(model.idata_).index
    with pytest.raises(AttributeError, match="model of the user"):
        _ = model.model_
    model.save(tmp_path / "draws.skops")
    again = load(tmp_path / "draws.skops")
    for one, other in zip(
        again.predict(frame, return_std=True), model.predict(frame, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("noise_scale"), "noise_precision and noise_scale, it has neither"),
        (lambda d: d.update(noise_precision=d["noise_scale"]), "it has both"),
        (
            lambda d: d.update(noise_scale=d["noise_scale"][..., 0]),
            "noise_scale has the dims",
        ),
        (lambda d: d.update(noise_scale=0.0 * d["noise_scale"]), "noise_scale holds .* not posit"),
        (lambda d: d.update(noise_scale=np.inf * d["noise_scale"]), "noise_scale holds .* finite"),
    ],
)
def test_draws_that_do_not_fit_outputs_are_refused(change, message, linear):
    draws, X, Y = linear
    draws = dict(draws)
    change(draws)
    noise = draws.get("noise_scale", draws["bias"])
    axes = ("chain", "draw", "outcome")[: noise.ndim]
    tree = tree_of_outputs({k: v for k, v in draws.items() if k != "noise_scale"})
    if "noise_scale" in draws:
        tree["posterior/noise_scale"] = xr.DataArray(noise, dims=axes)
    with pytest.raises(ValueError, match=message):
        from_tree(tree, X, Y, kind=PaperBSDRRegressor)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: (X, Y[:, :2]), r"the outcomes \[0, 1, 2\], expected \['y0', 'y1'\]"),
        (lambda X, Y: (X[:, 1:], Y), r"the features \[0, 1, 2, 3, 4\], expected .*'x3'\]"),
        (lambda X, Y: (X[1:], Y), "inconsistent numbers of samples"),
        (lambda X, Y: (X, 0.0 * Y), "output 0 of y is constant"),
        (lambda X, Y: (X, np.where(Y > 0.0, np.nan, Y)), "NaN"),
    ],
)
def test_outputs_that_do_not_fit_draws_are_refused(change, message, linear):
    draws, X, Y = linear
    with pytest.raises(ValueError, match=message):
        from_tree(tree_of_outputs(draws), *change(X, Y), kind=PaperBSDRRegressor)
    with pytest.raises(ValueError, match="latent_scale must be a finite number"):
        from_tree(tree_of_outputs(draws), X, Y, kind=PaperBSDRRegressor, latent_scale=-1.0)


def test_the_warning_of_unmixed_draws_names_the_line_of_the_user(linear):
    draws, X, Y = linear
    shifted = draws["bias"] + [[[0.0]], [[9.0]]]  # chains disagree
    tree = tree_of_outputs({**draws, "bias": shifted})
    with pytest.warns(ConvergenceWarning, match="R-hat") as caught:
        model = PaperBSDRRegressor.from_posterior(tree, X, Y)
    assert caught[0].filename == __file__
    assert not model.converged_


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The effect of Potentials")  # the draws have it
def test_a_regressor_from_draws_of_a_changed_model():
    """Predictions against those that PyMC computes itself."""
    import pymc as pm

    X, Y = toy("regression")
    X, Y = (X - X.mean()) / X.std(), Y[:, :2] / 10.0
    with build_paper_model(X, Y, n_components=R, target="regression") as declared:
        pm.Potential("sparse", -pm.math.abs(declared["coef"]).sum())
        tree = pm.sample(
            40, tune=100, chains=2, cores=1, random_seed=0, progressbar=False, nuts_sampler="pymc"
        )
    model = from_tree(tree, X, Y, kind=PaperBSDRRegressor, latent_scale=PAPER.latent_scale)
    with declared:
        # New latent coordinates of the same samples, which the outputs have not informed.
        replicated = pm.sample_posterior_predictive(
            tree, sample_vars=["y", "latent_offset"], random_seed=1, progressbar=False
        )["posterior_predictive/y"]
    mean, std = model.predict(X, return_std=True)
    error = std / np.sqrt(replicated.sizes["chain"] * replicated.sizes["draw"])
    assert np.abs((replicated.mean(("chain", "draw")) - mean) / error).max() < 4.5
