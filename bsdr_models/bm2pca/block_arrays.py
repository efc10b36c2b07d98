"""A state over blocks as arrays by name, and back: what a checkpoint of a fit writes."""

from bsdr_models.bm2pca.block_problem import Problem
from bsdr_models.bm2pca.blocks import BlockState, empty_state
from bsdr_models.inference.checkpoint import Codec
from bsdr_models.inference.row_blocks import Parts
from bsdr_models.inference.state_arrays import Arrays, fill, flatten
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

    def shared(state: BlockState) -> Arrays:
        return {**flatten(state.shared, "shared"), **flatten(state.sums, "sums")}

    def state(arrays: Arrays, rows: Parts) -> BlockState:
        return BlockState(
            shared=fill(blank.shared, "shared", arrays),
            rows=rows,
            sums=fill(blank.sums, "sums", arrays),
        )

    return Codec(
        shared=shared,
        rows=lambda state: state.rows,
        write_rows=_row_arrays,
        read_rows=_rows,
        state=state,
    )


def _row_arrays(rows: FloatArray) -> Arrays:
    return {"rows": rows}


def _rows(arrays: Arrays) -> FloatArray:
    return arrays["rows"]
