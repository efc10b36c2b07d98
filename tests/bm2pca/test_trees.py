"""DataTrees of fits: names, dims, contents, files, ArviZ and plots."""

import json
import warnings
from functools import partial

import arviz as az
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse
from scipy.special import expit, softmax

from bsdr_models import BM2PCAClassifier, BM2PCARegressor
from bsdr_models.bm2pca import trees
from bsdr_models.bm2pca.spec import SPEC
from bsdr_models.inference import datatree
from bsdr_models.papers import PaperBM2PCAClassifier

N, D, R, K = 40, 5, 2, 3
FEATURES = [f"gene_{i}" for i in range(D)]
TARGETS = ("multiclass", "binary", "multilabel", "regression")
ENGINES = {
    "label_free": {},
    "label_free_one_vs_rest": {"loss__strategy": "one_vs_rest"},
    "paper": {"optimization__n_sweeps": 8},
    "paper_one_vs_rest": {
        "loss__strategy": "one_vs_rest",
        "optimization__n_sweeps": 8,
    },
    "gibbs": {
        "inference": "gibbs",
        "sampling__draws": 60,
        "sampling__tune": 60,
        "sampling__chains": 2,
    },
    "nuts": {
        "inference": "nuts",
        "sampling__draws": 30,
        "sampling__tune": 30,
        "sampling__chains": 2,
    },
    "advi": {"inference": "advi", "sampling__draws": 60},
}
SLOW = ("nuts", "advi")
SHARED = ("label_free", "paper", "gibbs")
# A regressor has one engine.
CASES = [
    pytest.param(engine, target, marks=pytest.mark.slow if engine in SLOW else ())
    for engine in ENGINES
    for target in TARGETS
    if target != "regression" or engine == "paper"
    # A model takes half a minute to compile.
    if engine not in SLOW or (engine, target) in (("nuts", "binary"), ("advi", "multiclass"))
]
FAST = [case.values for case in CASES if case.values[0] not in SLOW]
every_case = pytest.mark.parametrize(("engine", "target"), CASES)
every_fast_case = pytest.mark.parametrize(("engine", "target"), FAST)
each_engine = pytest.mark.parametrize(
    ("engine", "target"), [case for case in FAST if case[1] in ("multiclass", "regression")]
)
with_loadings = pytest.mark.parametrize(
    ("engine", "target"), [case for case in FAST if case[0] in ("paper", "gibbs")]
)


def toy(target):
    rng = np.random.default_rng(61)
    X = 10.0 + 3.0 * rng.standard_normal((N, D))
    scores = (X - 10.0) @ rng.standard_normal((D, K)) + 4.0 * rng.standard_normal((N, K))
    y = {
        "multiclass": np.array(["ham", "spam", "tofu"], dtype=object)[scores.argmax(axis=1)],
        "binary": np.array(["ham", "spam"], dtype=object)[(scores[:, 0] > 0.0).astype(int)],
        "multilabel": (scores > 0.0).astype(int),
        "regression": scores,
    }[target]
    return pd.DataFrame(X, columns=FEATURES), y


def make(engine, target, **more):
    if target == "regression":
        return BM2PCARegressor(R, random_state=0).set_params(**more)
    fixed = {"loss__C": 5.0, "loss__calibrate": False, "random_state": 0}
    model = PaperBM2PCAClassifier(R)
    if engine.startswith("label_free"):
        model = BM2PCAClassifier(R, metric_scale=10.0)
    return model.set_params(**fixed | ENGINES[engine] | more)


@pytest.fixture(scope="module")
def fitted():
    """Estimator by engine and target, each fitted once."""
    cache = {}

    def fit(engine, target):
        if (engine, target) not in cache:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "R-hat of the identified quantities")
                warnings.filterwarnings("ignore", module="pymc|pytensor|arviz")
                cache[engine, target] = make(engine, target).fit(*toy(target))
        return cache[engine, target]

    return fit


def width(model, engine, target):
    """Total number of components."""
    problems = {"multiclass": K, "binary": 1, "multilabel": K, "regression": 1}[target]
    if engine == "label_free":
        return 1 if target == "binary" else R
    if engine == "label_free_one_vs_rest":
        return problems
    return R * problems if engine == "paper_one_vs_rest" else R


