"""A look at every block before anything is computed from any: one error, with block and row."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bsdr_models.checks import plain_labels
from bsdr_models.frames import is_missing
from bsdr_models.inference.row_blocks import Block, RowBlocks
from bsdr_models.numerics.scaled_rows import ColumnStatistics, column_statistics
from bsdr_models.typing import BoolArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Blocks whose values a fit can use.

    blocks
        Their y is the index of each row's class, -1 without a label; None if it was None.
    classes
        Sorted, (K,); None without targets.
    counts
        Rows of each class, (K,).
    statistics
        Of the columns.
    """

    blocks: RowBlocks
    classes: np.ndarray | None
    counts: IntArray | None
    statistics: ColumnStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    n_features: int
    classes: np.ndarray | None
    unlabeled: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What one visit finds; of two faults the first counts, and statistics say nothing then."""

    fault: tuple[int, str] | None = None
    statistics: ColumnStatistics | None = None
    labels: np.ndarray | None = None
    counts: IntArray | None = None

    def __add__(self, other: "_Found") -> "_Found":
        if self.fault or other.fault:
            return self if self.fault else other
        assert self.statistics is not None
        assert other.statistics is not None
        labels, counts = self.labels, self.counts
        if labels is None:
            labels, counts = other.labels, other.counts
        elif other.labels is not None:
            if (labels.dtype.kind in "OUS") != (other.labels.dtype.kind in "OUS"):
                message = "the labels of some blocks are text, and of others numbers"
                return _Found(fault=(-1, message))
            labels, place = np.unique(np.concatenate([labels, other.labels]), return_inverse=True)
            assert counts is not None
            assert other.counts is not None
            both = np.concatenate([counts, other.counts])
            counts = np.bincount(place, both, len(labels)).astype(np.int64)
        statistics = self.statistics + other.statistics
        return _Found(statistics=statistics, labels=labels, counts=counts)


def check_blocks(
    blocks: RowBlocks, *, classes: np.ndarray | None = None, unlabeled: Any = None
) -> Checked:
    """Look at every value once, before anything is computed from any.

    Parameters
    ----------
    blocks : RowBlocks
        Their targets are labels, one for a row, or None.
    classes : ndarray, optional
        Labels that there may be; None for those that are found.
    unlabeled : scalar, optional
        Marks rows without a label; NaN marks every kind of missing value. None marks nothing.

    Raises
    ------
    ValueError
        If a block holds what is no finite number, has another number of features, or a label is
        missing or not one of the classes. The message names block and row.
    """
    known = None if classes is None else np.unique(np.asarray(classes))
    wanted = _Wanted(n_features=blocks.n_features, classes=known, unlabeled=unlabeled)
    _, found = blocks.visit(_look, shared=wanted)
    if found.fault is not None:
        row, message = found.fault
        ends = np.cumsum(blocks.sizes)
        place = "" if row < 0 else f"block {np.searchsorted(ends, row, side='right')}, "
        raise ValueError(f"{place}{message}")
    assert found.statistics is not None
    if found.labels is None:
        if unlabeled is not None:
            raise ValueError(f"every y equals unlabeled={unlabeled!r}: no row has a label")
        return Checked(blocks=blocks, classes=None, counts=None, statistics=found.statistics)
    assert found.counts is not None
    labels, counts = found.labels, found.counts
    if known is not None:
        index = np.searchsorted(known, labels)
        labels, counts = known, np.bincount(index, counts, len(known)).astype(np.int64)
    encoded = blocks.map(partial(_encode, unlabeled=unlabeled), shared=labels)
    return Checked(
        blocks=blocks.with_targets(encoded),
        classes=labels,
        counts=counts,
        statistics=found.statistics,
    )


def _look(block: Block, wanted: _Wanted) -> tuple[None, _Found]:
    try:
        statistics = _look_at_rows(block, wanted.n_features)
        labels, counts = _look_at_labels(block, wanted)
    except _FaultError as fault:
        return None, _Found(fault=(fault.row, str(fault)))
    return None, _Found(statistics=statistics, labels=labels, counts=counts)


class _FaultError(ValueError):
    """Something in a block; it is named by the visitor, who knows the other blocks."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def _look_at_rows(block: Block, n_features: int) -> ColumnStatistics:
    X, begin = block.X, block.begin
    rows = f"rows {begin} to {begin + X.shape[0] - 1}"
    if X.ndim != 2 or X.shape[1] != n_features:
        raise _FaultError(begin, f"{rows}: X has shape {X.shape}, wanted are {n_features} features")
    if X.dtype.kind not in "fiub":
        raise _FaultError(begin, f"{rows}: X is of type {X.dtype}, wanted are real numbers")
    statistics = column_statistics(X, begin=begin)
    if statistics.bad is not None:
        row, column = statistics.bad
        value = X[row - begin, column]
        raise _FaultError(row, f"row {row}: X contains {value} (column {column})")
    return statistics


def _look_at_labels(block: Block, wanted: _Wanted) -> tuple[np.ndarray | None, IntArray | None]:
    """Labels and how often they occur, None if no row has one."""
    if block.y is None:
        return None, None
    y, begin = np.asarray(block.y), block.begin
    if y.shape != (block.X.shape[0],):
        message = f"y has shape {y.shape}, wanted is one label for each of {block.X.shape[0]} rows"
        raise _FaultError(begin, f"rows from {begin}: {message}")
    known = ~_unlabeled(y, wanted.unlabeled)

    def refuse(bad: BoolArray, problem: str) -> None:
        if (bad := known & bad).any():
            row = int(bad.argmax())
            raise _FaultError(begin + row, f"row {begin + row}: y is {y[row]}, {problem}")

    refuse(_missing(y), "which is no label; unlabeled=numpy.nan takes rows without one")
    if y.dtype.kind == "f":
        refuse(~np.isfinite(y), "which is no label")
        with np.errstate(invalid="ignore"):
            refuse(y != np.floor(y), "and a class is text or a whole number")
    if not known.any():
        return None, None
    try:
        labels, counts = np.unique(plain_labels(y[known]), return_counts=True)
    except (TypeError, ValueError) as error:
        raise _FaultError(begin, f"rows from {begin}: {error}") from error
    if wanted.classes is not None:
        unseen = np.setdiff1d(labels, wanted.classes)
        if unseen.size:
            refuse(np.isin(y, unseen), f"which is none of the classes {wanted.classes.tolist()}")
    return labels, counts.astype(np.int64)


def _encode(block: Block, labels: np.ndarray, *, unlabeled: Any) -> IntArray:
    """Class of each row, -1 without."""
    y = np.asarray(block.y)
    known = ~_unlabeled(y, unlabeled)
    index = np.full(len(y), -1, dtype=np.int64)
    index[known] = np.searchsorted(labels, plain_labels(y[known]))
    return index


def _unlabeled(y: np.ndarray, marker: Any) -> BoolArray:
    """Where y is the marker of rows without a label."""
    if marker is None:
        return np.zeros(y.shape, dtype=bool)
    if is_missing(marker):
        return _missing(y)
    if y.dtype == object:
        return np.array([not is_missing(each) and each == marker for each in y], dtype=bool)
    return np.broadcast_to(y == marker, y.shape)


def _missing(y: np.ndarray) -> BoolArray:
    if y.dtype == object:
        return np.array([is_missing(each) for each in y], dtype=bool)
    return np.isnan(y) if y.dtype.kind == "f" else np.zeros(y.shape, dtype=bool)
