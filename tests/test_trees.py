"""Trees of fits: names, axes, attributes and contents."""

import functools
import json
import warnings

import arviz as az
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    Sampling,
)
from bsdr_models.bsdr.problem import label_log_likelihood, regression_log_likelihood
from bsdr_models.dgplvm import sampling
from bsdr_models.dgplvm.problem import relevance
from bsdr_models.inference import datatree
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperDGPLVMClassifier
from bsdr_models.papers.bsdr import SAMPLING, Optimization, Priors, fit, predict
from bsdr_models.papers.bsdr.draws import BSDRDraws
from bsdr_models.papers.reading import stack_draws

N, D, R, K = 40, 5, 2, 3
FEATURES = [f"gene_{i}" for i in range(D)]
CLASSES = ["ham", "spam", "tofu"]
OUTCOMES = {"binary": CLASSES[:2], "multilabel": [0, 1, 2], "regression": ["y0", "y1", "y2"]}
TWO = {"n_components": R}
FEW = TWO | {"sampling__draws": 20, "sampling__tune": 20, "sampling__chains": 2}
FIVE = FEW | {"sampling__draws": 5, "sampling__tune": 5}
GIBBS = FEW | {"inference": "gibbs"}
NUTS = FIVE | {"inference": "nuts"}
ADVI = FEW | {"inference": "advi"}
HEAVY = {"priors": SAMPLING}
COLUMNWISE = {
    "priors__projection_prior": "columnwise",
    "priors__latent_scale": 0.1,
    "optimization__max_iter": 400,
    "optimization__tol": 5e-3,
}
HINGE = TWO | {"loss__C": 5.0, "loss__calibrate": False}
STARTS = {"optimization__n_restarts": 4, "unlabeled": "?"}
# Estimator and options, by model, inference method, and target or case.
FITS = {
    ("bsdr", "hmc", "multiclass"): (BSDRClassifier, FEW),
    ("bsdr", "hmc", "multilabel"): (BSDRClassifier, FEW),
    ("bsdr", "conjugate", "regression"): (BSDRRegressor, FEW),
    ("bsdr", "mean_field", "multiclass"): (PaperBSDRClassifier, TWO | COLUMNWISE),
    ("bsdr", "mean_field", "multilabel"): (PaperBSDRClassifier, TWO | COLUMNWISE),
    ("bsdr", "gibbs", "multiclass"): (PaperBSDRClassifier, GIBBS | HEAVY),
    ("bsdr", "gibbs", "multilabel"): (PaperBSDRClassifier, GIBBS | HEAVY),
    ("bsdr", "nuts", "multilabel"): (PaperBSDRClassifier, NUTS | HEAVY),
    ("bsdr", "advi", "multiclass"): (PaperBSDRClassifier, ADVI | HEAVY),
    ("bm2pca", "map", "multiclass"): (BM2PCAClassifier, HINGE),
    ("bm2pca", "map", "binary"): (BM2PCAClassifier, HINGE),
    ("bm2pca", "map", "multilabel"): (BM2PCAClassifier, HINGE),
    ("bm2pca", "mean_field", "multiclass"): (PaperBM2PCAClassifier, TWO | {"C": 5.0}),
    ("bm2pca", "mean_field", "regression"): (BM2PCARegressor, TWO),
    ("bm2pca", "gibbs", "multiclass"): (PaperBM2PCAClassifier, GIBBS | {"C": 5.0}),
    ("bm2pca", "nuts", "binary"): (PaperBM2PCAClassifier, NUTS | {"C": 5.0}),
    ("bm2pca", "advi", "multiclass"): (PaperBM2PCAClassifier, ADVI | {"C": 5.0}),
    ("dgplvm", "map", "limit"): (DGPLVMClassifier, {"priors__weight": np.inf}),
    ("dgplvm", "map", "three"): (DGPLVMClassifier, {"n_components": 3}),
    ("dgplvm", "map", "starts"): (DGPLVMClassifier, STARTS),
    ("dgplvm", "map", "paper"): (PaperDGPLVMClassifier, {"optimization__max_iter": 40}),
}
SLOW = ("nuts", "advi")
ALLOWED = {
    "bsdr": "no evidence that the targets|the chains have not mixed|R-hat of|mean field stopped",
    "bm2pca": "R-hat of the identified quantities",
    "dgplvm": "the search stopped|.* ended at a bound",
}

