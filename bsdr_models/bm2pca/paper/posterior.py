"""Latent coordinates and class scores of new samples, given their features alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.factor_model import FactorModel, concatenate_problems
from bsdr_models.bm2pca.paper.mean_field import State, score_moments, with_ones
from bsdr_models.bm2pca.views import Loadings, Offset, ViewState
from bsdr_models.inference.datatree import MAX_NUMBERS
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.row_space import Rows

# Most draws used for prediction.
N_PREDICT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginPosterior:
    """Posterior of the paper's model by mean field, P problems."""

    factor_model: FactorModel  # Means and covariances of t, W and tau over the features
    state: State  # All factors of q

    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R P)."""
        return concatenate_problems(self.factor_model.embed(X)[0])

    def embed(self, X: Rows) -> LatentCoordinates:
        """Latent coordinates of all problems, concatenated: R P components."""
        mean, cov = self.factor_model.embed(X)
        p, m, r = mean.shape
        out = np.zeros((m, p, r, p, r))
        for index in range(p):
            out[:, index, :, index] = cov[index]
        return LatentCoordinates(mean=concatenate_problems(mean), cov=out.reshape(m, p * r, p * r))

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean of f at latent coordinates (G, R P): (G, P K)."""
        mean = np.stack(np.split(latent, len(self.state.weights.mean), axis=1))
        return concatenate_problems(with_ones(mean) @ self.state.weights.mean)

    def score_means(self, X: Rows) -> FloatArray:
        """Mean of f under q, (M, P K)."""
        return self.scores_at(self.latent(X))

    def score_moments(self, X: Rows) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of f under q, each (M, P K)."""
        mean, variance = score_moments(*self.factor_model.embed(X), self.state.weights)
        return concatenate_problems(mean), concatenate_problems(variance)

    @property
    def projection(self) -> FloatArray:
        """Linear map from complete scaled samples to latent coordinates, (D, R P)."""
        return concatenate_problems(self.factor_model.projection())

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R P, P K), block-diagonal."""
        return block_diag(*self.state.weights.mean[:, 1:])

    @property
    def coefficients(self) -> FloatArray:
        """Effects of scaled features on mean class scores, (P, K)."""
        return self.projection @ self.mean_weights

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws of coef and intercept from q by name, and of all variables of one problem.

        Latent coordinates are drawn unless they are too large.
        """
        factor_model = self.factor_model
        weights = self.state.weights
        states = factor_model.states
        single = factor_model.shape[0] == 1 and len(states) == 1
        # (P, J, R, R) of each view, and (P, K, 1 + R, 1 + R)
        halves = [cholesky(q.loadings.cov, name="loading covariance") for q in states]
        weight_half = cholesky(weights.cov, name="weight covariance")
        draws = []
        for _ in range(n_draws):
            noise = rng.standard_normal(weight_half.shape[:-1])
            eta = weights.mean + np.einsum("pkqs,pks->pqk", weight_half, noise)
            drawn = tuple(_draw_view(*pair, rng) for pair in zip(states, halves, strict=True))
            coef, intercept = replace(factor_model, states=drawn).coefficients(eta)
            values = {"coef": coef, "intercept": intercept}
            if single:
                values |= {
                    "weights": eta[0, 1:],
                    "bias": eta[0, 0],
                    "loadings": drawn[0].loadings.mean[0],
                    "offset": drawn[0].offset.mean[0],
                    "noise_precision": drawn[0].noise_precision.mean[0],
                }
            draws.append(values)
        stacked = {name: np.stack([values[name] for values in draws]) for name in draws[0]}
        if single:
            for name, gamma in (
                ("loading_precision", states[0].loading_precision),
                ("weight_precision", self.state.weight_precision),
            ):
                stacked[name] = rng.gamma(gamma.shape[0], size=(n_draws, gamma.shape.shape[1]))
                stacked[name] /= gamma.rate[0]
            mean = self.state.latent.mean[0]
            if n_draws * mean.size <= MAX_NUMBERS:
                half = cholesky(self.state.latent.cov[0], name="latent covariance")  # (N, R, R)
                noise = rng.standard_normal((n_draws, *mean.shape))
                stacked["latent"] = mean + np.einsum("nrs,dns->dnr", half, noise)
        return stacked


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawPosterior:
    """Aligned draws of one subspace, chains stacked."""

    loadings: FloatArray  # (S, D, R)
    offset: FloatArray  # (S, D)
    noise_precision: FloatArray  # (S,)
    weights: FloatArray  # [bias; weights], (S, 1 + R, K)

    @classmethod
    def of(cls, draws: Mapping[str, FloatArray]) -> "DrawPosterior":
        """Posterior of at most `N_PREDICT` of the draws (chain, draw, ...) by name."""
        index = evenly_spaced(draws["bias"][..., 0].size, N_PREDICT)
        names = ("loadings", "offset", "noise_precision", "weights", "bias")
        chosen = {name: draws[name].reshape(-1, *draws[name].shape[2:])[index] for name in names}
        weights = np.concatenate([chosen.pop("bias")[:, None], chosen["weights"]], axis=1)
        return cls(**chosen | {"weights": weights})

    def _draw_model(self) -> FactorModel:
        """The draws as S problems without posterior variance."""
        return FactorModel(states=(_known_view(self.loadings, self.offset, self.noise_precision),))

    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        return self._draw_model().embed(X)[0].mean(axis=0)

    def embed(self, X: Rows) -> LatentCoordinates:
        """Mean and total covariance, within and between draws."""
        mean, cov = self._draw_model().embed(X)
        centred = mean - mean.mean(axis=0)
        between = np.einsum("smr,smq->mrq", centred, centred) / len(mean)
        return LatentCoordinates(mean=mean.mean(axis=0), cov=between + cov.mean(axis=0))

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean class scores at latent coordinates (G, R): (G, K)."""
        return np.asarray(with_ones(latent) @ self.weights.mean(axis=0))

    def score_means(self, X: Rows) -> FloatArray:
        """Mean class scores, (M, K)."""
        latent = self._draw_model().embed(X)[0]
        return np.asarray((with_ones(latent) @ self.weights).mean(axis=0))

    @property
    def projection(self) -> FloatArray:
        """Mean of the linear map from features to latent coordinates, (D, R)."""
        return self._draw_model().projection().mean(axis=0)

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""
        return self.weights[:, 1:].mean(axis=0)

    @property
    def coefficients(self) -> FloatArray:
        """Effects of scaled features on mean class scores, (P, K)."""
        return (self._draw_model().projection() @ self.weights[:, 1:]).mean(axis=0)

    @property
    def factor_model(self) -> FactorModel:
        """Factor model at the mean of the draws."""
        mean = self.loadings.mean(axis=0)
        centred = self.loadings - mean
        state = _known_view(
            mean[None], self.offset.mean(axis=0)[None], np.array([self.noise_precision.mean()])
        )
        cov = np.einsum("sdr,sdq->drq", centred, centred)[None] / len(centred)
        loadings = replace(state.loadings, cov=cov, copies=1)
        return FactorModel(states=(replace(state, loadings=loadings),))


def _draw_view(state: ViewState, half: FloatArray, rng: np.random.Generator) -> ViewState:
    """A draw from q of a view, given Cholesky factors of the covariances of its loadings."""
    noise = rng.standard_normal(state.loadings.mean.shape)[..., None]
    loadings = state.loadings.mean + (half @ noise)[..., 0]
    offset = state.offset
    spread = rng.standard_normal(offset.mean.shape) * np.sqrt(offset.variance)
    gamma = state.noise_precision
    return _known_view(loadings, offset.mean + spread, rng.gamma(gamma.shape) / gamma.rate)


def _known_view(loadings: FloatArray, offset: FloatArray, noise_precision: FloatArray) -> ViewState:
    """A view with known W (P, D, R), t (P, D) and tau (P,)."""
    p, d, r = loadings.shape
    return ViewState(
        loadings=Loadings(
            mean=loadings,
            cov=np.zeros((p, 1, r, r)),
            log_det=np.full((p, 1), -np.inf),
            copies=d,
        ),
        loading_precision=Gamma(shape=np.ones((p, r)), rate=np.ones((p, r))),
        offset=Offset(mean=offset, variance=np.zeros((p, 1))),
        noise_precision=Gamma(shape=noise_precision, rate=np.ones(p)),
    )
