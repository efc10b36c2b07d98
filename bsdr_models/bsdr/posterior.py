r"""Log likelihood of the hierarchical model of BSDR, with latent utilities integrated out.

For samples :math:`x_n` (D,) that are centred and scaled, R components and K classes,

.. math::
    \log \tau \sim N(m_\tau, s_\tau^2), \qquad
    q_r \sim N(0, \tau^2 \Lambda / D), \qquad
    W \sim N(0, 1), \quad b \sim N(0, s_b^2), \qquad
    \eta_n = C^\top (W^\top Q^\top x_n + b),

where the rows of C are K - 1 orthonormal contrasts of the classes (the identity for multi-label and
real targets), and :math:`\Lambda` is proportional to the square root of the shrunk covariance of
the features (:class:`Metric`). The response is

* ``multiclass``: the probit of the paper, :math:`y_n = \arg\max_k t_{nk}`,
  :math:`t_n \sim N(\eta_n, I)`, but with a small probability :math:`\epsilon` a uniform class;
* ``multilabel``: :math:`P(y_{nk} = 1) = (1 - \epsilon) \Phi(\eta_{nk}) + \epsilon / 2`;
* ``regression``: :math:`y_{nk} \sim N(\eta_{nk}, \sigma_k^2)`,
  :math:`\log \sigma_k \sim N(m_\sigma, s_\sigma^2)`.

All parameters are functions of standard normals, which are sampled. Only :math:`X \Lambda^{1/2}`
enters the likelihood, so that directions outside the row space of X need no parameters: their
posterior is the prior (:class:`Metric`).

With V views, groups of whitened features, each group is multiplied by its own relative scale,
:math:`\log \lambda_v \sim N(0, s_\lambda^2)`, so that :math:`\tau \lambda_v` is the scale of a view
(:mod:`bsdr_models.bsdr.views`). A kernel in place of the linear one only changes the whitened
features (:mod:`bsdr_models.bsdr.kernels`).

Letters: N samples, D features, B of them after whitening (at most N - 1), V views, S particles, R
components, K classes or outputs, J contrasts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtr

from bsdr_models.arrays import BoolArray, FloatArray, IntArray, Target
from bsdr_models.bsdr import probit_choice
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.numerics.factors import LOG_2PI

# Directions with less than this share of the largest variance are dropped, and so are residuals of
# samples with less than this share of the squared norm.
_NO_VARIANCE = 1e-12
# Log scales are clipped to this many standard deviations, so that exp does not overflow.
_FARTHEST = 15.0
# Standard deviation of the log factor of the linear predictor in `Problem.rescale`.
_OVERALL = 1.0
# Iterations of the Procrustes alignment of particles.
_N_ROUNDS = 3
# Particles with an entry beyond this have zero prior density in double precision.
_IMPOSSIBLE = 1e6
# Linear predictors of labels are clipped to this; probabilities beyond are those of the lapse.
_DECIDED = 30.0
LOG_SQRT_2PI = 0.5 * LOG_2PI


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    r"""Prior covariance of a column of the projection, and the whitening that it gives.

    With S the covariance of the features and Shat the estimate of Ledoit and Wolf [1]_, S shrunk by
    a share rho towards a multiple mu of the identity, the covariance is
    :math:`\Lambda / D`, :math:`\Lambda = c^2 \hat S^{1/2}`, with c such that
    :math:`\operatorname{tr}(\Lambda S) = \operatorname{tr} S`. The prior scale of loadings along a
    direction is the fourth root of its variance.

    axes
        Eigenvectors of S with nonzero eigenvalues, (D, B).
    size
        Square roots of the eigenvalues of Lambda / D along them, (B,).
    outside
        The same in every direction orthogonal to the axes.

    References
    ----------
    .. [1] O. Ledoit, M. Wolf (2004). A well-conditioned estimator for large-dimensional covariance
           matrices. Journal of Multivariate Analysis 88(2).
    """

    axes: FloatArray
    size: FloatArray
    outside: float

    @classmethod
    def learn(cls, X: FloatArray) -> "Metric":
        """From centred samples (N, D); constant features get no loadings."""
        X = X / np.abs(X).max()  # so that no square overflows
        n, d = X.shape
        fourth = float(np.sum(np.sum(X**2, axis=1) ** 2))
        if d <= n:
            return cls.from_sums(X.T @ X, fourth, n)
        value, vector = np.linalg.eigh(X @ X.T / n)
        kept = value > _NO_VARIANCE * value[-1]
        value, vector = value[kept], vector[:, kept]
        axes = X.T @ (vector / np.sqrt(n * value))
        return cls._shrunk(axes, value, fourth, n, X.any(axis=0))

    @classmethod
    def from_sums(cls, gram: FloatArray, fourth: float, n_samples: int) -> "Metric":
        """From sums over centred samples of x x', (D, D), and of ``|x|**4``."""
        value, vector = np.linalg.eigh(gram / n_samples)
        kept = value > _NO_VARIANCE * value[-1]
        used = np.diag(gram) > 0.0
        return cls._shrunk(vector[:, kept], value[kept], fourth, n_samples, used)

    @classmethod
    def _shrunk(
        cls, axes: FloatArray, value: FloatArray, fourth: float, n_samples: int, used: BoolArray
    ) -> "Metric":
        """From eigenvectors and eigenvalues of S, and the mask of features that vary."""
        axes, d = np.where(used[:, None], axes, 0.0), int(used.sum())
        mu = value.sum() / d
        distance = np.sum(value**2) - d * mu**2  # of S from mu I, squared
        error = (fourth / n_samples - np.sum(value**2)) / n_samples
        rho = 1.0 if distance <= 0.0 else float(np.clip(error / distance, 0.0, 1.0))
        shrunk = np.sqrt((1.0 - rho) * value + rho * mu)
        c = value.sum() / np.sum(shrunk * value)
        return cls(
            axes=np.ascontiguousarray(axes),
            size=np.sqrt(c * shrunk / d),
            outside=float(np.sqrt(c * np.sqrt(rho * mu) / d)),
        )

    @property
    def width(self) -> int:
        """B."""
        return len(self.size)

    @property
    def is_linear(self) -> bool:
        """Whether latent coordinates are linear in the features."""
        return True

    @property
    def slopes(self) -> FloatArray:
        """Gradients of whitened features, (D, B)."""
        return self.axes * self.size

    def gradient(self, X: FloatArray, coefficients: FloatArray) -> FloatArray:
        """Gradients of one combination (B,) of whitened features at samples (M, D), (M, D)."""
        return np.broadcast_to(self.slopes @ coefficients, X.shape)

    @property
    def used(self) -> BoolArray:
        """Features that vary, (D,)."""
        return np.asarray(self.axes.any(axis=1))

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened samples (M, B), whose loadings are standard normal a priori."""
        return (X @ self.axes) * self.size

    def outside_sd(self, X: FloatArray) -> FloatArray:
        """Prior standard deviation of x'q for tau = 1 from directions outside the axes, (M,)."""
        norm = np.sum(X**2, axis=1)
        square = norm - np.sum((X @ self.axes) ** 2, axis=1)
        # The root of a rounding error is not small.
        return self.outside * np.sqrt(np.where(square > _NO_VARIANCE * norm, square, 0.0))

    def loadings(
        self, inside: FloatArray, outside: FloatArray, view_scale: FloatArray | None = None
    ) -> FloatArray:
        """Projection of features (..., D) from standard normals along and outside the axes.

        Parameters
        ----------
        inside, outside : (..., B), (..., D)
            Of ``outside`` the part orthogonal to the axes is used.
        """
        outside = outside - (outside @ self.axes) @ self.axes.T
        outside *= self.used
        return (inside * self.size) @ self.axes.T + self.outside * outside


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """S draws of the parameters that predictions need.

    projection
        Loadings of whitened features, (S, R, B).
    scale
        tau, (S,).
    weights, bias
        W C, (S, R, K), and C'b, (S, K), centred over classes.
    noise_scale
        sigma, (S, K); None but for real outputs.
    outside
        Standard normals (S, R); times their standard deviation they are the part of the latent
        coordinates that whitened features do not determine.
    view_scale
        lambda, (S, V), which ``projection`` contains; None for one view.
    """

    projection: FloatArray
    scale: FloatArray
    weights: FloatArray
    bias: FloatArray
    noise_scale: FloatArray | None
    outside: FloatArray
    view_scale: FloatArray | None = None

    def spaced(self, n_draws: int) -> IntArray:
        """Indices of at most so many draws, evenly spaced."""
        total = len(self.scale)
        return np.unique(np.linspace(0, total - 1, min(n_draws, total)).round().astype(np.int64))

    def take(self, index: IntArray | slice) -> "Parameters":
        """A subset of the draws."""
        return Parameters(
            projection=self.projection[index],
            scale=self.scale[index],
            weights=self.weights[index],
            bias=self.bias[index],
            noise_scale=None if self.noise_scale is None else self.noise_scale[index],
            outside=self.outside[index],
            view_scale=None if self.view_scale is None else self.view_scale[index],
        )

    def latent(
        self,
        whitened: FloatArray,
        outside: FloatArray | None = None,
        missing: FloatArray | None = None,
    ) -> FloatArray:
        """Latent coordinates of samples, (S, M, R).

        Parameters
        ----------
        whitened : (M, B)
        outside : (M,) or (M, V), optional
            Prior standard deviation, for tau = 1, of what whitened features do not determine, of
            each view if there are several; zero for training samples.
        missing : (S, R, R), optional
            Covariance from whitened features that are missing in all of these samples.
        """
        flat = self.projection.reshape(-1, self.projection.shape[2])
        z = (whitened @ flat.T).reshape(len(whitened), *self.projection.shape[:2])
        if outside is not None:
            sd = self._outside_scale(outside)
            if missing is None:
                z += sd[..., None] * (self.scale[:, None] * self.outside)
            else:  # the root of the sum of both covariances
                value, vector = np.linalg.eigh(missing)
                size = np.sqrt(np.maximum(value, 0.0) + ((sd * self.scale) ** 2)[..., None])
                turned = (np.swapaxes(vector, 1, 2) @ self.outside[..., None])[..., 0]
                z += (vector @ (size * turned)[..., None])[..., 0]
        return np.swapaxes(z, 0, 1)

    def covariance(self, residuals: FloatArray) -> FloatArray:
        """Second moments of the latent coordinates of whitened features (N, B), (S, R, R)."""
        moments = residuals.T @ residuals / len(residuals)
        return self.projection @ moments @ np.swapaxes(self.projection, 1, 2)

    def _outside_scale(self, outside: FloatArray) -> FloatArray:
        """Standard deviation outside the axes relative to tau, (M, 1) or (M, S)."""
        if self.view_scale is None:
            return outside[:, None]
        return np.asarray(np.sqrt(outside**2 @ self.view_scale.T**2))

    def linear_predictor(
        self, whitened: FloatArray, outside: FloatArray | None = None
    ) -> FloatArray:
        """eta of samples, (S, M, K)."""
        return self.latent(whitened, outside) @ self.weights + self.bias[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Log likelihood as a function of standard normal parameters.

    X, y
        Whitened features, (N, B), and targets as in :class:`bsdr_models.bsdr.data.Data`.
    contrasts
        C, (J, K).
    layout
        Begin, end and shape of each block of the parameter vector, in order.
    views
        View of each whitened feature, (B,), in order; None for one view.
    """

    X: FloatArray
    y: np.ndarray
    contrasts: FloatArray
    layout: Mapping[str, tuple[int, int, tuple[int, ...]]]
    n_components: int
    target: Target
    priors: HierarchicalPriors
    views: IntArray | None = None

    @classmethod
    def build(
        cls,
        X: FloatArray,
        y: np.ndarray,
        *,
        n_labels: int,
        n_components: int,
        target: Target,
        priors: HierarchicalPriors,
        views: IntArray | None = None,
    ) -> "Problem":
        """From whitened features (N, B) and targets."""
        contrasts = make_contrasts(n_labels, target)
        j, k = contrasts.shape
        shapes: dict[str, tuple[int, ...]] = {
            "projection": (n_components, X.shape[1]),
            "weights": (n_components, j),
            "bias": (j,),
            "log_scale": (),
        }
        if target == "regression":
            shapes["log_noise"] = (k,)
        if views is not None:
            shapes["log_view_scale"] = (int(views.max()) + 1,)
        layout, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + math.prod(shape)
            layout[name] = begin, end, shape
        return cls(
            X=np.ascontiguousarray(X),
            y=y,
            contrasts=contrasts,
            layout=layout,
            n_components=n_components,
            target=target,
            priors=priors,
            views=views,
        )

    @property
    def n_parameters(self) -> int:
        """P."""
        return max(end for _, end, _ in self.layout.values())

    def split(self, theta: FloatArray) -> dict[str, FloatArray]:
        """Blocks of parameter vectors (S, P), as views."""
        return {
            name: theta[:, begin:end].reshape(len(theta), *shape)
            for name, (begin, end, shape) in self.layout.items()
        }

    def scale(self, theta: FloatArray) -> FloatArray:
        """tau, (S,)."""
        u = np.clip(theta[:, self.layout["log_scale"][0]], -_FARTHEST, _FARTHEST)
        return np.exp(self.priors.scale_location + self.priors.scale_width * u)

    def view_scale(self, theta: FloatArray) -> FloatArray:
        """lambda, (S, V)."""
        begin, end, _ = self.layout["log_view_scale"]
        return np.exp(self.priors.view_width * np.clip(theta[:, begin:end], -_FARTHEST, _FARTHEST))

    def _column_scale(self, theta: FloatArray) -> FloatArray:
        """lambda of each whitened feature, (S, 1, B)."""
        return self.view_scale(theta)[:, None, self.views]

    def noise_scale(self, theta: FloatArray) -> FloatArray:
        """sigma, (S, K)."""
        begin, end, _ = self.layout["log_noise"]
        u = np.clip(theta[:, begin:end], -_FARTHEST, _FARTHEST)
        return np.exp(self.priors.noise_location + self.priors.noise_width * u)

    def parameters(self, theta: FloatArray, *, rng: np.random.Generator) -> Parameters:
        """Draws of the named parameters; ``rng`` draws the part outside the axes."""
        blocks, tau = self.split(theta), self.scale(theta)
        projection = tau[:, None, None] * blocks["projection"]
        if self.views is not None:
            projection *= self._column_scale(theta)
        return Parameters(
            projection=projection,
            scale=tau,
            weights=blocks["weights"] @ self.contrasts,
            bias=self.priors.bias_scale * blocks["bias"] @ self.contrasts,
            noise_scale=self.noise_scale(theta) if self.target == "regression" else None,
            outside=rng.standard_normal((len(theta), self.n_components)),
            view_scale=None if self.views is None else self.view_scale(theta),
        )

    def rescale(self, theta: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Proposals that rescale the linear predictor, and divide the scale anew between blocks.

        For nearly separable classes the overall scale is weakly identified, and how projection,
        weights and tau share it is determined by the prior only: trajectories mix slowly there.

        Returns
        -------
        theta : (S, P)
        log_jacobian : (S,)
        """
        s, blocks = len(theta), self.split(theta)
        sizes = {name: end - begin for name, (begin, end, _) in self.layout.items()}
        overall = _OVERALL * rng.standard_normal(s)
        if self.target == "regression":  # little noise allows no other linear predictor
            overall = np.zeros(s)
        within = {
            name: rng.standard_normal(s) / np.sqrt(2.0 * max(sizes[name], 1))
            for name in ("projection", "weights")
        }
        moved = {
            **blocks,
            "projection": np.exp(within["projection"])[:, None, None] * blocks["projection"],
            "weights": np.exp(within["weights"])[:, None, None] * blocks["weights"],
            "bias": np.exp(overall)[:, None] * blocks["bias"],
            "log_scale": blocks["log_scale"]
            + (overall - within["projection"] - within["weights"]) / self.priors.scale_width,
        }
        log_jacobian = overall * sizes["bias"]
        for name, change in within.items():
            log_jacobian = log_jacobian + change * sizes[name]
        flat = np.concatenate([moved[name].reshape(s, -1) for name in self.layout], axis=1)
        return flat, log_jacobian

    def align(self, theta: FloatArray, slope: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rotate the components of particles (S, P) and their gradients (S, P) to a common frame.

        A rotation of projection and weights leaves the density unchanged. Each particle gets the
        one that is closest to the mean of the particles (orthogonal Procrustes problem).
        """
        names = ("projection", "weights")

        def joined(vectors: FloatArray) -> FloatArray:
            blocks = self.split(vectors)
            return np.concatenate([blocks[name] for name in names], axis=2)  # (S, R, B + J)

        A = joined(theta)
        reference, turn = A[0], np.eye(self.n_components)
        for _ in range(_N_ROUNDS):
            U, _, V = np.linalg.svd(reference @ np.swapaxes(A, 1, 2))
            turn = U @ V
            reference = (turn @ A).mean(axis=0)

        def turned(vectors: FloatArray) -> FloatArray:
            out = vectors.copy()
            for name in names:
                begin, end, _ = self.layout[name]
                out[:, begin:end] = (turn @ self.split(vectors)[name]).reshape(len(out), -1)
            return out

        return turned(theta), turned(slope)

    def log_likelihood(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log likelihood of particles (S, P), in nats, and its gradient: (S,), (S, P).

        Minus infinity with a zero gradient for particles that are not finite or have zero prior
        density.
        """
        finite = (np.abs(theta) < _IMPOSSIBLE).all(axis=1)
        if not finite.all():
            theta = np.where(finite[:, None], theta, 0.0)
        s, r, n = len(theta), self.n_components, len(self.X)
        blocks, tau = self.split(theta), self.scale(theta)[:, None, None]
        projection = np.ascontiguousarray(blocks["projection"])
        if self.views is not None:
            projection = projection * self._column_scale(theta)
        flat = projection.reshape(s * r, -1)
        z = np.ones((s, r + 1, n))  # the last is the constant
        z[:, :r] = (flat @ self.X.T).reshape(s, r, n)
        W = tau * (blocks["weights"] @ self.contrasts)
        b = self.priors.bias_scale * blocks["bias"] @ self.contrasts
        eta = np.swapaxes(z, 1, 2) @ np.concatenate([W, b[:, None]], axis=1)
        slopes: dict[str, Any] = dict.fromkeys(self.layout, np.zeros(s))
        if self.target == "regression":
            sigma = self.noise_scale(theta)
            gap = (self.y - eta) / sigma[:, None]
            square = np.sum(gap**2, axis=1)
            value = -0.5 * square.sum(axis=1) - n * np.sum(np.log(sigma) + LOG_SQRT_2PI, axis=1)
            slope = gap / sigma[:, None]
            slopes["log_noise"] = self.priors.noise_width * (square - n)
        else:
            each, slope = label_log_likelihood(eta, self.y, self.target, self.priors.lapse)
            value = each.sum(axis=1)
        by_weights, by_bias = np.split(z @ slope, [r], axis=1)  # (S, R, K), (S, 1, K)
        slopes["log_scale"] = self.priors.scale_width * np.sum(by_weights * W, axis=(1, 2))
        slopes["weights"] = tau * (by_weights @ self.contrasts.T)
        slopes["bias"] = self.priors.bias_scale * by_bias[:, 0] @ self.contrasts.T
        by_latent = W @ np.swapaxes(slope, 1, 2)  # (S, R, N)
        slopes["projection"] = by_latent.reshape(s * r, n) @ self.X
        if self.views is not None:
            share = np.sum((slopes["projection"] * flat).reshape(s, r, -1), axis=1)  # (S, B)
            first = np.searchsorted(self.views, np.arange(self.layout["log_view_scale"][2][0]))
            slopes["log_view_scale"] = self.priors.view_width * np.add.reduceat(
                share, first, axis=1
            )
            by_column = slopes["projection"].reshape(s, r, -1)
            slopes["projection"] = by_column * self._column_scale(theta)
        gradient = np.concatenate([slopes[name].reshape(s, -1) for name in self.layout], axis=1)
        finite &= np.isfinite(value + gradient @ np.zeros(gradient.shape[1]))
        if not finite.all():
            value = np.where(finite, value, -np.inf)
            gradient = np.where(finite[:, None], gradient, 0.0)
        return value, gradient


def make_contrasts(n_labels: int, target: Target) -> FloatArray:
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


def label_derivatives(
    eta: FloatArray, y: np.ndarray, target: Target, lapse: float
) -> tuple[FloatArray, FloatArray]:
    """Gradient (N, K) and Hessian (N, K, K) of the log probability of labels in eta (N, K)."""
    if target == "multiclass":
        return probit_choice.curvature(eta, y, lapse)[1:]
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
    sign = 2.0 * y - 1.0
    margin = np.clip(sign * eta, -_DECIDED, _DECIDED)
    total = (1.0 - lapse) * ndtr(margin) + 0.5 * lapse
    slope = sign * np.exp(-0.5 * margin**2 - LOG_SQRT_2PI) * ((1.0 - lapse) / total)
    return margin, total, slope
