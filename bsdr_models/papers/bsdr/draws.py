r"""Latent coordinates and predictions of the paper's model, by draws of its posterior.

Predictions are those of Appendix B of the paper: each draw of the parameters draws the latent
coordinates of a new sample by Eq. (1), and

.. math::
    p(y = c \mid x) = \frac{1}{S} \sum_s
        E_u \prod_{j \ne c} \Phi(u + \eta_c^{(s)} - \eta_j^{(s)})

is a mean over S draws. By mean field the draws of weights and biases are those of q, under which
latent coordinates are independent normals given the features: of thousands of features a few
hundred draws would not show the mean. (What Section II-B3 prints as scales of the utilities are
variances.) Latent coordinates are quasi-random.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import xarray as xr
from scipy.special import logsumexp
from sklearn.utils import gen_batches

from bsdr_models.bsdr.posterior import class_log_probabilities
from bsdr_models.bsdr.problem import label_log_likelihood
from bsdr_models.numerics.arrays import FloatArray, Target
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.numerics.latent import LatentCoordinates, spread
from bsdr_models.papers import orthant
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.normal_tail import positive_mean
from bsdr_models.papers.reading import take_draws

# Variables that predictions need.
NAMES = ("projection", "weights", "bias")

# Most draws of a sampler that predictions average over, and draws of latent coordinates at least.
N_DRAWS = 2048
# Latent coordinates of a sample that its log likelihood under one draw averages over: elpd by PSIS
# is then within .001 nats of that by adaptive quadrature on Iris and Wine.
N_NODES = 64
# Steps to the modes around which they are.
N_STEPS = 8
# The paper has no lapses: this probability of one keeps logarithms finite.
LAPSE = 1e-12
# Linear predictors held in memory at once.
_BLOCK = 1 << 21
# Seed of the scrambled quasi-random numbers, the same for all fits.
_SEED = 20130601


@lru_cache(maxsize=8)
def standard_normals(n_draws: int, n_dims: int) -> FloatArray:
    """Quasi-random standard normals, (S, P), whose means are exactly zero."""
    from scipy.stats import qmc  # takes half a second to load

    points = qmc.MultivariateNormalQMC(np.zeros(n_dims), rng=np.random.default_rng(_SEED))
    normal = points.random(1 << (n_draws - 1).bit_length())[:n_draws]
    normal -= normal.mean(axis=0)
    normal.flags.writeable = False
    return normal


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionFactor:
    """q(Q) of a mean-field fit: mean (P, R), E[Phi] and the training samples (N, P)."""

    mean: FloatArray
    precision: FloatArray  # (P, R), (1, R) or (P, 1)
    X: FloatArray

    @classmethod
    def of(cls, tree: xr.DataTree) -> "ProjectionFactor | None":
        """That of a tree; None unless it is of mean field, with its samples."""
        if tree.attrs.get("inference_method") != "mean_field" or "constant_data" not in tree:
            return None
        precision = tree["fit/projection_precision_mean"].to_numpy()
        shared = {"entrywise": (), "columnwise": (0,), "rowwise": (1,)}
        return cls(
            mean=tree["fit/projection_mean"].to_numpy(),
            precision=np.expand_dims(precision, shared[tree.attrs["projection_prior"]]),
            X=tree["constant_data/X"].to_numpy(),
        )

    def project(self, X: FloatArray, latent_scale: float) -> tuple[FloatArray, FloatArray]:
        """Means and standard deviations of latent coordinates of samples (M, P), (M, R) each."""
        v = latent_scale**2
        variance = DenseDesign(self.X).row_variance(X, self.precision, v) + v
        mean = X @ self.mean
        return mean, np.sqrt(np.broadcast_to(variance, mean.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class BSDRDraws:
    """S draws, with stacked chains."""

    projection: FloatArray  # Q, (S, P, R)
    weights: FloatArray  # W, (S, R, K)
    bias: FloatArray  # b, (S, K)
    latent_scale: float  # sigma_z
    target: Target
    lapse: float = LAPSE
    factor: ProjectionFactor | None = None  # of mean field, in place of draws of Q

    @classmethod
    def of(cls, tree: xr.DataTree) -> Self:
        """Those of a tree, of the paper's or of the recommended model."""
        draws = take_draws(tree, NAMES)
        if "group_effect" in tree["posterior"]:
            raise ValueError(
                "the model has group effects: predict_groups(tree, X, groups) knows them"
            )
        return cls(
            **draws,
            target=tree.attrs["target"],
            latent_scale=tree.attrs["latent_scale"],
            lapse=tree.attrs.get("lapse", LAPSE),
            factor=ProjectionFactor.of(tree),
        )

    @property
    def mean_projection(self) -> FloatArray:
        """Posterior mean of Q, (P, R)."""
        return self.projection.mean(axis=0) if self.factor is None else self.factor.mean

    @property
    def mean_weights(self) -> FloatArray:
        """Posterior mean of W, (R, K)."""
        return self.weights.mean(axis=0)

    def embed(self, X: FloatArray) -> LatentCoordinates:
        """Means and covariances of latent coordinates of samples (M, P)."""
        if self.factor is not None:
            mean, sd = self.factor.project(X, self.latent_scale)
            return LatentCoordinates(mean=mean, cov=sd[:, :, None] ** 2 * np.eye(sd.shape[1]))
        mean = X @ self.mean_projection
        cov = np.tile(self.latent_scale**2 * np.eye(mean.shape[1]), (len(X), 1, 1))
        for part in gen_batches(len(X), max(1, _BLOCK // self.projection[:, 0].size)):
            cov[part] += spread(X[part] @ self.projection, mean[part])
        return LatentCoordinates(mean=mean, cov=cov)

    def effects(self) -> tuple[FloatArray, FloatArray]:
        """Posterior means of the effects of features, (P, K), and of the biases, (K,)."""
        if self.factor is None:
            coef = np.mean(self.projection @ self.weights, axis=0)
        else:
            coef = self.factor.mean @ self.mean_weights
        return coef, self.bias.mean(axis=0)

    def log_probabilities(self, X: FloatArray) -> FloatArray:
        """Log probabilities of the classes, or of each label being 1, of (M, P): (M, K)."""
        return self._average(X, given=False)

    def log_probabilities_at(self, latent: FloatArray) -> FloatArray:
        """The same for samples whose projection is known to be ``latent`` (G, R): (G, K)."""
        return self._average(latent, given=True)

    def _average(self, rows: FloatArray, *, given: bool) -> FloatArray:
        """Log of mean probabilities (M, K) of samples (M, P), or at projections ``given`` (M, R).

        Of evenly spaced draws, with as many latent coordinates of each as needed.
        """
        index = evenly_spaced(len(self.bias), N_DRAWS)
        repeats = -(-N_DRAWS // len(index))
        noise = standard_normals(repeats * len(index), self.weights.shape[1])
        weights = np.repeat(self.weights[index], repeats, axis=0)
        bias = np.repeat(self.bias[index], repeats, axis=0)
        projection = self.projection[index]
        out = np.empty((len(rows), bias.shape[1]))
        for part in gen_batches(len(rows), max(1, _BLOCK // max(bias.size, noise.size))):
            sd: FloatArray | float = self.latent_scale
            if given:
                centre = rows[part][None]
            elif self.factor is None:
                centre = np.repeat(rows[part] @ projection, repeats, axis=0)
            else:
                mean, sd = self.factor.project(rows[part], self.latent_scale)
                centre = mean[None]
            eta = (centre + sd * noise[:, None]) @ weights + bias[:, None]
            out[part] = class_log_probabilities(np.swapaxes(eta, 0, 1), self.target, self.lapse)
        return out

    def log_likelihood(self, X: FloatArray, y: np.ndarray) -> FloatArray:
        """Log p(y_n | x_n, draw) of labels, latent coordinates and utilities integrated out.

        Of all samples under all draws, (S, N).
        """
        eta = X @ self.projection @ self.weights + self.bias[:, None]  # (S, N, K)
        loadings = self.latent_scale * self.weights
        centre = self._find_modes(eta, loadings, y)
        nodes = standard_normals(len(eta) * N_NODES, self.weights.shape[1])
        nodes = nodes.reshape(len(eta), N_NODES, -1)
        out = np.empty(eta.shape[:2])
        for s, mean in enumerate(centre):  # (N, R)
            moved = eta[s] + (mean + nodes[s][:, None]) @ loadings[s]  # (N_NODES, N, K)
            each, _ = label_log_likelihood(moved, y, self.target, LAPSE)
            each -= nodes[s] @ mean.T + 0.5 * np.sum(mean**2, axis=1)  # importance weights
            out[s] = logsumexp(each, axis=0) - np.log(N_NODES)
        return out

    def _find_modes(self, eta: FloatArray, loadings: FloatArray, y: np.ndarray) -> FloatArray:
        """Centres (S, N, R) of nodes, near the modes of label probability times normal density.

        Of standard normals that the loadings (S, R, K) add to linear predictors (S, N, K). A
        gradient step by the largest curvature that the log density may have never lowers it.
        """
        centre = np.zeros((*eta.shape[:2], loadings.shape[1]))
        step = 1.0 / (1.0 + np.linalg.norm(loadings, ord=2, axis=(1, 2)) ** 2)
        for _ in range(N_STEPS):
            slope = self._slope(eta + centre @ loadings, y)
            centre += step[:, None, None] * (slope @ loadings.mT - centre)
        return centre

    def _slope(self, eta: FloatArray, y: np.ndarray) -> FloatArray:
        """Gradient (S, N, K) of the log probability of labels, exact for improbable ones too."""
        if self.target == "multilabel":
            sign = np.where(y, 1.0, -1.0)
            return sign * positive_mean(sign * eta) - eta
        flat = eta.reshape(-1, eta.shape[2])
        return (orthant.moments(flat, np.tile(y, len(eta))).mean - flat).reshape(eta.shape)
