"""Validation and encoding of labels, some of which may be missing."""

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from bsdr_models.arrays import BoolArray, IntArray
from bsdr_models.checks import encode_labels, plain_labels
from bsdr_models.frames import is_missing, missing_entries, read_targets


def read_labels(y: Any) -> np.ndarray:
    """Labels of all samples, (N,) or (N, K), none missing.

    Raises
    ------
    ValueError
        If a label is missing or infinite, or text and numbers are mixed.
    """
    y = read_targets(y)
    if (lost := missing_entries(y)).any():
        raise ValueError(f"Input y contains NaN or None, first at {np.argwhere(lost)[0].tolist()}")
    check_array(y, ensure_2d=False, dtype=None, input_name="y")
    return _check_classes(plain_labels(y))


def known_entries(y: Any, unlabeled: Any) -> tuple[np.ndarray, BoolArray]:
    """Targets as an array, and a mask of the known ones.

    Parameters
    ----------
    y : array-like
    unlabeled : scalar, optional
        Marks unlabelled entries; NaN marks every kind of missing value, None nothing.

    Raises
    ------
    ValueError
        If a label is missing but not marked, or all are marked.
    """
    if np.ndim(unlabeled) != 0:
        raise ValueError(f"unlabeled must be a single value, got {unlabeled!r}")
    y = read_targets(y)
    known = ~_marked(y, unlabeled)
    if known.size and not known.any():
        raise ValueError(f"every y equals unlabeled={unlabeled!r}: no row has a label")
    if (lost := known & missing_entries(y)).any():
        raise ValueError(
            f"Input y contains NaN or None, first at {np.argwhere(lost)[0].tolist()}: give "
            "unlabeled=numpy.nan if these samples have no label"
        )
    check_array(y[known], ensure_2d=False, dtype=None, ensure_min_samples=0, input_name="y")
    return y, known


def encode_known(y: np.ndarray, known: BoolArray) -> tuple[np.ndarray, IntArray]:
    """Sorted classes, and the class index of each sample, (N,), -1 if unlabelled.

    Raises
    ------
    ValueError
        If y is not a vector with at least two classes.
    """
    y, known = column_or_1d(y, warn=True), known.ravel()
    labelled = y[known]
    labelled = _check_classes(plain_labels(labelled))
    classes, index = encode_labels(labelled)
    groups = np.full(len(y), -1, dtype=np.int64)
    groups[known] = index
    return classes, groups


def _check_classes(y: np.ndarray) -> np.ndarray:
    """Return y; ValueError if it is continuous."""
    with np.errstate(invalid="ignore"):  # scikit-learn compares them with integers
        check_classification_targets(y)
    return y


def _marked(y: np.ndarray, marker: Any) -> BoolArray:
    """Mask of the entries equal to the marker."""
    if marker is None:
        return np.zeros(y.shape, dtype=bool)
    if is_missing(marker):
        return missing_entries(y)
    if y.dtype == object:
        found = [not is_missing(value) and value == marker for value in y.ravel()]
        return np.array(found, dtype=bool).reshape(y.shape)
    return np.broadcast_to(y == marker, y.shape)
