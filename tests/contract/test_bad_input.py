"""Bad input: an error that names the cause before any work, or a finite result; never NaN.

What the shared validation reads is given to the estimators in turn, and what an estimator has to
compute with or to refuse by itself to each. Warnings are errors, except those expected of a case.
"""

from copy import deepcopy
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from bsdr_models import (
    BM2PCAPriors,
    BSDRClassifier,
    DGPLVMPriors,
    align_draws,
    bsdr,
    compare_models,
    cross_validated_map,
    from_trace,
    papers,
    plots,
    predict_groups,
)
from bsdr_models.bm2pca.model import declared_targets
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.data.targets import read_classes
from bsdr_models.papers.bsdr import Priors
from tests.toys import with_value

pytestmark = pytest.mark.usefixtures("short_runs")

REFUSALS = (ValueError, TypeError)


# ------------------------------------------------------------------------------------- samples

ROWS_REFUSED = {
    "nan": (
        lambda X: with_value(X, np.nan),
        r"NaN, first in row \d+ and column \d+.*BM2PCA(Class|Regress)",
    ),
    "inf": (lambda X: with_value(X, np.inf), "Input X contains infinity"),
    "masked": (lambda X: np.ma.masked_greater(X, 6.0), "Input X contains NaN"),
    "missing_in_nullable": (
        lambda X: pd.DataFrame(X).astype("Float64").mask(X > 6.0),
        "Input X contains NaN",
    ),
    "beyond_float64": (
        lambda X: X.astype(np.longdouble) * np.longdouble("1e4000"),
        "Input X contains infinity",
    ),
    "whole_number_beyond_float64": (
        lambda X: with_value(X.astype(object), 10**400),
        r"column 1 \(.* too large .*\) of X cannot be read as numbers",
    ),
    "rows_equal": (lambda X: np.tile(X[:1], (len(X), 1)), "X has no variation"),
    "precision_lost": (
        lambda X: 1e17 + X,
        "X has no variation: .* of size 1e.17, in x0, x1, x2, x3",
    ),
    "one_axis": (lambda X: X[:, 0], "(?s)1D array.*[Rr]eshape"),
    "series": (lambda X: pd.Series(X[:, 0]), "(?s)2-dimensional container|1D array"),
    "three_axes": (lambda X: X[:, :, None], "dim 3"),
    "one_row": (lambda X: X[:1], "1 sample"),
    "empty_frame": (lambda X: pd.DataFrame(index=range(len(X))), "0 feature"),
    "text": (
        lambda X: np.where(X > 6.0, "high", X.astype(object)),
        r"columns 0 \(.* 'high'\), 2 \(.* 'high'\) of X cannot be read as numbers",
    ),
    "text_in_frame": (
        lambda X: pd.DataFrame(X, columns=list("abcd")).assign(site="north"),
        r"column 'site' \(.* 'north'\) of X cannot be read as numbers",
    ),
    "columns_of_several_kinds": (
        lambda X: pd.DataFrame(X, columns=list("abcd")).assign(
            site="north",
            sex="f",
            crp=["<0.05", *["1.2"] * (len(X) - 1)],
            typo=["1.0.", *[1.0] * (len(X) - 1)],
            weight="1,2",
            born="2001-02-03",
        ),
        r"columns 'site' \(.*'north'\), 'sex' \(.*'f'\), 'crp' \(.*'<0\.05'\), "
        r"'typo' \(.*'1\.0\.'\), 'weight' \(.*'1,2'\), 'born' \(.*\) of X .*get_dummies",
    ),
    "dates": (
        lambda X: pd.DataFrame(X).assign(day=pd.date_range("2020-01-01", periods=len(X))),
        r"column 'day' \(a date, 2020-01-01.*\) of X cannot be read as numbers",
    ),
    "nested": (
        lambda X: pd.DataFrame(X).assign(pair=[[1.0, 2.0]] * len(X)),
        r"column 'pair' \(.* sequence.\) of X cannot be read as numbers",
    ),
    "ragged": (lambda X: [row[: 1 + i % 4].tolist() for i, row in enumerate(X)], "as a matrix"),
    "records": (lambda X: np.zeros(len(X), dtype=[("a", float)]), "got 1D array"),
    "dict": (
        lambda X: dict(enumerate(X.T)),
        "X must be a matrix of samples and features, got dict",
    ),
    "path": (lambda X: "data.csv", "X must be a matrix of samples and features, got str"),
    "dictionaries": (
        lambda X: [{"a": row[0], "b": row[1]} for row in X],
        r"list of dictionaries: give a data frame, as by pandas.DataFrame\(X\)",
    ),
    "none": (lambda X: None, "X must be a matrix of samples and features, got NoneType"),
    "sparse": (sparse.csr_matrix, "(?s)Sparse data .* takes dense arrays only: .*BM2PCAClassifier"),
    "same_names": (
        lambda X: pd.DataFrame(X, columns=["a", "b", "a", "c"]),
        "2 columns of X are named 'a'",
    ),
    "mixed_names": (lambda X: pd.DataFrame(X, columns=["a", "b", 3, 4]), "names are only support"),
}
# What a model of the features takes for a gap, and what it takes as it is.
GAPS = {"nan", "masked", "missing_in_nullable"}
OF_FITS = {"rows_equal", "precision_lost", "one_row"}


