"""Ordinary dirt: an error that names the cause, or a finite result. Never NaN.

Warnings are errors here, but for those that a row is meant to give.
"""

import tracemalloc
import warnings
from dataclasses import fields

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.metrics import log_loss

from bsdr_models import DGPLVMClassifier, DGPLVMPriors
from bsdr_models.dgplvm import fit as fit_module
from bsdr_models.dgplvm import paper_fit
from bsdr_models.dgplvm.priors import LogNormal
from bsdr_models.inference.optimise import run_map

MODELS = {
    "default": {},
    "limit": {"weight": np.inf},
    "free": {"mapping": "none"},
    "likelihood": {"placement": "likelihood"},
    "paper": {"variant": "paper", "max_iter": 25},
    "centres": {"n_centres": 12},
}
every_model = pytest.mark.parametrize("name", MODELS)
# The two that differ most from each other.
each_variant = pytest.mark.parametrize("name", ["default", "paper"])

# What dirt is told about besides: labels without signal, one row of a class, a short search.
EXPLAINED = (
    "the map does not predict the classes",
    "class .* has a single row",
    "every class has collapsed to a point",
    "the positions explain next to nothing",
    "the search stopped after max_iter",
    ".* ended at a bound",
)
SHORT = EXPLAINED[-2:]  # of the paper's objective, on any data


def make(name="default", **more):
    return DGPLVMClassifier(**{"random_state": 0} | MODELS[name] | more)


def fit(model, X, y, explained=SHORT, **more):
    """Fit, with some warnings accepted."""
    with warnings.catch_warnings():
        for message in explained:
            warnings.filterwarnings("ignore", message)
        return model.fit(X, y, **more)


@pytest.fixture(scope="module")
def iris():
    """15 rows of each class."""
    X, y = load_iris(return_X_y=True)
    rows = np.r_[0:15, 50:65, 100:115]
    return X[rows], y[rows]


@pytest.fixture(scope="module")
def fitted(iris):
    """Every model, fitted once to rows without dirt; not to be fitted again."""
    cache = {}

    def get(name):
        if name not in cache:
            cache[name] = fit(make(name), *iris)
        return cache[name]

    return get


def outputs(model, X):
    """Everything a model says about rows."""
    found = {"proba": model.predict_proba(X), "log_proba": model.predict_log_proba(X)}
    np.testing.assert_allclose(found["proba"].sum(axis=1), 1.0)
    assert set(model.predict(X)) <= set(model.classes_)
    found["mean"], found["cov"] = model.transform(X, return_cov=True)
    smallest = np.linalg.eigvalsh(found["cov"]).min()
    assert smallest >= 0.0 if model.variant == "paper" else smallest > 0.0
    found["back"] = model.inverse_transform(found["mean"])
    by_map = model.variant == "whitened" and model.mapping == "kernel"
    if by_map and model.placement != "likelihood":
        found["out_of_range"] = model.out_of_range(X)
        assert (found["out_of_range"] >= 0.0).all()
        assert (found["out_of_range"] <= 1.0).all()
    return found


def assert_finite(model, X):
    for name, values in outputs(model, X).items():
        assert np.isfinite(values).all(), name
    assert np.isfinite(model.latent_).all()
    for path, group in model.idata_.subtree_with_keys:
        for name, values in group.data_vars.items():
            if values.dtype.kind == "f" and path != "observed_data":
                assert np.isfinite(values).all(), (path, name)


def with_value(X, value):
    X = X.copy()
    X[3, 1] = value
    return X


