"""Scores are those of scikit-learn's held-out predictions; bad requests fail before any fit."""

import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import (
    GroupKFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    HingeLoss,
    Sampling,
    StackedClassifier,
    compare_models,
)
from bsdr_models.bm2pca import engines
from bsdr_models.compare import baselines, comparison
from bsdr_models.metrics import expected_calibration_error

FOLDS = StratifiedKFold(2, shuffle=True, random_state=5)
BM2PCA = BM2PCAClassifier(loss=HingeLoss(C=1.0), random_state=0)
NAMES = ("shrinkage LDA", "logistic regression", "PLS-DA", "BM2PCA", "BSDR", "D-GPLVM", "stack")
SCORES = ["accuracy", "log_loss", "calibration_error", "difference", "low", "high"]


class Broken(ClassifierMixin, BaseEstimator):
    """Raises in every fit, and counts them."""

    fits = 0

    def __init__(self, error=ValueError):
        self.error = error

    def fit(self, X, y):
        type(self).fits += 1
        raise self.error("out of luck")

    def predict_proba(self, X):
        raise NotImplementedError


class Flattened(ClassifierMixin, BaseEstimator):
    """A classifier whose probabilities are raised to a power below one."""

    def __init__(self, model, power):
        self.model, self.power = model, power

    def fit(self, X, y):
        self.fitted_ = clone(self.model).fit(X, y)
        self.classes_ = self.fitted_.classes_
        return self

    def predict_proba(self, X):
        raised = self.fitted_.predict_proba(X) ** self.power
        return raised / raised.sum(axis=1, keepdims=True)


def all_by(model):
    """The same classifier in place of every model."""
    return dict.fromkeys(NAMES, model)


def compare(X, y, models=None, **options):
    """With short fits in place of those of all models."""
    short = all_by(GaussianNB()) | {"logistic regression": LogisticRegression()}
    short["shrinkage LDA"] = LinearDiscriminantAnalysis()
    options = {"random_state": 0, "progressbar": False} | options
    return compare_models(X, y, models=short | (models or {}), **options)


@pytest.fixture(scope="module")
def classes():
    """Three overlapping classes, 60 samples of 5 features."""
    rng = np.random.default_rng(3)
    index = np.arange(60) % 3
    centres = 1.5 * rng.standard_normal((3, 5))
    return rng.standard_normal((60, 5)) + centres[index], np.array(["a", "b", "c"])[index]


def test_scores_are_those_of_held_out_predictions(classes):
    X, y = classes
    table = compare(X, y, cv=FOLDS).table
    for name, model in {"logistic regression": LogisticRegression(), "BSDR": GaussianNB()}.items():
        probability = cross_val_predict(model, X, y, cv=FOLDS, method="predict_proba")
        found = table.loc[name]
        index = np.unique(y, return_inverse=True)[1]
        predicted = np.unique(y)[probability.argmax(axis=1)]
        assert found["log_loss"] == pytest.approx(log_loss(y, probability))
        assert found["accuracy"] == pytest.approx(accuracy_score(y, predicted))
        assert found["calibration_error"] == pytest.approx(
            expected_calibration_error(probability, index)
        )
    assert table.loc["none", "log_loss"] == pytest.approx(np.log(3.0))
    np.testing.assert_allclose(table["difference"], table["log_loss"] - table["log_loss"].min())
    below = table["difference"] - table["low"]
    above = table["high"] - table["difference"]
    assert below.iloc[0] == above.iloc[0] == 0.0
    assert min(below.iloc[1:].min(), above.iloc[1:].min()) > 2.49 / len(y)
    assert table["log_loss"].is_monotonic_increasing


def test_samples_held_out_several_times_count_once(classes):
    X, y = classes
    cv = RepeatedStratifiedKFold(n_splits=4, n_repeats=2, random_state=0)
    found = compare(X, y, cv=cv).table.loc["BSDR"]
    splits = list(cv.split(X, y))
    parts = [
        cross_val_predict(GaussianNB(), X, y, cv=part, method="predict_proba")
        for part in (splits[:4], splits[4:])
    ]
    assert found["log_loss"] == pytest.approx(np.mean([log_loss(y, part) for part in parts]))
    assert compare(X, y, cv=splits[:2]).table.loc["BSDR", "log_loss"] > 0.0


@pytest.fixture
def fitted(monkeypatch):
    """Fits of BM2PCA in the order in which they end, each with its number of samples."""
    fits = []
    fit = BM2PCAClassifier.fit

    def record(self, X, *others):
        fits.append((fit(self, X, *others), len(X)))
        return self

    monkeypatch.setattr(BM2PCAClassifier, "fit", record)
    return fits


def sizes_of(fits):
    """Numbers of samples of the fits."""
    return [size for _, size in fits]


