"""Validation of samples, targets and fits, with errors and warnings that name the cause.

Scikit-learn reads arrays, frames of pandas and polars and sparse matrices, and compares column
names. Handled here is what it would misread or refuse without a clear message: xarray, masked
arrays, dates, text among numbers, duplicate column names, missing labels.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import xarray as xr
from pandas.api.types import is_scalar
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from bsdr_models.numerics.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Rows,
    SamplesLike,
    TargetLike,
)
from bsdr_models.numerics.process_state import DataWarning, warn
from bsdr_models.numerics.scaling import Scaler

# What to do about columns of a table that are not numbers.
REMEDIES = (
    "convert text by pandas.to_numeric and dates to days since the first, encode categories by "
    "pandas.get_dummies, read decimal commas by pandas.read_csv(decimal=','), drop identifiers"
)
# Absolute value of unscaled features beyond which sums of fourth powers would overflow.
MAX_RAW = 1e60
# Most columns that a message names.
MAX_LISTED = 5
# Smallest whole number whose successor is no float64.
MAX_WHOLE = 2.0**53
# Kinds of arrays that hold numbers.
NUMERIC = "biufc"
# Largest R-hat of an identified quantity without a warning.
R_HAT_LIMIT = 1.05


# Samples


def validate_samples(
    estimator: BaseEstimator,
    X: object,
    *,
    reset: bool,
    sparse: bool = False,
    missing: bool = False,
) -> Rows:
    """Samples as a C-ordered float64 array (N, D), or CSR if ``sparse``; NaN passes if ``missing``.

    The number and names of columns are stored in the estimator if ``reset``, for a fit, which takes
    two samples at least; else they are compared.
    """
    table = _read_table(estimator, X, reset=reset, sparse=sparse)
    with np.errstate(over="ignore"):  # overflow becomes infinity, which is refused
        samples = validate_data(
            estimator,
            table,
            reset=reset,
            dtype=np.float64,
            order="C",
            accept_sparse="csr" if sparse else False,
            ensure_all_finite="allow-nan",
            ensure_min_samples=1 + reset,
        )
    if missing or issparse(samples) or not (lost := np.isnan(samples)).any():
        return samples
    row, column = np.argwhere(lost)[0]
    name = list(table.columns)[column] if _is_frame(table) else int(column)
    kind = "Regressor" if is_regressor(estimator) else "Classifier"
    complete = np.count_nonzero(~lost.any(axis=1))
    raise ValueError(
        f"Input X contains NaN, first in row {row} and column {name!r}; {complete} of {len(lost)} "
        "samples are complete: impute the values, as by SimpleImputer in a pipeline, or use "
        f"BM2PCA{kind}, which takes NaN as a missing value"
    )


def _read_table(estimator: BaseEstimator, X: object, *, reset: bool, sparse: bool) -> Any:
    """X in a form that scikit-learn reads, with NaN for masked entries."""
    if isinstance(X, xr.DataArray):  # columns are named by the coordinate of its second dim
        X = X.to_pandas() if X.ndim == 2 else X.values
    if _is_frame(X):
        X = _name_columns(estimator, X, reset=reset)
    if issparse(X) or (_is_frame(X) and {type(t).__name__ for t in X.dtypes} == {"SparseDtype"}):
        if not sparse:
            name = type(estimator).__name__
            raise TypeError(
                f"Sparse data was passed for X, but {name} takes dense arrays only: make it dense "
                "if it fits into memory, or use BM2PCAClassifier, which takes sparse data"
            )
        _check_sparse(X, "X")
        return X
    if _is_frame(X):
        kinds = [getattr(dtype, "kind", "O") for dtype in X.dtypes]
        others = [own for own, kind in zip(X.columns, kinds, strict=True) if kind not in NUMERIC]
        _check_numbers("X", {label: X[label] for label in others})
        return X if len(X.columns) else np.empty((len(X), 0))
    check_matrix(X)
    if isinstance(X, np.ma.MaskedArray):
        X = np.where(np.ma.getmaskarray(X), np.nan, X.data) if np.ma.is_masked(X) else X.data
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"X cannot be read as a matrix: {error}") from None
    if array.ndim == 2 and array.dtype.kind not in NUMERIC:
        _check_numbers("X", dict(enumerate(array.T)))
    return X


def check_matrix(X: object) -> None:
    """TypeError unless X may be a matrix: a list, an array or a table."""
    if isinstance(X, Sequence) and len(X) and isinstance(X[0], Mapping):
        raise TypeError("X is a list of dictionaries: give a data frame, as by pandas.DataFrame(X)")
    is_list = isinstance(X, Sequence) and not isinstance(X, str | bytes)
    if not is_list and not hasattr(X, "__array__"):
        # NumPy may iterate over it for minutes.
        raise TypeError(
            f"X must be a matrix of samples and features, got {type(X).__name__}: give an array or "
            "a data frame, such as adata.to_df() of AnnData and X.collect() of a lazy frame"
        )


def _check_sparse(matrix: Any, what: str) -> None:
    """ValueError if indices of a sparse matrix are out of range, which would end the process."""
    try:
        for length, index in zip(matrix.shape, getattr(matrix, "coords", ()), strict=False):
            if index.size and not 0 <= index.min() <= index.max() < length:
                raise ValueError(f"indices must be < {length}")
        if hasattr(matrix, "check_format"):
            copy(matrix).check_format(full_check=True)  # shallow, as the check shrinks arrays
    except ValueError as error:
        raise ValueError(f"{what} is a damaged sparse matrix: {error}") from None


def _is_frame(X: object) -> TypeGuard[pd.DataFrame]:
    """Whether it is a frame of pandas or polars."""
    return all(hasattr(X, name) for name in ("shape", "columns", "dtypes"))


def column_labels(table: object, what: str) -> list[str] | None:
    """Names of the columns of a table, as text, unique; None if it is no table."""
    if isinstance(table, xr.DataArray):
        columns = table.indexes.get(table.dims[1]) if table.ndim == 2 else None
    else:
        columns = getattr(table, "columns" if _is_frame(table) else "column_names", None)
    if columns is None:
        return None
    names = [str(label) for label in columns]
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise ValueError(f"{count} columns of {what} are named {name!r}: names must be unique")
    return names


def _name_columns(estimator: BaseEstimator, X: pd.DataFrame, *, reset: bool) -> pd.DataFrame:
    """A frame whose columns, unless numbered from 0, are named by text, as scikit-learn needs it.

    ValueError if they are those of the fit in another order.
    """
    names = column_labels(X, "X") or []
    numbered = [*map(str, range(len(names)))]
    fitted = numbered if reset else list(getattr(estimator, "feature_names_in_", numbered))
    if names != fitted and not reset and sorted(names) == sorted(fitted):
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            "Feature names must be in the same order as they were in fit.\n"
        )
    if names == numbered or any(isinstance(label, str) for label in X.columns):
        return X
    return X.set_axis(names, axis=1)


def _check_numbers(what: str, columns: Mapping[Hashable, pd.Series | np.ndarray]) -> None:
    """ValueError for columns of `what` with entries that are no numbers, by name and reason."""
    found = []
    for name, column in columns.items():
        kind = getattr(column.dtype, "kind", "O")
        try:
            if kind in "mM":
                raise ValueError(f"a date, {column[0]}")
            if kind not in NUMERIC:
                np.asarray(column).astype(np.float64)
        except (ValueError, OverflowError) as error:
            found.append(f"{name!r} ({error})")
        except TypeError as error:  # neither text nor number
            raise TypeError(f"column {name!r} of {what}: {error}") from None
    if found:
        names = f"column{'s' if len(found) > 1 else ''} {', '.join(found)} of {what}"
        raise ValueError(f"{names} cannot be read as numbers: {REMEDIES}")


def sample_labels(X: object) -> np.ndarray | None:
    """Labels of samples, (N,): the index of a pandas table, or the first coordinate of a DataArray.

    Numbers and dates keep their type. All others become text, which every file format stores: an
    index of several levels, for instance, the text of its tuples. None without an index.
    """
    if isinstance(X, xr.DataArray):
        index = X.indexes.get(X.dims[0]) if X.ndim else None
    else:
        index = getattr(X, "index", None)
        index = index if hasattr(index, "to_numpy") else None
    if index is None:
        return None
    labels = index.to_numpy()
    if labels.dtype.kind in "iufM":
        return labels.copy()
    return np.array([str(label) for label in index.tolist()])


def feature_names(estimator: BaseEstimator) -> np.ndarray:
    """Names of the training features, or else x0, x1, ..."""
    names = getattr(estimator, "feature_names_in_", None)
    return np.array([f"x{i}" for i in range(estimator.n_features_in_)]) if names is None else names


def check_features(
    X: SamplesLike, y: TargetLike, n_components: int
) -> tuple[FloatArray, list[str]]:
    """X of a declarative model as a finite (N, D) array, and its feature names, else ValueError."""
    if "pytensor" in type(X).__module__ + type(y).__module__:
        raise ValueError(
            "X and y must be arrays, not pm.Minibatch or other symbols: a model is declared for "
            "the labels and shapes of all samples"
        )
    check_matrix(X)
    check_order(X, y)
    array = check_array(X, dtype=np.float64, input_name="X")
    n_features = array.shape[1]
    if n_components not in range(1, n_features + 1):
        raise ValueError(
            f"n_components must be an integer from 1 to {n_features}, got {n_components!r}"
        )
    return array, column_names(X, "x", n_features)


def column_names(table: object, prefix: str, n_columns: int) -> list[str]:
    """Names of the columns of a table, or else a prefix and a number."""
    names = column_labels(table, "X" if prefix == "x" else "y")
    numbered = [*map(str, range(n_columns))]
    return [prefix + number for number in numbered] if names in (None, numbered) else names


def label_names(y: object, n_labels: int) -> np.ndarray:
    """Names of the columns of a table of label sets, or else their numbers."""
    names = column_names(y, "", n_labels)
    return np.arange(n_labels) if names == [*map(str, range(n_labels))] else np.array(names)


def match_columns(y: TargetLike, labels: Sequence[object] | np.ndarray) -> TargetLike:
    """Targets with the columns of a table in the order of the labels of the fit.

    Arrays, and tables without names, are as they are. ValueError if there are other names.
    """
    given = column_labels(y, "y")
    numbered = [*map(str, range(len(labels)))]
    fitted = [str(label) for label in labels]
    if fitted == column_names(None, "y", len(labels)):
        fitted = numbered
    if given is None or given == fitted:
        return y
    if sorted(given) == sorted(fitted):
        return read_targets(y)[:, [given.index(name) for name in fitted]]
    if numbered in (given, fitted):
        return y
    raise ValueError(f"y has the columns {given}, the fit had {fitted}: give these, in any order")


def read_views(views: object, feature_names: Sequence[object]) -> list[tuple[str, IntArray]] | None:
    """Names and features of views, from columns by the name of the view.

    Columns are names of features, or else their positions. ValueError unless each feature is in
    one.
    """
    if views is None:
        return None
    if not isinstance(views, Mapping):
        raise ValueError(f"views must be a dict of the columns of each view by name, got {views!r}")
    position = {str(name): i for i, name in enumerate(feature_names)}
    found: list[tuple[str, IntArray]] = []
    count: Counter[int] = Counter()
    for view, columns in views.items():
        is_list = isinstance(columns, Iterable) and not isinstance(columns, str)
        places = [position.get(str(column), column) for column in columns] if is_list else []
        if not places or not all(place in range(len(position)) for place in places):
            raise ValueError(f"views: {view!r} must be a list of columns of X, got {columns!r}")
        if str(view) in dict(found):
            raise ValueError(f"views: two are named {str(view)!r}")
        count.update(places)
        found.append((str(view), np.array(places, dtype=np.int64)))
    if wrong := [name for name, place in position.items() if count[place] != 1]:
        raise ValueError(f"views: each feature must be in one, which {wrong[0]!r} is not")
    return found


# Targets


def read_weights(weights: object, X: object) -> FloatArray | None:
    """Weights of the samples of X, (N,), at least 0; None if none are given.

    ValueError if they are not numbers of that many samples, or fewer than two are positive.
    """
    if weights is None:
        return None
    check_order(X, weights)
    _check_numbers("sample_weight", {0: np.asarray(weights).ravel()})
    found: FloatArray = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
    if np.count_nonzero(found) < 2:
        raise ValueError("sample_weight is zero for all samples, or all but one")
    return found


def require_targets(estimator: BaseEstimator, X: object, y: object) -> None:
    """Raise a ValueError if there are no targets, or see `check_order`."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    check_order(X, y)


