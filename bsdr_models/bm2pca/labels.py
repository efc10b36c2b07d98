"""Encode labels as signs, 0 for a missing label."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.validation import check_text, encode_known, known_entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Encoded targets of a classifier.

    given
        Targets as an array, (N,), (N, K) or (N, T).
    classes
        Sorted classes, or the numbers of the labels, (K,); for several tasks the classes of each.
    signs
        (N, K) in {-1, 0, 1}, 0 without a label; one column for two classes. Columns of several
        tasks are side by side.
    sizes
        Number of columns of each task, whose classes exclude each other; () for several labels.
    groups
        Class of each sample, -1 without; (N, T) for several tasks; for several labels 0 if any is
        known, else -1.
    tasks
        Names of several tasks, else ().
    """

    given: np.ndarray
    classes: np.ndarray | list[np.ndarray]
    signs: FloatArray
    sizes: tuple[int, ...]
    groups: IntArray
    tasks: tuple[Any, ...] = ()

    @property
    def exclusive(self) -> bool:
        """Whether classes exclude each other; False for several labels."""
        return bool(self.sizes)


def encode(y: Any, unlabeled: Any) -> Labels:
    """Encode classes (N,), zeros and ones of several labels (N, K), or classes of tasks (N, T).

    Several columns are labels if they hold only 0 and 1, else tasks. NaN as the marker
    ``unlabeled`` stands for every kind of missing value. Raise a ValueError if y, or a task, has an
    unmarked missing value, fewer than two classes, a constant label, or no labels.
    """
    names = task_names(y)
    y, known = known_entries(y, unlabeled)
    if y.ndim == 2 and y.shape[1] > 1:
        labels = _zeros_and_ones(y, known)
        return _encode_tasks(y, known, names) if labels is None else _encode_labels(y, labels)
    return _encode_classes(column_or_1d(y, warn=True), known)


def task_names(y: Any) -> tuple[Any, ...] | None:
    """Names of the columns of a frame, or None."""
    if not hasattr(y, "columns"):
        return None
    names = tuple(name if isinstance(name, int) else str(name) for name in y.columns)
    check_text("a column of y is named", names)
    return names


def _encode_classes(y: np.ndarray, known: BoolArray) -> Labels:
    classes, groups = encode_known(y, known)
    if len(classes) == 2:
        signs = np.where(groups < 0, 0.0, 2.0 * groups - 1.0)[:, None]
    else:
        signs = np.where(groups[:, None] == np.arange(len(classes)), 1.0, -1.0)
        signs[groups < 0] = 0.0
    return Labels(given=y, classes=classes, signs=signs, sizes=(signs.shape[1],), groups=groups)


def _encode_tasks(y: np.ndarray, known: BoolArray, names: tuple[Any, ...] | None) -> Labels:
    """Classes of several tasks, (N, T)."""
    tasks = tuple(range(y.shape[1])) if names is None else names
    each: list[Labels] = []
    for name, column, own in zip(tasks, y.T, known.T, strict=True):
        if not own.any():
            raise ValueError(f"task {name!r} of y has no label")
        try:
            each.append(_encode_classes(column, own))
        except ValueError as error:
            raise ValueError(f"task {name!r} of y: {error}") from None
    return Labels(
        given=y,
        classes=[np.asarray(task.classes) for task in each],
        signs=np.concatenate([task.signs for task in each], axis=1),
        sizes=tuple(task.signs.shape[1] for task in each),
        groups=np.column_stack([task.groups for task in each]),
        tasks=tasks,
    )


def _zeros_and_ones(y: np.ndarray, known: BoolArray) -> FloatArray | None:
    """Signs of the labels in y (N, K), 0 without; None if it does not hold only 0 and 1."""
    on = y if y.dtype.kind in "SU" else np.where(known, y, 0)
    if on.dtype == object:
        if any(isinstance(value, str) for value in on.ravel()):
            return None
        on = np.array(on.tolist())
    if type_of_target(on) != "multilabel-indicator" or not np.isin(on, (0, 1)).all():
        return None
    return np.where(known, 2.0 * on.astype(np.float64) - 1.0, 0.0)


def _encode_labels(y: np.ndarray, signs: FloatArray) -> Labels:
    for label, column in enumerate(signs.T):
        if not {-1.0, 1.0} <= set(column.tolist()):
            raise ValueError(f"label {label} of y is the same in every sample that has it")
    return Labels(
        given=y,
        classes=np.arange(y.shape[1]),
        signs=signs,
        sizes=(),
        groups=np.where((signs != 0.0).any(axis=1), 0, -1),
    )
