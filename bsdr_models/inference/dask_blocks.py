"""Blocks on the workers of a Dask cluster, or read one by one from a Dask array.

A map is one task per block, whose result stays on its worker; a reduce adds summands in this
process, in the order of the blocks, so that the result is deterministic. The broadcast value is
part of the tasks of few blocks, or else the result of a further task: when a worker dies, Dask
recomputes the tasks of its blocks elsewhere, which it could not do for scattered values.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cache, reduce
from operator import add
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  loads the thread pools that tasks limit
from threadpoolctl import ThreadpoolController

from bsdr_models.inference.sample_blocks import Block, InProcess, Parts, SampleBlocks, Unread

# Graphs with parameters of many features are larger than Dask's warning threshold, and recording
# the source line of every graph is slow.
_CONFIG = {
    "distributed.admin.large-graph-warning-threshold": "1TB",
    "distributed.diagnostics.computations.nframes": 0,
}
# Up to this number of blocks, the scheduler sends each a copy of the broadcast value. For more, it
# is passed between workers, which costs a task and two messages.
_FEW_BLOCKS = 8
# A worker may hold this multiple of an even share of the samples before blocks are moved.
_UNEVEN = 1.25


class ClusterLostError(ConnectionError):
    """The scheduler is lost, and with it the data on the workers."""


class OnDask:
    """Blocks on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    X : dask.array.Array
        (N, P), of arrays or of SciPy's CSR; every chunk of samples becomes a block.
    y : ndarray or dask.array.Array, optional
        (N,) or (N, K).

    Raises
    ------
    ClusterLostError
        By any method, if the scheduler does not respond.
    ValueError
        If X and y have different lengths.
    """

    def __init__(self, client: Any, X: Any, y: Any = None) -> None:
        self._client = client
        with self._cluster_errors():
            columns = X.rechunk({1: -1})
            chunks = client.compute([chunk for (chunk,) in columns.to_delayed()])
            shapes = client.gather(client.map(_shape, chunks, pure=False))
            full = [number for number, shape in enumerate(shapes) if shape[0] > 0]
            if not full:
                raise ValueError("X has no samples")
            sizes = tuple(int(shapes[number][0]) for number in full)
            self._sizes, self._n_features = sizes, int(shapes[0][1])
            targets = self._targets(y)
            self._workers = self._assign_workers([chunks[number] for number in full])
            begins = np.cumsum([0, *sizes[:-1]]).tolist()
            self._blocks = [
                client.submit(
                    _block,
                    chunks[number],
                    target,
                    begin,
                    pure=False,
                    workers=[worker],
                    allow_other_workers=True,
                )
                for number, target, begin, worker in zip(
                    full, targets, begins, self._workers, strict=True
                )
            ]
            client.gather(client.map(_nothing, self._blocks, pure=False))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples of each block."""
        return self._sizes

    @property
    def n_features(self) -> int:
        """P."""
        return self._n_features

    def reduce[S](self, function: Callable[..., S], *, shared: Any = None) -> S:
        """See :class:`SampleBlocks`."""
        with self._cluster_errors():
            lists = self._client.gather(self._submit(function, shared, gathered=True))
        by_worker = zip(self._blocks_of_workers().values(), lists, strict=True)
        found = {
            i: each for numbers, own in by_worker for i, each in zip(numbers, own, strict=True)
        }
        return reduce(add, (found[i] for i in range(len(found))))

    def map(self, function: Callable[..., Any], *, shared: Any = None) -> Parts:
        """See :class:`SampleBlocks`."""
        with self._cluster_errors():
            return tuple(self._submit(function, shared))

    def collect(self, parts: Parts) -> list[Any]:
        """See :class:`SampleBlocks`."""
        with self._cluster_errors():
            return list(self._client.gather(list(parts)))

    def with_targets(self, targets: Parts) -> "OnDask":
        """See :class:`SampleBlocks`."""
        other = OnDask.__new__(OnDask)
        other._client, other._workers = self._client, self._workers
        other._sizes, other._n_features = self._sizes, self._n_features
        with self._cluster_errors():
            other._blocks = self._submit(_with_targets, None, targets=targets)
        return other

    def _submit(
        self,
        function: Callable[..., Any],
        shared: Any,
        *,
        targets: Parts | None = None,
        gathered: bool = False,
    ) -> list[Any]:
        """Submit one task per block; futures of its results, or of lists per worker if gathered.

        All tasks go in one graph, since most of the overhead is that of messages. With `targets`,
        they replace the y of each block.
        """
        import dask

        token = uuid.uuid4().hex  # Dask would not run a task of a known name again
        name = getattr(function, "__name__", "map").strip("_")
        names = [f"{name}-{token}-{i}" for i in range(len(self._blocks))]
        workers = {name: [worker] for name, worker in zip(names, self._workers, strict=True)}
        graph: dict[str, Any] = {}
        common: Any = _Common(function, shared, np.geterr())
        if len(names) > _FEW_BLOCKS:
            key = f"shared-{token}"
            graph[key], common = (_identity, common), key
            # Without dependencies it may run anywhere. Even a loose restriction would make it wait
            # for a lost worker if all were lost at some time, while new ones stay idle.
            workers[key] = []
        for i, block in enumerate(self._blocks):
            graph[names[i]] = (
                _run,
                common,
                block,
                *(() if targets is None else targets[i : i + 1]),
            )
        if gathered:
            lists = [f"list-{token}-{i}" for i in range(len(self._blocks_of_workers()))]
            for key, (worker, numbers) in zip(
                lists, self._blocks_of_workers().items(), strict=True
            ):
                workers[key] = [worker]
                graph[key] = (_list, *(names[i] for i in numbers))
        with dask.annotate(workers=workers.__getitem__, allow_other_workers=True):
            futures: list[Any] = self._client.get(graph, lists if gathered else names, sync=False)
        return futures

    def _blocks_of_workers(self) -> dict[str, list[int]]:
        """Indices of the blocks of each worker."""
        found: dict[str, list[int]] = {}
        for number, worker in enumerate(self._workers):
            found.setdefault(worker, []).append(number)
        return found

    def _assign_workers(self, chunks: Sequence[Any]) -> list[str]:
        """Worker of every block: the one that holds it, unless the load is uneven."""
        threads = dict(self._client.nthreads())
        if not threads:
            raise ClusterLostError("the cluster has no worker")
        share = sum(self._sizes) / sum(threads.values())
        holders = self._client.who_has(chunks)
        where = [holders[future.key][0] for future in chunks]
        load = dict.fromkeys(threads, 0.0)
        for worker, size in zip(where, self._sizes, strict=True):
            load[worker] = load.get(worker, 0.0) + size
        largest = max(self._sizes)
        if all(load[w] <= max(_UNEVEN * share * n, largest) for w, n in threads.items()):
            return where
        load = dict.fromkeys(threads, 0.0)
        where = []
        for size in self._sizes:
            where.append(min(load, key=lambda worker: load[worker] / threads[worker]))
            load[where[-1]] += size
        return where

    def _targets(self, y: Any) -> Sequence[Any]:
        """Targets of every block, as arrays or futures."""
        if y is None:
            return [None] * len(self._sizes)
        if hasattr(y, "chunks") and np.isnan(y.chunks[0]).any():
            y = self._client.persist(y).compute_chunk_sizes()
        if y.shape[0] != sum(self._sizes):
            raise ValueError(f"X has {sum(self._sizes)} samples, and y has {y.shape[0]}")
        if not hasattr(y, "chunks"):
            return np.split(np.asarray(y), np.cumsum(self._sizes)[:-1])
        y = y.rechunk((self._sizes, *((size,) for size in y.shape[1:])))
        futures: Sequence[Any] = self._client.compute(y.to_delayed().ravel().tolist())
        return futures

    @contextmanager
    def _cluster_errors(self) -> Iterator[None]:
        """Explain the loss of the scheduler or of several workers."""
        import dask
        from distributed import KilledWorker
        from distributed.client import ClosedClientError
        from distributed.comm import CommClosedError

        try:
            if self._client.status != "running":
                raise ClosedClientError(f"the client is {self._client.status}")
            with dask.config.set(_CONFIG):
                yield
        except (CancelledError, ClosedClientError, CommClosedError) as error:
            raise ClusterLostError(
                f"the Dask cluster is gone ({error}): run the fit again on a new cluster"
            ) from error
        except KilledWorker as error:
            raise RuntimeError(
                f"a block has killed several workers, which may have run out of memory: make "
                f"the chunks of X smaller ({error})"
            ) from error


