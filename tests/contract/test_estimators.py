"""Scikit-learn's own checks of an estimator, and what its users do with one."""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import has_fit_parameter

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCAPriors,
    BM2PCARegressor,
    BSDRClassifier,
    BSDROptimization,
    BSDRRegressor,
    DGPLVMClassifier,
    DGPLVMMapping,
    DGPLVMOptimization,
    DGPLVMPriors,
    EpsilonInsensitiveLoss,
    HingeLoss,
    Priors,
    Sampling,
)
from bsdr_models.bsdr import SAMPLING
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

FEW_DRAWS = {
    "inference": "gibbs",
    "sampling__draws": 20,
    "sampling__tune": 20,
    "sampling__chains": 2,
}
EXPECTED = {
    "check_estimators_nan_inf": "rows with gaps are predicted, though they cannot be fitted",
    "check_classifiers_multilabel_output_format_predict_proba": (
        "wants probabilities below one, which large scores at a temperature of one are not"
    ),
    "check_classifier_multioutput": "the same: different large scores have probability one",
}
# One population of the hierarchical model, and the model of the paper by one ascent.
EXACT = {"sampling__chains": 1, "sampling__draws": 16, "temperature": 1.0, "random_state": 0}
BSDR_PAPER = {"random_state": 0}
# BM2PCA without cross-validation.
FIXED = {"loss__calibrate": False, "random_state": 0}
PAPER = {"loss__C": 10.0, "optimization__n_sweeps": 3}
# The objective of D-GPLVM's paper, cut short.
DGPLVM_PAPER = {"optimization__max_iter": 10, "random_state": 0}