def classes(n_rows, n_features, n_classes, *, distance=1.0, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % n_classes
    centres = distance * rng.standard_normal((n_classes, n_features))
    return centres[y] + rng.standard_normal((n_rows, n_features)), y


# ------------------------------------------------------------------------- refused, and why

REFUSED = {
    "inf": (lambda X: with_value(X, np.inf), ValueError, "Input X contains infinity"),
    "nan": (lambda X: with_value(X, np.nan), ValueError, "Input X contains NaN"),
    "one_axis": (lambda X: X[:, 0], ValueError, "(?s)1D array.*[Rr]eshape"),
    "three_axes": (lambda X: X[:, :, None], ValueError, "dim 3"),
    "no_rows": (lambda X: X[:0], ValueError, "0 sample"),
    "no_features": (lambda X: X[:, :0], ValueError, "0 feature"),
    "complex": (lambda X: X + 1j, ValueError, "Complex data not supported"),
    "text": (lambda X: np.where(X > 3.0, "high", X.astype(object)), ValueError, "high"),
    "sparse": (sparse.csr_matrix, TypeError, "(?s)[Ss]parse.*dense"),
}
OF_FITS = {
    "rows_equal": (lambda X: np.tile(X[:1], (len(X), 1)), ValueError, "X has no variation"),
    "one_row": (lambda X: X[:1], ValueError, "1 sample"),
}


@pytest.mark.parametrize("kind", [*REFUSED, *OF_FITS])
@each_variant
def test_features_are_refused(iris, name, kind):
    X, y = iris
    change, error, match = (REFUSED | OF_FITS)[kind]
    bad = change(X)
    model = make(name)
    with pytest.raises(error, match=match):
        model.fit(bad, y[: bad.shape[0]])
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("kind", REFUSED)
@each_variant
def test_new_rows_are_refused(iris, fitted, name, kind):
    change, error, match = REFUSED[kind]
    with pytest.raises(error, match=match):
        fitted(name).predict(change(iris[0]))


LABELS_REFUSED = {
    "length": (lambda y: y[:-1], "inconsistent numbers of samples"),
    "none": (lambda y: None, "requires y to be passed"),
    "nan": (lambda y: np.where(np.arange(45) == 4, np.nan, y), "Input y contains NaN"),
    "inf": (lambda y: np.where(np.arange(45) == 4, np.inf, y), "Input y contains infinity"),
    "one_missing": (
        lambda y: np.where(np.arange(45) == 4, None, y.astype(object)),
        r"y contains NaN or None.*unlabeled=numpy\.nan",
    ),
    "complex": (lambda y: y + 1j, "Complex data not supported"),
    "one_class": (lambda y: np.full(45, "ham"), "one class only, 'ham'"),
    "real": (lambda y: y + 0.5, "continuous.*regression"),
    "two_columns": (lambda y: np.column_stack([y, y]), "1d array"),
}


@pytest.mark.parametrize("kind", LABELS_REFUSED)
def test_labels_are_refused(iris, kind):
    X, y = iris
    change, match = LABELS_REFUSED[kind]
    with pytest.raises(ValueError, match=match):
        make().fit(X, change(y))


def test_marked_labels_are_refused_if_too_few_are_left(iris):
    X, y = iris
    with pytest.raises(ValueError, match="every y equals unlabeled=-1: no row has a label"):
        make(unlabeled=-1).fit(X, np.full(45, -1))
    with pytest.raises(ValueError, match="one class only, 0"):
        make(unlabeled=-1).fit(X, np.where(y == 0, 0, -1))
    with pytest.raises(ValueError, match="unlabeled must be a single value"):
        make(unlabeled=[0, 1]).fit(X, y)


SEQUENCES_REFUSED = {
    "length": (np.zeros(44), "inconsistent numbers of samples"),
    "no_transition": (np.arange(45), "no sequence has two rows"),
    "nan": (np.where(np.arange(45) < 5, np.nan, 1.0), "Input sequence contains NaN"),
    "two_columns": (np.zeros((45, 2)), r"sequence must have shape \(N,\), got \(45, 2\)"),
}


@pytest.mark.parametrize("kind", SEQUENCES_REFUSED)
@each_variant
def test_sequences_are_refused(iris, name, kind):
    sequence, match = SEQUENCES_REFUSED[kind]
    with pytest.raises(ValueError, match=match):
        make(name).fit(*iris, sequence=sequence)


@pytest.mark.parametrize("kind", ["numbers", "text"])
def test_sequences_of_any_name_are_taken(iris, kind):
    names = {"numbers": np.arange(45) // 9, "text": np.array(list("pqrst"))[np.arange(45) // 9]}
    model = fit(make(max_iter=15), *iris, sequence=names[kind])
    assert_finite(model, iris[0])


@each_variant
def test_other_widths_are_refused_with_both_numbers(iris, fitted, name):
    X = iris[0]
    for bad in (X[:, :3], np.c_[X, X]):
        with pytest.raises(ValueError, match=r"has [38] features.*expecting 4 features"):
            fitted(name).predict(bad)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_in_another_order_are_refused(iris, library):
    X, y = iris
    columns = ["a", "b", "c", "d"]
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library]

    def build(order, names=None):
        names = names or order
        return frame({n: X[:, columns.index(c)] for n, c in zip(names, order, strict=True)})

    model = make().fit(build(columns), y)
    assert model.feature_names_in_.tolist() == columns
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(build(["b", "a", "c", "d"]))
    with pytest.raises(ValueError, match=r"(?s)unseen at fit time.*- e"):
        model.predict(build(columns, ["a", "b", "c", "e"]))


def test_nothing_works_before_the_fit(iris):
    X, _ = iris
    model = make()
    methods = ("predict", "predict_proba", "predict_log_proba", "transform", "inverse_transform")
    for method in (*methods, "out_of_range", "predict_idata", "get_feature_names_out"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(X)
    with pytest.raises(NotFittedError):
        model.idata_  # noqa: B018


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (np.ones((3, 7)), r"Z must have shape \(n_samples, 2\), got \(3, 7\)"),
        (np.ones(3), "Z must have shape"),
        (np.full((3, 2), np.nan), "Z contains NaN"),
        (np.full((3, 2), np.inf), "Z contains NaN or infinity"),
    ],
)
@each_variant
def test_positions_are_refused(fitted, name, rows, match):
    with pytest.raises(ValueError, match=match):
        fitted(name).inverse_transform(rows)