def as_dask(X: Any, block_size: int) -> Any:
    """Any array, or SciPy's CSR, as a Dask array with chunks of `block_size` samples."""
    import dask.array as da

    return da.from_array(X, chunks=(block_size, X.shape[1]), asarray=False)


def blocks_of_dask(
    X: Any, y: Any = None, *, block_size: int | None = None, client: Any = None
) -> SampleBlocks:
    """Blocks of a Dask array.

    Parameters
    ----------
    X : dask.array.Array
        (N, P).
    y : ndarray or dask.array.Array, optional
    block_size : int, optional
        Samples per block; by default the chunks of X.
    client : distributed.Client, optional
        By default the active one. Without any, every map computes one block after the other in this
        process.
    """
    client = _active_client() if client is None else client
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix (N, P), got shape {X.shape}")
    unknown = np.isnan(X.chunks[0]).any()
    if block_size is not None or (unknown and client is None):
        X = _with_known_chunks(X, client)
    if block_size is not None:
        X = X.rechunk({0: block_size})
    if client is not None:
        return OnDask(client, X, y)
    if X.shape[0] == 0:
        raise ValueError("X has no samples")
    X = X.rechunk({1: -1})
    if y is not None:
        y = np.asarray(y.compute(scheduler="threads") if hasattr(y, "compute") else y)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} samples, and y has {len(y)}")
    begins = np.cumsum([0, *X.chunks[0]]).tolist()
    return InProcess(
        [
            Block(
                X=_Chunk(chunk, (size, X.shape[1])),
                y=None if y is None else y[begin : begin + size],
                begin=begin,
            )
            for (chunk,), size, begin in zip(X.to_delayed(), X.chunks[0], begins[:-1], strict=True)
            if size > 0
        ]
    )


