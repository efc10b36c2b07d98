"""Centring within groups, and whether it is of use."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from bsdr_models import (
    BM2PCAClassifier,
    GroupCentering,
    compare_centering,
    compare_models,
    cross_validated_map,
)

pytestmark = pytest.mark.usefixtures("short_runs")
NAMES = ("shrinkage LDA", "logistic regression", "PLS-DA", "BM2PCA", "BSDR", "D-GPLVM", "stack")
LDA = LinearDiscriminantAnalysis()


def crossed(n_subjects=12, n_each=2, seed=0, offset=3.0, n_features=6):
    """Features, two conditions and subjects that have so many samples of each."""
    rng = np.random.default_rng(seed)
    subject = np.repeat(np.arange(n_subjects), 2 * n_each)
    y = np.tile([0, 1], len(subject) // 2)
    own = offset * rng.standard_normal((n_subjects, n_features))
    X = own[subject] + rng.standard_normal((len(y), n_features))
    X[:, :2] += 1.5 * y[:, None]
    return X, y, subject


class BySign(GroupCentering):
    """Groups are those of positive and negative samples, as checks of scikit-learn give none."""

    def fit(self, X, y=None, *, groups=None):
        return super().fit(X, groups=signs(X))

    def transform(self, X, *, groups=None):
        return super().transform(X, groups=signs(X))


def signs(X):
    try:
        return np.asarray(X, dtype=float)[:, 0] > 0.0
    except Exception:  # no table of numbers
        return []


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn_checks():
    check_estimator(BySign())


def labels_of(design, rng, n_groups, size):
    if design == "balanced":
        return rng.permuted(np.tile(np.arange(size) % 2, (n_groups, 1)), axis=1)
    shares = {"independent": np.full(n_groups, 0.5), "alike": rng.beta(2.0, 2.0, n_groups)}
    return (rng.random((n_groups, size)) < shares[design][:, None]).astype(int)


@pytest.mark.filterwarnings("ignore:.* have samples of one class only")
@pytest.mark.parametrize(
    ("design", "size"), [("balanced", 2), ("independent", 4), ("alike", 2), ("alike", 4)]
)
def test_it_is_the_linear_discriminant_of_a_sample_and_the_mean_of_its_group(design, size):
    """Within three standard errors, .01 each."""
    rng = np.random.default_rng(300)
    y = labels_of(design, rng, 20_000, size)
    X = 0.8 * rng.standard_normal((len(y), 1)) + 0.3 * y + rng.standard_normal(y.shape)
    group = np.repeat(np.arange(len(y)), size)
    centering = GroupCentering().fit(X.reshape(-1, 1), y.ravel(), groups=group)
    both = np.stack([X.ravel(), np.repeat(X.mean(axis=1), size)], axis=1)
    of_sample, of_mean = LDA.fit(both, y.ravel()).coef_[0]
    mean = X.mean(axis=1) - centering.mean_
    shrinkage = float(centering.offsets_[:, 0] @ mean / (mean @ mean))
    assert shrinkage == pytest.approx(-of_mean / of_sample, abs=0.06)


@pytest.mark.filterwarnings("ignore:.* have samples of one class only")
@pytest.mark.parametrize(("offset", "low", "high"), [(0.0, 0.0, 0.2), (1.0, 0.7, 0.9)])
def test_little_is_subtracted_by_chance(offset, low, high):
    """Of means of four samples, of offsets of variance 1: 0.8, the BLUP. Labels are independent."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(8), 4)
    shares = []
    for _ in range(60):
        X = offset * rng.standard_normal((8, 8))[group] + rng.standard_normal((32, 8))
        y = rng.integers(2, size=32)
        X[:, 0] += 2.0 * y
        centering = GroupCentering().fit(X, y, groups=group)
        means = np.stack([X[group == i].mean(axis=0) for i in range(8)]) - centering.mean_
        shares.append((centering.offsets_ * means).sum() / (means**2).sum())
    assert low < np.mean(shares) < high


@pytest.mark.filterwarnings("ignore:no evidence that the targets depend on X")
def test_groups_go_through_pipelines_and_held_out_maps():
    X, y, subject = crossed()
    model = make_pipeline(GroupCentering(), BM2PCAClassifier(random_state=0))
    old = subject < 8
    by_hand = GroupCentering().fit(X[old], y[old], groups=subject[old])
    last = BM2PCAClassifier(random_state=0)
    last.fit(by_hand.transform(X[old], groups=subject[old]), y[old], groups=subject[old])
    expected = last.predict_proba(by_hand.transform(X[~old], groups=subject[~old]))
    with config_context(enable_metadata_routing=True):
        model.fit(X[old], y[old], groups=subject[old])
        found = model.predict_proba(X[~old], groups=subject[~old])
        cv = GroupKFold(3)
        given = {"groups": subject}
        scores = cross_val_score(make_pipeline(GroupCentering(), LDA), X, y, cv=cv, params=given)
    assert found == pytest.approx(expected)
    assert scores.mean() > 0.8
    # The functions of the package need no configuration.
    centred = make_pipeline(GroupCentering(), LDA)
    tree = cross_validated_map(centred, X, y, cv=cv, groups=subject)
    assert (tree["predictions"]["predicted"].to_numpy() == y).mean() == scores.mean()
    models = dict.fromkeys(NAMES, LDA) | {"centred": centred}
    given |= {"cv": cv, "models": models, "random_state": 0, "progressbar": False}
    assert compare_models(X, y, **given).table["log_loss"].idxmin() == "centred"


