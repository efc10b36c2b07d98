"""BM2PCARegressor: density, choice of settings, accuracy."""

import json
import warnings

import numpy as np
import pymc as pm
import pytest
from scipy import sparse
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bsdr_models import BM2PCAPriors, BM2PCARegressor, BSDRRegressor, EpsilonInsensitiveLoss
from bsdr_models.bm2pca import regressor
from bsdr_models.bm2pca.regressor import calibration, loss_settings, noise_variance
from bsdr_models.bm2pca.spec import SAMPLING


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


# ---------------------------------------------------------------------------------- density


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


def test_limits_of_the_variance():
    """epsilon = 0 is a Laplace density of rate 2 C, infinite C a uniform one."""
    np.testing.assert_allclose(noise_variance(3.0, 0.0), 2.0 / 6.0**2)
    np.testing.assert_allclose(noise_variance(1e9, 0.7), 1.4**2 / 12.0)


def draw_noise(rng, cost, epsilon, size):
    """Draws from the density: uniform within epsilon, exponential beyond."""
    inside = rng.random(size) < 2.0 * epsilon / (2.0 * epsilon + 1.0 / cost)
    out = epsilon + rng.exponential(1.0 / (2.0 * cost), size)
    return np.where(
        inside, rng.uniform(-epsilon, epsilon, size), rng.choice([-1.0, 1.0], size) * out
    )


@pytest.mark.parametrize("missing", [False, True])
def test_predictions_are_moments_of_draws_from_the_fit(missing):
    """Draws of latent coordinates, weights and noise from the fit; 4.5 standard errors."""
    X, new, y, _ = low_rank(40, d=20)
    model = quick(n_components=4, loss__C=2.0, loss__epsilon=0.4).fit(X, y)
    new = new[:3].copy()
    if missing:
        new[:2, 3:15] = np.nan
    mean, std = model.predict(new, return_std=True)
    rng = np.random.default_rng(12)
    z_mean, z_cov = model.transform(new, return_cov=True)
    eta = model._result.posterior.state.weights
    for n in range(3):
        z = rng.multivariate_normal(z_mean[n], z_cov[n], size=200_000)
        w = rng.multivariate_normal(eta.mean[0, :, 0], eta.cov[0, 0], size=200_000)
        r = draw_noise(rng, 2.0, 0.4, 200_000)
        draws = model.y_mean_ + model.y_scale_ * (w[:, 0] + np.sum(w[:, 1:] * z, axis=1) + r)
        assert abs(draws.mean() - mean[n]) < 4.5 * draws.std() / np.sqrt(200_000)
        square = (draws - mean[n]) ** 2
        error = square.std() / np.sqrt(200_000)
        assert abs(square.mean() - std[n] ** 2) < 4.5 * error
    np.testing.assert_allclose(model.predict(new), mean, rtol=1e-12)


# ------------------------------------------------------------------------------ settings


def test_candidates():
    assert loss_settings(EpsilonInsensitiveLoss(C=3.0, epsilon=0)) == [(3.0, 0.0)]
    costs = loss_settings(EpsilonInsensitiveLoss(C="cv", epsilon=0.2))
    assert costs == [(cost, 0.2) for cost in regressor.COSTS]
    both = loss_settings(EpsilonInsensitiveLoss(C="cv", epsilon="cv"))
    assert len(both) == len(regressor.COSTS) * len(regressor.EPSILONS)


def test_cross_validation_takes_the_smallest_error(diabetes):
    train, _, y, _ = diabetes
    model = BM2PCARegressor(loss=EpsilonInsensitiveLoss(C="cv", epsilon="cv"), random_state=0).fit(
        train, y
    )
    errors = model.cv_results_["squared_error"]
    assert (model.C_, model.epsilon_) == model.cv_results_["settings"][int(errors.argmin())]
    assert 0.4 < errors.min() < 0.8  # of unit variance
    attrs = model.idata_.attrs
    assert (attrs["C"], attrs["epsilon"]) == (model.C_, model.epsilon_)


def test_held_out_samples_are_not_in_the_training_set(diabetes, monkeypatch):
    train, _, y, _ = diabetes
    seen, run_sweeps = [], regressor.run_sweeps

    def record(task, *arguments):
        seen.append(task.X)
        return run_sweeps(task, *arguments)

    monkeypatch.setattr(regressor, "run_sweeps", record)
    BM2PCARegressor(random_state=0).fit(train, y)
    assert [len(X) for X in seen] == [160] * 5
    rows = {row.tobytes() for X in seen for row in X}
    assert len(rows) == 200
    assert sum(len({row.tobytes() for row in X} & rows) for X in seen) == 4 * 200


