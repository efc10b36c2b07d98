"""BM2PCAClassifier: interface and attributes."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit, softmax

from bsdr_models import BM2PCAClassifier, BM2PCAPriors, BM2PCARegressor, Sampling
from bsdr_models.bm2pca.subspace import signs_of
from bsdr_models.data.targets import read_classes
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.papers import PaperBM2PCAClassifier
from bsdr_models.papers.bm2pca import predict


def test_arguments_are_used(overlapping, make_form):
    X, y = overlapping
    priors = BM2PCAPriors(weight_rate=2.0)
    model = make_form("paper", C=7.0, priors=priors, n_components=3).fit(X, y)
    config = json.loads(model.idata_.attrs["config"])
    assert config["priors"]["weight_rate"] == 2.0
    assert config["C"] == 7.0
    assert "random_state" not in config
    assert model.idata_.attrs["C"] == 7.0
    assert model.transform(X).shape == (90, 3)
    free = make_form("default", loss__C=7.0, metric="identity").fit(X, y)
    assert free.C_ == free.idata_.attrs["C"] == 7.0
    assert free.idata_.attrs["metric"] == "identity"
    assert free.metric_weights_["as they are"] == 1.0


def test_several_views_have_no_pymc_model(overlapping):
    X, y = overlapping
    views = {"a": [0, 1], "b": [2, 3, 4]}
    regressor = BM2PCARegressor(2, views=views, random_state=0).set_params(loss__calibrate=False)
    with pytest.raises(ValueError, match="model_ needs complete samples"):
        regressor.fit(X, y + 0.1 * X[:, 0]).model_  # noqa: B018


def share_of(y):
    """Frequencies of the classes in sorted order."""
    return np.unique(y, return_counts=True)[1] / len(y)


@pytest.mark.parametrize("target", ["classes", "two classes", "labels"])
def test_prediction_methods_agree(make_form, target):
    rng = np.random.default_rng(94)
    X = rng.standard_normal((200, 6))
    scores = 2.0 * X @ rng.standard_normal((6, 2)) @ rng.standard_normal((2, 4))
    scores += rng.standard_normal(scores.shape)
    if target == "labels":
        y = (scores > 0.0).astype(int)
    else:
        y = scores[:, : 2 if target == "two classes" else 4].argmax(axis=1)
        y = np.array(["no", "yes", "perhaps", "who knows"])[y]
    test, y_test = X[120:], y[120:]
    model = make_form("default", loss__calibrate=True).fit(X[:120], y[:120])
    f, p = model.decision_function(test), model.predict_proba(test)
    if target == "labels":
        assert model.classes_.tolist() == [0, 1, 2, 3]
        expected, predicted, n_outcomes = expit(f / model.temperature_), f > 0.0, 2
    else:
        assert model.classes_.tolist() == sorted(set(y))
        both = np.column_stack([np.zeros(len(f)), f]) if f.ndim == 1 else f
        assert (f.ndim == 1) == (target == "two classes")
        expected = softmax(both / model.temperature_, axis=1)
        predicted, n_outcomes = model.classes_[both.argmax(axis=1)], both.shape[1]
    expected = 0.99 * expected + 0.01 / n_outcomes
    signal = model.idata_.attrs["signal"]
    frequency = y[:120].mean(axis=0) if target == "labels" else share_of(y[:120])
    expected = signal * expected + (1.0 - signal) * frequency
    np.testing.assert_allclose(p, expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(test)), p, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(test), predicted)
    right = (predicted == y_test).reshape(80, -1)
    assert right.mean() > 0.7
    assert model.score(test, y_test) == right.all(axis=1).mean()


MARKED = {
    "minus one": (np.arange(3), -1),
    "empty text": (np.array(["a", "b", "c"]), ""),
    "word": (np.array(["a", "b", "c"], dtype=object), "?"),
    "nan": (np.array([0.0, 1.0, 2.0]), np.nan),
    "none among numbers": (np.array([0, 1, 2], dtype=object), None),
    "none among words": (np.array(["a", "b", "c"], dtype=object), None),
    "na": (np.array(["a", "b", "c"], dtype=object), pd.NA),
}


@pytest.mark.parametrize("kind", MARKED)
def test_unlabeled_markers(kind):
    labels, marker = MARKED[kind]
    index = np.array([0, 1, 2, 2, 0, 1, 2, 0, 1])
    y = labels[index]
    if marker is None or marker is pd.NA:
        y = y.astype(object)
    y[[2, 7]] = marker
    unlabeled = np.nan if marker is None or marker is pd.NA else marker
    got = read_classes(y, unlabeled, several=True)
    assert got.names.tolist() == labels.tolist()
    assert got.kind == "multiclass"
    np.testing.assert_array_equal(got.coded, [0, 1, -1, 2, 0, 1, 2, -1, 1])
    signs = signs_of(got.coded, 3)
    assert signs.shape == (9, 3)
    np.testing.assert_array_equal(signs[[2, 7]], 0.0)
    np.testing.assert_array_equal(signs[0], [1.0, -1.0, -1.0])


@pytest.mark.slow
def test_sparse_fit_equals_unscaled_dense_fit(make_form):
    """The dense fit has no scaler."""
    rng = np.random.default_rng(98)
    y = np.arange(60) % 3
    X = rng.random((60, 30)) + 5.0 * np.eye(3)[y] @ rng.random((3, 30))
    X[rng.random(X.shape) < 0.7] = 0.0
    model = make_form("default", loss__calibrate=True).fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(model.mean_, 0.0)
    np.testing.assert_array_equal(model.scale_, 1.0)
    dense = DenseAsItIs(**model.get_params(deep=False)).fit(X, y)
    # Axes differ, and so does the optimum up to the tolerance of 1e-5.
    rough = {"rtol": 0.01, "atol": 0.01}
    np.testing.assert_allclose(model.temperature_, dense.temperature_, **rough)
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array, np.asarray):
        got = model.decision_function(form(X))
        np.testing.assert_allclose(got, dense.decision_function(X), **rough)


class DenseAsItIs(BM2PCAClassifier):
    """Dense samples without centring and scaling."""

    def _scale(self, X):
        self._set_scaler(Scaler.identity(X.shape[1]))
        self.standardize = False  # values have no bound
        return X


@pytest.mark.parametrize("inference", ["mean_field", "gibbs"])
@pytest.mark.parametrize("target", ["classes", "two classes", "labels"])
def test_probabilities_of_the_paper_are_the_softmax_of_mean_class_scores(target, inference):
    """By the estimator, and by its tree."""
    rng = np.random.default_rng(94)
    X = rng.standard_normal((60, 6))
    scores = 2.0 * X @ rng.standard_normal((6, 3)) + rng.standard_normal((60, 3))
    y = (scores > 0.0).astype(int)
    if target != "labels":
        y = scores[:, : 2 if target == "two classes" else 3].argmax(axis=1)
    few = Sampling(draws=20, tune=20, chains=2)
    model = PaperBM2PCAClassifier(3, inference=inference, sampling=few, max_iter=50, random_state=0)
    with warnings.catch_warnings(action="ignore"):  # short chains and ascents
        model.fit(X[:40], y[:40])
    scaled = (X - model.mean_) / model.scale_
    mean = model.idata_["posterior"].dataset.mean(("chain", "draw"))
    f = scaled @ mean["coef"].values + mean["intercept"].values
    expected = expit(f) if target == "labels" else softmax(f, axis=1)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-9)
    np.testing.assert_allclose(predict(model.idata_, scaled), expected, rtol=1e-9)
    assert (
        np.mean((expected > 0.5) == (y if target == "labels" else np.eye(3)[y][:, : f.shape[1]]))
        > 0.7
    )


def test_samples_without_a_label_contribute_their_features():
    rng = np.random.default_rng(95)
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 8)) + 2.0 * np.eye(3)[y] @ rng.standard_normal((3, 8))
    part = np.where(np.arange(90) < 20, y, -1)
    model = PaperBM2PCAClassifier(4, unlabeled=-1, random_state=0).fit(X, part)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(X[20:], y[20:]) > 0.7
