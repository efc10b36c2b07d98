"""Latent coordinates and class probabilities of new samples, in the subspace of a fit."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import dia_array, eye_array, issparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from scipy.special import log_expit, log_softmax, logsumexp

from bsdr_models.bm2pca.subspace import Settings, SubspaceState, Whitened
from bsdr_models.estimators.calibration import Calibration, Link
from bsdr_models.learned_metric.metric import Metric
from bsdr_models.numerics.arrays import FloatArray, Rows
from bsdr_models.numerics.latent import LatentCoordinates
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.scaling import as_dense, squared_distance, weighted_mean

# Probability that a class is random. A few wrong samples far from the boundary would otherwise
# decide the temperature.
LAPSE = 0.01
# Most numbers of a dense copy of sparse samples.
MAX_DENSE = 2**25
# Numbers per dense block of sparse samples.
BLOCK = 2**22
# Variance of the estimates of class scores that counts as much as their scatter within classes.
# With half or twice as much the log loss of new samples changes by less than .001.
SCATTER = 0.05
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseMetric:
    """The Euclidean metric of sparse samples too many to be made dense: g (x - t), an operator."""

    mean: FloatArray  # t, (D,)
    gain: float  # g

    @classmethod
    def learn(cls, X: Rows, weights: FloatArray | None = None) -> "SparseMetric":
        """From labelled samples (N, D), and weights (N,), by default ones."""
        weights = np.ones(X.shape[0]) if weights is None else weights
        mean = weighted_mean(X, weights)
        length = float(np.average(squared_distance(X, mean), weights=weights))
        return cls(mean=mean, gain=1.0 / np.sqrt(length) if length > 0.0 else 1.0)

    @property
    def effects(self) -> dia_array:
        """Effects of features in whitened ones, g I, (D, D)."""
        return self.gain * eye_array(len(self.mean))

    @property
    def shares(self) -> dict[str, float]:
        """Weight of the only candidate."""
        return {"as they are": 1.0}

    def whiten(self, X: Rows) -> LinearOperator:
        """Whitened features of samples (M, D), as an operator."""
        ones = aslinearoperator(np.ones((X.shape[0], 1)))
        centred = aslinearoperator(X) - ones @ aslinearoperator(self.mean[None])
        return self.gain * centred


def is_large(X: Rows) -> bool:
    """Whether samples (N, D) are sparse and too many to be made dense."""
    return issparse(X) and X.shape[0] * X.shape[1] > MAX_DENSE


def whiten(metric: Metric | SparseMetric, X: Rows) -> Whitened:
    """Whitened features of samples, (M, B), without centring a sparse X."""
    if issparse(X) and isinstance(metric, Metric):
        return X @ metric.effects - metric.mean @ metric.effects
    return metric.whiten(X)


def outside(metric: Metric | SparseMetric, X: Rows, A: Whitened) -> FloatArray:
    """Squared length of samples (M, P) orthogonal to the axes, (M,), given whitened ones (M, B)."""
    if isinstance(metric, SparseMetric):
        return np.zeros(X.shape[0])
    if not issparse(X):
        return metric.outside_sd(X, A) ** 2
    step = max(1, BLOCK // X.shape[1])
    blocks = (X[start : start + step] for start in range(0, X.shape[0], step))
    return np.concatenate([metric.outside_sd(as_dense(own)) for own in blocks]) ** 2


def whiten_with_scale(
    metric: Metric | SparseMetric, known: tuple[FloatArray, float] | None, X: Rows
) -> tuple[Whitened, FloatArray]:
    """Whitened samples, and what their scores are divided by, (M, 1): more, the less is known."""
    A = whiten(metric, X)
    if known is None:
        return A, np.ones((A.shape[0], 1))
    root, typical = known
    variance = np.sum((A @ root) ** 2, axis=1) + outside(metric, X, A)
    return A, np.sqrt((SCATTER + variance) / (SCATTER + typical))[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BM2PCAPosterior:
    """A subspace of the whitened features, and classifiers in it."""

    metric: Metric | SparseMetric
    state: SubspaceState  # Q and H
    weight_cov: FloatArray  # Covariance of each column of H given Q, (K, 1 + R, 1 + R)
    # Covariance of each column of Q given H and the other columns, (R, B, B) over the B axes of the
    # metric; None with too many axes.
    projection_cov: FloatArray | None
    known: tuple[FloatArray, float] | None  # root of the variance of scores, typical variance
    settings: Settings
    probabilities: Probabilities = PLAIN

    def latent(self, X: Rows) -> FloatArray:
        """Mean latent coordinates, (M, R)."""
        return self.state.latent(whiten(self.metric, X))

    def embed(self, X: Rows) -> LatentCoordinates:
        """Latent coordinates; their covariance neglects correlations of Q's columns and H."""
        A = whiten(self.metric, X)
        mean = self.state.latent(A)
        variance = np.full(mean.shape, self.settings.latent_variance)
        if self.projection_cov is not None:
            variance += np.einsum("mr,krs,ms->mk", A, self.projection_cov, A, optimize=True)
        variance += outside(self.metric, X, A)[:, None] / self.settings.projection_precision
        return LatentCoordinates(mean=mean, cov=variance[:, :, None] * np.eye(mean.shape[1]))

    def scores(self, X: Rows) -> FloatArray:
        """Moderated class scores, (M, K)."""
        A, size = whiten_with_scale(self.metric, self.known, X)
        return self.state.scores(A) / size

    def log_probabilities(self, X: Rows) -> FloatArray:
        """Log probabilities of classes, or that each label is one, (M, K)."""
        return self.probabilities(self.scores(X))

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same at latent coordinates (G, R): (G, K)."""
        return self.probabilities(self.state.scores_at(latent))

    @property
    def mean_weights(self) -> FloatArray:
        """Weights of the class scores, (R, K)."""
        return self.state.weights[1:]

    def draw(self, n_draws: int, rng: np.random.Generator) -> dict[str, FloatArray]:
        """Draws of the classifiers, given the subspace, by name."""
        half = cholesky(self.weight_cov, name="weight covariance")
        noise = half @ rng.standard_normal((*half.shape[:2], n_draws))  # (K, 1 + R, S)
        full = self.state.weights + noise.T
        weights = full[:, 1:]
        bias = full[:, 0]
        coef = self.projection @ weights
        Q = self.state.projection
        return {
            "coef": coef,
            "intercept": bias - self.metric.mean @ coef,
            "metric_projection": np.broadcast_to(Q, (n_draws, *Q.shape)),
            "weights": weights,
            "bias": bias,
        }

    @property
    def projection(self) -> FloatArray:
        """Linear map from scaled features to latent coordinates, (P, R)."""
        return np.asarray(self.metric.effects @ self.state.projection)

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Effects of scaled features on class scores (P, K), and intercepts (K,)."""
        coef = self.projection @ self.mean_weights
        return coef, self.state.weights[0] - self.metric.mean @ coef
