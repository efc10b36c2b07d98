"""Trees of fits: names, axes, contents, files, ArviZ and plots."""

import itertools
import json
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.exceptions import ConvergenceWarning

from bsdr_models import BSDRClassifier, BSDRRegressor, Sampling
from bsdr_models.bsdr.problem import label_log_likelihood, regression_log_likelihood
from bsdr_models.inference import datatree
from bsdr_models.papers import PaperBSDRClassifier
from bsdr_models.papers.bsdr import SAMPLING, Optimization, Priors, fit, predict
from bsdr_models.papers.bsdr.draws import BSDRDraws
from bsdr_models.papers.reading import stack_draws

N, D, R, K = 40, 5, 2, 3
FEATURES = [f"gene_{i}" for i in range(D)]
TARGETS = ("multiclass", "multilabel", "regression")
LABELS = TARGETS[:2]
FAST = ("exact", "mean_field", "gibbs")  # the first is the default
SLOW = {"nuts": "multilabel", "advi": "multiclass"}
KINDS = (BSDRClassifier, BSDRRegressor)
COLUMNWISE = {
    "priors__projection_prior": "columnwise",
    "priors__latent_scale": 0.1,
    "optimization__max_iter": 400,
    "optimization__tol": 5e-3,
}
CASES = [*itertools.product(FAST, LABELS), ("exact", "regression")]
every_case = pytest.mark.parametrize(
    ("engine", "target"),
    [
        *CASES,
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW.items()),
    ],
)
every_fast_case = pytest.mark.parametrize(("engine", "target"), CASES)


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
            kind = KINDS[target == "regression"] if engine == "exact" else PaperBSDRClassifier
            n_draws = 5 if engine == "nuts" else 20
            common = {
                "sampling__draws": n_draws,
                "sampling__tune": n_draws,
                "sampling__chains": 2,
                "random_state": 0,
            }
            options = {"exact": {}, "mean_field": COLUMNWISE}.get(engine, {"priors": SAMPLING})
            if engine != "exact":
                options = options | {"inference": engine}
            model = kind(R).set_params(**common, **options)
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
        dims["noise_scale"] = ("outcome",)
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
    assert tree.attrs["creation_library"] == "bsdr_models"
    assert tree.attrs["interrupted"] == 0
    config = json.loads(tree.attrs["config"])
    assert config["n_components"] == R
    assert config["inference"] == (None if engine == "exact" else engine)
    if engine == "exact":
        assert config["priors"]["lapse"] == tree.attrs["lapse"] == 0.003
        assert tree.attrs["temperature"] == model.temperature_
        np.testing.assert_array_equal(tree.attrs["component_share"], model.relevance_)
    else:
        assert tree.attrs["latent_scale"] == (0.1 if engine == "mean_field" else 1.0)
        assert config["priors"]["projection_shape"] == (1.0 if engine == "mean_field" else 5.0)
    approximate = engine in ("mean_field", "advi")
    one = approximate or (engine == "exact" and target == "regression")
    assert tree["posterior"].sizes["chain"] == (1 if one else 2)
    if approximate:
        np.testing.assert_array_equal(tree["fit/elbo"], model.lower_bounds_)
        assert model.n_iter_ == len(model.lower_bounds_)
    if engine == "mean_field":
        np.testing.assert_allclose(tree["fit/elbo_terms"].sum("term"), tree["fit/elbo"])


@every_fast_case
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


@every_fast_case
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
        draws = BSDRDraws(
            **stack_draws(posterior, ["projection", "weights", "bias"]),
            target=target,
            latent_scale=tree.attrs["latent_scale"],
        )
        expected = draws.log_likelihood(X, y.values)
    got = tree["log_likelihood/y"].stack(s=("chain", "draw")).transpose("s", "obs")
    np.testing.assert_allclose(got, expected - log_scale, rtol=1e-6)


@pytest.mark.parametrize("target", LABELS)
def test_draws_of_a_mean_field_fit_have_its_moments(fitted, target):
    tree = fitted("mean_field", target).idata_
    posterior, fit = tree["posterior"].dataset, tree["fit"].dataset
    n = posterior.sizes["draw"]
    assert n >= 100
    error = posterior["projection"].std("draw") / np.sqrt(n)
    difference = posterior["projection"].mean(("chain", "draw")) - fit["projection_mean"]
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
        optimization=Optimization(max_iter=300, tol=10.0),
    )
    model.fit(*toy("multiclass"))
    tree = model.idata_
    assert "constant_data" not in tree.children
    assert "latent" not in tree["posterior"]
    assert tree["posterior"].sizes["draw"] >= 20
    az.summary(tree, var_names=["coef"])


@pytest.fixture
def gibbs(fitted):
    model = fitted("gibbs", "multiclass")
    return model, (toy("multiclass")[0] - model.mean_) / model.scale_


def test_draws_of_a_tree_predict_as_the_estimator(gibbs):
    model, X = gibbs
    expected = model.predict_proba(X * model.scale_ + model.mean_)
    turned = model.idata_.copy()
    turned["posterior"] = xr.DataTree(model.idata_["posterior"].to_dataset().transpose())
    for tree in (model.idata_, turned):
        np.testing.assert_allclose(predict(tree, X), expected, atol=1e-10)
    certain = model.idata_.copy()
    certain.attrs["latent_scale"] = 0.0
    assert np.log(predict(certain, X)).min() < np.log(expected).min()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.drop_vars("bias"), "no variable 'bias'"),
        (lambda p: p.isel(feature=slice(1)), "X has 5 features, the tree has 1"),
    ],
)
def test_draws_that_do_not_fit_are_refused(change, message, gibbs):
    model, X = gibbs
    tree = model.idata_.copy()
    tree["posterior"] = xr.DataTree(change(tree["posterior"].to_dataset()))
    with pytest.raises(ValueError, match=message):
        predict(tree, X)


def test_predict_takes_trees():
    with pytest.raises(TypeError, match=r"expected an xarray\.DataTree, got dict"):
        predict({}, [[1.0]])
    with pytest.raises(ValueError, match="no group 'posterior'"):
        predict(xr.DataTree(), [[1.0]])
    draws = {"posterior": xr.Dataset({"coef": (("chain", "draw", "feature"), [[[1.0]]])})}
    with pytest.raises(ValueError, match="from_trace makes one of a trace"):
        predict(xr.DataTree.from_dict(draws), [[1.0]])


@pytest.mark.parametrize("inference", ["mean_field", "gibbs"])
def test_a_fit_of_real_outputs_predicts_them(inference):
    X, Y = toy("regression")
    X = (X - X.mean()) / X.std()
    Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains
        tree = fit(
            *(X, Y),
            inference=inference,
            n_components=3,
            target="regression",
            sampling=Sampling(draws=30, tune=30, chains=2),
            random_state=0,
        )
    assert tree.attrs["target"] == "regression"
    assert (tree["posterior/noise_precision"] > 0.0).all()
    assert "log_likelihood" not in tree.children
    assert np.mean((predict(tree, X) - Y) ** 2) < 0.6