def takes(model, case):
    """Whether an estimator has a use for what others refuse."""
    tags = model.__sklearn_tags__().input_tags
    return (case in GAPS and tags.allow_nan) or (case == "sparse" and tags.sparse)


@pytest.mark.in_turn("kind", ROWS_REFUSED)
def test_rows_are_refused(zoo, kind, case, request):
    change, match = ROWS_REFUSED[case]
    bad = change(zoo.X)
    y = zoo.target(kind)
    model = zoo.make(kind)
    if takes(model, case):
        zoo.assert_finite(zoo.fit(model, bad, y), bad)
        return
    request.getfixturevalue("no_work")
    known = bad is not None and not isinstance(bad, dict | str)
    size = (bad.shape[0] if hasattr(bad, "shape") else len(bad)) if known else len(y)
    with pytest.raises(REFUSALS, match=match):
        model.fit(bad, y[:size])
    with pytest.raises(NotFittedError):
        model.predict(zoo.X)


@pytest.mark.in_turn("kind", [case for case in ROWS_REFUSED if case not in OF_FITS])
def test_new_rows_are_refused(zoo, kind, case):
    change, match = ROWS_REFUSED[case]
    model = zoo.fitted(kind)
    if takes(model, case):
        zoo.assert_finite(model, change(zoo.X))
        return
    with pytest.raises(REFUSALS, match=match):
        model.predict(change(zoo.X))


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.coo_array])
def test_damaged_sparse_rows_are_refused(zoo, kind):
    """An index out of range would end the process."""
    X = kind(zoo.X)
    index = X.coords[1] if kind is sparse.coo_array else X.indices
    index[5] = 10**6
    for call in (lambda X: zoo.make("bm2pca").fit(X, zoo.y), zoo.fitted("bm2pca").predict):
        with pytest.raises(ValueError, match="X is a damaged sparse matrix: indices must be <"):
            call(X)


def with_label(y, value, dtype=float):
    y = np.asarray(y).astype(dtype)
    y[17] = value
    return y


# Of Dask arrays in chunks of seven samples.
CHUNKS_REFUSED = {
    "nan": (lambda X, y: (with_value(X, np.nan), y), r"NaN or infinity \(column 1\)"),
    "inf": (lambda X, y: (with_value(X, np.inf), y), r"NaN or infinity \(column 1\)"),
    "text": (lambda X, y: (X.astype(str), y), "X is of type <U"),
    "label_missing": (lambda X, y: (X, with_label(y, np.nan)), "y"),
    "label_real": (lambda X, y: (X, with_label(y, 0.5)), "y"),
    "label_for_some": (lambda X, y: (X, y[:-1]), "samples"),
}


@pytest.mark.parametrize("case", CHUNKS_REFUSED)
def test_chunks_are_refused(zoo, case, no_work):
    arrays = pytest.importorskip("dask.array")
    change, match = CHUNKS_REFUSED[case]
    X, y = (arrays.from_array(each, chunks=7) for each in change(zoo.X, zoo.y))
    with pytest.raises(ValueError, match=match):
        zoo.make("bsdr").fit(X.rechunk((7, -1)), y)


