"""Conversion of tables and targets of any library for scikit-learn's validation.

Scikit-learn reads arrays, frames of pandas and polars and sparse matrices, and compares column
names. Handled here is what it would misread or refuse without a clear message: xarray, masked
arrays, dates, text among numbers, duplicate column names.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from bsdr_models.arrays import BoolArray, FloatArray

# Kinds of dtype that NumPy would convert to numbers.
NO_NUMBERS = {"M": "dates", "m": "time differences"}


def require_targets(estimator: BaseEstimator, y: Any) -> None:
    """Raise a ValueError if there are no targets."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")


def validate_samples(
    estimator: BaseEstimator,
    X: Any,
    *,
    reset: bool,
    sparse: bool = False,
    missing: bool = False,
    least: int = 1,
) -> Any:
    """Samples as a C-ordered float64 array (N, D) or in CSR format; checks names of columns.

    Parameters
    ----------
    estimator : BaseEstimator
        ``n_features_in_`` and ``feature_names_in_`` are set if ``reset``, else compared.
    X : array, frame of pandas or polars, DataArray, or sparse matrix
    reset : bool
        Whether this is a fit.
    sparse : bool
        Whether to accept sparse matrices.
    missing : bool
        Whether to accept NaN.
    least : int
        Smallest number of samples.

    Raises
    ------
    TypeError
        If X is not a table, or sparse and not accepted.
    ValueError
        If X is not a finite matrix of numbers, or its columns are not those of the fit.
    """
    with np.errstate(over="ignore"):  # overflow becomes infinity, which is refused
        return validate_data(
            estimator,
            read_table(estimator, X, sparse=sparse),
            reset=reset,
            dtype=np.float64,
            order="C",
            accept_sparse="csr" if sparse else False,
            ensure_all_finite="allow-nan" if missing else True,
            ensure_min_samples=least,
        )


def read_table(estimator: BaseEstimator, X: Any, *, sparse: bool) -> Any:
    """X in a form that scikit-learn reads.

    A DataArray becomes a frame, with columns named by the coordinate of its second dim; masked
    entries become NaN.

    Raises
    ------
    TypeError
        If X is not a table, or sparse and not accepted.
    ValueError
        If a column is not numeric, or names are not unique.
    """
    name = type(estimator).__name__
    if isinstance(X, xr.Dataset | xr.DataTree):
        raise TypeError(
            f"X is an xarray {type(X).__name__}, {name} takes a DataArray of two dims, samples "
            "and features: give one variable, or dataset.to_dataarray('feature').T"
        )
    if isinstance(X, xr.DataArray):
        X = X.to_pandas() if X.ndim == 2 else X.values
    if hasattr(X, "collect_schema") and not hasattr(X, "shape"):
        raise TypeError("X is a lazy frame: give X.collect()")
    if _is_sparse(X):
        if not sparse:
            raise TypeError(
                f"Sparse data was passed for X, but {name} takes dense arrays only: make it dense "
                "if it fits into memory, or use BM2PCAClassifier, which takes sparse data"
            )
        return X
    if _is_frame(X):
        return _read_frame(X)
    if isinstance(X, np.ma.MaskedArray):
        X = _without_mask(X)
    return _read_array(X)


def sample_labels(X: Any) -> np.ndarray | None:
    """Labels of samples, (N,): the index of a pandas frame, or the first coordinate of a DataArray.

    Numbers and dates keep their type. All others become text, which every file format stores: an
    index of several levels, for instance, the text of its tuples. None without an index.
    """
    if isinstance(X, xr.DataArray):
        index = X.indexes.get(X.dims[0]) if X.ndim else None
    else:
        index = X.index if hasattr(X, "index") and _is_frame(X) else None
    if index is None:
        return None
    labels = index.to_numpy()
    if labels.dtype.kind in "iufM":
        return labels.copy()
    names = [str(label) for label in index.tolist()]
    check_text("a sample of X is named", names)
    return np.array(names)


def check_text(what: str, values: Iterable[Any]) -> None:
    """Raise a ValueError if a text has a NUL character, which NetCDF and HDF5 do not store."""
    for value in values:
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"{what} {value!r}: files of results cannot hold a NUL character")


