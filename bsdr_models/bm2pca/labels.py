"""Encode labels as signs, 0 for a missing label."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.unlabeled import encode_known, known_entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Encoded targets of a classifier.

    given
        Targets as an array, (N,) or (N, K).
    classes
        Sorted classes, or the numbers of the labels, (K,).
    signs
        (N, K) in {-1, 0, 1}, 0 without a label; one column for two classes.
    groups
        Class of each sample, -1 without; for several labels 0 if any is known, else -1.
    exclusive
        Whether classes exclude each other; False for several labels.
    """

    given: np.ndarray
    classes: np.ndarray
    signs: FloatArray
    groups: IntArray
    exclusive: bool


def encode(y: Any, unlabeled: Any) -> Labels:
    """Encode classes (N,), or zeros and ones of several labels (N, K).

    Parameters
    ----------
    y : array-like
    unlabeled : scalar, optional
        Marker of a missing label; NaN stands for every kind of missing value.

    Raises
    ------
    ValueError
        If y has an unmarked missing value, fewer than two classes, a constant label, or no labels.
    """
    y, known = known_entries(y, unlabeled)
    if y.ndim == 2 and y.shape[1] > 1:
        return _encode_labels(y, known)
    return _encode_classes(column_or_1d(y, warn=True), known)


def _encode_classes(y: np.ndarray, known: BoolArray) -> Labels:
    classes, groups = encode_known(y, known)
    if len(classes) == 2:
        signs = np.where(groups < 0, 0.0, 2.0 * groups - 1.0)[:, None]
    else:
        signs = np.where(groups[:, None] == np.arange(len(classes)), 1.0, -1.0)
        signs[groups < 0] = 0.0
    return Labels(given=y, classes=classes, signs=signs, groups=groups, exclusive=True)


def _encode_labels(y: np.ndarray, known: BoolArray) -> Labels:
    on = y if y.dtype.kind in "SU" else np.where(known, y, 0)
    on = np.array(on.tolist()) if on.dtype == object else on
    if type_of_target(on) != "multilabel-indicator":
        raise ValueError(
            "a y of several columns must hold 0 and 1 (labels), or the marker given by "
            f"unlabeled; got {type_of_target(on)}. Classes make a 1d array"
        )
    signs = np.where(known, 2.0 * on.astype(np.float64) - 1.0, 0.0)
    for label, column in enumerate(signs.T):
        if not {-1.0, 1.0} <= set(column.tolist()):
            raise ValueError(f"label {label} of y is the same in every sample that has it")
    return Labels(
        given=y,
        classes=np.arange(y.shape[1]),
        signs=signs,
        groups=np.where(known.any(axis=1), 0, -1),
        exclusive=False,
    )