def test_blocks_of_one_axis_are_refused(zoo):
    X = pytest.importorskip("dask.array").from_array(zoo.X[:, 0], chunks=7)
    for call in (lambda X: zoo.make("bsdr").fit(X, zoo.y), zoo.fitted("bsdr").predict):
        with pytest.raises(ValueError, match=r"Expected 2D array, got 1D array.*X.reshape"):
            call(X)


@pytest.mark.parametrize(
    "form", ["bm2pca", "bm2pca_paper", "bm2pca_gibbs", "bm2pca_regressor", "bsdr_paper"]
)
def test_rows_elsewhere_are_refused(zoo, form, no_work):
    X = pytest.importorskip("dask.array").from_array(zoo.X, chunks=7)
    model = zoo.make(form)
    name = rf"Dask array, and {type(model).__name__} is fitted in memory"
    with pytest.raises(TypeError, match=rf"{name}: give numpy\.asarray\(X\).*BSDRClassifier"):
        model.fit(X, zoo.target(form))


ROWS_TAKEN = {
    "duplicate_columns": lambda X: np.column_stack([X, X]),
    "collinear_columns": lambda X: np.column_stack([X, X.sum(axis=1), X[:, 0] - X[:, 1]]),
    "duplicate_rows": lambda X: np.repeat(X[::3], 3, axis=0),
    "one_feature": lambda X: X[:, 2:3],
    "scale_1e200": lambda X: X * 1e200,
    "scale_1e-200": lambda X: X * 1e-200,
    "subnormal": lambda X: X * 1e-310,
    "largest_floats": lambda X: X / X.max() * 1.7e308,
    "mixed_scales": lambda X: X * np.array([1e12, 1e-12, 1.0, 1e5]),
    "wildly_mixed_scales": lambda X: X * np.array([1e-150, 1.0, 1e150, 1e-300]),
    "offset_1e6": lambda X: X + 1e6,
    "bool": lambda X: np.median(X, axis=0) < X,
}


@pytest.mark.filterwarnings("ignore:.*samples that resemble each other")
@pytest.mark.in_turn("kind", ROWS_TAKEN)
def test_rows_are_taken(zoo, kind, case):
    X, y, model = ROWS_TAKEN[case](zoo.X), zoo.target(kind), zoo.make(kind)
    if case == "one_feature" and not kind.endswith("GPLVMClassifier"):
        model.set_params(n_components=1)
    zoo.fit(model, X, y)
    zoo.assert_finite(model, X)
    assert model.score(X, y) > 0.5


FEW_ROWS = {"two": [0, 20], "three": [0, 20, 40], "two_of_each": [0, 1, 20, 21]}


@pytest.mark.in_turn("kind", FEW_ROWS)
def test_few_rows(zoo, kind, case):
    rows = FEW_ROWS[case]
    model = zoo.fit(zoo.make(kind), zoo.X[rows], zoo.target(kind)[rows])
    zoo.assert_finite(model, zoo.X)


def test_many_more_features_than_rows(zoo, kind):
    rng = np.random.default_rng(81)
    y = np.arange(12) % 2
    X = rng.standard_normal((12, 500))
    X[:, :50] += 3.0 * y[:, None]
    model = zoo.fit(zoo.make(kind), X, zoo.target(kind, y))
    y_new = np.arange(40) % 2
    new = rng.standard_normal((40, 500))
    new[:, :50] += 3.0 * y_new[:, None]
    for rows in (X, new):
        zoo.assert_finite(model, rows)
    if hasattr(model, "classes_"):
        assert model.score(new, y_new) > 0.8


def test_classes_far_apart(zoo, kind):
    """A hundred thousand standard deviations."""
    y = np.arange(40) % 2
    X = np.where(y == 0, -100.0, 100.0)[:, None]
    X = X + 1e-3 * np.random.default_rng(83).standard_normal((40, 5))
    cut_short = {"max_iter": 300} if zoo.takes(kind, "max_iter") else {}
    model = zoo.fit(zoo.make(kind, **cut_short), X, zoo.target(kind, y))
    zoo.assert_finite(model, X)
    assert model.score(X, zoo.target(kind, y)) > 0.7
    if hasattr(model, "classes_"):
        assert (model.predict(X) == y).all()


