"""Some rows of all blocks, brought to memory: what settings are chosen on and plots show."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from bsdr_models.inference.row_blocks import Block
from bsdr_models.row_checks import Checked
from bsdr_models.typing import IntArray

# Rows that are kept.
N_KEPT = 2000
# Share of them that have a label, as far as there are such.
LEAST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRows:
    """Some rows of all blocks, in their order.

    index
        Which they are, (n,).
    X
        As they were given, (n, P), or SciPy's CSR.
    y
        Index of the class, (n,), -1 without a label.
    """

    index: IntArray
    X: Any
    y: IntArray

    def __add__(self, other: "KeptRows") -> "KeptRows":
        join = sparse.vstack if sparse.issparse(self.X) else np.concatenate
        return KeptRows(
            index=np.concatenate([self.index, other.index]),
            X=join([self.X, other.X]),
            y=np.concatenate([self.y, other.y]),
        )


def keep_rows(checked: Checked) -> KeptRows:
    """At most `N_KEPT` rows, evenly spaced. Reads X once."""
    blocks = checked.blocks
    known = np.array(blocks.collect(blocks.map(_count_known)))
    sizes = np.array(blocks.sizes)
    n_known, n_free = int(known.sum()), int((sizes - known).sum())
    share = max(LEAST, n_known / (n_known + n_free))
    take = min(n_known, max(round(share * N_KEPT), N_KEPT - n_free))
    chosen = [
        _spread(known, take),
        _spread(sizes - known, min(n_free, N_KEPT - take)),
    ]
    begins = np.cumsum(sizes) - sizes
    plan = {int(b): [own[i] for own in chosen] for i, b in enumerate(begins)}
    _, kept = blocks.visit(_keep, shared=plan)
    return kept


def _spread(sizes: IntArray, take: int) -> list[IntArray]:
    """Numbers, within each part, of so many entries evenly spaced over parts of these sizes."""
    ends = np.cumsum(sizes)
    index = np.unique(np.linspace(0, ends[-1] - 1, take).astype(np.int64))
    parts = np.split(index, np.searchsorted(index, ends[:-1]))
    return [part - begin for part, begin in zip(parts, ends - sizes, strict=True)]


def _count_known(block: Block, shared: None) -> int:
    return int(np.count_nonzero(np.asarray(block.y) >= 0))


def _keep(block: Block, plan: dict[int, list[IntArray]]) -> tuple[None, KeptRows]:
    y = np.asarray(block.y)
    known, free = plan[block.begin]
    own = np.sort(np.concatenate([np.flatnonzero(y >= 0)[known], np.flatnonzero(y < 0)[free]]))
    return None, KeptRows(index=block.begin + own, X=block.X[own], y=y[own])