def check_samples(X: object, *others: object) -> None:
    """ValueError if arrays are not of one length, or see `check_order`."""
    check_consistent_length(X, *others)
    for other in others:
        check_order(X, other)


def check_order(X: object, y: object) -> None:
    """ValueError if y has the labels of the samples of X in another order; others do not count."""
    index = sample_labels(X)
    other = sample_labels(y)
    if index is None or other is None or np.array_equal(index, other):
        return
    if len(index) == len(other) and {*index.tolist()} == {*other.tolist()}:
        raise ValueError(
            "the index of X and that of the other table hold the same labels in another order: "
            "give y.loc[X.index] for y"
        )


def read_targets(y: Any) -> np.ndarray:
    """Targets as a dense array, (N,) or (N, K), of their own dtype; None for masked entries."""
    if issparse(y):
        _check_sparse(y, "y")
        return y.toarray()
    if isinstance(y, dict | set | xr.Dataset | xr.DataTree):
        raise TypeError(f"y must be an array, a list or a series, got {type(y).__name__}")
    y = fill_masked(y)
    try:
        array = np.asarray(y)
    except ValueError as error:
        raise ValueError(f"y cannot be read as an array: {error}") from None
    if array.ndim in (1, 2) and array.dtype.kind == "U":
        entries = np.asarray(y, dtype=object)
        if not all(isinstance(v, str) and v[-1:] != "\0" for v in entries.ravel()):
            array = entries  # else NaN in a list of text becomes "nan", and "a\0" becomes "a"
    if array.dtype.kind == "T":  # text of any length, which files do not store
        array = array.astype(object)
    if array.ndim == 0:
        raise ValueError(f"y must be an array with an entry for each sample, got {y!r}")
    if not len(array):
        raise ValueError("y has no entries")
    return array