@pytest.mark.filterwarnings("ignore:.*samples that resemble each other")
def test_equal_rows_with_different_targets(zoo, kind):
    X, y = np.repeat(zoo.X[::3], 3, axis=0), np.arange(45) % 3
    if kind == "PaperDGPLVMClassifier":
        with pytest.raises(ValueError, match="the centroids of all classes coincide"):
            zoo.make(kind).fit(X, y)
        return
    model = zoo.fit(zoo.make(kind), X, zoo.target(kind, y))
    zoo.assert_finite(model, zoo.X)
    if hasattr(model, "classes_") and kind != "DGPLVMClassifier":
        assert model.predict_proba(X).max() < 0.6


def test_many_classes_of_few_rows(zoo, kind):
    if kind.endswith("Regressor"):
        return
    rng, y = np.random.default_rng(84), np.arange(40) % 20
    X = rng.standard_normal((20, 8))[y] + 0.1 * rng.standard_normal((40, 8))
    model = zoo.fit(zoo.make(kind), X, y)
    zoo.assert_finite(model, X)
    if kind != "PaperBSDRClassifier":  # its mean field is at the prior
        assert model.score(X, y) > 0.2  # by chance a twentieth


@pytest.mark.filterwarnings("ignore:.* samples are unlike the training samples")
def test_rows_beyond_computing_are_refused_by_column(zoo, kind):
    X, model = zoo.X, zoo.fitted(kind)
    with pytest.raises(ValueError, match="column 1 holds values too large"):
        model.predict(with_value(X, 1e200))
    zoo.assert_finite(model, with_value(X, 1e60))
    zoo.assert_finite(model, with_value(X, -1e60))


# ---------------------------------------------------------------------------------- targets

TEXT = np.array(["a", "b", "c"])
DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[D]")
MIXED = np.array(["a", "b", 3], dtype=object)
MISSING = r"y contains NaN or None, first at \[17\]"
LABELS_REFUSED = {
    "nan": (lambda y: with_label(y, np.nan), r"y contains NaN.*\[17\]"),
    "none_among_them": (lambda y: with_label(y, None, object), MISSING),
    "missing_in_nullable": (
        lambda y: pd.Series(with_label(y, pd.NA, object), dtype="Int64"),
        MISSING,
    ),
    "nan_among_text": (lambda y: with_label(TEXT[y], np.nan, object).tolist(), MISSING),
    "no_date": (lambda y: with_label(DAYS[y], np.datetime64("NaT", "D"), DAYS.dtype), MISSING),
    "no_date_among_objects": (lambda y: with_label(y, pd.NaT, object).tolist(), MISSING),
    "missing_text": (
        lambda y: with_label(TEXT[y], None, object).astype(np.dtypes.StringDType(na_object=None)),
        MISSING,
    ),
    "masked": (lambda y: np.ma.masked_array(y, mask=np.arange(45) == 17), MISSING),
    "beyond_whole_floats": (
        lambda y: np.array([2**53, 2**53 + 1, 1.0], dtype=object)[y].tolist(),
        "do not tell neighbouring integers apart",
    ),
    "nul": (lambda y: np.array(["a", "a\0", "b"], dtype=object)[y].tolist(), "a NUL character"),
    "inf": (lambda y: with_label(y, np.inf), "Input y contains infinity"),
    "complex": (lambda y: y + 1j, "Complex data not supported"),
    "one_class": (lambda y: np.full(45, "ham"), "one class only, 'ham'"),
    "real": (lambda y: y + 0.5, "continuous.*regression"),
    "huge": (lambda y: y * 1e300, "continuous.*regression"),
    "text_and_numbers": (lambda y: MIXED[y], "y has labels of type int, str"),
    "mixed_in_a_list": (lambda y: MIXED[y].tolist(), "y has labels of type int, str"),
    "moments": (
        lambda y: [pd.Timestamp(2020, 1, 1 + v) for v in y],
        "y has labels of type Timestamp",
    ),
    "two_columns": (lambda y: np.column_stack([y, y + 0.5]), "Unknown label type|1d array"),
    "three_axes": (lambda y: np.stack([y, y])[None].T, "dim 3|1d array"),
    "wrong_length": (lambda y: y[:-1], "inconsistent numbers of samples"),
    "no_labels": (lambda y: [], "y has no entries"),
    "single_value": (lambda y: 3, "an entry for each sample, got 3"),
    "dict": (lambda y: dict(enumerate(y)), "got dict"),
    "ragged": (lambda y: [[0, 1], [2]] * 22 + [[1]], "y cannot be read as an array"),
    "none": (lambda y: None, "requires y to be passed"),
}