# ------------------------------------------------------------------------------- arguments

COUNTS = [
    (name, value)
    for name in ("n_components", "n_centres", "n_restarts", "max_iter", "draws", "tune", "chains")
    for value in (0, -2, 1.5, True, "two", np.nan)
]
POSITIVE = [
    (name, value)
    for name in ("weight", "map_width", "map_noise")
    for value in (0.0, -1.0, np.nan, "big", True, [1.0, 2.0])
]
CHOICES = [
    (name, value)
    for name in ("variant", "inference", "criterion", "mapping", "placement", "approximation")
    for value in ("best", None, 3)
]
OTHERS = [
    ("map_width", np.inf),
    ("map_width", None),
    ("map_noise", np.inf),
    ("standardize", "yes"),
    ("standardize", None),
    ("standardize", 1),
    ("reuse_kernel", "no"),
    ("reuse_kernel", 2),
    ("unlabeled", [0, 1]),
    ("priors", "paper"),
    ("priors", {"map_dof": 1.0}),
    ("tol", -1e-3),
    ("tol", np.nan),
    ("tol", "small"),
]


@pytest.fixture
def no_work(monkeypatch):
    """Any search is an error."""

    def refuse(*args, **kwargs):
        raise AssertionError("work was done before the arguments were checked")

    monkeypatch.setattr(fit_module, "run_map", refuse)
    monkeypatch.setattr(fit_module, "choose_settings", refuse)
    monkeypatch.setattr(paper_fit, "run_map", refuse)


@pytest.mark.parametrize(("argument", "value"), [*COUNTS, *POSITIVE, *CHOICES, *OTHERS])
def test_bad_arguments_are_named_at_fit(iris, no_work, argument, value):
    """And not in ``__init__``, where scikit-learn allows storing only."""
    model = DGPLVMClassifier(**{argument: value})
    with pytest.raises(ValueError, match=argument):
        model.fit(*iris)
    assert not hasattr(model, "classes_")


