"""Halves of the training samples: which samples, what is counted, and what is refused."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from bsdr_models import BM2PCAClassifier, BSDROptimization, HingeLoss, feature_stability
from bsdr_models.compare import stability
from bsdr_models.papers import PaperBSDRRegressor

LOSS = HingeLoss(C=1.0, calibrate=1.0)


@pytest.fixture(scope="module")
def classes():
    """Two of six features that vary separate two classes, of 31 and 20 samples."""
    rng = np.random.default_rng(0)
    y = np.repeat(["no", "yes"], [31, 20])
    X = rng.standard_normal((51, 7))
    X[:, [0, 2]] += 3.0 * (y == "yes")[:, None]
    X[:, 1] = 5.0
    return X, y


@pytest.fixture
def fit(classes):
    def to(y=classes[1], **options):
        with pytest.warns(UserWarning, match="1 of 7 features are constant"):
            return BM2PCAClassifier(loss=LOSS).fit(classes[0], y, **options)

    return to


@pytest.fixture
def halves(monkeypatch):
    """Scaled first features of the samples of each half, and their targets."""
    found = []
    share = stability.explained_share

    def recorded(X, targets, groups):
        found.append((X[:, 0].tolist(), targets.argmax(axis=1).tolist()))
        return share(X, targets, groups)

    monkeypatch.setattr(stability, "explained_share", recorded)
    return found


def test_halves_are_complementary_and_stratified(fit, halves):
    feature_stability(fit(), n_resamples=4, random_state=0)
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        assert not set(first[0]) & set(second[0])
        for part in (first, second):
            assert part[1].count(0) in (15, 16)
            assert part[1].count(1) == 10
        assert len(first[0]) + len(second[0]) == 51
    assert set(halves[0][0]) != set(halves[2][0])


def test_samples_of_a_group_are_in_the_same_half(fit, halves):
    groups = np.r_[np.arange(31) // 3, 20 + np.arange(20) // 2]  # of three samples, and of two
    model = fit(groups=groups)
    feature_stability(model, n_resamples=4, random_state=0)
    of_sample = dict(zip(model.idata_["constant_data/X"].values[:, 0], groups, strict=True))
    chosen = [{of_sample[x] for x in samples} for samples, _ in halves]
    for first, second in zip(chosen[::2], chosen[1::2], strict=True):
        assert not first & second
        assert first | second == set(groups)


def test_what_is_counted(fit):
    found = feature_stability(fit(), n_resamples=7, n_selected=2, random_state=0)
    assert found["frequency"].sel(feature=["x0", "x1", "x2"]).values.tolist() == [1.0, 0.0, 1.0]
    assert found["frequency"].sum() == 2.0
    assert found["selected"].shape == (7, 2)
    assert set(found["selected"].values.ravel()) == {"x0", "x2"}
    assert found.attrs["chance"] == pytest.approx(2 / 6)
    assert found.equals(feature_stability(fit(), n_resamples=7, n_selected=2, random_state=0))


def test_real_outputs(classes):
    X, _ = classes
    model = PaperBSDRRegressor(
        2, optimization=BSDROptimization(max_iter=30, tol=1e9), random_state=0
    ).fit(X[:, 2:], X[:, 3:5])
    found = feature_stability(model, n_selected=2, random_state=0)
    assert set(found["selected"].values.ravel()) == {"x1", "x2"}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"n_resamples": 0}, "'n_resamples' parameter"),
        ({"n_selected": 7}, "exceeds the number of features that vary, 6"),
        ({"n_selected": 0}, "'n_selected' parameter"),
    ],
)
def test_bad_arguments_are_refused(fit, keywords, message):
    with pytest.raises(ValueError, match=message):
        feature_stability(fit(), **keywords)


@pytest.mark.filterwarnings("ignore:class True has a single sample")
def test_models_of_others_and_classes_of_one_sample_are_refused(fit, classes):
    with pytest.raises(TypeError, match="got LogisticRegression"):
        feature_stability(LogisticRegression().fit(*classes))
    with pytest.raises(NotFittedError):
        feature_stability(BM2PCAClassifier())
    with pytest.raises(ValueError, match="0 training samples of class"):
        feature_stability(fit(np.arange(51) == 0))
