"""Ordinary dirt: a clear error that names the cause, or a finite result. Never NaN.

The table is the one of rivals' behaviour in the design notes; every row goes to every estimator.
Warnings are errors here, but for those that a row is meant to give.
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

from bsdr_models import BM2PCAClassifier, BM2PCAPriors, BM2PCARegressor
from bsdr_models.bm2pca import sampling

pytestmark = pytest.mark.filterwarnings("ignore:R-hat of the identified quantities")

QUICK = {"calibrate": False, "random_state": 0}
FREE = {"metric_scale": 10.0, **QUICK}
PAPER = {"variant": "paper", "C": 10.0, "n_sweeps": 5, **QUICK}
FEW_DRAWS = {**PAPER, "inference": "gibbs", "n_components": 2, "draws": 30, "tune": 30, "chains": 2}
CLASSIFIERS = {
    "label_free": lambda **more: BM2PCAClassifier(**FREE | more),
    "label_free_one_vs_rest": lambda **more: BM2PCAClassifier(
        **FREE | {"strategy": "one_vs_rest"} | more
    ),
    "paper": lambda **more: BM2PCAClassifier(**PAPER | more),
    "paper_one_vs_rest": lambda **more: BM2PCAClassifier(
        **PAPER | {"strategy": "one_vs_rest"} | more
    ),
    "gibbs": lambda **more: BM2PCAClassifier(**FEW_DRAWS | more),
}
ESTIMATORS = {
    **CLASSIFIERS,
    "regressor": lambda **more: BM2PCARegressor(**QUICK | more),
}
SLOW = pytest.param("gibbs", marks=pytest.mark.slow)
every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_classifier = pytest.mark.parametrize("name", CLASSIFIERS)
# The same where something is fitted, which takes a sampler most of a second.
BY_SWEEPS = [name for name in ESTIMATORS if name != "gibbs"]
each_fit = pytest.mark.parametrize("name", [*BY_SWEEPS, SLOW])
each_classifier_fit = pytest.mark.parametrize(
    "name", [*(name for name in CLASSIFIERS if name != "gibbs"), SLOW]
)
by_sweeps = pytest.mark.parametrize("name", BY_SWEEPS)


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
        found["decision"], found["std"] = model.decision_function(X, return_std=True)
    else:
        found["std"] = model.predict(X, return_std=True)[1]
    assert (found["std"] > 0.0).all()
    found["mean"], found["cov"] = model.transform(X, return_cov=True)
    assert np.linalg.eigvalsh(found["cov"]).min() > 0.0
    found["components"] = model.components_
    found["back"] = model.inverse_transform(found["mean"])
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
    "inf": (lambda X: with_value(X, np.inf), ValueError, "Input X contains infinity"),
    "rows_equal": (lambda X: np.tile(X[:1], (len(X), 1)), ValueError, "X has no variation"),
    "one_axis": (lambda X: X[:, 0], ValueError, "(?s)1D array.*[Rr]eshape"),
    "three_axes": (lambda X: X[:, :, None], ValueError, "dim 3"),
    "no_rows": (lambda X: X[:0], ValueError, "0 sample"),
    "one_row": (lambda X: X[:1], ValueError, "1 sample"),
    "no_features": (lambda X: X[:, :0], ValueError, "0 feature"),
    "complex": (lambda X: X + 1j, ValueError, "Complex data not supported"),
    "text": (lambda X: np.where(X > 3.0, "high", X.astype(object)), ValueError, "high"),
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
    "sparse_equal": (
        lambda X: sparse.csr_matrix(np.tile(X[:1], (len(X), 1))),
        ValueError,
        "X has no variation",
    ),
}
OF_FITS = ("rows_equal", "one_row", "sparse_equal")


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


@pytest.mark.parametrize("kind", [k for k in REFUSED if k not in OF_FITS])
@each_fit
def test_new_rows_are_refused(iris, fitted, name, kind):
    change, error, match = REFUSED[kind]
    with pytest.raises(error, match=match):
        fitted(name).predict(change(iris[0]))


@every_estimator
def test_a_row_without_any_entry_is_refused_by_number(iris, name):
    X, y = iris
    X = X.copy()
    X[7] = np.nan
    with pytest.raises(ValueError, match="row 7 of X has no entry at all"):
        ESTIMATORS[name]().fit(X, target(name, X, y))


@pytest.mark.parametrize("kind", ["nan", "sparse", "views"])
def test_samplers_refuse_what_only_mean_field_can_do_with(iris, kind):
    X, y = iris
    views = ["a", "a", "b", "b"] if kind == "views" else None
    X = {"nan": with_value(X, np.nan), "sparse": sparse.csr_matrix(X), "views": X}[kind]
    with pytest.raises(ValueError, match="needs complete dense rows of one view"):
        CLASSIFIERS["gibbs"](views=views).fit(X, y)


@every_estimator
def test_targets_of_another_length_are_refused(iris, name):
    X, y = iris
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ESTIMATORS[name]().fit(X, target(name, X, y)[:-1])


@every_estimator
def test_no_targets_are_refused(iris, name):
    with pytest.raises(ValueError, match="requires y to be passed"):
        ESTIMATORS[name]().fit(iris[0], None)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@every_estimator
def test_targets_that_are_not_finite_are_refused(iris, name, value):
    X, y = iris
    bad = target(name, X, y).astype(float)
    bad[4] = value
    if name == "regressor" and np.isnan(value):
        assert_finite(ESTIMATORS[name]().fit(X, bad), X)  # no target, as documented
        return
    match = "Input y contains (NaN|infinity)"
    with pytest.raises(ValueError, match=match):
        ESTIMATORS[name]().fit(X, bad)


@pytest.mark.parametrize("labels", [[0, 1, 2], ["a", "b", "c"]])
@every_classifier
def test_missing_labels_are_refused_with_a_hint(iris, name, labels):
    X, y = iris
    bad = np.array(labels, dtype=object)[y]
    bad[4] = None
    with pytest.raises(ValueError, match=r"y contains NaN or None.*unlabeled=numpy\.nan"):
        CLASSIFIERS[name]().fit(X, bad)


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


def test_outputs_that_say_nothing_are_refused_by_number(iris):
    X, y = iris
    with pytest.raises(ValueError, match="output 1 of y is constant"):
        BM2PCARegressor().fit(X, np.column_stack([y, np.ones(len(y))]))
    with pytest.raises(ValueError, match="output 1 of y has no target at all"):
        BM2PCARegressor().fit(X, np.column_stack([y, np.full(len(y), np.nan)]))


@every_classifier
def test_a_label_that_never_changes_is_refused_by_number(iris, name):
    X, y = iris
    on = np.column_stack([y == 0, y == 1, y >= 0]).astype(int)
    with pytest.raises(ValueError, match="label 2 of y is the same in every row"):
        CLASSIFIERS[name]().fit(X, on)


def test_labels_of_two_columns_are_refused(iris):
    X, y = iris
    with pytest.raises(ValueError, match=r"must hold 0 and 1.*1d array"):
        BM2PCAClassifier().fit(X, np.column_stack([y, y]))


def test_labels_of_three_axes_are_refused(iris):
    X, y = iris
    with pytest.raises(ValueError, match=r"dim 3|1d array"):
        BM2PCAClassifier().fit(X, np.stack([y, y])[None].T)
    with pytest.raises(ValueError, match="dim 3"):
        BM2PCARegressor().fit(X, np.stack([y, y])[None].T)


@each_fit
def test_too_few_features_are_refused_with_both_numbers(iris, fitted, name):
    with pytest.raises(ValueError, match=r"has 3 features.*expecting 4 features"):
        fitted(name).predict(iris[0][:, :3])
    with pytest.raises(ValueError, match=r"has 3 features.*expecting 4 features"):
        fitted(name).impute(iris[0][:, :3])


@pytest.mark.parametrize("library", ["pandas", "polars"])
@each_fit
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
    methods = ("predict", "predict_proba", "predict_log_proba", "decision_function")
    for method in (*methods, "transform", "inverse_transform", "impute", "predict_idata"):
        if hasattr(model, method):
            with pytest.raises(NotFittedError):
                getattr(model, method)(X)
    with pytest.raises(NotFittedError):
        model.idata_  # noqa: B018


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (np.ones((3, 7)), "Z must have shape"),
        (np.ones(3), "Z must have shape"),
        (np.full((3, 2), np.nan), "Z contains NaN"),
        (np.full((3, 2), np.inf), "Z contains NaN or infinity"),
    ],
)
@each_classifier_fit
def test_positions_are_refused(iris, name, rows, match):
    model = CLASSIFIERS[name](n_components=2).fit(iris[0], iris[1] > 0)
    size = model.transform(iris[0]).shape[1]
    if rows.ndim == 2 and rows.shape[1] == 2:
        rows = np.resize(rows, (3, size))
    with pytest.raises(ValueError, match=match):
        model.inverse_transform(rows)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_components", 0),
        ("n_components", 1.5),
        ("n_components", True),
        ("n_components", "two"),
        ("variant", "best"),
        ("strategy", "one_vs_one"),
        ("inference", "em"),
        ("C", 0.0),
        ("C", -1.0),
        ("C", np.nan),
        ("C", np.inf),
        ("C", "bound"),
        ("C", [1.0, 10.0]),
        ("metric_scale", 0.0),
        ("metric_scale", np.nan),
        ("metric_scale", "learn"),
        ("start", "zeros"),
        ("start", None),
        ("unlabeled", [0, 1]),
        ("views", ["a", "b"]),
        ("priors", "paper"),
        ("priors", {"noise_shape": 1.0}),
        ("n_restarts", 0),
        ("max_iter", -3),
        ("tol", -1e-3),
        ("tol", np.nan),
        ("tol", "small"),
        ("draws", 0),
        ("tune", -1),
        ("chains", 2.0),
    ],
)
def test_bad_arguments_of_the_classifier_are_named_at_fit(iris, argument, value):
    """And not in ``__init__``, where scikit-learn allows storing only."""
    model = BM2PCAClassifier(**{argument: value})
    with pytest.raises(ValueError, match=argument):
        model.fit(*iris)


@pytest.mark.parametrize("value", [0, 1.5, -2, True, "all", None])
def test_bad_numbers_of_sweeps_are_named(iris, value):
    with pytest.raises(ValueError, match="n_sweeps must be"):
        BM2PCAClassifier(variant="paper", n_sweeps=value).fit(*iris)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_components", 0),
        ("C", 0.0),
        ("C", np.inf),
        ("C", "cross"),
        ("C", None),
        ("epsilon", -0.1),
        ("epsilon", np.nan),
        ("epsilon", True),
        ("epsilon", "cross"),
        ("start", "zeros"),
        ("views", ["a", "b"]),
        ("priors", "paper"),
        ("n_restarts", 0),
        ("max_iter", -3),
        ("tol", -1e-3),
    ],
)
def test_bad_arguments_of_the_regressor_are_named_at_fit(iris, argument, value):
    with pytest.raises(ValueError, match=argument):
        BM2PCARegressor(**{argument: value}).fit(*iris)


def test_criteria_do_not_mix(iris):
    with pytest.raises(ValueError, match="must be chosen by the same criterion"):
        BM2PCARegressor(C="bound", epsilon="cv").fit(*iris)


@pytest.mark.parametrize("inference", ["gibbs", "nuts", "advi"])
@pytest.mark.parametrize(
    ("variant", "strategy"),
    [("label_free", "shared"), ("label_free", "one_vs_rest"), ("paper", "one_vs_rest")],
)
def test_samplers_need_the_papers_model_with_one_subspace(iris, inference, variant, strategy):
    model = BM2PCAClassifier(inference=inference, variant=variant, strategy=strategy)
    with pytest.raises(ValueError, match="needs variant='paper' and strategy='shared'"):
        model.fit(*iris)


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, "1", True, None])
def test_bad_hyper_parameters_are_named(value):
    with pytest.raises(ValueError, match="weight_rate must be a positive finite number"):
        BM2PCAPriors(weight_rate=value)


@every_estimator
def test_a_bad_random_state_is_named(iris, name):
    with pytest.raises(TypeError, match="random_state"):
        ESTIMATORS[name](random_state="seed").fit(*iris)


@each_fit
def test_a_failed_fit_leaves_nothing_of_the_last_one(iris, name):
    X, y = iris
    model = ESTIMATORS[name]().fit(X, target(name, X, y))
    with pytest.raises(ValueError, match="no variation"):
        model.fit(np.ones_like(X), target(name, X, y))
    with pytest.raises(NotFittedError):
        model.predict(X)


@each_fit
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
    "duplicate_rows": lambda X: np.repeat(X[::3], 3, axis=0),
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
@each_fit
def test_features_are_accepted(iris, name, kind):
    X, y = iris
    X = ACCEPTED[kind](X)
    y = target(name, X, y)
    model = ESTIMATORS[name]().fit(X, y)
    assert_finite(model, X)
    assert model.score(X, y) > (0.6 if kind == "bool" or name == "gibbs" else 0.75)
    assert model.transform(X).dtype == np.float64


@pytest.mark.parametrize("kind", ["scale_1e200", "scale_1e-200", "mixed_scales", "largest_floats"])
@by_sweeps
def test_units_do_not_matter(iris, fitted, name, kind):
    X, y = iris
    say = "predict" if name == "regressor" else "decision_function"
    expected = getattr(fitted(name), say)(X)
    scaled = ACCEPTED[kind](X)
    got = getattr(ESTIMATORS[name]().fit(scaled, target(name, X, y)), say)(scaled)
    np.testing.assert_allclose(got, expected, atol=0.02)  # where a climb ends


@each_fit
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


@by_sweeps
def test_a_column_without_entries_is_ignored_with_a_warning(iris, name):
    X, y = iris
    empty = np.insert(X, 2, np.nan, axis=1)
    with pytest.warns(UserWarning, match="1 of 5 features are constant"):
        model = ESTIMATORS[name]().fit(empty, target(name, X, y))
    assert_finite(model, empty)
    assert np.isfinite(model.impute(empty)).all()


@each_fit
def test_two_rows(iris, name):
    X, y = iris
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "class 0 has a single row")
        model = ESTIMATORS[name]().fit(X[[0, 20]], target(name, X, y)[[0, 20]])
    assert_finite(model, X)


@pytest.mark.parametrize("kind", [BM2PCAClassifier, BM2PCARegressor])
def test_too_few_rows_to_hold_some_out(iris, kind):
    X, y = iris
    model = kind(random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "class .* has a single row")
        with pytest.warns(UserWarning, match="not calibrated"):
            model.fit(X[[0, 20, 40]], y[[0, 20, 40]])
    assert_finite(model, X)
    if kind is BM2PCAClassifier:
        assert model.temperature_ == 1.0
    else:
        np.testing.assert_array_equal(model.std_factor_, 1.0)


@pytest.mark.parametrize("signal", [0.0, 3.0])
@each_fit
def test_many_more_features_than_rows(name, signal):
    rng = np.random.default_rng(81)
    y = np.arange(12) % 2
    X = rng.standard_normal((12, 500))
    X[:, :50] += signal * y[:, None]
    model = ESTIMATORS[name]().fit(X, target(name, X, y))
    assert_finite(model, X)
    new = rng.standard_normal((40, 500))
    new[:, :50] += signal * (np.arange(40) % 2)[:, None]
    assert_finite(model, new)
    if signal and name != "regressor":
        assert model.score(new, np.arange(40) % 2) > 0.8


@by_sweeps
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
    model.transform(X, return_cov=True)
    assert model.idata_["posterior/coef"].sizes["feature"] == 5000


@each_classifier_fit
def test_a_class_of_one_row_is_kept_with_a_warning(iris, name):
    X, y = iris
    y = np.append(y[:-1], 7)
    with pytest.warns(UserWarning, match="class 7 has a single row"):
        model = CLASSIFIERS[name]().fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert_finite(model, X)


@each_classifier_fit
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
@each_classifier_fit
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
    assert model.score(X, labels[y]) == plain.score(X, y) > 0.6


@each_classifier_fit
def test_categories_of_pandas(iris, fitted, name):
    X, y = iris
    labels = pd.Series(np.array(["x", "y", "z"])[y], dtype="category")
    model = CLASSIFIERS[name]().fit(X, labels)
    assert model.classes_.tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(model.predict_proba(X), fitted(name).predict_proba(X))


@each_classifier_fit
def test_two_classes_of_truth_values(iris, name):
    X, y = iris
    model = CLASSIFIERS[name]().fit(X, y == 0)
    assert model.predict(X).dtype == bool
    assert model.decision_function(X).shape == (len(X),)
    assert model.score(X, y == 0) > 0.9


@each_classifier_fit
def test_labels_in_a_column_are_read_with_a_warning(iris, name):
    X, y = iris
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = CLASSIFIERS[name]().fit(X, y[:, None])
    assert model.predict(X).shape == (len(X),)


@each_classifier_fit
def test_labels_never_seen_count_as_wrong_and_have_no_log_loss(iris, name):
    X, y = iris
    model = CLASSIFIERS[name]().fit(X[:30], y[:30])
    expected = model.score(X[:30], y[:30]) * 30 / 45
    np.testing.assert_allclose(model.score(X, y), expected)
    with pytest.raises(ValueError, match=r"different number of classes|labels"):
        log_loss(y, model.predict_proba(X))


@each_classifier_fit
def test_sparse_indicators_are_read(iris, name):
    X, y = iris
    on = np.column_stack([y == 0, y > 0]).astype(int)
    dense = CLASSIFIERS[name]().fit(X, on)
    model = CLASSIFIERS[name]().fit(X, sparse.csr_matrix(on))
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


@pytest.mark.parametrize("n_components", [5, 99])
@each_fit
def test_there_are_no_more_components_than_features(iris, fitted, name, n_components):
    X, y = iris
    model = ESTIMATORS[name](n_components=n_components).fit(X, target(name, X, y))
    full = ESTIMATORS[name](n_components=4).fit(X, target(name, X, y))
    np.testing.assert_array_equal(model.transform(X), full.transform(X))


# ----------------------------------------------------------------- the same, and interrupted


@pytest.mark.parametrize("gaps", [False, True])
@each_fit
def test_a_row_alone_is_a_row_in_a_batch(iris, fitted, name, gaps):
    X, model = iris[0].copy(), fitted(name)
    if gaps:
        X[::4, 1], X[17, 2:] = np.nan, np.nan
    together = outputs(model, X)
    for n in (0, 16, 17, 44):
        for key, values in outputs(model, X[n : n + 1]).items():
            if key not in ("predict", "components"):
                np.testing.assert_allclose(values[0], together[key][n], rtol=1e-8, atol=1e-10)


@each_fit
def test_fitting_again_gives_the_same_bits(iris, fitted, name):
    X, y = iris
    y = target(name, X, y)
    first = outputs(fitted(name), X)
    again = ESTIMATORS[name]().fit(X[::5], y[::5])  # what was fitted before leaves no trace
    for key, values in outputs(again.fit(X, y), X).items():
        np.testing.assert_array_equal(values, first[key])
    assert again.idata_.equals(fitted(name).idata_)


def test_results_of_other_arguments_are_gone(iris):
    model = BM2PCAClassifier(random_state=0).fit(*iris)
    assert model.metric_scale_ in (1.0, 10.0, 100.0, np.inf)
    assert model.cv_results_ is not None
    model.set_params(variant="paper", C=10.0, n_sweeps=3, calibrate=False).fit(*iris)
    assert not hasattr(model, "metric_scale_")
    assert model.cv_results_ is None
    assert model.temperature_ == 1.0
    assert model.n_sweeps_ == 3


@pytest.mark.parametrize("kind", ["paper", SLOW])
def test_seeds_of_every_kind(iris, kind):
    X, y = iris

    def positions(random_state):
        more = {"start": "random"} if kind == "paper" else {}
        return CLASSIFIERS[kind](random_state=random_state, **more).fit(X, y).transform(X)

    for make in (lambda: 3, lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)):
        np.testing.assert_array_equal(positions(make()), positions(make()))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    rng = np.random.default_rng(3)
    assert not np.array_equal(positions(rng), positions(rng))  # a generator goes on
    assert not np.array_equal(positions(3), positions(4))
    assert not np.array_equal(positions(None), positions(None))
    now = np.random.get_state()[1]  # noqa: NPY002
    np.testing.assert_array_equal(now, state)  # the global one is left alone


LIMITED = {
    "paper": lambda: CLASSIFIERS["paper"](n_sweeps="converged", max_iter=2, tol=0.0),
    "label_free": lambda: CLASSIFIERS["label_free"](max_iter=2),
    "label_free_one_vs_rest": lambda: CLASSIFIERS["label_free_one_vs_rest"](max_iter=2),
    "regressor": lambda: ESTIMATORS["regressor"](max_iter=2, tol=0.0),
}


@pytest.mark.parametrize("kind", LIMITED)
def test_the_limit_of_iterations_warns_and_the_result_is_usable(iris, kind):
    X, y = iris
    model = LIMITED[kind]()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 .* usable"):
        model.fit(X, y)
    assert not model.converged_
    assert not model.interrupted_
    assert model.n_iter_ == len(model.lower_bounds_)
    assert_finite(model, X)
    assert model.idata_.attrs["converged"] == 0


@pytest.mark.parametrize("name", ["paper", "paper_one_vs_rest", "regressor"])
def test_an_interrupt_keeps_the_sweeps_so_far(iris, monkeypatch, name):
    from bsdr_models.bm2pca import mean_field

    X, y = iris
    step, calls = mean_field.step, []

    def tired(*args, **kwargs):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return step(*args, **kwargs)

    more = {} if name == "regressor" else {"n_sweeps": "converged"}
    monkeypatch.setattr(mean_field, "step", tired)
    model = ESTIMATORS[name](**more).fit(X, target(name, X, y))
    assert model.interrupted_
    assert not model.converged_
    assert model.n_iter_ == 3
    assert model.idata_.attrs["interrupted"] == 1
    assert_finite(model, X)


@pytest.mark.parametrize("n_draws", [1, 12])
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
    assert model.idata_.attrs["interrupted"] == 1
    assert model.idata_["posterior"].sizes["draw"] == n_draws
    assert_finite(model, X)


@pytest.mark.parametrize("name", ["paper", "regressor", "gibbs"])
def test_an_interrupt_before_the_first_result_leaves_an_unfitted_model(iris, monkeypatch, name):
    from bsdr_models.bm2pca import mean_field

    def tired(*args, **kwargs):
        raise KeyboardInterrupt

    X, y = iris
    model = ESTIMATORS[name]().fit(X, target(name, X, y))
    monkeypatch.setattr(mean_field, "step", tired)
    monkeypatch.setattr(sampling.gibbs, "step_joint", tired)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, target(name, X, y))
    with pytest.raises(NotFittedError):
        model.predict(X)