COMBINATIONS = [
    ({"variant": "paper", "weight": np.inf}, "weight must be a positive number"),
    ({"variant": "paper", "inference": "nuts"}, "variant='paper' has inference='map' only"),
    ({"variant": "paper", "inference": "advi"}, "variant='paper' has inference='map' only"),
    ({"mapping": "none", "placement": "map"}, "placement='map' needs mapping='kernel'"),
    ({"n_components": 3, "criterion": "trace_ratio"}, "needs n_components <= 2"),
    ({"n_components": 3, "criterion": "inverse_trace"}, "needs n_components <= 2"),
]


@pytest.mark.parametrize(("arguments", "match"), COMBINATIONS)
def test_arguments_that_do_not_go_together(iris, no_work, arguments, match):
    with pytest.raises(ValueError, match=match):
        DGPLVMClassifier(**arguments).fit(*iris)


def test_a_bad_random_state_is_named(iris):
    with pytest.raises(TypeError, match="random_state"):
        make(random_state="seed").fit(*iris)


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan, "1", True, None])
def test_bad_hyper_parameters_are_named(value):
    with pytest.raises(ValueError, match="map_dof must be a positive finite number"):
        DGPLVMPriors(map_dof=value)
    with pytest.raises(ValueError, match="median must be a positive finite number"):
        LogNormal(value, 1.0)
    with pytest.raises(ValueError, match="log_sd must be a positive finite number"):
        LogNormal(1.0, value)
    for name in [f.name for f in fields(DGPLVMPriors) if not f.name.startswith("map")]:
        with pytest.raises(ValueError, match=f"{name} must be a LogNormal"):
            DGPLVMPriors(**{name: value})


def test_out_of_range_needs_a_map(iris, fitted):
    for name in ("paper", "free", "likelihood"):
        with pytest.raises(AttributeError, match="placement by the map"):
            fitted(name).out_of_range(iris[0])


@pytest.mark.parametrize(("n_components", "match"), [
    (7, "n_components=7 is too large: there are 2 directions of the classes and 4 of the features"),
    (45, "n_components=45 is too large for 45 labelled rows: 44 at most"),
    (99, "n_components=99 is too large for 45 labelled rows: 44 at most"),
])  # fmt: skip
def test_too_many_components_are_refused_with_the_limit(iris, n_components, match):
    with pytest.raises(ValueError, match=match):
        make(n_components=n_components).fit(*iris)


@pytest.mark.parametrize("n_components", [1, 3, 6])
@every_model
def test_any_other_number_of_components(iris, name, n_components):
    model = fit(make(name, n_components=n_components, max_iter=15), *iris, EXPLAINED)
    assert model.transform(iris[0]).shape == (45, n_components)
    assert_finite(model, iris[0])


@each_variant
def test_a_failed_fit_leaves_nothing_of_the_last_one(iris, name):
    X, y = iris
    model = fit(make(name), X, y)
    for bad, labels in ((np.ones_like(X), y), (with_value(X, np.nan), y), (X, np.zeros(45))):
        fit(model, X, y)
        before = set(vars(model))
        with pytest.raises(ValueError, match=r"no variation|contains NaN|one class"):
            model.fit(bad, labels)
        with pytest.raises(NotFittedError):
            model.predict(X)
        with pytest.raises(NotFittedError):
            model.idata_  # noqa: B018
        left = set(vars(model)) & before - set(model.get_params())
        assert not left & {"latent_", "components_", "_learned", "_task", "_tree", "converged_"}


def test_results_of_other_arguments_are_gone(iris):
    model = fit(make("default"), *iris)
    assert model.map_width_ > 0.0
    assert model.components_.shape == (2, 4)
    fit(model.set_params(**MODELS["paper"]), *iris)
    for name in ("map_width_", "map_noise_", "components_", "feature_relevance_"):
        assert not hasattr(model, name)


@each_variant
def test_rows_beyond_computing_are_refused_by_column(iris, fitted, name):
    X, model = iris[0], fitted(name)
    with pytest.raises(ValueError, match="column 1 holds values too large"):
        model.predict(with_value(X, 1e200))
    for value in (1e60, -1e60):
        assert_finite(model, with_value(X, value))
    if name == "default":
        far = model.out_of_range(with_value(X, 1e60))[3]
        np.testing.assert_allclose(far, 1.0, atol=0.1)


