"""Scikit-learn's own checks of an estimator, and what its users do with one."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import has_fit_parameter

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCAPriors,
    BM2PCARegressor,
    BSDRClassifier,
    BSDROptimization,
    BSDRRegressor,
    DGPLVMClassifier,
    DGPLVMOptimization,
    DGPLVMPriors,
    HingeLoss,
    Priors,
    Sampling,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.papers import (
    PaperBM2PCAClassifier,
    PaperBSDRClassifier,
    PaperDGPLVMClassifier,
)

# What the checks' data deserve to be told: labels without signal, one sample of a class, too few
# draws to converge, a limit of iterations that was set to be reached.
EXPLAINED = [
    "ignore:no evidence that the targets depend on X",
    "ignore:class .* has a single sample",
    "ignore:.* features are constant in the training samples",
    "ignore:mean field stopped after max_iter",
    "ignore:R-hat of the identified quantities",
    "ignore:the chains have not mixed",
    "ignore:every class has one sample only",
    "ignore:too few samples have a target",
    "ignore:the mapping does not predict the classes",
    "ignore:the search stopped after max_iter",
    "ignore:the latent coordinates explain almost nothing of the features",
    "ignore:.* ended at a bound",
    "ignore:every class has collapsed to a point",
]
explained = pytest.mark.filterwarnings(*EXPLAINED)
pytestmark = pytest.mark.usefixtures("short_runs")

# One population of the hierarchical model, and the model of the paper by one ascent.
EXACT = {"sampling__chains": 1, "sampling__draws": 16, "temperature": 1.0, "random_state": 0}
BSDR_PAPER = {"optimization__max_iter": 15, "random_state": 0}
# BM2PCA without cross-validation.
FIXED = {"loss__calibrate": False, "random_state": 0}
PAPER = {"loss__C": 10.0, "optimization__n_sweeps": 3}
# D-GPLVM, cut short.
SEARCH = {"optimization__max_iter": 10, "random_state": 0}
CHECKED = [
    BSDRClassifier().set_params(**EXACT),
    BSDRRegressor().set_params(**EXACT),
    PaperBSDRClassifier().set_params(**BSDR_PAPER),
    BM2PCAClassifier(metric_scale=10.0, loss=HingeLoss(C=10.0)).set_params(**FIXED),
    PaperBM2PCAClassifier().set_params(**PAPER, **FIXED),
    BM2PCARegressor().set_params(**FIXED),
    DGPLVMClassifier().set_params(**SEARCH),
    PaperDGPLVMClassifier().set_params(**SEARCH),
]


# Estimators whose `fit` and methods are those of another one in the list, but for the engine, and
# the checks that depend on it.
ALIKE = (
    BSDRRegressor,
    PaperBSDRClassifier,
    PaperBM2PCAClassifier,
    PaperDGPLVMClassifier,
)
OF_ENGINES = {
    *("check_classifiers_train", "check_regressors_train", "check_fit_idempotent"),
    *("check_methods_subset_invariance", "check_methods_sample_order_invariance"),
    *("check_dict_unchanged", "check_dont_overwrite_attributes", "check_n_features_in"),
    *("check_estimators_pickle", "check_fit2d_1feature", "check_parameters_default_constructible"),
}


def checks():
    """Each check once: of its forms, that of 64-bit samples that cannot be written to."""
    for model in CHECKED:
        forms = {}
        for _, check in estimator_checks_generator(model):
            name, options = check.func.__name__, check.keywords
            if isinstance(model, ALIKE) and name not in OF_ENGINES:
                continue
            if name not in forms or (options.get("readonly_memmap") and "X_dtype" not in options):
                forms[name] = check
        for name, check in forms.items():
            yield pytest.param(model, check, id=f"{type(model).__name__}-{name}")


@explained
@pytest.mark.parametrize(("model", "check"), list(checks()))
def test_scikit_learn_checks(model, check):
    check(clone(model))


# ------------------------------------------------------------------------------- daily use


@pytest.fixture(scope="module")
def frames(zoo):
    """Estimators fitted to a frame, not to be fitted again; the frame, and targets as text."""
    X = pd.DataFrame(zoo.X, columns=list("abcd"), index=np.arange(45) + 5)
    cache = {}

    def get(kind):
        y = zoo.target(kind)
        y = y if kind.endswith("Regressor") else np.array(["setosa", "versicolor", "virginica"])[y]
        if kind not in cache:
            cache[kind] = zoo.fit(zoo.make(kind), X, y)
        return cache[kind], X, y

    return get


def said(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.mark.parametrize("container", ["pandas", "polars", "default"])
@pytest.mark.parametrize("kind", ["PaperBSDRClassifier", "BM2PCARegressor"])
def test_set_output(zoo, frames, kind, container):
    plain, X, y = frames(kind)
    model = zoo.fit(clone(plain).set_output(transform=container), X, y)
    got = model.transform(X)
    names = [f"{kind.lower()}{i}" for i in range(got.shape[1])]
    assert isinstance(
        got, {"pandas": pd.DataFrame, "polars": pl.DataFrame, "default": np.ndarray}[container]
    )
    assert plain.get_feature_names_out().tolist() == names
    if container != "default":
        assert list(got.columns) == names
    if container == "pandas":
        assert (got.index == X.index).all()
    np.testing.assert_array_equal(np.asarray(got), plain.transform(X))
    mean, cov = model.transform(X, return_cov=True)  # does not get in the way
    assert cov.shape == (*mean.shape, mean.shape[1])
    np.testing.assert_allclose(np.asarray(mean), plain.transform(X), rtol=1e-12)


@explained
def test_as_a_step_of_a_pipeline(frames, kind):
    plain, X, y = frames(kind)
    last = LinearRegression() if is_regressor(plain) else LogisticRegression()
    steps = make_pipeline(clone(plain), last).set_output(transform="pandas").fit(X, y)
    assert steps.score(X, y) > 0.7
    assert steps[:-1].get_feature_names_out().tolist() == plain.get_feature_names_out().tolist()
    step = kind.lower()
    steps.set_params(**{f"{step}__n_components": 1, f"{step}__standardize": False})
    assert steps[0].n_components == 1
    assert steps[0].standardize is False


GRIDS = {
    BSDRClassifier: [
        {"n_components": [1], "sampling__chains": [1], "temperature": [1.0]},
        {"sampling__chains": [1], "temperature": [0.5], "priors": [HierarchicalPriors(lapse=0.01)]},
    ],
    PaperBSDRClassifier: {
        "inference": ["mean_field", "gibbs"],
        "priors": [Priors(weight_shape=2.0)],
        "sampling__draws": [20],
        "sampling__tune": [20],
        "sampling__chains": [2],
    },
    BSDRRegressor: {"n_components": [1, 2], "sampling__chains": [1]},
    BM2PCAClassifier: {"loss__C": [1.0, 10.0], "metric_scale": [10.0]},
    BM2PCARegressor: {"loss__C": [1.0, 3.0], "priors": [BM2PCAPriors()]},
    DGPLVMClassifier: {"priors__weight": [1.0, np.inf], "priors": [DGPLVMPriors(map_dof=8.0)]},
}


@explained
@pytest.mark.parametrize("kind", GRIDS)
def test_grid_search(zoo, kind):
    real = kind in (BSDRRegressor, BM2PCARegressor)
    y = zoo.target(kind.__name__)
    options = {"random_state": 0}
    if kind not in (BSDRClassifier, BSDRRegressor, PaperBSDRClassifier):
        options["max_iter" if kind is BM2PCAClassifier else "optimization__max_iter"] = 30
    search = GridSearchCV(
        kind().set_params(**options), GRIDS[kind], cv=2, scoring="r2" if real else "neg_log_loss"
    ).fit(zoo.X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.score(zoo.X, y) > 0.7


@explained
def test_nothing_but_samples_and_targets_is_asked_for(frames, kind):
    """No sample weights; with metadata routing a pipeline has nothing to route by default."""
    model, X, y = frames(kind)
    with pytest.raises(TypeError, match="sample_weight"):
        clone(model).fit(X, y, sample_weight=np.ones(len(X)))
    assert not has_fit_parameter(model, "sample_weight")
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(model))
        assert steps.fit(X, y).score(X, y) > 0.7


@pytest.mark.parametrize("model", CHECKED, ids=lambda model: type(model).__name__)
def test_an_unknown_argument_is_refused_by_the_class(model):
    cls = type(model)
    with pytest.raises(TypeError, match=rf"^{cls.__name__}\.__init__\(\) got .* 'n_component'"):
        cls(n_component=2)


def test_clones_have_the_same_arguments_and_no_fit(frames, kind):
    model, _, _ = frames(kind)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not copy.__sklearn_is_fitted__()


def test_a_pickled_model_predicts_the_same(frames, kind):
    model, X, _ = frames(kind)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(said(back, X), said(model, X))
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    assert back.idata_.equals(model.idata_)


def test_trees_of_predictions_are_those_of_the_methods(zoo, name):
    model, new, known = zoo.fitted(name), zoo.X[:7], zoo.target(name)[:7]
    tree = model.predict_idata(new, known)
    group = tree["predictions"]
    mean, cov = model.transform(new, return_cov=True)
    expected = {"latent_mean": mean, "latent_cov": cov, "y": known}
    if is_regressor(model):
        expected["prediction"], expected["prediction_sd"] = model.predict(new, return_std=True)
    else:
        expected |= {"probability": model.predict_proba(new), "predicted": model.predict(new)}
    for variable, values in expected.items():
        np.testing.assert_allclose(group[variable].values.reshape(values.shape), values, rtol=1e-12)
    assert tree.attrs["inference_method"] == model.idata_.attrs["inference_method"]
    assert "y" not in model.predict_idata(new)["predictions"]
    with pytest.raises(ValueError, match="y has 6 samples, X has 7"):
        model.predict_idata(new, known[:6])


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (np.ones((3, 7)), "Z must have shape"),
        (np.ones(3), "Z must have shape"),
        (np.full((3, 2), np.nan), "Z contains NaN or infinity"),
        (np.full((3, 2), np.inf), "Z contains NaN or infinity"),
    ],
)
@pytest.mark.parametrize("kind", ["PaperBM2PCAClassifier", "DGPLVMClassifier"])
def test_invalid_latent_coordinates_are_refused(zoo, kind, rows, match):
    model = zoo.fitted(kind)
    if rows.shape == (3, 2):
        rows = np.resize(rows, (3, model.transform(zoo.X[:1]).shape[1]))
    with pytest.raises(ValueError, match=match):
        model.inverse_transform(rows)


# -------------------------------------------------------------------------- settings, once more

SEARCHES = {
    "bsdr": BSDRClassifier(sampling=Sampling(chains=1, draws=16), random_state=0),
    "bsdr_regressor": BSDRRegressor(sampling=Sampling(draws=16), random_state=0),
    "bsdr_paper": PaperBSDRClassifier(optimization=BSDROptimization(max_iter=15), random_state=0),
    "bm2pca": BM2PCAClassifier(loss=HingeLoss(C="cv"), random_state=0),
    "bm2pca_paper": PaperBM2PCAClassifier(2, random_state=0),
    "bm2pca_regressor": BM2PCARegressor(random_state=0),
    "dgplvm": DGPLVMClassifier(random_state=0),
    "dgplvm_paper": PaperDGPLVMClassifier(
        optimization=DGPLVMOptimization(max_iter=25), random_state=0
    ),
}


@explained
@pytest.mark.parametrize("name", SEARCHES)
def test_selected_settings_are_fitted_again_without_a_search(zoo, name):
    model = clone(SEARCHES[name]).fit(zoo.X, zoo.target(name))
    chosen = model.selected_params()
    again = clone(model).set_params(**chosen).fit(zoo.X, zoo.target(name))
    assert again.selected_params() == {name: chosen[name] for name in again.selected_params()}
    assert not any(isinstance(again.get_params()[name], str) for name in chosen)
    if name in ("bsdr", "bm2pca", "bm2pca_paper"):  # nothing had to be held out
        assert np.isfinite(model.held_out_score_)
        assert np.isnan(again.held_out_score_)
    said = zoo.outputs(again, zoo.X)
    for what, values in zoo.outputs(model, zoo.X).items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(said[what], values, rtol=1e-8, atol=1e-10, err_msg=what)


def test_nothing_is_selected_before_a_fit(zoo, kind):
    with pytest.raises(NotFittedError):
        zoo.make(kind).selected_params()
