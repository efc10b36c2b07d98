"""Ordinary dirt: a clear error that names the cause, or a finite result. Never NaN.

The table is the one of rivals' behaviour in the design notes; every row goes to every estimator.
Warnings are errors here, but for those that a row is meant to give and those that say why so short
a fit is not the last word.
"""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.metrics import log_loss

from bsdr_models import BSDRClassifier, BSDRRegressor, MNPClassifier
from bsdr_models.bsdr import sampling
from bsdr_models.bsdr.priors import Priors

pytestmark = [
    pytest.mark.filterwarnings("ignore:mean field stopped after max_iter=(15|30)"),
    pytest.mark.filterwarnings("ignore:R-hat of the identified quantities"),
]

FEW_DRAWS = {"inference": "gibbs", "draws": 30, "tune": 30, "chains": 2}
CLASSIFIERS = {
    "mean_field": lambda **more: BSDRClassifier(max_iter=15, random_state=0, **more),
    "paper": lambda **more: BSDRClassifier(preset="paper", max_iter=30, random_state=0, **more),
    "gibbs": lambda **more: BSDRClassifier(**FEW_DRAWS, random_state=0, **more),
    "mnp": lambda **more: MNPClassifier(max_iter=30, **more),
}
ESTIMATORS = {
    **CLASSIFIERS,
    "regressor": lambda **more: BSDRRegressor(max_iter=15, random_state=0, **more),
}
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_classifier = pytest.mark.parametrize("name", CLASSIFIERS)


@pytest.fixture(scope="module")
def iris():
    """15 rows of each class."""
    X, y = load_iris(return_X_y=True)
    rows = np.r_[0:15, 50:65, 100:115]
    return X[rows], y[rows]


@pytest.fixture(scope="module")
def fitted(iris):
    """Every estimator, fitted once to rows without dirt; not to be fitted again."""
    cache = {}

    def fit(name):
        if name not in cache:
            X, y = iris
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                cache[name] = ESTIMATORS[name]().fit(X, target(name, X, y))
        return cache[name]

    return fit


def target(name, X, y):
    """Labels, or a real target for the regressor."""
    return y + 0.3 * np.sin(np.arange(len(y))) if name == "regressor" else y


def outputs(model, X):
    """Everything a model says about rows."""
    found = {"predict": model.predict(X)}
    if hasattr(model, "predict_proba"):
        found["proba"] = model.predict_proba(X)
        np.testing.assert_allclose(found["proba"].sum(axis=1), 1.0)
        found["log_proba"] = model.predict_log_proba(X)
        found["decision"] = model.decision_function(X)
    else:
        found["std"] = model.predict(X, return_std=True)[1]
        assert (found["std"] > 0.0).all()
    if hasattr(model, "transform"):
        found["mean"], found["cov"] = model.transform(X, return_cov=True)
        assert np.linalg.eigvalsh(found["cov"]).min() > 0.0
        found["components"] = model.components_
    return found


def assert_finite(model, X):
    for name, values in outputs(model, X).items():
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), name


def with_value(X, value):
    X = X.copy()
    X[3, 1] = value
    return X


# ------------------------------------------------------------------------- refused, and why

REFUSED = {
    "nan": (lambda X: with_value(X, np.nan), ValueError, "Input X contains NaN"),
    "inf": (lambda X: with_value(X, np.inf), ValueError, "Input X contains infinity"),
    "rows_equal": (lambda X: np.tile(X[:1], (len(X), 1)), ValueError, "X has no variation"),
    "one_axis": (lambda X: X[:, 0], ValueError, "(?s)1D array.*[Rr]eshape"),
    "three_axes": (lambda X: X[:, :, None], ValueError, "dim 3"),
    "no_rows": (lambda X: X[:0], ValueError, "0 sample"),
    "one_row": (lambda X: X[:1], ValueError, "1 sample"),
    "no_features": (lambda X: X[:, :0], ValueError, "0 feature"),
    "complex": (lambda X: X + 1j, ValueError, "Complex data not supported"),
    "text": (lambda X: np.where(X > 3.0, "high", X.astype(object)), ValueError, "high"),
    "sparse": (sparse.csr_matrix, TypeError, "Sparse data was passed for X"),
}


