"""Samples in Dask, Zarr, memory-mapped and sparse arrays, read in blocks."""

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, cast

import numpy as np
from scipy import sparse
from scipy.sparse import issparse
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from bsdr_models.inference.sample_blocks import Block, InProcess, SampleBlocks, Unread
from bsdr_models.unlabeled import read_labels


def by_blocks[M: Callable[..., Any]](method: M) -> M:
    """Let a method of X accept Dask and Zarr arrays, and call it block by block.

    The result for a sample must depend on that sample alone. For a Dask array the result is one
    lazy Dask array, computed where its blocks are; for others it is in memory.
    """

    @wraps(method)
    def called(model: Any, X: Any, **options: Any) -> Any:
        if not is_block_source(X):
            return method(model, X, **options)
        check_is_fitted(model)
        check_two_axes(X)
        of_block = partial(_call, method, model, options)
        example = of_block(np.zeros((1, X.shape[1])))  # also checks the number of columns
        if not is_dask(X):
            if X.shape[0] == 0:
                raise ValueError("X has no samples: Found array with 0 sample(s)")
            found = [of_block(block) for block in read_blocks(X)]
            return _join(found)
        if not isinstance(example, np.ndarray):
            raise ValueError(
                f"{method.__name__} returns several arrays for these arguments, which is not "
                "supported for a Dask array: call it on one block at a time"
            )
        X = X.rechunk({1: -1})
        columns = [(size,) for size in example.shape[1:]]
        return X.map_blocks(
            of_block,
            dtype=example.dtype,
            chunks=(X.chunks[0], *columns),
            drop_axis=[1] if example.ndim == 1 else None,
            meta=example[:0],
        )

    return cast(M, called)


def _join(found: Sequence[Any]) -> Any:
    """Concatenate arrays, or tuples or lists of arrays, entry by entry."""
    if isinstance(found[0], np.ndarray):
        return np.concatenate(found)
    return type(found[0])(_join(parts) for parts in zip(*found, strict=True))


def _call(method: Callable[..., Any], model: Any, options: dict[str, Any], block: Any) -> Any:
    block = block.toarray() if issparse(block) else block
    if not len(block):
        return method(model, np.zeros((1, block.shape[1])), **options)[:0]
    return method(model, block, **options)


# Size in memory, as float64, of a block read from disk.
BLOCK_BYTES = 64_000_000


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array; without importing Dask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "chunks")


def is_zarr(X: Any) -> bool:
    """Whether X is a Zarr array; without importing Zarr."""
    return type(X).__module__.partition(".")[0] == "zarr" and hasattr(X, "chunks")


def is_block_source(X: Any) -> bool:
    """Whether X is a Dask or a Zarr array.

    Memory-mapped arrays are NumPy arrays, and are read in blocks only by :func:`make_blocks`.
    """
    return is_dask(X) or is_zarr(X)


def not_in_memory(estimator: Any, X: Any) -> TypeError:
    """The error of an estimator that is not fitted to Dask or Zarr arrays."""
    kind, name = type(X).__module__.partition(".")[0].capitalize(), type(estimator).__name__
    return TypeError(
        f"X is a {kind} array, and {name} is fitted in memory: give numpy.asarray(X), or a "
        "subsample; BSDRClassifier is fitted to all samples, block by block"
    )


def check_two_axes(X: Any) -> None:
    """Raise a ValueError unless X has two axes, in the words of scikit-learn."""
    if len(X.shape) != 2:
        raise ValueError(
            f"Expected 2D array, got {len(X.shape)}D array of shape {X.shape} instead: reshape "
            "your data, X.reshape(-1, 1) for one feature or X.reshape(1, -1) for one sample"
        )


def read_block_labels(X: Any, y: Any) -> Any:
    """Labels of a fit in blocks; Dask and Zarr arrays are validated later, block by block.

    Raises
    ------
    ValueError
        As :func:`~bsdr_models.unlabeled.read_labels`; or if X and y have different lengths.
    """
    if is_block_source(y):
        return y
    y = column_or_1d(read_labels(y), warn=True)
    if not is_dask(X):
        check_consistent_length(X, y)
    return y


