"""What is to be learned, and what a fit of either variant offers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import issparse

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.factor_model import FactorModel, Rows
from bsdr_models.bm2pca.loss_augmentation import Margins, margins_of
from bsdr_models.bm2pca.mean_field import Start, State
from bsdr_models.bm2pca.predict import DrawPosterior
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.design import row_space
from bsdr_models.numerics.latent_coordinates import LatentCoordinates
from bsdr_models.numerics.row_space import RANK_TOL, centred_gram

Strategy = Literal["shared", "one_vs_rest"]
# Sparse rows of which all products are held at once.
MAX_GRAM = 3000


class Posterior(Protocol):
    """What prediction needs of a fit; rows are (M, P), scaled."""

    def latent(self, rows: Rows) -> FloatArray:
        """Mean positions, (M, R)."""

    def embed(self, rows: Rows) -> LatentCoordinates:
        """LatentCoordinates with their covariances."""

    def score_means(self, rows: Rows) -> FloatArray:
        """Mean scores, (M, K)."""

    def score_moments(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the scores, each (M, K)."""

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to positions, (P, R)."""

    @property
    def projection_sd(self) -> FloatArray:
        """Standard deviation of its entries, as far as the fit knows it, (P, R)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Rows and targets of a fit, and what does not change while settings are compared.

    X
        (N, P), scaled, NaN where an entry is missing; or sparse.
    Y
        Signs, (N, K), 0 where there is no label; or real targets, NaN where there is none.
    epsilon
        Half width of the tube around real targets, (P, 1, 1) where problems differ; None for
        signs.
    columns
        Features of each view; None for one view of all.
    n_features
        Features of each view, where X holds coordinates of a subspace of them.
    n_components
        R, of each problem.
    strategy
        One subspace for all outcomes, or one for each.
    start
        Of the paper's variant.
    priors
        Hyper-parameters.
    """

    X: Rows
    Y: FloatArray
    epsilon: float | FloatArray | None = None
    columns: tuple[IntArray | None, ...] = (None,)
    n_features: tuple[int | None, ...] = (None,)
    n_components: int
    strategy: Strategy
    start: Start
    priors: Priors

    @property
    def observed(self) -> BoolArray:
        """Where there is a target, (N, K)."""
        return self.Y != 0.0 if self.epsilon is None else ~np.isnan(self.Y)

    def margins(self, y: FloatArray, cost: FloatArray) -> Margins:
        """Factors of targets (P, N, K) for costs (P, 1, 1)."""
        return margins_of(y, cost, self.epsilon)

    @property
    def complete(self) -> bool:
        """Whether no entry is missing."""
        return issparse(self.X) or not np.isnan(self.X).any()

    def subset(self, rows: IntArray) -> "Task":
        """The same with some of the rows."""
        return replace(self, X=self.X[rows], Y=self.Y[rows])

    def reduced(self) -> "Task":
        """Wide rows in coordinates of their own span, which every subset of them shares."""
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
        """Targets as the engine wants them: (K, N, 1) one-vs-rest, (1, N, K) shared."""
        if self.strategy == "shared":
            return np.ascontiguousarray(self.Y[None])
        return np.ascontiguousarray(self.Y.T[:, :, None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Draws of one engine.

    draws
        By name, (chain, draw, ...), components aligned.
    posterior
        For prediction.
    sample_stats, fit
        What the engine says of itself.
    interrupted
        Whether the user stopped it.
    """

    draws: Mapping[str, FloatArray]
    posterior: DrawPosterior
    sample_stats: Mapping[str, FloatArray]
    fit: Mapping[str, FloatArray]
    interrupted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A fit.

    posterior
        For new rows.
    generative
        Its model of the features, which reconstructs and completes rows; None where there is none.
    elbo, terms
        Bound (or objective) after each iteration, and the last one by name.
    converged, interrupted
        As for :class:`bsdr_models.inference.coordinate_ascent.FitResult`.
    restarts
        Final bound of every restart.
    state
        All factors of q, for the paper's variant by mean field.
    sampled
        Draws, for a sampler.
    """

    posterior: Posterior
    factor_model: FactorModel | None
    elbo: FloatArray
    terms: Mapping[str, FloatArray]
    converged: bool
    interrupted: bool = False
    restarts: tuple[float, ...] = ()
    state: State | None = None
    sampled: Sampled | None = None
