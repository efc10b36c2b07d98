"""Validation of estimators' input and fits, with errors and warnings that name the cause."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.numerics.scaling import Scaler

# The matrices are small: more threads are slower, and change the rounding.
one_thread = partial(threadpool_limits, limits=1, user_api="blas")

# Absolute value of unscaled features beyond which sums of fourth powers would overflow.
MAX_RAW = 1e60
# Largest R-hat of an identified quantity without a warning.
R_HAT_LIMIT = 1.05


def feature_names(estimator: Any) -> np.ndarray:
    """Names of the training features, or else x0, x1, ..."""
    names = getattr(estimator, "feature_names_in_", None)
    return np.array([f"x{i}" for i in range(estimator.n_features_in_)]) if names is None else names


def check_latent(Z: Any, n_components: int) -> FloatArray:
    """Latent coordinates as a finite array (N, R), else ValueError."""
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or Z.shape[1] != n_components:
        raise ValueError(f"Z must have shape (n_samples, {n_components}), got {Z.shape}")
    if not np.isfinite(Z).all():
        raise ValueError("Z contains NaN or infinity")
    return Z


def plain_labels(y: np.ndarray) -> np.ndarray:
    """Convert labels of dtype object to numbers, unless they are text.

    Raises
    ------
    ValueError
        If text and numbers are mixed, or labels are neither.
    """
    if y.dtype != object or all(isinstance(value, str) for value in y.ravel()):
        return y
    if all(isinstance(value, Real | np.bool_) for value in y.ravel()):
        return np.array(y.tolist())
    kinds = sorted({type(value).__name__ for value in y.ravel()})
    raise ValueError(f"y has labels of type {', '.join(kinds)}: give only text, or only numbers")


def encode_labels(y: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Sorted classes, and the class index of each sample, (N,); see `check_classes`."""
    classes, index = np.unique(y, return_inverse=True)
    check_classes(classes, np.bincount(index), stacklevel=4)
    return classes, index


def check_classes(classes: np.ndarray, counts: IntArray, *, stacklevel: int = 3) -> None:
    """Warn about a class with a single sample.

    Raises
    ------
    ValueError
        If there is one class only.
    """
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only, {classes.tolist()[0]!r}; at least two classes are needed"
        )
    if counts.min() == 1:
        label = classes.tolist()[counts.argmin()]
        warnings.warn(f"class {label!r} has a single sample", UserWarning, stacklevel=stacklevel)


def fit_scaler(X: FloatArray, *, standardize: bool) -> Scaler:
    """Centre and scale of training samples, (N, P); see `check_variation`."""
    scaler = Scaler.fit(X, standardize=standardize)
    check_variation(scaler, stacklevel=5)
    return scaler


def check_variation(scaler: Scaler, *, stacklevel: int = 3) -> None:
    """Warn about constant features.

    Raises
    ------
    ValueError
        If no feature varies.
    """
    if scaler.constant.all():
        raise ValueError("X has no variation: all rows are equal")
    if scaler.constant.any():
        warnings.warn(
            f"{int(scaler.constant.sum())} of {scaler.constant.size} features are constant in the "
            "training samples and are ignored",
            UserWarning,
            stacklevel=stacklevel,
        )


@contextmanager
def constant_features_ignored() -> Iterator[None]:
    """Context of refits to parts of the samples, which do not warn of constant features."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* features are constant in the training")
        yield


@contextmanager
def units_of_samples(X: FloatArray, *, standardize: bool) -> Iterator[None]:
    """Context of a fit to centred X (N, D).

    Raises
    ------
    ValueError
        If X is not standardised, and its units make the computation fail.
    """
    if standardize:
        yield
        return
    size = float(np.abs(X).max())
    if not 1.0 / MAX_RAW <= size <= MAX_RAW:
        raise ValueError(
            f"X is not standardised, and samples are {size:.3g} from their mean: give "
            "standardize=True, or other units"
        )
    try:
        yield
    except (np.linalg.LinAlgError, RuntimeError) as error:  # no factorisation, or a falling bound
        raise ValueError(
            f"X is not standardised, and its units are too far from those of the priors ({error}): "
            "give standardize=True, or other units"
        ) from error


def warn_not_converged(max_iter: int, tol: float, *, stacklevel: int = 3) -> None:
    """Warn that mean field reached its maximum number of iterations."""
    warnings.warn(
        f"mean field stopped after max_iter={max_iter} iterations before the bound rose by less "
        f"than tol={tol:g} nats; the result is usable, a larger max_iter is more exact",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )


def warn_unless_mixed(tree: xr.DataTree, names: Sequence[str], *, stacklevel: int = 3) -> bool:
    """Whether R-hat of some variables is small; warns with a remedy if not.

    Always False for a single chain. Stores ``r_hat`` and ``ess_bulk`` in the root attributes.
    """
    if tree["posterior"].sizes["chain"] < 2:
        return False
    worst, n_effective = mixing(tree, names)
    tree.attrs.update(r_hat=worst, ess_bulk=n_effective)
    if not worst < R_HAT_LIMIT:
        warnings.warn(
            f"R-hat of the identified quantities reaches {worst:.2f}: draw more, tighten the "
            "priors (a larger shape), or use inference='nuts'",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )
        return False
    return True


def mixing(tree: xr.DataTree, names: Sequence[str]) -> tuple[float, float]:
    """Largest R-hat and smallest bulk ESS of some variables of a tree; NaN counts as worst.

    Entries that are zero by definition, such as those of the first of two classes, are left out.
    """
    import arviz_stats

    posterior = tree["posterior"].dataset
    columns = [posterior[name].values.reshape(*posterior[name].shape[:2], -1) for name in names]
    values = np.concatenate(columns, axis=2)
    values = values[..., values.any(axis=(0, 1))]
    r_hat = arviz_stats.rhat(values, chain_axis=0, draw_axis=1)
    ess = arviz_stats.ess(values, chain_axis=0, draw_axis=1)
    return float(np.max(r_hat)), float(np.min(ess))