def make_blocks(
    X: Any, y: Any = None, *, block_size: int | None = None, client: Any = None
) -> SampleBlocks:
    """Split samples into blocks.

    Parameters
    ----------
    X : (N, P)
        A Dask array (dense, or of SciPy's CSR), a Zarr array, a memory-mapped or any other array,
        or SciPy's CSR. Arrays on disk are read block by block in every pass.
    y : array-like of N entries, optional
    block_size : int, optional
        Samples per block. By default the chunks of a Dask array, chunks of a Zarr array up to
        64 MB, 64 MB of a memory-mapped array, and all samples of an array in memory.
    client : distributed.Client, optional
        Holds the blocks of a Dask array; by default the active client, if any. Other arrays are
        sent to a client only if it is given.

    Raises
    ------
    ValueError
        If X is not a non-empty matrix, or X and y have different lengths.
    """
    if len(X.shape) != 2 or 0 in X.shape:
        raise ValueError(f"X must be a non-empty matrix (N, P), got shape {X.shape}")
    if block_size is not None and (block_size != int(block_size) or block_size < 1):
        raise ValueError(f"block_size must be a positive integer, got {block_size!r}")
    if client is not None and not is_dask(X):
        from bsdr_models.inference.dask_blocks import as_dask

        X = as_dask(X, _samples_of_block(X, block_size))
    if is_dask(X):
        from bsdr_models.inference.dask_blocks import blocks_of_dask

        return blocks_of_dask(X, _read_all(y), block_size=block_size, client=client)
    y, n = None if y is None else np.asarray(_read_all(y)), X.shape[0]
    if y is not None and len(y) != n:
        raise ValueError(f"X has {n} samples, and y has {len(y)}")
    pieces = list(_pieces(X, _samples_of_block(X, block_size)))
    return InProcess(
        [
            Block(X=rows, y=None if y is None else y[begin : begin + rows.shape[0]], begin=begin)
            for begin, rows in pieces
        ]
    )


def read_blocks(X: Any, *, block_size: int | None = None) -> Iterator[Any]:
    """Yield blocks of samples of an array other than Dask's."""
    for _, rows in _pieces(X, _samples_of_block(X, block_size)):
        yield rows.read() if isinstance(rows, Unread) else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(Unread):
    """Samples ``begin`` to ``end`` of an array on disk."""

    source: Any
    begin: int
    end: int

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of samples and features."""
        return self.end - self.begin, self.source.shape[1]

    def read(self) -> np.ndarray:
        """Copy of the samples; pages of a memory map are released."""
        samples = np.array(self.source[self.begin : self.end])
        pages = getattr(self.source, "_mmap", None)
        if pages is not None and self.source.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
            pages.madvise(mmap.MADV_DONTNEED)
        return samples


def _samples_of_block(X: Any, block_size: int | None) -> int:
    n, p = X.shape
    if block_size is not None:
        return int(block_size)
    most = max(1, BLOCK_BYTES // (8 * p))
    if is_zarr(X):
        return int(X.chunks[0]) * max(1, most // int(X.chunks[0]))
    return most if isinstance(X, np.memmap) else int(n)


def _pieces(X: Any, size: int) -> Iterator[tuple[int, Any]]:
    """Yield the index of the first sample, and the samples, of every block."""
    n, p = X.shape
    rows = sparse.csr_array(X) if sparse.issparse(X) else X
    for begin in range(0, n, size):
        end = min(begin + size, n)
        if sparse.issparse(rows):  # a view: slicing would copy
            first, last = rows.indptr[begin], rows.indptr[end]
            parts = rows.data[first:last], rows.indices[first:last]
            pointers = rows.indptr[begin : end + 1] - first
            yield begin, sparse.csr_array((*parts, pointers), shape=(end - begin, p))
        elif is_zarr(X) or isinstance(X, np.memmap):
            yield begin, Slice(source=X, begin=begin, end=end)
        else:
            yield begin, np.asarray(rows)[begin:end]


def _read_all(y: Any) -> Any:
    if y is None or is_dask(y):
        return y
    return np.asarray(y[:] if is_zarr(y) else y)
