"""DataTrees of fits: names, dims and contents."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from bsdr_models import DGPLVMClassifier, Sampling
from bsdr_models.dgplvm import sampling
from bsdr_models.dgplvm.problem import relevance
from bsdr_models.dgplvm.trees import SPEC
from bsdr_models.papers import PaperDGPLVMClassifier
from bsdr_models.papers.dgplvm.fitting import FREE_DIMS

N, D, K = 40, 5, 3
FEATURES = [f"gene_{i}" for i in range(D)]
NAMES = np.array(["ham", "spam", "tofu"], dtype=object)
MODELS = {
    "limit": {"priors__weight": np.inf},
    "three": {"n_components": 3},
    "starts": {"optimization__n_restarts": 4, "unlabeled": "?"},
    "paper": {"optimization__max_iter": 40},
}
every_model = pytest.mark.parametrize("name", MODELS)
BY_MAP = [name for name in MODELS if name != "paper"]


def toy(name):
    rng = np.random.default_rng(61)
    index = rng.permutation(np.arange(N) % K)
    X = 10.0 + 1.5 * rng.standard_normal((K, D))[index] + rng.standard_normal((N, D))
    y = NAMES[index]
    if name == "starts":
        y[::4] = "?"
    return pd.DataFrame(X, columns=FEATURES), y


@pytest.fixture(scope="module")
def fitted():
    """Estimators by name, each fitted once."""
    cache = {}

    def fit(name):
        if name not in cache:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the search stopped|.* ended at a bound")
                kind = PaperDGPLVMClassifier if name == "paper" else DGPLVMClassifier
                model = kind(random_state=0).set_params(**MODELS[name])
                cache[name] = model.fit(*toy(name))
        return cache[name]

    return fit


@every_model
def test_dims_and_coordinates(fitted, name):
    model = fitted(name)
    tree, r = model.idata_, model.latent_.shape[1]
    posterior = tree["posterior"]
    assert set(posterior.data_vars) >= {"latent", "signal_variance", "lengthscale"}
    for variable, values in posterior.data_vars.items():
        dims = FREE_DIMS.get(variable) if name == "paper" else None
        dims = SPEC.variables[variable] if dims is None else dims
        assert values.dims == ("chain", "draw", *dims), variable
        assert values.shape[:2] == (1, 1)
        assert np.isfinite(values).all(), variable
    np.testing.assert_array_equal(posterior["latent"].values[0, 0], model.latent_)
    fit = tree["fit"]
    axes = {
        "latent_mean": ("obs", "component"),
        "latent_cov": ("obs", "component", "component_aux"),
        "relevance": ("component",),
        "y_index": ("obs",),
        "log_density": ("iteration",),
        "restarts": ("restart",),
        "objective_terms": ("term",),
    }
    if name in BY_MAP:
        axes |= {
            "projection_mean": ("feature", "component"),
            "projection_sd": ("feature", "component"),
            "feature_relevance": ("feature",),
        }
    else:
        assert "projection_mean" not in fit
    for variable, dims in axes.items():
        assert fit[variable].dims == dims, variable
        assert np.isfinite(fit[variable]).all(), variable
    assert fit.sizes["component"] == r
    assert fit.sizes["obs"] == N
    assert tree["constant_data/feature"].values.tolist() == FEATURES
    if name in BY_MAP:
        assert fit["feature"].values.tolist() == FEATURES
        np.testing.assert_allclose(fit["feature_relevance"].sum(), 1.0)
        np.testing.assert_array_equal(model.components_, fit["projection_mean"].T)
        np.testing.assert_array_equal(model.feature_importances_, fit["feature_relevance"])
    np.testing.assert_allclose(fit["relevance"].sum(), 1.0)
    np.testing.assert_array_equal(model.relevance_, fit["relevance"])


@every_model
def test_attributes(fitted, name):
    model = fitted(name)
    tree = model.idata_
    assert tree is model.idata_  # made once
    assert tree.attrs["inference_method"] == "map"
    assert tree.attrs["criterion"] == ("total" if name == "three" else "trace_ratio")
    assert tree.attrs["converged"] == int(model.converged_)
    assert tree.attrs["weight"] == {"limit": np.inf, "paper": 1e4}.get(name, 10.0)
    config = json.loads(tree.attrs["config"])
    assert config["n_components"] == model.n_components
    assert config["unlabeled"] == model.unlabeled
    if name == "paper":
        assert "map_width" not in tree.attrs
        assert config["weight"] == 1e4
    else:
        assert tree.attrs["map_width"] == model.map_width_
        assert tree.attrs["map_noise"] == model.map_noise_
        assert config["priors"]["lengthscale"] == {"log_sd": 0.02, "median": 1.0}


@every_model
def test_trace_and_terms_are_consistent(fitted, name):
    model = fitted(name)
    fit = model.idata_["fit"]
    np.testing.assert_array_equal(fit["log_density"], model.log_density_)
    assert fit.sizes["iteration"] == model.n_iter_
    assert (np.diff(fit["log_density"]) >= 0.0).all()
    np.testing.assert_allclose(-fit["objective_terms"].sum(), fit["log_density"][-1], rtol=1e-9)
    np.testing.assert_allclose(fit["restarts"].max(), fit["log_density"][-1], rtol=1e-12)
    assert fit.sizes["restart"] == (4 if name == "starts" else 1)
    terms = {"likelihood", "criterion"} | (set() if name == "paper" else {"priors"})
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


@every_model
def test_mappings_say_how_far_new_samples_are_out_of_range(fitted, name):
    model, X = fitted(name), toy(name)[0]
    group = model.predict_idata(X)["predictions"]
    assert ("out_of_range" in group) == (name in BY_MAP)
    if name in BY_MAP:
        np.testing.assert_array_equal(group["out_of_range"], model.out_of_range(X))


def test_relevance_is_the_scatter_of_the_centroids():
    latent = np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0], [9.0, 9.0]])
    index = np.array([4, 4, 7, -1])
    # Centroids (1, 0) and (1, 3) differ along the second component only.
    np.testing.assert_array_equal(relevance(latent, index), [0.0, 1.0])
    np.testing.assert_array_equal(relevance(np.zeros((4, 2)), index), [0.0, 0.0])
