"""The plane of predictions: recovery, invariance, and probabilities that are hard."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, softmax
from scipy.stats import mode
from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.estimator_checks import check_estimator_cloneable

from bsdr_models import PredictionPlane
from bsdr_models.compare import plane


def planted(rng, n=400, k=6, scale=3.0):
    """Places in a plane, and probabilities that are a softmax of rank two there."""
    angle = 2.0 * np.pi * np.arange(k) / k
    centres = scale * np.stack([np.cos(angle), np.sin(angle)])
    u = centres.T[rng.integers(k, size=n)] / scale + 0.4 * rng.standard_normal((n, 2))
    return u, softmax(u @ centres, axis=1)


def linear_fit(source, target):
    """Share of the variance of target that is affine in source."""
    full = np.column_stack([source, np.ones(len(source))])
    residual = target - full @ np.linalg.lstsq(full, target, rcond=None)[0]
    return 1.0 - np.sum(residual**2) / np.sum((target - target.mean(axis=0)) ** 2)


def test_planted_plane_is_recovered(monkeypatch):
    u, p = planted(np.random.default_rng(0))
    monkeypatch.setattr("bsdr_models.compare.plane.RIDGE", 1e-3)
    model = PredictionPlane().fit(p)
    found = model.transform(p)
    assert linear_fit(found, u) > 0.8  # sure predictions are drawn together
    q = np.exp(model.predict_log_proba(found))
    assert np.abs(q - p).mean() < 0.05
    assert np.mean(q.argmax(axis=1) == p.argmax(axis=1)) > 0.97


@pytest.mark.parametrize("k", [2, 3, 40])
def test_number_of_classes(k):
    rng = np.random.default_rng(k)
    p = softmax(4.0 * rng.standard_normal((300, k)), axis=1)
    model = PredictionPlane().fit(p)
    found = model.transform(p)
    assert found.shape == (300, min(2, k - 1))
    q = model.predict_log_proba(found)
    assert np.exp(q).sum(axis=1) == pytest.approx(1.0)
    if k <= 3:  # the predictions have no more dimensions
        assert np.exp(q) == pytest.approx(p, abs=1e-3)
        gaps = np.log(p[:, :-1] / p[:, 1:])
        likely = p.min(axis=1) > 0.01
        assert linear_fit(found[likely], gaps[likely]) > 0.999


def test_invariant_to_order_of_samples_and_classes():
    rng = np.random.default_rng(1)
    p = softmax(2.0 * rng.standard_normal((200, 7)) @ rng.standard_normal((7, 7)), axis=1)
    samples, classes = rng.permutation(200), rng.permutation(7)
    first, second = PredictionPlane().fit(p), PredictionPlane().fit(p[samples][:, classes])
    at, there = first.transform(p), second.transform(p[:, classes])
    assert there == pytest.approx(at, abs=1e-3 * at.std())
    q = np.exp(first.predict_log_proba(at)[:, classes])
    assert np.exp(second.predict_log_proba(there)) == pytest.approx(q, abs=1e-3)


def test_gradient_of_the_loss(monkeypatch):
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(4), size=9)
    X = np.sqrt(p) - np.sqrt(p).mean(axis=0)

    def check(function, start, **options):
        at = start + rng.standard_normal(len(start))
        numeric = approx_fprime(at, lambda x: function(x)[0], 1e-6)
        assert function(at)[1] == pytest.approx(numeric, abs=1e-5)
        V, W = at[:8].reshape(4, 2), at[8:16].reshape(2, 4)
        log_q = log_softmax(X @ V @ W + at[16:], axis=1)
        expected = (-np.sum(p * log_q) + plane.RIDGE * np.sum(at[:16] ** 2)) / len(p)
        assert function(at)[0] == pytest.approx(expected)
        raise StopIteration

    monkeypatch.setattr(plane, "minimize", check)
    with pytest.raises(StopIteration):
        plane._fit(X, p, 2)


@pytest.mark.parametrize(
    "p",
    [
        np.eye(5)[np.repeat(np.arange(5), 4)],  # zeros and ones
        np.column_stack([planted(np.random.default_rng(4), n=60)[1], np.zeros(60)]),  # never
        np.full((10, 4), 0.25),  # all alike
        planted(np.random.default_rng(5), n=2)[1],
        planted(np.random.default_rng(6), n=1)[1],
    ],
    ids=["certain", "a class never predicted", "all alike", "two samples", "one sample"],
)
def test_hard_probabilities(p):
    model = PredictionPlane().fit(p)
    at = model.transform(p)
    assert np.isfinite(at).all()
    assert np.isfinite(model.predict_log_proba(at)).all()
    if len(p) > 10:
        same = model.predict_log_proba(at).argmax(axis=1) == p.argmax(axis=1)
        assert same.mean() > 0.95


def test_coordinates_are_principal_axes_with_positive_skew():
    p = planted(np.random.default_rng(7), n=150)[1]
    at = PredictionPlane().fit(p).transform(p)
    assert at.mean(axis=0) == pytest.approx(0.0, abs=1e-9)
    cov = np.cov(at.T)
    assert cov[0, 1] == pytest.approx(0.0, abs=1e-9)
    assert cov[0, 0] > cov[1, 1]
    assert np.all(np.sum(at**3, axis=0) >= 0.0)


@pytest.mark.parametrize(
    ("p", "arguments", "message"),
    [
        ([[0.5, 0.6]], {}, "probabilities of sample 0 are NaN, negative or do not sum to one"),
        ([[0.5, 0.5], [1.5, -0.5]], {}, "probabilities of sample 1"),
        ([[1.0], [1.0]], {}, "probabilities of one class have no plane"),
        ([[0.5, np.nan]], {}, "Input probabilities contains NaN"),
        ([[0.5, 0.5]], {"n_components": 0}, "n_components must be an int"),
        ([[0.5, 0.5]], {"n_components": 1.5}, "n_components must be an int"),
        ([[0.5, 0.5]], {"n_components": "2"}, "n_components must be an int"),
    ],
)
def test_bad_input(p, arguments, message):
    with pytest.raises(ValueError, match=message):
        PredictionPlane(**arguments).fit(p)


def test_classes_must_be_those_of_the_fit():
    model = PredictionPlane().fit(planted(np.random.default_rng(8), n=20)[1])
    with pytest.raises(ValueError, match="expected 6 classes, got 2"):
        model.transform([[0.5, 0.5]])


def test_places_have_the_coordinates_of_the_plane():
    plane = PredictionPlane().fit(np.eye(4) * 0.6 + 0.1)
    with pytest.raises(ValueError, match="the plane has 2 coordinates, got 3"):
        plane.predict_log_proba(np.zeros((1, 3)))


def test_is_a_transformer_of_scikit_learn():
    model = PredictionPlane(3)
    check_estimator_cloneable("PredictionPlane", model)
    assert clone(model).get_params() == {"n_components": 3}


def neighbours(at, y):
    """Share of points whose class is the most frequent one of their five nearest neighbours."""
    near = NearestNeighbors(n_neighbors=5).fit(at).kneighbors(return_distance=False)
    return np.mean(mode(y[near], axis=1).mode == y)


def test_flat_probabilities_keep_their_size_and_their_classes():
    """Forty classes; the largest probability of a sample is about .2, the others equal."""
    rng = np.random.default_rng(9)
    index = np.repeat(np.arange(40), 8)
    p = np.full((320, 40), 0.8 / 39)
    p[np.arange(320), index] = rng.uniform(0.15, 0.25, size=320)
    p /= p.sum(axis=1, keepdims=True)
    model = PredictionPlane().fit(p)
    at = model.transform(p)
    assert neighbours(at, index) > 0.97
    q = np.exp(model.predict_log_proba(at))
    assert np.mean(q.argmax(axis=1) == index) > 0.97
    assert q.max(axis=1).mean() == pytest.approx(p.max(axis=1).mean(), abs=0.02)
