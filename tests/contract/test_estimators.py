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

from bsdr_models import BSDRClassifier, BSDRRegressor, MNPClassifier, Priors

# What the checks' data deserve to be told: labels without signal, one row of a class, too few
# draws to converge, a limit of iterations that was set to be reached.
EXPLAINED = [
    "ignore:the targets are not predictable from X",
    "ignore:class .* has a single row",
    "ignore:.* features are constant in the training rows",
    "ignore:mean field stopped after max_iter",
    "ignore:R-hat of the identified quantities",
]
explained = pytest.mark.filterwarnings(*EXPLAINED)

FEW_DRAWS = {"inference": "gibbs", "draws": 20, "tune": 20, "chains": 2}


@explained
@parametrize_with_checks(
    [
        BSDRClassifier(max_iter=8, random_state=0),  # the default engine, cut short
        BSDRRegressor(latent_scale=0.3, random_state=0),  # one scale, to the end
        MNPClassifier(),
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
    ]
)
def test_scikit_learn_checks_at_length(estimator, check):
    check(estimator)


@pytest.mark.slow
@explained
@parametrize_with_checks(
    [BSDRClassifier(**FEW_DRAWS, random_state=0), BSDRRegressor(**FEW_DRAWS, random_state=0)]
)
def test_scikit_learn_checks_of_gibbs(estimator, check):
    check(estimator)


# ------------------------------------------------------------------------------- daily use


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True, as_frame=True)
    return X.iloc[::2], np.array(["setosa", "versicolor", "virginica"])[y[::2]]


@pytest.fixture(scope="module")
def classifier(iris):
    return BSDRClassifier(latent_scale=0.1, random_state=0).fit(*iris)


@pytest.fixture(scope="module")
def regressor():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return BSDRRegressor(latent_scale=0.3, random_state=0).fit(X[::4], y[::4])


def test_names_of_outputs(classifier):
    expected = ["bsdrclassifier0", "bsdrclassifier1"]
    assert classifier.get_feature_names_out().tolist() == expected


@pytest.mark.parametrize("container", ["pandas", "polars", "default"])
def test_set_output(iris, classifier, container):
    X, _ = iris
    model = clone(classifier).set_output(transform=container).fit(*iris)
    got = model.transform(X)
    kind = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "default": np.ndarray}[container]
    assert isinstance(got, kind)
    if container != "default":
        assert list(got.columns) == ["bsdrclassifier0", "bsdrclassifier1"]
    if container == "pandas":
        assert (got.index == X.index).all()
    np.testing.assert_array_equal(np.asarray(got), classifier.transform(X))


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_covariances_do_not_get_in_the_way_of_set_output(iris, classifier, container):
    model = clone(classifier).set_output(transform=container).fit(*iris)
    mean, cov = model.transform(iris[0], return_cov=True)
    assert cov.shape == (len(iris[0]), 2, 2)
    np.testing.assert_array_equal(np.asarray(mean), classifier.transform(iris[0]))


def test_frames_of_polars_are_read(iris):
    X, y = iris
    frame = pl.DataFrame({name: X[name].to_numpy() for name in X})
    model = BSDRClassifier(latent_scale=0.1, random_state=0).fit(frame, y)
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert model.idata_["posterior/feature"].values.tolist() == list(X.columns)
    np.testing.assert_array_equal(model.predict(frame), model.predict(X))


def test_as_a_step_of_a_pipeline(iris):
    X, y = iris
    steps = make_pipeline(
        BSDRClassifier(latent_scale=0.1, random_state=0), LogisticRegression()
    ).set_output(transform="pandas")
    assert steps.fit(X, y).score(X, y) > 0.9
    assert steps[:-1].get_feature_names_out().tolist() == ["bsdrclassifier0", "bsdrclassifier1"]


@explained
def test_grid_search(iris):
    grid = {"n_components": [1, 2], "latent_scale": [0.03, "estimate"], "priors": [Priors()]}
    search = GridSearchCV(
        BSDRClassifier(random_state=0, max_iter=30), grid, cv=2, scoring="neg_log_loss"
    ).fit(*iris)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.score(*iris) > 0.9


def test_cross_validation(iris):
    model = BSDRClassifier(latent_scale=0.1, random_state=0)
    p = cross_val_predict(model, *iris, cv=3, method="predict_proba")
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert cross_val_score(model, *iris, cv=3).mean() > 0.85


def test_clones_have_the_same_arguments_and_no_fit(classifier):
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params()
    assert not copy.__sklearn_is_fitted__()
    assert "latent_scale=0.1" in repr(copy)


@pytest.mark.parametrize("how", ["pickle", "joblib"])
@pytest.mark.parametrize("kind", ["classifier", "regressor", "mnp", "gibbs"])
@explained
def test_a_stored_model_predicts_the_same(how, kind, iris, tmp_path, request):
    X, y = iris
    if kind == "mnp":
        model = MNPClassifier().fit(X, y)
    elif kind == "gibbs":
        model = BSDRClassifier(**FEW_DRAWS, random_state=0).fit(X, y)
    else:
        model = request.getfixturevalue(kind)
        if kind == "regressor":
            X = load_diabetes(as_frame=True).data
    if how == "pickle":
        back = pickle.loads(pickle.dumps(model))
    else:
        joblib.dump(model, tmp_path / "model.joblib")
        back = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    if kind != "regressor":
        np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    if kind != "mnp":
        np.testing.assert_array_equal(back.transform(X), model.transform(X))
        assert back.idata_.equals(model.idata_)


def test_a_copy_is_independent_of_the_process(iris, classifier):
    """Worker processes of joblib fit the same model."""
    X, y = iris
    tasks = (joblib.delayed(clone(classifier).fit)(X, y) for _ in range(1))
    (far,) = joblib.Parallel(n_jobs=2)(tasks)
    np.testing.assert_array_equal(far.predict_proba(X), classifier.predict_proba(X))
