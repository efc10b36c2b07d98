"""Folds and subsets of samples, drawn at random, whatever their order, rounding, units and names.

A random number of each sample is drawn for its rank in its class, by the mean square of its values.
Ranks are the same in any order of samples and features, and a rounding error exchanges two of them
only where they are tied.
"""

import numpy as np
from scipy.sparse import csr_array, issparse

from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray, Rows
from bsdr_models.numerics.scaling import squared_distance

# Folds, at most.
N_FOLDS = 5
# Root mean square difference of copies of a sample, in units of that of all values: rounding to six
# digits, of features whose mean is ten standard deviations from zero.
COPY_TOL = 1e-5
# A missing value is so many root mean squares from all others.
FAR = 100.0
# Features of at most so many values agree by chance.
FEW_VALUES = 10
# Copies are as many times more pairs than independent features of the same values would have.
EXCESS = 10.0
# Sums of shares of the classes are equal if so many decimals are.
DECIMALS = 12


def random_keys(X: Rows, classes: IntArray | None, rng: np.random.Generator) -> IntArray:
    """Random permutation of 0 to N - 1, a number for each sample, by ranks within its class.

    X (N, D) is dense, NaN if missing, or sparse. Classes are (N,), or (N, T) of several labels;
    None for real outputs.
    """
    n = X.shape[0]
    size = _mean_square(X)
    stratum = np.zeros(n, dtype=np.int64)
    if classes is not None:
        stratum = find_strata(classes)
    # Classes in an order in which their names have no part.
    place = np.argsort(np.lexsort((np.bincount(stratum, size), np.bincount(stratum))))
    keys = np.empty(n, dtype=np.int64)
    keys[np.lexsort((size, place[stratum]))] = rng.permutation(n)
    return keys


def find_strata(classes: IntArray) -> IntArray:
    """Numbers (N,) of the classes (N,), or of the sets of several labels (N, T)."""
    return np.unique(classes, axis=0, return_inverse=True)[1].reshape(-1)


def _mean_square(X: Rows) -> FloatArray:
    """Mean square of the known values of each sample, (N,); 0 without any."""
    if issparse(X):
        return squared_distance(X, np.zeros(X.shape[1])) / X.shape[1]
    known = ~np.isnan(X)
    square = np.where(known, X, 0.0) ** 2
    return np.asarray(square.sum(axis=1) / np.maximum(known.sum(axis=1), 1))


def find_copies(X: Rows) -> IntArray | None:
    """Groups (N,) of samples (N, D) that are equal up to rounding; None if they are by chance.

    Features of few values, and pairs that are not more frequent than among independent features, do
    not show that a sample was copied.
    """
    typical = float(np.mean(_mean_square(X))) or 1.0
    if issparse(X):
        X = csr_array(X)
    elif (missing := np.isnan(X)).any():  # copies lack the same values
        X = np.where(missing, FAR * np.sqrt(typical), X)
    # Equal samples are neighbours along any direction.
    along = X @ np.random.default_rng(0).standard_normal(X.shape[1])
    order = np.argsort(along, kind="stable")
    difference = X[order[1:]] - X[order[:-1]]
    apart = squared_distance(difference, np.zeros(X.shape[1]))
    same = apart <= COPY_TOL**2 * typical * X.shape[1]
    if not same.any() or (not issparse(X) and _by_chance(X, order, same)):
        return None
    group = np.empty(X.shape[0], dtype=np.int64)
    group[order] = np.cumsum(np.append(True, ~same)) - 1
    return group


def _by_chance(X: FloatArray, order: IntArray, same: BoolArray) -> bool:
    """Whether independent features of the same values would have about as many equal samples."""
    size = np.diff(np.flatnonzero(np.append(np.append(True, ~same), True)))
    n_equal = float(np.sum(size * (size - 1.0))) / 2.0
    log_share = 0.0
    few = True
    for values in X.T:
        _, count = np.unique(values, return_counts=True)
        few = few and len(count) <= FEW_VALUES
        log_share += np.log(np.sum((count / len(X)) ** 2))
    expected = 0.5 * len(X) * (len(X) - 1.0) * np.exp(log_share)
    return few or n_equal <= EXCESS * expected


def make_folds(
    keys: IntArray, classes: IntArray | None, groups: IntArray | None = None
) -> IntArray:
    """Fold of each sample, (N,), stratified by class, (N,) or (N, T), -1 if it is unknown.

    ``keys`` are of :func:`random_keys`. Samples of a class are assigned to folds in turn; its only
    one is never held out, and none without a class. Real outputs have no classes. Samples of one
    group, (N,), are in one fold: then groups take the place of samples, and are never held out if
    they have all samples of a class.
    """
    strata = np.zeros(len(keys), dtype=np.int64) if classes is None else classes
    if groups is not None:
        return _folds_of_groups(strata, groups, keys)
    if strata.ndim == 2:
        return _stratify_labels(strata, keys)
    order = np.argsort(keys, kind="stable")
    order = order[strata[order] >= 0]
    _, first = np.unique(strata[order], return_index=True)
    fold = np.full(len(strata), -1, dtype=np.int64)
    begin = 0
    for label in strata[order][np.sort(first)]:
        members = order[strata[order] == label]
        if len(members) > 1:
            fold[members] = (begin + np.arange(len(members))) % N_FOLDS
            begin += len(members)
    return fold