def test_calibration_is_the_size_of_standardised_residuals():
    rng = np.random.default_rng(14)
    Y, variance = 3.0 * rng.standard_normal((4000, 2)) * [1.0, 2.0], np.ones((4000, 2))
    Y[::3, 0] = np.nan
    slope, got = calibration(Y, np.zeros((4000, 2)), variance)
    np.testing.assert_array_equal(slope, 1.0)
    np.testing.assert_allclose(got, [3.0, 6.0], rtol=0.05)
    _, few = calibration(np.array([[10.0]]), np.zeros((1, 1)), np.ones((1, 1)))
    np.testing.assert_allclose(few, np.sqrt(101.0 / 2.0))  # one pseudo-residual
    nothing = calibration(np.full((3, 1), np.nan), np.zeros((3, 1)), np.ones((3, 1)))
    np.testing.assert_array_equal(nothing, 1.0)


def test_slope_is_that_of_targets_on_predictions():
    rng = np.random.default_rng(15)
    mean = rng.standard_normal((4000, 3))
    Y = mean * [2.5, 1.0, -1.0] + 0.5 * rng.standard_normal((4000, 3))
    Y[1::2, 0] = mean[1::2, 0] = np.nan
    slope, factor = calibration(Y, mean, np.full((4000, 3), 0.25))
    np.testing.assert_allclose(slope, [2.5, 1.0, 0.0], rtol=0.03)  # never reversed
    np.testing.assert_allclose(factor, [1.0, 1.0, np.sqrt(5.0)], rtol=0.03)


def test_calibration_only_rescales(diabetes, diabetes_model):
    train, test, y, _ = diabetes
    plain = quick().fit(train, y)
    mean, std = diabetes_model.predict(test, return_std=True)
    plain_mean, plain_std = plain.predict(test, return_std=True)
    centre = diabetes_model.y_mean_
    np.testing.assert_allclose(mean - centre, (plain_mean - centre) * diabetes_model.slope_)
    np.testing.assert_array_equal(diabetes_model.predict(test), mean)
    assert plain.slope_ == plain.std_factor_ == 1.0
    assert 0.8 < diabetes_model.slope_[0] < 1.2
    np.testing.assert_allclose(std, plain_std * diabetes_model.std_factor_)
    assert 0.8 < diabetes_model.std_factor_[0] < 1.5


# ---------------------------------------------------------------------------- accuracy


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


def test_fewer_rows_than_features():
    scores = []
    for seed in range(4):
        X, new, y, y_new = low_rank(40, seed=seed)
        scaler = StandardScaler().fit(X)
        pls = PLSRegression(3).fit(scaler.transform(X), y)
        model = BM2PCARegressor(random_state=0).fit(X, y)
        scores.append((model.score(new, y_new), pls.score(scaler.transform(new), y_new)))
    ours, theirs = np.mean(scores, axis=0)
    assert ours > theirs - 0.02
    assert ours > 0.6


def test_convergence_predicts_no_worse_than_few_sweeps(diabetes, diabetes_model):
    """Unlike the classifier, a converged regressor does not overfit."""
    train, test, y, y_test = diabetes
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mean field stopped after max_iter=3")
        early = quick(optimization__max_iter=3).fit(train, y)
    assert early.score(test, y_test) < diabetes_model.score(test, y_test)


def test_seed_and_order_of_samples_do_not_matter(diabetes):
    """The initial values are functions of the data, and so is the optimum that they lead to."""
    train, test, y, _ = diabetes
    order = np.random.default_rng(5).permutation(len(y))
    one, other = (
        BM2PCARegressor(random_state=seed).fit(train[index], y[index])
        for seed, index in ((0, slice(None)), (1, order))
    )
    assert abs(one.lower_bounds_[-1] - other.lower_bounds_[-1]) < 0.01
    np.testing.assert_allclose(one.predict(test), other.predict(test), atol=1e-3 * y.std())


@pytest.mark.slow
def test_accuracy_matches_ridge_and_bsdr():
    """About as accurate as ridge and BSDR, with calibrated intervals."""
    X, y = load_diabetes(return_X_y=True)
    for n in (50, 200):
        scores, inside = [], []
        for seed in range(5):
            train, test, y_train, y_test = train_test_split(X, y, train_size=n, random_state=seed)
            scaler = StandardScaler().fit(train)
            ridge = RidgeCV(np.logspace(-3, 5, 33)).fit(scaler.transform(train), y_train)
            bsdr = BSDRRegressor(2, random_state=0).fit(train, y_train)
            model = BM2PCARegressor(random_state=0).fit(train, y_train)
            scores.append(
                (
                    model.score(test, y_test),
                    ridge.score(scaler.transform(test), y_test),
                    bsdr.score(test, y_test),
                )
            )
            mean, std = model.predict(test, return_std=True)
            inside.append(np.mean(np.abs(y_test - mean) < norm.ppf(0.95) * std))
        ours, *others = np.mean(scores, axis=0)
        assert ours > max(others) - 0.03
        assert abs(np.mean(inside) - 0.9) < 0.06


