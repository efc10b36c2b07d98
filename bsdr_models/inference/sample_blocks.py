"""Map-reduce over blocks of samples.

A fit needs two operations on its samples: to map a function over the blocks, such as the encoding
of labels, and to sum a function over them. It does not depend on whether blocks are slices of an
array, are read from disk one by one, or lie on the workers of a cluster.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Protocol, Self

import numpy as np


class Unread(ABC):
    """Samples that are not in memory."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and features."""

    @abstractmethod
    def read(self) -> Any:
        """Samples in memory: an array, or SciPy's CSR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive samples.

    X
        (n, P): an array or SciPy's CSR, or :class:`Unread` outside of a map.
    y
        Targets of these samples, or None.
    begin
        Index of the first sample.
    """

    X: Any
    y: np.ndarray | None
    begin: int


class _LazyBlock(Block):
    """A block whose X is read on first access, and released with the block."""

    __slots__ = ("_samples", "_source")
    _samples: Any
    _source: Unread

    def __init__(self, *, X: Unread, y: np.ndarray | None, begin: int) -> None:
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "begin", begin)
        object.__setattr__(self, "_source", X)
        object.__setattr__(self, "_samples", None)

    @property
    def X(self) -> Any:
        if self._samples is None:
            object.__setattr__(self, "_samples", self._source.read())
        return self._samples


# Results of a map, one per block, wherever they are held.
type Parts = tuple[Any, ...]


class SampleBlocks(Protocol):
    """All samples, in blocks.

    Mapped functions are called as ``function(block, shared)``, where `shared` is broadcast to all
    blocks. They must be defined in a module (or a :func:`functools.partial` of such a function) and
    must not change their arguments.
    """

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples of each block."""

    @property
    def n_features(self) -> int:
        """P."""

    def reduce[S](self, function: Callable[..., S], *, shared: Any = None) -> S:
        """Map-reduce: sum of ``function(block, shared)`` in the order of the blocks."""

    def map(self, function: Callable[..., Any], *, shared: Any = None) -> Parts:
        """Map ``function(block, shared)``; results remain with their blocks.

        May return before it is computed; errors may then be raised by the next reduce.
        """

    def collect(self, parts: Parts) -> list[Any]:
        """Bring the results of a map into this process."""

    def with_targets(self, targets: Parts) -> Self:
        """The same samples with the results of a map as ``y``."""


class InProcess:
    """Blocks processed one after the other in this process.

    Parameters
    ----------
    blocks : sequence of Block
        Those whose X is :class:`Unread` are read again by every map that accesses X, one at a time.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = tuple(blocks)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples of each block."""
        return tuple(block.X.shape[0] for block in self._blocks)

    @property
    def n_features(self) -> int:
        """P."""
        return int(self._blocks[0].X.shape[1])

    def reduce[S](self, function: Callable[..., S], *, shared: Any = None) -> S:
        """See :class:`SampleBlocks`."""
        return reduce(add, self.map(function, shared=shared))

    def map(self, function: Callable[..., Any], *, shared: Any = None) -> Parts:
        """See :class:`SampleBlocks`."""
        return tuple(function(_readable(block), shared) for block in self._blocks)

    def collect(self, parts: Parts) -> list[Any]:
        """See :class:`SampleBlocks`."""
        return list(parts)

    def with_targets(self, targets: Parts) -> "InProcess":
        """See :class:`SampleBlocks`."""
        return InProcess(
            [replace(block, y=y) for block, y in zip(self._blocks, targets, strict=True)]
        )


def _readable(block: Block) -> Block:
    if not isinstance(block.X, Unread):
        return block
    return _LazyBlock(X=block.X, y=block.y, begin=block.begin)