# ------------------------------------------------------------------- accepted, finite output

ACCEPTED = {
    "scale_1e150": lambda X: 1e150 * X,
    "scale_1e-150": lambda X: 1e-150 * X,
    "scale_1e200": lambda X: 1e200 * X,
    "scale_1e-200": lambda X: 1e-200 * X,
    "largest_floats": lambda X: X / X.max() * np.finfo(float).max,
    "mixed_scales": lambda X: X * np.array([1e-12, 1.0, 1e12, 1e5]),
    "wildly_mixed_scales": lambda X: X * np.array([1e-150, 1.0, 1e150, 1e-300]),
    "offset": lambda X: X + 1e5,
    "duplicate_columns": lambda X: np.c_[X, X, X[:, :1]],
    "collinear": lambda X: np.c_[X, X @ np.arange(12.0).reshape(4, 3)],
    "objects": lambda X: X.astype(object),
    "bool": lambda X: np.median(X, axis=0) < X,
    "integers": lambda X: (10 * X).astype(np.int32),
    "float32": lambda X: X.astype(np.float32),
    "fortran_order": np.asfortranarray,
    "nested_lists": lambda X: X.tolist(),
}


@pytest.mark.parametrize("kind", ACCEPTED)
@each_variant
def test_features_are_accepted(iris, name, kind):
    X, y = iris
    X = ACCEPTED[kind](X)
    model = fit(make(name), X, y)
    assert_finite(model, X)
    assert model.score(X, y) > (0.7 if kind == "bool" else 0.9)
    assert model.transform(X).dtype == np.float64


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize(
    "kind",
    ["scale_1e150", "scale_1e-150", "scale_1e200", "scale_1e-200", "largest_floats"],
)
def test_units_do_not_matter(iris, standardize, kind):
    X, y = iris
    scaled = ACCEPTED[kind](X)
    plain = make(standardize=standardize).fit(X, y)
    model = make(standardize=standardize).fit(scaled, y)
    assert model.standardized_ is standardize
    np.testing.assert_allclose(model.predict_proba(scaled), plain.predict_proba(X), atol=1e-5)


def test_units_of_each_feature_do_not_matter_if_they_are_scaled_one_by_one(iris):
    X, y = iris
    mixed = ACCEPTED["mixed_scales"](X)
    expected = make(standardize=True).fit(X, y).predict_proba(X)
    model = make().fit(mixed, y)
    assert model.standardized_  # and nobody had to say so
    np.testing.assert_allclose(model.predict_proba(mixed), expected, atol=1e-5)


@pytest.mark.parametrize("standardize", ["auto", False])
def test_a_feature_too_small_to_see_is_no_harm(iris, standardize):
    X, y = iris
    wild = ACCEPTED["wildly_mixed_scales"](X)
    assert_finite(make(standardize=standardize).fit(wild, y), wild)


@each_variant
def test_a_constant_column_is_ignored_with_one_warning(iris, name):
    X, y = iris
    constant = np.insert(X, 2, 0.1, axis=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make(name).fit(constant, y)
    messages = [str(w.message) for w in caught if "constant" in str(w.message)]
    assert messages == ["1 of 5 features are constant in the training rows and are ignored"]
    assert_finite(model, constant)
    elsewhere = np.insert(X, 2, 1e8, axis=1)  # what it is in new rows cannot matter
    np.testing.assert_array_equal(model.predict_proba(elsewhere), model.predict_proba(constant))
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(X[:, [0, 1, 1, 2, 3]]))[:, 2], 0.1
    )


FEW = {
    "two": ([0, 20], [0, 1]),
    "three": ([0, 20, 40], [0, 1, 2]),
    "three_of_two": ([0, 1, 20], [0, 0, 1]),
    "four": ([0, 1, 20, 21], [0, 0, 1, 1]),
    "five": ([0, 1, 20, 21, 40], [0, 0, 1, 1, 2]),
}


@pytest.mark.parametrize("rows", FEW)
@every_model
def test_a_handful_of_rows(iris, name, rows):
    index, y = FEW[rows]
    model = fit(make(name), iris[0][index], y, EXPLAINED)
    assert_finite(model, iris[0])
    if name in ("default", "limit") and rows != "five":
        assert model.score(iris[0][index], y) == 1.0


def test_classes_of_one_row_each_are_on_points_and_not_told_off_for_it(iris):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make().fit(iris[0][[0, 20, 40]], [0, 1, 2])
    said = [str(w.message) for w in caught]
    assert any("has a single row" in message for message in said)
    assert not any("collapsed" in message for message in said)


@pytest.mark.parametrize("name", ["default", "limit", "paper"])
def test_a_class_of_one_row_is_kept_with_a_warning(iris, name):
    X, y = iris
    y = np.append(y[:-1], 7)
    with pytest.warns(UserWarning, match="class 7 has a single row"):
        model = fit(make(name), X, y)
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert_finite(model, X)


REPEATED = {
    "every_row_twice": lambda X, y: (np.r_[X, X], np.r_[y, y]),
    "with_different_labels": lambda X, y: (np.r_[X, X], np.r_[y, (y + 1) % 3]),
    "a_point_for_each_class": lambda X, y: (np.repeat(X[[0, 20, 40]], 5, axis=0), y[::3]),
    "most_rows_equal": lambda X, y: (
        np.r_[np.tile(X[:1], (20, 1)), X[20:25]],
        y[[0] * 20 + [20] * 5],
    ),
    "two_points_of_mixed_labels": lambda X, y: (
        np.repeat(X[[0, 20]], 6, axis=0),
        np.arange(12) % 2,
    ),
    "two_points_of_three_labels": lambda X, y: (
        np.repeat(X[[0, 20]], 6, axis=0),
        np.arange(12) % 3,
    ),
}


@pytest.mark.parametrize("kind", REPEATED)
@every_model
def test_rows_that_repeat(iris, name, kind):
    X, y = REPEATED[kind](*iris)
    if name == "paper" and kind.startswith("two_points"):
        with pytest.raises(ValueError, match="centroids of all classes coincide"):
            make(name).fit(X, y)
        return
    model = fit(make(name), X, y, EXPLAINED)
    assert_finite(model, X)
    p = model.predict_proba(X)
    if kind == "with_different_labels":  # each row has said both
        assert model.score(X, y) == 0.5
    elif kind.startswith("two_points") and name == "default":
        assert p.max() < 0.75