@pytest.mark.parametrize("kind", REFUSED)
@every_estimator
def test_features_are_refused(iris, name, kind):
    X, y = iris
    change, error, match = REFUSED[kind]
    bad = change(X)
    model = ESTIMATORS[name]()
    with pytest.raises(error, match=match):
        model.fit(bad, target(name, X, y)[: bad.shape[0]])
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("kind", [k for k in REFUSED if k not in ("rows_equal", "one_row")])
@every_estimator
def test_new_rows_are_refused(iris, fitted, name, kind):
    change, error, match = REFUSED[kind]
    with pytest.raises(error, match=match):
        fitted(name).predict(change(iris[0]))


@every_estimator
def test_targets_of_another_length_are_refused(iris, name):
    X, y = iris
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ESTIMATORS[name]().fit(X, target(name, X, y)[:-1])


@pytest.mark.parametrize(
    ("value", "match"), [(np.nan, "Input y contains NaN"), (np.inf, "Input y contains infinity")]
)
@every_estimator
def test_targets_that_are_not_finite_are_refused(iris, name, value, match):
    X, y = iris
    bad = target(name, X, y).astype(float)
    bad[4] = value
    with pytest.raises(ValueError, match=match):
        ESTIMATORS[name]().fit(X, bad)


@every_estimator
def test_missing_targets_are_refused(iris, name):
    X, y = iris
    bad = target(name, X, y).astype(object)
    bad[4] = None
    with pytest.raises(ValueError, match=r"contains NaN|Unknown label type"):
        ESTIMATORS[name]().fit(X, bad)


@every_estimator
def test_complex_targets_are_refused(iris, name):
    X, y = iris
    with pytest.raises(ValueError, match="Complex data not supported"):
        ESTIMATORS[name]().fit(X, y + 1j)


@every_classifier
def test_one_class_is_refused_by_name(iris, name):
    X, _ = iris
    with pytest.raises(ValueError, match="one class only, 'ham'"):
        CLASSIFIERS[name]().fit(X, np.full(len(X), "ham"))


@every_classifier
def test_real_labels_are_refused_with_a_hint(iris, name):
    X, y = iris
    with pytest.raises(ValueError, match=r"continuous.*regression"):
        CLASSIFIERS[name]().fit(X, y + 0.5)


def test_a_constant_output_is_refused_by_number(iris):
    X, y = iris
    with pytest.raises(ValueError, match="output 1 of y is constant"):
        BSDRRegressor().fit(X, np.column_stack([y, np.ones(len(y))]))


def test_a_label_that_never_changes_is_refused_by_number(iris):
    X, y = iris
    on = np.column_stack([y == 0, y == 1, y >= 0]).astype(int)
    with pytest.raises(ValueError, match="label 2 of y is the same in every row"):
        BSDRClassifier().fit(X, on)


def test_labels_of_two_columns_are_refused(iris):
    X, y = iris
    with pytest.raises(ValueError, match="1d array"):
        BSDRClassifier().fit(X, np.column_stack([y, y]))


@every_estimator
def test_too_few_features_are_refused_with_both_numbers(iris, fitted, name):
    with pytest.raises(ValueError, match=r"has 3 features.*expecting 4 features"):
        fitted(name).predict(iris[0][:, :3])


@pytest.mark.parametrize("library", ["pandas", "polars"])
@every_estimator
def test_columns_in_another_order_are_refused(iris, name, library):
    X, y = iris
    columns = ["a", "b", "c", "d"]
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library]

    def make(order, names=None):
        return frame(
            {name: X[:, columns.index(c)] for name, c in zip(names or order, order, strict=True)}
        )

    model = ESTIMATORS[name]().fit(make(columns), target(name, X, y))
    assert model.feature_names_in_.tolist() == columns
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(make(["b", "a", "c", "d"]))
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*- e"):
        model.predict(make(columns, ["a", "b", "c", "e"]))


