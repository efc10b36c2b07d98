"""Rows in blocks: what is done to each where it lies, and the sums that leave it.

A fit touches rows in two ways: it makes what belongs to a row (the index of its class), and it
adds something up over rows. So it needs one thing of whatever holds the rows: call a function on
every block, keep there what it makes for the rows, and hand back the sum of the rest. Whether the
blocks are slices of an array, are read from disk one after the other, or lie on the workers of a
cluster, no model knows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Protocol, Self

import numpy as np


class Unread(ABC):
    """Rows that are somewhere else until they are asked for."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and features."""

    @abstractmethod
    def read(self) -> Any:
        """The rows in memory: an array, or SciPy's CSR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive rows.

    X
        (n, P): an array or SciPy's CSR; :class:`Unread` until a visit asks for it.
    y
        Targets of these rows, None where there are none.
    begin
        Number of the first row.
    """

    X: Any
    y: np.ndarray | None
    begin: int


class _OpenBlock(Block):
    """A block during a visit: X is read when it is first asked for, and goes with the visit."""

    __slots__ = ("_samples", "_source")
    _samples: Any
    _source: Any

    def __init__(self, *, X: Any, y: np.ndarray | None, begin: int) -> None:
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "begin", begin)
        object.__setattr__(self, "_source", X)
        object.__setattr__(self, "_samples", None if isinstance(X, Unread) else X)

    @property
    def X(self) -> Any:
        if self._samples is None:
            object.__setattr__(self, "_samples", self._source.read())
        return self._samples


# What belongs to the rows of every block, one entry each, wherever it is held.
type Parts = tuple[Any, ...]
# function(block, *own, shared) -> what the block keeps, what is added up over blocks.
type Visit[S] = Callable[..., tuple[Any, S]]


class SampleBlocks(Protocol):
    """All rows."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each block."""

    @property
    def n_features(self) -> int:
        """P."""

    def visit[S](self, function: Visit[S], *parts: Parts, shared: Any = None) -> tuple[Parts, S]:
        """Call ``function(block, *own, shared)`` for every block, ``own`` being its parts.

        Parameters
        ----------
        function : callable
            A module's function, or a :func:`functools.partial` of one; it changes nothing that it
            is given. Returns a pair: what is kept with the block, and a summand with ``+``.
        *parts : Parts
            What earlier visits have kept.
        shared : object
            The same for all blocks.

        Returns
        -------
        parts : Parts
            What was kept.
        total : S
            The summands, added in the order of the blocks.
        """

    def map(self, function: Callable[..., Any], *parts: Parts, shared: Any = None) -> Parts:
        """A visit without a sum: ``function(block, *own, shared)`` is what is kept.

        Nothing comes back, so that it need not be waited for; what it raises may be raised by
        the visit that first needs it.
        """

    def collect(self, parts: Parts) -> list[Any]:
        """What the blocks have kept, brought here."""

    def with_targets(self, targets: Parts) -> Self:
        """The same rows with other ``y``: what a visit has kept for them."""


class InProcess:
    """Blocks that this process visits one after the other.

    Parameters
    ----------
    blocks : sequence of Block
        Those whose X is :class:`Unread` are read again by every visit that looks at it, and no
        two are in memory at a time.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = tuple(blocks)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each block."""
        return tuple(block.X.shape[0] for block in self._blocks)

    @property
    def n_features(self) -> int:
        """P."""
        return int(self._blocks[0].X.shape[1])

    def visit[S](self, function: Visit[S], *parts: Parts, shared: Any = None) -> tuple[Parts, S]:
        """See :class:`SampleBlocks`."""
        kept: list[Any] = []
        sums: list[S] = []
        for number, block in enumerate(self._blocks):
            own, summand = function(_opened(block), *(part[number] for part in parts), shared)
            kept.append(own)
            sums.append(summand)
        return tuple(kept), reduce(add, sums)

    def map(self, function: Callable[..., Any], *parts: Parts, shared: Any = None) -> Parts:
        """See :class:`SampleBlocks`."""
        return tuple(
            function(_opened(block), *(part[number] for part in parts), shared)
            for number, block in enumerate(self._blocks)
        )

    def collect(self, parts: Parts) -> list[Any]:
        """See :class:`SampleBlocks`."""
        return list(parts)

    def with_targets(self, targets: Parts) -> "InProcess":
        """See :class:`SampleBlocks`."""
        return InProcess(
            [replace(block, y=y) for block, y in zip(self._blocks, targets, strict=True)]
        )


def _opened(block: Block) -> Block:
    """The block itself if its rows are in memory."""
    if not isinstance(block.X, Unread):
        return block
    return _OpenBlock(X=block.X, y=block.y, begin=block.begin)
