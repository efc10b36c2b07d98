"""Refits to parts of the samples: which samples, what is counted, and what is refused."""

from typing import ClassVar

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.decomposition import KernelPCA
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import BSDROptimization, DGPLVMClassifier, feature_stability
from bsdr_models.papers import PaperBSDRClassifier, PaperBSDRRegressor

MODEL = PaperBSDRClassifier(1, optimization=BSDROptimization(max_iter=30, tol=1e9), random_state=0)


@pytest.fixture(scope="module")
def classes():
    """Two of six features separate two classes, of 31 and 20 samples."""
    rng = np.random.default_rng(0)
    y = np.repeat(["no", "yes"], [31, 20])
    X = rng.standard_normal((51, 6))
    X[:, :2] += 3.0 * (y == "yes")[:, None]
    return X, y


class Recorded(PaperBSDRClassifier):
    """Keeps the samples of its fits, and interrupts the one after `patience`."""

    fits: ClassVar[list] = []
    patience = 99

    def fit(self, X, y):
        if len(self.fits) >= Recorded.patience:
            raise KeyboardInterrupt
        self.fits.append((X[:, 0].tolist(), list(y)))
        return super().fit(X, y)


@pytest.fixture
def recorded():
    Recorded.fits.clear()
    Recorded.patience = 99
    return Recorded(**MODEL.get_params(deep=False))


def test_halves_are_complementary_and_stratified(classes, recorded):
    X, y = classes
    feature_stability(recorded, X, y, n_resamples=4, random_state=0)
    for first, second in zip(recorded.fits[::2], recorded.fits[1::2], strict=True):
        assert not set(first[0]) & set(second[0])
        for part in (first, second):
            assert part[1].count("no") in (15, 16)
            assert part[1].count("yes") == 10
        assert len(first[0]) + len(second[0]) == 51
    assert set(recorded.fits[0][0]) != set(recorded.fits[2][0])


def test_samples_of_a_group_are_in_the_same_half(classes, recorded):
    X, y = classes
    groups = np.r_[np.arange(31) // 3, 20 + np.arange(20) // 2]  # of three samples, and of two
    feature_stability(recorded, X, y, groups=groups, n_resamples=5, random_state=0)
    of_sample = dict(zip(X[:, 0], groups, strict=True))
    halves = [{of_sample[x] for x in samples} for samples, _ in recorded.fits]
    assert len(halves) == 5
    for first, second in zip(halves[:4:2], halves[1::2], strict=True):
        assert not first & second
        assert first | second == set(groups)
    for _, labels in recorded.fits:
        assert 14 <= labels.count("no") <= 17
        assert labels.count("yes") == 10


def test_what_is_counted(classes):
    X, y = classes
    found = feature_stability(MODEL, X, y, n_resamples=6, n_selected=2, random_state=0)
    assert found["frequency"].sel(feature=["x0", "x1"]).values.tolist() == [1.0, 1.0]
    assert found["frequency"].sum() == 2.0
    assert found["selected"].shape == (6, 2)
    assert set(found["selected"].values.ravel()) == {"x0", "x1"}
    assert found.attrs["chance"] == pytest.approx(2 / 6)
    assert found["positive"].sel(feature="x0").values.tolist() == [0.0, 1.0]


def test_a_pipeline_is_refitted_as_a_whole(classes):
    X, y = classes
    found = feature_stability(
        make_pipeline(StandardScaler(), MODEL), 1e3 * X, y, n_resamples=2, random_state=0
    )
    expected = feature_stability(MODEL, X, y, n_resamples=2, random_state=0)
    assert found["frequency"].equals(expected["frequency"])
    one_of_each = make_pipeline(SelectKBest(k=3).set_output(transform="pandas"), MODEL)
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="refits have other features"):
        feature_stability(one_of_each, rng.standard_normal(X.shape), y, random_state=0)


def test_kernel_matrices_are_cut_in_rows_and_columns(classes):
    X, y = classes
    features = KernelPCA(3, kernel="linear")
    matrices = KernelPCA(3, kernel="precomputed")
    options = {"n_resamples": 4, "n_selected": 1, "random_state": 0}
    one, other = (
        feature_stability(make_pipeline(step, MODEL), given, y, **options)
        for step, given in ((features, X), (matrices, X @ X.T))
    )
    np.testing.assert_array_equal(other["frequency"], one["frequency"])
    assert other.sizes["feature"] == 3


def test_workers_and_seeds_change_nothing_and_something(classes):
    X, y = classes
    with parallel_config(backend="threading"):
        one, two = (
            feature_stability(MODEL, X, y, n_resamples=4, random_state=0, n_jobs=n) for n in (1, 2)
        )
    assert one.identical(two)
    other = feature_stability(MODEL, X, y, n_resamples=4, random_state=1)
    assert not one.equals(other)


def test_an_interrupt_keeps_the_refits_until_then(classes, recorded):
    X, y = classes
    Recorded.patience = 3
    with pytest.warns(UserWarning, match="interrupted after 3 of 8 refits"):
        found = feature_stability(recorded, X, y, n_resamples=8, random_state=0)
    assert found.sizes["refit"] == 3
    assert found.attrs["interrupted"] == 1
    Recorded.patience = 0
    Recorded.fits.clear()
    with pytest.raises(KeyboardInterrupt):
        feature_stability(recorded, X, y, n_resamples=8, random_state=0)


def test_real_outputs_and_nonlinear_models(classes):
    X, y = classes
    target = X[:, :2] @ np.eye(2)
    model = PaperBSDRRegressor(
        2, optimization=BSDROptimization(max_iter=30, tol=1e9), random_state=0
    )
    found = feature_stability(model, X, target, n_resamples=2, n_selected=2, random_state=0)
    assert set(found["selected"].values.ravel()) == {"x0", "x1"}
    slopes = feature_stability(
        DGPLVMClassifier(1, random_state=0), X, y, n_resamples=2, n_selected=2, random_state=0
    )
    assert set(slopes.data_vars) == {"frequency", "selected"}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"n_resamples": 0}, "'n_resamples' parameter"),
        ({"y": np.arange(51) == 0}, "0 training samples of class 'True'"),
        ({"groups": [0] * 20 + [1] * 11 + [2] * 20}, "0 training samples of class 'yes'"),
        ({"n_selected": 7}, "exceeds the number of features, 6"),
        ({"n_selected": 0}, "'n_selected' parameter"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_arguments_are_refused_before_a_fit(classes, recorded, keywords, message):
    with pytest.raises(ValueError, match=message):
        feature_stability(recorded, **({"X": classes[0], "y": classes[1]} | keywords))
    assert not recorded.fits


def test_a_frozen_estimator_is_refused(classes):
    model = FrozenEstimator(DGPLVMClassifier(random_state=0).fit(*classes))
    for each in (model, make_pipeline(StandardScaler(), model)):
        with pytest.raises(ValueError, match="FrozenEstimator is not fitted again"):
            feature_stability(each, *classes)


def test_an_estimator_without_a_posterior_is_refused(classes):
    with pytest.raises(TypeError, match="LogisticRegression has no posterior tree"):
        feature_stability(LogisticRegression(), *classes)