@every_estimator
def test_nothing_works_before_the_fit(iris, name):
    X, _ = iris
    model = ESTIMATORS[name]()
    for method in ("predict", "predict_proba", "transform", "decision_function", "predict_idata"):
        if hasattr(model, method):
            with pytest.raises(NotFittedError):
                getattr(model, method)(X)
    for attribute in ("idata_", "model_"):
        if name != "mnp":
            with pytest.raises(NotFittedError):
                getattr(model, attribute)


@pytest.mark.parametrize("name", ["mean_field", "paper", "gibbs", "regressor"])
@pytest.mark.parametrize("n_components", [5, 99])
def test_more_components_than_features_are_refused(iris, name, n_components):
    X, y = iris
    with pytest.raises(ValueError, match=f"n_components={n_components} .*n_features=4"):
        ESTIMATORS[name](n_components=n_components).fit(X, target(name, X, y))


BAD_ARGUMENTS = [
    ("n_components", 0),
    ("n_components", 1.5),
    ("n_components", True),
    ("n_components", "two"),
    ("preset", "best"),
    ("inference", "em"),
    ("projection_prior", "sparse"),
    ("latent_scale", 0.0),
    ("latent_scale", -1.0),
    ("latent_scale", np.nan),
    ("latent_scale", np.inf),
    ("latent_scale", "learn"),
    ("latent_scale", [0.1, 1.0]),
    ("priors", "paper"),
    ("priors", {"projection_shape": 1.0}),
    ("start", "zeros"),
    ("n_restarts", 0),
    ("max_iter", -3),
    ("tol", -1e-3),
    ("tol", np.nan),
    ("tol", "small"),
    ("draws", 0),
    ("tune", -1),
    ("chains", 2.0),
]


@pytest.mark.parametrize("kind", [BSDRClassifier, BSDRRegressor])
@pytest.mark.parametrize(("argument", "value"), BAD_ARGUMENTS)
def test_bad_arguments_are_named_at_fit(iris, kind, argument, value):
    """And not in ``__init__``, where scikit-learn allows storing only."""
    model = kind(**{argument: value})
    with pytest.raises(ValueError, match=argument):
        model.fit(*iris)


def test_samplers_need_a_number_for_the_latent_scale(iris):
    with pytest.raises(ValueError, match="latent_scale='stack' needs inference='mean_field'"):
        BSDRClassifier(inference="gibbs", latent_scale="stack").fit(*iris)


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, "1", True, None])
def test_bad_hyper_parameters_are_named(value):
    with pytest.raises(ValueError, match="weight_rate must be a positive finite number"):
        Priors(weight_rate=value)


def test_a_bad_random_state_is_named(iris):
    with pytest.raises(TypeError, match="random_state"):
        BSDRClassifier(random_state="seed").fit(*iris)


@every_estimator
def test_a_failed_fit_leaves_nothing_of_the_last_one(iris, name):
    X, y = iris
    model = ESTIMATORS[name]().fit(X, target(name, X, y))
    with pytest.raises(ValueError, match="no variation"):
        model.fit(np.ones_like(X), target(name, X, y))
    with pytest.raises(NotFittedError):
        model.predict(X)


@every_estimator
def test_rows_beyond_computing_are_refused_by_column(iris, fitted, name):
    X, model = iris[0], fitted(name)
    with pytest.raises(ValueError, match="column 1 holds values too large"):
        model.predict(with_value(X, 1e200))
    assert_finite(model, with_value(X, 1e60))
    assert_finite(model, with_value(X, -1e60))


# --------------------------------------------------------------------- accepted, and finite

