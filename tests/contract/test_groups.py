"""Samples in groups, such as scans of one patient, are held out together by every fit."""

import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import (
    BM2PCAClassifier,
    BM2PCARegressor,
    BSDRRegressor,
    DGPLVMClassifier,
    StackedClassifier,
    SupervisedWhitening,
    compare_models,
    cross_validated_map,
)
from bsdr_models.papers import PaperBM2PCAClassifier, PaperBSDRClassifier, PaperDGPLVMClassifier
from tests.toys import RECOMMENDED

pytestmark = [
    pytest.mark.usefixtures("short_runs"),
    pytest.mark.filterwarnings("ignore:the chains have not mixed"),
    pytest.mark.filterwarnings("ignore:the search stopped after"),
    pytest.mark.filterwarnings("ignore:.*rests on samples that resemble each other"),
]

CLASSIFIERS = RECOMMENDED | {
    "stack": StackedClassifier(
        [("bm2pca", BM2PCAClassifier()), ("dgplvm", DGPLVMClassifier())], random_state=0
    ),
}
REGRESSORS = {"BSDR": BSDRRegressor(random_state=0), "BM2PCA": BM2PCARegressor(2, random_state=0)}
OTHERS = {
    "whitening": SupervisedWhitening(),
    "BSDR of the paper": PaperBSDRClassifier(random_state=0),
    "BM2PCA of the paper": PaperBM2PCAClassifier(random_state=0),
    "D-GPLVM of the paper": PaperDGPLVMClassifier(random_state=0),
}


def scans(n_patients=16, n_scans=5, shift=0.0, seed=0):
    """Scans of patients that differ much less than the patients, classes, and patients."""
    rng = np.random.default_rng(seed)
    patients = np.repeat(np.arange(n_patients), n_scans)
    own = rng.standard_normal((n_patients, 30))
    own[:, :3] += shift * (2 * (np.arange(n_patients) % 2)[:, None] - 1)
    X = own[patients] + 0.1 * rng.standard_normal((len(patients), 30))
    return X, patients % 2, patients


