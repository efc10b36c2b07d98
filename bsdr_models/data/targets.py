"""Targets of a fit, and groups of its samples, as given and as models take them.

Targets are classes, label sets or real outputs. Samples of one group resemble each other, such as
scans of one patient.
"""

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import _num_samples

from bsdr_models.data.validation import (
    check_order,
    encode_known,
    fill_masked,
    is_missing,
    known_entries,
    label_names,
)
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, Target, TargetLike
from bsdr_models.numerics.process_state import warn


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Targets of the training samples."""

    kind: Target
    y: np.ndarray  # as trees show them, (N,) or (N, K)
    # Class of each sample (N,), or 0 and 1 of each label (N, T), -1 if unknown; or real outputs as
    # the model sees them, (N, K).
    coded: np.ndarray
    names: np.ndarray  # sorted classes, or names of the labels or outputs, (K,)
    attrs: dict[str, Any] = field(default_factory=dict)  # for the trees

    @property
    def classes(self) -> IntArray | None:
        """Classes or labels; None of real outputs."""
        return None if self.kind == "regression" else self.coded

    @property
    def index(self) -> IntArray | None:
        """Class of each sample, (N,); None unless targets are classes."""
        return self.coded if self.kind == "multiclass" else None

    def take(self, kept: IntArray) -> "Targets":
        """Those of some samples."""
        return replace(self, y=self.y[kept], coded=self.coded[kept])


def read_classes(y: TargetLike, unlabeled: object = None, *, several: bool = False) -> Targets:
    """Classes (N,) or, if ``several`` labels are allowed, zeros and ones of label sets (N, T).

    ``unlabeled`` marks what is unknown. Raise a ValueError if y has an unmarked missing value,
    fewer than two classes, or a constant label.
    """
    given, known = known_entries(y, unlabeled)
    if several and given.ndim == 2 and given.shape[1] > 1:
        return _read_labels(y, given, known)
    names, index = encode_known(given, known)
    attrs = order_attrs(y, names)
    y = names[index] if known.all() else given.ravel()
    return Targets(kind="multiclass", y=y, coded=index, names=names, attrs=attrs)


def category_order(values: object, names: np.ndarray) -> IntArray | None:
    """Positions of the sorted names in the order of ordered categories; None of other values."""
    if isinstance(values, pd.DataFrame):
        values = values.squeeze("columns")
    kind = getattr(values, "dtype", None)
    if not (isinstance(kind, pd.CategoricalDtype) and kind.ordered):
        return None
    return np.argsort(kind.categories.get_indexer(names))


def order_attrs(y: object, names: np.ndarray) -> dict[str, list[int]]:
    """Root attribute of trees: the order in which classes are shown, if it is not that of names."""
    order = category_order(y, names)
    return {} if order is None else {"class_order": order.tolist()}


def _read_labels(y: TargetLike, given: np.ndarray, known: np.ndarray) -> Targets:
    """Label sets (N, T), some of whose entries are known (N, T)."""
    if given.dtype.kind in "mMSU" or not np.isin(given[known], (0, 1)).all():
        raise ValueError(
            "Unknown label type: several columns of y must hold 0 and 1, one for each label; to "
            "predict several targets of other classes, fit a model to each"
        )
    coded = np.full(given.shape, -1, dtype=np.int64)
    coded[known] = given[known]
    for label, column in enumerate(coded.T):
        if not {0, 1} <= set(column.tolist()):
            raise ValueError(f"label {label} of y is the same in every sample that has it")
    names = label_names(y, coded.shape[1])
    complete = coded[known.all(axis=1)]
    if len(complete) and (complete.sum(axis=1) == 1).all():
        classes = "y.idxmax(axis=1)" if hasattr(y, "idxmax") else "numpy.argmax(y, axis=1)"
        warn(
            f"the {len(names)} columns of y are read as independent labels, and every sample has "
            f"exactly one of them: if they are classes that exclude each other, give {classes} for "
            "y"
        )
    return Targets(kind="multilabel", y=coded if known.all() else given, coded=coded, names=names)


def read_groups(groups: TargetLike | None, X: SamplesLike) -> IntArray | None:
    """Number of the group of each sample of X, (N,); None without groups."""
    if groups is None:
        return None
    names, index = name_groups(groups, X)
    if len(names) < 2:
        raise ValueError(
            f"groups has one value only, {names[0]!r}: at least two are needed, to hold one out"
        )
    return index


def name_groups(groups: TargetLike, X: SamplesLike) -> tuple[list[object], IntArray]:
    """Groups, in the order of ordered categories or else sorted, and that of each sample, (N,)."""
    check_order(X, groups)
    n_samples = _num_samples(X)
    if isinstance(groups, np.ndarray) and groups.dtype.kind == "M":
        groups = groups.astype("datetime64[us]")  # dates in nanoseconds would become integers
    values = np.asarray(fill_masked(groups), dtype=object)
    if values.shape not in {(n_samples,), (n_samples, 1)}:
        raise ValueError(
            f"groups must have one value per sample, ({n_samples},), got {values.shape}"
        )
    values = values.ravel()
    kinds = [Real if isinstance(value, Real | np.bool_) else type(value) for value in values]
    for sample, value in enumerate(values):
        if is_missing(value):
            raise ValueError(f"groups has no value at position {sample}")
        if kinds[sample] != kinds[0]:
            raise ValueError(
                f"groups mixes types: {value!r} at position {sample}, {values[0]!r} at position 0"
            )
    names, index = np.unique(values, return_inverse=True)
    order = category_order(groups, names)
    if order is not None:
        names = names[order]
        index = np.argsort(order)[index]
    return names.tolist(), index.astype(np.int64)


def majority_share(groups: IntArray, classes: IntArray) -> float:
    """Share of the samples that have the most frequent class of their group; both are (N,).

    Classes are -1 if unknown. Near one, groups alone tell the class.
    """
    known = classes >= 0
    counts = np.zeros((groups.max() + 1, classes.max() + 1))
    np.add.at(counts, (groups[known], classes[known]), 1)
    return float(counts.max(axis=1).sum() / counts.sum())


def class_frequency(
    index: IntArray, n_classes: int, weights: FloatArray | None = None
) -> FloatArray:
    """Share of each class in the labelled samples, (K,), for class indices (N,), -1 if unknown."""
    known = index >= 0
    own = None if weights is None else weights[known]
    counts = np.bincount(index[known], own, minlength=n_classes)
    return np.asarray(counts / counts.sum())
