"""Where rows in blocks start: the same positions however the rows are cut.

Shapes: P problems, N rows, n of a block, D features, R components, K outcomes.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from bsdr_models.bm2pca.block_problem import Problem, taken
from bsdr_models.bm2pca.mean_field import Data, Start
from bsdr_models.bm2pca.starts import SMALLEST_SHARE, principal_axes
from bsdr_models.inference.row_blocks import Block, RowBlocks
from bsdr_models.numerics.row_normals import row_normals
from bsdr_models.numerics.scaled_rows import scaled_rows
from bsdr_models.typing import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Spots:
    """What a block needs to know to place its rows.

    seed
        Of the positions that are random.
    n_components
        R.
    source
        What the leading components are read from, if anything.
    centre
        Taken from the source first, (D,) or (P, 1, K).
    map
        From there to the leading components, (D, <= R) or (P, K, <= R).
    given
        All positions, (P, N, R), in place of everything else.
    """

    seed: int
    n_components: int
    source: Start = "random"
    centre: FloatArray | None = None
    map: FloatArray | None = None
    given: FloatArray | None = None


def find_spots(
    blocks: RowBlocks, problem: Problem, start: Start | FloatArray, *, n_components: int, seed: int
) -> Spots:
    """Where the rows are to start. Reads X once for principal axes, else not.

    Parameters
    ----------
    blocks : RowBlocks
    problem : Problem
    start : {"label", "pca", "random"} or (P, N, R)
        As in memory, or the positions themselves.
    n_components : int
        R.
    seed : int
    """
    spots = partial(Spots, seed=seed, n_components=n_components)
    if isinstance(start, np.ndarray):
        return spots(given=start)
    if start == "label" and problem.data.margins.y.shape[2] > 1:
        _, sums = blocks.visit(_target_products, shared=problem.light())
        return spots(source=start, centre=(sums.total / sums.n)[:, None], map=_target_axes(sums))
    if start == "pca":
        _, sums = blocks.visit(_row_products, shared=problem.light())
        view = problem.data.views[0]
        centre = view.total / view.count[0]
        axes = principal_axes(sums.products, sums.total, centre, sums.n, n_components)
        return spots(source=start, centre=centre, map=axes)
    return spots(source=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Products:
    """Number of rows x, their sum, and that of x x'."""

    n: int
    total: FloatArray
    products: FloatArray

    def __add__(self, other: "_Products") -> "_Products":
        return _Products(
            n=self.n + other.n,
            total=self.total + other.total,
            products=self.products + other.products,
        )


def _target_products(block: Block, problem: Problem) -> tuple[None, _Products]:
    y = problem.without_rows(block).margins.y
    return None, _Products(n=y.shape[1], total=y.sum(axis=1), products=np.swapaxes(y, 1, 2) @ y)


def _row_products(block: Block, problem: Problem) -> tuple[None, _Products]:
    rows = scaled_rows(taken(block.X, problem.held(block)), problem.scaler)
    return None, _Products(n=rows.n_rows, total=rows.total(), products=rows.gram())


def _target_axes(sums: _Products) -> FloatArray:
    """Map from centred targets to unit-variance scores along their axes, (P, K, <= K)."""
    shift = sums.total[:, :, None] * sums.total[:, None, :] / sums.n
    values, vectors = np.linalg.eigh(sums.products - shift)
    rank = int((values > SMALLEST_SHARE * values[:, -1:]).sum(axis=1).min())
    values, vectors = values[:, ::-1][:, :rank], vectors[:, :, ::-1][:, :, :rank]
    return vectors * np.sqrt(sums.n / values)[:, None]


def place(block: Block, data: Data, problem: Problem, spots: Spots) -> FloatArray:
    """Positions of the rows that a block holds, (P, n, R).

    Parameters
    ----------
    block : Block
    data : Data
        What :meth:`Problem.of_block` makes of it.
    problem : Problem
    spots : Spots
    """
    held, n = problem.held(block), len(block.y)  # type: ignore[arg-type]
    if spots.given is not None:
        mean = spots.given[:, block.begin : block.begin + n]
    else:
        r = spots.n_components
        random = row_normals(spots.seed, begin=block.begin, n_rows=n, n_columns=r)
        mean = np.tile(random, (len(data.margins.y), 1, 1))
    mean = np.ascontiguousarray(mean if held is None else mean[:, held])
    if spots.given is not None or spots.source == "random":
        return mean
    y = data.margins.y
    if spots.map is None or spots.centre is None:
        found = y
    elif spots.source == "label":
        found = (y - spots.centre) @ spots.map
    else:
        found = data.views[0].project(spots.map[None]) - spots.centre @ spots.map
    mean[..., : found.shape[-1]] = found[..., : spots.n_components]
    return mean
