"""The learned metric in BM2PCA: held-out labels, named metrics, kinds of samples and labels."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from bsdr_models import BM2PCAClassifier, HingeLoss
from bsdr_models.bm2pca import engines, posterior, subspace
from bsdr_models.bm2pca.engines import OF_FOLD, FitSettings, Task
from bsdr_models.bm2pca.posterior import SparseMetric, is_large
from bsdr_models.data.training import Training
from bsdr_models.learned_metric.weights import MetricWeights

N, D, K = 60, 12, 3
FIXED = HingeLoss(C=1.0, calibrate=False)


def make_samples(seed=0, n=N, d=D):
    """Classes that differ in two features of different units, with a common factor."""
    rng = np.random.default_rng([61, seed])
    y = np.arange(n) % K
    X = rng.standard_normal((n, d)) + 2.0 * rng.standard_normal((n, 1))
    X[:, :2] += 3.0 * np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])[y]
    return X * np.geomspace(0.3, 3.0, d), y, rng


def make_training(X, y):
    """Training samples of classes, or of label sets, -1 if unknown."""
    n_classes = y.max() + 1 if y.ndim == 1 else y.shape[1]
    rng = np.random.default_rng(0)
    return Training.of(X, y, n_classes, np.ones(X.shape[1]), metric="auto", rng=rng)


def make_settings(y):
    return FitSettings(n_components=2, multiclass=y.ndim == 1, exclusive=y.ndim == 1)


@pytest.mark.parametrize("kind", ["classes", "labels", "unlabelled", "wide"])
def test_held_out_predictions_do_not_depend_on_held_out_labels(kind):
    """The metric of a fold, weights of its candidates included, does not know its labels."""
    X, y, rng = make_samples(d=100 if kind == "wide" else D)
    if kind == "labels":
        y = rng.integers(0, 2, (N, 3))
    if kind == "unlabelled":
        y[40:] = -1
    training = make_training(X, y)
    order = np.argsort(training.keys)
    order = order[training.known[order]]
    folds = [fold[order] for fold in training.divisions]

    def scores(y, fold):
        """With the divisions of the first labels, and weights of these."""
        weights = MetricWeights.choose("auto", X[order], y[order], training.units, folds)
        task = replace(training, classes=y, weights=weights, _metrics={})
        found = Task.of(task, make_settings(y), fold)
        A = found.metric.whiten(X[task.out(fold)])
        return found.fit(1.0, **OF_FOLD).posterior.scores(A)

    own = training.out((1, 1))
    other = y.copy()
    other[own] = np.roll(y[own], 1, axis=0)
    assert (other != y).any()
    np.testing.assert_array_equal(scores(other, (1, 1)), scores(y, (1, 1)))
    assert np.abs(scores(other, (1, 2)) - scores(y, (1, 2))).max() > 1e-3


def test_the_learned_metric_discounts_variation_within_classes():
    X, y, rng = make_samples(n=360, d=60)
    X += 8.0 * rng.standard_normal((360, 2)) @ rng.standard_normal((2, 60))
    model, unit = (
        BM2PCAClassifier(metric=metric, loss=FIXED, random_state=0).fit(X[:N], y[:N])
        for metric in ("auto", "unit")
    )
    assert model.score(X[N:], y[N:]) > unit.score(X[N:], y[N:]) + 0.05
    weights = list(model.metric_weights_.values())
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1.0)


# ---------------------------------------------------------------------- kinds of samples, labels


@pytest.mark.filterwarnings("ignore:.*single sample")
def test_with_single_samples_all_candidates_count_alike():
    X, _, _ = make_samples(n=6)
    with pytest.warns(UserWarning, match="every class has one sample only"):
        model = BM2PCAClassifier(random_state=0).fit(X, np.arange(6))
    np.testing.assert_allclose(list(model.metric_weights_.values()), 1.0 / 8.0)
    assert model.score(X, np.arange(6)) == 1.0


def test_unlabelled_samples_of_nearly_certain_class_are_in_the_metric(monkeypatch):
    X, y, _ = make_samples()
    y[20:] = -1
    training = make_training(X, y)
    task = Task.of(training, make_settings(y))
    used = task.signs.any(axis=1)
    assert used.sum() > 20
    np.testing.assert_allclose(task.metric.mean, X[used].mean(axis=0))
    monkeypatch.setattr(engines, "fit_responsibilities", None)
    few = Task.of(make_training(X[:20], y[:20]), make_settings(y))
    np.testing.assert_allclose(few.metric.mean, X[:20].mean(axis=0))


# --------------------------------------------------------------------- large sparse samples


def sparse_samples():
    X, y, rng = make_samples(d=80)
    return sparse.csr_array(X * (rng.random(X.shape) < 0.5)), y, rng


def test_the_operator_is_the_euclidean_metric(monkeypatch):
    X, y, _ = sparse_samples()
    new, tight = X[::3], {"rtol": 1e-3, "atol": 1e-3}
    exact = BM2PCAClassifier(metric="identity", loss=FIXED, random_state=0).fit(X, y)
    monkeypatch.setattr(posterior, "MAX_DENSE", 100)
    monkeypatch.setattr(subspace, "MAX_AXES", 20)
    assert is_large(X)
    assert not is_large(X.toarray())
    model = BM2PCAClassifier(loss=FIXED, random_state=0).fit(X, y)
    assert isinstance(model._posterior.metric, SparseMetric)
    assert model.metric_weights_ == {"as they are": 1.0}
    np.testing.assert_allclose(model.decision_function(new), exact.decision_function(new), **tight)
    np.testing.assert_allclose(np.abs(model.components_), np.abs(exact.components_), **tight)
    assert np.isfinite(model.transform(new, return_cov=True)[1]).all()


def test_coordinates_of_the_operator():
    X, _, rng = sparse_samples()
    metric, Q, G = SparseMetric.learn(X), rng.standard_normal((80, 2)), rng.standard_normal((N, 2))
    dense = X.toarray() - X.toarray().mean(axis=0)
    dense /= np.sqrt(np.mean(np.sum(dense**2, axis=1)))
    A = metric.whiten(X)
    np.testing.assert_allclose(A @ Q, dense @ Q, atol=1e-10)
    np.testing.assert_allclose(A.T @ G, dense.T @ G, atol=1e-10)
    np.testing.assert_allclose((X - metric.mean) @ (metric.effects @ Q), dense @ Q, atol=1e-10)


def test_a_million_sparse_features_are_never_made_dense():
    rng = np.random.default_rng(3)
    y = np.arange(40) % 4
    X = sparse.random_array((40, 1_000_000), density=3e-5, rng=rng, format="csr")
    assert is_large(X)
    assert SparseMetric.learn(X).whiten(X).shape == (40, 1_000_000)
    fit = subspace.fit_subspace(
        SparseMetric.learn(X).whiten(X),
        2.0 * np.eye(4)[y] - 1.0,
        n_components=1,
        settings=subspace.Settings(),
        max_iter=2,
    )
    assert fit.posterior.projection.shape == (1_000_000, 1)


def test_sparse_new_samples_are_whitened_and_compared_in_blocks(monkeypatch):
    X, y, rng = sparse_samples()
    new = sparse.csr_array(rng.standard_normal((7, 80)) * (rng.random((7, 80)) < 0.5))
    model = BM2PCAClassifier(loss=FIXED, random_state=0).fit(X, y)
    metric, dense = model._posterior.metric, new.toarray()
    np.testing.assert_allclose(posterior.whiten(metric, new), metric.whiten(dense), atol=1e-9)
    mapped = metric.map(dense)
    expected = np.sum(mapped**2, axis=1) - np.sum(metric.whiten(dense) ** 2, axis=1)
    monkeypatch.setattr(posterior, "BLOCK", 160)
    np.testing.assert_allclose(model._posterior._outside(new), expected, atol=1e-8)
    assert expected.min() > 0.0