# Axes of all variables of the posterior, by model and method, or by case.
LINEAR = {"weights": "component outcome", "bias": "outcome", "coef": "feature outcome"}
LATENT = {"latent": "obs component", "latent_offset": "obs component"}
BSDR = LINEAR | {"projection": "feature component"}
FULL_RANK = BSDR | {
    "scale": "",
    "projection_offset": "feature contrast",
    "bias_contrasts": "contrast",
}
PAPER_BSDR = BSDR | {
    **LATENT,
    "projection_precision": "feature component",
    "weight_precision": "component outcome",
    "bias_precision": "outcome",
}
BM2PCA = LINEAR | {"intercept": "outcome"}
FACTORS = BM2PCA | {
    "loadings": "feature component",
    "loading_precision": "component",
    "offset": "feature",
    "noise_precision": "",
    "weight_precision": "outcome",
}
DGPLVM = {
    "latent": "obs component",
    "latent_raw": "obs component",
    **dict.fromkeys(("signal_variance", "lengthscale", "noise_variance", "criterion"), ""),
}
AXES = {
    ("bsdr", "hmc"): FULL_RANK,
    ("bsdr", "conjugate"): FULL_RANK | {"noise_scale": "outcome"},
    ("bsdr", "mean_field"): PAPER_BSDR | {"projection_precision": "component"},
    ("bsdr", "gibbs"): PAPER_BSDR,
    ("bsdr", "nuts"): BSDR | LATENT,
    ("bsdr", "advi"): BSDR | LATENT,
    ("bm2pca", "map"): BM2PCA | {"metric_projection": "basis component"},
    ("bm2pca", "nuts"): FACTORS,
    ("dgplvm", "map"): DGPLVM,
}


def axes_of(name, method, case):
    """Axes by variable of the posterior."""
    found = AXES.get((name, method), FACTORS | LATENT)
    if (name, case) == ("bsdr", "multiclass"):
        found = found | {"bias_centered": "outcome"}
    if case == "binary":  # of the score of both classes
        of_score = {"weights": "component score", "bias": "score", "weight_precision": "score"}
        found = found | {k: axes for k, axes in of_score.items() if k in found}
    if case == "paper":
        found = found | {"latent_raw": "basis component", "theta": "kernel_parameter"}
    return {variable: tuple(axes.split()) for variable, axes in found.items()}


def every(*names, slow=True):
    """All fits of the models of these names."""
    cases = [
        pytest.param(*key, marks=[pytest.mark.slow] if key[1] in SLOW else [])
        for key in FITS
        if key[0] in names and (slow or key[1] not in SLOW)
    ]
    return pytest.mark.parametrize(("name", "method", "case"), cases)


def toy(case):
    """Features and targets, without noise for D-GPLVM, and partly unknown in ``starts``."""
    rng = np.random.default_rng(61)
    X = 10.0 + 3.0 * rng.standard_normal((N, D))
    means = (X - 10.0) @ rng.standard_normal((D, K))
    scores = means + 4.0 * rng.standard_normal((N, K))
    classes = np.array(CLASSES, dtype=object)
    y = classes[means.argmax(axis=1)]
    y = {
        "multiclass": classes[scores.argmax(axis=1)],
        "binary": classes[(scores[:, 0] > 0.0).astype(int)],
        "multilabel": (scores > 0.0).astype(int),
        "regression": scores,
        "starts": np.where(np.arange(N) % 4, y, "?"),
    }.get(case, y)
    return pd.DataFrame(X, columns=FEATURES), y


@pytest.fixture(scope="module")
def fitted(short_pymc):
    """Estimators, each fitted once."""

    @functools.cache
    def fit(name, method, case):
        kind, options = FITS[name, method, case]
        with warnings.catch_warnings(), short_pymc():
            warnings.filterwarnings("ignore", ALLOWED[name])
            warnings.filterwarnings("ignore", module="pymc|pytensor|arviz")
            return kind(random_state=0).set_params(**options).fit(*toy(case))

    return fit


