"""What a fit over blocks knows of all rows before its first sweep, and where it starts.

The Gram matrix and the sums of the targets are enough for the designs and for the directions of
every start; positions are then a product with the rows, made where these are.

Letters: n rows of a block, N of all, P features, D working coordinates, R components, K labels.
"""

from dataclasses import dataclass

import numpy as np

from bsdr_models.bsdr.mean_field import Start
from bsdr_models.data import Data
from bsdr_models.inference.row_blocks import Block, RowBlocks
from bsdr_models.numerics import scatter
from bsdr_models.numerics.gram_design import GramDesign, SpectralGramDesign
from bsdr_models.numerics.row_normals import row_normals
from bsdr_models.numerics.scaled_rows import Rows, scaled_rows
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.typing import FloatArray, ProjectionPrior, Target

# Columns that vary less than this share of the others do not vary: sums of squares are known
# to rounding, their roots to the root of that.
_DEAD_TARGET, _DEAD_SCORE = 1e-7, 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSums:
    """Sums over scaled rows x and their targets y, as columns of numbers (one-hot for classes).

    n_rows
        N.
    gram
        Sum of x x', (P, P).
    total
        Sum of x, (P,).
    cross
        Sum of x y', (P, K).
    target_total, target_square
        Sums of y and of y**2, (K,).
    """

    n_rows: int
    gram: FloatArray
    total: FloatArray
    cross: FloatArray
    target_total: FloatArray
    target_square: FloatArray

    def __add__(self, other: "DataSums") -> "DataSums":
        """Sums over the rows of both."""
        return DataSums(
            n_rows=self.n_rows + other.n_rows,
            gram=self.gram + other.gram,
            total=self.total + other.total,
            cross=self.cross + other.cross,
            target_total=self.target_total + other.target_total,
            target_square=self.target_square + other.target_square,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockData:
    """Rows in blocks and what is known of all of them.

    blocks
        Rows with their targets, encoded as in :class:`bsdr_models.data.Data`.
    scaler
        How a block's rows enter the fit; None as they are.
    known
        The design by its Gram matrix, the kind of the targets, and none of them.
    sums
        Over all rows.
    """

    blocks: RowBlocks
    scaler: Scaler | None
    known: Data
    sums: DataSums

    @property
    def design(self) -> GramDesign | SpectralGramDesign:
        """The design of ``known``."""
        assert isinstance(self.known.design, GramDesign | SpectralGramDesign)
        return self.known.design

    def inside(self, cross: FloatArray) -> FloatArray:
        """X'A in working coordinates of the design: (P, R) -> (D, R)."""
        return self.design.coordinates(cross.T).T


def prepare(
    blocks: RowBlocks,
    scaler: Scaler | None,
    *,
    n_labels: int,
    target: Target = "multiclass",
    projection_prior: ProjectionPrior = "entrywise",
) -> BlockData:
    """Read all rows once.

    Parameters
    ----------
    blocks : RowBlocks
        With targets as in :class:`bsdr_models.data.Data`.
    scaler : Scaler, optional
        Centre and scale of the rows; None for rows that need none.
    n_labels : int
        K.
    target : {"multiclass", "multilabel", "regression"}
    projection_prior : {"entrywise", "columnwise", "rowwise"}
    """
    _, sums = blocks.visit(_data_sums, shared=(scaler, n_labels, target))
    kind = SpectralGramDesign if projection_prior == "columnwise" else GramDesign
    none = {
        "multiclass": np.empty(0, dtype=np.int64),
        "multilabel": np.empty((0, n_labels), dtype=bool),
        "regression": np.empty((0, n_labels)),
    }[target]
    known = Data(design=kind(sums.gram, sums.n_rows), y=none, n_labels=n_labels, target=target)
    return BlockData(blocks=blocks, scaler=scaler, known=known, sums=sums)


def _data_sums(block: Block, shared: tuple[Scaler | None, int, Target]) -> tuple[None, DataSums]:
    scaler, n_labels, target = shared
    rows = scaled_rows(block.X, scaler, seen=True)
    assert block.y is not None
    if target == "multiclass":
        y = np.equal.outer(block.y, np.arange(n_labels)).astype(np.float64)
    else:
        y = block.y.astype(np.float64)
    return None, DataSums(
        n_rows=rows.n_rows,
        gram=rows.gram(),
        total=rows.total(),
        cross=rows.back(y),
        target_total=y.sum(axis=0),
        target_square=np.einsum("nk,nk->k", y, y),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Where rows start: X @ axes - centre in some columns, small random numbers in the others.

    seed
        Of the random numbers.
    spread
        Their standard deviation.
    n_components
        R.
    columns
        The c columns that are not random.
    axes
        (P, c).
    centre
        (c,).
    given
        All positions, (N, R), in place of everything else.
    """

    seed: int
    n_components: int
    spread: float
    columns: tuple[int, ...] = ()
    axes: FloatArray | None = None
    centre: FloatArray | None = None
    given: FloatArray | None = None

    def of(self, block: Block, rows: Rows) -> FloatArray:
        """Positions of the rows of a block, (n, R)."""
        n, r = rows.n_rows, self.n_components
        if self.given is not None:
            return self.given[block.begin : block.begin + n].copy()
        found = self.spread * row_normals(self.seed, begin=block.begin, n_rows=n, n_columns=r)
        if self.axes is not None and self.centre is not None:
            found[:, list(self.columns)] = rows.project(self.axes) - self.centre
        return found


def find_positions(
    data: BlockData, start: Start | FloatArray, *, n_components: int, rng: np.random.Generator
) -> Positions:
    """Positions to start from, as :func:`bsdr_models.bsdr.mean_field.init` makes them.

    Reads no rows. Random numbers are others than in memory, where they are drawn in one go.

    Parameters
    ----------
    data : BlockData
    start : {"discriminant", "pca", "random"} or (N, R)
    n_components : int
        R.
    rng : numpy.random.Generator
    """
    seed = int(rng.integers(2**63))
    if isinstance(start, np.ndarray):
        return Positions(seed=seed, n_components=n_components, spread=0.0, given=start)
    if start == "random":
        return Positions(seed=seed, n_components=n_components, spread=1.0)
    if start == "pca":
        inside = data.design.principal_axes(n_components)
    else:
        cross = data.inside(_target_cross(data))
        inside = scatter.discriminant_axes(data.design, cross, n_components)
    axes = data.design.loadings(inside)
    mean = data.sums.total @ axes / data.sums.n_rows
    variance = data.design.squared_length(inside) / data.sums.n_rows - mean**2
    scale = np.sqrt(np.maximum(variance, 0.0))
    live = np.flatnonzero(scale > _DEAD_SCORE * scale.max(initial=0.0))
    return Positions(
        seed=seed,
        n_components=n_components,
        spread=0.1,
        columns=tuple(int(column) for column in live),
        axes=axes[:, live] / scale[live],
        centre=mean[live] / scale[live],
    )


def _target_cross(data: BlockData) -> FloatArray:
    """X'Y for the centred and scaled targets of a discriminant start, (P, K)."""
    sums = data.sums
    mean = sums.target_total / sums.n_rows
    if data.known.target == "multiclass":
        gain = 1.0 / np.sqrt(np.maximum(sums.target_total, 1.0))
    else:
        scale = np.sqrt(np.maximum(sums.target_square / sums.n_rows - mean**2, 0.0))
        live = scale > _DEAD_TARGET * np.sqrt(sums.target_square / sums.n_rows)
        gain = np.where(live, 1.0 / np.where(live, scale, 1.0), 0.0)
    return (sums.cross - np.outer(sums.total, mean)) * gain