ACCEPTED = {
    "duplicate_columns": lambda X: np.column_stack([X, X]),
    "collinear_columns": lambda X: np.column_stack([X, X.sum(axis=1), X[:, 0] - X[:, 1]]),
    "scale_1e200": lambda X: X * 1e200,
    "scale_1e-200": lambda X: X * 1e-200,
    "largest_floats": lambda X: X / X.max() * 1.7e308,
    "mixed_scales": lambda X: X * np.array([1e12, 1e-12, 1.0, 1e200]),
    "offset_1e6": lambda X: X + 1e6,
    "object_dtype": lambda X: X.astype(object),
    "numbers_as_text": lambda X: X.astype(str).astype(object),
    "bool": lambda X: np.median(X, axis=0) < X,
    "integers": lambda X: (10 * X).astype(np.int32),
    "float32": lambda X: X.astype(np.float32),
    "fortran_order": np.asfortranarray,
    "nested_lists": lambda X: X.tolist(),
}


@pytest.mark.parametrize("kind", ACCEPTED)
@every_estimator
def test_features_are_accepted(iris, name, kind):
    X, y = iris
    X = ACCEPTED[kind](X)
    y = target(name, X, y)
    model = ESTIMATORS[name]().fit(X, y)
    assert_finite(model, X)
    assert model.score(X, y) > (0.65 if kind == "bool" else 0.75)
    if hasattr(model, "transform"):
        assert model.transform(X).dtype == np.float64


@pytest.mark.parametrize("kind", ["scale_1e200", "scale_1e-200", "mixed_scales", "largest_floats"])
@pytest.mark.parametrize("name", ["mean_field", "mnp"])
def test_units_do_not_matter(iris, fitted, name, kind):
    X, y = iris
    expected = fitted(name).predict_proba(X)
    scaled = ACCEPTED[kind](X)
    got = ESTIMATORS[name]().fit(scaled, y).predict_proba(scaled)
    np.testing.assert_allclose(got, expected, atol=1e-3)


@every_estimator
def test_a_constant_column_is_ignored_with_one_warning(iris, fitted, name):
    X, y = iris
    y = target(name, X, y)
    constant = np.insert(X, 2, 0.1, axis=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = ESTIMATORS[name]().fit(constant, y)
    messages = [str(w.message) for w in caught if w.category is UserWarning]
    assert messages == ["1 of 5 features are constant in the training rows and are ignored"]
    assert_finite(model, constant)
    elsewhere = np.insert(X, 2, 1e8, axis=1)  # what it is in new rows cannot matter
    np.testing.assert_array_equal(model.predict(elsewhere), model.predict(constant))
    if name in ("mnp", "mean_field"):
        plain = fitted(name).predict_proba(X)
        np.testing.assert_allclose(model.predict_proba(constant), plain, atol=0.02)


@every_estimator
def test_two_rows(iris, name):
    X, y = iris
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "class 0 has a single row")
        warnings.filterwarnings("ignore", "the targets are not predictable")
        model = ESTIMATORS[name]().fit(X[[0, 20]], target(name, X, y)[[0, 20]])
    assert_finite(model, X)


@pytest.mark.parametrize("signal", [0.0, 3.0])
@every_estimator
def test_many_more_features_than_rows(name, signal):
    rng = np.random.default_rng(81)
    y = np.arange(12) % 2
    X = rng.standard_normal((12, 500))
    X[:, :50] += signal * y[:, None]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the targets are not predictable")
        model = ESTIMATORS[name]().fit(X, target(name, X, y))
    assert_finite(model, X)
    new = rng.standard_normal((40, 500))
    new[:, :50] += signal * (np.arange(40) % 2)[:, None]
    assert_finite(model, new)
    if signal and name != "regressor":
        assert model.score(new, np.arange(40) % 2) > 0.8


