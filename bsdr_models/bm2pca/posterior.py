"""Latent coordinates and class probabilities of new samples, in the subspace of a fit."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse
from scipy.special import log_expit, log_softmax, logsumexp

from bsdr_models.bm2pca.factor_model import FactorModel
from bsdr_models.bm2pca.sparse_metric import SparseMetric, Whitened
from bsdr_models.bm2pca.subspace import Settings, SubspaceState
from bsdr_models.estimators.calibration import Calibration, Link
from bsdr_models.learned_metric.metric import Metric
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.relevance import LatentCoordinates
from bsdr_models.numerics.row_space import Rows, as_dense

# Probability that a class is random. A few wrong samples far from the boundary would otherwise
# decide the temperature.
LAPSE = 0.01
# Numbers per dense block of sparse samples.
BLOCK = 2**22
# Draws of class scores that missing values leave uncertain, in pairs of opposite sign.
N_SCORES = 64


def link_of(exclusive: bool, lapse: float = LAPSE) -> Link:
    """Log probabilities of classes (M, K), or of the values of each label (M, T, 2).

    From class scores at a temperature; two classes, and each label, have one score.
    """

    def link(scores: FloatArray, temperature: float) -> FloatArray:
        f = scores / temperature
        if exclusive and f.shape[-1] > 1:
            log_p = log_softmax(f, axis=-1)
        else:
            log_p = np.stack([log_expit(-f), log_expit(f)], axis=-1)
            log_p = log_p[..., 0, :] if exclusive else log_p
        if lapse == 0.0:
            return np.asarray(log_p)
        return np.asarray(np.log((1.0 - lapse) * np.exp(log_p) + lapse / log_p.shape[-1]))

    return link


@dataclass(frozen=True, slots=True, kw_only=True)
class Probabilities:
    """Class probabilities by the class scores of a posterior."""

    calibration: Calibration
    exclusive: bool  # whether a sample has one class
    lapse: float = LAPSE

    def __call__(self, scores: FloatArray, cov: FloatArray | None = None) -> FloatArray:
        """Log probabilities of classes, or that each label is one, (M, K), from scores (M, K).

        Scores of a covariance (M, K, K) are integrated out.
        """
        link = link_of(self.exclusive, self.lapse)
        if cov is None:
            log_p = self.calibration.apply(scores, link)
        else:
            value, vector = np.linalg.eigh(cov)
            half = vector * np.sqrt(np.maximum(value, 0.0))[:, None]
            normal = np.random.default_rng(0).standard_normal((N_SCORES // 2, cov.shape[1]))
            normal = np.concatenate([normal, -normal])
            drawn = scores + np.einsum("mkj,sj->smk", half, normal)
            log_p = self.calibration.apply(drawn, link)
            log_p = logsumexp(log_p, axis=0) - np.log(N_SCORES)
        return log_p if self.exclusive else log_p[..., 1]


PLAIN = Probabilities(calibration=Calibration(), exclusive=True, lapse=0.0)
"""Those of class scores as they are."""


class Predictor(ABC):
    """What predicts scaled samples X (M, P) after a fit by any engine of BM2PCA.

    ``factor_models`` are those of the features, each with its own components, if a fit has any.
    """

    __slots__ = ()
    probabilities: Probabilities

    @property
    @abstractmethod
    def factor_models(self) -> tuple[FactorModel, ...]:
        """Models of the features."""

    @property
    @abstractmethod
    def projection(self) -> FloatArray:
        """Linear map from complete scaled samples to latent coordinates, (P, R)."""

    @property
    @abstractmethod
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""

    @abstractmethod
    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R)."""

    @abstractmethod
    def embed(self, X: Rows) -> LatentCoordinates:
        """Mean and covariance of the latent coordinates."""

    @abstractmethod
    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of scaled features on mean class scores (P, K), and intercepts (K,)."""

    @abstractmethod
    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean class scores, or predictions, at latent coordinates (G, R): (G, K)."""

    def scores(self, X: Rows) -> FloatArray:
        """Mean class scores, or predictions, (M, K)."""
        return self.scores_at(self.latent(X))

    def log_probabilities(self, X: Rows) -> FloatArray:
        """Log probabilities of classes, or that each label is one, (M, K)."""
        return self.probabilities(self.scores(X))

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R): (G, K)."""
        return self.probabilities(self.scores_at(latent))


def score_variance(
    state: SubspaceState, A: Whitened, covariance: FloatArray, settings: Settings
) -> FloatArray:
    r"""Variance of class scores, (M, K), under q(z) and q(H) given Q.

    .. math::
        \operatorname{var} f_c = \sigma^2 |\eta_c|^2 + \tilde z^\top S_c \tilde z
            + \sigma^2 \operatorname{tr} S_{c,\eta\eta}
    """
    rows = np.column_stack([np.ones(A.shape[0]), state.latent(A)])
    spread = np.sum(state.weights[1:] ** 2, axis=0) + np.einsum("cpp->c", covariance[:, 1:, 1:])
    quadratic = np.einsum("np,cpq,nq->nc", rows, covariance, rows, optimize=True)
    return quadratic + settings.latent_variance * spread


def whiten(metric: Metric | SparseMetric, X: Rows) -> Whitened:
    """Whitened features of samples, (M, B), without centring a sparse X."""
    if issparse(X) and isinstance(metric, Metric):
        return X @ metric.effects - metric.mean @ metric.effects
    return metric.whiten(X)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(Predictor):
    """One subspace of the whitened features, or one classifier for each outcome.

    Without a projection in the state, one-vs-rest, class scores are the latent coordinates.
    """

    metric: Metric | SparseMetric
    state: SubspaceState  # Q and H
    weight_cov: FloatArray  # Covariance of each column of H given Q, (K, 1 + R, 1 + R)
    # Covariance of each column of Q given H and the other columns, (R, B, B) over the B axes of the
    # metric; None with too many axes.
    projection_cov: FloatArray | None
    settings: Settings
    probabilities: Probabilities = PLAIN

    @property
    def factor_models(self) -> tuple[FactorModel, ...]:
        """None: features have a metric."""
        return ()

    @property
    def one_vs_rest(self) -> bool:
        """Whether each outcome has a classifier of its own."""
        return self.state.projection is None

    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        A = whiten(self.metric, X)
        return self.state.scores(A) if self.one_vs_rest else self.state.latent(A)

    def embed(self, X: Rows) -> LatentCoordinates:
        """Latent coordinates; their covariance neglects correlations of Q's columns and H."""
        A = whiten(self.metric, X)
        settings = self.settings
        if self.one_vs_rest:
            mean = self.state.scores(A)
            precision = settings.weight_precision
            variance = score_variance(self.state, A, self.weight_cov, settings)
        else:
            mean = self.state.latent(A)
            precision = settings.projection_precision
            variance = np.full(mean.shape, settings.latent_variance)
            if self.projection_cov is not None:
                variance += np.einsum("mr,krs,ms->mk", A, self.projection_cov, A, optimize=True)
        variance = variance + self._outside(X)[:, None] / precision
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def _outside(self, X: Rows) -> FloatArray:
        """Squared length of whitened samples orthogonal to the axes, (M,)."""
        if isinstance(self.metric, SparseMetric):
            return np.zeros(X.shape[0])
        step = max(1, BLOCK // X.shape[1]) if issparse(X) else X.shape[0]
        blocks = (X[start : start + step] for start in range(0, X.shape[0], step))
        return np.concatenate([self.metric.outside_sd(as_dense(own)) for own in blocks]) ** 2

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """Mean class scores at latent coordinates (G, R): (G, K)."""
        return latent if self.one_vs_rest else self.state.scores_at(latent)

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""
        weights = self.state.weights
        return np.eye(weights.shape[1]) if self.one_vs_rest else weights[1:]

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws of the classifiers, given the subspace, by name."""
        half = cholesky(self.weight_cov, name="weight covariance")
        noise = half @ rng.standard_normal((*half.shape[:2], n_draws))  # (K, 1 + R, S)
        full = self.state.weights + noise.T
        weights = full[:, 1:]
        bias = full[:, 0]
        Q = self.state.projection
        if Q is None:
            coef = self.metric.effects @ weights
            free = {"metric_weights": weights, "bias": bias}
        else:
            coef = self.projection @ weights
            given = np.broadcast_to(Q, (n_draws, *Q.shape))
            free = {"metric_projection": given, "weights": weights, "bias": bias}
        return {"coef": coef, "intercept": bias - self.metric.mean @ coef, **free}

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to latent coordinates, (P, R)."""
        Q = self.state.projection
        return np.asarray(self.metric.effects @ (self.state.weights[1:] if Q is None else Q))

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of scaled features on class scores (P, K), and intercepts (K,)."""
        coef = self.projection @ self.mean_weights
        return coef, self.state.weights[0] - self.metric.mean @ coef
