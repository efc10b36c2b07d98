"""Targets of a fit: classes, label sets or real outputs, as given and as models take them."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bsdr_models.data.validation import encode_known, known_entries, label_names
from bsdr_models.numerics.arrays import IntArray, Target, TargetLike


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
    y = names[index] if known.all() else given.ravel()
    return Targets(kind="multiclass", y=y, coded=index, names=names)


def _read_labels(y: TargetLike, given: np.ndarray, known: np.ndarray) -> Targets:
    """Label sets (N, T), some of whose entries are known (N, T)."""
    on = np.where(known, given, 0)
    if given.dtype.kind in "mMSU" or not np.isin(on, (0, 1)).all():
        raise ValueError(
            "Unknown label type: several columns of y must hold 0 and 1, one for each label; to "
            "predict several targets of other classes, fit a model to each"
        )
    coded = np.where(known, on, -1).astype(np.int64)
    for label, column in enumerate(coded.T):
        if not {0, 1} <= set(column.tolist()):
            raise ValueError(f"label {label} of y is the same in every sample that has it")
    names = label_names(y, coded.shape[1])
    return Targets(kind="multilabel", y=coded if known.all() else given, coded=coded, names=names)