@pytest.mark.parametrize("name", ["mean_field", "paper", "mnp", "regressor"])
def test_features_are_never_squared(name):
    """D = 5000: an array of D x D numbers would take 200 MB."""
    rng = np.random.default_rng(82)
    y = np.arange(15) % 3
    X = rng.standard_normal((15, 5000))
    X[:, :200] += y[:, None]
    tracemalloc.start()
    try:
        model = ESTIMATORS[name]().fit(X, target(name, X, y))
        model.predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50e6
    if hasattr(model, "transform"):
        model.transform(X, return_cov=True)
        assert model.idata_["posterior/projection"].sizes["feature"] == 5000


@every_classifier
def test_a_class_of_one_row_is_kept_with_a_warning(iris, name):
    X, y = iris
    y = np.append(y[:-1], 7)
    with pytest.warns(UserWarning, match="class 7 has a single row"):
        model = CLASSIFIERS[name]().fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert_finite(model, X)


@every_classifier
def test_classes_of_one_row_each(iris, name):
    X, y = iris
    with pytest.warns(UserWarning, match="has a single row"):
        model = CLASSIFIERS[name]().fit(X[[0, 20, 40]], y[[0, 20, 40]])
    assert_finite(model, X)


LABELS = {
    "minus_one": np.array([-1, 0, 1]),
    "text": np.array(["a", "b", "c"]),
    "objects": np.array(["ham", "spam", "tofu"], dtype=object),
    "floats": np.array([1.0, 2.0, 10.0]),
    "far_apart": np.array([-(2**40), 0, 2**40]),
}


@pytest.mark.parametrize("kind", LABELS)
@every_classifier
def test_labels_come_back_as_they_went_in(iris, fitted, name, kind):
    X, y = iris
    labels = LABELS[kind]
    model = CLASSIFIERS[name]().fit(X, labels[y])
    np.testing.assert_array_equal(model.classes_, labels)
    assert model.classes_.dtype == labels.dtype
    predicted = model.predict(X)
    assert predicted.dtype == labels.dtype
    assert set(predicted) <= set(labels)
    plain = fitted(name)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert model.score(X, labels[y]) == plain.score(X, y) > 0.75


@every_classifier
def test_two_classes_of_truth_values(iris, name):
    X, y = iris
    model = CLASSIFIERS[name]().fit(X, y == 0)
    assert model.predict(X).dtype == bool
    assert model.decision_function(X).shape == (len(X),)
    assert model.score(X, y == 0) > 0.9


@every_classifier
def test_labels_in_a_column_are_read_with_a_warning(iris, name):
    X, y = iris
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = CLASSIFIERS[name]().fit(X, y[:, None])
    assert model.predict(X).shape == (len(X),)


@every_classifier
def test_labels_never_seen_count_as_wrong_and_have_no_log_loss(iris, name):
    X, y = iris
    model = CLASSIFIERS[name]().fit(X[:30], y[:30])
    expected = model.score(X[:30], y[:30]) * 30 / 45
    np.testing.assert_allclose(model.score(X, y), expected)
    with pytest.raises(ValueError, match=r"different number of classes|labels"):
        log_loss(y, model.predict_proba(X))


def test_sparse_indicators_are_read(iris):
    X, y = iris
    on = np.column_stack([y == 0, y > 0]).astype(int)
    dense = CLASSIFIERS["mean_field"](latent_scale=0.3).fit(X, on)
    model = CLASSIFIERS["mean_field"](latent_scale=0.3).fit(X, sparse.csr_matrix(on))
    np.testing.assert_array_equal(model.predict_proba(X), dense.predict_proba(X))
    assert model.predict(X).shape == on.shape


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_units_of_real_targets_do_not_matter(iris, fitted, factor):
    X, y = iris
    y = target("regressor", X, y)
    model = ESTIMATORS["regressor"]().fit(X, factor * y)
    assert_finite(model, X)
    plain = fitted("regressor").predict(X)
    np.testing.assert_allclose(model.predict(X) / factor, plain, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(45,), (45, 1), (45, 2)])
