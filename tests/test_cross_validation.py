"""Held-out predictions: no leaks of labels, no separation of arbitrary labels."""

import json
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    PredefinedSplit,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bsdr_models import (
    BM2PCAClassifier,
    HingeLoss,
    cross_validated_map,
    plots,
)

pytestmark = pytest.mark.usefixtures("short_runs")

FOLDS = StratifiedKFold(4, shuffle=True, random_state=5)
LDA = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis())


def test_constant_features_are_named_once(classes):
    X, y = classes
    X = np.column_stack([X, np.ones(len(X)), np.arange(len(X)) == 0])  # the last in most folds
    with pytest.warns(UserWarning, match="features are constant") as caught:
        cross_validated_map(BM2PCAClassifier(random_state=0), X, y, cv=FOLDS)
    (warning,) = caught
    assert str(warning.message).startswith("1 of 7 features")
    assert str(warning.message).endswith(": x5")


@pytest.mark.slow  # workers take seconds to start
def test_progress_and_parallel_folds_change_no_prediction(classes, capsys):
    alone, side_by_side = (
        cross_validated_map(LDA, *classes, cv=FOLDS, n_jobs=n_jobs, progressbar=shown)
        for n_jobs, shown in ((None, False), (2, True))
    )
    assert "Folds" in capsys.readouterr().out
    assert alone["predictions"].identical(side_by_side["predictions"])


@pytest.mark.parametrize("model", [BM2PCAClassifier(random_state=0), LDA], ids=["BM2PCA", "LDA"])
def test_a_sample_is_predicted_without_its_label(classes, model):
    """Held-out samples get other labels, and are predicted as before."""
    X, y = classes
    train, test = next(FOLDS.split(X, y))
    split = [(train, test), (test, train)]
    other = y.copy()
    other[test] = np.roll(y[test], 5)
    assert not np.array_equal(y, other)
    first, second = (
        cross_validated_map(model, X, labels, cv=split)["predictions"].isel(obs=test)
        for labels in (y, other)
    )
    np.testing.assert_array_equal(first["probability"], second["probability"])


def test_small_classes():
    X, y = np.random.default_rng(2).standard_normal((23, 3)), np.repeat(list("abc"), [15, 5, 3])
    tree = cross_validated_map(LinearDiscriminantAnalysis(), X, y, cv=10, random_state=0)
    assert np.isfinite(tree["predictions/probability"]).all()
    with pytest.raises(ValueError, match="largest, 'a', has 15"):
        cross_validated_map(LinearDiscriminantAnalysis(), X, y, cv=16)
    y[-3:-1] = "b"
    with pytest.raises(ValueError, match="a fold has 0 training samples of class 'c'"):
        cross_validated_map(LinearDiscriminantAnalysis(), X, y, cv=10, random_state=0)


def test_any_classifier_has_a_map_of_its_predictions(classes):
    X, y = classes
    model = LogisticRegression()
    tree = cross_validated_map(model, X, y, cv=3, random_state=0)
    held_out = tree["predictions"]
    assert "latent_mean" not in held_out
    splits = [
        (np.flatnonzero(held_out["fold"] != fold), np.flatnonzero(held_out["fold"] == fold))
        for fold in range(3)
    ]
    expected = cross_val_predict(model, X, y, cv=splits, method="predict_proba")
    np.testing.assert_allclose(held_out["probability"], expected, rtol=1e-12)
    np.testing.assert_array_equal(held_out["y"], y)
    np.testing.assert_array_equal(held_out["obs"], np.arange(60))
    assert "plane of their predictions" in plots.plot_map(tree).get_title(loc="left")


def test_kernel_matrices_are_cut_in_rows_and_columns(classes):
    model = make_pipeline(KernelPCA(2, kernel="precomputed"), LogisticRegression())
    X, y = classes
    K = rbf_kernel(X, gamma=0.2)
    tree = cross_validated_map(model, K, y, cv=FOLDS)
    expected = cross_val_predict(model, K, y, cv=FOLDS, method="predict_proba")
    np.testing.assert_allclose(tree["predictions/probability"], expected, rtol=1e-6)


