"""The metric of the features: what folds know of their samples, and metrics that the user names."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from bsdr_models.dgplvm.fold_metric import FoldMetric, in_metric
from scipy.spatial.distance import cdist

from bsdr_models import DGPLVMClassifier
from bsdr_models.dgplvm.back_constraint import make_mapping
from bsdr_models.dgplvm.settings import Mapping

SETTINGS = {"width": 2.0, "noise": 0.05, "mean_variance": 0.3}


def classes(n=45, d=12, seed=0):
    """Three overlapping classes in scaled features, and names in no order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    X = rng.standard_normal((n, d))
    X[np.arange(n), y] += 1.5
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def folds_of(data):
    make = partial(make_mapping, **SETTINGS)
    parts = data.parts() if data.groups is None else data.group_parts()
    return [part.fold(data.y_index, make) for part in parts]


def fitted(X, y, groups=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return DGPLVMClassifier(random_state=0, **options).fit(X, y, groups=groups)


def lone_value(position=4, value=1e-3):
    """Classes, and a last feature that is zero but in one sample."""
    X, y = classes()
    lone = np.zeros(len(X))
    lone[position] = value
    return np.column_stack([X, lone]), y


def test_values_that_no_training_sample_can_have_are_set_to_the_largest():
    X, y = lone_value()
    model = fitted(X, y)
    largest = X[:, -1].mean() + X[:, -1].std() * np.sqrt(len(X) - 1.0)
    at_bound = X + np.eye(13)[-1] * (largest - X[:, -1:])
    far = X + np.eye(13)[-1] * 1e3
    for method in (model.predict_proba, model.transform):
        np.testing.assert_allclose(method(far), method(at_bound), atol=1e-9)
    assert (model.out_of_range(far) > 0.999).all()
    assert model.out_of_range(at_bound).mean() < 0.9
    tree = model.predict_idata(far)["predictions"]
    np.testing.assert_array_equal(tree["out_of_range"], model.out_of_range(far))


def test_left_out_samples_are_bounded_by_those_of_the_other_folds():
    """A feature with one more value in another fold."""
    X, y = lone_value()
    X[:, -1] = 0.0
    data = FoldMetric.of("auto", X, y, np.ones(13))
    out = np.flatnonzero(data.fold == 0)
    rest = np.flatnonzero(data.fold != 0)
    X[rest[0], -1] = 1.0
    found = []
    largest = X[rest, -1].mean() + X[rest, -1].std() * np.sqrt(len(rest) - 1.0)
    for value in (largest, 1e3):
        X[out[0], -1] = value
        found.append(replace(data, features=X.copy()).parts()[0].cross)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("d", [12, 80])
def test_left_out_samples_do_not_know_their_labels(d, grouped):
    """With other labels of one fold its own mapping is the same, and the others are not.

    For given weights of the metrics, and settings of the mapping.
    """
    X, y = classes(d=d)
    groups = np.arange(len(X)) // 3 if grouped else None
    data = FoldMetric.of("auto", X, y, np.ones(d), groups)
    fold = data.group_fold if grouped else data.fold
    changed = replace(data, y_index=np.where(fold == 1, (y + 1) % 3, y))
    found = [folds_of(each) for each in (data, changed)]
    latent = np.random.default_rng(1).standard_normal((len(X), 2))
    for k, (one, two) in enumerate(zip(*found, strict=True)):
        np.testing.assert_array_equal(one.left_out, np.flatnonzero(fold == k))
        before, after = (each.predict(latent) for each in (one, two))
        assert (np.abs(before - after).max() == 0.0) == (k == 1)
        variance, other = (each.prior.variance(each.covariances) for each in (one, two))
        assert (np.abs(variance - other).max() == 0.0) == (k == 1)


def test_a_fold_predicts_as_the_mapping_of_the_other_samples():
    """By conditioning on the other samples, in the distances of their own metric."""
    X, y = classes()
    data = FoldMetric.of("auto", X, y, np.ones(12))
    latent = np.random.default_rng(1).standard_normal((len(X), 2))
    for k, fold in enumerate(folds_of(data)):
        others = data.fold != k
        Z, rest = data.learn(others).map(X), np.flatnonzero(others)
        squares = cdist(Z, Z, "sqeuclidean")
        among = squares[np.ix_(rest, rest)]
        median = np.median(among[np.triu_indices(len(rest), 1)])
        K = np.exp(-squares / median) + 0.3
        inner = K[np.ix_(rest, rest)] + 0.05 * np.eye(len(rest))
        mean = np.mean([latent[rest][y[rest] == c].mean(axis=0) for c in range(3)], axis=0)
        cross = K[np.ix_(fold.left_out, rest)]
        expected = mean + cross @ np.linalg.solve(inner, latent[rest] - mean)
        np.testing.assert_allclose(fold.predict(latent), expected, atol=1e-8)
        explained = np.einsum("ij,ji->i", cross, np.linalg.solve(inner, cross.T))
        np.testing.assert_allclose(
            fold.prior.variance(fold.covariances), 1.35 - explained, atol=1e-8
        )


@pytest.mark.parametrize("d", [12, 80])
def test_distances_in_the_metric(d):
    """Between training samples and all others, in fewer coordinates than features if D > N."""
    X, y = classes(d=d)
    metric = FoldMetric.of("auto", X[:30], y[:30], np.ones(d)).learn()
    Z = in_metric(metric, X)
    assert Z.shape == (45, min(d, 29) + 1)
    mapped = metric.map(X)
    np.testing.assert_allclose(cdist(Z, Z[:30]), cdist(mapped, mapped[:30]), atol=1e-6)
    np.testing.assert_allclose(np.mean(np.sum(Z[:30] ** 2, axis=1)), 1.0)


@pytest.mark.parametrize("metric", ["unit", "identity"])
def test_metric_that_the_user_names(metric):
    """Units of the features matter to the identity only, and every sample is left out alone."""
    X, y = classes()
    units = np.geomspace(1.0, 100.0, X.shape[1])
    one, other = fitted(X, y, metric=metric), fitted(X * units, y, metric=metric)
    name = {"unit": "unit variance", "identity": "as they are"}[metric]
    assert one.metric_weights_[name] == 1.0
    assert np.all(one._problem.metric.fold == -1)
    change = one.predict_proba(X) - other.predict_proba(X * units)
    assert (np.abs(change).max() < 1e-3) == (metric == "unit")


@pytest.mark.parametrize("metric", ["auto", "unit", "identity"])
def test_derivatives_of_the_mapping(metric):
    """The mean over training samples, in features of unit variance."""
    X, y = classes(d=6)
    units = np.geomspace(0.1, 10.0, 6)
    model, step = fitted(X * units, y, metric=metric), 1e-4
    for d in range(6):
        moved = [model.transform((X + sign * step * np.eye(6)[d]) * units) for sign in (1, -1)]
        slope = (moved[0] - moved[1]).mean(axis=0) / (2.0 * step)
        np.testing.assert_allclose(model.components_[:, d], slope, atol=1e-5)


def test_more_features_than_samples_and_a_class_of_one_sample():
    X, y = classes(n=31, d=200)
    y[0] = 3
    model = fitted(X, y)
    held_out = model._result.held_out_log_proba
    assert np.isnan(held_out[0]).all()
    assert np.isfinite(held_out[1:]).all()
    assert model._problem.metric.fold[0] == -1
    assert np.isfinite(model.predict_proba(X + 100.0)).all()


def test_unlabelled_samples_are_in_every_metric():
    """They determine its axes, and are never left out."""
    X, y = classes(n=60, seed=1)
    given = np.where(np.arange(60) < 30, y, -1)
    model = fitted(X, given, unlabeled=-1)
    data = model._problem.metric
    assert np.all(data.fold[30:] == -1)
    assert np.all(data.fold[:30] >= 0)
    few = fitted(X[:30], y[:30])
    assert np.abs(model._metric.map(X) - few._metric.map(X)).max() > 1e-6
    assert model.score(X[30:], y[30:]) > 0.6


def test_groups_decide_what_is_held_out_and_not_what_the_classifier_is_fitted_to():
    """Of the same metric and mapping; pairs of samples have the same features, but for noise."""
    X, y = classes()
    X = np.concatenate([X, X + 0.01 * np.random.default_rng(2).standard_normal(X.shape)])
    y = np.tile(y, 2)
    options = {"metric": "unit", "mapping": Mapping(width=2.0, noise=0.05)}
    alone = fitted(X, y, **options)
    paired = fitted(X, y, groups=np.arange(len(X)) % 45, **options)
    one, two = (model._posterior.draws[0].classifier.functions for model in (alone, paired))
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-8)
    assert paired.held_out_score_ < alone.held_out_score_ - 0.1
