"""Input of a fit: samples, and targets as signs, 0 for a missing label."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import column_or_1d

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.priors import PAPER, Priors
from bsdr_models.bm2pca.settings import Strategy
from bsdr_models.dims import LABEL, SCORE
from bsdr_models.numerics.row_space import Rows
from bsdr_models.tasks import by_task
from bsdr_models.validation import check_text, encode_known, known_entries

# Values of C and of another setting of a classifier by name.
type Candidate = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Samples, targets and fixed settings of a fit."""

    X: Rows  # (N, P), scaled, NaN for a missing value; or sparse
    Y: FloatArray  # Signs, (N, K), 0 without a label; or real targets, NaN if missing
    epsilon: float | None = None  # Half width of the epsilon-insensitive interval; None for signs
    # Features of each view; None for one view of all.
    columns: tuple[IntArray | None, ...] = (None,)
    n_components: int  # R, of each problem
    strategy: Strategy  # One subspace for all outcomes, or one for each
    # Number of columns of Y of each task, whose classes exclude each other: one column for two
    # classes. () for several labels, and for real targets.
    sizes: tuple[int, ...] = ()
    # Whether the loss of the common subspace is the hinge of all classes of a task.
    multiclass: bool = False
    # Units of the features, (P,), and weights of the candidates of the metric, from all samples and
    # without each fold, (1 + F, J), of `bsdr_models.metric`; None for the Euclidean metric.
    units: FloatArray | None = None
    metric_weights: FloatArray | None = None
    priors: Priors = PAPER

    @property
    def observed(self) -> BoolArray:
        """Mask of the observed targets, (N, K)."""
        return self.Y != 0.0 if self.epsilon is None else ~np.isnan(self.Y)

    @property
    def score_axis(self) -> str:
        """The axis of Y in models and trees: two classes have one score, not one each."""
        return SCORE if 1 in self.sizes else LABEL

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return issparse(self.X) or not np.isnan(self.X).any()

    def subset(self, index: IntArray) -> "Problem":
        """The same problem for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Encoded targets of a classifier."""

    given: np.ndarray  # Targets as an array, (N,), (N, K) or (N, T)
    # Sorted classes, or the numbers of the labels, (K,); for several tasks the classes of each.
    classes: np.ndarray | list[np.ndarray]
    signs: FloatArray  # (N, K), as of a task; columns of several tasks are side by side
    sizes: tuple[int, ...]  # As of a task
    # Class of each sample, -1 without; (N, T) for several tasks; for several labels 0 if any is
    # known, else -1.
    groups: IntArray
    tasks: tuple[Any, ...] = ()  # Names of several tasks, else ()

    @property
    def exclusive(self) -> bool:
        """Whether classes exclude each other; False for several labels."""
        return bool(self.sizes)


def compares_classes(
    n_samples: int, n_features: int, n_components: int, sizes: tuple[int, ...]
) -> bool:
    """Whether the loss of a common subspace is the hinge of all classes of a task.

    With few components no line need separate a class from all others, and with more samples than
    features the classes are seldom separable.
    """
    few = n_components < sum(max(size - 1, 1) for size in sizes)
    return max(sizes, default=0) > 2 and (few or n_samples > n_features)


def encode_signs(index: IntArray, classes: list[Any]) -> tuple[FloatArray, str, list[Any]]:
    """Signs (N, K) of classes (N,), the name of their axis, and the outcomes along it.

    Two classes have one class score, that of the second.
    """
    signs = _signs(index, len(classes))
    axis = SCORE if len(classes) == 2 else LABEL
    return signs, axis, classes[-signs.shape[1] :]


def _signs(index: IntArray, n_classes: int) -> FloatArray:
    """Signs (N, K) of classes (N,), 0 of those that are -1; one column for two classes."""
    first = 1 if n_classes == 2 else 0
    signs = np.where(index[:, None] == np.arange(first, n_classes), 1.0, -1.0)
    signs[index < 0] = 0.0
    return signs


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


def task_order(y: Any, fitted: Sequence[Any]) -> list[int] | slice:
    """Columns of y in the order of the tasks of a fit: by name if both have names.

    Raise a ValueError if the names differ.
    """
    names = task_names(y)
    if names is None:
        return slice(None)
    if len(names) == len(fitted) and set(names) == set(fitted):
        return [names.index(name) for name in fitted]
    if list(fitted) == list(range(len(fitted))):  # the tasks of the fit have no names
        return slice(None)
    raise ValueError(f"y has the columns {list(names)}, the tasks of the fit are {list(fitted)}")


def _encode_classes(y: np.ndarray, known: BoolArray) -> Labels:
    classes, groups = encode_known(y, known)
    signs = _signs(groups, len(classes))
    return Labels(given=y, classes=classes, signs=signs, sizes=(signs.shape[1],), groups=groups)


def _encode_tasks(y: np.ndarray, known: BoolArray, names: tuple[Any, ...] | None) -> Labels:
    """Classes of several tasks, (N, T)."""
    tasks = tuple(range(y.shape[1])) if names is None else names
    shared, count = Counter(map(str, tasks)).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} columns of y are named {shared!r}: give each task its own name")
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
        classes=[np.asarray(problem.classes) for problem in each],
        signs=np.concatenate([problem.signs for problem in each], axis=1),
        sizes=tuple(problem.signs.shape[1] for problem in each),
        groups=np.column_stack([problem.groups for problem in each]),
        tasks=tasks,
    )


def _zeros_and_ones(y: np.ndarray, known: BoolArray) -> FloatArray | None:
    """Signs of the labels in y (N, K), 0 without; None if it does not hold only 0 and 1."""
    if y.dtype.kind in "mMSU" or not np.isin(on := np.where(known, y, 0), (0, 1)).all():
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


def class_index(signs: FloatArray, sizes: tuple[int, ...]) -> IntArray:
    """Class of each sample in each task, or 0 and 1 for each label, -1 if unknown: (M, T)."""
    columns = [
        np.where(own.any(axis=1), own.argmax(axis=1) if own.shape[1] > 1 else own[:, 0] > 0.0, -1)
        for own in _blocks(signs, sizes)
    ]
    return np.column_stack(columns)


def _blocks(values: FloatArray, sizes: tuple[int, ...]) -> list[FloatArray]:
    """Columns of each task, or of each label."""
    return by_task(values, sizes or (1,) * values.shape[1])
