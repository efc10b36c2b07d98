"""Checks of what the step functions are given: an error of one sentence before any work."""

import numpy as np

from bsdr_models.numerics.arrays import FloatArray, IntArray, Target

SIGNS = (
    "y must hold signs, 1 and -1 at least once for each outcome and 0 where a label is missing, "
    "such as numpy.where(y[:, None] == numpy.arange(K), 1, -1) of classes"
)
CLASSES = (
    "y must hold the classes 0 to K - 1, each at least once and at least two, such as "
    "numpy.unique(y, return_inverse=True)[1], or -1 without a label if the model knows such samples"
)


def _read_numbers(name: str, values: object, missing: bool) -> FloatArray:
    """Numbers as float64, finite, or NaN if some may be missing."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError(f"they are {array.dtype}")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers: {error}") from None
    if not (np.isfinite(array) | (missing & np.isnan(array))).all():
        raise ValueError(f"{name} holds {'infinity' if missing else 'NaN or infinity'}")
    return array


def read_samples(X: object, *, missing: bool = False) -> FloatArray:
    """Samples (N, D), NaN where a value is missing if some may be."""
    array = _read_numbers("X", X, missing)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"X must have the shape (N, D), got {array.shape}")
    return array


def read_outputs(y: object, n_samples: int, *, missing: bool = False) -> FloatArray:
    """Numbers (N, K) for each of N samples."""
    array = _read_numbers("y", y, missing)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or len(array) != n_samples:
        raise ValueError(f"y must be given for each of {n_samples} samples, got {array.shape}")
    return array


def read_classes(y: object, n_samples: int, *, unlabeled: bool = False) -> IntArray:
    """Classes 0 to K - 1 (N,), and -1 without a label if some samples may be ``unlabeled``."""
    array = read_outputs(y, n_samples)
    found = np.setdiff1d(array, [-1.0] if unlabeled else [])
    if array.shape[1] > 1 or len(found) < 2 or not np.array_equal(found, np.arange(len(found))):
        raise ValueError(CLASSES)
    return array[:, 0].astype(np.int64)


def read_targets(y: object, target: Target, n_samples: int) -> tuple[np.ndarray, int]:
    """Classes (N,), label sets as bool (N, K) or real outputs (N, K), and K."""
    if target == "multiclass":
        classes = read_classes(y, n_samples)
        return classes, int(classes.max()) + 1
    array = read_outputs(y, n_samples)
    if target == "multilabel":
        if not np.isin(array, (0.0, 1.0)).all():
            raise ValueError("y must hold 0 and 1 for each label")
        array = array == 1.0
    return array, array.shape[1]


def read_signs(y: object, n_samples: int) -> FloatArray:
    """Signs (N, K), 0 without a label."""
    array = read_outputs(y, n_samples)
    known = np.isin(array, (-1.0, 0.0, 1.0)).all()
    if not (known and (array == 1.0).any(axis=0).all() and (array == -1.0).any(axis=0).all()):
        raise ValueError(SIGNS)
    return array