@pytest.mark.usefixtures("no_work")
@pytest.mark.in_turn("classifier", LABELS_REFUSED)
def test_labels_are_refused(zoo, classifier, case):
    change, match = LABELS_REFUSED[case]
    with pytest.raises(REFUSALS, match=match):
        zoo.make(classifier).fit(zoo.X, change(zoo.y))


NUMBERS_REFUSED = {
    "nan": (
        lambda y: with_label(y, np.nan),
        r"Input y contains NaN, first in sample 17: .*BM2PCAR",
    ),
    "inf": (lambda y: with_label(y, np.inf), "Input y contains infinity"),
    "complex": (lambda y: y + 1j, "Complex data not supported"),
    "constant": (lambda y: np.column_stack([y, np.ones(45)]), "output 1 of y is constant"),
    "text": (
        lambda y: np.array(["a", "b"])[(y > 1).astype(int)],
        r"'[ab]'\)* of y cannot be read as",
    ),
    "dates": (lambda y: np.datetime64("2020-01-01") + (10 * y).astype(int), "of y cannot be read"),
    "three_axes": (lambda y: y[:, None, None], "dim 3"),
    "wrong_length": (lambda y: y[:-1], "inconsistent numbers of samples"),
    "none": (lambda y: None, "requires y to be passed"),
}


@pytest.mark.in_turn("regressor", NUMBERS_REFUSED)
def test_numbers_are_refused(zoo, regressor, case, request):
    change, match = NUMBERS_REFUSED[case]
    y = change(zoo.target(regressor))
    model = zoo.make(regressor)
    if case == "nan" and regressor == "bm2pca_regressor":  # no target, as documented
        zoo.assert_finite(zoo.fit(model, zoo.X, y), zoo.X)
        return
    request.getfixturevalue("no_work")
    with pytest.raises(REFUSALS, match=match):
        model.fit(zoo.X, y)


LABELS_TAKEN = {
    "minus_one": np.array([-1, 0, 1]),
    "text": np.array(["a", "b", "c"]),
    "text_objects": np.array(["ham", "spam", "tofu"], dtype=object),
    "whole_floats": np.array([1.0, 2.0, 10.0]),
    "far_apart": np.array([-(2**40), 0, 2**40]),
    "small_integers": np.array([0, 100, 200], dtype=np.uint8),
    "days": np.array(["2020-01-01", "2020-06-01", "2021-01-01"], dtype="datetime64[D]"),
}


@pytest.mark.parametrize(
    ("classifier", "case"),
    [*(("bsdr_paper", case) for case in LABELS_TAKEN), ("bm2pca", "days"), ("dgplvm", "text")],
)
def test_labels_come_back_as_they_went_in(zoo, classifier, case):
    labels = LABELS_TAKEN[case]
    model = zoo.fit(zoo.make(classifier), zoo.X, labels[zoo.y])
    np.testing.assert_array_equal(model.classes_, labels)
    assert model.classes_.dtype == model.predict(zoo.X).dtype == labels.dtype
    plain = zoo.fitted(classifier)
    np.testing.assert_array_equal(model.predict_proba(zoo.X), plain.predict_proba(zoo.X))
    assert model.score(zoo.X, labels[zoo.y]) == plain.score(zoo.X, zoo.y) > 0.6


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, bool, np.float32, object])
def test_labels_of_any_type_in_columns_are_read_alike(zoo, dtype):
    Y = np.column_stack([zoo.y == 0, zoo.y > 0, zoo.X[:, 1] > 3.0]).astype(np.int64)
    for unlabeled in (None, -1, np.nan):
        targets = read_classes(Y.astype(dtype), unlabeled, several=True)
        np.testing.assert_array_equal(targets.coded, Y)
    model = declared_targets(Y.astype(dtype), "multilabel", -1, n_samples=45)
    np.testing.assert_array_equal(model[0], 2 * Y - 1)


@pytest.mark.parametrize("table", [pd.DataFrame, np.asarray])
def test_classes_in_columns_are_labels_with_a_warning(zoo, table):
    Y = table(np.eye(3, dtype=np.uint8)[zoo.y])
    remedy = r"y\.idxmax" if table is pd.DataFrame else r"numpy\.argmax\(y"
    with pytest.warns(UserWarning, match=f"3 columns of y .* independent labels, .*{remedy}"):
        assert zoo.make("bm2pca").fit(zoo.X, Y).predict(zoo.X).shape == (45, 3)


def test_two_classes_of_truth_values(zoo, classifier):
    X, y = zoo.X, zoo.y == 0
    model = zoo.fit(zoo.make(classifier), X, y)
    assert model.predict(X).dtype == bool
    assert model.score(X, y) > 0.9
    if hasattr(model, "decision_function"):
        assert model.decision_function(X).shape == (45,)


def test_a_class_of_one_row_is_kept_with_a_warning(zoo, classifier):
    X, y = zoo.X, np.append(zoo.y[:-1], 7)
    with pytest.warns(UserWarning, match="class 7 has a single sample"):
        model = zoo.fit(zoo.make(classifier), X, y, zoo.explained[2:])
    assert model.classes_.tolist() == [0, 1, 2, 7]
    zoo.assert_finite(model, X)


def test_a_large_mean_hides_no_variation(zoo, kind):
    """Only what float64 cannot hold is constant: N(0, 1) + 1e9 is N(0, 1)."""
    X, y = zoo.X, zoo.target(kind)
    real = kind.endswith("Regressor")
    model = zoo.fit(zoo.make(kind), X + 1e9, y + 1e9 * real)
    says = "predict" if real else "predict_proba"
    found = getattr(model, says)(X + 1e9) - 1e9 * real
    # Rounding changes the path of a sampler, not what it samples.
    atol = 0.1 if kind.startswith("BSDR") else 1e-3
    np.testing.assert_allclose(found, getattr(zoo.fitted(kind), says)(X), rtol=0.0, atol=atol)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_units_of_real_targets_do_not_matter(zoo, regressor, factor):
    X, y = zoo.X, zoo.target(regressor)
    model = zoo.fit(zoo.make(regressor), X, factor * y)
    zoo.assert_finite(model, X)
    plain = zoo.fitted(regressor).predict(X)
    # Rounding changes the path of a sampler, not what it samples.
    atol = 0.15 if regressor == "bsdr_regressor" else 1e-3
    np.testing.assert_allclose(model.predict(X) / factor, plain, rtol=1e-3, atol=atol)


# -------------------------------------------------------------------------------- arguments

COUNTS = (0, -1, 1.5, True, "2", np.nan, np.array(2))
CHOICES = ("best", 3)
POSITIVE = (0.0, -1.0, np.nan, "big", [1.0, 2.0])
FLAGS = ("no", 2, None)
ARGUMENTS_REFUSED = {
    **dict.fromkeys(
        (
            *("n_components", "max_iter"),
            *("optimization__n_restarts", "optimization__max_iter"),
            *("sampling__draws", "sampling__tune", "sampling__chains"),
        ),
        COUNTS,
    ),
    **dict.fromkeys(
        (
            *("inference", "priors__criterion"),
            *("criterion", "approximation"),
        ),
        CHOICES,
    ),
    **dict.fromkeys(
        ("weight", "width", "mapping__width", "mapping__noise"), (*POSITIVE, np.inf, True)
    ),
    "priors__weight": (*POSITIVE, True),
    "metric": ("euclidean", None, True, 1.0),
    **dict.fromkeys(("sampling", "optimization", "mapping", "loss"), ("few", 3, {})),
    "tol": (-1e-3, np.nan, np.inf, "small", True),
    "loss__C": (*POSITIVE, np.inf, True),
    "loss__calibrate": ("no", None, -1.0, np.nan, np.inf),
    "loss__epsilon": (-0.1, np.nan, "cross", True),
    "C": (*POSITIVE, np.inf, True),
    "optimization__tol": (-1e-3, np.nan, np.inf, "small", True),
    "standardize": FLAGS,
    "priors": ("paper", {"weight_shape": 1.0}, 3),
    "temperature": ("best", None, True, 0.0, -1.0, np.nan, np.inf),
    "views": (["a", "b"], "abcd", 3, {"a": [0]}, {"a": [0, 99]}, {"a": [0, 1], "b": []}),
    "kernel": ("gauss", 3, [], ["rbf", 3], "precomputed"),
    "unlabeled": ([0, 1],),
    "random_state": ("seed", -1, 1.5),
    "n_jobs": (0, 1.5, "all", True),
}


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("case", ARGUMENTS_REFUSED)
def test_arguments_are_refused_by_name(zoo, case):
    """Options when they are set; arguments at the fit, for ``__init__`` may only store them."""
    name = case.rpartition("__")[2]
    for kind in [kind for kind in zoo.kinds if zoo.takes(kind, case)]:
        for value in ARGUMENTS_REFUSED[case]:
            with pytest.raises(REFUSALS, match=f"'{name}' parameter|{name}( must|:)"):
                zoo.make(kind, **{case: value}).fit(zoo.X, zoo.target(kind))


def test_integers_of_numpy_are_those_of_python(zoo, kind):
    model = zoo.make(kind)
    whole = {
        key: np.uint8(value)
        for key, value in model.get_params().items()
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 128
    }
    fitted = zoo.fit(model.set_params(**whole), zoo.X, zoo.target(kind))
    np.testing.assert_array_equal(fitted.predict(zoo.X), zoo.fitted(kind).predict(zoo.X))
    assert fitted.idata_.attrs["config"]


def test_more_components_than_features(zoo, name):
    """BSDR and D-GPLVM name the limit; BM2PCA has what there is."""
    X, y, model = zoo.X, zoo.target(name), zoo.make(name)
    if "n_components" not in model.get_params():
        return
    model.set_params(n_components=99)
    if name.startswith("bm2pca"):
        zoo.fit(model, X, y)
        full = zoo.fit(zoo.make(name, n_components=4), X, y)
        np.testing.assert_array_equal(model.transform(X), full.transform(X))
        return
    with pytest.raises(ValueError, match=r"99 .*(n_features=4|44 at most|labelled samples)"):
        zoo.fit(model, X, y)


# Hyper-parameters that may have some of the values below.
MAY = {"weight": (np.inf, 1e-300, 1e300), "lapse": (1e-300,)}


@pytest.mark.parametrize(
    "value", [0.0, -1.0, 1e-300, 1e300, np.inf, np.nan, "1", True, None, Fraction(1, 3)]
)
@pytest.mark.parametrize("priors", [HierarchicalPriors, Priors, BM2PCAPriors, DGPLVMPriors])
def test_hyper_parameters_are_refused_by_name(priors, value):
    for field in fields(priors):
        may = (0.0, -1.0, 1e-300) if field.name.endswith("location") else MAY.get(field.name, ())
        if any(value is each or (value == each and value is not True) for each in may):
            continue
        with pytest.raises(ValueError, match=field.name):
            priors(**{field.name: value})


# ------------------------------------------------------------------------ before and after


def test_nothing_works_before_the_fit(zoo, kind):
    model = zoo.make(kind)
    methods = {"predict", "predict_proba", "predict_log_proba", "decision_function", "transform"}
    methods |= {"impute", "out_of_range", "predict_idata"}
    for method in methods & set(dir(model)):
        with pytest.raises(NotFittedError):
            getattr(model, method)(zoo.X)
    for method in ("get_feature_names_out", "selected_params", "summary"):
        with pytest.raises(NotFittedError):
            getattr(model, method)()
    for attribute in {"idata_", "model_"} & set(dir(type(model))):
        with pytest.raises(NotFittedError):
            getattr(model, attribute)
    for attribute in ("coef_", "intercept_", "feature_importances_"):
        assert not hasattr(model, attribute)


