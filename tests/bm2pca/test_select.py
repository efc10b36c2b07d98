"""Choice of settings by held-out samples, and the learned metric in BM2PCA."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.special import log_expit, log_softmax, logsumexp, softmax
from scipy.stats import norm

from bsdr_models import BM2PCAClassifier, HingeLoss
from bsdr_models.bm2pca import engines, posterior, subspace
from bsdr_models.bm2pca.engines import LOG_T, OF_FOLD, FitSettings, Task
from bsdr_models.bm2pca.posterior import LAPSE, SparseMetric, is_large, link_of
from bsdr_models.data.training import Training
from bsdr_models.estimators.calibration import Calibration, judge
from bsdr_models.learned_metric.weights import SHARPNESS, MetricWeights


def make_training(X, y):
    """Training samples of classes, or of label sets, -1 if unknown."""
    n_classes = y.max() + 1 if y.ndim == 1 else y.shape[1]
    rng = np.random.default_rng(0)
    return Training.of(X, y, n_classes, np.ones(X.shape[1]), metric="auto", rng=rng)


def known_log_p(scores, y, lapse):
    """Log probabilities of the known labels, from class scores at a temperature of one."""
    if y.ndim == 1:
        both = scores if scores.shape[1] > 1 else np.column_stack([0.0 * scores, scores])
        log_p = log_softmax(both, axis=1)[np.arange(len(y)), y]
        k = both.shape[1]
    else:
        log_p = log_expit(np.where(y == 1, scores, -scores))[y >= 0]
        k = 2
    return np.log((1.0 - lapse) * np.exp(log_p) + lapse / k)


def root_mean_square(scores):
    """Of class scores (..., K) about the mean of the classes, of which the first may have none."""
    if scores.shape[-1] == 1:
        scores = np.concatenate([0.0 * scores, scores], axis=-1)
    return np.sqrt(np.mean((scores - scores.mean(axis=-1, keepdims=True)) ** 2))


# ------------------------------------------------------------------------------- held-out samples


def classes(n=60, k=4, seed=0):
    """Informative class scores of two candidates, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return y, rng.standard_normal((2, n, k)) + 2.0 * np.eye(k)[y]


def test_one_wrong_sample_far_from_the_boundary_does_not_decide_the_temperature():
    """With a probability that a class is random."""
    y, scores = classes(n=40)
    scores = scores[0] + 4.0 * np.eye(4)[y]
    far = scores.copy()
    far[0] = 30.0 * np.eye(4)[(y[0] + 1) % 4]

    def temperature(values, lapse):
        return judge(
            [values], y, [np.arange(40) % 5], link_of(True, lapse), LOG_T
        ).calibration.temperature

    robust, plain = (temperature(far, own) / temperature(scores, own) for own in (LAPSE, 0.0))
    assert robust < 1.2 < 1.7 < plain


def wide_samples(n=18):
    """Three classes in thirty features."""
    rng = np.random.default_rng(3)
    y = np.arange(n) % 3
    return rng.standard_normal((n, 30)) + 2.0 * rng.standard_normal((3, 30))[y], y


def test_held_out_values_of_a_given_cost_are_those_of_their_samples(monkeypatch):
    """Of some of the samples, if there are many."""
    monkeypatch.setattr(engines, "MOST_SAMPLES", 30)
    X, y = wide_samples(60)
    model = BM2PCAClassifier(loss=HingeLoss(C=2.0), random_state=0).fit(X, y)
    assert model.cv_results_["candidates"] == [{"C": 2.0}]
    assert model.C_ == 2.0
    log_p = model.held_out_log_proba_
    kept = ~np.isnan(log_p).any(axis=1)
    assert kept.sum() == 30
    assert (log_p.argmax(axis=1)[kept] == y[kept]).mean() > 0.9


# ------------------------------------------------------------------------------- costs


def overlapping():
    """Training samples of three classes that overlap, and settings of their fits."""
    rng = np.random.default_rng(5)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 6)) + 1.5 * np.eye(3)[y] @ rng.standard_normal((3, 6))
    settings = FitSettings(n_components=2, multiclass=True, exclusive=True)
    return make_training(X, y), settings


def fitted_scores(training, settings, cost):
    """Held-out class scores of each division, by a fit without each fold."""
    every = [np.full((len(training.keys), 3), np.nan) for _ in training.divisions]
    for fold in training.folds():
        task = Task.of(training, settings, fold)
        out = training.out(fold)
        state = task.fit(cost, tol=1e-12, max_iter=5000).posterior
        A, size = posterior.whiten_with_scale(task.metric, task.known, training.X[out])
        every[fold[0]][out] = state.scores(A) / size
    return every