@every_case
def test_dims_and_coordinates(fitted, engine, target):
    model = fitted(engine, target)
    tree, r = model.idata_, width(model, engine, target)
    outcomes = {
        "multiclass": ["ham", "spam", "tofu"],
        "binary": ["ham", "spam"],
        "multilabel": [0, 1, 2],
        "regression": ["y0", "y1", "y2"],
    }[target]
    posterior = tree["posterior"]
    assert {"coef", "intercept"} <= set(posterior.data_vars)
    if engine in SHARED:
        assert {"weights", "bias"} <= set(posterior.data_vars)
    if engine in ("paper", "gibbs", *SLOW):
        assert {"loadings", "offset", "noise_precision"} <= set(posterior.data_vars)
    for name, values in posterior.data_vars.items():
        assert values.dims == ("chain", "draw", *SPEC.variables[name].dims), name
        assert np.isfinite(values).all(), name
    assert posterior["feature"].values.tolist() == FEATURES
    assert posterior["outcome"].values.tolist() == outcomes
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
    assert fit.sizes["component"] == r
    assert ("y_index" in fit) == (target in ("multiclass", "binary"))
    for name in ("relevance", "feature_relevance"):
        np.testing.assert_allclose(fit[name].sum(), 1.0)
    assert np.linalg.eigvalsh(fit["latent_cov"].values).min() > 0.0
    np.testing.assert_allclose(model.components_, fit["projection_mean"].T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(model.relevance_, fit["relevance"], rtol=1e-6, atol=1e-9)


@every_case
def test_attributes(fitted, engine, target):
    model = fitted(engine, target)
    tree = model.idata_
    assert tree is model.idata_  # made once
    method = engine if engine in ("gibbs", *SLOW) else "mean_field"
    assert tree.attrs["inference_method"] == method
    assert tree.attrs["model"] == "bm2pca"
    assert tree.attrs["target"] == ("multiclass" if target == "binary" else target)
    assert tree.attrs["created_by"].startswith("bsdr_models ")
    assert tree.attrs["interrupted"] == 0
    assert tree.attrs["C"] == model.C_
    config = json.loads(tree.attrs["config"])
    assert config["n_components"] == R
    approximate = method in ("mean_field", "advi")
    assert ("note" in tree["posterior"].attrs) == approximate
    assert tree["posterior"].sizes["chain"] == (1 if approximate else 2)
    if target == "regression":
        assert tree.attrs["epsilon"] == model.epsilon_
        assert tree.attrs["slope"] == model.slope_.tolist()
        assert tree.attrs["std_factor"] == model.std_factor_.tolist()
    else:
        assert tree.attrs["temperature"] == model.temperature_
        assert ("metric_scale" in tree.attrs) == engine.startswith("label_free")
        assert tree.attrs["link"] == "softmax"
    if method == "mean_field":
        np.testing.assert_array_equal(tree["fit/elbo"], model.lower_bounds_)
        assert tree.attrs["converged"] == int(model.converged_)
        if engine.startswith("paper"):
            np.testing.assert_allclose(tree["fit/elbo_terms"].sum("term"), tree["fit/elbo"])


@every_fast_case
def test_scaled_data_are_stored(fitted, engine, target):
    X, y = toy(target)
    model = fitted(engine, target)
    observed = model.idata_["observed_data/y"]
    np.testing.assert_array_equal(observed, y)
    if target == "regression":
        np.testing.assert_array_equal(model.idata_.attrs["y_mean"], model.y_mean_)
        np.testing.assert_array_equal(model.idata_.attrs["y_scale"], model.y_scale_)
    scaled = (X - X.mean()) / X.std(ddof=0)
    np.testing.assert_allclose(model.idata_["constant_data/X"], scaled)
    if target in ("multiclass", "binary"):
        np.testing.assert_array_equal(model.classes_[model.idata_["fit/y_index"]], y)


def scores_of(model, X, target):
    """Mean class scores by the public methods, one column per outcome; before the calibration."""
    if target == "regression":
        return (model.predict(X) - model.y_mean_) / (model.y_scale_ * model.slope_)
    scores = model.decision_function(X)
    return np.column_stack([np.zeros(len(X)), scores]) if target == "binary" else scores


@every_fast_case
def test_coefficients_and_methods_give_the_same_predictions(fitted, engine, target):
    """Means over draws against the moments of the fit: plug-in means and Monte Carlo differ."""
    model = fitted(engine, target)
    posterior = model.idata_["posterior"].dataset.mean(("chain", "draw"))
    scaled = model.idata_["constant_data/X"].values
    got = scaled @ posterior["coef"].values + posterior["intercept"].values
    expected = scores_of(model, toy(target)[0], target)
    assert np.sqrt(np.mean((got - expected) ** 2)) < 0.12 * expected.std()
    if target == "binary":
        np.testing.assert_array_equal(posterior["coef"].sel(outcome="ham"), 0.0)


@every_fast_case
def test_coefficients_are_projection_times_weights(fitted, engine, target):
    model = fitted(engine, target)
    posterior = model.idata_["posterior"].dataset.mean(("chain", "draw"))
    weights = trees.per_class(model._context, model._posterior.mean_weights)
    expected = model.components_.T @ weights
    got = posterior["coef"].values
    assert np.linalg.norm(got - expected) < 0.12 * np.linalg.norm(expected)


@with_loadings
def test_identified_quantities_are_functions_of_each_draw(fitted, engine, target):
    """Each draw on its own: coef = tau W (I + tau W'W)^-1 eta."""
    posterior = fitted(engine, target).idata_["posterior"].dataset
    for draw in (0, 17):
        one = posterior.isel(chain=0, draw=draw)
        W, tau = one["loadings"].values, float(one["noise_precision"])
        S = np.linalg.inv(np.eye(R) + tau * W.T @ W)
        coef = tau * W @ S @ one["weights"].values
        np.testing.assert_allclose(one["coef"], coef, rtol=1e-6, atol=1e-9)
        intercept = one["bias"].values - one["offset"].values @ coef
        np.testing.assert_allclose(one["intercept"], intercept, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("target", TARGETS)
def test_draws_of_a_mean_field_fit_have_its_moments(fitted, target):
    model = fitted("paper", target)
    posterior, result = model.idata_["posterior"].dataset, model._learned
    n = posterior.sizes["draw"]
    assert n >= 100
    part, state = result.factor_model.parts[0], result.posterior.state
    per_class = partial(trees.per_class, model._context)
    for name, mean in {
        "loadings": part.loadings[0],
        "offset": part.offset[0],
        "noise_precision": part.noise_precision[0],
        "weights": per_class(state.weights.mean[0, 1:]),
        "bias": per_class(state.weights.mean[0, 0]),
        "loading_precision": state.views[0].loading_precision.mean[0],
    }.items():
        values = posterior[name]
        error = values.std(("chain", "draw")).values / np.sqrt(n) + 1e-12
        difference = np.abs(values.mean(("chain", "draw")).values - mean)
        assert (difference / error).max() < 4.5, name
    spread = posterior["loadings"].std(("chain", "draw")).values
    expected = np.sqrt(np.einsum("jrr->jr", part.cov[0]))
    np.testing.assert_allclose(spread, np.broadcast_to(expected, (D, R)), rtol=0.25)


@pytest.mark.parametrize("engine", ["label_free", "label_free_one_vs_rest"])
def test_draws_of_a_label_free_fit_have_the_variance_of_its_classifier(fitted, engine):
    """The variance of ``decision_function`` includes that of z, which the draws lack."""
    model = fitted(engine, "multiclass")
    posterior = model.idata_["posterior"].dataset
    scaled = model.idata_["constant_data/X"].values
    draws = np.einsum("np,sdpk->nsdk", scaled, posterior["coef"]) + posterior["intercept"].values
    spread = draws.std(axis=(1, 2))
    _, std = model.decision_function(toy("multiclass")[0], return_std=True)
    assert (spread < 1.2 * std).all()
    assert (spread > 0.3 * std).all()


@pytest.mark.parametrize("engine", ["label_free", "paper", "label_free_one_vs_rest"])
def test_missing_values_and_labels(engine):
    X, y = toy("multiclass")
    X = X.copy()
    X.iloc[::3, 1] = np.nan
    y[:6] = None
    model = make(engine, "multiclass", unlabeled=np.nan).fit(X, y)
    tree = model.idata_
    for name in ("latent_mean", "latent_cov", "projection_mean", "relevance"):
        assert np.isfinite(tree["fit"][name]).all(), name
    assert (tree["fit/y_index"][:6] == -1).all()
    assert np.isnan(tree["constant_data/X"]).any() == (engine == "paper")
    predicted = model.predict_idata(X)["predictions"]
    assert np.isfinite(predicted["probability"]).all()
    assert np.isfinite(predicted["latent_mean"]).all()


def test_several_views():
    X, y = toy("multiclass")
    model = make("paper", "multiclass", views=["a", "a", "b", "b", "b"]).fit(X, y)
    posterior = model.idata_["posterior"].dataset
    assert set(posterior.data_vars) == {"coef", "intercept"}  # noise and loadings differ by view
    means = posterior.mean(("chain", "draw"))
    scaled = model.idata_["constant_data/X"].values
    got = scaled @ means["coef"].values + means["intercept"].values
    expected = model.decision_function(X)
    assert np.sqrt(np.mean((got - expected) ** 2)) < 0.12 * expected.std()


def test_sparse_samples_are_not_stored():
    rng = np.random.default_rng(62)
    X = sparse.random_array((30, 80), density=0.2, rng=rng, format="csr")
    for engine in ("label_free", "paper"):
        model = make(engine, "binary").fit(X, np.arange(30) % 2)
        assert "constant_data" not in model.idata_.children
        assert model.idata_["posterior/coef"].sizes["feature"] == 80
        assert np.isfinite(model.idata_["fit/latent_mean"]).all()


@pytest.mark.parametrize(("missing", "limit"), [("latent_cov", 150), ("constant_data", 150)])
def test_large_variables_are_not_stored(monkeypatch, missing, limit):
    monkeypatch.setattr(datatree, "MAX_NUMBERS", limit)
    tree = make("paper", "multiclass").fit(*toy("multiclass")).idata_
    assert missing not in tree.children
    assert "latent_cov" not in tree["fit"]
    assert tree["posterior"].sizes["draw"] >= 20
    az.summary(tree, var_names=["coef"])


# ------------------------------------------------------------------------------------- files


@pytest.mark.slow
@each_engine
@pytest.mark.parametrize("kind", ["netcdf", "zarr"])
def test_files_round_trip(fitted, engine, target, kind, tmp_path):
    model = fitted(engine, target)
    X, y = toy(target)
    for i, tree in enumerate((model.idata_, model.predict_idata(X, y))):
        path = tmp_path / f"{i}.{kind}"
        if kind == "netcdf":
            tree.to_netcdf(path)
            with xr.open_datatree(path) as file:
                back = file.load()
        else:
            tree.to_zarr(path, consolidated=False)
            back = xr.open_datatree(path, engine="zarr", consolidated=False).load()
        assert back.equals(tree)
        assert set(back.attrs) == set(tree.attrs)
        for name, value in tree.attrs.items():
            np.testing.assert_array_equal(back.attrs[name], value)


# ------------------------------------------------------------------------------------- ArviZ


@every_case
def test_arviz_summarises_identified_quantities(fitted, engine, target):
    tree = fitted(engine, target).idata_
    names = [name for name in SPEC.identified if name in tree["posterior"]]
    if target == "binary":  # the first of two classes has no score of its own
        tree = xr.DataTree.from_dict(
            {"posterior": tree["posterior"].dataset.sel(outcome=["spam"])[names]}
        )
    table = az.summary(tree, var_names=names)
    outcomes = 1 if target == "binary" else K
    assert len(table) == (D + 1) * outcomes + ("noise_precision" in names)
    assert np.isfinite(table["mean"].astype(float)).all()


# ------------------------------------------------------------------------------- predictions


@every_case
def test_predictions_tree_equals_the_methods(fitted, engine, target):
    model = fitted(engine, target)
    X, y = toy(target)
    new, known = X.iloc[:7], y[:7]
    tree = model.predict_idata(new, known)
    group = tree["predictions"]
    mean, cov = model.transform(new, return_cov=True)
    np.testing.assert_array_equal(group["latent_mean"], mean)
    np.testing.assert_array_equal(group["latent_cov"], cov)
    np.testing.assert_array_equal(group["y"], known)
    if target == "regression":
        for name, values in zip(
            ("prediction", "prediction_sd"), model.predict(new, return_std=True), strict=True
        ):
            assert group[name].dims == ("obs", "outcome")
            np.testing.assert_allclose(group[name], values, rtol=1e-12)
    else:
        assert group["probability"].dims == ("obs", "outcome")
        np.testing.assert_array_equal(group["probability"], model.predict_proba(new))
        np.testing.assert_array_equal(group["predicted"], model.predict(new))
    assert tree.attrs["inference_method"] == model.idata_.attrs["inference_method"]
    assert "y" not in model.predict_idata(new)["predictions"]
    with pytest.raises(ValueError, match="y has 6 samples, X has 7"):
        model.predict_idata(new, known[:6])


@pytest.mark.parametrize("target", TARGETS[:3])
@pytest.mark.parametrize("engine", [e for e in ENGINES if e not in ("gibbs", *SLOW)])
def test_probabilities_follow_from_the_coefficients(fitted, engine, target):
    model = fitted(engine, target)
    posterior = model.idata_["posterior"].dataset.mean(("chain", "draw"))
    scaled = model.idata_["constant_data/X"].values
    f = scaled @ posterior["coef"].values + posterior["intercept"].values
    f = f / model.idata_.attrs["temperature"]
    p = expit(f) if target == "multilabel" else softmax(f, axis=1)
    assert np.abs(p - model.predict_proba(toy(target)[0])).mean() < 0.05


# ------------------------------------------------------------------------------------- plots


@pytest.fixture
def headless():
    mpl.use("Agg")
    yield
    plt.close("all")
