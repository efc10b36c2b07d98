"""DataTrees of fits: names, dims, contents, files, ArviZ and plots."""

import functools
import json
import warnings

import numpy as np
import pandas as pd
import pytest

from bsdr_models import BM2PCARegressor
from bsdr_models.bm2pca import trees
from bsdr_models.bm2pca.trees import SPEC

N, D, R, K = 40, 5, 2, 3
FEATURES = [f"gene_{i}" for i in range(D)]
ENGINES = ("default", "paper", "gibbs")
SLOW = ("nuts", "advi")
every_case = pytest.mark.parametrize(
    ("engine", "target"),
    [
        ("default", "multiclass"),
        ("default", "binary"),
        ("default", "multilabel"),
        ("paper", "multiclass"),
        ("paper", "regression"),
        ("gibbs", "multiclass"),
        pytest.param("nuts", "binary", marks=pytest.mark.slow),
        pytest.param("advi", "multiclass", marks=pytest.mark.slow),
    ],
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


@pytest.fixture(scope="module")
def fitted(make_form, short_pymc):
    """Estimator by engine and target, each fitted once."""

    @functools.cache
    def fit(engine, target):
        model = BM2PCARegressor(R, random_state=0)
        if target != "regression":
            model = make_form(engine, n_components=R, loss__C=5.0)
        with warnings.catch_warnings(), short_pymc():
            warnings.filterwarnings("ignore", "R-hat of the identified quantities")
            warnings.filterwarnings("ignore", module="pymc|pytensor|arviz")
            return model.fit(*toy(target))

    return fit


@every_case
def test_dims_and_coordinates(fitted, engine, target):
    model = fitted(engine, target)
    tree = model.idata_
    outcomes = {
        "multiclass": ["ham", "spam", "tofu"],
        "binary": ["ham", "spam"],
        "multilabel": [0, 1, 2],
        "regression": ["y0", "y1", "y2"],
    }[target]
    posterior = tree["posterior"]
    assert {"coef", "intercept"} <= set(posterior.data_vars)
    if engine in ENGINES:
        assert {"weights", "bias"} <= set(posterior.data_vars)
    if engine in ("paper", "gibbs", *SLOW):
        assert {"loadings", "offset", "noise_precision"} <= set(posterior.data_vars)
    for name, values in posterior.data_vars.items():
        dims = trees.FREE_DIMS[name] if name in trees.FREE_DIMS else SPEC.variables[name]
        if target == "binary" and name not in ("coef", "intercept"):  # of the score of both classes
            dims = tuple("score" if dim == "outcome" else dim for dim in dims)
        assert values.dims == ("chain", "draw", *dims), name
        assert np.isfinite(values).all(), name
    assert posterior["feature"].values.tolist() == FEATURES
    assert posterior["outcome"].values.tolist() == outcomes
    if target == "binary" and "score" in posterior.coords:
        assert posterior["score"].values.tolist() == outcomes[1:]
    fit = tree["fit"]
    for name, axes in {
        "latent_mean": ("obs", "component"),
        "latent_cov": ("obs", "component", "component_aux"),
        "projection_mean": ("feature", "component"),
        "relevance": ("component",),
        "feature_relevance": ("feature",),
    }.items():
        assert fit[name].dims == axes, name
        assert np.isfinite(fit[name]).all(), name
    assert fit.sizes["component"] == (1 if (engine, target) == ("default", "binary") else R)
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
    sampled = engine in ("gibbs", *SLOW)
    method = engine if sampled else "map" if engine.startswith("default") else "mean_field"
    assert tree.attrs["inference_method"] == method
    assert tree.attrs["model"] == "bm2pca"
    assert tree.attrs["target"] == ("multiclass" if target == "binary" else target)
    assert tree.attrs["creation_library"] == "bsdr_models"
    assert tree.attrs["interrupted"] == 0
    assert tree.attrs["C"] == (3.0 if target == "regression" else 5.0)
    config = json.loads(tree.attrs["config"])
    assert config["n_components"] == R
    approximate = method in ("map", "mean_field", "advi")
    assert tree["posterior"].sizes["chain"] == (1 if approximate else 2)
    if target == "regression":
        assert tree.attrs["epsilon"] == model.epsilon_
        assert tree.attrs["slope"] == model.slope_.tolist()
        assert tree.attrs["std_factor"] == model.std_factor_.tolist()
    elif engine.startswith("default"):
        assert tree.attrs["temperature"] == model.temperature_
        assert "metric" in tree.attrs
        assert tree.attrs["link"] == "softmax"
    if method == "advi":
        assert model.n_iter_ == tree["fit/elbo"].size
    if method == "map":
        np.testing.assert_array_equal(tree["fit/objective"], model.objective_)
        assert tree.attrs["converged"] == int(model.converged_)
    if method == "mean_field":
        np.testing.assert_array_equal(tree["fit/elbo"], model.lower_bounds_)
        assert tree.attrs["converged"] == int(model.converged_)
        if engine.startswith("paper"):
            np.testing.assert_allclose(tree["fit/elbo_terms"].sum("term"), tree["fit/elbo"])


def test_draws_of_a_mean_field_fit_have_its_moments(fitted):
    model = fitted("paper", "regression")
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


def test_draws_of_a_default_fit_have_the_variance_of_its_classifier(fitted):
    model = fitted("default", "multiclass")
    posterior = model.idata_["posterior"].dataset
    scaled = model.idata_["constant_data/X"].values
    draws = np.einsum("np,sdpk->nsdk", scaled, posterior["coef"]) + posterior["intercept"].values
    spread = draws.std(axis=(1, 2))
    rows = np.column_stack([np.ones(N), model.transform(toy("multiclass")[0])])
    variance = np.einsum("np,cpq,nq->nc", rows, model._posterior.weight_cov, rows)
    np.testing.assert_allclose(spread, np.sqrt(variance), rtol=0.2)
