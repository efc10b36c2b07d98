"""Blocks that lie on the workers of a Dask cluster, or that Dask reads one after the other.

A visit is one task for every block. What it keeps stays where it was made; the summands come back
and are added here, in the order of the blocks, so that the result does not depend on who was
first. What all blocks share goes out with their tasks if these are few, and else as the result of
one more: a worker that dies takes its blocks with it, and Dask then runs again, on the others, the
tasks that had made them. A value that was scattered could not be made again.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cache, reduce
from operator import add
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  brings the threads that a task is to do without
from threadpoolctl import ThreadpoolController

from bsdr_models.inference.sample_blocks import Block, InProcess, Parts, SampleBlocks, Unread, Visit

# Parameters of many features are larger than the graphs that Dask expects; they go out once.
# And it need not look up for every message which line of source has sent it.
_CONFIG = {
    "distributed.admin.large-graph-warning-threshold": "1TB",
    "distributed.diagnostics.computations.nframes": 0,
}
# Up to so many blocks, each gets its own copy of what they share through the scheduler. Of more,
# the workers hand it on, for which the blocks wait for a task and two messages.
_FEW_BLOCKS = 8
# A worker may hold this many times the rows of an even share before blocks are moved.
_UNEVEN = 1.25


class ClusterLostError(ConnectionError):
    """The scheduler is gone, and what the workers kept with it."""


class _Held:
    """What a worker keeps of a block.

    future
        Of what is kept, or of a pair of that and a summand.
    paired
        Which of the two.
    """

    __slots__ = ("future", "paired")

    def __init__(self, future: Any, *, paired: bool) -> None:
        self.future, self.paired = future, paired


class OnDask:
    """Blocks on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    X : dask.array.Array
        (N, P), of arrays or of SciPy's CSR; every chunk of rows becomes a block.
    y : ndarray or dask.array.Array, optional
        (N,) or (N, K).

    Raises
    ------
    ClusterLostError
        By any method, if the scheduler does not answer.
    ValueError
        If X and y are of different lengths.
    """

    def __init__(self, client: Any, X: Any, y: Any = None) -> None:
        self._client = client
        with self._watched():
            columns = X.rechunk({1: -1})
            rows = client.compute([chunk for (chunk,) in columns.to_delayed()])
            shapes = client.gather(client.map(_shape, rows, pure=False))
            full = [number for number, shape in enumerate(shapes) if shape[0] > 0]
            if not full:
                raise ValueError("X has no rows")
            sizes = tuple(int(shapes[number][0]) for number in full)
            self._sizes, self._n_features = sizes, int(shapes[0][1])
            targets = self._targets(y)
            self._homes = self._find_homes([rows[number] for number in full])
            begins = np.cumsum([0, *sizes[:-1]]).tolist()
            self._blocks = [
                client.submit(
                    _block,
                    rows[number],
                    target,
                    begin,
                    pure=False,
                    workers=[self._homes[place]],
                    allow_other_workers=True,
                )
                for place, (number, target, begin) in enumerate(
                    zip(full, targets, begins, strict=True)
                )
            ]
            client.gather(client.map(_nothing, self._blocks, pure=False))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each block."""
        return self._sizes

    @property
    def n_features(self) -> int:
        """P."""
        return self._n_features

    def visit[S](self, function: Visit[S], *parts: Parts, shared: Any = None) -> tuple[Parts, S]:
        """See :class:`SampleBlocks`."""
        with self._watched():
            kept, sums = self._submit(function, parts, shared, paired=True)
            by_home = zip(self._at_home().values(), self._client.gather(sums), strict=True)
        found = {i: each for numbers, own in by_home for i, each in zip(numbers, own, strict=True)}
        total = reduce(add, (found[i] for i in range(len(found))))
        return kept, total

    def map(self, function: Callable[..., Any], *parts: Parts, shared: Any = None) -> Parts:
        """See :class:`SampleBlocks`."""
        with self._watched():
            return self._submit(function, parts, shared, paired=False)[0]

    def collect(self, parts: Parts) -> list[Any]:
        """See :class:`SampleBlocks`."""
        with self._watched():
            found = self._client.gather([held.future for held in parts])
        return [
            value[0] if held.paired else value for held, value in zip(parts, found, strict=True)
        ]

    def with_targets(self, targets: Parts) -> "OnDask":
        """See :class:`SampleBlocks`."""
        other = OnDask.__new__(OnDask)
        other._client, other._homes = self._client, self._homes
        other._sizes, other._n_features = self._sizes, self._n_features
        with self._watched():
            kept, _ = self._submit(_with_targets, (targets,), None, paired=False)
        other._blocks = [held.future for held in kept]
        return other

    def _submit(
        self, function: Callable[..., Any], parts: Sequence[Parts], shared: Any, *, paired: bool
    ) -> tuple[Parts, list[Any]]:
        """One task for every block at the home of its rows, and one for the sums of each home.

        All in one message: what a task costs beside its work is mostly the cost of messages.
        """
        import dask

        token = uuid.uuid4().hex  # a task of a name that was used before would not be run
        name = getattr(function, "__name__", "visit").strip("_")
        names = [f"{name}-{token}-{i}" for i in range(len(self._blocks))]
        homes = {name: [home] for name, home in zip(names, self._homes, strict=True)}
        graph: dict[str, Any] = {}
        common: Any = _Common(function, shared, np.geterr())
        if len(names) > _FEW_BLOCKS:
            key = f"shared-{token}"
            graph[key], common = (_given, common), key
            # What depends on nothing may run anywhere. Tied to a worker, however loosely, it would
            # wait for that one if at some moment all are gone, and what is new would stay idle.
            homes[key] = []
        for i, block in enumerate(self._blocks):
            own = [part[i] for part in parts]
            flags = tuple(held.paired for held in own)
            graph[names[i]] = (_run, common, block, flags, *(held.future for held in own))
        sums: list[str] = []
        if paired:
            for home, numbers in self._at_home().items():
                sums.append(f"sum-{token}-{len(sums)}")
                homes[sums[-1]] = [home]
                graph[sums[-1]] = (_summands, *(names[i] for i in numbers))
        with dask.annotate(workers=homes.__getitem__, allow_other_workers=True):
            futures = self._client.get(graph, names + sums, sync=False)
        n = len(names)
        return tuple(_Held(future, paired=paired) for future in futures[:n]), futures[n:]

    def _at_home(self) -> dict[str, list[int]]:
        """Numbers of the blocks of each worker."""
        found: dict[str, list[int]] = {}
        for number, home in enumerate(self._homes):
            found.setdefault(home, []).append(number)
        return found

    def _find_homes(self, rows: Sequence[Any]) -> list[str]:
        """A worker for every block: the one that has it, unless they are unevenly spread."""
        threads = dict(self._client.nthreads())
        if not threads:
            raise ClusterLostError("the cluster has no worker")
        share = sum(self._sizes) / sum(threads.values())
        holders = self._client.who_has(rows)
        where = [holders[future.key][0] for future in rows]
        load = dict.fromkeys(threads, 0.0)
        for home, size in zip(where, self._sizes, strict=True):
            load[home] = load.get(home, 0.0) + size
        largest = max(self._sizes)
        if all(load[w] <= max(_UNEVEN * share * n, largest) for w, n in threads.items()):
            return where
        load = dict.fromkeys(threads, 0.0)
        homes = []
        for size in self._sizes:
            homes.append(min(load, key=lambda worker: load[worker] / threads[worker]))
            load[homes[-1]] += size
        return homes

    def _targets(self, y: Any) -> Sequence[Any]:
        """Targets of every block, as arrays or futures of them."""
        if y is None:
            return [None] * len(self._sizes)
        if hasattr(y, "chunks") and np.isnan(y.chunks[0]).any():
            y = self._client.persist(y).compute_chunk_sizes()
        if y.shape[0] != sum(self._sizes):
            raise ValueError(f"X has {sum(self._sizes)} rows, and y has {y.shape[0]}")
        if not hasattr(y, "chunks"):
            return np.split(np.asarray(y), np.cumsum(self._sizes)[:-1])
        y = y.rechunk((self._sizes, *((size,) for size in y.shape[1:])))
        futures: Sequence[Any] = self._client.compute(y.to_delayed().ravel().tolist())
        return futures

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Say what the loss of the scheduler means, or of worker after worker."""
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
                f"the Dask cluster is gone ({error}); a fit that wrote checkpoints goes on from "
                "the last one when it is run again on a new cluster"
            ) from error
        except KilledWorker as error:
            raise RuntimeError(
                f"one block has killed several workers, which may have run out of memory: make "
                f"the blocks smaller, with block_size or the chunks of X ({error})"
            ) from error


def as_dask(X: Any, block_size: int) -> Any:
    """Any array, or SciPy's CSR, as a Dask array of chunks of so many rows."""
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
        Rows of a block; None for the chunks of X.
    client : distributed.Client, optional
        None for the one that is active, if there is one; without any, each visit computes one
        block after the other in this process and keeps none.
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
        raise ValueError("X has no rows")
    X = X.rechunk({1: -1})
    if y is not None:
        y = np.asarray(y.compute(scheduler="threads") if hasattr(y, "compute") else y)
        if len(y) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows, and y has {len(y)}")
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
    """X with the sizes of its chunks, which are counted where they are not known."""
    import dask

    if not np.isnan(X.chunks[0]).any():
        return X
    if client is not None:
        return client.persist(X).compute_chunk_sizes()
    with dask.config.set(scheduler="threads"):
        return X.compute_chunk_sizes()


