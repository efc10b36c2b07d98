"""Predictions in blocks, for more samples than fit into memory."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from bsdr_models.block_sources import (
    check_two_axes,
    is_block_source,
    is_dask,
    is_read_by_block,
    read_blocks,
)


def by_blocks[M: Callable[..., Any]](method: M) -> M:
    """Let a method of X accept Dask and Zarr arrays, and call it block by block.

    A model with ``block_size`` also reads memory-mapped and sparse arrays so. The result for a
    sample must depend on that sample alone. For a Dask array the result is one lazy Dask array,
    computed where its blocks are; for others it is in memory.
    """

    @wraps(method)
    def called(model: Any, X: Any, **options: Any) -> Any:
        block_size = getattr(model, "block_size", None)
        if not (is_block_source(X) or (block_size is not None and is_read_by_block(X))):
            return method(model, X, **options)
        check_is_fitted(model)
        check_two_axes(X)
        of_block = partial(_call, method, model, options)
        example = of_block(np.zeros((1, X.shape[1])))  # also checks the number of columns
        if not is_dask(X):
            if X.shape[0] == 0:
                raise ValueError("X has no samples: Found array with 0 sample(s)")
            found = [of_block(block) for block in read_blocks(X, block_size=block_size)]
            if isinstance(example, np.ndarray):
                return np.concatenate(found)
            return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
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


def _call(method: Callable[..., Any], model: Any, options: dict[str, Any], block: Any) -> Any:
    block = block.toarray() if issparse(block) else block
    if not len(block):
        return method(model, np.zeros((1, block.shape[1])), **options)[:0]
    return method(model, block, **options)
