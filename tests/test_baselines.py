"""Classifiers made of scikit-learn: rotations change nothing, settings are chosen."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.covariance import LedoitWolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models.compare.baselines import (
    PENALTIES,
    PENALTIES_OF_SCORES,
    Folds,
    PLSScores,
    logistic_regression,
    pls_da,
    shrinkage_lda,
)
from bsdr_models.compare.cross_validation import fitted_clone


@pytest.fixture(scope="module", params=[4, 50], ids=["narrow", "wide"])
def classes(request):
    """30 training and 30 other samples of three classes."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, request.param))
    X[:, 0] += y
    return X[:30], y[:30], X[30:]


def test_pls_da_chooses_as_a_search_of_pipelines(classes):
    X, y, new = classes
    found = pls_da(Folds(3), [1, 3])[-1].fit(X, y)
    steps = [
        ("pls", PLSScores(scale=False)),
        ("scale", StandardScaler()),
        ("last", LogisticRegression()),
    ]
    grid = {"pls__n_components": [1, 3], "last__C": PENALTIES_OF_SCORES}
    search = GridSearchCV(Pipeline(steps), grid, scoring="neg_log_loss", cv=Folds(3, 0))
    expected = search.fit(X, y).predict_proba(new)
    np.testing.assert_allclose(found.predict_proba(new), expected, rtol=1e-6)
    np.testing.assert_array_equal(found.predict(new), expected.argmax(axis=1))


def test_logistic_regression_in_the_span_of_the_samples(classes):
    X, y, new = classes
    found = logistic_regression(Folds()).fit(X, y)
    penalty = found[-1].best_params_["C"]
    assert penalty in PENALTIES
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=2000)).fit(X, y)
    np.testing.assert_allclose(found.predict_proba(new), plain.predict_proba(new), atol=1e-3)


def test_shrinkage_lda_is_that_of_scikit_learn_at_a_temperature(classes):
    X, y, new = classes
    found = shrinkage_lda(Folds()).fit(X, y)
    calibration = found[-1].calibration_
    np.testing.assert_allclose(found.predict_proba(new).sum(axis=1), 1.0)
    np.testing.assert_array_equal(found.predict(new), found.predict_proba(new).argmax(axis=1))
    if X.shape[1] < len(X):
        lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=LedoitWolf())
        log_p = make_pipeline(StandardScaler(), lda).fit(X, y).predict_log_proba(new)
        expected = calibration.signal * softmax(log_p / calibration.temperature, axis=1)
        expected += (1.0 - calibration.signal) / 3.0
        np.testing.assert_allclose(found.predict_proba(new), expected, atol=1e-9)


def test_shrinkage_lda_is_not_overconfident_on_few_samples():
    """Two weak classes in many features: no worse than the class frequencies by much."""
    rng = np.random.default_rng(0)
    y = np.arange(440) % 2
    X = rng.standard_normal((440, 60)) + 0.15 * (2 * y - 1)[:, None]
    lda = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=LedoitWolf())
    plain = log_loss(y[40:], lda.fit(X[:40], y[:40]).predict_proba(X[40:]))
    found = log_loss(y[40:], shrinkage_lda(Folds()).fit(X[:40], y[:40]).predict_proba(X[40:]))
    assert found < min(plain, np.log(2.0))


@pytest.mark.parametrize(
    "make", [shrinkage_lda, logistic_regression, pytest.param(pls_da, marks=pytest.mark.slow)]
)
def test_settings_are_chosen_for_new_groups(make):
    """Samples five times, with labels at random: only groups show that nothing is predicted."""
    rng = np.random.default_rng(0)
    centres, label = rng.standard_normal((24, 50)), np.arange(24) % 2
    X = np.repeat(centres, 5, axis=0) + 0.1 * rng.standard_normal((120, 50))
    y, groups = np.repeat(label, 5), np.repeat(np.arange(24), 5)
    new, y_new = rng.standard_normal((400, 50)), np.arange(400) % 2
    alone, by_group = (
        log_loss(y_new, fitted_clone(make(Folds()), X, y, given).predict_proba(new))
        for given in (None, groups)
    )
    assert by_group < 1.2 < 1.5 < alone


def test_folds_hold_out_groups_and_keep_all_classes():
    y, groups = np.repeat([0, 0, 1, 1, 2], 4), np.repeat(np.arange(5), 4)
    folds = Folds(4, 0).split(y, y, groups)  # not 2 and 4: class 2 is only there
    assert sorted(set(groups[test]).pop() for _, test in folds) == [0, 1, 3]
    assert all(len(set(groups[test])) == 1 for _, test in folds)
    assert all(set(y[train]) == {0, 1, 2} for train, _ in folds)
    alone = Folds(2, 0).split(y, y, y)  # no group can be left out: samples are
    assert all(set(y[train]) == {0, 1, 2} for train, _ in alone)
