"""Samples in Dask arrays: validation, scaling, and predictions chunk by chunk."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_consistent_length, column_or_1d

from bsdr_models.data.validation import is_dask, read_labels
from bsdr_models.large.chunks import of_chunks
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.process_state import DataWarning, recorded_warnings
from bsdr_models.numerics.scaling import Scaler

# Numbers in an array of the samples of a chunk that are processed at once.
_ENTRIES = 2**17
# Number of samples, and mean and variance of their columns, (D,).
type Moments = tuple[int, FloatArray, FloatArray]


def as_dask(X: Any) -> Any:
    """A Dask array (N, D) in known chunks of samples with all features."""
    if len(X.shape) != 2:
        raise ValueError(
            f"Expected 2D array, got {len(X.shape)}D array of shape {X.shape} instead: reshape "
            "your data, X.reshape(-1, 1) for one feature or X.reshape(1, -1) for one sample"
        )
    if np.isnan(X.chunks[0]).any():
        X = X.compute_chunk_sizes()
    if issparse(X._meta):
        X = X.map_blocks(lambda chunk: chunk.toarray(), meta=np.empty((0, 0)))
    if X.shape[0] == 0:
        raise ValueError("X has no samples: Found array with 0 sample(s)")
    return X.rechunk({0: tuple(size for size in X.chunks[0] if size > 0), 1: -1})


def map_chunks(method: Callable[..., Any], model: Any, X: Any, **options: Any) -> Any:
    """Result of a fitted model's method for the samples of a Dask array; it is lazy."""
    chunked = as_dask(X)
    of_chunk = partial(method, model, **options)
    with recorded_warnings(category=DataWarning):
        example = of_chunk(np.zeros((1, X.shape[1])))  # also checks the number of columns
    if not isinstance(example, np.ndarray):
        raise ValueError(
            f"{method.__name__} returns several arrays for these arguments, which is not "
            "supported for Dask arrays: call it on one chunk at a time"
        )
    return chunked.map_blocks(
        of_chunk,
        dtype=example.dtype,
        chunks=(chunked.chunks[0], *((size,) for size in example.shape[1:])),
        drop_axis=[1] if example.ndim == 1 else None,
        meta=example[:0],
    )


def read_chunked(X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """X as :func:`as_dask`, and labels (N,) in memory; ValueError unless features are real numbers.

    The chunks stay on the workers of an active ``distributed.Client``, if there is one, so that
    scaling and fit read the source once.
    """
    X = as_dask(X)
    y = column_or_1d(read_labels(y.compute() if is_dask(y) else y), warn=True)
    check_consistent_length(X, y)
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X is of type {X.dtype}, expected real numbers")
    return (X.persist() if _has_client() else X), y


def _has_client() -> bool:
    try:
        from distributed import default_client

        default_client()
    except (ImportError, ValueError):
        return False
    return True


def fit_scaler_of_chunks(X: Any, *, standardize: bool) -> Scaler:
    """Centre and scale of a Dask array (N, D), by two passes; ValueError unless it is finite."""
    import dask

    size = np.max(dask.compute(*of_chunks(_largest, X, common=None)), axis=0)
    if not np.isfinite(size).all():
        column = int(np.flatnonzero(~np.isfinite(size))[0])
        raise ValueError(f"Input X contains NaN or infinity (column {column})")
    parts = dask.compute(*of_chunks(_moments, X, common=Scaler.peak_of(size)))
    _, mean, variance = _pool(parts)
    return Scaler.of_moments(size, mean, np.sqrt(variance), standardize)


def _parts(X: np.ndarray) -> Iterator[FloatArray]:
    """Samples of a chunk, some at a time, so that no copy is as large as the chunk."""
    for rows in gen_batches(len(X), max(1, _ENTRIES // X.shape[1])):
        yield np.asarray(X[rows], dtype=np.float64)


def _largest(X: np.ndarray, common: None) -> FloatArray:
    """Largest magnitudes of the columns, (D,)."""
    return np.max([np.abs(part).max(axis=0) for part in _parts(X)], axis=0)


def _moments(X: np.ndarray, common: FloatArray) -> Moments:
    """Moments of the columns divided by these numbers."""
    units = (part / common for part in _parts(X))
    return _pool([(len(unit), unit.mean(axis=0), unit.var(axis=0)) for unit in units])


def _pool(moments: Sequence[Moments]) -> Moments:
    """Moments of all samples from those of disjoint parts."""
    counts, means, variances = map(np.array, zip(*moments, strict=True))
    mean = np.average(means, axis=0, weights=counts)
    variance = np.average(variances + (means - mean) ** 2, axis=0, weights=counts)
    return int(counts.sum()), mean, variance
