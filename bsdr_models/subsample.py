"""A subsample of all blocks in memory, for model selection and plots."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bsdr_models.arrays import IntArray
from bsdr_models.block_checks import Checked
from bsdr_models.inference.sample_blocks import Block

N_KEPT = 2000  # largest number of samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsample:
    """Samples of all blocks, in order.

    index
        Their indices, (n,).
    X
        Features as given, (n, P), or SciPy's CSR.
    y
        Class indices, (n,).
    """

    index: IntArray
    X: Any
    y: IntArray

    def __add__(self, other: "Subsample") -> "Subsample":
        join = sparse.vstack if sparse.issparse(self.X) else np.concatenate
        return Subsample(
            index=np.concatenate([self.index, other.index]),
            X=join([self.X, other.X]),
            y=np.concatenate([self.y, other.y]),
        )


def take_subsample(checked: Checked) -> Subsample:
    """At most `N_KEPT` samples, evenly spaced. Reads X once."""
    ends = np.cumsum(checked.blocks.sizes)
    index = np.linspace(0, ends[-1] - 1, min(N_KEPT, ends[-1])).astype(np.int64)
    return checked.blocks.reduce(_select, shared=index)


def _select(block: Block, index: IntArray) -> Subsample:
    y = np.asarray(block.y)
    own = index[(index >= block.begin) & (index < block.begin + len(y))]
    inside = own - block.begin
    return Subsample(index=own, X=block.X[inside], y=y[inside])