def test_a_failed_fit_leaves_nothing_of_the_last_one(zoo, kind):
    X, y = zoo.X, zoo.target(kind)
    model = deepcopy(zoo.fitted(kind))
    fitted = {attribute for attribute in vars(model) if attribute.endswith("_")}
    with pytest.raises(ValueError, match="no variation"):
        model.fit(np.ones_like(X), y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert set(vars(model)) & fitted <= {"n_features_in_", "classes_", "y_mean_", "y_scale_"}


def test_the_limit_of_iterations_warns_and_the_result_is_usable(zoo, kind):
    if kind.startswith("BSDR"):  # a sampler has no such limit
        return
    if zoo.takes(kind, "max_iter"):
        model = zoo.make(kind, max_iter=2)
    else:
        model = zoo.make(kind, optimization__max_iter=2, optimization__tol=0.0)
    if kind == "DGPLVMClassifier":
        model.set_params(priors__weight=10.0)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 .* usable"):
        model.fit(zoo.X, zoo.target(kind))
    assert not model.converged_
    assert not model.interrupted_
    assert model.n_iter_ == 2 + (kind == "BM2PCAClassifier")  # with the initial value
    zoo.assert_finite(model, zoo.X)


# -------------------------------------------------------------------------------- functions

# Calls with a value of another kind, and what the error says of it.
OTHER_KINDS = {
    "tree": (lambda tree, X, y, bad: align_draws(bad), "expected an xarray.DataTree"),
    "groups of a tree": (
        lambda tree, X, y, bad: predict_groups(bad, X, y),
        "expected an xarray.DataTree",
    ),
    "mode": (lambda tree, X, y, bad: papers.dgplvm.predict(bad, X), "expected an xarray.DataTree"),
    "model": (
        lambda tree, X, y, bad: from_trace(tree, X, y, bsdr.SPEC, model=bad),
        "model must be a pymc.Model",
    ),
    "loadings": (lambda tree, X, y, bad: align_draws(tree, loadings=bad), "have names, got"),
    "group": (lambda tree, X, y, bad: plots.map_table(tree, group=bad), "have names, got"),
    "estimator": (lambda tree, X, y, bad: cross_validated_map(bad, X, y), "is not an estimator"),
    "samples": (lambda tree, X, y, bad: bsdr.build_model(bad, y), "X (must be a matrix|is a list)"),
    "new samples": (
        lambda tree, X, y, bad: papers.bsdr.predict(tree, bad),
        "X (must be a matrix|is a list)",
    ),
    "name": (lambda tree, X, y, bad: bsdr.build_model(X, y, name=bad), "'name' .* must be an in"),
    "weights": (lambda tree, X, y, bad: BSDRClassifier().fit(X, y, sample_weight=bad), "weight"),
    "features": (lambda tree, X, y, bad: plots.plot_features(tree, n_features=bad), "n_features"),
    "target": (lambda tree, X, y, bad: papers.bsdr.fit(X, y, target=bad), "'target' .* must be"),
    "criterion": (
        lambda tree, X, y, bad: papers.dgplvm.build_model(X, y, n_components=1, criterion=bad),
        "'criterion' .* must be",
    ),
}


@pytest.mark.parametrize("case", OTHER_KINDS)
def test_values_of_another_kind_are_refused_by_name(zoo, case):
    call, message = OTHER_KINDS[case]
    tree = zoo.fitted("bsdr").idata_
    for bad in ([{"a": 1}, {"a": 2}], {1, 2}, b"ab"):
        with pytest.raises(REFUSALS, match=message):
            call(tree, zoo.X, zoo.y, bad)


def test_labels_that_are_decimals_are_refused_by_their_type(zoo):
    labels = [Decimal(value) for value in zoo.y.tolist()]
    with pytest.raises(ValueError, match="y has labels of type Decimal"):
        compare_models(zoo.X, labels)


@pytest.mark.parametrize("cv", [[1, 2], {3}])
def test_folds_that_are_no_pairs_are_refused(zoo, cv):
    with pytest.raises(TypeError, match="cv must be a number of folds, a splitter or pairs"):
        cross_validated_map(BSDRClassifier(), zoo.X, zoo.y, cv=cv)
