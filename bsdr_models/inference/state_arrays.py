"""A state as arrays by name, and back: what is written of it."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


def flatten(value: Any, name: str) -> dict[str, NDArray[Any]]:
    """Arrays and numbers within dataclasses and tuples, by the path to each; None is nothing."""
    if value is None:
        return {}
    if not (isinstance(value, tuple) or is_dataclass(value)):
        return {name: np.asarray(value)}
    return {
        path: array
        for key, part in _parts(value)
        for path, array in flatten(part, f"{name}.{key}").items()
    }


def fill[T](like: T, name: str, arrays: Arrays) -> T:
    """The structure of ``like`` with the arrays that :func:`flatten` has named."""
    if like is None:
        return like
    if not (isinstance(like, tuple) or is_dataclass(like)):
        found = arrays[name]
        return found if isinstance(like, np.ndarray) else type(like)(found)  # type: ignore
    new = {key: fill(part, f"{name}.{key}", arrays) for key, part in _parts(like)}
    if isinstance(like, tuple):
        return tuple(new.values())  # type: ignore[return-value]
    return replace(like, **new)  # type: ignore[type-var]


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, tuple):
        return [(str(number), part) for number, part in enumerate(value)]
    return [(field.name, getattr(value, field.name)) for field in fields(value)]
