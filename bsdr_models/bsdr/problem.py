r"""The model of BSDR with latent utilities integrated out: prior and likelihood.

For samples :math:`x_n` (D,) that are centred and scaled, and K classes,

.. math::
    \tau \sim N^+(0, s_\tau^2), \qquad
    p_j \sim N(0, \tau^2 \Lambda), \qquad
    b \sim N(0, s_b^2), \qquad
    \eta_n = C^\top (P^\top x_n + b),

where the rows of C are J = K - 1 orthonormal contrasts of the classes (the identity for multi-label
and real targets, J = K), P (D, J) is the projection, with one column for each contrast, and
:math:`\Lambda` is learned within classes before the sampling
(:class:`~bsdr_models.learned_metric.metric.Metric`). The response is

* ``multiclass``: the probit of the paper, :math:`y_n = \arg\max_k t_{nk}`,
  :math:`t_n \sim N(\eta_n, I)`, but with a small probability :math:`\epsilon` a uniform class;
* ``multilabel``: :math:`P(y_{nk} = 1) = (1 - \epsilon) \Phi(\eta_{nk}) + \epsilon / 2`;
* ``regression``: :math:`y_{nk} \sim N(\eta_{nk}, \sigma_k^2)`,
  :math:`\log \sigma_k \sim N(m_\sigma, s_\sigma^2)`.

Given :math:`\tau` the log posterior density is concave, but for the lapse, and so has one mode.

Parameters are functions of standard normals, which are sampled, for whitened features
(:mod:`bsdr_models.bsdr.feature_map`): directions outside the row space of X need no parameters,
since their posterior is the prior. With V views, groups of whitened features, the scale of a view
is :math:`\tau \lambda_v`, :math:`\log \lambda_v \sim N(0, s_\lambda^2)`.

Letters: N samples, D features, B of them after whitening (at most N - 1), V views, S draws, K
classes or outputs, J contrasts.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtr

from bsdr_models.bsdr import probit_choice
from bsdr_models.bsdr.leapfrog import DECIDED, FARTHEST, Density
from bsdr_models.bsdr.posterior import Parameters
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.tasks import run_in_threads
from bsdr_models.numerics.arrays import BoolArray, DeclaredTarget, FloatArray, IntArray, Target
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.scaling import single_precision

# Parameters with an entry beyond this have zero prior density in double precision.
_IMPOSSIBLE = 1e6
LOG_SQRT_2PI = 0.5 * LOG_2PI


@dataclass(frozen=True, kw_only=True)
class BSDRProblem:
    """Log joint density of labels and parameters, as a function of vectors of parameters.

    A vector has, in this order, standard normals of the projection (B, J) and of the biases (J,),
    those of the log relative scales of views (V,), and log tau.
    """

    X: FloatArray  # whitened features, (N, B)
    y: np.ndarray  # as in :class:`bsdr_models.papers.bsdr.mean_field.Data`
    n_labels: int  # classes, labels or outputs, K
    target: Target
    priors: HierarchicalPriors
    views: IntArray | None = None  # view of each whitened feature, (B,), in order; None for one
    weights: FloatArray | None = None  # powers of the likelihoods of samples, (N,)

    def select(self, samples: IntArray | BoolArray) -> "BSDRProblem":
        """The problem of some samples."""
        weights = None if self.weights is None else self.weights[samples]
        return replace(self, X=self.X[samples], y=self.y[samples], weights=weights)

    @cached_property
    def contrasts(self) -> FloatArray:
        """C, (J, K)."""
        return make_contrasts(self.n_labels, self.target)

    @property
    def n_loadings(self) -> int:
        """Number of loadings of the projection, B J."""
        return self.X.shape[1] * len(self.contrasts)

    @property
    def n_views(self) -> int:
        """V; 0 for one view, which has no relative scale."""
        return 0 if self.views is None else int(self.views[-1]) + 1

    @property
    def n_parameters(self) -> int:
        """Length of a vector of parameters, P."""
        return self.n_loadings + len(self.contrasts) + self.n_views + 1

    @property
    def work(self) -> float:
        """Cost of the log likelihood of a draw, in units of a normal distribution function.

        One takes about 25 ns, as some twenty multiplications do.
        """
        n, b = self.X.shape
        return n * len(self.contrasts) * (1.0 + b / 20.0)

    @property
    def sample_weight(self) -> FloatArray:
        """Weights of the samples, (N,), ones by default."""
        return np.ones(len(self.X)) if self.weights is None else self.weights

    @cached_property
    def single(self) -> Density:
        """The log density for trajectories."""
        X = np.column_stack([self.X, np.ones(len(self.X))])
        matrices = (X, X.T, self.contrasts, self.contrasts.T)
        X, X_t, contrasts, contrasts_t = (a.astype(np.float32, order="C") for a in matrices)
        priors = self.priors
        return Density(
            X=X,
            X_t=X_t,
            sample_weight=self.sample_weight.astype(np.float32),
            contrasts=contrasts,
            contrasts_t=contrasts_t,
            views=np.zeros(self.X.shape[1], np.int64) if self.views is None else self.views,
            lapse=np.float32(priors.lapse),
            bias_scale=np.float32(priors.bias_scale),
            view_width=np.float32(priors.view_width),
            scale=np.float32(priors.scale),
            nodes=probit_choice.nodes(np.dtype(np.float32)),
        )

    def split(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Standard normals (S, B, J), (S, J) and (S, V), and log tau (S,), as views."""
        n = self.n_loadings
        j = len(self.contrasts)
        loadings = theta[:, :n].reshape(len(theta), -1, j)
        return loadings, theta[:, n : n + j], theta[:, n + j : -1], theta[:, -1]

    def column_scale(self, theta: FloatArray) -> FloatArray:
        """tau times the relative scale of the view of each whitened feature, (S, B) or (S, 1)."""
        _, _, views, log_scale = self.split(theta)
        log_scale = log_scale[:, None]
        if self.views is not None:
            log_scale = log_scale + self.priors.view_width * views[:, self.views]
        return np.exp(np.clip(log_scale, -FARTHEST, FARTHEST))

    def linear_predictor(self, theta: FloatArray) -> FloatArray:
        """eta of the samples, (N, S, K), by one product for all vectors."""
        loadings, bias, _, _ = self.split(theta)
        shape = self.X.shape[1], len(theta), self.contrasts.shape[1]
        weights = np.empty(shape, np.result_type(self.X, theta))
        scaled = loadings * self.column_scale(theta)[:, :, None]
        np.matmul(scaled, self.contrasts, out=weights.transpose(1, 0, 2))
        eta = self.X @ weights.reshape(len(weights), shape[1] * shape[2])
        eta += (self.priors.bias_scale * bias @ self.contrasts).ravel()
        return eta.reshape(-1, *shape[1:])

    def log_prior(self, theta: FloatArray) -> FloatArray:
        """Log prior density of vectors (S, P), (S,)."""
        normal = theta[:, :-1]
        log_scale = theta[:, -1]
        value = -0.5 * np.einsum("sp,sp->s", normal, normal) - normal.shape[1] * LOG_SQRT_2PI
        return value + log_prior_scale(log_scale, self.priors.scale)

    def log_density(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log likelihood and log prior (S,) of vectors (S, P), and gradient of their sum (S, P).

        The log likelihood is minus infinity, with a zero gradient, for vectors that are not finite
        or have zero prior density.
        """
        possible = np.abs(theta).max(axis=1) < _IMPOSSIBLE
        if not possible.all():
            theta = np.where(possible[:, None], theta, 0.0)
        each, gradient = self.evaluate(theta)
        value = each.sum(axis=1)
        prior = self.log_prior(theta)
        possible &= np.isfinite(value + gradient.sum(axis=1))
        if not possible.all():
            value = np.where(possible, value, -np.inf)
            gradient = np.where(possible[:, None], gradient, 0.0)
        return value, prior, gradient

    def evaluate(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log likelihood (S, N) of finite vectors (S, P), and gradients (S, P) of log densities.

        Weighted, and in the precision of X, which is that of ``theta``.
        """
        loadings, _, _, log_scale = self.split(theta)
        scale = self.column_scale(theta)[:, :, None]
        eta = self.linear_predictor(theta)
        flat = eta.reshape(1, -1, eta.shape[2])
        y = np.repeat(self.y, len(theta), axis=0)
        each, slope = label_log_likelihood(flat, y, self.target, self.priors.lapse)
        weight = self.sample_weight.astype(slope.dtype)
        slope = slope.reshape(len(eta), -1)  # (N, S K)
        slope *= weight[:, None]
        n = self.n_loadings
        j = len(self.contrasts)
        gradient = np.empty_like(theta)
        by_loading = gradient[:, :n].reshape(loadings.shape)  # of the same memory
        by_weight = (self.X.T @ slope).reshape(-1, *eta.shape[1:]).transpose(1, 0, 2)
        np.matmul(by_weight, self.contrasts.T, out=by_loading)
        by_loading *= scale
        total = (np.ones(len(eta), slope.dtype) @ slope).reshape(eta.shape[1:])
        gradient[:, n : n + j] = total @ self.contrasts.T
        gradient[:, n : n + j] *= self.priors.bias_scale
        np.einsum("sp,sp->s", gradient[:, :n], theta[:, :n], out=gradient[:, -1])
        if self.views is not None:
            by_feature = np.sum(by_loading * loadings, axis=2)
            first = np.searchsorted(self.views, np.arange(self.n_views))
            by_view = np.add.reduceat(by_feature, first, axis=1)
            gradient[:, n + j : -1] = self.priors.view_width * by_view
        gradient[:, :-1] -= theta[:, :-1]
        gradient[:, -1] += 1.0 - np.exp(2.0 * log_scale) / self.priors.scale**2
        return each.reshape(eta.shape[:2]).T * weight, gradient

    def curvature(self, theta: FloatArray) -> FloatArray:
        """Mean over vectors (S, P) of the negative Hessian of a sample in its contrasts, (N, J, J).

        It has negative eigenvalues where labels may be lapses.
        """
        weight = self.sample_weight[:, None, None]

        def of_vector(one: FloatArray) -> FloatArray:
            eta = self.linear_predictor(one[None])[:, 0]
            second = label_derivatives(eta, self.y, self.target, self.priors.lapse)[1]
            return -(self.contrasts @ second @ self.contrasts.T) * weight

        return np.mean(run_in_threads(of_vector, list(theta)), axis=0)

    def parameters(self, theta: FloatArray, *, rng: np.random.Generator) -> Parameters:
        """Draws of the named parameters; ``rng`` draws the part outside the axes."""
        loadings, bias, views, log_scale = self.split(theta)
        scaled = loadings * self.column_scale(theta)[:, :, None]
        return Parameters(
            projection=single_precision(np.ascontiguousarray(scaled.transpose(0, 2, 1))),
            scale=np.exp(log_scale),
            weights=np.broadcast_to(self.contrasts, (len(theta), *self.contrasts.shape)),
            bias=self.priors.bias_scale * bias @ self.contrasts,
            noise_scale=None,
            outside=rng.standard_normal((len(theta), len(self.contrasts))),
            view_scale=None if self.views is None else np.exp(self.priors.view_width * views),
        )


def log_prior_scale(log_scale: FloatArray, scale: float) -> FloatArray:
    """Log density of log tau, whose tau is half-normal with a given scale."""
    ratio = log_scale - math.log(scale)
    return np.asarray(math.log(2.0) - LOG_SQRT_2PI + ratio - 0.5 * np.exp(2.0 * ratio))


def make_contrasts(n_labels: int, target: DeclaredTarget) -> FloatArray:
    """C, (J, K): orthonormal contrasts of classes, else the identity."""
    if target == "multiclass":
        return np.ascontiguousarray(helmert(n_labels))
    return np.eye(n_labels)


def regression_log_likelihood(
    eta: FloatArray, y: FloatArray, noise_scale: FloatArray
) -> FloatArray:
    """Log density of real outputs y (N, K) given means (S, N, K), scales (S, K): (S, N)."""
    gap = (y - eta) / noise_scale[:, None]
    return (
        -0.5 * np.sum(gap**2, axis=2) - np.sum(np.log(noise_scale) + LOG_SQRT_2PI, axis=1)[:, None]
    )


def label_log_likelihood(
    eta: FloatArray, y: np.ndarray, target: Target, lapse: float
) -> tuple[FloatArray, FloatArray]:
    """Log probability (S, N) of labels, including lapses, and its gradient in eta (S, N, K)."""
    if target == "multiclass":
        return probit_choice.log_likelihood(eta, y, lapse)
    _, total, slope = _label_probability(eta, y, lapse)
    return np.log(total).sum(axis=2), slope


def pointwise_log_likelihood(
    draws: Parameters, whitened: FloatArray, y: np.ndarray, target: Target, lapse: float
) -> FloatArray:
    """Log likelihood of each training sample under each draw, (S, N)."""
    eta = draws.linear_predictor(whitened)
    if target == "regression":
        assert draws.noise_scale is not None
        return regression_log_likelihood(eta, y, draws.noise_scale)
    return label_log_likelihood(eta, y, target, lapse)[0]


def label_derivatives(
    eta: FloatArray, y: np.ndarray, target: Target, lapse: float
) -> tuple[FloatArray, FloatArray]:
    """Gradient (N, K) and Hessian (N, K, K) of the log probability of labels in eta (N, K)."""
    if target == "multiclass":
        return probit_choice.curvature(eta, y, lapse)
    margin, _, slope = _label_probability(eta, y, lapse)
    curvature = np.zeros((*eta.shape, eta.shape[1]))
    own = np.arange(eta.shape[1])
    # The density has the derivative -margin times itself.
    curvature[:, own, own] = -np.abs(slope) * margin - slope**2
    return slope, curvature


def _label_probability(
    eta: FloatArray, y: BoolArray, lapse: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Signed linear predictor, probability of the label, and gradient of its log in eta."""
    sign = np.where(y, 1.0, -1.0).astype(eta.dtype)
    margin = np.clip(sign * eta, -DECIDED, DECIDED)
    total = (1.0 - lapse) * ndtr(margin) + 0.5 * lapse
    slope = sign * np.exp(-0.5 * margin**2 - LOG_SQRT_2PI) * ((1.0 - lapse) / total)
    return margin, total, slope