def fill_masked(values: Any) -> Any:
    """Values with None in place of what a mask hides; all others as they are."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    filled = values.data.astype(object)
    filled[np.ma.getmaskarray(values)] = None
    return filled if np.ma.is_masked(values) else values.data


def read_numbers(y: object, *, missing: bool = False) -> FloatArray:
    """Real targets, (N,) or (N, K), of float64; NaN passes if ``missing``."""
    y = read_targets(y)
    if y.dtype == object:
        values = [np.nan if is_missing(value) else value for value in y.ravel()]
        y = np.array(values, dtype=object).reshape(y.shape)
    _check_numbers("y", dict(enumerate(y.reshape(len(y), -1).T)))
    if not missing and (lost := _missing_entries(y)).any():
        raise ValueError(
            f"Input y contains NaN, first in sample {lost.nonzero()[0][0]}: drop samples without "
            "a target, or use BM2PCARegressor, which takes NaN as a missing one"
        )
    return check_array(
        y,
        dtype=np.float64,
        order="C",
        ensure_2d=False,
        ensure_all_finite="allow-nan" if missing else True,
        input_name="y",
    )


def read_labels(y: object) -> np.ndarray:
    """Labels of all samples, (N,) or (N, K), none missing."""
    return _plain_labels(known_entries(y, None)[0])


def known_entries(y: object, unlabeled: object) -> tuple[np.ndarray, BoolArray]:
    """Targets as an array, and a mask of the known ones.

    ``unlabeled`` marks the others; NaN stands for every kind of missing value, None for none.
    """
    if np.asarray(unlabeled).ndim:
        raise ValueError(f"unlabeled must be a single value, got {unlabeled!r}")
    y = read_targets(y)
    if unlabeled is None:
        known = np.ones(y.shape, dtype=bool)
    elif is_missing(unlabeled):
        known = ~_missing_entries(y)
    elif y.dtype == object:
        marked = [not is_missing(value) and value == unlabeled for value in y.ravel()]
        known = ~np.array(marked, dtype=bool).reshape(y.shape)
    else:
        known = ~np.broadcast_to(y == unlabeled, y.shape)
    if known.size and not known.any():
        raise ValueError(f"every y equals unlabeled={unlabeled!r}: no row has a label")
    if (lost := known & _missing_entries(y)).any():
        raise ValueError(
            f"Input y contains NaN or None, first at {np.argwhere(lost)[0].tolist()}: drop samples "
            "without a target, or give unlabeled=numpy.nan to a model that learns from them"
        )
    check_array(y if known.all() else y[known], ensure_2d=False, dtype=None, input_name="y")
    return y, known


def encode_known(y: np.ndarray, known: BoolArray) -> tuple[np.ndarray, IntArray]:
    """Sorted classes, and the class index of each sample, (N,), -1 if unlabelled."""
    y = column_or_1d(y, warn=True)
    known = known.ravel()
    classes, index = encode_labels(_plain_labels(y[known]))
    groups = np.full(len(y), -1, dtype=np.int64)
    groups[known] = index
    return classes, groups


def encode_labels(y: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Sorted classes, and the class index of each sample, (N,).

    Warn about a class with a single sample; ValueError if there is one class only.
    """
    classes, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only, {classes.tolist()[0]!r}; at least two classes are needed"
        )
    if counts.min() == 1:
        label = classes.tolist()[counts.argmin()]
        warn(f"class {label!r} has a single sample")
    return classes, index