class _Chunk(Unread):
    """A chunk of a Dask array, computed in this process."""

    def __init__(self, chunk: Any, shape: tuple[int, int]) -> None:
        self._chunk, self._shape = chunk, shape

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    def read(self) -> Any:
        return self._chunk.compute(scheduler="threads")


def _active_client() -> Any:
    try:
        from distributed import default_client
    except ImportError:
        return None
    try:
        return default_client()
    except ValueError:
        return None


def _with_known_chunks(X: Any, client: Any) -> Any:
    """X with known sizes of its chunks."""
    import dask

    if not np.isnan(X.chunks[0]).any():
        return X
    if client is not None:
        return client.persist(X).compute_chunk_sizes()
    with dask.config.set(scheduler="threads"):
        return X.compute_chunk_sizes()


# Functions run by workers. Blocks are tuples there, whose size in memory Dask can measure.


class _Common:
    """What is broadcast to all blocks; a class, so that Dask does not search it for tasks."""

    __slots__ = ("errors", "function", "shared")

    def __init__(self, function: Callable[..., Any], shared: Any, errors: Any) -> None:
        self.function, self.shared, self.errors = function, shared, errors


def _identity(common: _Common) -> _Common:
    return common


def _run(common: _Common, block: tuple[Any, ...], *targets: Any) -> Any:
    """Call the mapped function, with one thread and the client's floating-point error state."""
    X, y, begin = block
    y = targets[0] if targets else y
    with _controller().limit(limits=1, user_api="blas"), np.errstate(**common.errors):
        return common.function(Block(X=X, y=y, begin=begin), common.shared)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _list(*summands: Any) -> list[Any]:
    return list(summands)


def _block(X: Any, y: Any, begin: int) -> tuple[Any, ...]:
    """A block that owns its samples.

    An array from a message is a view of it and not aligned, so that every product would copy it.
    """
    own = isinstance(X, np.ndarray) and X.flags.owndata and X.flags.aligned
    return X if own else X.copy(), y, begin


def _with_targets(block: Block, shared: Any) -> tuple[Any, ...]:
    return block.X, block.y, block.begin


def _shape(X: Any) -> tuple[int, ...]:
    return tuple(X.shape)


def _nothing(block: Any) -> None:
    return None