def test_a_model_of_the_package_is_scored_by_what_one_fit_holds_out(classes, fitted):
    X, y = classes
    found = compare(X, y, {"BM2PCA": BM2PCA})
    assert sizes_of(fitted) == [60]
    p = np.exp(fitted[0][0].held_out_log_proba_)
    assert found.table.loc["BM2PCA", "log_loss"] == pytest.approx(log_loss(y, p))
    folds = compare(X, y, {"BM2PCA": BM2PCA}, cv=5)
    assert sizes_of(fitted[1:]) == [48] * 5
    assert folds.table.loc["BM2PCA", "log_loss"] == pytest.approx(log_loss(y, p), abs=0.1)
    assert folds.table.loc["BSDR", "log_loss"] == found.table.loc["BSDR", "log_loss"]


def test_a_stack_takes_the_fits_that_are_scored(classes, fitted):
    stack = StackedClassifier([("BM2PCA", BM2PCA), ("LDA", LinearDiscriminantAnalysis())])
    found = compare(*classes, {"BM2PCA": BM2PCA, "stack": stack})
    assert sizes_of(fitted) == [60]
    assert found.table.loc["stack", "seconds"] > found.table.loc["BM2PCA", "seconds"]


def test_a_fit_that_holds_nothing_out_is_cross_validated(classes, fitted):
    model = BM2PCAClassifier(loss=HingeLoss(C=1.0, calibrate=False), random_state=0)
    found = compare(*classes, {"BM2PCA": model})
    assert sizes_of(fitted) == [60, *[48] * 5]
    assert np.isfinite(found.table.loc["BM2PCA", "log_loss"])


def test_many_samples_are_cross_validated(classes, fitted, monkeypatch):
    monkeypatch.setattr(comparison, "MOST_SAMPLES", 59)
    compare(*classes, {"BM2PCA": BM2PCA})
    assert sizes_of(fitted) == [48] * 5


def test_scores_are_those_of_samples_that_all_models_hold_out(classes, monkeypatch):
    X, y = classes
    monkeypatch.setattr(engines, "ENOUGH_SAMPLES", 20)
    found = compare(X, y, all_by(GaussianNB()) | {"BM2PCA": BM2PCA})
    table = found.table.loc[["BM2PCA", "BSDR"], ["log_loss", "difference"]].diff().iloc[1]
    assert table["log_loss"] == pytest.approx(table["difference"])


def test_a_model_that_fails_leaves_the_others(classes):
    with pytest.warns(UserWarning, match=r"other has no scores: 5 of 5 fits failed .*out of luck"):
        found = compare(*classes, {"other": Broken()})
    np.testing.assert_array_equal(found.table[SCORES][:-1], compare(*classes).table[SCORES])
    assert found.table.index[-1] == "other"
    assert found.table.loc["other", SCORES].isna().all()
    assert "out of luck" in found.table.loc["other", "note"]
    assert "out of luck" in repr(found)


def test_all_models_fail(classes):
    with pytest.raises(RuntimeError, match=r"every model failed.*out of luck"):
        compare(*classes, all_by(Broken()))


def test_an_interrupt_before_the_first_fold_ends_the_comparison(classes):
    with pytest.raises(KeyboardInterrupt):
        compare(*classes, {"D-GPLVM": Broken(KeyboardInterrupt)})
    with pytest.raises(KeyboardInterrupt):  # after the fit to all samples
        compare(*classes, {"BM2PCA": BM2PCA, "D-GPLVM": Broken(KeyboardInterrupt)})


class Stopped(GaussianNB):
    """Stopped by the user in one of its fits."""

    fits = 0
    last = 0

    def fit(self, X, y):
        Stopped.fits += 1
        if Stopped.fits == Stopped.last:
            raise KeyboardInterrupt
        return super().fit(X, y)


@pytest.mark.parametrize("n_done", [1, 4])
def test_an_interrupt_leaves_the_folds_that_are_complete(classes, n_done):
    folds = list(StratifiedKFold(5, shuffle=True, random_state=5).split(*classes))
    Stopped.fits, Stopped.last = 0, n_done + 1
    models = all_by(GaussianNB()) | {"D-GPLVM": Stopped()}
    with pytest.warns(UserWarning, match=f"interrupted: the scores are those of {n_done} of 5"):
        found = compare(*classes, models, cv=folds)
    whole = compare(*classes, all_by(GaussianNB()), cv=folds[:n_done])
    scores = [name for name in SCORES if name in whole.table]
    np.testing.assert_allclose(found.table[scores], whole.table.loc[found.table.index, scores])


def test_ties_go_to_the_simpler_model(classes):
    model = LinearDiscriminantAnalysis()
    far = Flattened(model, 0.01)
    found = compare(*classes, all_by(model) | {"stack": far})
    assert found.recommended == "shrinkage LDA"
    assert found.recommendation.startswith("Take shrinkage LDA: its log loss")
    found = compare(*classes, {**all_by(far), "BSDR": model, "D-GPLVM": model})
    assert found.recommended == "BSDR"
    assert clone(found.models["BSDR"]).fit(*classes).score(*classes) > 0.8


