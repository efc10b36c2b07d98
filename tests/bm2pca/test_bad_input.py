"""Invalid input specific to BM2PCA; tests/contract/test_bad_input.py tests all estimators."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from bsdr_models import BM2PCAClassifier, BM2PCARegressor
from bsdr_models.papers.bm2pca import mean_field

pytestmark = pytest.mark.filterwarnings("ignore:R-hat of the identified quantities")

BY_SWEEPS = ("default", "regressor")
every_estimator = pytest.mark.parametrize("name", BY_SWEEPS)


@pytest.fixture(scope="module")
def make(make_form):
    def make(name, **more):
        if name == "regressor":
            return BM2PCARegressor(random_state=0).set_params(loss__calibrate=False, **more)
        return make_form(name, n_components=2 if name == "gibbs" else 10, **more)

    return make


@pytest.fixture(scope="module")
def fitted(iris, make):
    """Every estimator, fitted once to clean data; not to be fitted again."""
    cache = {}

    def fit(name):
        if name not in cache:
            X, y = iris
            cache[name] = make(name).fit(X, target(name, X, y))
        return cache[name]

    return fit


def target(name, X, y):
    """Labels, or a real target for the regressor."""
    return y + 0.3 * np.sin(np.arange(len(y))) if name == "regressor" else y


def with_value(X, value):
    X = X.copy()
    X[3, 1] = value
    return X


REFUSED = {
    "sparse_nan": (
        lambda X: sparse.csr_matrix(with_value(X, np.nan)),
        ValueError,
        "Input X contains NaN",
    ),
    "sparse_inf": (
        lambda X: sparse.csr_matrix(with_value(X, np.inf)),
        ValueError,
        "Input X contains infinity",
    ),
    "sparse_huge": (lambda X: sparse.csr_array(1e200 * X), ValueError, "values too large"),
    "sparse_tiny": (lambda X: sparse.csr_array(1e-160 * X), ValueError, "no value is larger"),
    "sparse_vanishing": (lambda X: sparse.csr_array(1e-200 * X), ValueError, "no value is larger"),
    "sparse_equal": (
        lambda X: sparse.csr_matrix(np.tile(X[:1], (len(X), 1))),
        ValueError,
        "X has no variation",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_invalid_sparse_features_raise(iris, make, kind):
    X, y = iris
    change, error, match = REFUSED[kind]
    bad = change(X)
    model = make("default")
    with pytest.raises(error, match=match):
        model.fit(bad, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("name", ["paper", "gibbs", "regressor"])
def test_the_other_models_refuse_sparse_samples(iris, make, name):
    X, y = iris
    with pytest.raises(TypeError, match="BM2PCAClassifier"):
        make(name).fit(sparse.csr_array(X), y)


@every_estimator
def test_a_sample_without_observed_values_raises(iris, make, name):
    X, y = iris
    X = X.copy()
    X[7] = np.nan
    with pytest.raises(ValueError, match="sample 7 of X has no observed value"):
        make(name).fit(X, target(name, X, y))


def test_an_output_without_any_target_raises(iris):
    X, y = iris
    with pytest.raises(ValueError, match="output 1 of y has no target at all"):
        BM2PCARegressor().fit(X, np.column_stack([y, np.full(len(y), np.nan)]))


@pytest.mark.parametrize("kind", [BM2PCAClassifier, BM2PCARegressor])
def test_too_few_samples_for_cross_validation(iris, assert_finite, kind):
    X, y = iris
    model = kind(random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "class .* has a single sample")
        with pytest.warns(UserWarning, match="not calibrated"):
            model.fit(X[[0, 20, 40]], y[[0, 20, 40]])
    assert_finite(model, X)
    if kind is BM2PCAClassifier:
        assert model.temperature_ == 1.0
    else:
        np.testing.assert_array_equal([model.slope_, model.std_factor_], 1.0)


@every_estimator
def test_predictions_of_incomplete_samples_do_not_depend_on_the_batch(iris, fitted, outputs, name):
    X, model = iris[0].copy(), fitted(name)
    X[::4, 1], X[17, 2:] = np.nan, np.nan
    together = outputs(model, X)
    for n in (0, 16, 17, 44):
        for key, values in outputs(model, X[n : n + 1]).items():
            if key != "predict":
                np.testing.assert_allclose(values[0], together[key][n], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["paper", "regressor"])
def test_an_interrupt_keeps_the_sweeps_so_far(iris, make, assert_finite, interrupt, name):
    X, y = iris
    interrupt(mean_field, "step", 4)
    model = make(name).fit(X, target(name, X, y))
    assert model.interrupted_
    assert not model.converged_
    assert model.n_iter_ == 3
    assert model.idata_.attrs["interrupted"] == 1
    assert_finite(model, X)
