"""Values of new samples that no value of a standardised training sample could have."""

import numpy as np
import pytest

from bsdr_models import BM2PCARegressor
from bsdr_models.numerics.latent import Reference

pytestmark = pytest.mark.filterwarnings("ignore:.* samples are unlike the training samples")

N, LONE = 60, 7


@pytest.fixture(scope="module")
def samples():
    """Three classes; the last feature is 2, but 2.001 in one training sample."""
    rng = np.random.default_rng(3)
    y = np.arange(N + 300) % 3
    X = rng.standard_normal((N + 300, 5)) + 2.0 * np.eye(3)[y] @ rng.standard_normal((3, 5))
    X[:, -1] = 2.0
    X[LONE, -1] = 2.001
    return X[:N], y[:N], X[N:], y[N:]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_beyond_the_bound_are_set_to_it(make_form, samples, sign):
    X, y, new, _ = samples
    model = make_form("default", loss__calibrate=0.5).fit(X, y)
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


def test_the_bound_counts_the_observed_values_of_a_feature(make_form, samples):
    X, y, new, _ = samples
    X, far, at_bound = X.copy(), new[:20].copy(), new[:20].copy()
    X[20:50, -1] = np.nan
    model = make_form("default", loss__calibrate=0.5).fit(X, y)
    seen = X[~np.isnan(X[:, -1]), -1]
    assert len(seen) == 30
    far[:, -1] = 3.0
    at_bound[:, -1] = seen.mean() + seen.std() * np.sqrt(29.0)
    np.testing.assert_allclose(
        model.predict_proba(far), model.predict_proba(at_bound), rtol=1e-9, atol=1e-12
    )


def test_outlier_measures_see_the_values_as_given(make_form, samples):
    X, y, new, _ = samples
    model = make_form("default").fit(X, y)
    far = new[:20].copy()
    far[:, -1] = 3.0
    scaled = (X - model.mean_) / model.scale_
    reference = Reference.learn(scaled, model.components_.T)
    expected = reference.compare((far - model.mean_) / model.scale_)
    found = model.predict_idata(far)["predictions"]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-12, err_msg=name)


@pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
def test_on_a_common_scale_and_in_regression_there_is_no_bound(make_form, samples):
    X, y, new, _ = samples
    far = np.repeat(new[:1], 3, axis=0)
    far[:, -1] = [2.0, 4.0, 6.0]
    models = [
        make_form("paper", standardize=False, max_iter=30).fit(X, y),
        BM2PCARegressor(1).set_params(loss__calibrate=False).fit(X, X[:, :2]),
    ]
    for model in models:
        step = np.diff(model.transform(far), axis=0)
        np.testing.assert_allclose(step[0], step[1], rtol=1e-6)
        assert np.abs(step).max() > 0.0
