"""Values of new samples that no value of a standardised training sample could have."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from bsdr_models import BM2PCAClassifier, BM2PCAOptimization, BM2PCARegressor, load
from bsdr_models.numerics.outliers import Reference
from bsdr_models.papers import PaperBM2PCAClassifier

KINDS = ("label_free", "paper")
N, LONE = 60, 7


def quick(kind, **more):
    """A fit without cross-validation."""
    model = BM2PCAClassifier(metric_scale=10.0)
    if kind == "paper":
        model = PaperBM2PCAClassifier(optimization=BM2PCAOptimization(n_sweeps=5))
    settings = {"loss__C": 10.0, "loss__calibrate": 0.5, "random_state": 0}
    return model.set_params(**settings | more)


@pytest.fixture(scope="module")
def samples():
    """Three classes; the last feature is 2, but 2.001 in one training sample."""
    rng = np.random.default_rng(3)
    y = np.arange(N + 300) % 3
    X = rng.standard_normal((N + 300, 5)) + 2.0 * np.eye(3)[y] @ rng.standard_normal((3, 5))
    X[:, -1] = 2.0
    X[LONE, -1] = 2.001
    return X[:N], y[:N], X[N:], y[N:]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_beyond_the_bound_are_set_to_it(samples, kind, sign):
    X, y, new, _ = samples
    model = quick(kind).fit(X, y)
    at_bound, far, further = new[:20].copy(), new[:20].copy(), new[:20].copy()
    at_bound[:, -1] = X[:, -1].mean() + sign * X[:, -1].std() * np.sqrt(N - 1.0)
    far[:, -1], further[:, -1] = 2.0 + 0.1 * sign, 2.0 + 1e9 * sign
    for method in ("predict_proba", "decision_function", "transform"):
        expected = getattr(model, method)(at_bound)
        np.testing.assert_allclose(getattr(model, method)(far), expected, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(getattr(model, method)(further), expected, rtol=1e-9, atol=1e-9)
    assert np.abs(model.transform(far) - model.transform(new[:20])).max() > 1e-3
    tree = model.predict_idata(far)["predictions"]
    np.testing.assert_allclose(tree["latent_mean"], model.transform(at_bound), atol=1e-9)
    np.testing.assert_allclose(tree["probability"], model.predict_proba(at_bound), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_training_samples_keep_the_bound_and_are_unchanged(samples, kind):
    """The lone value attains the bound, so that a smaller one would move it."""
    X, y, _, _ = samples
    model = quick(kind).fit(X, y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(np.abs(scaled).max(), scaled[LONE, -1])
    np.testing.assert_allclose(scaled[LONE, -1], np.sqrt(N - 1.0))
    shift = model.transform(X) - scaled @ model.components_.T
    np.testing.assert_allclose(shift, np.tile(shift[:1], (N, 1)), atol=1e-9)


def test_the_bound_counts_the_observed_values_of_a_feature(samples):
    X, y, new, _ = samples
    X, far, at_bound = X.copy(), new[:20].copy(), new[:20].copy()
    X[20:50, -1] = np.nan
    model = quick("paper").fit(X, y)
    seen = X[~np.isnan(X[:, -1]), -1]
    assert len(seen) == 30
    far[:, -1] = 3.0
    at_bound[:, -1] = seen.mean() + seen.std() * np.sqrt(29.0)
    np.testing.assert_allclose(
        model.predict_proba(far), model.predict_proba(at_bound), rtol=1e-9, atol=1e-12
    )


def test_missing_values_are_imputed_from_bounded_ones(samples):
    X, y, new, _ = samples
    model = quick("label_free").fit(X, y)
    far, at_bound = new[:20].copy(), new[:20].copy()
    far[:, 0] = at_bound[:, 0] = np.nan
    far[:, -1] = 3.0
    at_bound[:, -1] = X[:, -1].mean() + X[:, -1].std() * np.sqrt(N - 1.0)
    np.testing.assert_allclose(model.transform(far), model.transform(at_bound), atol=1e-9)


def test_outlier_measures_see_the_values_as_given(samples):
    X, y, new, _ = samples
    model = quick("label_free").fit(X, y)
    far = new[:20].copy()
    far[:, -1] = 3.0
    scaled = (X - model.mean_) / model.scale_
    reference, _ = Reference.learn(scaled, model.components_.T)
    expected = reference.compare((far - model.mean_) / model.scale_)
    found = model.predict_idata(far)["predictions"]
    for name, values in expected.by_name().items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_a_feature_do_not_matter(samples, unit):
    X, y, new, _ = samples
    far = new.copy()
    far[::2, -1] = 3.0
    units = np.array([1.0, unit, 1.0, 1.0, unit])
    expected = quick("label_free").fit(X, y).predict_proba(far)
    found = quick("label_free").fit(X * units, y).predict_proba(far * units)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_on_a_common_scale_and_in_regression_there_is_no_bound(samples):
    X, y, new, _ = samples
    far = np.repeat(new[:1], 3, axis=0)
    far[:, -1] = [2.0, 4.0, 6.0]
    models = [quick("label_free", standardize=False).fit(X, y), BM2PCARegressor(1).fit(X, X[:, :2])]
    for model in models:
        step = np.diff(model.transform(far), axis=0)
        np.testing.assert_allclose(step[0], step[1], rtol=1e-6)
        assert np.abs(step).max() > 0.0


def test_the_bound_is_that_of_the_last_fit_and_is_saved(samples, tmp_path):
    X, y, new, _ = samples
    far = new[:20].copy()
    far[:, -1] = 3.0
    model = quick("label_free").fit(X, y)
    expected = model.predict_proba(far)
    model.save(tmp_path / "model.skops")
    np.testing.assert_array_equal(load(tmp_path / "model.skops").predict_proba(far), expected)
    model.set_params(standardize=False).fit(X, y)
    fresh = quick("label_free", standardize=False).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(far), fresh.predict_proba(far))
    model.set_params(standardize=True).fit(X[:30], y[:30])
    at_bound = far.copy()
    at_bound[:, -1] = X[:30, -1].mean() + X[:30, -1].std() * np.sqrt(29.0)
    np.testing.assert_allclose(
        model.predict_proba(far), model.predict_proba(at_bound), rtol=1e-9, atol=1e-12
    )


def test_a_feature_that_hardly_varies_in_training_does_not_ruin_the_log_loss(samples, monkeypatch):
    """Ten such features, large in a tenth of the new samples whatever their class."""
    X, y, new, y_new = samples
    rng = np.random.default_rng(0)
    rare = np.zeros((N, 10))
    rare[rng.permutation(N)[:10], np.arange(10)] = 0.01
    common = np.where(rng.random((len(new), 10)) < 0.1, rng.random((len(new), 10)), 0.0)
    model = BM2PCAClassifier(random_state=0).fit(np.hstack([X, rare]), y)
    found = log_loss(y_new, model.predict_proba(np.hstack([new, common])))
    monkeypatch.setattr(model, "_largest", None)
    unbounded = log_loss(y_new, model.predict_proba(np.hstack([new, common])))
    assert found < 1.0 < np.log(3.0) < unbounded
