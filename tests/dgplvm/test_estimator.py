"""The public interface of the classifier, and its accuracy."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

from bsdr_models import DGPLVMClassifier, DGPLVMOptimization
from bsdr_models.papers import PaperDGPLVMClassifier

FORMS = {
    "default": {},
    "limit": {"priors__weight": np.inf},
    "total": {"priors__criterion": "total"},
    "inverse_trace": {"priors__criterion": "inverse_trace"},
    "mcml": {"priors__criterion": "mcml"},
}
PAPER = {
    "paper": {"optimization__max_iter": 100},
    "paper, Laplace": {"optimization__max_iter": 100, "approximation": "laplace"},
    "paper, free": {"optimization__max_iter": 100, "mapping": "none", "weight": 10.0},
    "paper, by likelihood": {"optimization__max_iter": 100, "placement": "likelihood"},
}
FAST = ("default", "limit", "paper", "paper, free", "paper, by likelihood")
every_form = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
        for name in (*FORMS, *PAPER)
    ],
)


@pytest.fixture(scope="module")
def models(wine):
    """Every form, fitted once."""
    cache = {}

    def get(name):
        if name not in cache:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the search stopped|.* ended at a bound")
                kind = PaperDGPLVMClassifier if name in PAPER else DGPLVMClassifier
                model = kind(random_state=0).set_params(**(FORMS | PAPER)[name])
                cache[name] = model.fit(wine[0], wine[2])
        return cache[name]

    return get


@every_form
def test_wine(wine, models, name):
    _, test, _, y_test = wine
    model = models(name)
    by_default = name in ("default", "limit")
    assert model.score(test, y_test) > (0.95 if by_default else 0.9)
    assert log_loss(y_test, model.predict_proba(test)) < (0.15 if by_default else 0.35)


def test_two_classes():
    X, y = load_breast_cancer(return_X_y=True)
    train = np.arange(len(y)) % 5 == 0
    model = DGPLVMClassifier(random_state=0).fit(X[train], y[train])
    assert model.transform(X).shape == (len(X), 1)
    assert model.score(X[~train], y[~train]) > 0.92
    assert log_loss(y[~train], model.predict_proba(X[~train])) < 0.25


@pytest.mark.parametrize("name", ["default", "paper, free"])
def test_inverse_transform_beats_the_mean(wine, models, name):
    """Two components explain some of the 13 features."""
    train, test, _, _ = wine
    model, scale = models(name), train.std(axis=0)
    back = model.inverse_transform(model.transform(test))
    error = np.mean(((back - test) / scale) ** 2)
    assert error < 0.85 * np.mean(((train.mean(axis=0) - test) / scale) ** 2)


@pytest.mark.parametrize("standardize", [pytest.param(True, marks=pytest.mark.slow), False])
def test_scaling_of_the_paper(wine, standardize):
    train, test, y_train, y_test = wine
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search stopped|.* ended at a bound")
        model = PaperDGPLVMClassifier(standardize=standardize, random_state=0)
        model.set_params(**PAPER["paper"]).fit(train, y_train)
    assert model.standardized_ is (standardize is not False)
    # With a common scale proline has nearly all of the variance.
    variance = model.idata_["constant_data/X"].values.var(axis=0)
    np.testing.assert_allclose(variance.mean(), 1.0)
    assert (variance[12] > 0.9 * variance.sum()) == (standardize is False)
    assert model.score(test, y_test) > (0.6 if standardize is False else 0.93)


def test_a_sequence_affects_latent_coordinates(wine, models):
    """Samples of each class, in their order, as a sequence."""
    train, test, y_train, _ = wine
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search stopped")
        model = DGPLVMClassifier(optimization=DGPLVMOptimization(max_iter=100), random_state=0)
        model.fit(train, y_train, sequence=y_train)
    assert np.abs(model.latent_ - models("default").latent_).max() > 1e-3
    assert np.isfinite(model.predict_proba(test)).all()


def test_the_progress_bar(wine, capsys):
    DGPLVMClassifier(progressbar=True, random_state=0).fit(wine[0], wine[2])
    captured = capsys.readouterr()
    assert "MAP" in captured.out + captured.err
