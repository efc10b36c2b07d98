"""BM2PCARegressor: density, choice of settings, accuracy."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

from bsdr_models import BM2PCARegressor
from bsdr_models.papers.bm2pca import SAMPLING, regressor
from bsdr_models.papers.bm2pca.regressor import calibration, noise_variance


def quick(**more):
    """A fit without folds."""
    return BM2PCARegressor().set_params(**{"loss__calibrate": False, "random_state": 0} | more)


def low_rank(n, *, d=200, outputs=1, m=400, seed=0):
    """Three components of features and targets: n training and m test samples."""
    rng = np.random.default_rng([11, seed])
    Z = rng.standard_normal((n + m, 3))
    X = Z @ rng.standard_normal((3, d)) + 2.0 * rng.standard_normal((n + m, d))
    Y = Z @ rng.standard_normal((3, outputs)) + 0.5 * rng.standard_normal((n + m, outputs))
    Y = 50.0 + 10.0 * Y
    return X[:n], X[n:], *(np.squeeze(part) for part in (Y[:n], Y[n:]))


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return train_test_split(X, y, train_size=200, random_state=0)


@pytest.fixture(scope="module")
def diabetes_model(diabetes):
    return BM2PCARegressor(random_state=0).fit(diabetes[0], diabetes[2])


@pytest.mark.parametrize("cost", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 2.0])
def test_noise_variance_is_that_of_the_density(cost, epsilon):
    def density(r):
        return np.exp(-2.0 * cost * max(0.0, abs(r) - epsilon)) / (2.0 * epsilon + 1.0 / cost)

    def twice(f):
        far = epsilon + 20.0 / cost
        return 2.0 * (quad(f, 0.0, epsilon)[0] + quad(f, epsilon, far)[0])

    np.testing.assert_allclose(twice(density), 1.0, rtol=1e-9)
    expected = twice(lambda r: r**2 * density(r))
    np.testing.assert_allclose(noise_variance(cost, epsilon), expected, rtol=1e-9)


def draw_noise(rng, cost, epsilon, size):
    """Draws from the density: uniform within epsilon, exponential beyond."""
    inside = rng.random(size) < 2.0 * epsilon / (2.0 * epsilon + 1.0 / cost)
    out = epsilon + rng.exponential(1.0 / (2.0 * cost), size)
    return np.where(
        inside, rng.uniform(-epsilon, epsilon, size), rng.choice([-1.0, 1.0], size) * out
    )


@pytest.mark.slow
def test_predictions_are_moments_of_draws_from_the_fit():
    """Draws of latent coordinates, weights and noise from the fit; 4.5 standard errors."""
    X, new, y, _ = low_rank(40, d=20)
    model = quick(n_components=4, loss__C=2.0, loss__epsilon=0.4).fit(X, y)
    new = new[:3].copy()
    new[:2, 3:15] = np.nan
    mean, std = model.predict(new, return_std=True)
    rng = np.random.default_rng(12)
    z_mean, z_cov = model.transform(new, return_cov=True)
    eta = model._result.posterior.state.weights
    for n in range(3):
        z = rng.multivariate_normal(z_mean[n], z_cov[n], size=200_000)
        w = rng.multivariate_normal(eta.mean[:, 0], eta.cov[0], size=200_000)
        r = draw_noise(rng, 2.0, 0.4, 200_000)
        draws = model.y_mean_ + model.y_scale_ * (w[:, 0] + np.sum(w[:, 1:] * z, axis=1) + r)
        assert abs(draws.mean() - mean[n]) < 4.5 * draws.std() / np.sqrt(200_000)
        square = (draws - mean[n]) ** 2
        error = square.std() / np.sqrt(200_000)
        assert abs(square.mean() - std[n] ** 2) < 4.5 * error
    np.testing.assert_allclose(model.predict(new), mean, rtol=1e-12)
    complete = model.predict(new[2:], return_std=True)
    np.testing.assert_allclose(complete, [mean[2:], std[2:]], rtol=1e-9)


def test_held_out_samples_are_not_in_the_training_set(diabetes, monkeypatch):
    train, _, y, _ = diabetes
    seen, run_sweeps = [], regressor.run_sweeps
    train, y = train[:30], y[:30]

    def record(task, *arguments):
        seen.append(task.X)
        return run_sweeps(task, *arguments)

    monkeypatch.setattr(regressor, "run_sweeps", record)
    BM2PCARegressor(random_state=0).fit(train, y)
    assert [len(X) for X in seen] == [24] * 10  # with both priors
    rows = {row.tobytes() for X in seen for row in X}
    assert len(rows) == 30
    assert sum(len({row.tobytes() for row in X} & rows) for X in seen) == 2 * 4 * 30


def test_calibration_is_slope_and_size_of_residuals():
    rng = np.random.default_rng(15)
    mean = rng.standard_normal((4000, 3))
    Y = mean * [2.5, 1.0, -1.0] + 0.5 * rng.standard_normal((4000, 3))
    Y[1::2, 0] = mean[1::2, 0] = np.nan
    slope, factor = calibration(Y, mean, np.full((4000, 3), 0.25))
    np.testing.assert_allclose(slope, [2.5, 1.0, 0.0], rtol=0.03)  # never reversed
    np.testing.assert_allclose(factor, [1.0, 1.0, np.sqrt(5.0)], rtol=0.03)
    slope, few = calibration(np.array([[10.0]]), np.zeros((1, 1)), np.ones((1, 1)))
    np.testing.assert_array_equal(slope, 1.0)
    np.testing.assert_allclose(few, np.sqrt(101.0 / 2.0))  # one pseudo-residual
    nothing = calibration(np.full((3, 1), np.nan), np.zeros((3, 1)), np.ones((3, 1)))
    np.testing.assert_array_equal(nothing, 1.0)


@pytest.mark.slow
def test_diabetes(diabetes, diabetes_model):
    train, test, y, y_test = diabetes
    ridge = RidgeCV(np.logspace(-3, 3, 13)).fit(train, y).score(test, y_test)
    assert diabetes_model.score(test, y_test) > ridge - 0.03
    mean, std = diabetes_model.predict(test, return_std=True)
    inside = np.abs(y_test - mean) < norm.ppf(0.95) * std
    assert abs(inside.mean() - 0.9) < 0.06
    assert diabetes_model.converged_
    bounds = diabetes_model.lower_bounds_
    assert np.all(np.diff(bounds) >= -1e-7 * np.abs(bounds[:-1]))


def test_pymc_model_has_no_factor_for_missing_targets():
    X, _, Y, _ = low_rank(20, d=6, outputs=2)
    rng = np.random.default_rng(20)
    part = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
    model = quick(n_components=2, priors=SAMPLING).fit(X, part)
    declared = model.model_
    (density,) = declared.logp([declared["y"]], sum=False)
    values = declared.compile_fn(
        density, inputs=declared.value_vars, on_unused_input="ignore", mode="FAST_COMPILE"
    )(declared.initial_point())
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(values == 0.0, np.isnan(part))


def test_missing_values():
    X, new, y, y_new = low_rank(80, d=20)
    rng = np.random.default_rng(17)
    model = quick().fit(np.where(rng.random(X.shape) < 0.2, np.nan, X), y)
    holes = np.where(rng.random(new.shape) < 0.2, np.nan, new)
    full = quick().fit(X, y)
    assert model.score(holes, y_new) > full.score(new, y_new) - 0.1
    less = np.where(np.arange(20) < 16, np.nan, new)
    assert (
        full.predict(less, return_std=True)[1].mean() > full.predict(new, return_std=True)[1].mean()
    )
    assert np.isfinite(model.impute(holes)).all()
    np.testing.assert_array_equal(model.impute(new), new)


def linear_data(seed, *, structured):
    """100 samples, targets of signal to noise 2, and the coefficients; features of 3 factors."""
    rng = np.random.default_rng(seed)
    X, coef = rng.standard_normal((100, 8)), rng.standard_normal(8)
    if structured:
        W = rng.standard_normal((8, 3))
        X = 0.5 * X + rng.standard_normal((100, 3)) @ W.T
        coef = W @ rng.standard_normal(3)
    f = X @ coef
    return X, f + 0.7 * f.std() * rng.standard_normal(100), coef


@pytest.mark.slow
@pytest.mark.parametrize("structured", [True, False])
def test_intervals_of_coefficients_hold_their_share(structured):
    inside = []
    for seed in range(300, 320):
        X, y, coef = linear_data(seed, structured=structured)
        model = BM2PCARegressor(random_state=0).fit(X, y)
        draws = model.idata_["posterior/coef"].values.reshape(-1, 8)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        true = coef * model.scale_ / model.y_scale_
        inside.append((low <= true) & (true <= high))
    assert 0.85 <= np.mean(inside) <= 0.95


@pytest.mark.slow
def test_few_independent_features_are_predicted_like_ridge():
    """Noise of the size of a feature would leave the first component of partial least squares."""
    rng = np.random.default_rng([7, 3])
    X = rng.standard_normal((560, 3))
    signal = X @ rng.standard_normal(3)
    y = signal[:60] + 0.5 * rng.standard_normal(60)
    model = BM2PCARegressor(random_state=0).fit(X[:60], y)
    assert (
        model.score(X[60:], signal[60:]) > RidgeCV().fit(X[:60], y).score(X[60:], signal[60:]) - 0.1
    )
    assert model.transform(X).shape == (560, 3)
