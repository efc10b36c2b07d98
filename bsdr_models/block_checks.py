"""Validation of blocks of samples; errors name block and row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bsdr_models.arrays import BoolArray, IntArray
from bsdr_models.checks import plain_labels
from bsdr_models.frames import missing_entries
from bsdr_models.inference.sample_blocks import Block, SampleBlocks
from bsdr_models.numerics.scaled_samples import ColumnStatistics, column_statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Validated blocks.

    blocks
        With class indices as y.
    classes
        Sorted, (K,).
    counts
        Samples per class, (K,).
    statistics
        Of the columns.
    """

    blocks: SampleBlocks
    classes: np.ndarray
    counts: IntArray
    statistics: ColumnStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Summand of the validation: the first fault, or else statistics and labels."""

    fault: tuple[int, str] | None = None
    statistics: ColumnStatistics | None = None
    labels: np.ndarray | None = None
    counts: IntArray | None = None

    def __add__(self, other: "_Found") -> "_Found":
        if self.fault or other.fault:
            return self if self.fault else other
        assert self.statistics is not None
        assert other.statistics is not None
        assert self.labels is not None
        assert other.labels is not None
        if (self.labels.dtype.kind in "OUS") != (other.labels.dtype.kind in "OUS"):
            return _Found(fault=(-1, "the labels of some blocks are text, and of others numbers"))
        both = np.concatenate([self.labels, other.labels])
        labels, index = np.unique(both, return_inverse=True)
        assert self.counts is not None
        assert other.counts is not None
        weights = np.concatenate([self.counts, other.counts])
        counts = np.bincount(index, weights, len(labels)).astype(np.int64)
        statistics = self.statistics + other.statistics
        return _Found(statistics=statistics, labels=labels, counts=counts)


def check_blocks(blocks: SampleBlocks) -> Checked:
    """Validate all values in one pass.

    Parameters
    ----------
    blocks : SampleBlocks
        Their targets are labels, one per sample.

    Raises
    ------
    ValueError
        If a value is not a finite number, numbers of features differ, or a label is missing.
    """
    found = blocks.reduce(_check_block, shared=blocks.n_features)
    if found.fault is not None:
        row, message = found.fault
        ends = np.cumsum(blocks.sizes)
        place = "" if row < 0 else f"block {np.searchsorted(ends, row, side='right')}, "
        raise ValueError(f"{place}{message}")
    assert found.statistics is not None
    assert found.labels is not None
    assert found.counts is not None
    encoded = blocks.map(_encode, shared=found.labels)
    return Checked(
        blocks=blocks.with_targets(encoded),
        classes=found.labels,
        counts=found.counts,
        statistics=found.statistics,
    )


def _check_block(block: Block, n_features: int) -> _Found:
    try:
        statistics = _check_samples(block, n_features)
        labels, counts = _check_labels(block)
    except _FaultError as fault:
        return _Found(fault=(fault.row, str(fault)))
    return _Found(statistics=statistics, labels=labels, counts=counts)


class _FaultError(ValueError):
    """Invalid value in a block; `check_blocks` adds the number of the block."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def _check_samples(block: Block, n_features: int) -> ColumnStatistics:
    X, begin = block.X, block.begin
    rows = f"rows {begin} to {begin + X.shape[0] - 1}"
    if X.ndim != 2 or X.shape[1] != n_features:
        raise _FaultError(begin, f"{rows}: X has shape {X.shape}, expected {n_features} features")
    if X.dtype.kind not in "fiub":
        raise _FaultError(begin, f"{rows}: X is of type {X.dtype}, expected real numbers")
    statistics = column_statistics(X, begin=begin)
    if statistics.bad is not None:
        row, column = statistics.bad
        value = X[row - begin, column]
        raise _FaultError(row, f"row {row}: X contains {value} (column {column})")
    return statistics


def _check_labels(block: Block) -> tuple[np.ndarray, IntArray]:
    """Labels and their counts."""
    y, begin = np.asarray(block.y), block.begin
    if y.shape != (block.X.shape[0],):
        message = f"y has shape {y.shape}, expected one label for each of {block.X.shape[0]} rows"
        raise _FaultError(begin, f"rows from {begin}: {message}")

    def refuse(bad: BoolArray, problem: str) -> None:
        if bad.any():
            row = int(bad.argmax())
            raise _FaultError(begin + row, f"row {begin + row}: y is {y[row]}, {problem}")

    refuse(missing_entries(y), "which is no label")
    if y.dtype.kind == "f":
        refuse(~np.isfinite(y), "which is no label")
        refuse(y != np.floor(y), "and a class is text or a whole number")
    try:
        labels, counts = np.unique(plain_labels(y), return_counts=True)
    except (TypeError, ValueError) as error:
        raise _FaultError(begin, f"rows from {begin}: {error}") from error
    return labels, counts.astype(np.int64)


def _encode(block: Block, labels: np.ndarray) -> IntArray:
    """Class index of each sample."""
    return np.searchsorted(labels, plain_labels(np.asarray(block.y)))


N_KEPT = 2000  # largest number of samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsample:
    """Samples of all blocks, in order.

    index
        Their indices, (n,).
    X
        Features as given, (n, P), or SciPy's CSR.
    y
        Class indices, (n,).
    """

    index: IntArray
    X: Any
    y: IntArray

    def __add__(self, other: "Subsample") -> "Subsample":
        join = sparse.vstack if sparse.issparse(self.X) else np.concatenate
        return Subsample(
            index=np.concatenate([self.index, other.index]),
            X=join([self.X, other.X]),
            y=np.concatenate([self.y, other.y]),
        )


def take_subsample(checked: Checked) -> Subsample:
    """At most `N_KEPT` samples, evenly spaced. Reads X once."""
    ends = np.cumsum(checked.blocks.sizes)
    index = np.linspace(0, ends[-1] - 1, min(N_KEPT, ends[-1])).astype(np.int64)
    return checked.blocks.reduce(_select, shared=index)


def _select(block: Block, index: IntArray) -> Subsample:
    y = np.asarray(block.y)
    own = index[(index >= block.begin) & (index < block.begin + len(y))]
    inside = own - block.begin
    return Subsample(index=own, X=block.X[inside], y=y[inside])
