"""Groups of samples that resemble each other, such as scans of one patient."""

from numbers import Real

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils.validation import _num_samples

from bsdr_models.arrays import IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.row_space import Rows
from bsdr_models.process_state import warn
from bsdr_models.validation import check_order, is_missing

# A sample is in a bundle if its next neighbour is so many times as far as those before. On twelve
# data sets without repeated measures that holds for at most a third of the samples, and for all of
# five scans that differ by a fifth of what patients differ by.
GAP = 2.5
# Share of the samples in bundles above which a fit warns.
BUNDLED = 0.7
# In fewer features the nearest neighbours of independent samples are at very unlike distances.
LEAST_FEATURES = 3
# Features of at most so many values agree by chance.
FEW_VALUES = 10
# Neighbours, and samples whose neighbours are looked for.
MOST_NEIGHBOURS = 10
MOST_LOOKED_AT = 200


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


def warn_of_replicates(X: Rows, classes: IntArray | None) -> None:
    """Warn if scaled samples (N, D) of one class (N,) come in bundles, as repeated measures do.

    Those of a bundle are close to each other, and all others of the class far from them. Classes
    are -1 if unknown, and None of real outputs. Sparse or incomplete samples are not looked at.
    """
    if issparse(X) or X.shape[1] < LEAST_FEATURES or np.isnan(X).any():
        return
    from sklearn.neighbors import NearestNeighbors  # takes .2 s to load

    classes = np.zeros(len(X), dtype=np.int64) if classes is None else classes
    looked_at = evenly_spaced(len(X), MOST_LOOKED_AT)
    if not any(len(np.unique(values)) > FEW_VALUES for values in X[looked_at].T):
        return
    gap = []
    for label in np.unique(classes[classes >= 0]):
        own = X[classes == label]
        n_neighbours = min(MOST_NEIGHBOURS, len(own) - 2)
        new = X[looked_at[classes[looked_at] == label]]
        if n_neighbours < 1 or not len(new):
            continue
        search = NearestNeighbors(n_neighbors=n_neighbours + 2, algorithm="brute").fit(own)
        distance = search.kneighbors(new)[0][:, 1:]  # the first is the sample itself
        gap.append((distance[:, 1:] > GAP * distance[:, :-1]).any(axis=1))
    if gap and np.concatenate(gap).mean() > BUNDLED:
        warn(
            "samples come in bundles that resemble each other much more than the rest of their "
            "class, as repeated measures of one subject do: give fit(groups=...), the subject of "
            "each sample, or probabilities and held-out scores are too sure"
        )