@pytest.mark.parametrize("name", RECOMMENDED)
def test_noise_of_patients_is_noise(name):
    """Without groups every scan is predicted by the others of its patient."""
    X, y, patients = scans(24, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.warns(UserWarning, match="rests on samples that resemble each other"):
            fooled = CLASSIFIERS[name].fit(X, y).held_out_gain_
    with pytest.warns(UserWarning, match="no evidence that the targets depend on X"):
        model = CLASSIFIERS[name].fit(X, y, groups=patients)
    assert fooled > 0.3
    assert model.held_out_gain_ < 0.2
    new = np.random.default_rng(1).standard_normal((500, 30))
    assert np.abs(model.predict_proba(new) - 0.5).mean() < 0.2


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_signal_of_patients_is_found_without_their_own_labels(name):
    """A patient whose labels alone contradict all others is not predicted as labelled."""
    X, y, patients = scans(24, shift=2.0)
    y = np.where(patients == 4, 1 - y, y)
    names = np.char.add("patient ", patients.astype(str))
    with warnings.catch_warnings(action="ignore"):  # one contradiction leaves few to tell from
        warnings.filterwarnings("error", ".*rests on samples that resemble each other")
        model = CLASSIFIERS[name].fit(X, y, groups=names)
    assert model.held_out_gain_ > 0.3
    assert model.held_out_log_proba_.shape == (120, 2)
    own = model.held_out_log_proba_[patients == 4].argmax(axis=1)
    assert (own != y[patients == 4]).all()
    X_new, y_new, _ = scans(200, 1, 2.0, seed=1)
    assert model.score(X_new, y_new) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", REGRESSORS)
def test_real_outputs_of_patients(name):
    """Ninety per cent intervals of outputs of new patients hold them, unlike without groups."""
    held = []
    for seed in range(4):
        X, _, patients = scans(24, seed=seed)
        rng = np.random.default_rng([2, seed])
        y = rng.standard_normal(24)[patients] + 0.1 * rng.standard_normal(len(patients))
        new = rng.standard_normal((400, 30))
        y_new = rng.standard_normal(400)
        for groups in (patients, None):
            with warnings.catch_warnings(action="ignore"):
                model = clone(REGRESSORS[name]).fit(X, y, groups=groups)
            mean, std = model.predict(new, return_std=True)
            held.append(np.mean(np.abs(y_new - mean) < 1.645 * std))
            if name == "BSDR" and groups is not None:
                assert model.held_out_gain_ < 0.1
    assert 0.8 < np.mean(held[::2]) < 0.99
    assert np.mean(held[1::2]) < np.mean(held[::2]) - 0.08


@pytest.mark.filterwarnings("ignore:no evidence")
def test_replicates_are_as_good_as_one():
    """The same sample several times, with its output, tells what it tells once."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((24, 40))
    y = 2.0 * X[:, :3].sum(axis=1) + 0.5 * rng.standard_normal(24)
    patients = np.repeat(np.arange(24), 4)
    once = BSDRRegressor(random_state=0).fit(X, y)
    often = BSDRRegressor(random_state=0).fit(X[patients], y[patients], groups=patients)
    assert often.log_evidence_ == pytest.approx(once.log_evidence_, abs=1e-6)
    new = rng.standard_normal((5, 40))
    for found, expected in zip(
        often.predict(new, return_std=True), once.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=0.15)
    noticed = BSDRRegressor(random_state=0).fit(X[patients], y[patients])
    np.testing.assert_allclose(noticed.predict(new), often.predict(new), rtol=1e-9)
    assert noticed.held_out_score_ == pytest.approx(often.held_out_score_)


TAKERS = {
    **{name: model.fit for name, model in (CLASSIFIERS | REGRESSORS | OTHERS).items()},
    "map": lambda X, y, groups: cross_validated_map(BM2PCAClassifier(), X, y, groups=groups),
    "comparison": lambda X, y, groups: compare_models(X, y, groups=groups),
}
BAD_GROUPS = [
    (lambda g: g[:-1], "inconsistent numbers|groups must have one value"),
    (lambda g: np.column_stack([g, g]), r"groups must have one value per sample, .*\(80, 2\)"),
    (lambda g: pd.DataFrame({"a": g, "b": g}), r"groups must have one value .*\(80, 2\)"),
    (lambda g: np.where(g == 3, np.nan, g), "groups has no value at position 15"),
    (lambda g: [None, *g[1:].astype(str)], "groups has no value at position 0"),
    (lambda g: pd.array([pd.NA, *g[1:]], dtype="Int64"), "groups has no value at position 0"),
    (lambda g: pd.Series([pd.NA, *g[1:].astype(str)], dtype="string"), "no value at position 0"),
    (lambda g: np.ma.masked_array(g, mask=np.arange(80) == 3), "no value at position 3"),
    (lambda g: pd.to_datetime([None, *g[1:]]), "groups has no value at position 0"),
    (lambda g: [*g[:-1], "a"], "groups mixes types: 'a' at position 79"),
    (lambda g: [0, *pd.to_datetime(g[1:])], r"groups mixes types: .* at position \d"),
    (lambda g: 0 * g + 7, "groups has one value only, 7"),
]


@pytest.mark.parametrize("taker", TAKERS)
def test_bad_groups_are_refused_before_any_work(no_work, taker):
    X, y, patients = scans()
    for change, error in BAD_GROUPS:
        with pytest.raises(ValueError, match=error):
            TAKERS[taker](X, y, groups=change(patients))


# In place of the models that a comparison fits by default.
COMPARED = ("shrinkage LDA", "logistic regression", "PLS-DA", "BM2PCA", "BSDR", "D-GPLVM", "stack")
QUICK = dict.fromkeys(COMPARED, GaussianNB())


class Spy(ClassifierMixin, BaseEstimator):
    """Keeps the groups of its fits."""

    seen: ClassVar[list] = []

    def fit(self, X, y, *, groups=None):
        Spy.seen.append(groups)
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


@pytest.mark.filterwarnings("ignore:.*no evidence that the targets depend on X")
@pytest.mark.parametrize(
    ("make", "routed", "fits"),
    [
        (lambda spy: spy, False, 1),
        (lambda spy: make_pipeline(StandardScaler(), spy), False, 1),
        (lambda spy: make_pipeline(StandardScaler(), spy), True, 1),
        (
            lambda spy: GridSearchCV(spy, {}, cv=StratifiedGroupKFold(3), scoring="neg_log_loss"),
            True,
            4,
        ),
    ],
)
def test_comparisons_maps_and_stacks_pass_groups_on(make, routed, fits):
    X, y, patients = scans()
    Spy.seen = []
    with config_context(enable_metadata_routing=routed):
        model = make(Spy().set_fit_request(groups=True) if routed else Spy())
        cross_validated_map(model, X, y, cv=4, groups=patients)
        models = QUICK | {"spy": model}
        compare_models(X, y, models=models, cv=4, groups=patients, progressbar=False)
        StackedClassifier([("spy", model), ("other", GaussianNB())]).fit(X, y, groups=patients)
    assert len(Spy.seen) == (5 + 4 + 3) * fits  # of short runs a stack has two folds
    assert all(groups is not None for groups in Spy.seen)
    if fits == 1:
        sizes = [len(np.unique(groups)) for groups in Spy.seen[: 5 + 4]]
        assert sizes == [16, *[12] * 8]


@pytest.mark.filterwarnings("ignore:.*no evidence that the targets depend on X")
def test_groups_are_routed_to_a_model():
    X, y, patients = scans(24, seed=1)
    with config_context(enable_metadata_routing=True):
        model = clone(CLASSIFIERS["BM2PCA"]).set_fit_request(groups=True)
        make_pipeline(StandardScaler(), model).fit(X, y, groups=patients)
    assert model.held_out_gain_ < 0.2


def test_classes_of_one_group_each_cannot_be_held_out():
    """Nothing tells whether classes or patients differ."""
    X, _, patients = scans(4)
    with warnings.catch_warnings(action="ignore"):
        for model in RECOMMENDED.values():
            model.fit(X, patients, groups=patients)
            assert np.isnan(model.held_out_gain_)
            assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.filterwarnings("ignore:.*no evidence that the targets depend on X")
@pytest.mark.parametrize("name", REGRESSORS)
def test_replicates_are_noticed_without_groups(name):
    X, y, patients = scans(shift=1.0)
    with pytest.warns(UserWarning, match="rests on samples that resemble each other"):
        REGRESSORS[name].fit(X, y)
    with warnings.catch_warnings(record=True, action="always") as caught:
        REGRESSORS[name].fit(X, y, groups=patients)
    assert not any("resemble" in str(each.message) for each in caught)


def noise(rng, n_samples, n_classes):
    """Twenty features that know nothing of the classes."""
    y = rng.permutation(np.arange(n_samples) % n_classes)
    return rng.standard_normal((n_samples, 20)), y


def oversampled(rng):
    """The minority class as often as the other one."""
    X, y = noise(rng, 50, 4)
    y = (y > 0).astype(int)
    few = np.flatnonzero(y == 0)
    return X, y, np.append(np.arange(50), rng.choice(few, np.sum(y == 1) - len(few)))


COPIED = {
    "8 of 52": lambda rng: (*noise(rng, 44, 2), np.r_[0:44, 0:8]),
    "15 of 45": lambda rng: (*noise(rng, 30, 3), np.r_[0:30, 0:15]),
    "a minority": oversampled,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "copied"), [*zip(RECOMMENDED, COPIED, strict=True)])
def test_copies_of_noise_are_noise(name, copied, monkeypatch):
    """Probabilities of new samples are hardly worse than equal ones."""
    monkeypatch.setattr("bsdr_models.numerics.folds.N_FOLDS", 5)
    behind = []
    for seed in range(3):
        rng = np.random.default_rng([7, seed])
        X, y, rows = COPIED[copied](rng)
        new = rng.standard_normal((400, 20))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.warns(UserWarning, match="no evidence that the targets depend on X"):
                model = clone(CLASSIFIERS[name]).fit(X[rows], y[rows])
        # Labels of new samples are random: all are equally probable.
        behind.append(-model.predict_log_proba(new).mean() - np.log(len(model.classes_)))
    assert np.mean(behind) < 0.05


def test_summary_and_map_say_what_groups_alone_tell():
    """Batches of unlike class proportions: the batch alone is right for 70 % of the samples."""
    rng = np.random.default_rng(5)
    groups = np.repeat(["a", "b"], 30)
    y = np.concatenate([np.arange(30) < 21, np.arange(30) < 9]).astype(int)
    X = rng.standard_normal((60, 4)) + 3.0 * y[:, None]
    model = BM2PCAClassifier(random_state=0).fit(X, y, groups=groups)
    assert "70%" in model.summary().loc["groups", "value"]
    ax = model.plot_map(X, y, groups=groups)
    text = " ".join(each.get_text() for each in ax.figure.findobj(Text))
    assert "groups alone 70% right" in " ".join(text.split())
