"""Compilation by Numba."""

import logging
from collections.abc import Callable
from typing import Any

import numba

logger = logging.getLogger(__name__)


def njit(*, cache: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """As ``numba.njit``, without a cache on disk if no folder for it is writable.

    Such a function is compiled again by every process; the environment variable ``NUMBA_CACHE_DIR``
    names a folder for the cache.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=cache, **options)(function)
        except RuntimeError as error:  # Numba finds no place for the cache
            logger.info("%s; set NUMBA_CACHE_DIR to a writable folder", error)
            return numba.njit(**options)(function)

    return decorate