def find_classes(y: np.ndarray, classes: np.ndarray) -> IntArray:
    """Position of each label (N,) among the classes (K,), -1 of a label that is none of them."""
    same = y[:, None] == classes
    return np.where(same.any(axis=1), same.argmax(axis=1), -1)


def is_missing(value: object) -> bool:
    """Whether a value is None, NaN, NaT, or the NA of pandas."""
    return is_scalar(value) and bool(pd.isna(value))


def _missing_entries(y: np.ndarray) -> BoolArray:
    """Mask of the missing entries of an array."""
    return np.asarray(pd.isna(y), dtype=bool)


def _plain_labels(y: np.ndarray) -> np.ndarray:
    """Labels, those of dtype object as numbers unless they are text.

    ValueError if they are continuous, or if the array cannot tell them apart.
    """
    if y.dtype == object and not all(isinstance(value, str) for value in y.ravel()):
        if not all(isinstance(value, Real | np.bool_) for value in y.ravel()):
            kinds = ", ".join(sorted({type(value).__name__ for value in y.ravel()}))
            raise ValueError(f"y has labels of type {kinds}: give only text, or only numbers")
        y = np.array(y.tolist())
    with np.errstate(invalid="ignore"):  # scikit-learn compares them with integers
        check_classification_targets(y)
    if y.dtype.kind == "f" and np.abs(y).max(initial=0.0) >= MAX_WHOLE:
        raise ValueError(
            f"y has labels of {MAX_WHOLE:.0f} and above as floating-point numbers, which do not "
            "tell neighbouring integers apart: give only integers, or text"
        )
    if y.dtype == object and any(label.endswith("\0") for label in y.ravel()):
        raise ValueError("y has labels that end with a NUL character, which arrays of text drop")
    return y


