"""What fits predict for their training samples without having seen their labels."""

import functools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine

from bsdr_models import BM2PCAClassifier, BSDRClassifier
from tests.toys import RECOMMENDED

pytestmark = [
    pytest.mark.usefixtures("short_runs"),
    pytest.mark.filterwarnings("ignore:the chains have not mixed"),
    pytest.mark.filterwarnings("ignore:Laplace's approximation is not to be trusted"),
    pytest.mark.filterwarnings("ignore:the search stopped after"),
]


@pytest.fixture(scope="module")
def few():
    """Samples of three classes in no order; new samples."""
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order[:40]], y[order[:40]], X[order[40:]], y[order[40:]]


@pytest.fixture(scope="module")
def fitted(few):
    """Models fitted once to the few samples."""
    return functools.cache(lambda name: clone(RECOMMENDED[name]).fit(*few[:2]))


def scored(model, y):
    """Mean log probability that held-out samples have their labels."""
    log_p = model.held_out_log_proba_
    assert log_p.shape == (40, 3)
    assert np.exp(log_p).sum(axis=1) == pytest.approx(1.0)
    return log_p[np.arange(40), y].mean()


@pytest.mark.parametrize("name", RECOMMENDED)
def test_held_out_probabilities_of_one_division_are_those_of_the_score(name, few, monkeypatch):
    X, y, *_ = few
    monkeypatch.setattr("bsdr_models.data.training.MOST_DIVISIONS", 1)
    model = clone(RECOMMENDED[name]).fit(X, y)
    assert scored(model, y) == pytest.approx(model.held_out_score_)


@pytest.mark.parametrize("name", RECOMMENDED)
def test_averages_over_divisions_are_no_worse_than_their_mean_score(name, few, fitted):
    """Normalising a geometric mean of probabilities raises them all."""
    _, y, *_ = few
    score = fitted(name).held_out_score_
    assert score - 1e-12 <= scored(fitted(name), y) < score + 0.1


def test_an_only_sample_of_a_class_is_not_held_out(few):
    X, y, *_ = few
    kept = np.append(np.flatnonzero(y < 2), np.flatnonzero(y == 2)[0])
    for name in ("BSDR", "D-GPLVM"):
        with pytest.warns(match=r"."):
            log_p = RECOMMENDED[name].fit(X[kept], y[kept]).held_out_log_proba_
        assert np.isnan(log_p[-1]).all()
        assert not np.isnan(log_p[:-1]).any()


def test_none_is_held_out_of_classes_of_one_sample(few):
    X, y, *_ = few
    kept = np.unique(y, return_index=True)[1]
    with pytest.warns(UserWarning, match="single sample"):
        model = BSDRClassifier(random_state=0).fit(X[kept], y[kept])
    assert model.held_out_log_proba_ is None
    assert np.isnan(model.held_out_score_)


def test_none_is_held_out_where_nothing_is_chosen(few):
    X, y, X_new, _ = few
    for model in (BSDRClassifier(temperature=1.0), BSDRClassifier(inference="laplace")):
        model.set_params(random_state=0).fit(X, y)
        assert model.held_out_log_proba_ is None
        at = model.plane_.transform(model.predict_proba(X_new))  # learned from its predictions
        assert at.shape == (110, 2)


@pytest.mark.parametrize("name", ["BSDR", "BM2PCA", "D-GPLVM"])
def test_coordinates_keep_the_predictions_of_new_samples(name, few, fitted):
    X, y, X_new, _ = few
    model = fitted(name)
    at = model.plane_.transform(model.predict_proba(X_new))
    assert at.shape == (110, 2)
    by_plane = model.plane_.predict_log_proba(at).argmax(axis=1)
    assert np.mean(by_plane == model.predict(X_new)) > 0.95
    two = RECOMMENDED[name].fit(X[y > 0], y[y > 0])
    assert two.plane_.transform(two.predict_proba(X_new)).shape == (110, 1)


def test_label_sets_have_no_plane():
    X, y = load_wine(return_X_y=True)
    model = BM2PCAClassifier(random_state=0).fit(X[::4], 1 - np.eye(3, dtype=int)[y[::4]])
    with pytest.raises(AttributeError, match="plane_ needs one class per sample"):
        model.plane_  # noqa: B018
