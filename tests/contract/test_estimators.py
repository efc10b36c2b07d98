"""Scikit-learn's own checks of an estimator, and what its users do with one."""

import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCAPriors,
    BM2PCARegressor,
    BSDRClassifier,
    BSDRRegressor,
    DGPLVMClassifier,
    DGPLVMPriors,
    MNPClassifier,
    Priors,
)

# What the checks' data deserve to be told: labels without signal, one row of a class, too few
# draws to converge, a limit of iterations that was set to be reached.
EXPLAINED = [
    "ignore:the targets are not predictable from X",
    "ignore:class .* has a single row",
    "ignore:.* features are constant in the training rows",
    "ignore:mean field stopped after max_iter",
    "ignore:R-hat of the identified quantities",
    "ignore:no row can be held out",
    "ignore:too few rows have a target",
    "ignore:the map does not predict the classes",
    "ignore:the search stopped after max_iter",
    "ignore:the positions explain next to nothing of the features",
    "ignore:.* ended at a bound",
    "ignore:every class has collapsed to a point",
]
explained = pytest.mark.filterwarnings(*EXPLAINED)

FEW_DRAWS = {"inference": "gibbs", "draws": 20, "tune": 20, "chains": 2}
EXPECTED = {
    "check_estimators_nan_inf": "rows with gaps are predicted, though they cannot be fitted",
    "check_classifiers_multilabel_output_format_predict_proba": (
        "wants probabilities below one, which large scores at a temperature of one are not"
    ),
}
# BM2PCA without cross-validation.
FIXED = {"calibrate": False, "random_state": 0}
PAPER = {"variant": "paper", "C": 10.0, "n_sweeps": 3}
# The objective of D-GPLVM's paper, cut short.
DGPLVM_PAPER = {"variant": "paper", "max_iter": 10, "random_state": 0}