@pytest.mark.slow
def test_weights_of_costs_are_powers_of_the_held_out_likelihood(monkeypatch):
    """Class scores of all costs have one unit, and log scores are means over the divisions."""
    monkeypatch.setitem(OF_FOLD, "tol", 1e-12)
    monkeypatch.setitem(OF_FOLD, "max_iter", 5000)
    training, settings = overlapping()
    costs = (1.0, 3.0, 0.3)
    found = engines.select(training, settings, costs)
    scores = [fitted_scores(training, settings, cost) for cost in costs]
    assert len(scores[0]) == 2
    size = root_mean_square(np.array(scores))
    grid = LOG_T.mean + LOG_T.sd * np.linspace(-4.0, 4.0, 1001)
    log_prior = norm.logpdf(grid, LOG_T.mean, LOG_T.sd)
    log_prior -= logsumexp(log_prior)
    evidence = []
    for own in scores:
        at = [np.exp(t) * size for t in grid]
        values = [
            np.mean([known_log_p(part / t, training.classes, LAPSE).sum() for part in own])
            for t in at
        ]
        evidence.append(logsumexp(log_prior + np.array(values)))
    np.testing.assert_allclose(found.log_loss, -np.array(evidence) / 60, rtol=1e-3)
    weight = softmax(SHARPNESS * np.array(evidence))
    np.testing.assert_allclose(found.weight, weight, rtol=0.01)
    assert np.log(found.cost) == pytest.approx(weight @ np.log(costs), abs=0.01)
    assert weight.max() < 0.9  # no cost is alone


def third_fold():
    """Training samples, settings, and a fold."""
    X, y = wide_samples()
    training = make_training(X, y)
    settings = FitSettings(n_components=2, multiclass=False, exclusive=True)
    return training, settings, (0, 2)


@pytest.mark.slow
def test_scores_of_a_fold_are_those_of_a_fit_without_it():
    training, settings, fold = third_fold()
    out = training.out(fold)
    alone = replace(
        training,
        X=training.X[~out],
        classes=training.classes[~out],
        keys=training.keys[~out],
        divisions=tuple(own[~out] for own in training.divisions),
        weights=MetricWeights(every=training.metric_weights(fold)),
    )
    task = Task.of(training, settings, fold)
    A = task.metric.whiten(training.X[out])
    plain = Task.of(training, settings).metric.whiten(training.X[out])
    assert not np.array_equal(A, plain)
    for cost in (1.0, 10.0):
        calibration = Calibration()
        fit = engines.fit_all(Task.of(alone, settings), cost, calibration, max_iter=2000)
        expected = fit.posterior.scores(training.X[out])
        state = task.fit(cost, max_iter=2000).posterior
        size = posterior.whiten_with_scale(task.metric, task.known, training.X[out])[1]
        np.testing.assert_allclose(state.scores(A) / size, expected, rtol=1e-6)


def test_a_fit_from_that_of_another_cost_has_the_same_scores():
    training, settings, fold = third_fold()
    task = Task.of(training, settings, fold)
    A = task.metric.whiten(training.X[training.out(fold)])
    tight = {"tol": 1e-14, "max_iter": 5000}
    other = task.fit(10.0, **tight).posterior
    got = task.fit(1.0, other, **tight).posterior.scores(A)
    expected = task.fit(1.0, **tight).posterior.scores(A)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert np.abs(other.scores(A) - expected).max() > 0.01


# --------------------------------------------------------------------------------------- the metric


N, D, K = 60, 12, 3
FIXED = HingeLoss(C=1.0, calibrate=False)


def make_samples(seed=0, n=N, d=D):
    """Classes that differ in two features of different units, with a common factor."""
    rng = np.random.default_rng([61, seed])
    y = np.arange(n) % K
    X = rng.standard_normal((n, d)) + 2.0 * rng.standard_normal((n, 1))
    X[:, :2] += 3.0 * np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])[y]
    return X * np.geomspace(0.3, 3.0, d), y, rng


def make_settings(y):
    return FitSettings(n_components=2, multiclass=y.ndim == 1, exclusive=y.ndim == 1)


@pytest.mark.parametrize(
    "kind", ["unlabelled", "wide", pytest.param("labels", marks=pytest.mark.slow)]
)
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


# ---------------------------------------------------------------------- kinds of samples, labels


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
    # Not moderated, as those of many axes.
    scores = exact._posterior.state.scores_at(exact.transform(new))
    np.testing.assert_allclose(model.decision_function(new), scores, **tight)
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


@pytest.mark.slow
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
    np.testing.assert_allclose(
        posterior.outside(metric, new, metric.whiten(dense)), expected, atol=1e-8
    )
    assert expected.min() > 0.0
