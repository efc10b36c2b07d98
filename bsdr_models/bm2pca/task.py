"""Input and result of a fit, common to both models and all inference methods."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.settings import Strategy
from bsdr_models.bm2pca.spec import PAPER, Priors
from bsdr_models.inference.result import Result
from bsdr_models.inference.sampling import Sampled
from bsdr_models.numerics.row_space import Rows

# Values of C and of another setting of a classifier by name.
type Candidate = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Samples, targets and fixed settings of a fit.

    X
        (N, P), scaled, NaN for a missing value; or sparse.
    Y
        Signs, (N, K), 0 without a label; or real targets, NaN if missing.
    epsilon
        Half width of the epsilon-insensitive interval, (P, 1, 1) if problems differ; None for
        signs.
    columns
        Features of each view; None for one view of all.
    n_components
        R, of each problem.
    strategy
        One subspace for all outcomes, or one for each.
    sizes
        Number of columns of Y of each task, whose classes exclude each other: one column for two
        classes. () for several labels, and for real targets.
    multiclass
        Whether the loss of the label-free subspace is the hinge of all classes of a task.
    """

    X: Rows
    Y: FloatArray
    epsilon: float | FloatArray | None = None
    columns: tuple[IntArray | None, ...] = (None,)
    n_components: int
    strategy: Strategy
    sizes: tuple[int, ...] = ()
    multiclass: bool = False
    priors: Priors = PAPER

    @property
    def observed(self) -> BoolArray:
        """Mask of the observed targets, (N, K)."""
        return self.Y != 0.0 if self.epsilon is None else ~np.isnan(self.Y)

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return issparse(self.X) or not np.isnan(self.X).any()

    def subset(self, index: IntArray) -> "Task":
        """The same task for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])


@dataclass(frozen=True, kw_only=True)
class FitResult(Result):
    """Result of a fit.

    A posterior predicts scaled samples X (M, P): latent coordinates by ``latent(X)`` (M, R) and
    ``embed(X)``, class scores (or predictions) by ``score_means(X)`` (M, K), ``score_moments(X)``
    and ``scores_at(latent)``. It has ``projection`` (P, R), its ``projection_sd``,
    ``mean_weights`` (R, K), a ``factor_model`` of the features or None, and, unless drawn by a
    sampler, ``draw(n_draws, rng)``.

    terms
        Terms of the bound by name, each (n_iter,).
    sampled
        Draws of a sampler.
    """

    terms: Mapping[str, FloatArray] = field(default_factory=dict)
    sampled: Sampled | None = None