def independent_features(seed, n=60, d=20, m=500):
    """Three relevant features of many."""
    rng = np.random.default_rng([12, seed])
    X = rng.standard_normal((n + m, d))
    y = X[:, :3] @ [1.0, -1.0, 0.5] + 0.6 * rng.standard_normal(n + m)
    return X[:n], X[n:], y[:n], y[n:]


def log_densities(X, new, y, y_new):
    """Mean of new targets by this model, and by ridge regression with a held-out deviation."""
    mean, std = BM2PCARegressor(random_state=0).fit(X, y).predict(new, return_std=True)
    ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 5, 33)))
    deviation = np.std(y - cross_val_predict(ridge, X, y, cv=5))
    of_ridge = norm.logpdf(y_new, ridge.fit(X, y).predict(new), deviation)
    return norm.logpdf(y_new, mean, std).mean(), of_ridge.mean()


@pytest.mark.slow
def test_ridge_is_better_only_without_low_dimensional_structure():
    structured = [log_densities(*low_rank(40, seed=seed)) for seed in range(4)]
    ours, theirs = np.mean(structured, axis=0)
    assert ours > theirs - 0.02
    ours, theirs = np.mean(
        [log_densities(*independent_features(seed)) for seed in range(4)], axis=0
    )
    assert theirs - 0.5 < ours < theirs - 0.2


# ---------------------------------------------------------------------- outputs and attributes


def test_several_outputs_share_a_subspace():
    X, new, Y, Y_new = low_rank(40, outputs=4)
    model = BM2PCARegressor(random_state=0).fit(X, Y)
    mean, std = model.predict(new, return_std=True)
    assert mean.shape == std.shape == (400, 4)
    assert model.score(new, Y_new) > 0.6
    np.testing.assert_allclose(model.y_mean_, Y.mean(axis=0))
    np.testing.assert_allclose(model.y_scale_, Y.std(axis=0))
    assert model.std_factor_.shape == (4,)
    inside = np.abs(Y_new - mean) < norm.ppf(0.95) * std
    assert (np.abs(inside.mean(axis=0) - 0.9) < 0.1).all()


def test_fitted_attributes(diabetes, diabetes_model):
    train = diabetes[0]
    model = diabetes_model
    assert model.components_.shape == (10, 10)
    assert model.n_iter_ == len(model.lower_bounds_)
    assert (model.C_, model.epsilon_) == (regressor.COST, regressor.EPSILON)
    assert model.cv_results_ is None
    np.testing.assert_allclose(model.relevance_.sum(), 1.0)
    scaled = (train - model.mean_) / model.scale_
    shift = model.transform(train) - scaled @ model.components_.T
    np.testing.assert_allclose(shift, np.tile(shift[:1], (200, 1)), atol=1e-9)
    config = json.loads(model.idata_.attrs["config"])
    assert config["loss"]["C"] == regressor.COST


def test_arguments_are_used(diabetes):
    train, _, y, _ = diabetes
    priors = BM2PCAPriors(weight_rate=2.0)
    model = quick(loss__C=5.0, loss__epsilon=0.0, n_components=3, priors=priors).fit(train, y)
    assert (model.C_, model.epsilon_) == (5.0, 0.0)
    assert model.transform(train).shape == (200, 3)
    assert json.loads(model.idata_.attrs["config"])["priors"]["weight_rate"] == 2.0


def test_progressbar(diabetes, capsys):
    train, _, y, _ = diabetes
    quick().fit(train, y)
    assert capsys.readouterr().out == ""
    quick(progressbar=True).fit(train, y)
    assert "BM2PCA" in capsys.readouterr().out


def test_pymc_model_has_no_factor_for_missing_targets():
    X, _, Y, _ = low_rank(20, d=6, outputs=2)
    rng = np.random.default_rng(20)
    part = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
    model = quick(n_components=2, priors=SAMPLING).fit(X, part)
    margins = pm.draw(model.model_["margins"], random_seed=0)
    assert np.isfinite(margins).all()
    np.testing.assert_array_equal(margins == 0.0, np.isnan(part))


# ---------------------------------------------------------------------------- missing data


