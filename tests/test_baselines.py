"""Classifiers made of scikit-learn: rotations change nothing, settings are chosen."""

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models.comparison import PENALTIES, logistic_regression, pls_da, shrinkage_lda


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


def test_pls_da_chooses_its_components(classes):
    X, y, new = classes
    model = pls_da([1, 3], n_folds=2).fit(X, y)
    assert model[-1].best_params_["plsscores__n_components"] in (1, 3)
    np.testing.assert_allclose(model.predict_proba(new).sum(axis=1), 1.0)
