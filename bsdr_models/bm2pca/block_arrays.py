"""A state over blocks as arrays by name, and back: what a checkpoint of a fit writes."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from bsdr_models.bm2pca.block_problem import Problem
from bsdr_models.bm2pca.blocks import BlockState, empty_state
from bsdr_models.inference.row_blocks import Parts
from bsdr_models.typing import FloatArray

ROWS = "rows"


def shared_arrays(state: BlockState) -> dict[str, FloatArray]:
    """Everything but rows, by its place in the state."""
    return {**_flat(state.shared, "shared"), **_flat(state.sums, "sums")}


def row_arrays(rows: FloatArray) -> dict[str, FloatArray]:
    """What a block keeps."""
    return {ROWS: rows}


def rows_of_arrays(arrays: Mapping[str, FloatArray]) -> FloatArray:
    """The other way."""
    return arrays[ROWS]


def state_of_arrays(
    arrays: Mapping[str, FloatArray], rows: Parts, problem: Problem, *, n_components: int
) -> BlockState:
    """State of what :func:`shared_arrays` gave, with its rows."""
    blank = empty_state(problem, n_components=n_components)
    return BlockState(
        shared=_filled(blank.shared, "shared", arrays),
        rows=rows,
        sums=_filled(blank.sums, "sums", arrays),
    )


def _flat(value: Any, name: str) -> dict[str, FloatArray]:
    if value is None:
        return {}
    if isinstance(value, np.ndarray):
        return {name: value}
    return {
        path: array
        for key, part in _parts(value)
        for path, array in _flat(part, f"{name}.{key}").items()
    }


def _filled[T](value: T, name: str, arrays: Mapping[str, FloatArray]) -> T:
    """The same structure with other arrays."""
    if value is None:
        return value
    if isinstance(value, np.ndarray):
        return arrays[name]  # type: ignore[return-value]
    new = {key: _filled(part, f"{name}.{key}", arrays) for key, part in _parts(value)}
    if isinstance(value, tuple):
        return tuple(new.values())  # type: ignore[return-value]
    return replace(value, **new)  # type: ignore[type-var]


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, tuple):
        return [(str(number), part) for number, part in enumerate(value)]
    assert is_dataclass(value)
    return [(field.name, getattr(value, field.name)) for field in fields(value)]