def test_a_stack_of_scikit_learn_has_probabilities_once_it_is_fitted(classes):
    model = StackingClassifier([("lda", LDA)])
    assert not hasattr(model, "predict_proba")
    assert cross_validated_map(model, *classes, cv=FOLDS)["predictions"].sizes["obs"] == 60


@pytest.mark.parametrize(
    ("model", "cv", "error", "message"),
    [
        (LDA, [], ValueError, "cv gives no folds"),
        (LinearSVC(), 3, TypeError, "LinearSVC has no predict_proba"),
        (PCA(2), 3, TypeError, "PCA has no predict_proba"),
        (LDA, RepeatedStratifiedKFold(n_splits=3, n_repeats=2), ValueError, "is held out 2 times"),
        (LDA, [(np.arange(30), np.arange(30, 60))], ValueError, "sample 0 is held out 0 times"),
    ],
)
def test_bad_requests_say_why(classes, model, cv, error, message):
    with pytest.raises(error, match=re.escape(message)):
        cross_validated_map(model, *classes, cv=cv)


def test_more_folds_than_groups(classes):
    with pytest.raises(ValueError, match="cv=10 folds need as many groups, not 3: give cv=3"):
        cross_validated_map(LDA, *classes, groups=np.arange(len(classes[1])) % 3)


def test_targets_that_are_no_classes():
    X = np.random.default_rng(2).standard_normal((20, 3))
    with pytest.raises(ValueError, match="'reuse_settings' parameter of cross_validated_map"):
        cross_validated_map(LDA, X, np.arange(20) % 2, reuse_settings="x")
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        cross_validated_map(LDA, X, X[:, 0])
    for several in (X > 0.0, [["a", 1], ["b", 2]] * 10):
        with pytest.raises(ValueError, match=r"got . columns: give the column of one label"):
            cross_validated_map(BM2PCAClassifier(), X, several)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda train, test: (np.union1d(train, test[:1]), test), "both in a training set"),
        (lambda train, test: (np.isin(np.arange(60), train), test), "positions of samples"),
    ],
)
def test_splits_that_hold_out_nothing_are_refused(classes, split, message):
    X, y = classes
    folds = [split(*fold) for fold in FOLDS.split(X, y)]
    with pytest.raises(ValueError, match=message):
        cross_validated_map(LDA, X, y, cv=folds)


def test_reused_settings_of_a_weak_signal_keep_the_part_of_the_class_frequencies():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.standard_normal((40, 60))
    model = BM2PCAClassifier(random_state=0)
    with pytest.warns(match="no evidence"):
        tree = cross_validated_map(model, X, y, cv=4, reuse_settings=True, random_state=0)
    assert np.abs(tree["predictions/probability"] - 0.5).max() < 0.1


def test_features_of_a_pipeline_keep_the_names_of_its_columns():
    X, y = load_wine(return_X_y=True, as_frame=True)
    model = make_pipeline(StandardScaler(), BM2PCAClassifier(random_state=0))
    tree = cross_validated_map(model, X[::3], y[::3], cv=2, random_state=0)
    assert tree["posterior"]["feature"].to_numpy().tolist() == list(X.columns)
    assert dict(json.loads(tree.attrs["summary"]))["model"] == "StandardScaler, BM2PCAClassifier"


def test_a_fold_that_shows_no_signal_alone_does_not_warn():
    y = np.arange(36) % 3
    X = np.random.default_rng(1).standard_normal((36, 10))
    X[:, 0] += 1.8 * (y == 0)
    model = BM2PCAClassifier(loss=HingeLoss(C=1.0), random_state=0)
    folds = list(PredefinedSplit(np.arange(36) % 5).split(X))
    with pytest.warns(match="no evidence"):
        _ = [clone(model).fit(X[train], y[train]) for train, _ in folds]
    with warnings.catch_warnings(action="error"):
        cross_validated_map(model, X, y, cv=folds)
