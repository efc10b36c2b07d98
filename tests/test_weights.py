"""A sample of weight two is two samples, in each part of a fit and in the whole; of zero, none.

Parts are compared exactly with those of repeated samples, and fits within their Monte Carlo error,
as draws and divisions of repeated samples are others.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from bsdr_models import (
    BM2PCAClassifier,
    BSDRClassifier,
    BSDRRegressor,
    HingeLoss,
    Sampling,
    StackedClassifier,
)
from bsdr_models.bm2pca import model as bm2pca_model
from bsdr_models.bm2pca import subspace
from bsdr_models.bm2pca.posterior import SparseMetric
from bsdr_models.bsdr import leapfrog
from bsdr_models.bsdr.feature_map import FeatureMap
from bsdr_models.bsdr.model import declare_hierarchical
from bsdr_models.bsdr.posterior import Coordinates
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import BSDRProblem
from bsdr_models.compare.stacking import pool_weights
from bsdr_models.estimators.calibration import TemperaturePrior, judge
from bsdr_models.learned_metric import weights as metric_weights
from bsdr_models.learned_metric.metric import ClassBasis, Metric, named_weights
from bsdr_models.numerics.latent import relevance
from bsdr_models.numerics.scaling import Scaler, largest_scaled
from tests.toys import FAST, random_values

# Few samples are warned of.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

N = 30


def draw(d=4, seed=0):
    """Samples (N, D) of three overlapping classes, with positive integer weights."""
    rng = np.random.default_rng(seed)
    y = np.arange(N) % 3
    X = 1.5 * rng.standard_normal((3, d))[y] + rng.standard_normal((N, d))
    return X, y, 1.0 + rng.integers(0, 3, N)


def repeated(weights, *values):
    """Values of samples as often as their weights say."""
    return (np.repeat(each, weights.astype(int), axis=0) for each in values)


def labels_of(y):
    return np.stack([y > 0, y % 2 == 1], axis=1).astype(int)


# Parts


def test_scaling():
    X, _, weights = draw()
    (again,) = repeated(weights, X)
    found, expected = Scaler.fit(X, weights=weights), Scaler.fit(again)
    assert_allclose(found.location, expected.location)
    assert_allclose(found.scale, expected.scale)
    weights[0] = 1.0
    (again,) = repeated(weights, X)
    assert_allclose(largest_scaled(X, weights), largest_scaled(again))
    assert_allclose(relevance(X, np.eye(4), weights), relevance(again, np.eye(4)))


@pytest.mark.parametrize("d", [4, 50])
@pytest.mark.parametrize("several", [False, True])
def test_metric(d, several):
    """Prior covariance of whitened features, also with more features than repeated samples."""
    X, y, weights = draw(d)
    y = labels_of(y) if several else y
    X_again, y_again = repeated(weights, X, y)
    units = np.linspace(0.5, 2.0, d)
    share = N / weights.sum()
    candidates = named_weights("auto")
    found = Metric.learn(X, ClassBasis.of(y, share, weights), candidates, units)
    expected = Metric.learn(X_again, ClassBasis.of(y_again, share), candidates, units)
    assert_allclose(found.mean, expected.mean)
    products = [own.effects @ own.effects.T for own in (found, expected)]
    assert_allclose(*products, atol=1e-8 * np.abs(products[1]).max())
    found = SparseMetric.learn(csr_array(X), weights)
    assert_allclose(found.gain, SparseMetric.learn(X_again, np.ones(len(X_again))).gain)


@pytest.mark.parametrize("d", [4, 100])
@pytest.mark.parametrize("several", [False, True])
def test_losses_that_weigh_the_candidates_of_the_metric(monkeypatch, d, several):
    """But for the width of the radial basis functions, whose median copies are no part of."""
    monkeypatch.setattr(metric_weights, "_median", lambda squares, weights: 2.0)
    X, y, weights = draw(d)
    y = labels_of(y) if several else y[:, None]
    share = N / weights.sum()
    units = np.linspace(0.5, 2.0, d)
    fold = np.arange(N) // 3 % 3
    X_again, y_again, fold_again = repeated(weights, X, y, fold)
    found = metric_weights._Division.of(X, y, units, fold, share, weights)
    expected = metric_weights._Division.of(X_again, y_again, units, fold_again, share)
    assert_allclose(found.losses(), expected.losses(), rtol=1e-6)
    assert_allclose(found.losses_without(), expected.losses_without(), rtol=1e-6)


def test_median_is_that_of_pairs_of_different_samples():
    X, _, weights = draw()
    squares = np.sum((X[:, None] - X) ** 2, axis=2)
    i, j = np.nonzero(~np.eye(N, dtype=bool))
    (pairs,) = repeated(weights[i] * weights[j], squares[i, j])
    expected = np.sort(pairs)[len(pairs) // 2]
    for unit in (1.0, 0.01):  # only ratios of weights count
        assert metric_weights._median(squares, unit * weights) == pytest.approx(expected)
    every = metric_weights._median(squares, None)
    assert metric_weights._median(squares, np.ones(N)) == every


@pytest.mark.parametrize("several", [False, True])
def test_calibration_and_held_out_score(several):
    _, y, weights = draw()
    y = labels_of(y) if several else y
    values = np.random.default_rng(1).standard_normal((N, y.shape[-1] if several else 3))
    folds = np.arange(N) // 3 % 4

    def link(f, temperature):
        f = np.stack([0.0 * f, f], axis=-1) if several else f
        f = f / temperature
        return f - np.log(np.exp(f).sum(axis=-1, keepdims=True))

    prior = TemperaturePrior(mean=0.0, sd=0.5)
    groups = np.arange(N)
    share = N / weights.sum()
    found = judge([values], y, [folds], link, prior, share=share, groups=groups, weights=weights)
    v, again, f, g = repeated(weights, values, y, folds, groups)
    expected = judge([v], again, [f], link, prior, share=share, groups=g)
    for name in ("temperature", "signal", "log_frequency"):
        one, other = (getattr(own.calibration, name) for own in (found, expected))
        assert_allclose(one, other)
    for name in ("score", "gain", "gain_se"):
        assert getattr(found.score, name) == pytest.approx(getattr(expected.score, name))


def bsdr_problems(target, seed=0):
    """A weighted problem, and that of repeated samples."""
    X, y, weights = draw(seed=seed)
    y = {"multiclass": y, "multilabel": labels_of(y) > 0, "regression": X[:, :2] + X[:, 2:]}[target]
    k = 3 if target == "multiclass" else 2
    of = BSDRProblem(
        X=X, y=y, n_labels=k, target=target, priors=HierarchicalPriors(), weights=weights
    )
    X, y = repeated(weights, X, y)
    return of, replace(of, X=X, y=y, weights=None)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_density_and_coordinates_of_bsdr(target):
    found, expected = bsdr_problems(target)
    theta = 0.5 * np.random.default_rng(2).standard_normal((5, found.n_parameters))
    for one, other in zip(found.log_density(theta), expected.log_density(theta), strict=True):
        assert_allclose(one, other)
    assert_allclose(found.curvature(theta).sum(axis=0), expected.curvature(theta).sum(axis=0))
    in_trajectories = []
    for problem in (found, expected):
        value = np.empty((len(problem.X), 5), np.float32)
        gradient = np.empty(theta.shape, np.float32)
        leapfrog.evaluate(problem.single, problem.y, theta.astype(np.float32), value, gradient)
        in_trajectories.append([value.sum(axis=0), gradient])
    for one, other in zip(*in_trajectories, strict=True):
        assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    coordinates = [
        Coordinates.learn(
            own.X, own.y, target, own.parameters(theta, rng=np.random.default_rng(0)), own.weights
        )
        for own in (found, expected)
    ]
    for name in ("axes", "shift", "share", "maps"):
        assert_allclose(*(getattr(own, name) for own in coordinates), atol=1e-8)


def assert_same_density(*models):
    points = [random_values(each, seed=3, size=1.0) for each in models]
    first, second = (each.compile_logp(**FAST)(at) for each, at in zip(models, points, strict=True))
    assert first == pytest.approx(second)


@pytest.mark.parametrize("target", ["multiclass", "regression"])
def test_pymc_model_of_bsdr(target):
    found, expected = bsdr_problems(target)
    metric = Metric.learn(found.X, ClassBasis.one(N), named_weights("unit"), np.ones(4))
    models = [
        declare_hierarchical(
            problem.X,
            problem.y,
            problem.priors,
            target,
            FeatureMap(maps=(metric,)),
            list("abcd"),
            sample_weight=problem.weights,
        )
        for problem in (found, expected)
    ]
    assert_same_density(*models)


@pytest.mark.parametrize(("multiclass", "several"), [(0, 0), (0, 1), (1, 0)])
def test_subspace_of_bm2pca(multiclass, several):
    X, y, weights = draw()
    signs = subspace.signs_of(labels_of(y) if several else y, 3)
    found = X, signs * weights[:, None]
    expected = tuple(repeated(weights, X, signs))
    settings = subspace.Settings(cost=0.7, multiclass=bool(multiclass))
    states = [subspace.initial_state(*own, 2, settings) for own in (found, expected)]
    size = [np.abs(own.packed) for own in states]  # components up to their signs
    assert_allclose(*size, rtol=1e-6, atol=1e-8)
    at = states[1]
    values = [subspace.objective(at, *own, settings) for own in (found, expected)]
    assert values[0][0] == pytest.approx(values[1][0])
    assert_allclose(values[0][1].packed, values[1][1].packed)
    for covariance in (subspace.weight_covariance, subspace.projection_covariance):
        assert_allclose(*(covariance(at, *own, settings) for own in (found, expected)))


@pytest.mark.parametrize("multiclass", [False, True])
def test_pymc_model_of_bm2pca(multiclass):
    X, y, weights = draw()
    signs = subspace.signs_of(y, 3)
    metric = Metric.learn(X, ClassBasis.one(N), named_weights("unit"), np.ones(4))
    settings = subspace.Settings(cost=0.7, multiclass=multiclass)
    models = [
        bm2pca_model.declare(
            samples,
            targets,
            {"feature": range(4), "outcome": range(3)},
            metric=metric,
            settings=settings,
            n_components=2,
        )
        for samples, targets in ((X, signs * weights[:, None]), repeated(weights, X, signs))
    ]
    assert_same_density(*models)


def test_weights_of_a_stack():
    _, y, weights = draw()
    log_p = np.log(np.random.default_rng(5).dirichlet(np.ones(3), (2, N)))
    found = pool_weights(log_p, y, counts=weights)
    again, y = repeated(weights, log_p.swapaxes(0, 1), y)
    assert_allclose(found, pool_weights(again.swapaxes(0, 1), y), rtol=1e-4)


# Fits

EXACT = BM2PCAClassifier(metric="unit", loss=HingeLoss(C=1.0, calibrate=False))
LAPLACE = BSDRClassifier(inference="laplace", random_state=0)
SAMPLED = BSDRClassifier(
    metric="unit", temperature=1.0, sampling=Sampling(draws=400, chains=2), random_state=0
)


@pytest.mark.parametrize(
    ("model", "several", "tolerance"),
    [
        pytest.param(EXACT, False, 1e-4, id="BM2PCA"),
        pytest.param(EXACT, True, 1e-4, id="BM2PCA, labels"),
        pytest.param(LAPLACE, False, 0.06, id="BSDR, Laplace"),
        pytest.param(SAMPLED, False, 0.1, id="BSDR", marks=pytest.mark.slow),
        pytest.param(SAMPLED, True, 0.1, id="BSDR, labels", marks=pytest.mark.slow),
    ],
)
def test_weights_are_repeated_samples(model, several, tolerance):
    """Effects and probabilities; without weights these differ by 1.5 times the tolerance.

    Of BSDR the tolerance is the largest difference between fits with other seeds.
    """
    X, y, weights = draw()
    weights[::5] = 0.0
    weights[1::3] *= 2.0
    y = labels_of(y) if several else y
    new = 2.0 * np.random.default_rng(6).standard_normal((50, 4))
    found = model.fit(X, y, sample_weight=weights).predict_proba(new)
    coef = model.coef_
    expected = model.fit(*repeated(weights, X, y)).predict_proba(new)
    assert np.abs(found - expected).max() < tolerance
    assert_allclose(coef, model.coef_, atol=2.0 * tolerance * np.abs(coef).max())
    unweighted = model.fit(X, y).predict_proba(new)
    assert np.abs(found - unweighted).max() > 1.5 * tolerance


@pytest.mark.parametrize("model", [EXACT, LAPLACE, BSDRRegressor(random_state=0)])
def test_a_weight_of_zero_is_a_sample_left_out(model):
    """The same bits; samples keep their names and places."""
    X, y, weights = draw()
    weights[[2, 7, 9]] = 0.0
    used = np.flatnonzero(weights)
    table = pd.DataFrame(X, columns=list("abcd"), index=[f"s{i}" for i in range(N)])
    y = X[:, 0] + np.sin(np.arange(N)) if isinstance(model, BSDRRegressor) else y
    found = model.fit(table, y, sample_weight=weights).predict(X)
    coef = model.coef_
    assert model.idata_["fit"]["obs"].values.tolist() == table.index[used].tolist()
    assert_allclose(model.idata_["fit"]["sample_weight"], weights[used])
    assert model.model_ is not None
    expected = model.fit(table.iloc[used], y[used], sample_weight=weights[used]).predict(X)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(coef, model.coef_)


def test_held_out_predictions_have_the_places_of_the_samples():
    X, y, weights = draw()
    weights[[0, 4]] = 0.0
    fixed = BM2PCAClassifier(loss=HingeLoss(C=1.0), random_state=0)
    model = clone(fixed).fit(X, y, sample_weight=weights)
    assert np.flatnonzero(np.isnan(model.held_out_log_proba_).all(axis=1)).tolist() == [0, 4]
    members = [("a", fixed), ("b", LogisticRegression())]
    stack = StackedClassifier(members, random_state=0).fit(X, y, sample_weight=weights)
    assert np.flatnonzero(np.isnan(stack.held_out_log_proba_).all(axis=1)).tolist() == [0, 4]
    frequency = np.bincount(y, weights) / weights.sum()
    for fitted in (model, stack):
        assert_allclose(fitted.idata_["fit"]["class_frequency"], frequency)


def test_weights_of_outputs_are_counts():
    """Also of equal samples, which without weights count once."""
    X, _, weights = draw()
    y = X[:, 0] + np.sin(np.arange(N))
    model = BSDRRegressor(random_state=0)
    sd = []
    for unit in (1.0, 25.0):
        coef = model.fit(X, y, sample_weight=unit * weights).idata_["posterior"]["coef"]
        sd.append(float(coef.std(("chain", "draw")).mean()))
    assert sd[1] == pytest.approx(sd[0] / 5.0, rel=0.1)


BAD = {
    "negative": (EXACT, {"weights": -np.ones(N)}, ValueError, "sample_weight"),
    "of other samples": (EXACT, {"weights": np.ones(N - 1)}, ValueError, "sample_weight"),
    "no numbers": (EXACT, {"weights": np.full(N, np.nan)}, ValueError, "NaN"),
    "none": (EXACT, {"weights": np.eye(N)[0]}, ValueError, "zero for all samples, or all but one"),
    "one class": (EXACT, {"weights": (np.arange(N) % 3 == 1) * 1.0}, ValueError, "one class only"),
    "missing values": (EXACT, {"missing": True}, ValueError, "impute"),
    "no labels": (BM2PCAClassifier(unlabeled=-1), {}, ValueError, "unlabeled"),
    "kernel": (BSDRClassifier(kernel="rbf"), {}, ValueError, "linear kernel"),
    "views": (BSDRClassifier(views={"a": [0, 1], "b": [2, 3]}), {}, ValueError, "views"),
    "member": (StackedClassifier(), {}, TypeError, "member 'dgplvm', DGPLVMClassifier"),
    "own member": (
        StackedClassifier([("a", EXACT), ("near", KNeighborsClassifier())]),
        {},
        TypeError,
        "member 'near', KNeighborsClassifier",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case):
    model, given, error, message = BAD[case]
    X, y, weights = draw()
    if "missing" in given:
        X[0, 0] = np.nan
    with pytest.raises(error, match=message):
        model.fit(X, y, sample_weight=given.get("weights", weights))


def test_weights_in_another_order_than_the_samples_are_refused():
    X, y, weights = draw()
    table = pd.DataFrame(X, index=np.arange(N))
    other = pd.Series(weights, index=np.arange(N)[::-1])
    with pytest.raises(ValueError, match="another order"):
        EXACT.fit(table, y, sample_weight=other)


def test_sparse_samples():
    X, y = load_iris(return_X_y=True)
    X = csr_array(np.maximum(X[::5] - 2.0, 0.0))
    y = y[::5]
    weights = 1.0 + np.arange(N) % 3
    model = BM2PCAClassifier(metric="identity", loss=HingeLoss(C=1.0, calibrate=False))
    found = model.fit(X, y, sample_weight=weights).predict_proba(X)
    rows = np.repeat(np.arange(N), weights.astype(int))
    assert_allclose(found, model.fit(X[rows], y[rows]).predict_proba(X), atol=1e-5)
