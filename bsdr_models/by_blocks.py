"""Questions to a fitted model about more rows than memory holds."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, cast

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from bsdr_models.block_sources import is_block_source, is_dask, is_read_by_block, read_blocks


def by_blocks[M: Callable[..., Any]](method: M) -> M:
    """Let a method of rows take a Dask or Zarr array as well, a block of rows at a time.

    So it takes whatever a model with ``block_size`` is fitted to. For methods whose answer for a
    row depends on that row alone. Of a Dask array the answer is a Dask array too, and one only:
    nothing is computed until it is asked for, and then where the blocks lie. Of the others the
    answer is in memory.
    """

    @wraps(method)
    def called(model: Any, X: Any, **options: Any) -> Any:
        block_size = getattr(model, "block_size", None)
        if not (is_block_source(X) or (block_size is not None and is_read_by_block(X))):
            return method(model, X, **options)
        check_is_fitted(model)
        answer = partial(_answer, method, model, options)
        example = answer(np.zeros((1, X.shape[1])))  # a wrong number of columns is refused here
        if not is_dask(X):
            if X.shape[0] == 0:
                raise ValueError("X has no rows: Found array with 0 sample(s)")
            found = [answer(rows) for rows in read_blocks(X, block_size=block_size)]
            if isinstance(example, np.ndarray):
                return np.concatenate(found)
            return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
        if not isinstance(example, np.ndarray):
            raise ValueError(
                f"{method.__name__} gives several arrays for these arguments, and takes a Dask "
                "array only where it gives one: ask for one block of rows at a time"
            )
        X = X.rechunk({1: -1})
        columns = [(size,) for size in example.shape[1:]]
        return X.map_blocks(
            answer,
            dtype=example.dtype,
            chunks=(X.chunks[0], *columns),
            drop_axis=[1] if example.ndim == 1 else None,
            meta=example[:0],
        )

    return cast(M, called)


def _answer(method: Callable[..., Any], model: Any, options: dict[str, Any], rows: Any) -> Any:
    rows = rows.toarray() if issparse(rows) else rows
    if not len(rows):
        return method(model, np.zeros((1, rows.shape[1])), **options)[:0]
    return method(model, rows, **options)
