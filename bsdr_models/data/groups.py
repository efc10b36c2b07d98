"""Groups of samples that resemble each other, such as scans of one patient."""

from numbers import Real

import numpy as np
import pandas as pd
from sklearn.utils.validation import _num_samples

from bsdr_models.data.validation import check_order, is_missing
from bsdr_models.numerics.arrays import IntArray, SamplesLike, TargetLike


def read_groups(groups: TargetLike | None, X: SamplesLike) -> IntArray | None:
    """Number of the group of each sample of X, (N,); None without groups."""
    if groups is None:
        return None
    check_order(X, groups)
    names, index = name_groups(np.asarray(groups, dtype=object), _num_samples(X))
    if len(names) < 2:
        raise ValueError(
            f"groups has one value only, {names[0]!r}: at least two are needed, to hold one out"
        )
    return index


def name_groups(groups: TargetLike, n_samples: int) -> tuple[list[object], IntArray]:
    """Groups, in the order of ordered categories or else sorted, and that of each sample, (N,)."""
    if isinstance(groups, np.ndarray) and groups.dtype.kind == "M":
        groups = groups.astype("datetime64[us]")  # dates in nanoseconds would become integers
    values = np.asarray(groups, dtype=object)
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
    categories = getattr(groups, "dtype", None)
    if isinstance(categories, pd.CategoricalDtype) and categories.ordered:
        rank = categories.categories.get_indexer(names)
        names = names[np.argsort(rank)]
        index = rank.argsort().argsort()[index]
    return names.tolist(), index.astype(np.int64)


def majority_share(groups: IntArray, classes: IntArray) -> float:
    """Share of the samples that have the most frequent class of their group; both are (N,).

    Classes are -1 if unknown. Near one, groups alone tell the class.
    """
    known = classes >= 0
    counts = np.zeros((groups.max() + 1, classes.max() + 1))
    np.add.at(counts, (groups[known], classes[known]), 1)
    return float(counts.max(axis=1).sum() / counts.sum())
