"""The metric as a transformer before other classifiers."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from bsdr_models import SupervisedWhitening
from bsdr_models.learned_metric.metric import ALONE, NAMES

WINE = load_wine(return_X_y=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn_checks():
    check_estimator(SupervisedWhitening())


def test_features_are_what_the_attributes_say():
    X, y = WINE
    model = SupervisedWhitening().fit(X, y)
    expected = (X - model.mean_) / model.scale_ @ model.components_.T
    found = model.transform(X)
    assert found == pytest.approx(expected, abs=1e-10)
    assert model.mean_ == pytest.approx(X.mean(axis=0))
    assert model.scale_ == pytest.approx(X.std(axis=0))
    assert np.mean(np.sum(found**2, axis=1)) == pytest.approx(13.0)
    assert sum(model.metric_weights_.values()) == pytest.approx(1.0)
    assert set(model.metric_weights_) == set(NAMES)
    # Principal axes: uncorrelated, the largest first.
    cov = np.cov(found.T, ddof=0)
    assert cov == pytest.approx(np.diag(np.diag(cov)), abs=1e-8)
    assert (np.diff(np.diag(cov)) <= 1e-8).all()


@pytest.mark.parametrize(("name", "scale"), [("unit", True), ("identity", False)])
def test_named_metrics_are_scalings(name, scale):
    X, y = WINE
    model = SupervisedWhitening(metric=name).fit(X, y)
    assert {k: w for k, w in model.metric_weights_.items() if w} == ALONE[name]
    Z = StandardScaler(with_std=scale).fit_transform(X)
    Z *= np.sqrt(13.0 / np.mean(np.sum(Z**2, axis=1)))
    found = model.transform(X)
    assert found @ found.T == pytest.approx(Z @ Z.T, abs=1e-8)


def test_units_of_the_features_matter_only_to_candidates_that_see_them():
    X, y = WINE
    found = [SupervisedWhitening().fit(X * c, y).metric_weights_ for c in (1.0, 1e-9, 1e12)]
    for other in found[1:]:
        assert [other[name] for name in NAMES] == pytest.approx([found[0][name] for name in NAMES])


def test_label_sets():
    X, y = WINE
    labels = np.stack([y < 2, y == 1], axis=1).astype(int)
    model = SupervisedWhitening().fit(X, labels)
    score = KNeighborsClassifier().fit(model.transform(X), labels).score(model.transform(X), labels)
    assert score > 0.9


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (None, "requires y"),
        (np.zeros(178), "one class only"),
        (np.linspace(0.0, 1.0, 178), "Unknown label type"),
        (np.ones((178, 2)), "same in every sample"),
        (WINE[1][:-1], "inconsistent numbers of samples"),
    ],
)
def test_bad_targets(y, match):
    with pytest.raises(ValueError, match=match):
        SupervisedWhitening().fit(WINE[0], y)


@pytest.mark.filterwarnings("ignore:class .* has a single sample")
def test_few_samples_of_a_class():
    """All candidates count alike if nothing can be held out."""
    X, y = WINE
    first = [int(np.argmax(y == k)) for k in range(3)]
    weights = SupervisedWhitening().fit(X[first], y[first]).metric_weights_
    assert list(weights.values()) == pytest.approx([1.0 / len(NAMES)] * len(NAMES))
    lone = SupervisedWhitening().fit(X[[*range(40), 60]], y[[*range(40), 60]])
    assert np.isfinite(lone.transform(X)).all()
