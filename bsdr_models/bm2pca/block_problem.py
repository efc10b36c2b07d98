"""Rows and targets of BM2PCA in blocks: how a block is read, and the sums of all that stay put.

Shapes: P problems, n rows of a block, N of all, D features, K outcomes.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.sparse import issparse

from bsdr_models.bm2pca.margins import Margins, margins_of
from bsdr_models.bm2pca.mean_field import Data
from bsdr_models.bm2pca.views import Pool, View
from bsdr_models.inference.row_blocks import Block, RowBlocks
from bsdr_models.numerics.scaled_rows import DenseRows, scaled_rows
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.typing import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the ``y`` of a block says.

    strategy
        One subspace for all outcomes, or one problem for each.
    cost
        C.
    epsilon
        Half width of the tube around real targets; None for signs.
    n_labels
        ``y`` holds the numbers of so many classes, (n,), negative without a label. None: it holds
        signs (n, K), 0 without a label, or real targets, NaN where there is none.
    """

    strategy: Literal["shared", "one_vs_rest"]
    cost: float
    epsilon: float | None = None
    n_labels: int | None = None

    def columns(self, y: Any) -> FloatArray:
        """Signs or real targets of the rows, (n, K); one column for two classes."""
        if self.n_labels is None:
            found = np.asarray(y, dtype=np.float64)
            return found if found.ndim == 2 else found[:, None]
        codes = np.asarray(y)
        if self.n_labels == 2:
            return np.where(codes < 0, 0.0, 2.0 * codes - 1.0)[:, None]
        signs = np.where(codes[:, None] == np.arange(self.n_labels), 1.0, -1.0)
        signs[codes < 0] = 0.0
        return signs

    def observed(self, columns: FloatArray) -> BoolArray:
        """Where there is a target, (n, K)."""
        return columns != 0.0 if self.epsilon is None else ~np.isnan(columns)

    def margins(self, columns: FloatArray) -> Margins:
        """Margin factors of all problems."""
        shared = self.strategy == "shared"
        y = np.ascontiguousarray(columns[None] if shared else columns.T[:, :, None])
        return margins_of(y, np.full((len(y), 1, 1), float(self.cost)), self.epsilon)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What all blocks share.

    data
        No rows, and the sums of all.
    targets
        How targets are read.
    scaler
        Through what rows are seen; None for rows as they are.
    labelled_only
        Whether rows without any target are held as sums alone.
    """

    data: Data
    targets: Targets
    scaler: Scaler | None
    labelled_only: bool

    def light(self) -> "Problem":
        """The same without sums that no row needs."""
        views = tuple(replace(view, pool=None) for view in self.data.views)
        return replace(self, data=replace(self.data, views=views))

    def held(self, block: Block) -> BoolArray | None:
        """Which rows have positions of their own, (n,); None for all."""
        if not self.labelled_only:
            return None
        known = self.targets.observed(self.targets.columns(block.y)).any(axis=1)
        return None if known.all() else known

    def without_rows(self, block: Block) -> Data:
        """The margins of a block, whose X is not read."""
        columns, held = self.targets.columns(block.y), self.held(block)
        margins = self.targets.margins(columns if held is None else columns[held])
        return replace(self.data, margins=margins)

    def of_block(self, block: Block) -> Data:
        """The rows of a block and their margins. Sums are those of all blocks."""
        rows = scaled_rows(taken(block.X, self.held(block)), self.scaler, seen=True)
        view = replace(self.data.views[0], X=rows)
        return replace(self.without_rows(block), views=(view,))


def prepare(
    blocks: RowBlocks,
    targets: Targets,
    *,
    scaler: Scaler | None = None,
    pool: bool | None = None,
) -> Problem:
    """Add up what a fit needs to know of all rows before it starts; reads X once.

    Parameters
    ----------
    blocks : RowBlocks
    targets : Targets
    scaler : Scaler, optional
        None for rows that are taken as they are.
    pool : bool, optional
        Hold rows without any target as sums. By default where there are so many that sums say the
        same for less.

    Raises
    ------
    ValueError
        If an entry is missing or not finite.
    """
    _, tally = blocks.visit(_tally, shared=targets)
    n, d, n_free = sum(blocks.sizes), blocks.n_features, int(tally[0])
    pooled = n_free > (min(n, d) if pool is None else 0) and pool is not False
    _, sums = blocks.visit(_add_up, shared=(targets, scaler, pooled))
    if not (np.isfinite(sums.square) and np.isfinite(sums.total).all()):
        raise ValueError(
            "rows in blocks must be complete and finite: the generative variant takes missing "
            "entries in memory only"
        )
    view = View(
        X=np.empty((0, d)),
        mask=None,
        n_features=d,
        basis=None,
        count=np.array([float(n)]),
        total=sums.total,
        square=sums.square,
        pool=Pool(n=n_free, total=sums.pool_total, gram=sums.pool_gram) if pooled else None,
    )
    return Problem(
        data=Data(views=(view,), margins=targets.margins(np.empty((0, len(tally) - 1)))),
        targets=targets,
        scaler=scaler,
        labelled_only=pooled,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Totals:
    """Sum of rows, of squares of their entries; of rows without a target, also of x x'."""

    total: FloatArray
    square: float
    pool_total: FloatArray
    pool_gram: FloatArray

    def __add__(self, other: "_Totals") -> "_Totals":
        return _Totals(
            total=self.total + other.total,
            square=self.square + other.square,
            pool_total=self.pool_total + other.pool_total,
            pool_gram=self.pool_gram + other.pool_gram,
        )


def _tally(block: Block, targets: Targets) -> tuple[None, FloatArray]:
    """Rows without any target, then targets of every outcome, (1 + K,)."""
    if block.y is None:
        raise ValueError("blocks of rows need targets")
    known = targets.observed(targets.columns(block.y))
    return None, np.array([np.sum(~known.any(axis=1)), *known.sum(axis=0)], dtype=np.float64)


def _add_up(block: Block, shared: tuple[Targets, Scaler | None, bool]) -> tuple[None, _Totals]:
    targets, scaler, pooled = shared
    rows = scaled_rows(block.X, scaler)
    pool_total = pool_gram = np.zeros(())
    if pooled:
        free = ~targets.observed(targets.columns(block.y)).any(axis=1)
        rest = scaled_rows(taken(block.X, free), scaler)
        pool_total, pool_gram = rest.total(), rest.gram()
    return None, _Totals(
        total=rows.total(), square=_square(rows), pool_total=pool_total, pool_gram=pool_gram
    )


def _square(rows: Any) -> float:
    """Sum of the squares of all entries."""
    if isinstance(rows, DenseRows):
        return float(np.vdot(rows.X, rows.X))
    shift, sums = rows.shift, rows.total() + rows.n_rows * rows.shift
    stored = float(np.vdot(rows.scaled.data, rows.scaled.data))
    return stored - 2.0 * float(shift @ sums) + rows.n_rows * float(shift @ shift)


def taken(X: Any, rows: BoolArray | None) -> Any:
    """Some of the rows."""
    if rows is None:
        return X
    return X[np.flatnonzero(rows)] if issparse(X) else np.asarray(X)[rows]
