"""Classifiers made of scikit-learn: rotations change nothing, settings are chosen."""

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models.baselines import (
    PENALTIES,
    PLSScores,
    logistic_regression,
    pls_da,
    shrinkage_lda,
)


@pytest.fixture(scope="module", params=[4, 50], ids=["narrow", "wide"])
def classes(request):
    """30 training and 30 other samples of three classes."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, request.param))
    X[:, 0] += y
    return X[:30], y[:30], X[30:]


def test_logistic_regression_in_the_span_of_the_samples(classes):
    X, y, new = classes
    found = logistic_regression().fit(X, y)
    penalty = found[-1].best_params_["C"]
    assert penalty in PENALTIES
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=2000)).fit(X, y)
    np.testing.assert_allclose(found.predict_proba(new), plain.predict_proba(new), atol=1e-3)


def test_shrinkage_lda_of_fewer_features_than_samples(classes):
    X, y, new = classes
    found = shrinkage_lda().fit(X, y).predict_proba(new)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    if X.shape[1] < len(X):
        lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=LedoitWolf())
        plain = make_pipeline(StandardScaler(), lda).fit(X, y)
        np.testing.assert_allclose(found, plain.predict_proba(new), atol=1e-9)


def test_pls_da_chooses_as_a_search_does_that_fits_every_number_of_scores(classes):
    X, y, new = classes
    found = pls_da([1, 2, 3], n_folds=3).fit(X, y)
    model = make_pipeline(
        PLSScores(scale=False), StandardScaler(), LogisticRegression(max_iter=2000)
    )
    grid = {"plsscores__n_components": [1, 2, 3], "logisticregression__C": PENALTIES}
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds)
    plain = make_pipeline(StandardScaler(), search).fit(X, y)
    chosen = search.best_params_
    assert found[-1].n_components_ == chosen["plsscores__n_components"]
    assert chosen["logisticregression__C"] == found[-1].C_
    np.testing.assert_allclose(found.predict_proba(new), plain.predict_proba(new), atol=1e-3)
    np.testing.assert_array_equal(found.predict(new), plain.predict(new))
