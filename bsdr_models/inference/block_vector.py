"""A vector in pieces: one array that is shared, and one beside each block of rows.

SQUAREM moves along differences of such vectors. Their sums are not formed where they are written
but where they are needed, in one visit however many there are, and entry by entry with the
operations of a single array: only a norm, a sum over blocks, rounds differently.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from bsdr_models.inference.row_blocks import Block, Parts, RowBlocks
from bsdr_models.typing import FloatArray

# Arrays of one block, in the order of a vector's leaves -> the sum of them that it stands for.
type _Formula = Callable[[tuple[FloatArray, ...]], FloatArray]


class BlockVector:
    """A vector that knows ``+``, ``-``, multiplication by a number, and its norm.

    Parameters
    ----------
    shared : ndarray
        The entries that belong to no row.
    parts : Parts
        An array for each block.
    blocks : RowBlocks
        Where these lie.
    """

    __array_ufunc__ = None  # a number of NumPy's leaves the multiplication to this class

    def __init__(self, shared: FloatArray, parts: Parts, blocks: RowBlocks) -> None:
        self.shared = shared
        self.blocks = blocks
        self._leaves: tuple[Parts, ...] = (parts,)
        self._formula: _Formula = _the_leaf

    def parts(self) -> Parts:
        """The array of each block, formed where it lies."""
        if self._formula is _the_leaf:
            return self._leaves[0]
        return self.blocks.map(_form, *self._leaves, shared=self._formula)

    def norm(self) -> float:
        """Root of the sum of squares."""
        _, square = self.blocks.visit(_square, *self._leaves, shared=self._formula)
        return float(np.sqrt(self.shared.ravel() @ self.shared.ravel() + square))

    def __add__(self, other: "BlockVector") -> "BlockVector":
        return self._with(other, np.add)

    def __sub__(self, other: "BlockVector") -> "BlockVector":
        return self._with(other, np.subtract)

    def __mul__(self, factor: float) -> "BlockVector":
        return self._like(
            factor * self.shared, self._leaves, partial(_times, factor, self._formula)
        )

    __rmul__ = __mul__

    def _with(self, other: "BlockVector", operation: np.ufunc) -> "BlockVector":
        leaves, places = list(self._leaves), []
        for leaf in other._leaves:
            found = next((i for i, own in enumerate(leaves) if own is leaf), len(leaves))
            places.append(found)
            if found == len(leaves):
                leaves.append(leaf)
        formula = partial(_combine, operation, self._formula, other._formula, tuple(places))
        return self._like(operation(self.shared, other.shared), tuple(leaves), formula)

    def _like(
        self, shared: FloatArray, leaves: tuple[Parts, ...], formula: _Formula
    ) -> "BlockVector":
        vector = BlockVector(shared, leaves[0], self.blocks)
        vector._leaves, vector._formula = leaves, formula
        return vector


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryingVector:
    """A vector, and a sum over rows that is linear in it.

    vector
        What is extrapolated.
    carried
        Moves with it, so that no row is read to make it again; it is no part of the norm.
    """

    __array_ufunc__: ClassVar[None] = None

    vector: BlockVector
    carried: FloatArray

    def norm(self) -> float:
        """Root of the sum of squares of the entries of the vector."""
        return self.vector.norm()

    def __add__(self, other: "CarryingVector") -> "CarryingVector":
        return CarryingVector(
            vector=self.vector + other.vector, carried=self.carried + other.carried
        )

    def __sub__(self, other: "CarryingVector") -> "CarryingVector":
        return CarryingVector(
            vector=self.vector - other.vector, carried=self.carried - other.carried
        )

    def __mul__(self, factor: float) -> "CarryingVector":
        return CarryingVector(vector=factor * self.vector, carried=factor * self.carried)

    __rmul__ = __mul__


def _the_leaf(arrays: tuple[FloatArray, ...]) -> FloatArray:
    return arrays[0]


def _times(factor: float, formula: _Formula, arrays: tuple[FloatArray, ...]) -> FloatArray:
    return factor * formula(arrays)


def _combine(
    operation: Callable[..., FloatArray],
    left: _Formula,
    right: _Formula,
    places: tuple[int, ...],
    arrays: tuple[FloatArray, ...],
) -> FloatArray:
    """The leaves of the left come first, those of the right lie at ``places``."""
    return operation(left(arrays), right(tuple(arrays[place] for place in places)))


def _form(block: Block, *arrays: Any) -> FloatArray:
    *leaves, formula = arrays
    result: FloatArray = formula(tuple(leaves))
    return result


def _square(block: Block, *arrays: Any) -> tuple[None, float]:
    entries = _form(block, *arrays).ravel()
    return None, float(entries @ entries)
