"""Input of a fit: samples, and targets as signs, 0 for a missing label."""

from dataclasses import dataclass, replace
from typing import Literal, TypedDict

import numpy as np
from scipy.sparse import issparse

from bsdr_models.bm2pca.priors import PAPER, Priors
from bsdr_models.inference.dims import LABEL, SCORE
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.numerics.row_space import Rows

# One subspace for all outcomes, or one for each.
Strategy = Literal["shared", "one_vs_rest"]


class Candidate(TypedDict, total=False):
    """Settings of a classifier."""

    C: float
    n_sweeps: int | None  # None to convergence


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Samples, targets and fixed settings of a fit."""

    X: Rows  # (N, P), scaled, NaN for a missing value; or sparse
    Y: FloatArray  # Signs, (N, K), 0 without a label; or real targets, NaN if missing
    epsilon: float | None = None  # Half width of the epsilon-insensitive interval; None for signs
    # Features of each view; None for one view of all.
    columns: tuple[IntArray | None, ...] = (None,)
    n_components: int  # R, of each problem
    strategy: Strategy
    # Whether the columns of Y are classes that exclude each other, one column for two classes;
    # False for several labels, and for real targets.
    exclusive: bool = False
    priors: Priors = PAPER

    @property
    def observed(self) -> BoolArray:
        """Mask of the observed targets, (N, K)."""
        return self.Y != 0.0 if self.epsilon is None else ~np.isnan(self.Y)

    @property
    def score_axis(self) -> str:
        """The axis of Y in models and trees: two classes have one score, not one each."""
        return SCORE if self.exclusive and self.Y.shape[1] == 1 else LABEL

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return issparse(self.X) or not np.isnan(self.X).any()

    def subset(self, index: IntArray) -> "Problem":
        """The same problem for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])
