"""Sums over samples, which may be in memory or in the chunks of a Dask array."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Any, cast

import numpy as np

from bsdr_models.process_state import one_thread


@dataclass(frozen=True, slots=True)
class InMemory:
    """Samples (N, D) and targets in this process."""

    X: np.ndarray
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and features."""
        return self.X.shape[0], self.X.shape[1]

    def sum[S](self, function: Callable[..., S], shared: Any) -> S:
        """``function(X, y, shared)``."""
        return function(self.X, self.y, shared)


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of samples of a Dask array (N, D), each with all features, and targets (N,) in memory.

    Chunks that are not persisted are made for every sum; those of a worker that dies are made again
    by Dask. Sums are added pairwise, in the order of the chunks, so that they are deterministic.
    """

    X: Any
    y: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and features."""
        return self.X.shape[0], self.X.shape[1]

    def sum[S](self, function: Callable[..., S], shared: Any) -> S:
        """Sum of ``function(X, y, shared)`` over chunks."""
        import dask

        run = dask.delayed(_run, pure=False)
        common = dask.delayed((function, shared, np.geterr()), traverse=False)
        chunks = self.X.to_delayed().ravel()
        targets = np.split(self.y, np.cumsum(self.X.chunks[0])[:-1])
        parts = [run(X, y, common) for X, y in zip(chunks, targets, strict=True)]
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [dask.delayed(add)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return cast(S, parts[0].compute())


# Training samples over which an engine sums.
type Samples = InMemory | Chunks


def _run(X: np.ndarray, y: np.ndarray, common: tuple[Any, ...]) -> Any:
    """A summand, by one thread; samples from a message may not be aligned."""
    function, shared, errors = common
    with one_thread(), np.errstate(**errors):
        return function(np.require(X, requirements=["A", "C"]), y, shared)
