"""Mean-field fits of BM2PCA, and class scores or outputs of new samples given their features."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bsdr_models.bm2pca.factor_model import FactorModel
from bsdr_models.bm2pca.priors import PAPER, BM2PCAPriors
from bsdr_models.inference.datatree import MAX_NUMBERS
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.latent import LatentCoordinates
from bsdr_models.papers.bm2pca import mean_field
from bsdr_models.papers.bm2pca.mean_field import FactorState, ViewData, score_moments
from bsdr_models.papers.coordinate_ascent import maximise


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCAProblem:
    """Samples, targets and fixed settings of a fit."""

    X: FloatArray  # (N, P), scaled, NaN for a missing value
    Y: FloatArray  # Signs, (N, K), 0 without a label; or real targets, NaN if missing
    cost: float  # C
    epsilon: float | None = None  # Half width of the epsilon-insensitive interval; None for signs
    # Features of each view; None for one view of all.
    columns: tuple[IntArray | None, ...] = (None,)
    n_components: int  # R
    priors: BM2PCAPriors = PAPER

    def subset(self, index: IntArray) -> "BM2PCAProblem":
        """The same problem for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])

    def start(self) -> tuple[ViewData, Callable[..., FactorState]]:
        """Data of the steps, and a function of ``rng`` to an initial state."""
        data = mean_field.make_data(self.X, self.Y, self.cost, self.epsilon, columns=self.columns)
        return data, partial(mean_field.init, data, self.priors, n_components=self.n_components)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginPosterior:
    """Posterior by mean field, with R components and K outcomes."""

    factor_model: FactorModel  # q of t, W and tau over the features
    state: FactorState  # All factors of q

    @classmethod
    def of(cls, state: FactorState, data: ViewData) -> "MarginPosterior":
        """That of a state."""
        model = FactorModel.of(state.views, data.views, data.columns)
        return cls(factor_model=model, state=state)

    def _embed(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (M, R) and covariance (M or 1, R, R) of the latent coordinates."""
        return self.factor_model.embed(self.factor_model.view(X))

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        return self._embed(X)[0]

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and covariance of the latent coordinates."""
        mean, cov = self._embed(X)
        return LatentCoordinates(mean=mean, cov=np.broadcast_to(cov, (*mean.shape, mean.shape[1])))

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of scaled features on mean class scores (D, K), and intercepts (K,)."""
        return self.factor_model.effects(self.state.weights.mean)

    def score_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f under q, each (M, K)."""
        return score_moments(*self._embed(X), self.state.weights)

    @property
    def projection(self) -> FloatArray:
        """Linear map from complete scaled samples to latent coordinates, (D, R)."""
        return self.factor_model.projection()

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""
        return self.state.weights.mean[1:]

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws from q by name, (n_draws, ...): of coef and intercept, and of all of one view."""
        latent = n_draws * self.state.latent.mean.size <= MAX_NUMBERS
        return mean_field.draw_from(self.state, self.factor_model, n_draws, rng, latent=latent)


def run_sweeps(problem: BM2PCAProblem, n_sweeps: int, rng: np.random.Generator) -> MarginPosterior:
    """Posterior after plain sweeps."""
    data, init = problem.start()
    state = init(rng=rng)
    for _ in range(n_sweeps):
        state = mean_field.sweep(state, data, problem.priors)
    return MarginPosterior.of(state, data)


def fit_mean_field(problem: BM2PCAProblem, **options: Any) -> Result[MarginPosterior]:
    """Maximise the bound, with the options of `maximise`."""
    data, init = problem.start()
    result: Result[Any] = maximise(
        init,
        partial(mean_field.step, data=data, priors=problem.priors),
        extrapolation=mean_field.extrapolation(data),
        **options,
    )
    return replace(result, posterior=MarginPosterior.of(result.posterior, data))
