"""Sums over samples, which may be in memory or in the chunks of a Dask array."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Any, cast

import numpy as np

from bsdr_models.numerics.arrays import IntArray
from bsdr_models.numerics.process_state import one_thread


@dataclass(frozen=True, slots=True)
class InMemory:
    """Samples (N, D), targets and weights (N,), by default ones, in this process."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and features."""
        return self.X.shape[0], self.X.shape[1]

    def sum[S](self, function: Callable[..., S], shared: Any) -> S:
        """``function(X, y, shared, weights)``."""
        return function(self.X, self.y, shared, self.weights)

    def select(self, samples: IntArray) -> "InMemory":
        """Samples of increasing indices."""
        weights = None if self.weights is None else self.weights[samples]
        return InMemory(self.X[samples], self.y[samples], weights)


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

        parts = of_chunks(_summand, self.X, self.y, common=(function, shared, np.geterr()))
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [dask.delayed(add)(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return cast(S, parts[0].compute())

    def select(self, samples: IntArray) -> InMemory:
        """Samples of increasing indices, in this process; no worker holds those of all chunks."""
        import dask

        chosen = np.zeros(len(self.y), bool)
        chosen[samples] = True
        found = dask.compute(*of_chunks(_choose, self.X, chosen, common=None))
        return InMemory(np.concatenate(found), self.y[samples])


def of_chunks(
    function: Callable[..., Any], X: Any, y: np.ndarray | None = None, *, common: Any
) -> list[Any]:
    """Delayed results for each chunk, from its samples, its part of y if given, and ``common``.

    A task also makes its chunk, so that no worker reads chunks ahead of those it computes with.
    """
    import dask
    import dask.array as da

    arrays = [X, "ij"]
    if y is not None:
        parts = da.from_array(y, chunks=(X.chunks[0], *y.shape[1:]), name=False)
        arrays += [parts, "ij"[: y.ndim]]
    found = da.blockwise(
        function,
        "ij",
        *arrays,
        common=dask.delayed(common, traverse=False),
        align_arrays=False,
        meta=np.empty((0, 0)),
    )
    return list(found.to_delayed().ravel())


# Training samples over which an engine sums.
type Samples = InMemory | Chunks


def _summand(X: np.ndarray, y: np.ndarray, common: tuple[Any, ...]) -> Any:
    """A summand, by one thread."""
    function, shared, errors = common
    with one_thread(), np.errstate(**errors):
        return function(X, y, shared)


def _choose(X: np.ndarray, chosen: np.ndarray, common: None) -> np.ndarray:
    """The samples that are chosen."""
    return X[chosen]