@explained
@parametrize_with_checks(
    [
        BSDRClassifier(max_iter=8, random_state=0),  # the default engine, cut short
        BSDRRegressor(latent_scale=0.3, random_state=0),  # one scale, to the end
        MNPClassifier(),
        BM2PCAClassifier(metric_scale=10.0, C=10.0, **FIXED),
        BM2PCAClassifier(**PAPER, **FIXED),
        BM2PCARegressor(**FIXED),
        DGPLVMClassifier(random_state=0),
        DGPLVMClassifier(**DGPLVM_PAPER),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@explained
@parametrize_with_checks(
    [
        BSDRClassifier(random_state=0),
        BSDRRegressor(random_state=0),
        BSDRClassifier(preset="paper", random_state=0),
        BSDRRegressor(projection_prior="rowwise", latent_scale=0.3, random_state=0),
        BSDRClassifier(latent_scale="estimate", random_state=0),
        BM2PCAClassifier(random_state=0),
        BM2PCAClassifier(strategy="one_vs_rest", random_state=0),
        BM2PCAClassifier(variant="paper", random_state=0),
        BM2PCAClassifier(variant="paper", strategy="one_vs_rest", random_state=0),
        BM2PCAClassifier(variant="paper", n_sweeps="converged", C=10.0, random_state=0),
        BM2PCARegressor(random_state=0),
        BM2PCARegressor(C="cv", epsilon="cv", random_state=0),
        DGPLVMClassifier(weight=np.inf, random_state=0),
        DGPLVMClassifier(mapping="none", random_state=0),
        DGPLVMClassifier(placement="likelihood", random_state=0),
        DGPLVMClassifier(variant="paper", random_state=0),
    ]
)
def test_scikit_learn_checks_at_length(estimator, check):
    check(estimator)


@pytest.mark.slow
@explained
@parametrize_with_checks(
    [
        BSDRClassifier(**FEW_DRAWS, random_state=0),
        BSDRRegressor(**FEW_DRAWS, random_state=0),
        BM2PCAClassifier(2, **FEW_DRAWS, **PAPER, **FIXED),
    ],
    expected_failed_checks=lambda model: EXPECTED if isinstance(model, BM2PCAClassifier) else {},
)
def test_scikit_learn_checks_of_gibbs(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------- daily use


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X.iloc[::2], np.array(["setosa", "versicolor", "virginica"])[y[::2]]


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X[::4], y[::4]


CLASSIFIERS = {
    "bsdr": BSDRClassifier(latent_scale=0.1, random_state=0),
    "bm2pca": BM2PCAClassifier(metric_scale=10.0, random_state=0),
    "bm2pca of the paper": BM2PCAClassifier(2, **PAPER, random_state=0),
    "dgplvm": DGPLVMClassifier(random_state=0),
}
REGRESSORS = {
    "bsdr": BSDRRegressor(latent_scale=0.3, random_state=0),
    "bm2pca": BM2PCARegressor(random_state=0),
}


@pytest.fixture(scope="module", params=CLASSIFIERS)
def classifier(request, iris):
    """Fitted; two components each."""
    return clone(CLASSIFIERS[request.param]).fit(*iris)


@pytest.fixture(scope="module", params=REGRESSORS)
def regressor(request, diabetes):
    return clone(REGRESSORS[request.param]).fit(*diabetes)


def names(model):
    return [f"{type(model).__name__.lower()}{i}" for i in range(2)]


def test_names_of_outputs(classifier):
    assert classifier.get_feature_names_out().tolist() == names(classifier)


@pytest.mark.parametrize("container", ["pandas", "polars", "default"])
def test_set_output(iris, classifier, container):
    X, _ = iris
    model = clone(classifier).set_output(transform=container).fit(*iris)
    got = model.transform(X)
    kind = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "default": np.ndarray}[container]
    assert isinstance(got, kind)
    if container != "default":
        assert list(got.columns) == names(classifier)
    if container == "pandas":
        assert (got.index == X.index).all()
    np.testing.assert_array_equal(np.asarray(got), classifier.transform(X))


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_covariances_do_not_get_in_the_way_of_set_output(iris, classifier, container):
    model = clone(classifier).set_output(transform=container).fit(*iris)
    mean, cov = model.transform(iris[0], return_cov=True)
    assert cov.shape == (len(iris[0]), 2, 2)
    np.testing.assert_allclose(np.asarray(mean), classifier.transform(iris[0]), rtol=1e-12)


def test_frames_of_polars_are_read(iris, classifier):
    X, y = iris
    frame = pl.DataFrame({name: X[name].to_numpy() for name in X})
    model = clone(classifier).fit(frame, pl.Series(y))
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.idata_["constant_data/feature"].values.tolist() == list(X.columns)
    np.testing.assert_array_equal(model.predict(frame), classifier.predict(X))


def test_as_a_step_of_a_pipeline(iris, classifier):
    X, y = iris
    steps = make_pipeline(clone(classifier), LogisticRegression()).set_output(transform="pandas")
    assert steps.fit(X, y).score(X, y) > 0.85
    assert steps[:-1].get_feature_names_out().tolist() == names(classifier)


GRIDS = {
    BSDRClassifier: {"latent_scale": [0.03, "estimate"], "priors": [Priors()]},
    BM2PCAClassifier: {"C": [1.0, "cv"], "priors": [BM2PCAPriors()]},
    DGPLVMClassifier: {"weight": [1.0, np.inf], "priors": [DGPLVMPriors(map_dof=8.0)]},
}


@explained
@pytest.mark.parametrize("kind", GRIDS)
def test_grid_search(iris, kind):
    grid = {"n_components": [1, 2], **GRIDS[kind]}
    search = GridSearchCV(
        kind(random_state=0, max_iter=30), grid, cv=2, scoring="neg_log_loss"
    ).fit(*iris)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.score(*iris) > 0.9


def test_cross_validation(iris, classifier):
    p = cross_val_predict(clone(classifier), *iris, cv=3, method="predict_proba")
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert cross_val_score(clone(classifier), *iris, cv=3).mean() > 0.75


def test_cross_validation_of_real_targets(diabetes, regressor):
    assert cross_val_score(clone(regressor), *diabetes, cv=3).mean() > 0.3


def test_clones_have_the_same_arguments_and_no_fit(classifier):
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params()
    assert not copy.__sklearn_is_fitted__()
    assert "random_state=0" in repr(copy)


@pytest.mark.parametrize("how", ["pickle", "joblib"])
def test_a_stored_classifier_predicts_the_same(how, iris, classifier, tmp_path):
    back, (X, _) = stored(classifier, how, tmp_path), iris
    np.testing.assert_array_equal(back.predict_proba(X), classifier.predict_proba(X))
    np.testing.assert_array_equal(back.transform(X), classifier.transform(X))
    assert back.idata_.equals(classifier.idata_)


@pytest.mark.parametrize("how", ["pickle", "joblib"])
def test_a_stored_regressor_predicts_the_same(how, diabetes, regressor, tmp_path):
    back, (X, _) = stored(regressor, how, tmp_path), diabetes
    for got, want in zip(
        back.predict(X, return_std=True), regressor.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(got, want)
    assert back.idata_.equals(regressor.idata_)


@explained
@pytest.mark.parametrize("how", ["pickle", "joblib"])
@pytest.mark.parametrize(
    "model",
    [
        MNPClassifier(),
        BSDRClassifier(**FEW_DRAWS, random_state=0),
        BM2PCAClassifier(2, **FEW_DRAWS, **PAPER, **FIXED),
        DGPLVMClassifier(**DGPLVM_PAPER),
        DGPLVMClassifier(placement="likelihood", random_state=0),
    ],
    ids=["mnp", "bsdr by gibbs", "bm2pca by gibbs", "dgplvm of the paper", "dgplvm by likelihood"],
)
def test_other_stored_models_predict_the_same(how, model, iris, tmp_path):
    X, y = iris
    model = clone(model).fit(X, y)
    back = stored(model, how, tmp_path)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    if not isinstance(model, MNPClassifier):
        np.testing.assert_array_equal(back.transform(X), model.transform(X))
        assert back.idata_.equals(model.idata_)


def stored(model, how, path):
    if how == "pickle":
        return pickle.loads(pickle.dumps(model))
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib")


def test_a_copy_is_independent_of_the_process(iris, classifier):
    """Worker processes of joblib fit the same model."""
    X, y = iris
    tasks = (joblib.delayed(clone(classifier).fit)(X, y) for _ in range(1))
    (far,) = joblib.Parallel(n_jobs=2)(tasks)
    np.testing.assert_array_equal(far.predict_proba(X), classifier.predict_proba(X))
