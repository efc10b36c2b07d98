"""Input of a fit: samples, and targets as signs, 0 for a missing label."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from bsdr_models.bm2pca.priors import PAPER, Priors
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.numerics.row_space import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Samples, targets and fixed settings of a fit."""

    X: Rows  # (N, P), scaled, NaN for a missing value; or sparse
    Y: FloatArray  # Signs, (N, K), 0 without a label; or real targets, NaN if missing
    epsilon: float | None = None  # Half width of the epsilon-insensitive interval; None for signs
    # Features of each view; None for one view of all.
    columns: tuple[IntArray | None, ...] = (None,)
    n_components: int  # R
    priors: Priors = PAPER

    @property
    def observed(self) -> BoolArray:
        """Mask of the observed targets, (N, K)."""
        return self.Y != 0.0 if self.epsilon is None else ~np.isnan(self.Y)

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return issparse(self.X) or not np.isnan(self.X).any()

    def subset(self, index: IntArray) -> "Problem":
        """The same problem for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])