@every("bsdr", "bm2pca", "dgplvm")
def test_every_axis_has_its_name_and_coordinates(fitted, name, method, case):
    model = fitted(name, method, case)
    tree = model.idata_
    posterior, fit = tree["posterior"], tree["fit"]
    assert set(posterior.data_vars) == set(axes_of(name, method, case))
    for variable, axes in axes_of(name, method, case).items():
        assert posterior[variable].dims == ("chain", "draw", *axes), variable
        assert np.isfinite(posterior[variable]).all(), variable
    if name != "dgplvm":
        assert posterior["feature"].values.tolist() == FEATURES
        assert posterior["outcome"].values.tolist() == OUTCOMES.get(case, CLASSES)
    if case == "binary":
        assert posterior["score"].values.tolist() == CLASSES[1:2]

    axes = {
        "latent_mean": ("obs", "component"),
        "latent_cov": ("obs", "component", "component_aux"),
        "relevance": ("component",),
    }
    mapped = case != "paper"
    assert ("projection_mean" in fit) == mapped
    if mapped:
        axes["projection_mean"] = ("feature", "component")
        axes["feature_relevance"] = ("feature",)
        assert fit["feature"].values.tolist() == FEATURES
        np.testing.assert_allclose(fit["feature_relevance"].sum(), 1.0)
    if mapped and name != "bm2pca":
        axes["projection_sd"] = ("feature", "component")
    if name == "dgplvm":
        axes["log_density"] = ("iteration",)
        axes["restarts"] = ("restart",)
        axes["objective_terms"] = ("term",)
    assert ("y_index" in fit) == (case not in ("multilabel", "regression"))
    if "y_index" in fit:
        axes["y_index"] = ("obs",)
    for variable, dims in axes.items():
        assert fit[variable].dims == dims, variable
        assert np.isfinite(fit[variable]).all(), variable
    one = (name, method, case) == ("bm2pca", "map", "binary")
    assert fit.sizes["component"] == (1 if one else 3 if case == "three" else R)
    assert fit.sizes["component"] == posterior.sizes["component"]
    assert fit.sizes["obs"] == N
    if method in ("hmc", "conjugate"):  # of the mean linear predictor, of higher rank
        assert 0.9 < float(fit["relevance"].sum()) < 1.0 + 1e-9
    else:
        np.testing.assert_allclose(fit["relevance"].sum(), 1.0)
    assert name == "dgplvm" or np.linalg.eigvalsh(fit["latent_cov"].values).min() > 0.0
    tolerance = {"rtol": 0.0} if name == "dgplvm" else {"rtol": 1e-6, "atol": 1e-9}
    np.testing.assert_allclose(model.relevance_, fit["relevance"], **tolerance)
    if mapped:
        np.testing.assert_allclose(model.components_, fit["projection_mean"].T, **tolerance)


@every("bsdr", "bm2pca", "dgplvm")
def test_attributes(fitted, name, method, case):
    model = fitted(name, method, case)
    tree = model.idata_
    assert tree is model.idata_  # made once
    attrs, config = tree.attrs, json.loads(tree.attrs["config"])
    assert attrs["inference_method"] == method
    assert attrs["model"] == name
    assert attrs["target"] == (case if case in ("multilabel", "regression") else "multiclass")
    assert attrs["creation_library"] == "bsdr_models"
    assert attrs["interrupted"] == 0
    assert config["n_components"] == model.n_components
    assert tree["posterior"].sizes["chain"] == (2 if method in ("hmc", "gibbs", "nuts") else 1)
    if method in ("map", "mean_field"):
        assert attrs["converged"] == int(model.converged_)
    if method in ("mean_field", "advi"):
        np.testing.assert_array_equal(tree["fit/elbo"], model.lower_bounds_)
        assert model.n_iter_ == len(model.lower_bounds_)
    if method == "mean_field":
        np.testing.assert_allclose(tree["fit/elbo_terms"].sum("term"), tree["fit/elbo"])


@every("bsdr")
def test_attributes_of_bsdr(fitted, name, method, case):
    model = fitted(name, method, case)
    tree, config = model.idata_, json.loads(model.idata_.attrs["config"])
    if method in ("hmc", "conjugate"):
        assert config["inference"] is None
        assert config["priors"]["lapse"] == tree.attrs["lapse"] == 0.003
        assert tree.attrs["temperature"] == model.temperature_
        np.testing.assert_array_equal(tree.attrs["component_share"], model.relevance_)
    else:
        assert config["inference"] == method
        assert tree.attrs["latent_scale"] == (0.1 if method == "mean_field" else 1.0)
        assert config["priors"]["projection_shape"] == (1.0 if method == "mean_field" else 5.0)
    # ArviZ would take draws from an approximation for those of the posterior.
    assert ("log_likelihood" in tree.children) == (method not in ("mean_field", "advi"))


@every("bm2pca")
def test_attributes_of_bm2pca(fitted, name, method, case):
    model = fitted(name, method, case)
    attrs = model.idata_.attrs
    assert attrs["C"] == (3.0 if case == "regression" else 5.0)
    if case == "regression":
        assert attrs["epsilon"] == model.epsilon_
        assert attrs["slope"] == model.slope_.tolist()
        assert attrs["std_factor"] == model.std_factor_.tolist()
    if method == "map":
        assert attrs["temperature"] == model.temperature_
        assert "metric" in attrs
        assert attrs["link"] == "softmax"
        np.testing.assert_array_equal(model.idata_["fit/objective"], model.objective_)