def test_the_stack_is_left_for_a_clear_lead(classes):
    model = LogisticRegression(C=100.0)
    decided = set()
    for power in (1.0, 0.7, 0.1):
        stack = Flattened(GaussianNB(), power)
        found = compare(*classes, all_by(model) | {"stack": stack})
        first = found.table.index[0]
        expected = "stack" if found.table.loc["stack", "low"] <= 0.01 else "shrinkage LDA"
        assert found.recommended == expected
        doubt = expected == "stack" and first != "stack"
        assert ("not clearly more" in found.recommendation) == doubt
        decided.add((expected, doubt))
    assert {("shrinkage LDA", False), ("stack", True)} <= decided


def test_a_simpler_model_is_taken_if_it_is_clearly_as_good(classes):
    """With equal log losses but for less than the limit in every sample."""
    models = all_by(KNeighborsClassifier(1)) | {"stack": GaussianNB()}
    models["shrinkage LDA"] = Flattened(GaussianNB(), 0.999)
    found = compare(*classes, models)
    assert found.table.index[0] == "stack"
    assert found.recommended == "shrinkage LDA"
    assert "clearly within" in found.recommendation


def test_nothing_is_recommended_for_noise():
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 2
    found = compare(X, y)
    assert found.recommended == "none"
    assert found.recommendation.startswith("Take none")


def test_doubt_where_the_gain_is_not_clear():
    rng = np.random.default_rng(1)
    y = np.arange(20) % 2
    found = compare(rng.standard_normal((20, 1)) + 0.5 * y[:, None], y)
    assert found.recommended != "none"
    assert "if any is better than none" in found.recommendation


X, Y = np.random.default_rng(0).standard_normal((30, 3)), np.arange(30) % 3


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"y": X[:, 0]}, ValueError, "Unknown label type: continuous"),
        ({"y": np.zeros(30, dtype=int)}, ValueError, "one class only"),
        (
            {"cv": 11},
            ValueError,
            "cv=11 folds need a class of as many samples; the largest, 0, has 10",
        ),
        ({"cv": "leave-one-out"}, ValueError, "cross-validation object"),
        ({"cv": GroupKFold(3)}, ValueError, "'groups' parameter should not be None"),
        ({"cv": [(np.arange(4), np.arange(4, 30))]}, ValueError, "1 training samples of class 1"),
        ({"cv": [(np.arange(30), [])]}, ValueError, "a fold holds out no sample"),
        ({"X": np.where(X > 2.0, np.nan, X)}, ValueError, "X contains NaN, and most models"),
        ({"X": X[:20]}, ValueError, "inconsistent numbers of samples"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"models": [GaussianNB()]}, TypeError, "models must map names to classifiers, got list"),
        ({"models": {"none": GaussianNB()}}, ValueError, "'none' is the name of the class freq"),
        ({"models": {"SVM": SVC()}}, TypeError, "models['SVM'], SVC, has no predict_proba"),
        ({"models": {"NB": GaussianNB}}, TypeError, "models['NB'] is not an estimator"),
    ],
)
def test_bad_requests_fail_before_any_fit(changes, error, message):
    Broken.fits = 0
    given = {"X": X, "y": Y, "models": all_by(Broken()), "progressbar": False} | changes
    with pytest.raises(error, match=re.escape(message)):
        compare_models(**given)
    assert Broken.fits == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:BSDR. the chains have not mixed")
def test_defaults_on_wine(wine, short_runs, monkeypatch):
    X, y = wine
    fits = []
    monkeypatch.setattr(baselines, "PENALTIES", (0.01, 1.0))
    monkeypatch.setattr(comparison, "SAMPLING", Sampling(draws=40))
    fit = BSDRClassifier.fit
    monkeypatch.setattr(
        BSDRClassifier, "fit", lambda self, *data: fits.append(self) or fit(self, *data)
    )
    X, y = X[:45], y[:45]
    folds = list(StratifiedKFold(2).split(X, y))
    found = compare_models(X, y, cv=folds, random_state=0, progressbar=False)
    assert len(fits) == 2  # the stack takes the fits of its members
    stack = clone(found.models["stack"])
    assert stack.get_params()["BSDR__sampling"] is None
    stack.set_params(BSDR__sampling=comparison.SAMPLING)
    alone = cross_val_score(stack, X, y, cv=folds, scoring="neg_log_loss")
    assert len(fits) == 4
    weights = [len(test) for _, test in folds]
    # The comparison and the stack have drawn other divisions of the training samples.
    assert found.table.loc["stack", "log_loss"] == pytest.approx(
        -np.average(alone, weights=weights), abs=0.005
    )
    assert set(found.table.index) == {"none", *NAMES}
    assert (found.table.drop("none")["log_loss"] < 0.5).all()
    assert found.recommended in NAMES
    text = repr(found)
    assert all(name in text for name in NAMES)
    assert max(map(len, text.splitlines())) <= 100