# What a worker runs. Blocks travel as tuples, whose size in memory Dask can tell.


class _Common:
    """What a visit gives to all blocks; closed, so that Dask looks for no tasks in it."""

    __slots__ = ("errors", "function", "shared")

    def __init__(self, function: Callable[..., Any], shared: Any, errors: Any) -> None:
        self.function, self.shared, self.errors = function, shared, errors


def _given(common: _Common) -> _Common:
    return common


def _run(common: _Common, block: tuple[Any, ...], paired: tuple[bool, ...], *own: Any) -> Any:
    """Call what a visit calls, with one thread and what the client thinks of overflows."""
    X, y, begin = block
    parts = (value[0] if pair else value for value, pair in zip(own, paired, strict=True))
    with _controller().limit(limits=1, user_api="blas"), np.errstate(**common.errors):
        return common.function(Block(X=X, y=y, begin=begin), *parts, common.shared)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _summands(*pairs: tuple[Any, Any]) -> list[Any]:
    return [summand for _, summand in pairs]


def _block(X: Any, y: Any, begin: int) -> tuple[Any, ...]:
    """A block of its own rows.

    What came in a message is a piece of it: not aligned, so that every product would copy it.
    """
    own = isinstance(X, np.ndarray) and X.flags.owndata and X.flags.aligned
    return X if own else X.copy(), y, begin


def _with_targets(block: Block, y: Any, shared: Any) -> tuple[Any, ...]:
    return block.X, y, block.begin


def _shape(X: Any) -> tuple[int, ...]:
    return tuple(X.shape)


def _nothing(block: Any) -> None:
    return None