@every("dgplvm")
def test_attributes_of_dgplvm(fitted, name, method, case):
    model = fitted(name, method, case)
    tree, config = model.idata_, json.loads(model.idata_.attrs["config"])
    np.testing.assert_array_equal(tree["posterior/latent"], model.latent_[None, None])
    assert tree["constant_data/feature"].values.tolist() == FEATURES
    assert tree.attrs["criterion"] == ("total" if case == "three" else "trace_ratio")
    assert tree.attrs["weight"] == {"limit": np.inf, "paper": 1e4}.get(case, 10.0)
    assert config["unlabeled"] == model.unlabeled
    if case == "paper":
        assert "map_width" not in tree.attrs
        assert config["weight"] == 1e4
    else:
        assert tree.attrs["map_width"] == model.map_width_
        assert tree.attrs["map_noise"] == model.map_noise_
        assert config["priors"]["lengthscale"] == {"log_sd": 0.02, "median": 1.0}
        np.testing.assert_array_equal(model.feature_importances_, tree["fit/feature_relevance"])


@every("bsdr", slow=False)
def test_trees_have_the_scaled_data(fitted, name, method, case):
    X, y = toy(case)
    model = fitted(name, method, case)
    observed = model.idata_["observed_data/y"]
    np.testing.assert_array_equal(observed, y)
    if case == "regression":
        np.testing.assert_array_equal(model.idata_.attrs["y_mean"], model.y_mean_)
        np.testing.assert_array_equal(model.idata_.attrs["y_scale"], model.y_scale_)
    scaled = (X - X.mean()) / X.std(ddof=0)
    np.testing.assert_allclose(model.idata_["constant_data/X"], scaled)
    if case == "multiclass":
        np.testing.assert_array_equal(model.classes_[model.idata_["fit/y_index"]], y)


@every("bsdr", slow=False)
def test_identified_quantities_and_likelihoods_are_those_of_the_draws(fitted, name, method, case):
    tree = fitted(name, method, case).idata_
    posterior = tree["posterior"].dataset
    if case == "multiclass":
        bias = posterior["bias"] - posterior["bias"].mean("outcome")
        xr.testing.assert_allclose(posterior["bias_centered"], bias)
    if method in ("mean_field", "gibbs") or K - (case == "multiclass") <= R:
        coef = xr.dot(posterior["projection"], posterior["weights"], dim="component")
        if case == "multiclass":
            coef = coef - coef.mean("outcome")
        xr.testing.assert_allclose(posterior["coef"], coef.transpose(*posterior["coef"].dims))

    y = tree["fit/y_index"] if case == "multiclass" else tree["observed_data/y"]
    log_scale = 0.0
    if case == "regression":
        y = (y - tree.attrs["y_mean"]) / tree.attrs["y_scale"]
        log_scale = np.log(tree.attrs["y_scale"]).sum()
    if method == "mean_field":
        return
    X = tree["constant_data/X"].values
    if method in ("hmc", "conjugate"):
        effect, b, *sigma = (
            posterior[name].values.reshape(-1, *posterior[name].shape[2:])
            for name in ("coef", "bias", "noise_scale")
            if name in posterior
        )
        eta = X @ effect + b[:, None]
        expected = (
            regression_log_likelihood(eta, y.values, sigma[0])
            if case == "regression"
            else label_log_likelihood(eta, y.values, case, tree.attrs["lapse"])[0]
        )
    else:
        draws = BSDRDraws(
            **stack_draws(posterior, ["projection", "weights", "bias"]),
            target=case,
            latent_scale=tree.attrs["latent_scale"],
        )
        expected = draws.log_likelihood(X, y.values)
    got = tree["log_likelihood/y"].stack(s=("chain", "draw")).transpose("s", "obs")
    np.testing.assert_allclose(got, expected - log_scale, rtol=1e-6)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_draws_of_a_mean_field_fit_have_its_moments(fitted, target):
    tree = fitted("bsdr", "mean_field", target).idata_
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
    model = fitted("bsdr", "gibbs", "multiclass")
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