def read_targets(y: Any) -> np.ndarray:
    """Targets as a dense array, (N,) or (N, K), of their own dtype.

    Raises
    ------
    TypeError
        If y is a dict, set or xarray Dataset.
    ValueError
        If y is a single value, ragged, or has masked entries.
    """
    if issparse(y):
        return y.toarray()
    if isinstance(y, dict | set | xr.Dataset | xr.DataTree):
        raise TypeError(f"y must be an array, a list or a series, got {type(y).__name__}")
    if np.ma.is_masked(y):
        raise ValueError("y has masked entries: leave out these samples, or fill them")
    try:
        array = np.asarray(y)
    except ValueError as error:
        raise ValueError(f"y cannot be read as an array: {error}") from None
    if array.ndim in (1, 2) and array.dtype.kind == "U":
        entries = np.asarray(y, dtype=object)
        if not all(isinstance(v, str) for v in entries.ravel()):
            array = entries  # else NaN in a list of text becomes "nan"
    if array.dtype.kind == "T":  # text of any length, which files do not store
        array = array.astype(object)
    if array.ndim == 0:
        raise ValueError(f"y must be an array with an entry for each sample, got {y!r}")
    if not len(array):
        raise ValueError("y has no entries")
    if array.dtype.kind in "OSU":
        check_text("y has the label", array.ravel().tolist())
    return array


def read_truth(y: Any, *, classes: bool) -> np.ndarray | None:
    """True targets of predicted samples, or None; a column of classes becomes a vector."""
    if y is None:
        return None
    y = read_targets(y)
    return y.ravel() if classes and y.shape[1:] == (1,) else y


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT, masked, or the NA of pandas."""
    if value is None or value is np.ma.masked or type(value).__name__ == "NAType":
        return True
    return not isinstance(value, np.ndarray) and bool(value != value)


def missing_entries(y: np.ndarray) -> BoolArray:
    """Mask of the missing entries of an array."""
    if y.dtype == object:
        return np.array([is_missing(value) for value in y.ravel()], dtype=bool).reshape(y.shape)
    return np.isnan(y) if y.dtype.kind in "fmM" else np.zeros(y.shape, dtype=bool)


def read_numbers(y: Any, *, missing: bool = False) -> FloatArray:
    """Real targets, (N,) or (N, K), of float64.

    Raises
    ------
    TypeError, ValueError
        As for :func:`read_targets`; or if a target is not finite. NaN passes if ``missing``.
    """
    y = read_targets(y)
    if y.dtype == object:
        values = [np.nan if is_missing(value) else value for value in y.ravel()]
        y = np.array(values, dtype=object).reshape(y.shape)
    if y.dtype.kind in "OUSmM":
        for column in y.reshape(len(y), -1).T:
            _check_column("y", column)
    return check_array(
        y,
        dtype=np.float64,
        order="C",
        ensure_2d=False,
        ensure_all_finite="allow-nan" if missing else True,
        input_name="y",
    )


def _is_sparse(X: Any) -> bool:
    """Whether X is a sparse matrix, or a frame of sparse columns only."""
    if issparse(X):
        return True
    if not _is_frame(X):
        return False
    return {type(dtype).__name__ for dtype in X.dtypes} == {"SparseDtype"}


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def _read_frame(X: Any) -> Any:
    """Check the columns of a frame; a frame without columns becomes an array."""
    labels = list(X.columns)
    if not labels:
        return np.empty((len(X), 0))
    label, count = Counter(labels).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} columns of X are named {label!r}: names must be unique")
    check_text("a column of X is named", labels)
    for index, dtype in enumerate(X.dtypes):
        if not _is_number(dtype):
            column = X.iloc[:, index] if hasattr(X, "iloc") else X.to_series(index)
            _check_column(f"column {labels[index]!r} of X", np.asarray(column))
    return X


def _read_array(X: Any) -> Any:
    """Check an array-like, and return it unchanged."""
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"X cannot be read as a matrix: {error}") from None
    if array.ndim == 0 and array.dtype.kind in "OUS":
        raise TypeError(f"X must be a matrix of samples and features, got {type(X).__name__}")
    if array.dtype.kind == "V":
        raise TypeError("X is an array of records: give a DataFrame of it")
    if array.ndim == 2 and array.dtype.kind in "OUSmM":
        for index, column in enumerate(array.T):
            _check_column(f"column {index} of X", column)
    return X


def _is_number(dtype: Any) -> bool:
    """Whether a dtype is numeric (complex included) or bool."""
    if hasattr(dtype, "is_numeric"):
        return bool(dtype.is_numeric())
    return getattr(dtype, "kind", "O") in "biufc"


def _check_column(what: str, values: np.ndarray) -> None:
    """Raise an error that names the column unless its values are convertible to float."""
    if values.dtype.kind in NO_NUMBERS:
        raise ValueError(f"{what} holds {NO_NUMBERS[values.dtype.kind]}: convert them to numbers")
    try:
        for value in values.tolist():
            if value is not None:
                float(value)
    except (TypeError, ValueError, OverflowError) as error:
        kind = ValueError if isinstance(error, OverflowError) else type(error)
        raise kind(f"{what} cannot be read as numbers: {error}") from None


def _without_mask(X: np.ma.MaskedArray) -> np.ndarray:
    """Array with NaN for masked entries."""
    if not np.ma.is_masked(X):
        return np.asarray(X)
    return np.where(np.ma.getmaskarray(X), np.nan, X.data)