def _folds_of_groups(strata: IntArray, groups: IntArray, keys: IntArray) -> IntArray:
    """Fold of each sample, (N,), that of its group; -1 without any label.

    Groups are in random order, but those with large shares of a class rather first, and each goes
    to the fold in which classes are then spread most evenly over the folds.
    """
    columns = strata.reshape(len(strata), -1)
    names, index = np.unique(groups, return_inverse=True)
    counts = []
    for own in columns.T:
        count = np.zeros((len(names), int(own.max(initial=0)) + 1))
        np.add.at(count, (index[own >= 0], own[own >= 0]), 1.0)
        counts.append(count)
    count = np.concatenate(counts, axis=1)  # samples of each class in each group, (G, K)
    n_groups = np.count_nonzero(count, axis=0)
    alone = (count[:, n_groups == 1] > 0.0).any(axis=1)
    most = int(n_groups[n_groups > 1].max(initial=0))
    n_folds = min(N_FOLDS, most, int(np.count_nonzero(~alone)))
    fold_of = np.full(len(names), -1, dtype=np.int64)
    if n_folds > 1:
        first = np.full(len(names), len(keys), dtype=np.int64)
        np.minimum.at(first, index, keys)
        share = count / np.maximum(count.sum(axis=0), 1.0)
        total = np.zeros((n_folds, share.shape[1]))
        luck = np.argsort(np.argsort(first)) / len(names)
        size = share.max(axis=1) * (1.0 + luck)
        for group in np.lexsort((luck, -np.round(size, DECIMALS))):
            if not alone[group]:
                choices = total + np.eye(n_folds)[:, :, None] * share[group]  # (F, F, K)
                uneven = choices.var(axis=1).sum(axis=1)
                fold_of[group] = int(np.round(uneven, DECIMALS).argmin())
                total = choices[fold_of[group]]
        for has in (count > 0.0).T:  # a class may not be in one fold alone
            if len(np.unique(fold_of[has])) == 1:
                own = np.flatnonzero(has)
                fold_of[own[first[own].argmin()]] = -1
    fold = fold_of[index]
    fold[(columns < 0).all(axis=1)] = -1
    return fold


def _stratify_labels(classes: IntArray, keys: IntArray) -> IntArray:
    """Fold of each sample, (N,), stratified by several labels [1]_.

    The smallest class is first. Each of its samples without a fold goes to the fold that has the
    fewest samples of the class, and among these the fewest of all. If all samples of a class are in
    one fold, one of them is never held out.

    References
    ----------
    .. [1] K. Sechidis, G. Tsoumakas, I. Vlahavas (2011). On the stratification of multi-label data.
           ECML PKDD.
    """
    order = np.argsort(keys, kind="stable")
    place = np.argsort(order)
    members = []
    for own in classes.T:
        members += [order[own[order] == label] for label in np.unique(own[own >= 0])]
    members.sort(key=lambda own: (len(own), place[own].tolist()))
    fold = np.full(len(classes), -1, dtype=np.int64)
    total = np.zeros(N_FOLDS, dtype=np.int64)
    for own in members:
        count = np.bincount(fold[own][fold[own] >= 0], minlength=N_FOLDS)
        for sample in own[fold[own] < 0]:
            best = np.lexsort((total, count))[0]
            fold[sample] = best
            count[best] += 1
            total[best] += 1
    for own in members:
        if len(np.unique(fold[own])) == 1:
            fold[own[0]] = -1
    return fold


def evenly_spaced(total: int, most: int) -> IntArray:
    """At most so many evenly spaced indices below ``total``."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).astype(np.int64))


def stratified_subset(y: IntArray, n_max: int) -> IntArray:
    """Indices of about ``n_max`` samples at most, the same share of every class."""
    if len(y) <= n_max:
        return np.arange(len(y))
    kept = []
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        share = -(-len(members) * n_max // len(y))
        kept.append(members[evenly_spaced(len(members), share)])
    return np.sort(np.concatenate(kept))


def subsample(y: IntArray, most: int) -> IntArray:
    """Indices of so many samples, labelled ones first, the same share of every class (N,)."""
    known = np.flatnonzero(y >= 0)
    unknown = np.flatnonzero(y < 0)
    n_others = max(most - len(known), 0)
    others = unknown[evenly_spaced(len(unknown), n_others)] if n_others else unknown[:0]
    return np.sort(np.append(known[stratified_subset(y[known], most)], others))
