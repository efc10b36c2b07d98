"""The MCML criterion against a double loop over samples, its gradient, invariances and errors."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import log_loss

from bsdr_models import DGPLVMClassifier, DGPLVMPriors
from bsdr_models.dgplvm import criteria
from bsdr_models.dgplvm.criteria import make_criterion
from bsdr_models.papers import PaperDGPLVMClassifier

# Unsorted: class 3 has no sample, class 1 has one, two samples have no label.
labels = np.array([2, 0, 4, 0, 2, -1, 2, 0, 4, 2, -1, 0, 2, 0, 1, 4, 4, 0, 2])
K = 5

every_width = pytest.mark.parametrize("r", [1, 2, 5, 12])


def make(y=labels, n_labels=K):
    return make_criterion("mcml", y, n_labels)


def make_latent(r, seed=0):
    rng = np.random.default_rng([43, r, seed])
    return rng.standard_normal((len(labels), r)) + 1.5 * rng.standard_normal((K + 1, r))[labels]


def divergence(X, y, scale):
    """Mean over samples with another one of their class of KL(p0 || p), by loops."""
    found = []
    for i in np.flatnonzero(y >= 0):
        others = [j for j in np.flatnonzero(y >= 0) if j != i]
        same = [j for j in others if y[j] == y[i]]
        if not same:
            continue
        weights = {j: np.exp(-scale * np.sum((X[i] - X[j]) ** 2)) for j in others}
        total = sum(weights.values())
        found.append(
            sum(np.log((1.0 / len(same)) / (weights[j] / total)) / len(same) for j in same)
        )
    return np.mean(found)


@every_width
def test_value_is_the_smallest_mean_divergence(r):
    X = make_latent(r)
    best = minimize_scalar(
        lambda t: divergence(X, labels, np.exp(t)),
        bounds=(-6.0, 4.0), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    assert -5.9 < best.x < 3.9
    assert make()(X)[0] == pytest.approx(best.fun, rel=1e-10)


@every_width
def test_invariant_to_rotation_translation_and_scale(r):
    X, criterion = make_latent(r, 2), make()
    rng = np.random.default_rng([44, r])
    Q, _ = np.linalg.qr(rng.standard_normal((r, r)))
    value, gradient = criterion(X)
    for c in (1e-150, 1e-3, 7.0, 1e150):
        other, moved = criterion(c * (X @ Q + 5.0 * rng.standard_normal(r)))
        assert other == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(
            c * moved @ Q.T, gradient, rtol=0.0, atol=1e-8 * np.abs(gradient).max()
        )
    # Not to a linear transformation, unlike ratios of scatters.
    if r > 1:
        assert abs(criterion(X * np.geomspace(1.0, 5.0, r))[0] - value) > 1e-2


@pytest.mark.parametrize("r", [1, 3])
def test_gradient_at_a_bound_of_the_scale(r):
    """Labels that are worse than chance have the smallest scale, and J still no scale."""
    rng = np.random.default_rng([45, r])
    y = np.arange(12) % 6
    X = rng.standard_normal((12, r))
    X[6:] = -X[:6]  # the other sample of a class is far away
    criterion = make_criterion("mcml", y, 6)
    value, gradient = criterion(X)
    assert value == pytest.approx(np.log(11.0), abs=0.01)  # of a uniform softmax
    moved = X + 1e-4 * rng.standard_normal(X.shape)
    expected = 0.5 * np.vdot(gradient + criterion(moved)[1], moved - X)
    assert criterion(moved)[0] - value == pytest.approx(expected, rel=1e-4)
    assert criterion(3.0 * X)[0] == pytest.approx(value, rel=1e-12)


def test_classes_that_are_points_have_value_zero():
    X = np.eye(K, 3)[labels] + np.eye(K, 3, k=-2)[labels]
    X[labels == 4] = 2.0
    value, gradient = make()(X)
    assert 0.0 <= value < 1e-12
    assert np.abs(gradient).max() < 1e-9
    value, gradient = make(np.arange(6), 6)(np.random.default_rng(46).standard_normal((6, 3)))
    assert value == 0.0  # no class has two samples
    assert not gradient.any()


# ------------------------------------------------------------------------------- in the estimator


@pytest.fixture(scope="module")
def digits():
    """Six samples of each of ten classes for training, 500 others, and their classes."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(48).permutation(len(y))
    X, y = X[order], y[order]
    train = np.concatenate([np.flatnonzero(y == c)[:6] for c in range(10)])
    test = np.setdiff1d(np.arange(len(y)), train)[:500]
    X = X[:, X[train].std(axis=0) > 0.0]
    return X[train], X[test], y[train], y[test]


def fit(X, y, r=4, **options):
    priors = DGPLVMPriors(criterion="mcml", **options)
    return DGPLVMClassifier(r, priors=priors, random_state=0).fit(X, y)


def test_new_digits_are_recognised(digits):
    X, X_test, y, y_test = digits
    model = fit(X, y)
    assert model.converged_
    assert model.idata_.attrs["criterion"] == "mcml"
    others = DGPLVMClassifier(4, random_state=0).fit(X, y)
    found, plain = (log_loss(y_test, m.predict_proba(X_test)) for m in (model, others))
    assert found < plain
    assert model.score(X_test, y_test) > 0.75


@pytest.mark.filterwarnings("ignore:the search stopped", "ignore:.* ended at a bound")
def test_model_of_the_paper_and_unlabelled_samples():
    X, y = load_wine(return_X_y=True)
    train = np.arange(len(y)) % 3 == 0
    paper = PaperDGPLVMClassifier(2, criterion="mcml", random_state=0).fit(X[train], y[train])
    assert paper.score(X[~train], y[~train]) > 0.9
    half = np.where(train & (np.arange(len(y)) % 2 == 0), y, -1)
    priors = DGPLVMPriors(criterion="mcml")
    model = DGPLVMClassifier(2, priors=priors, unlabeled=-1).fit(X, half)
    assert model.score(X[~train], y[~train]) > 0.9


def test_too_many_samples_raise_before_any_work(digits, monkeypatch):
    X, _, y, _ = digits
    monkeypatch.setattr(criteria, "MAX_PAIRED", 59)
    monkeypatch.setattr("bsdr_models.dgplvm.estimator.learn_mode", None)
    with pytest.raises(ValueError, match=r"'mcml' compares all pairs.*at most 59, got 60"):
        fit(X, y)
