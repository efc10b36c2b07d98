"""A state over blocks as arrays by name, and back: what a checkpoint of a fit writes."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from bsdr_models.bm2pca.block_problem import Problem
from bsdr_models.bm2pca.blocks import BlockState, empty_state
from bsdr_models.inference.checkpoint import Codec
from bsdr_models.inference.row_blocks import Parts
from bsdr_models.typing import FloatArray


def codec(problem: Problem, *, n_components: int) -> Codec[BlockState]:
    """How the states of a fit are written and read.

    Parameters
    ----------
    problem : Problem
    n_components : int
        R.
    """
    blank = empty_state(problem, n_components=n_components)

    def shared(state: BlockState) -> dict[str, FloatArray]:
        return {**_flat(state.shared, "shared"), **_flat(state.sums, "sums")}

    def state(arrays: Mapping[str, FloatArray], rows: Parts) -> BlockState:
        return BlockState(
            shared=_filled(blank.shared, "shared", arrays),
            rows=rows,
            sums=_filled(blank.sums, "sums", arrays),
        )

    return Codec(
        shared=shared,
        rows=lambda state: state.rows,
        write_rows=_row_arrays,
        read_rows=_rows,
        state=state,
    )


def _row_arrays(rows: FloatArray) -> dict[str, FloatArray]:
    return {"rows": rows}


def _rows(arrays: Mapping[str, FloatArray]) -> FloatArray:
    return arrays["rows"]


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