def test_a_target_at_the_mean_is_not_missing():
    """It is zero after scaling, which for signs would mean a missing label."""
    rng = np.random.default_rng(15)
    X = rng.standard_normal((31, 4))
    y = X[:, 0] + 0.1 * rng.standard_normal(31)
    y[0] = y[1:].mean()
    X[0] *= 20.0
    model = quick().fit(X, y)
    np.testing.assert_allclose(model._task.Y[0], 0.0, atol=1e-12)
    assert model._task.observed.all()
    without = np.where(np.arange(31) == 0, np.nan, y)
    assert not np.allclose(model.predict(X), quick().fit(X, without).predict(X), atol=1e-3)


def test_samples_without_a_target_improve_the_subspace():
    """Ten targets, 300 samples."""
    alone, helped = [], []
    for seed in range(4):
        X, new, y, y_new = low_rank(300, d=100, seed=seed)
        few = np.where(np.arange(300) < 10, y, np.nan)
        arguments = {"n_components": 3}
        alone.append(quick(**arguments).fit(X[:10], y[:10]).score(new, y_new))
        helped.append(quick(**arguments).fit(X, few).score(new, y_new))
    assert np.mean(helped) > np.mean(alone) + 0.05


def test_seed_does_not_matter_beside_unlabelled_samples():
    """The start beside targets is a function of the features of all samples."""
    X, new, y, _ = low_rank(40, seed=0)
    X, y = np.r_[X, new], np.r_[y, np.full(len(new), np.nan)]
    one, *others = (quick(random_state=seed).fit(X, y) for seed in range(3))
    for other in others:
        assert abs(one.lower_bounds_[-1] - other.lower_bounds_[-1]) < 0.01


def test_partially_known_outputs():
    X, new, Y, Y_new = low_rank(80, d=30, outputs=3)
    rng = np.random.default_rng(16)
    part = np.where(rng.random(Y.shape) < 0.4, np.nan, Y)
    model = BM2PCARegressor(random_state=0).fit(X, part)
    assert model.score(new, Y_new) > quick().fit(X, Y).score(new, Y_new) - 0.1
    np.testing.assert_allclose(model.y_mean_, np.nanmean(part, axis=0))


def test_missing_values():
    X, new, y, y_new = low_rank(80, d=30)
    rng = np.random.default_rng(17)
    model = BM2PCARegressor(random_state=0).fit(np.where(rng.random(X.shape) < 0.2, np.nan, X), y)
    holes = np.where(rng.random(new.shape) < 0.2, np.nan, new)
    full = BM2PCARegressor(random_state=0).fit(X, y)
    assert model.score(holes, y_new) > full.score(new, y_new) - 0.1
    less = np.where(np.arange(30) < 25, np.nan, new)
    assert (
        full.predict(less, return_std=True)[1].mean() > full.predict(new, return_std=True)[1].mean()
    )
    assert np.isfinite(model.impute(holes)).all()


def test_views():
    X, new, y, y_new = low_rank(80, d=30)
    loud = 20.0 * np.random.default_rng(18).standard_normal((480, 30))
    views = ["good"] * 30 + ["loud"] * 30
    model = BM2PCARegressor(views=views, standardize=False, random_state=0)
    model.fit(np.hstack([X, loud[:80]]), y)
    rows = np.hstack([new, loud[80:]])
    assert model.score(rows, y_new) > 0.5
    rows[:, 30:] = np.nan
    assert model.score(rows, y_new) > 0.5


def test_sparse_samples():
    rng = np.random.default_rng(19)
    X = np.where(rng.random((80, 200)) < 0.2, rng.random((80, 200)), 0.0)
    y = X[:, :20].sum(axis=1) + 0.1 * rng.standard_normal(80)
    model = BM2PCARegressor(random_state=0).fit(sparse.csr_matrix(X), y)
    mean, std = model.predict(sparse.csc_array(X), return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0.0).all()
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-9)
    assert model.score(sparse.csr_matrix(X), y) > 0.5


def test_predictions_as_a_tree(diabetes, diabetes_model):
    _, test, _, y_test = diabetes
    tree = diabetes_model.predict_idata(test[:7], y_test[:7])
    mean, std = diabetes_model.predict(test[:7], return_std=True)
    group = tree["predictions"]
    np.testing.assert_array_equal(group["prediction"].values[:, 0], mean)
    np.testing.assert_array_equal(group["prediction_sd"].values[:, 0], std)
    np.testing.assert_array_equal(group["y"], y_test[:7])
    with pytest.raises(ValueError, match="y has 6 samples, X has 7"):
        diabetes_model.predict_idata(test[:7], y_test[:6])
