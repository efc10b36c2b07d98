"""MAP estimation: initialisation, invariances and limits."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import cdist

from bsdr_models import DGPLVMClassifier, DGPLVMPriors
from bsdr_models.dgplvm import map_search
from bsdr_models.dgplvm.back_constraint import centroid_weights
from bsdr_models.dgplvm.back_constraint import make_mapping as mapping_of
from bsdr_models.dgplvm.engines import disagreement, fit_mode
from bsdr_models.dgplvm.left_out import initial_coordinates, whitened_indicators
from bsdr_models.dgplvm.map_search import collapse, fit_map
from bsdr_models.dgplvm.priors import DGPLVMOptimization, LogNormal
from bsdr_models.dgplvm.problem import DGPLVMProblem
from tests.toys import MEAN_VARIANCE, condition_on_others

PRIORS = DGPLVMPriors()


def make_data(n_samples=30, n_features=6, n_classes=3, *, distance=2.0, seed=0):
    """Centred samples about class centres, in no order of the classes."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_samples) % n_classes)
    centres = distance * rng.standard_normal((n_classes, n_features))
    X = centres[y] + rng.standard_normal((n_samples, n_features))
    X = (X - X.mean(axis=0)) / X.std()
    return X, y


@pytest.fixture
def make_task(training_of):
    def task(X, y, *, priors=PRIORS, weight=10.0):
        return DGPLVMProblem(
            X=X,
            y_index=y,
            n_components=min(2, int(y.max())),
            priors=replace(priors, weight=weight),
            training=training_of(X, y),
        )

    return task


def search(task, **options):
    task = replace(task, optimization=DGPLVMOptimization(**options))
    return fit_map(task, np.random.default_rng(0))


def make_mapping(X, y, settings):
    weights = centroid_weights(y)
    return mapping_of(X, weights, width=settings[0], noise=settings[1], mean_variance=MEAN_VARIANCE)


def by_conditioning(X, y, settings, latent):
    """Conditional means of samples, each given all others."""
    options = {"width": settings[0], "noise": settings[1]}
    rows = range(len(X))
    return np.concatenate([condition_on_others(X, y, latent, [i], **options)[0] for i in rows])


