"""Input and result of a fit, common to both models and all inference methods."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import issparse

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.paper.factor_model import FactorModel, Rows
from bsdr_models.bm2pca.paper.loss_augmentation import Margins, margins_of
from bsdr_models.bm2pca.paper.mean_field import Start
from bsdr_models.bm2pca.priors import PAPER, Priors
from bsdr_models.inference.sampling import Sampled
from bsdr_models.numerics.design import row_space
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.row_space import RANK_TOL, centred_gram

Strategy = Literal["shared", "one_vs_rest"]
# Values of C and of another setting of a classifier by name.
type Candidate = dict[str, Any]
# Most sparse samples whose Gram matrix is formed.
MAX_GRAM = 3000


class Posterior(Protocol):
    """Fitted posterior for prediction; samples X are (M, P), scaled.

    One that no sampler has drawn also has ``draw(n_draws, rng)``, draws by name.
    """

    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R)."""

    def embed(self, X: Rows) -> LatentCoordinates:
        """Mean and covariances of the latent coordinates."""

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean class scores (or predictions) at latent coordinates (G, R): (G, K)."""

    def score_means(self, X: Rows) -> FloatArray:
        """Mean class scores (or predictions), (M, K)."""

    def score_moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the class scores, each (M, K)."""

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to latent coordinates, (P, R)."""

    @property
    def projection_sd(self) -> FloatArray:
        """Posterior standard deviation of the projection, (P, R); NaN if unknown."""

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""


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
    n_features
        Features of each view, if X holds coordinates in a subspace of them.
    n_components
        R, of each problem.
    strategy
        One subspace for all outcomes, or one for each.
    sizes
        Number of columns of Y of each task, whose classes exclude each other: one column for two
        classes. () for several labels, and for real targets.
    multiclass
        Whether the loss of the label-free subspace is the hinge of all classes of a task.
    start
        Initial latent coordinates of mean field.
    """

    X: Rows
    Y: FloatArray
    epsilon: float | FloatArray | None = None
    columns: tuple[IntArray | None, ...] = (None,)
    n_features: tuple[int | None, ...] = (None,)
    n_components: int
    strategy: Strategy
    sizes: tuple[int, ...] = ()
    multiclass: bool = False
    start: Start = "label"
    priors: Priors = PAPER

    @property
    def observed(self) -> BoolArray:
        """Mask of the observed targets, (N, K)."""
        return self.Y != 0.0 if self.epsilon is None else ~np.isnan(self.Y)

    def margins(self, y: FloatArray, cost: FloatArray) -> Margins:
        """Margin factors of targets (P, N, K) for costs (P, 1, 1)."""
        return margins_of(y, cost, self.epsilon)

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return issparse(self.X) or not np.isnan(self.X).any()

    def subset(self, index: IntArray) -> "Task":
        """The same task for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])

    def reduced(self) -> "Task":
        """Represent wide X in coordinates of its row space, which all subsets share."""
        n, p = self.X.shape
        if p <= n or len(self.columns) > 1 or not self.complete:
            return self
        if not issparse(self.X):
            return replace(self, X=self.X @ row_space(self.X)[1], n_features=(p,))
        if n > MAX_GRAM:
            return self
        size, vectors = eigh(centred_gram(self.X, np.zeros(p)))
        kept = size > RANK_TOL * size[-1]
        return replace(self, X=vectors[:, kept] * np.sqrt(size[kept]), n_features=(p,))

    def targets_by_problem(self) -> FloatArray:
        """Targets by problem: (K, N, 1) one-vs-rest, (1, N, K) shared."""
        if self.strategy == "shared":
            return np.ascontiguousarray(self.Y[None])
        return np.ascontiguousarray(self.Y.T[:, :, None])


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Result of a fit.

    posterior
        For prediction.
    factor_model
        Model of the features, for reconstruction and imputation; None for the recommended model.
    elbo, terms
        Bound (or objective) after each iteration, and the terms of the last one by name.
    converged, interrupted
        As for :class:`bsdr_models.inference.coordinate_ascent.FitResult`.
    restarts
        Final bound of every restart.
    sampled
        Draws of a sampler.
    """

    posterior: Posterior
    factor_model: FactorModel | None
    elbo: FloatArray
    terms: Mapping[str, FloatArray]
    converged: bool
    interrupted: bool = False
    restarts: tuple[float, ...] = ()
    sampled: Sampled | None = None
