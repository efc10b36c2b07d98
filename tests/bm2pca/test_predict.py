"""Predictions against the full joint normal, and against Monte Carlo draws.

Monte Carlo comparisons are at 4.5 standard errors.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from bsdr_models import BM2PCAClassifier
from bsdr_models.bm2pca.engines import NOISE
from bsdr_models.bm2pca.factor_model import FactorModel, impute, spread_of_missing
from bsdr_models.bm2pca.posterior import SCATTER, whiten_with_scale
from bsdr_models.bm2pca.views import Loadings, Offset, ViewState
from bsdr_models.numerics.factors import Gamma
from bsdr_models.papers.bm2pca.conjugate import MarginPosterior
from bsdr_models.papers.bm2pca.draws import BM2PCADraws
from bsdr_models.papers.factors import NormalColumns

R, K = 3, 2
N_DRAWS = 100_000


def known_view(rng, d, *, spread=0.0):
    """A view with loadings known exactly, or with covariance of scale ``spread``."""
    W = rng.standard_normal((d, R))
    J = 1 if spread == 0.0 else d
    root = spread * rng.standard_normal((J, R, R))
    cov = root @ root.swapaxes(1, 2)
    one = np.ones(R)
    return ViewState(
        loadings=Loadings(mean=W, cov=cov, log_det=np.zeros(J), copies=d // J),
        loading_precision=Gamma(shape=one, rate=one),
        offset=Offset(mean=rng.standard_normal(d), variance=np.zeros(1)),
        noise_precision=Gamma(shape=np.array(rng.gamma(3.0)), rate=np.array(1.0)),
    )


def known_model(rng, layout, **more):
    sizes, columns = zip(*LAYOUTS[layout], strict=True)
    return FactorModel(states=tuple(known_view(rng, d, **more) for d in sizes), columns=columns)


def joint_normal(model, d):
    """Mean and covariance of (z, x), features in their order."""
    mean, cov = np.zeros(R + d), np.zeros((R + d, R + d))
    cov[:R, :R] = np.eye(R)
    columns = [R + (np.arange(d) if c is None else c) for c in model.columns]
    for own, state in zip(columns, model.states, strict=True):
        W = state.loadings.mean
        mean[own] = state.offset.mean
        cov[own, :R], cov[:R, own] = W, W.T
        for across, other in zip(columns, model.states, strict=True):
            cov[np.ix_(own, across)] = W @ other.loadings.mean.T
        cov[own, own] += 1.0 / state.noise_precision.mean
    return mean, cov


def conditional(mean, cov, index, seen, values):
    """Mean and covariance of some coordinates of a normal given others."""
    gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, index)]).T
    return (
        mean[index] + gain @ (values - mean[seen]),
        cov[np.ix_(index, index)] - gain @ cov[np.ix_(seen, index)],
    )


LAYOUTS = {
    "one view": [(7, None)],
    "two views": [(3, np.array([0, 4, 6])), (4, np.array([1, 2, 3, 5]))],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_embedding_and_imputation_are_conditionals_of_the_joint_normal(layout):
    """W, t and tau are known exactly."""
    rng = np.random.default_rng(71)
    model = known_model(rng, layout)
    rows = rng.standard_normal((12, 7))
    rows[3:, :][rng.random((9, 7)) < 0.4] = np.nan
    rows[11] = np.nan
    if layout == "two views":
        rows[10, LAYOUTS[layout][1][1]] = np.nan  # a missing view
    mean, cov = model.embed(model.view(rows))
    filled = impute(model, rows)
    centre, spread = joint_normal(model, 7)
    for n, row in enumerate(rows):
        missing = np.isnan(row)
        values = row[~missing]
        lost, seen = R + np.flatnonzero(missing), R + np.flatnonzero(~missing)
        expected = conditional(centre, spread, np.arange(R), seen, values)
        np.testing.assert_allclose(mean[n], expected[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(cov[n], expected[1], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(filled[n, ~missing], values)
        expected = conditional(centre, spread, lost, seen, values)[0]
        np.testing.assert_allclose(filled[n, missing], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_complete_and_incomplete_algorithms_agree(layout):
    rng = np.random.default_rng(73)
    model, rows = known_model(rng, layout, spread=0.3), rng.standard_normal((5, 7))
    mean, cov = model.embed(model.view(rows))
    beside = model.embed(model.view(np.vstack([rows, np.full((1, 7), np.nan)])))
    np.testing.assert_allclose(mean, beside[0][:5], rtol=1e-10)
    np.testing.assert_allclose(np.tile(cov, (5, 1, 1)), beside[1][:5], rtol=1e-10)
    offset = model.reconstruct(np.zeros((1, R)))
    shifted = (rows - offset) @ model.projection()
    np.testing.assert_allclose(mean, shifted, rtol=1e-10)


def test_covariance_of_class_scores_is_that_of_missing_values():
    """Linear functions of samples, by the joint normal; zero if nothing is missing."""
    rng = np.random.default_rng(77)
    model = known_model(rng, "one view")
    rows = rng.standard_normal((8, 7))
    rows[rng.random(rows.shape) < 0.5] = np.nan
    rows[0] = rng.standard_normal(7)
    rows[1] = np.nan
    effects = rng.standard_normal((7, K))
    found = spread_of_missing(model, rows, effects)
    assert found.shape == (8, K, K)
    centre, cov = joint_normal(model, 7)
    for row, own in zip(rows, found, strict=True):
        missing = np.isnan(row)
        lost, seen = R + np.flatnonzero(missing), R + np.flatnonzero(~missing)
        _, left = conditional(centre, cov, lost, seen, row[~missing])
        expected = effects[missing].T @ left @ effects[missing]
        np.testing.assert_allclose(own, expected, rtol=1e-9, atol=1e-12)


def random_posterior(spread=0.2, seed=74):
    rng = np.random.default_rng(seed)
    root = 0.3 * rng.standard_normal((K, 1 + R, 1 + R))
    weights = NormalColumns(
        mean=rng.standard_normal((1 + R, K)), cov=root @ root.swapaxes(1, 2), log_det=np.zeros(K)
    )
    model = FactorModel(states=(known_view(rng, 7, spread=spread),))
    return rng, MarginPosterior(factor_model=model, state=SimpleNamespace(weights=weights))


def agree(draws, mean, variance=None):
    """Moments of draws, (S, ...), at 4.5 standard errors."""
    n = len(draws)
    error = draws.std(axis=0) / np.sqrt(n)
    assert (np.abs(draws.mean(axis=0) - mean) < 4.5 * error).all()
    if variance is not None:
        square = (draws - mean) ** 2
        error = square.std(axis=0) / np.sqrt(n)
        assert (np.abs(square.mean(axis=0) - variance) < 4.5 * error).all()


@pytest.mark.parametrize("missing", [False, True])
def test_score_moments_are_those_of_draws(missing):
    rng, posterior = random_posterior()
    rows = rng.standard_normal((4, 7))
    if missing:
        rows[1:3, 2:5] = np.nan
    mean, variance = posterior.score_moments(rows)
    assert mean.shape == variance.shape == (4, K)
    model = posterior.factor_model
    w = posterior.state.weights
    centre, cov = model.embed(model.view(rows))
    cov = np.broadcast_to(cov, (4, R, R))
    for n in range(4):
        z = rng.multivariate_normal(centre[n], cov[n], size=N_DRAWS)
        for c in range(K):
            eta = rng.multivariate_normal(w.mean[:, c], w.cov[c], size=N_DRAWS)
            f = eta[:, 0] + np.sum(eta[:, 1:] * z, axis=1)
            agree(f, mean[n, c], variance[n, c])


def test_effects_give_the_mean_score_of_complete_samples():
    """For one draw of all parameters, through the joint normal of z and x."""
    rng, posterior = random_posterior(spread=0.0)
    rows = rng.standard_normal((3, 7))
    eta = posterior.state.weights.mean
    coef, intercept = posterior.effects()
    centre, spread = joint_normal(posterior.factor_model, 7)
    for row in rows:
        z, _ = conditional(centre, spread, np.arange(R), R + np.arange(7), row)
        np.testing.assert_allclose(row @ coef + intercept, eta[0] + z @ eta[1:], rtol=1e-9)


def test_latent_coordinates_of_draws_are_their_conditionals():
    """Means, and covariances within and between draws."""
    rng = np.random.default_rng(75)
    draws = {
        "loadings": rng.standard_normal((1, 5, 7, R)),
        "offset": rng.standard_normal((1, 5, 7)),
        "noise_precision": rng.gamma(3.0, size=(1, 5)),
        "weights": rng.standard_normal((1, 5, R, K)),
        "bias": rng.standard_normal((1, 5, K)),
        "coef": rng.standard_normal((1, 5, 7, K)),
        "intercept": rng.standard_normal((1, 5, K)),
    }
    rows = rng.standard_normal((3, 7))
    found = BM2PCADraws.of(draws, exclusive=True).embed(rows)
    parts = [draws[name][0] for name in ("loadings", "offset", "noise_precision")]
    for n, row in enumerate(rows):
        each = []
        for W, t, tau in zip(*parts, strict=True):
            cov = np.block([[np.eye(R), W.T], [W, W @ W.T + np.eye(7) / tau]])
            centre = np.concatenate([np.zeros(R), t])
            each.append(conditional(centre, cov, np.arange(R), R + np.arange(7), row))
        mean, cov = map(np.array, zip(*each, strict=True))
        np.testing.assert_allclose(found.mean[n], mean.mean(axis=0), rtol=1e-9)
        between = np.cov(mean.T, bias=True)
        np.testing.assert_allclose(found.cov[n], cov.mean(axis=0) + between, rtol=1e-9)


# ------------------------------------------------------------------------- missing values

TARGETS = ("classes", "two classes", "labels")


def correlated_samples(target, n=300):
    """Six features of two factors, on which the targets depend."""
    rng = np.random.default_rng(78)
    Z = rng.standard_normal((n, 2))
    X = Z @ rng.standard_normal((2, 6)) + 0.5 * rng.standard_normal((n, 6))
    scores = 2.0 * Z @ rng.standard_normal((2, 3)) + rng.standard_normal((n, 3))
    if target == "labels":
        return X, (scores > [0.0, 0.5, 1.0]).astype(int)
    return X, scores[:, : 2 if target == "two classes" else 3].argmax(axis=1)


@pytest.fixture(scope="module", params=TARGETS)
def fitted(request):
    """A fit to 200 samples, some values of which are missing, the targets, and new samples."""
    X, y = correlated_samples(request.param)
    train = np.where(np.random.default_rng(79).random((200, 6)) < 0.1, np.nan, X[:200])
    return BM2PCAClassifier(random_state=0).fit(train, y[:200]), y[:200], X[200:]


def test_probabilities_are_averages_over_what_is_missing(fitted):
    """Complete samples are drawn from the joint normal of the features."""
    model, _, new = fitted
    rng = np.random.default_rng(80)
    (state,) = model._imputer.states
    W, t = state.loadings.mean, state.offset.mean
    cov = W @ W.T + np.eye(6) / state.noise_precision.mean
    rows = new[:10].copy()
    rows[:, 1:5] = np.nan
    scaled = (rows - model.mean_) / model.scale_
    expected = []
    seen, lost = np.array([0, 5]), np.arange(1, 5)
    for row in scaled:
        mean, left = conditional(t, cov, lost, seen, row[seen])
        drawn = np.tile(row, (20_000, 1))
        drawn[:, lost] = rng.multivariate_normal(mean, left, size=len(drawn))
        expected.append(model.predict_proba(drawn * model.scale_ + model.mean_).mean(axis=0))
    found = model.predict_proba(rows)
    # The fit averages over few draws, and takes what is missing as it imputes it for their scale.
    np.testing.assert_allclose(found, expected, atol=0.05)
    plugged = model.predict_proba(model.impute(rows))
    assert np.abs(plugged - expected).max() > 0.1
    np.testing.assert_allclose(np.exp(model.predict_log_proba(rows)), found, rtol=1e-12)


def test_probabilities_of_a_sample_without_values_are_the_class_frequencies(fitted):
    model, y, new = fitted
    frequency = y.mean(axis=0) if y.ndim == 2 else np.bincount(y) / len(y)
    rows = np.vstack([new[:2], np.full((1, 6), np.nan), new[2:4]])
    rows[1, 2] = np.nan
    found = model.predict_proba(rows)
    np.testing.assert_allclose(found[2], frequency, rtol=1e-12)
    np.testing.assert_allclose(found[[0, 3, 4]], model.predict_proba(new[[0, 2, 3]]), rtol=1e-12)


# --------------------------------------------------------------------------- Moderated scores


def test_the_scale_of_scores_is_by_the_variance_of_a_regression():
    """Of standard normal functions, given the training samples."""
    rng = np.random.default_rng(90)
    X = rng.standard_normal((12, 20))
    model = BM2PCAClassifier(random_state=0).fit(X, np.arange(12) % 2)
    own = model._posterior
    seen = own.metric.map(model._samples(X))
    new = model._samples(rng.standard_normal((5, 20)))
    mapped = own.metric.map(new)
    by_seen = np.linalg.solve(seen @ seen.T + NOISE * np.eye(12), seen @ mapped.T)
    variance = np.sum(mapped**2, axis=1) - np.sum((mapped @ seen.T) * by_seen.T, axis=1)
    found = whiten_with_scale(own.metric, own.known, new)[1][:, 0]
    # As generalised cross-validation weighs the leverages of the training samples.
    gram = seen @ seen.T
    leverage = np.trace(np.linalg.solve(gram + NOISE * np.eye(12), gram)) / 12
    typical = NOISE * leverage / (1.0 - leverage)
    np.testing.assert_allclose(found**2, (SCATTER + variance) / (SCATTER + typical))
    np.testing.assert_array_equal(whiten_with_scale(own.metric, None, new)[1], 1.0)


def test_a_sample_unlike_the_training_samples_is_less_sure_of_the_same_class():
    rng = np.random.default_rng(91)
    y = np.repeat([0, 1], 20)
    X = rng.standard_normal((40, 60))
    X[:, :3] += 2.0 * y[:, None]
    model = BM2PCAClassifier(random_state=0).fit(X, y)
    sample = np.zeros((1, 60))
    sample[0, :3] = 2.0
    # In a direction of which the class scores tell nothing.
    away = rng.standard_normal((1, 60))
    away -= away @ np.linalg.pinv(model.coef_) @ model.coef_
    p = [model.predict_proba(sample + step * away)[0, 1] for step in (0.0, 0.5, 1.0, 2.0)]
    assert p[0] > p[1] > p[2] > p[3] > 0.5
