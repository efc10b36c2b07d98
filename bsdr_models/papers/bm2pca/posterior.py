"""Latent coordinates and class scores of new samples, given their features alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from bsdr_models.bm2pca.factor_model import FactorModel
from bsdr_models.bm2pca.posterior import PLAIN, Predictor, Probabilities
from bsdr_models.bm2pca.views import ViewState, known_state
from bsdr_models.inference.datatree import MAX_NUMBERS
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.papers.bm2pca.mean_field import State, score_moments, with_ones

# Most draws used for prediction.
N_PREDICT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginPosterior(Predictor):
    """Posterior of the paper's model by mean field, of one problem or one for each outcome.

    The P problems have R components each, side by side, and K outcomes in all.
    """

    factor_models: tuple[FactorModel, ...]  # q of t, W and tau over the features, by problem
    states: tuple[State, ...]  # All factors of q
    probabilities: Probabilities = PLAIN

    def _embed(self, X: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Mean (M, R) and covariance (M or 1, R, R) of the latent coordinates of each problem."""
        parts = self.factor_models[0].view(X)
        return [model.embed(parts) for model in self.factor_models]

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates, (M, P R)."""
        return np.column_stack([mean for mean, _ in self._embed(X)])

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Latent coordinates of all problems, which are independent."""
        mean, cov = zip(*self._embed(X), strict=True)
        r = mean[0].shape[1]
        size = r * len(mean)
        both = np.zeros((len(X), size, size))
        for start, own in zip(range(0, size, r), cov, strict=True):
            both[:, start : start + r, start : start + r] = own
        return LatentCoordinates(mean=np.column_stack(mean), cov=both)

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of scaled features on mean class scores (D, K), and intercepts (K,)."""
        pairs = zip(self.factor_models, self.states, strict=True)
        coef, intercept = zip(*(m.effects(q.weights.mean) for m, q in pairs), strict=True)
        return np.column_stack(coef), np.concatenate(intercept)

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean of f at latent coordinates (G, P R): (G, K)."""
        blocks = zip(np.split(latent, len(self.states), axis=1), self.states, strict=True)
        return np.column_stack([with_ones(own) @ state.weights.mean for own, state in blocks])

    def score_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f under q, each (M, K)."""
        pairs = zip(self._embed(X), self.states, strict=True)
        mean, variance = zip(*(score_moments(*own, q.weights) for own, q in pairs), strict=True)
        return np.column_stack(mean), np.column_stack(variance)

    @property
    def projection(self) -> FloatArray:
        """Linear map from complete scaled samples to latent coordinates, (D, P R)."""
        return np.column_stack([model.projection() for model in self.factor_models])

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (P R, K), block-diagonal."""
        return block_diag(*(state.weights.mean[1:] for state in self.states))

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws (n_draws, ...) of coef and intercept; of all variables of one problem and view."""
        parts = [
            _draw(model, state, n_draws, rng)
            for model, state in zip(self.factor_models, self.states, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        names = ("coef", "intercept")
        return {name: np.concatenate([own[name] for own in parts], axis=-1) for name in names}


def _draw(
    model: FactorModel, state: State, n_draws: int, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws of one problem from q by name, (n_draws, ...)."""
    weights = state.weights
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
            ("weight_precision", state.weight_precision),
        ):
            stacked[name] = rng.gamma(gamma.shape, size=(n_draws, gamma.shape.size)) / gamma.rate
        latent = state.latent
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior(Predictor):
    """Aligned draws of one subspace, chains stacked."""

    loadings: FloatArray  # (S, D, R)
    offset: FloatArray  # (S, D)
    noise_precision: FloatArray  # (S,)
    weights: FloatArray  # [bias; weights], (S, 1 + R, K)
    probabilities: Probabilities = PLAIN

    @classmethod
    def of(cls, draws: Mapping[str, FloatArray]) -> "DrawPosterior":
        """Posterior of at most `N_PREDICT` of the draws (chain, draw, ...) by name."""
        index = evenly_spaced(draws["bias"][..., 0].size, N_PREDICT)
        names = ("loadings", "offset", "noise_precision", "weights", "bias")
        chosen = {name: draws[name].reshape(-1, *draws[name].shape[2:])[index] for name in names}
        weights = np.concatenate([chosen.pop("bias")[:, None], chosen["weights"]], axis=1)
        return cls(**chosen | {"weights": weights})

    @property
    def factor_models(self) -> tuple[FactorModel, ...]:
        """Each draw, without posterior variance."""
        draws = zip(self.loadings, self.offset, self.noise_precision, strict=True)
        return tuple(FactorModel(states=(known_state(W, t, float(tau)),)) for W, t, tau in draws)

    def _embed(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean (S, M, R) and covariance (S, M or 1, R, R) of the latent coordinates by draw."""
        models = self.factor_models
        parts = models[0].view(X)
        mean, cov = zip(*(model.embed(parts) for model in models), strict=True)
        return np.stack(mean), np.stack(cov)

    def _projections(self) -> FloatArray:
        """Linear map from features to latent coordinates of each draw, (S, D, R)."""
        return np.stack([model.projection() for model in self.factor_models])

    def latent(self, X: FloatArray) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        return self._embed(X)[0].mean(axis=0)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Mean and total covariance, within and between draws."""
        mean, cov = self._embed(X)
        centred = mean - mean.mean(axis=0)
        between = np.einsum("smr,smq->mrq", centred, centred) / len(mean)
        return LatentCoordinates(mean=mean.mean(axis=0), cov=between + cov.mean(axis=0))

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean class scores at latent coordinates (G, R): (G, K)."""
        return with_ones(latent) @ self.weights.mean(axis=0)

    def scores(self, X: FloatArray) -> FloatArray:
        """Mean class scores, (M, K)."""
        scores = self._embed(X)[0] @ self.weights[:, 1:] + self.weights[:, :1]
        return np.asarray(scores.mean(axis=0))

    @property
    def projection(self) -> FloatArray:
        """Mean of the linear map from features to latent coordinates, (D, R)."""
        return self._projections().mean(axis=0)

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""
        return self.weights[:, 1:].mean(axis=0)

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of scaled features on mean class scores (D, K), and intercepts (K,)."""
        pairs = zip(self.factor_models, self.weights, strict=True)
        coef, intercept = zip(*(model.effects(own) for model, own in pairs), strict=True)
        return np.mean(coef, axis=0), np.mean(intercept, axis=0)