@pytest.mark.parametrize("name", ["default", "limit", "paper"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_one_feature(iris, name, n_classes):
    X, y = iris[0][:, 2:3], iris[1]
    y = np.minimum(y, n_classes - 1)
    model = fit(make(name), X, y, EXPLAINED)
    assert_finite(model, X)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("signal", [0.0, 1.0])
@pytest.mark.parametrize("name", ["default", "limit", "likelihood", "paper"])
def test_many_more_features_than_rows(name, signal):
    """D = 5000: an array of D x D numbers would take 200 MB."""
    X, y = classes(60, 5000, 2, distance=signal, seed=3)
    X, new, y_new = X[:20], X[20:], y[20:]
    tracemalloc.start()
    try:
        model = fit(make(name), X, y[:20], EXPLAINED)
        assert_finite(model, new)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6
    if signal:
        assert model.score(new, y_new) > 0.95


def test_noise_is_told_from_signal():
    """With 5000 features of noise the map says that it predicts nothing."""
    X, y = classes(60, 5000, 2, distance=0.0, seed=3)
    with pytest.warns(UserWarning, match="the map does not predict the classes"):
        model = fit(make(), X[:20], y[:20], EXPLAINED[1:])
    assert log_loss(y[20:], model.predict_proba(X[20:])) < 1.5


def test_forty_classes():
    X, y = classes(160, 10, 40, distance=3.0)
    model = make(n_components=5, max_iter=60)
    fit(model, X, y, EXPLAINED)
    assert_finite(model, X)
    assert model.score(X, y) > 0.9


def test_a_rare_class():
    X, y = classes(100, 5, 1)
    y[-3:] = 1
    X[-3:] += 3.0
    model = fit(make(), X, y, EXPLAINED)
    assert_finite(model, X)
    assert model.score(X, y) >= 0.97


# --------------------------------------------------------------------------------- labels

LABELS = {
    "minus_one": np.array([-1, 0, 1]),
    "text": np.array(["a", "b", "c"]),
    "objects": np.array(["ham", "spam", "tofu"], dtype=object),
    "floats": np.array([1.0, 2.0, 10.0]),
    "far_apart": np.array([-(2**40), 0, 2**40]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_as_they_went_in(iris, fitted, kind):
    X, y = iris
    labels = LABELS[kind]
    model = make().fit(X, labels[y])
    np.testing.assert_array_equal(model.classes_, labels)
    assert model.classes_.dtype == labels.dtype
    assert model.predict(X).dtype == labels.dtype
    np.testing.assert_array_equal(model.predict_proba(X), fitted("default").predict_proba(X))
    assert model.score(X, labels[y]) == fitted("default").score(X, y)


def test_categories_of_pandas(iris, fitted):
    X, y = iris
    labels = pd.Series(np.array(["x", "y", "z"])[y], dtype="category")
    model = make().fit(X, labels)
    assert model.classes_.tolist() == ["x", "y", "z"]
    np.testing.assert_array_equal(model.predict_proba(X), fitted("default").predict_proba(X))


@every_model
def test_two_classes_of_truth_values(iris, name):
    X, y = iris
    model = fit(make(name), X, y == 0)
    assert model.predict(X).dtype == bool
    assert model.transform(X).shape == (45, 1)
    assert model.score(X, y == 0) > 0.9


def test_labels_in_a_column_are_read_with_a_warning(iris):
    X, y = iris
    with pytest.warns(DataConversionWarning, match="column-vector"):
        model = make().fit(X, y[:, None])
    assert model.predict(X).shape == (45,)


def test_labels_never_seen_count_as_wrong_and_have_no_log_loss(iris):
    X, y = iris
    model = make().fit(X[:30], y[:30])
    np.testing.assert_allclose(model.score(X, y), model.score(X[:30], y[:30]) * 30 / 45)
    with pytest.raises(ValueError, match=r"different number of classes|labels"):
        log_loss(y, model.predict_proba(X))


@pytest.mark.parametrize("marker", [-1, np.nan, None, "?"])
@every_model
def test_rows_without_a_label(iris, name, marker):
    """Half of the labels are enough here; None and NA mean what NaN means."""
    X, y = iris
    given = y.astype(object) if marker in (None, "?") else y.astype(float)
    given[::2] = marker
    unlabeled = np.nan if marker is None else marker
    model = fit(make(name, unlabeled=unlabeled), X, given)
    assert model.classes_.tolist() == [0, 1, 2]
    assert_finite(model, X)
    assert model.score(X, y.astype(model.classes_.dtype)) > 0.85


@every_model
def test_one_label_for_each_class(iris, name):
    X, y = iris
    given = np.full(45, -1)
    given[[2, 17, 33]] = y[[2, 17, 33]]
    model = fit(make(name, unlabeled=-1), X, given, EXPLAINED)
    assert_finite(model, X)
    two = np.where(given == 2, -1, given)
    assert_finite(fit(make(name, unlabeled=-1), X, two, EXPLAINED), X)


# ----------------------------------------------------------------- the same, and interrupted


@every_model
def test_a_row_alone_is_a_row_in_a_batch(iris, fitted, name):
    X, model = iris[0], fitted(name)
    together = outputs(model, X)
    for n in (0, 16, 44):
        for key, values in outputs(model, X[n : n + 1]).items():
            np.testing.assert_allclose(values[0], together[key][n], rtol=1e-6, atol=1e-8)


@every_model
def test_fitting_again_gives_the_same_bits(iris, fitted, name):
    X, y = iris
    first = outputs(fitted(name), X)
    again = fit(make(name), X[::5], y[::5], EXPLAINED)  # what was fitted before leaves no trace
    for key, values in outputs(fit(again, X, y), X).items():
        np.testing.assert_array_equal(values, first[key])
    assert again.idata_.equals(fitted(name).idata_)


def test_seeds_of_every_kind(iris):
    """Centres are drawn by them."""
    X, y = iris

    def positions(random_state):
        return make("centres", random_state=random_state).fit(X, y).transform(X)

    for kind in (lambda: 3, lambda: np.random.default_rng(3), lambda: np.random.RandomState(3)):
        np.testing.assert_array_equal(positions(kind()), positions(kind()))
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    rng = np.random.default_rng(3)
    assert not np.array_equal(positions(rng), positions(rng))  # a generator goes on
    assert not np.array_equal(positions(3), positions(4))
    assert not np.array_equal(positions(None), positions(None))
    now = np.random.get_state()[1]  # noqa: NPY002
    np.testing.assert_array_equal(now, state)  # the global one is left alone


@every_model
def test_the_limit_of_iterations_warns_and_the_result_is_usable(iris, name):
    model = make(name, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 .* usable"):
        model.fit(*iris)
    assert not model.converged_
    assert not model.interrupted_
    assert model.n_iter_ == len(model.log_density_) == 2
    assert_finite(model, iris[0])
    assert model.idata_.attrs["converged"] == 0


def tire(monkeypatch, calls):
    """The objective is interrupted after some calls, whichever it is."""

    def tired(objective, starts, **options):
        left = [calls]

        def inner(x):
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            return objective(x)

        return run_map(inner, starts, **options)

    monkeypatch.setattr(fit_module, "run_map", tired)
    monkeypatch.setattr(paper_fit, "run_map", tired)


@pytest.mark.parametrize("calls", [1, 4])
@every_model
def test_an_interrupt_keeps_the_search_so_far(iris, monkeypatch, name, calls):
    tire(monkeypatch, calls)
    model = fit(make(name, n_restarts=3), *iris, explained=EXPLAINED[:4])
    assert model.interrupted_
    assert not model.converged_
    assert model.idata_.attrs["interrupted"] == 1
    assert_finite(model, iris[0])


@each_variant
def test_an_interrupt_before_the_first_result_leaves_an_unfitted_model(iris, monkeypatch, name):
    X, y = iris
    model = fit(make(name), X, y)
    tire(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


# ---------------------------------------------------------------------------- many rows


@pytest.mark.parametrize("n_rows", [44, 45])
@pytest.mark.parametrize("name", ["default", "limit", "likelihood", "free"])
def test_on_both_sides_of_the_exact_limit(iris, monkeypatch, name, n_rows):
    """Beyond the limit the map has few centres and the likelihood inducing points."""
    monkeypatch.setattr(fit_module, "EXACT_ROWS", 44)
    monkeypatch.setattr(fit_module, "N_CENTRES", 12)
    monkeypatch.setattr(fit_module, "N_INDUCING", 8)
    X, y = iris
    model = fit(make(name), X[:n_rows], y[:n_rows], EXPLAINED)
    assert_finite(model, X)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("name", ["default", "limit"])
def test_few_labels_beyond_the_exact_limit(iris, monkeypatch, name):
    """Rows without a label have no code, and there are more of them than inducing points."""
    monkeypatch.setattr(fit_module, "EXACT_ROWS", 20)
    monkeypatch.setattr(fit_module, "N_CENTRES", 12)
    monkeypatch.setattr(fit_module, "N_INDUCING", 8)
    X, y = iris
    given = np.where(np.arange(45) % 5 == 0, y, -1)
    model = fit(make(name, unlabeled=-1), X, given, EXPLAINED)
    assert_finite(model, X)
    assert model.score(X, y) > 0.85