def test_samples_of_training_groups_are_centred_as_these():
    X, y, subject = crossed()
    centering = GroupCentering()
    Z = centering.fit_transform(X, y, groups=subject)
    assert centering.transform(X[3:4], groups=subject[3:4]) == pytest.approx(Z[3:4])
    assert pytest.approx(X - centering.offsets_[subject]) == Z
    with pytest.warns(UserWarning, match=r"12 of 12 groups \(0, 1.*other names"):
        centering.transform(X[::-1], groups=subject)


def test_missing_constant_and_huge_values():
    X, y, subject = crossed()
    expected = GroupCentering().fit_transform(X, y, groups=subject)
    wide = np.column_stack([X * 1e300, np.full(len(X), 0.1), subject])
    found = GroupCentering().fit_transform(wide, y, groups=subject)
    assert found[:, :6] / 1e300 == pytest.approx(expected)
    assert np.ptp(found[:, 6:], axis=0) == pytest.approx(0.0)
    X[0, 0] = X[:4, 1] = np.nan
    found = GroupCentering().fit_transform(X, y, groups=subject)
    assert (np.isnan(found) == np.isnan(X)).all()
    assert found[:, 2:] == pytest.approx(expected[:, 2:], abs=0.02)


X, Y, SUBJECT = crossed()


@pytest.mark.parametrize(
    ("targets", "groups", "match"),
    [
        (Y, None, "needs the group of each sample"),
        (Y, SUBJECT[1:], "one value per sample"),
        (Y[1:], SUBJECT, "inconsistent numbers of samples"),
        (Y, np.arange(len(X)), "every group has one sample only"),
        (SUBJECT % 2, SUBJECT, "every group has samples of one class only"),
    ],
)
def test_designs_that_are_refused(targets, groups, match):
    with pytest.raises(ValueError, match=match):
        GroupCentering().fit(X, targets, groups=groups)


def test_groups_of_one_class_and_small_new_groups_are_named():
    y = np.where(SUBJECT == 3, 1, Y)
    with pytest.warns(UserWarning, match=r"1 of 12 groups \(3\) have samples of one class"):
        centering = GroupCentering().fit(X, y, groups=SUBJECT)
    with pytest.warns(UserWarning, match=r"1 of 1 groups \('new'\) have few samples"):
        centering.transform(X[:1], groups=["new"])


def test_offsets_of_real_outputs():
    """Nothing is subtracted if each subject has its own output."""
    outputs = np.random.default_rng(0).standard_normal(12)[SUBJECT]
    alike = GroupCentering().fit(X, outputs, groups=SUBJECT)
    assert alike.label_correlation_ == 1.0
    assert (alike.offsets_ == 0.0).all()


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [("crossed", None, "centred"), ("nested", None, "as given"), ("unequal", 1, "as given")],
)
def test_verdict(name, size, expected):
    X, y, group = crossed(n_each=4, offset=3.0 if name == "crossed" else 0.0)
    if name != "crossed":
        X[:, :2] -= 1.5 * y[:, None]
        y = group % 2
        y[::8] = 1 - y[::8] if name == "unequal" else y[::8]
        X[:, :2] += 1.5 * y[:, None]
    model = LogisticRegression()
    found = compare_centering(model, X, y, groups=group, group_size=size, random_state=0)
    assert found.recommended == expected
    assert found.recommendation.startswith("Centre" if expected == "centred" else "Do not centre")
    found.models[found.recommended]
    found.plot()


def test_sizes_that_no_group_has():
    with pytest.raises(ValueError, match="group_size=5 is more than the 4 samples"):
        compare_centering(LDA, X, Y, groups=SUBJECT, group_size=5)


def test_small_groups_are_centred_less_well():
    rng = np.random.default_rng(0)
    X, _, group = crossed(n_each=6, offset=1.0)
    y = rng.integers(2, size=len(X))
    X[:, :2] += 2.0 * y[:, None]
    loss = [
        compare_centering(LDA, X, y, groups=group, group_size=size, random_state=0).table.loc[
            "centred", "log_loss"
        ]
        for size in (1, None)
    ]
    assert loss[0] > loss[1] + 0.02