def test_real_targets_keep_their_shape(iris, shape):
    X, y = iris
    Y = np.resize(target("regressor", X, y), shape[::-1]).T
    assert Y.shape == shape
    mean, std = ESTIMATORS["regressor"]().fit(X, Y).predict(X, return_std=True)
    assert mean.shape == std.shape == ((45,) if shape == (45,) else shape)


# ----------------------------------------------------------------- the same, and interrupted


@every_estimator
def test_a_row_alone_is_a_row_in_a_batch(iris, fitted, name):
    X, model = iris[0], fitted(name)
    together = outputs(model, X)
    for n in (0, 17, 44):
        for key, values in outputs(model, X[n : n + 1]).items():
            if key not in ("predict", "components"):
                np.testing.assert_allclose(values[0], together[key][n], rtol=1e-8, atol=1e-10)


@every_estimator
def test_fitting_again_gives_the_same_bits(iris, fitted, name):
    X, y = iris
    y = target(name, X, y)
    first = outputs(fitted(name), X)
    again = ESTIMATORS[name]().fit(X[::5], y[::5])  # what was fitted before leaves no trace
    for key, values in outputs(again.fit(X, y), X).items():
        np.testing.assert_array_equal(values, first[key])
    if name != "mnp":
        assert again.idata_.equals(fitted(name).idata_)


@pytest.mark.parametrize("inference", ["mean_field", "gibbs"])
def test_seeds_of_every_kind(iris, inference):
    X, y = iris
    arguments = {"start": "random"} if inference == "mean_field" else FEW_DRAWS

    def proba(random_state):
        model = BSDRClassifier(
            **{"latent_scale": 0.3, "max_iter": 30, **arguments}, random_state=random_state
        )
        return model.fit(X, y).transform(X)

    for make in (lambda: 3, lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)):
        np.testing.assert_array_equal(proba(make()), proba(make()))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    rng = np.random.default_rng(3)
    assert not np.array_equal(proba(rng), proba(rng))  # a generator goes on
    assert not np.array_equal(proba(3), proba(4))
    assert not np.array_equal(proba(None), proba(None))
    now = np.random.get_state()[1]  # noqa: NPY002
    np.testing.assert_array_equal(now, state)  # the global one is left alone


@pytest.mark.parametrize("kind", [BSDRClassifier, BSDRRegressor])
def test_the_limit_of_iterations_warns_and_the_result_is_usable(iris, kind):
    X, y = iris
    model = kind(latent_scale=0.3, max_iter=2, tol=0.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 .* usable"):
        model.fit(X, y)
    assert not model.converged_
    assert not model.interrupted_
    assert model.n_iter_ == len(model.lower_bounds_) == 2
    assert_finite(model, X)
    assert model.idata_.attrs["converged"] == 0


@pytest.mark.parametrize("n_draws", [1, 2, 12])
def test_an_interrupt_while_sampling_keeps_the_draws(iris, monkeypatch, n_draws):
    X, y = iris
    step, calls = sampling.gibbs.step_joint, []

    def tired(*args, **kwargs):
        calls.append(1)
        if len(calls) > 30 + n_draws:
            raise KeyboardInterrupt
        return step(*args, **kwargs)

    monkeypatch.setattr(sampling.gibbs, "step_joint", tired)
    model = CLASSIFIERS["gibbs"]().fit(X, y)
    assert model.interrupted_
    assert not model.converged_
    assert model.n_iter_ == 30 + n_draws
    tree = model.idata_
    assert tree.attrs["interrupted"] == 1
    assert tree["posterior"].sizes["draw"] == n_draws
    assert_finite(model, X)


def test_an_interrupt_before_the_first_draw_leaves_an_unfitted_model(iris, monkeypatch):
    def tired(*args, **kwargs):
        raise KeyboardInterrupt

    model = CLASSIFIERS["gibbs"]().fit(*iris)
    monkeypatch.setattr(sampling.gibbs, "step_joint", tired)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*iris)
    with pytest.raises(NotFittedError):
        model.predict(iris[0])
