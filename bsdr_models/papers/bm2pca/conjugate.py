"""Mean-field fits of BM2PCA, and class scores or outputs of new samples given their features."""

from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.bm2pca.factor_model import FactorModel
from bsdr_models.bm2pca.posterior import PLAIN, Predictor, Probabilities
from bsdr_models.bm2pca.priors import PAPER, BM2PCAPriors
from bsdr_models.bm2pca.views import Loadings, Offset, ViewState, split_views
from bsdr_models.inference.datatree import MAX_NUMBERS
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.papers.bm2pca import mean_field
from bsdr_models.papers.bm2pca.mean_field import FactorState, ViewData, score_moments, with_ones
from bsdr_models.papers.coordinate_ascent import Extrapolation, run_coordinate_ascent

# Gain of a round, in nats, at which mean field has converged.
TOL = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCAProblem:
    """Samples, targets and fixed settings of a fit."""

    X: FloatArray  # (N, P), scaled, NaN for a missing value
    Y: FloatArray  # Signs, (N, K), 0 without a label; or real targets, NaN if missing
    epsilon: float | None = None  # Half width of the epsilon-insensitive interval; None for signs
    # Features of each view; None for one view of all.
    columns: tuple[IntArray | None, ...] = (None,)
    n_components: int  # R
    priors: BM2PCAPriors = PAPER

    def subset(self, index: IntArray) -> "BM2PCAProblem":
        """The same problem for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])


def known_state(loadings: FloatArray, offset: FloatArray, noise_precision: float) -> ViewState:
    """Factors of a complete view with known W (D, R), t (D,) and tau."""
    d, r = loadings.shape
    return ViewState(
        loadings=Loadings(
            mean=loadings,
            cov=np.zeros((1, r, r)),
            log_det=np.full(1, -np.inf),
            copies=d,
        ),
        loading_precision=Gamma(shape=np.ones(r), rate=np.ones(r)),
        offset=Offset(mean=offset, variance=np.zeros(1)),
        noise_precision=Gamma(shape=np.array(noise_precision), rate=np.array(1.0)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginPosterior(Predictor):
    """Posterior by mean field, with R components and K outcomes."""

    factor_model: FactorModel  # q of t, W and tau over the features
    state: FactorState  # All factors of q
    probabilities: Probabilities = PLAIN

    @property
    def factor_models(self) -> tuple[FactorModel, ...]:
        """The one factor model."""
        return (self.factor_model,)

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

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean of f at latent coordinates (G, R): (G, K)."""
        return with_ones(latent) @ self.state.weights.mean

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
        model = self.factor_model
        weights = self.state.weights
        halves = [cholesky(q.loadings.cov, name="loading covariance") for q in model.states]
        weight_half = cholesky(weights.cov, name="weight covariance")  # (K, 1 + R, 1 + R)
        single = len(model.states) == 1
        draws = []
        for _ in range(n_draws):
            noise = rng.standard_normal(weight_half.shape[:-1])
            eta = weights.mean + np.einsum("kqs,ks->qk", weight_half, noise)
            drawn = tuple(_draw_view(*pair, rng) for pair in zip(model.states, halves, strict=True))
            coef, intercept = replace(model, states=drawn).effects(eta)
            values = {"coef": coef, "intercept": intercept}
            if single:
                values |= {
                    "weights": eta[1:],
                    "bias": eta[0],
                    "loadings": drawn[0].loadings.mean,
                    "offset": drawn[0].offset.mean,
                    "noise_precision": drawn[0].noise_precision.mean,
                }
            draws.append(values)
        stacked = {name: np.stack([values[name] for values in draws]) for name in draws[0]}
        if single:
            for name, gamma in (
                ("loading_precision", model.states[0].loading_precision),
                ("weight_precision", self.state.weight_precision),
            ):
                stacked[name] = rng.gamma(gamma.shape, size=(n_draws, gamma.shape.size))
                stacked[name] /= gamma.rate
            latent = self.state.latent
            if n_draws * latent.mean.size <= MAX_NUMBERS:
                half = cholesky(latent.cov, name="latent covariance")  # (N, R, R)
                noise = rng.standard_normal((n_draws, *latent.mean.shape))
                stacked["latent"] = latent.mean + np.einsum("nrs,dns->dnr", half, noise)
        return stacked


def _draw_view(state: ViewState, half: FloatArray, rng: np.random.Generator) -> ViewState:
    """A draw from q of a view, given Cholesky factors of the covariances of its loadings."""
    noise = rng.standard_normal(state.loadings.mean.shape)[..., None]
    loadings = state.loadings.mean + (half @ noise)[..., 0]
    offset = state.offset
    spread = rng.standard_normal(offset.mean.shape) * np.sqrt(offset.variance)
    gamma = state.noise_precision
    tau = float(rng.gamma(gamma.shape) / gamma.rate)
    return known_state(loadings, offset.mean + spread, tau)


def _data_of(problem: BM2PCAProblem, cost: float) -> ViewData:
    """Views and margins of a problem."""
    views = split_views(problem.X, problem.columns)
    return mean_field.make_data(views, problem.Y, cost, problem.epsilon)


def _posterior_of(state: FactorState, data: ViewData, problem: BM2PCAProblem) -> MarginPosterior:
    """Posterior for prediction."""
    model = FactorModel.of(state.views, data.views, problem.columns)
    return MarginPosterior(factor_model=model, state=state)


def run_sweeps(
    problem: BM2PCAProblem, cost: float, n_sweeps: int, rng: np.random.Generator
) -> MarginPosterior:
    """Posterior after plain sweeps."""
    data = _data_of(problem, cost)
    state = mean_field.init(data, problem.priors, n_components=problem.n_components, rng=rng)
    for _ in range(n_sweeps):
        state = mean_field.sweep(state, data, problem.priors)
    return _posterior_of(state, data, problem)


def fit_mean_field(
    problem: BM2PCAProblem,
    *,
    cost: float,
    rng: np.random.Generator,
    max_iter: int,
    progressbar: bool = False,
) -> Result[MarginPosterior]:
    """Maximise the bound.

    Plain sweeps converge slowly along narrow ridges of the bound, so of three sweeps one is
    extrapolated.
    """
    data = _data_of(problem, cost)
    result = run_coordinate_ascent(
        lambda stream, _: mean_field.init(
            data, problem.priors, n_components=problem.n_components, rng=stream
        ),
        lambda state: mean_field.step(state, data, problem.priors),
        rng=rng,
        max_iter=max_iter,
        tol=TOL,
        extrapolation=Extrapolation(
            pack=mean_field.pack,
            unpack=lambda vector, state: mean_field.unpack(vector, state, data),
        ),
        title="BM2PCA, mean field",
        progressbar=progressbar,
    )
    return result.with_posterior(_posterior_of(result.posterior, data, problem))
