"""Estimators of BSDR: threads, decision functions, predictions and their intervals."""

from threading import get_ident

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.special import logit
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from bsdr_models import BSDRClassifier, BSDRRegressor, Sampling
from bsdr_models.bsdr import hmc
from bsdr_models.bsdr.problem import BSDRProblem

SHORT = {
    "sampling__draws": 64,
    "sampling__chains": 1,
    "temperature": 1.0,
    "random_state": 0,
}


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.usefixtures("short_runs")
def test_threads_change_no_bit(monkeypatch, wine_split):
    """With a block for each chain."""
    monkeypatch.setattr(hmc, "_BLOCK", 1.0)
    seen = set()
    original = BSDRProblem.evaluate

    def seeing(self, theta):
        seen.add(get_ident())
        return original(self, theta)

    monkeypatch.setattr(BSDRProblem, "evaluate", seeing)
    options = {"sampling": Sampling(draws=16, chains=4), "random_state": 0}
    X, new, y, _ = wine_split
    alone = BSDRClassifier(**options).fit(X, y)
    assert seen == {get_ident()}
    found = BSDRClassifier(n_jobs=3, **options).fit(X, y)
    assert len(seen) > 3
    assert_array_equal(found.predict_proba(new), alone.predict_proba(new))
    assert_array_equal(
        found.idata_["posterior"]["projection"], alone.idata_["posterior"]["projection"]
    )
    assert found.temperature_ == alone.temperature_


def test_decision_function_of_two_classes_is_the_log_odds(overlapping):
    X, y = overlapping
    labels = np.where(y == 0, "yes", "no")
    model = BSDRClassifier().set_params(**SHORT).fit(X, labels)
    p = model.predict_proba(X)
    np.testing.assert_allclose(
        model.decision_function(X), np.log(p[:, 1] / p[:, 0]), rtol=1e-6, atol=1e-9
    )
    np.testing.assert_array_equal(model.predict(X), np.where(p[:, 1] > 0.5, "yes", "no"))


def test_decision_function_of_label_sets_is_the_log_odds(overlapping):
    X, y = overlapping
    Y = np.stack([y == 0, y != 2, X[:, 0] > 0.0], axis=1).astype(int)
    model = BSDRClassifier().set_params(**SHORT).fit(X, Y)
    p = model.predict_proba(X)
    assert not np.allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(model.decision_function(X), logit(p), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), p > 0.5)
    assert model.score(X, Y) == ((p > 0.5) == Y).all(axis=1).mean() > 0.7


def test_shrinkage_of_noisy_outputs():
    """Better than least squares for five outputs of few samples."""
    rng = np.random.default_rng(95)
    X = rng.standard_normal((330, 12))
    clean = 5.0 + X @ rng.standard_normal((12, 2)) @ rng.standard_normal((2, 5))
    Y = clean + 3.0 * rng.standard_normal(clean.shape)
    model = BSDRRegressor(random_state=0).fit(X[:30], Y[:30])
    plain = LinearRegression().fit(X[:30], Y[:30])
    error = np.mean((model.predict(X[30:]) - clean[30:]) ** 2)
    assert error < 0.85 * np.mean((plain.predict(X[30:]) - clean[30:]) ** 2)
    assert model.predict(X).shape == (330, 5)
    np.testing.assert_allclose(model.y_mean_, Y[:30].mean(axis=0))
    np.testing.assert_allclose(model.y_scale_, Y[:30].std(axis=0))


def test_predictive_intervals_have_their_coverage():
    rng = np.random.default_rng(96)
    X = rng.standard_normal((660, 5))
    y = 100.0 + 10.0 * (X @ rng.standard_normal(5) + rng.standard_normal(660))
    model = BSDRRegressor(random_state=0).fit(X[:60], y[:60])
    mean, std = model.predict(X[60:], return_std=True)
    assert r2_score(y[60:], mean) > 0.5
    inside = np.abs(y[60:] - mean) < norm.ppf(0.95) * std
    assert abs(inside.mean() - 0.9) < 4.0 * np.sqrt(0.09 / 600) + 0.02
    np.testing.assert_array_equal(model.predict(X[60:]), mean)