# Scaling


def check_variation(estimator: BaseEstimator, scaler: Scaler) -> Scaler:
    """Return a scaling; warn about constant features, ValueError if no feature varies."""
    names = feature_names(estimator)[scaler.constant].tolist()
    listed = ", ".join(names[:MAX_LISTED]) + (", ..." if len(names) > MAX_LISTED else "")
    if scaler.constant.all():
        size = np.abs(scaler.location).max()
        raise ValueError(
            f"X has no variation: all rows are equal in numbers of size {size:.1g}, in {listed}"
        )
    if names:
        warn(
            f"{len(names)} of {scaler.constant.size} features are constant in the training samples "
            f"and are ignored: {listed}",
            DataWarning,
        )
    return scaler


# Convergence


def warn_unless_mixed(tree: xr.DataTree, names: Sequence[str]) -> bool:
    """Whether the largest R-hat of some variables is small; warns with a remedy if not.

    Always False for a single chain. Stores ``r_hat`` and ``ess_bulk`` in the root attributes. NaN
    counts as worst. Entries that are zero by definition, such as those of the first of two classes,
    are left out.
    """
    import arviz_stats

    posterior = tree["posterior"].dataset
    if posterior.sizes["chain"] < 2:
        return False
    columns = [posterior[name].values.reshape(*posterior[name].shape[:2], -1) for name in names]
    values = np.concatenate(columns, axis=2)
    values = values[..., values.any(axis=(0, 1))]
    r_hat = float(np.max(arviz_stats.rhat(values, chain_axis=0, draw_axis=1)))
    ess = float(np.min(arviz_stats.ess(values, chain_axis=0, draw_axis=1)))
    tree.attrs.update(r_hat=r_hat, ess_bulk=ess)
    if not r_hat < R_HAT_LIMIT:
        warn(
            f"R-hat of the identified quantities reaches {r_hat:.2f}: draw more, tighten the "
            "priors (a larger shape), or use inference='nuts'",
            ConvergenceWarning,
        )
    return r_hat < R_HAT_LIMIT


def is_dask(X: object) -> bool:
    """Whether X is a Dask array; without importing Dask."""
    return hasattr(X, "chunks") and type(X).__module__.partition(".")[0] == "dask"
