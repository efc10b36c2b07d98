"""Validation of input to the declarative models; NumPy only."""

import math
from numbers import Real
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
    also: str = "",
) -> float:
    """Number of the given sign as a float, else ValueError."""
    number = isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
    if number and sign != "any":
        number = value > 0 or (sign == "non-negative" and value == 0)
    if not number or not (infinite or math.isfinite(value)):
        wanted = ("" if sign == "any" else f"{sign} ") + ("" if infinite else "finite ")
        raise ValueError(f"{name} must be a {wanted}number{also}, got {value!r}")
    return float(value)
