"""Validation of input to the declarative models; NumPy only."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from bsdr_models.arrays import FloatArray, IntArray


def check_features(X: Any, n_components: int) -> tuple[FloatArray, list[str]]:
    """X as a finite (N, D) array, and its feature names.

    Raises
    ------
    ValueError
        If X is not a finite matrix, or ``n_components`` is not an integer from 1 to D.
    """
    array = np.asarray(X, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"X must be a non-empty matrix (N, D), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("X contains NaN or infinity")
    n_features = array.shape[1]
    if n_components != int(n_components) or not 1 <= n_components <= n_features:
        raise ValueError(
            f"n_components must be an integer from 1 to {n_features}, got {n_components!r}"
        )
    return array, column_names(X, "x", n_features)


def column_names(table: Any, prefix: str, n_columns: int) -> list[str]:
    """Names of the columns of a data frame, or else a prefix and a number."""
    columns = getattr(table, "columns", None)
    if columns is None:
        return [f"{prefix}{index}" for index in range(n_columns)]
    return [str(column) for column in columns]


def read_views(views: Any, feature_names: Sequence[Any]) -> list[tuple[str, IntArray]] | None:
    """Names and features of views, in the order of their names if these are given by feature.

    Parameters
    ----------
    views : mapping, sequence or None
        Columns by the name of the view; columns of each view; or the name of the view of each
        feature. Columns are names of features, or their positions.
    feature_names : sequence

    Raises
    ------
    ValueError
        If a column is unknown, or a feature is not in exactly one view.
    """
    if views is None:
        return None
    names, d = list(feature_names), len(feature_names)
    if isinstance(views, str) or not isinstance(views, Iterable):
        raise ValueError(f"views must name columns or the view of each feature, got {views!r}")
    if not isinstance(views, Mapping):
        views = list(views)
        if not any(
            isinstance(each, Sequence | np.ndarray) and not isinstance(each, str) for each in views
        ):
            if len(views) != d:
                raise ValueError(
                    f"views must name the view of each of the {d} features, got {len(views)} names"
                )
            each = np.array([str(view) for view in views])
            order = np.unique(np.asarray(views)).astype(str)
            return [(name, np.flatnonzero(each == name)) for name in order]
        views = {f"view {v}": columns for v, columns in enumerate(views)}
    found, seen = [], np.zeros(d, dtype=int)
    for view, columns in views.items():
        index = []
        for column in [columns] if isinstance(columns, str) else columns:
            if isinstance(column, Integral) and not isinstance(column, bool):
                position = int(column)
            else:
                position = names.index(column) if column in names else -1
            if not 0 <= position < d:
                raise ValueError(f"views: {view!r} has column {column!r}, which X does not have")
            index.append(position)
        if not index:
            raise ValueError(f"views: {view!r} has no columns")
        own = np.array(index)
        seen[np.unique(own)] += 1
        found.append((str(view), own))
    if (seen != 1).any():
        feature = int(np.argmax(seen != 1))
        where = "no view" if seen[feature] == 0 else "more than one view"
        raise ValueError(f"views: feature {str(names[feature])!r} is in {where}")
    return found


def encode_classes(y: np.ndarray) -> tuple[IntArray, list[Any]]:
    """Class index of each sample, (N,), and the sorted classes.

    Raises
    ------
    ValueError
        If y is not a vector of at least two classes.
    """
    if y.ndim != 1:
        raise ValueError(f"labels must be a vector (N,), got shape {y.shape}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity")
    labels, index = np.unique(y, return_inverse=True)
    if len(labels) < 2:
        raise ValueError(f"y must hold at least two classes, got {labels.tolist()}")
    return index.astype(np.int64), labels.tolist()


def check_number(
    name: str,
    value: Any,
    *,
    sign: Literal["positive", "non-negative", "any"] = "positive",
    infinite: bool = False,
) -> float:
    """Number of the given sign as a float, else ValueError."""
    number = isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
    if number and sign != "any":
        number = value > 0 or (sign == "non-negative" and value == 0)
    if not number or not (infinite or math.isfinite(value)):
        wanted = ("" if sign == "any" else f"{sign} ") + ("" if infinite else "finite ")
        raise ValueError(f"{name} must be a {wanted}number, got {value!r}")
    return float(value)
