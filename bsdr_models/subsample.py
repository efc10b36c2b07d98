"""Some rows of all blocks, brought to memory: what settings are chosen on and plots show."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bsdr_models.arrays import IntArray
from bsdr_models.block_checks import Checked
from bsdr_models.inference.sample_blocks import Block

# Rows that are kept.
N_KEPT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsample:
    """Some rows of all blocks, in their order.

    index
        Which they are, (n,).
    X
        As they were given, (n, P), or SciPy's CSR.
    y
        Index of the class, (n,).
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
    """At most `N_KEPT` rows, evenly spaced. Reads X once."""
    ends = np.cumsum(checked.blocks.sizes)
    index = np.linspace(0, ends[-1] - 1, min(N_KEPT, ends[-1])).astype(np.int64)
    _, kept = checked.blocks.visit(_keep, shared=index)
    return kept


def _keep(block: Block, index: IntArray) -> tuple[None, Subsample]:
    y = np.asarray(block.y)
    own = index[(index >= block.begin) & (index < block.begin + len(y))]
    inside = own - block.begin
    return None, Subsample(index=own, X=block.X[inside], y=y[inside])