# ------------------------------------------------------------------- indicators and initialisation


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_indicators_are_whitened_and_depend_on_the_class_only(n_classes):
    rng = np.random.default_rng(1)
    y = rng.permutation(np.r_[np.arange(n_classes), np.zeros(9, int), np.ones(4, int)])
    y = np.insert(y, [2, 5, 5], -1)
    codes = whitened_indicators(y)
    known = y >= 0
    assert codes.shape == (len(y), n_classes - 1)
    np.testing.assert_allclose(codes[known].mean(axis=0), 0.0, atol=1e-12)
    gram = codes[known].T @ codes[known]
    np.testing.assert_allclose(gram, known.sum() * np.eye(n_classes - 1), atol=1e-10)
    np.testing.assert_array_equal(codes[~known], 0.0)
    for label in range(n_classes):
        np.testing.assert_allclose(np.ptp(codes[y == label], axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_fewer_components_than_indicators_are_the_best_predicted_ones(n_components):
    """No other whitened combinations agree better with their leave-one-out values."""
    X, y = make_data(40, 6, 5, distance=1.0)
    settings = (2.0, 0.03)
    prior = make_mapping(X, y, settings)
    start = initial_coordinates(prior, X, y, n_components)
    codes = whitened_indicators(y)
    left_out = by_conditioning(X, y, settings, codes)
    weights = codes.T @ start / len(y)
    np.testing.assert_allclose(codes @ weights, start, atol=1e-10)
    np.testing.assert_allclose(weights.T @ weights, np.eye(n_components), atol=1e-10)
    agreement = codes.T @ left_out

    def value(directions):
        return np.trace(directions.T @ agreement @ directions)

    rng = np.random.default_rng(2)
    others = [np.linalg.qr(rng.standard_normal((4, n_components)))[0] for _ in range(300)]
    assert value(weights) > max(value(other) for other in others)
    near = [np.linalg.qr(weights + 0.01 * other)[0] for other in others]
    assert value(weights) >= max(value(other) for other in near) - 1e-9


@pytest.mark.parametrize("n_components", [3, 5, 8])
def test_more_components_than_indicators_are_principal_components(n_components):
    X, y = make_data()
    prior = make_mapping(X, y, (2.0, 0.03))
    start = initial_coordinates(prior, X, y, n_components)
    n = len(X)
    np.testing.assert_array_equal(start[:, :2], whitened_indicators(y))
    np.testing.assert_allclose(start.T @ start, n * np.eye(n_components), atol=1e-8)
    np.testing.assert_allclose(start.mean(axis=0), 0.0, atol=1e-10)
    # These are the principal component scores of the residuals of the features.
    rest = X - start[:, :2] @ (start[:, :2].T @ X) / n
    sizes = np.linalg.svd(rest - rest.mean(axis=0), compute_uv=False)
    explained = np.linalg.norm(rest.T @ start[:, 2:], axis=0) / np.sqrt(n)
    np.testing.assert_allclose(explained, sizes[: n_components - 2], rtol=1e-10)


def test_indicators_are_shrunk_halfway_to_leave_one_out_predictions():
    X, y = make_data()
    settings = (2.0, 0.03)
    prior = make_mapping(X, y, settings)
    codes = whitened_indicators(y)
    left_out = by_conditioning(X, y, settings, codes)
    np.testing.assert_allclose(prior.shrink_towards_loo(codes), 0.5 * (codes + left_out), rtol=1e-9)


# ---------------------------------------------------------------------------------- the mode


def aligned(found, expected):
    """Latent coordinates after the best rotation or reflection."""
    rotation, _ = orthogonal_procrustes(found, expected)
    return found @ rotation


@pytest.mark.parametrize("n_classes", [2, 3])
def test_infinite_weight_gives_the_indicators(make_task, n_classes):
    X, y = make_data(n_classes=n_classes)
    limit = search(make_task(X, y, weight=np.inf))
    np.testing.assert_allclose(limit.latent, whitened_indicators(y), atol=1e-12)
    assert limit.terms.criterion < 1e-20
    assert limit.search.converged


def test_large_weights_tend_to_the_limit(make_task):
    X, y = make_data(distance=1.0)
    limit = search(make_task(X, y, weight=np.inf)).latent
    errors = []
    for weight in (1e2, 1e3, 1e4):
        latent = search(make_task(X, y, weight=weight), max_iter=3000).latent
        errors.append(np.abs(aligned(latent, limit) - limit).max())
    assert errors[-1] < 1e-3
    # The distance is inverse to the weight.
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 10.0, rtol=0.2)


def test_labelled_samples_alone_are_whitened(make_task):
    X, y = make_data()
    given = y.copy()
    given[[0, 3, 4, 11, 20]] = -1
    for weight in (10.0, np.inf):
        found = search(make_task(X, given, weight=weight))
        known = found.latent[given >= 0]
        assert found.latent.shape == (30, 2)
        np.testing.assert_allclose(known.mean(axis=0), 0.0, atol=1e-10)
        np.testing.assert_allclose(known.T @ known, 25 * np.eye(2), atol=1e-8)
        # Unlabelled samples are near their class nevertheless.
        centroids = np.stack([found.latent[given == label].mean(axis=0) for label in range(3)])
        nearest = cdist(found.latent[given < 0], centroids).argmin(axis=1)
        assert (nearest == y[given < 0]).mean() >= 0.8


def test_collapse_is_reported_for_priors_without_signal(make_task):
    X, y = make_data()
    none = DGPLVMPriors(signal_variance=LogNormal(1e-3, 0.05), noise_variance=LogNormal(1.0, 0.05))
    assert collapse(search(make_task(X, y))) is None
    assert "explain almost nothing" in collapse(search(make_task(X, y, priors=none)))
    assert "collapsed to a point" in collapse(search(make_task(X, y, weight=np.inf)))
    result = fit_mode(make_task(X, y, priors=none), np.random.default_rng(0))
    assert any("explain almost nothing" in message for message in result.messages)
    # No collapse warning for infinite weight.
    result = fit_mode(make_task(X, y, weight=np.inf), np.random.default_rng(0))
    assert not any("collapsed" in message for message in result.messages)


@pytest.mark.parametrize(
    "weight", [10.0, *(pytest.param(w, marks=pytest.mark.slow) for w in (1.0, 100.0))]
)
def test_all_initialisations_agree_on_wine(make_task, wine, weight):
    X, _, y, _ = wine
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    found = search(make_task(X, y, weight=weight), n_restarts=5)
    assert len(found.search.values) == 5
    assert found.search.share_agreeing == 1.0
    assert np.ptp(found.search.values) < 0.01  # nats
    assert disagreement(found.search) is None


# ------------------------------------------------------------------- many samples


def fitted(X, y, **more):
    return DGPLVMClassifier().set_params(**{"random_state": 0} | more).fit(X, y)


@pytest.mark.parametrize("groups", [np.arange(90) // 6, pytest.param(None, marks=pytest.mark.slow)])
def test_more_samples_than_the_largest_number_are_a_subsample(monkeypatch, groups):
    """The fit is that of the subsample, with the same share of every class, in its order."""
    X, y = make_data(90, 6)
    y = np.array(["c", "a", "b"])[y]
    monkeypatch.setattr(DGPLVMClassifier, "_most_samples", 30)
    model = DGPLVMClassifier(random_state=0).fit(X, y, groups=groups)
    kept = model._context.kept
    assert np.all(np.diff(kept) > 0)
    assert np.all(np.unique(y[kept], return_counts=True)[1] == 10)
    monkeypatch.undo()
    of_kept = None if groups is None else groups[kept]
    alone = DGPLVMClassifier(random_state=0).fit(X[kept], y[kept], groups=of_kept)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    held_out = model.held_out_log_proba_
    np.testing.assert_array_equal(held_out[kept], alone.held_out_log_proba_)
    assert held_out.shape == (90, 3)
    assert np.isnan(np.delete(held_out, kept, axis=0)).all()
    np.testing.assert_array_equal(model.idata_["fit"]["obs"], kept)


def test_unlabelled_samples_fill_the_subsample(monkeypatch):
    X, y = make_data(90, 6)
    given = np.where(np.arange(90) < 12, y, -1)
    monkeypatch.setattr(DGPLVMClassifier, "_most_samples", 30)
    model = DGPLVMClassifier(unlabeled=-1).fit(X, given)
    assert np.all(model._context.kept[:12] == np.arange(12))
    assert len(model._context.kept) == 30
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.slow
@pytest.mark.parametrize("weight", [10.0, np.inf])
def test_fit_of_many_samples_approximates_the_exact_fit(monkeypatch, weight):
    """300 samples: with the density of half of them, and exactly."""
    X, y = make_data(300, 8, distance=1.0)
    exact = fitted(X, y, priors__weight=weight)
    monkeypatch.setattr(map_search, "N_MODELLED", 150)
    some = fitted(X, y, priors__weight=weight)
    np.testing.assert_allclose(some.predict_proba(X), exact.predict_proba(X), atol=0.03)