@explained
@parametrize_with_checks(
    [
        BSDRClassifier().set_params(**EXACT),
        BSDRRegressor().set_params(**EXACT),
        PaperBSDRClassifier().set_params(**BSDR_PAPER),
        BM2PCAClassifier(metric_scale=10.0, loss=HingeLoss(C=10.0)).set_params(**FIXED),
        BM2PCARegressor().set_params(**FIXED),
        DGPLVMClassifier(random_state=0),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@explained
@parametrize_with_checks(
    [
        BSDRClassifier(random_state=0),
        BM2PCAClassifier(random_state=0),
        PaperBM2PCAClassifier(loss=HingeLoss(strategy="one_vs_rest"), random_state=0),
        DGPLVMClassifier(mapping=DGPLVMMapping(placement="likelihood"), random_state=0),
        PaperDGPLVMClassifier(random_state=0),
    ]
)
def test_scikit_learn_checks_at_length(estimator, check):
    check(estimator)


@pytest.mark.slow
@explained
@parametrize_with_checks(
    [
        PaperBSDRClassifier(priors=SAMPLING).set_params(**FEW_DRAWS, **BSDR_PAPER),
        PaperBM2PCAClassifier(2).set_params(**FEW_DRAWS, **PAPER, **FIXED),
    ],
    expected_failed_checks=lambda model: (
        EXPECTED if isinstance(model, PaperBM2PCAClassifier) else {}
    ),
)
def test_scikit_learn_checks_of_gibbs(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------- daily use


@pytest.fixture(scope="module")
def labelled():
    """Iris in a frame, 25 samples of each class, classes as text."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X.iloc[::2], np.array(["setosa", "versicolor", "virginica"])[y[::2]]


@pytest.fixture(scope="module")
def measured():
    """Diabetes in a frame, 111 samples, a real target."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X[::4], y[::4]


@pytest.fixture(scope="module")
def fitted_to_frames(labelled, measured):
    """Estimator of a name fitted to a frame, and the frame; not to be fitted again."""
    cache = {}

    def get(name):
        if name not in cache:
            X, y = measured if name in REGRESSORS else labelled
            cache[name] = clone(USED[name]).fit(X, y)
        return cache[name], (measured if name in REGRESSORS else labelled)

    return get


REGRESSORS = {
    "bsdr_regressor": BSDRRegressor().set_params(**EXACT),
    "bm2pca_regressor": BM2PCARegressor(random_state=0),
}
USED = {
    "bsdr": BSDRClassifier().set_params(**EXACT),
    "bsdr of the paper": PaperBSDRClassifier().set_params(**BSDR_PAPER),
    "bm2pca": BM2PCAClassifier(metric_scale=10.0, random_state=0),
    "bm2pca of the paper": PaperBM2PCAClassifier(2, random_state=0).set_params(**PAPER),
    "dgplvm": DGPLVMClassifier(random_state=0),
    **REGRESSORS,
}
every = pytest.mark.parametrize("name", USED)
every_classifier = pytest.mark.parametrize(
    "name", [name for name in USED if name not in REGRESSORS]
)


def said(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@every
def test_names_of_outputs(fitted_to_frames, name):
    model, (X, _) = fitted_to_frames(name)
    kind = type(model).__name__.lower()
    wanted = [f"{kind}{i}" for i in range(model.transform(X).shape[1])]
    assert model.get_feature_names_out().tolist() == wanted


@pytest.mark.parametrize("container", ["pandas", "polars", "default"])
@every
def test_set_output(fitted_to_frames, name, container):
    plain, (X, y) = fitted_to_frames(name)
    model = clone(plain).set_output(transform=container).fit(X, y)
    got = model.transform(X)
    kind = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "default": np.ndarray}[container]
    assert isinstance(got, kind)
    if container != "default":
        assert list(got.columns) == plain.get_feature_names_out().tolist()
    if container == "pandas":
        assert (got.index == X.index).all()
    np.testing.assert_array_equal(np.asarray(got), plain.transform(X))
    mean, cov = model.transform(X, return_cov=True)  # does not get in the way
    assert cov.shape == (*mean.shape, mean.shape[1])
    np.testing.assert_allclose(np.asarray(mean), plain.transform(X), rtol=1e-12)


@every
def test_as_a_step_of_a_pipeline(fitted_to_frames, name):
    plain, (X, y) = fitted_to_frames(name)
    last = LinearRegression() if name in REGRESSORS else LogisticRegression()
    steps = make_pipeline(clone(plain), last).set_output(transform="pandas").fit(X, y)
    assert steps.score(X, y) > (0.3 if name in REGRESSORS else 0.85)
    assert steps[:-1].get_feature_names_out().tolist() == plain.get_feature_names_out().tolist()
    step = type(plain).__name__.lower()
    steps.set_params(**{f"{step}__n_components": 1, f"{step}__random_state": 5})
    assert steps[0].n_components == 1
    assert steps[0].random_state == 5


@every
def test_as_the_end_of_a_pipeline(fitted_to_frames, name):
    plain, (X, y) = fitted_to_frames(name)
    steps = make_pipeline(StandardScaler(), clone(plain)).fit(X, y)
    assert steps.score(X, y) > (0.3 if name in REGRESSORS else 0.75)


GRIDS = {
    BSDRClassifier: [
        {"n_components": [1, None], "sampling__chains": [1], "temperature": [1.0]},
        {"sampling__chains": [1], "temperature": [0.5], "priors": [HierarchicalPriors(lapse=0.01)]},
    ],
    PaperBSDRClassifier: {
        "inference": ["mean_field", "gibbs"],
        "priors": [Priors(), Priors(weight_shape=2.0)],
        "sampling__draws": [20],
        "sampling__tune": [20],
        "sampling__chains": [2],
    },
    BSDRRegressor: {"n_components": [1, 2], "sampling__chains": [1]},
    BM2PCAClassifier: {
        "n_components": [1, 2],
        "loss__C": [1.0, 10.0],
        "metric_scale": [10.0],
    },
    BM2PCARegressor: {"n_components": [1, 2], "loss__C": [1.0, 3.0], "priors": [BM2PCAPriors()]},
    DGPLVMClassifier: {
        "n_components": [1, 2],
        "priors__weight": [1.0, np.inf],
        "priors": [DGPLVMPriors(map_dof=8.0)],
    },
}


@explained
@pytest.mark.parametrize("kind", GRIDS)
def test_grid_search(labelled, measured, kind):
    real = kind in (BSDRRegressor, BM2PCARegressor)
    options = {"random_state": 0}
    if kind not in (BSDRClassifier, BSDRRegressor, PaperBSDRClassifier):
        options["max_iter" if kind is BM2PCAClassifier else "optimization__max_iter"] = 30
    search = GridSearchCV(
        kind().set_params(**options), GRIDS[kind], cv=2, scoring="r2" if real else "neg_log_loss"
    ).fit(*(measured if real else labelled))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.score(*(measured if real else labelled)) > (0.3 if real else 0.9)


@every
def test_cross_validation(fitted_to_frames, name):
    model, (X, y) = fitted_to_frames(name)
    real = name in REGRESSORS
    scoring = ["r2"] if real else ["accuracy", "neg_log_loss"]
    found = cross_validate(clone(model), X, y, cv=3, scoring=scoring)
    assert found[f"test_{scoring[0]}"].mean() > (0.3 if real else 0.75)
    assert all(np.isfinite(found[f"test_{score}"]).all() for score in scoring)


@pytest.mark.slow
@every_classifier
def test_cross_validated_probabilities_of_text(fitted_to_frames, name):
    model, (X, y) = fitted_to_frames(name)
    p = cross_val_predict(clone(model), X, y, cv=3, method="predict_proba")
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    predicted = cross_val_predict(clone(model), X, y, cv=3)
    assert (predicted == model.classes_[p.argmax(axis=1)]).all()


@every
def test_nothing_but_samples_and_targets_is_asked_for(fitted_to_frames, name):
    """No sample weights; with metadata routing a pipeline has nothing to route by default."""
    model, (X, y) = fitted_to_frames(name)
    with pytest.raises(TypeError, match="sample_weight"):
        clone(model).fit(X, y, sample_weight=np.ones(len(X)))
    assert not has_fit_parameter(model, "sample_weight")
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(StandardScaler().set_output(transform="pandas"), clone(model))
        assert steps.fit(X, y).score(X, y) > (0.3 if name in REGRESSORS else 0.75)


@every
def test_clones_have_the_same_arguments_and_no_fit(fitted_to_frames, name):
    model, _ = fitted_to_frames(name)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not copy.__sklearn_is_fitted__()
    assert "random_state=0" in repr(copy)


@pytest.mark.parametrize("how", ["pickle", "joblib"])
@every
def test_a_stored_model_predicts_the_same(how, fitted_to_frames, name, tmp_path):
    model, (X, _) = fitted_to_frames(name)
    assert_same(stored(model, how, tmp_path), model, X)


@pytest.mark.slow
@explained
@pytest.mark.parametrize("how", ["pickle", "joblib"])
@pytest.mark.parametrize(
    "model",
    [
        PaperBSDRClassifier(priors=SAMPLING).set_params(**FEW_DRAWS, **BSDR_PAPER),
        PaperBM2PCAClassifier(2).set_params(**FEW_DRAWS, **PAPER, **FIXED),
        PaperDGPLVMClassifier().set_params(**DGPLVM_PAPER),
        DGPLVMClassifier(mapping=DGPLVMMapping(placement="likelihood"), random_state=0),
    ],
    ids=["bsdr by gibbs", "bm2pca by gibbs", "dgplvm of the paper", "dgplvm by likelihood"],
)
def test_other_stored_models_predict_the_same(how, model, labelled, tmp_path):
    X, y = labelled
    model = clone(model).fit(X, y)
    assert_same(stored(model, how, tmp_path), model, X)


def stored(model, how, path):
    if how == "pickle":
        return pickle.loads(pickle.dumps(model))
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib")


def assert_same(back, model, X):
    np.testing.assert_array_equal(said(back, X), said(model, X))
    if hasattr(model, "transform"):
        np.testing.assert_array_equal(back.transform(X), model.transform(X))
        assert back.idata_.equals(model.idata_)


@pytest.mark.slow
def test_models_fitted_by_worker_processes_are_the_same(labelled, measured, monkeypatch):
    monkeypatch.undo()  # the workers have all particles
    tasks = [(m, *(measured if name in REGRESSORS else labelled)) for name, m in USED.items()]
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(clone(m).fit)(X, y) for m, X, y in tasks)
    for (model, X, y), far in zip(tasks, found, strict=True):
        np.testing.assert_array_equal(said(far, X), said(clone(model).fit(X, y), X))


# -------------------------------------------------------------------------- settings, once more

SEARCHES = {
    "bsdr": BSDRClassifier(sampling=Sampling(chains=1, draws=16), random_state=0),
    "bsdr_regressor": BSDRRegressor(sampling=Sampling(draws=16), random_state=0),
    "bsdr_paper": PaperBSDRClassifier(optimization=BSDROptimization(max_iter=15), random_state=0),
    "bm2pca": BM2PCAClassifier(loss=HingeLoss(C="cv"), random_state=0),
    "bm2pca_paper": PaperBM2PCAClassifier(2, random_state=0),
    "bm2pca_regressor": BM2PCARegressor(loss=EpsilonInsensitiveLoss(C="cv"), random_state=0),
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