def test_draws_of_margins_by_mean_field_have_its_moments(fitted):
    model = fitted("bm2pca", "mean_field", "regression")
    posterior, result = model.idata_["posterior"].dataset, model._result
    n = posterior.sizes["draw"]
    assert n >= 100
    view, state = result.posterior.factor_model.states[0], result.posterior.state
    for name, mean in {
        "loadings": view.loadings.mean,
        "offset": view.offset.mean,
        "noise_precision": view.noise_precision.mean,
        "weights": state.weights.mean[1:],
        "bias": state.weights.mean[0],
        "loading_precision": state.views[0].loading_precision.mean,
    }.items():
        values = posterior[name]
        error = values.std(("chain", "draw")).values / np.sqrt(n) + 1e-12
        difference = np.abs(values.mean(("chain", "draw")).values - mean)
        assert (difference / error).max() < 4.5, name
    spread = posterior["loadings"].std(("chain", "draw")).values
    expected = np.sqrt(np.einsum("jrr->jr", view.loadings.cov))
    np.testing.assert_allclose(spread, np.broadcast_to(expected, (D, R)), rtol=0.25)


def test_draws_of_a_margin_classifier_have_the_variance_of_its_classifier(fitted):
    model = fitted("bm2pca", "map", "multiclass")
    posterior = model.idata_["posterior"].dataset
    scaled = model.idata_["constant_data/X"].values
    draws = np.einsum("np,sdpk->nsdk", scaled, posterior["coef"]) + posterior["intercept"].values
    spread = draws.std(axis=(1, 2))
    rows = np.column_stack([np.ones(N), model.transform(toy("multiclass")[0])])
    variance = np.einsum("np,cpq,nq->nc", rows, model._posterior.weight_cov, rows)
    np.testing.assert_allclose(spread, np.sqrt(variance), rtol=0.2)


@every("dgplvm")
def test_trace_and_terms_are_consistent(fitted, name, method, case):
    model = fitted(name, method, case)
    fit = model.idata_["fit"]
    np.testing.assert_array_equal(fit["log_density"], model.log_density_)
    assert fit.sizes["iteration"] == model.n_iter_
    assert (np.diff(fit["log_density"]) >= 0.0).all()
    np.testing.assert_allclose(-fit["objective_terms"].sum(), fit["log_density"][-1], rtol=1e-9)
    np.testing.assert_allclose(fit["restarts"].max(), fit["log_density"][-1], rtol=1e-12)
    assert fit.sizes["restart"] == (4 if case == "starts" else 1)
    terms = {"likelihood", "criterion"} | (set() if case == "paper" else {"priors"})
    assert terms <= set(fit["term"].values.tolist())


@pytest.mark.slow
def test_iterations_of_advi_are_those_of_its_bound(monkeypatch, short_pymc):
    monkeypatch.setattr(sampling, "ADVI_STEPS", 50)
    X, y = toy("default")
    model = DGPLVMClassifier(inference="advi", sampling=Sampling(draws=20), random_state=0)
    with short_pymc():
        fit = model.fit(X, y).idata_["fit"]
    assert fit["elbo"].sizes == {"iteration": 50}
    assert fit["restarts"].sizes == {"restart": len(sampling.ADVI_STARTS)}
    assert "log_density" not in fit
    assert model.n_iter_ == 50
    assert np.isfinite(model.predict_proba(X)).all()


def test_leave_one_out_is_distributed_as_new_samples():
    """New samples and leave-one-out training samples have equal means and variances."""
    rng = np.random.default_rng(62)
    index = np.arange(240) % K
    X = 1.5 * rng.standard_normal((K, D))[index] + rng.standard_normal((240, D))
    model = DGPLVMClassifier(random_state=0).fit(X[:120], index[:120])
    shown, new = model.idata_["fit/latent_mean"].values, model.transform(X[120:])
    for label in range(K):
        here, there = shown[index[:120] == label], new[index[120:] == label]
        error = np.sqrt((here.var(axis=0) + there.var(axis=0)) / 40.0)
        assert (np.abs(here.mean(axis=0) - there.mean(axis=0)) < 4.0 * error).all()
        ratio = here.var(axis=0).sum() / there.var(axis=0).sum()
        assert 0.5 < ratio < 2.0  # 80 degrees of freedom each: up to 1.4 is expected


@every("dgplvm")
def test_mappings_say_how_far_new_samples_are_out_of_range(fitted, name, method, case):
    model, X = fitted(name, method, case), toy(case)[0]
    group = model.predict_idata(X)["predictions"]
    assert ("out_of_range" in group) == (case != "paper")
    if case != "paper":
        np.testing.assert_array_equal(group["out_of_range"], model.out_of_range(X))


def test_relevance_is_the_scatter_of_the_centroids():
    latent = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0], [9.0, 9.0]])
    index = np.array([4, 4, 7, -1])
    # Centroids (1, 0) and (1, 3) differ along the second component only.
    np.testing.assert_array_equal(relevance(latent, index), [0.0, 1.0])
    np.testing.assert_array_equal(relevance(np.zeros((4, 2)), index), [0.0, 0.0])
