"""What the estimators ask of their input: errors and warnings that name the cause."""

import warnings
from numbers import Real
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning

from bsdr_models.numerics.scaling import Scaler
from bsdr_models.typing import FloatArray, IntArray


def encode_labels(y: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Classes, sorted, and the index of each row's class, (N,).

    Warns about a class with a single row.

    Raises
    ------
    ValueError
        If there is one class only.
    """
    classes, index = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only, {classes.tolist()[0]!r}; at least two classes are needed"
        )
    counts = np.bincount(index)
    if counts.min() == 1:
        label = classes.tolist()[counts.argmin()]
        warnings.warn(f"class {label!r} has a single row", UserWarning, stacklevel=3)
    return classes, index


def dense_targets(y: Any) -> np.ndarray:
    """Targets as an array; a sparse indicator matrix is made dense."""
    return y.toarray() if issparse(y) else np.asarray(y)


def fit_scaler(X: FloatArray, *, standardize: bool) -> Scaler:
    """Centre and scale of training rows, (N, P).

    Warns about constant features.

    Raises
    ------
    ValueError
        If no feature varies.
    """
    scaler = Scaler.fit(X, standardize=standardize)
    if scaler.constant.all():
        raise ValueError("X has no variation: all rows are equal")
    if scaler.constant.any():
        warnings.warn(
            f"{int(scaler.constant.sum())} of {X.shape[1]} features are constant in the training "
            "rows and are ignored",
            UserWarning,
            stacklevel=4,
        )
    return scaler


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise a ValueError unless the argument is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def check_count(name: str, value: Any) -> None:
    """Raise a ValueError unless the argument is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def check_tol(tol: Any) -> None:
    """Raise a ValueError unless the tolerance is a number of nats that is not negative."""
    if isinstance(tol, bool) or not isinstance(tol, Real) or not 0.0 <= float(tol) < np.inf:
        raise ValueError(f"tol must be a finite number of nats >= 0, got {tol!r}")


def warn_not_converged(max_iter: int, tol: float, *, stacklevel: int = 3) -> None:
    """Warn that mean field reached its limit of iterations."""
    warnings.warn(
        f"mean field stopped after max_iter={max_iter} iterations before a round gained less "
        f"than tol={tol:g} nats; the result is usable, a larger max_iter makes it exact",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )
