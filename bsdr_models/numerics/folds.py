"""Folds and subsets of samples that depend on their values, not on their order or on a seed."""

from zlib import crc32

import numpy as np
from scipy.sparse import csr_array, issparse

from bsdr_models.arrays import IntArray
from bsdr_models.numerics.row_space import Rows

# Folds, at most.
N_FOLDS = 5
# Decimals that count, in units of the root mean square of all features: far above rounding errors,
# which depend on the order.
_DECIMALS = 6


def sample_keys(X: Rows) -> IntArray:
    """Pseudo-random number of each sample, (N,), a function of its absolute values in any order.

    X (N, D) is dense, NaN if missing, or CSR. The numbers are the same for dense and sparse
    samples, and whatever the unit and the sign of features.
    """
    found = np.empty(X.shape[0], dtype=np.int64)
    sparse = issparse(X)
    X = csr_array(X) if sparse else np.asarray(X)
    known = X.data if sparse else X
    size = float(np.sqrt(np.nansum(known**2) / np.prod(X.shape))) or 1.0
    for n in range(len(found)):
        values = X.data[X.indptr[n] : X.indptr[n + 1]] if sparse else X[n]
        values = np.sort(np.nan_to_num(np.round(np.abs(values) / size, _DECIMALS), nan=np.inf))
        found[n] = crc32(values[values != 0.0].tobytes())
    return found


def make_folds(X: Rows, classes: IntArray | None, groups: IntArray | None = None) -> IntArray:
    """Fold of each sample (N, D), stratified by class, (N,) or (N, T), -1 if it is unknown.

    There are at most as many folds as samples in the smallest class with two or more. Real outputs
    have no classes. Samples of one group, (N,), are in one fold: then groups take the place of
    samples, and are never held out if they have all samples of a class.
    """
    strata = np.zeros(X.shape[0], dtype=np.int64) if classes is None else classes
    if groups is not None:
        return _folds_of_groups(strata, groups)
    size = np.bincount(strata[strata >= 0]) if strata.ndim == 1 else np.array([len(strata)])
    n_folds = min(N_FOLDS, int(size[size > 1].min(initial=len(strata))))
    return assign_folds(strata, sample_keys(X), n_folds=n_folds)


def _folds_of_groups(strata: IntArray, groups: IntArray) -> IntArray:
    """Fold of each sample, (N,), that of its group; -1 without any label.

    The groups with the largest shares of a class are first, and each goes to the fold in which
    classes are then spread most evenly over the folds.
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
    n_folds = min(N_FOLDS, int(n_groups[n_groups > 1].min(initial=np.count_nonzero(~alone))))
    fold_of = np.full(len(names), -1, dtype=np.int64)
    if n_folds > 1:
        share = count / np.maximum(count.sum(axis=0), 1.0)
        total = np.zeros((n_folds, share.shape[1]))
        for group in np.argsort(-share.max(axis=1), kind="stable"):
            if not alone[group]:
                choices = total + np.eye(n_folds)[:, :, None] * share[group]  # (F, F, K)
                fold_of[group] = int(choices.var(axis=1).sum(axis=1).argmin())
                total = choices[fold_of[group]]
        for has in (count > 0.0).T:  # a class may not be in one fold alone
            if len(np.unique(fold_of[has])) == 1:
                fold_of[np.flatnonzero(has)[0]] = -1
    fold = fold_of[index]
    fold[(columns < 0).all(axis=1)] = -1
    return fold


def assign_folds(groups: IntArray, keys: IntArray, *, n_folds: int) -> IntArray:
    """Fold of each sample, (N,), stratified by group; -1 if it is never held out.

    ``groups`` is the class of each sample, (N,), -1 without, or of its T labels, (N, T), and
    ``keys`` are of :func:`sample_keys`. Samples of a group are assigned to folds in turn. The only
    sample of a group, or one without a group, is never held out.
    """
    if groups.ndim == 2:
        return _stratify_labels(groups, keys, n_folds)
    order = np.argsort(keys, kind="stable")
    order = order[groups[order] >= 0]
    _, first = np.unique(groups[order], return_index=True)
    fold = np.full(len(groups), -1, dtype=np.int64)
    begin = 0
    for group in groups[order][np.sort(first)]:
        members = order[groups[order] == group]
        if len(members) > 1:
            fold[members] = (begin + np.arange(len(members))) % n_folds
            begin += len(members)
    return fold


def _stratify_labels(groups: IntArray, keys: IntArray, n_folds: int) -> IntArray:
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
    members = [order[own[order] == group] for own in groups.T for group in np.unique(own[own >= 0])]
    members.sort(key=lambda own: (len(own), place[own].tolist()))
    fold = np.full(len(groups), -1, dtype=np.int64)
    total = np.zeros(n_folds, dtype=np.int64)
    for own in members:
        count = np.bincount(fold[own][fold[own] >= 0], minlength=n_folds)
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
        group = np.flatnonzero(y == label)
        share = -(-len(group) * n_max // len(y))
        kept.append(group[evenly_spaced(len(group), share)])
    return np.sort(np.concatenate(kept))
