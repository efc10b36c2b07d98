r"""Max-margin classifiers of whitened features in a common subspace.

Latent coordinates are :math:`q(z_n) = N(Q^\top a_n, \sigma^2 I_k)`, with whitened features a_n
(`bsdr_models.learned_metric.metric`). With :math:`\tilde z = [1; Q^\top a]`, class scores
:math:`f = H^\top \tilde z` and :math:`\eta_c` the columns of H below the bias, Q and H are the
maximum of

.. math::
    J(Q, H) = -C \sum_{y_{nc} \ne 0} (u_{nc} + D_{nc})
        - \tfrac{\rho}{2} |Q|^2 - \tfrac{\nu}{2} |H|^2, \qquad
    u = 1 - y f, \qquad D = \sqrt{u^2 + \sigma^2 |\eta_c|^2},

the bound of the hinge pseudo-likelihood with point estimates Q and H and all else profiled out. The
loss u + D of a label is :math:`2 \max(0, u)`, smoothed at its corner. If classes exclude each
other, the loss of a sample of class y may be the hinge of all classes [1]_,
:math:`\max_c (f_c - f_y + [c \ne y])`, smoothed by the entropy,

.. math::
    \log \sum_c \exp(f_c + [c \ne y] + s_c / 2) - f_y, \qquad s_c = \sigma^2 |\eta_c|^2,

an upper bound of its mean over normal class scores by Jensen's inequality.

``A`` is an (N, R) array, or an operator with ``A @ Q`` and ``A.T @ G``; Y (N, K) holds signs times
the weight of the sample, 0 without a label.

References
----------
.. [1] K. Crammer, Y. Singer (2001). On the algorithmic implementation of multiclass kernel-based
       vector machines. Journal of Machine Learning Research 2.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator

from bsdr_models.inference.optimise import advise, run_map
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.linalg import inv_spd

# Whitened features of samples (N, B), an array or an operator with products by either side.
type Whitened = FloatArray | LinearOperator

# Lower bound of D, for a sample exactly on the margin and s = 0.
TINY_WIDTH = 1e-150
# Gain of an iteration, relative to the objective, at which to stop.
TOL = 1e-10
# Most axes of a metric for which the covariance of the projection is computed.
MAX_AXES = 2000
# Of the hinge of all classes: the biases are at the scale of the latent coordinates of the class
# means, which exceeds that of the weights where classes are many.
BIAS_PRECISION = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Parameters C, sigma**2, rho and nu of the objective, and its loss.

    ``multiclass`` is for the hinge of all classes, whose biases have ``BIAS_PRECISION``. A larger
    latent variance loses small classes, whose weights stay at the kink of D.
    """

    cost: float = 10.0
    latent_variance: float = 1e-3
    projection_precision: float = 1.0
    weight_precision: float = 1.0
    multiclass: bool = False

    def penalty(self, n_components: int, n_columns: int) -> FloatArray:
        """Precision of each entry of H, (1 + k, K)."""
        precision = np.full((1 + n_components, n_columns), self.weight_precision)
        if self.multiclass:
            precision[0] = BIAS_PRECISION
        return precision


@dataclass(frozen=True, slots=True, kw_only=True)
class SubspaceState:
    """Q, (B, k), over whitened features, and H = [bias; weights]."""

    projection: FloatArray
    weights: FloatArray

    def latent(self, A: Whitened) -> FloatArray:
        """Mean latent coordinates Q'a, (N, k)."""
        return np.asarray(A @ self.projection)

    def scores_at(self, latent: FloatArray) -> FloatArray:
        """f at latent coordinates (G, k): (G, K)."""
        return np.asarray(latent @ self.weights[1:]) + self.weights[0]

    def scores(self, A: Whitened) -> FloatArray:
        """Class scores f of whitened features (N, B), (N, K)."""
        return self.scores_at(self.latent(A))

    @property
    def packed(self) -> FloatArray:
        """Q and H as a vector."""
        return np.concatenate([self.projection.ravel(), self.weights.ravel()])

    def unpack(self, point: FloatArray) -> "SubspaceState":
        """Another state of the same shapes from its vector."""
        size = self.projection.size
        return SubspaceState(
            projection=point[:size].reshape(self.projection.shape),
            weights=point[size:].reshape(self.weights.shape),
        )


def objective(
    state: SubspaceState, A: Whitened, Y: FloatArray, settings: Settings
) -> tuple[float, SubspaceState]:
    r"""J and its gradients in Q and H.

    With :math:`G = y\,C (1 + u/D)` (zero without a label; times the weight of the sample),

    .. math::
        \partial J/\partial H = \tilde Z^\top G - \nu H
            - C \sigma^2 [0; \eta] \operatorname{diag}(\textstyle\sum_n 1/D_{nc}), \qquad
        \partial J/\partial Q = A^\top G \eta^\top - \rho Q .

    For the hinge of all classes with its softmax p, :math:`G = C ([c = y] - p)`, and p replaces
    1/D.
    """
    Q = state.projection
    H = state.weights
    C = settings.cost
    eta = H[1:]
    v = settings.latent_variance
    Z = state.latent(A)
    loss = multiclass_hinge if settings.multiclass else smooth_hinge
    with np.errstate(over="ignore", invalid="ignore"):  # far steps of a line search
        hinge = loss(state.scores_at(Z), Y, v * np.sum(eta**2, axis=0))
    penalty = settings.penalty(*eta.shape)
    value = -C * hinge.total - 0.5 * float(np.vdot(H, penalty * H))
    G = hinge.slope
    G *= C
    weight_gradient = np.vstack([G.sum(axis=0), Z.T @ G]) - penalty * H
    weight_gradient[1:] -= C * v * eta * hinge.variance_slope
    value -= 0.5 * settings.projection_precision * float(np.vdot(Q, Q))
    gradient = np.asarray(A.T @ (G @ eta.T)) - settings.projection_precision * Q
    return value, SubspaceState(projection=gradient, weights=weight_gradient)


def initial_state(
    A: Whitened, Y: FloatArray, n_components: int, settings: Settings
) -> SubspaceState:
    """Initial state: discriminant directions Q, and ridge regression of Y on Q'a.

    Q are the leading right singular vectors of the centred fit of A by [1, Y] (the centred class
    means, if classes are of equal size), each scaled to unit mean square of the latent coordinate,
    and at most as many as the rank of that fit. A missing label is at the mean of its column in the
    first fit, and left out of the second.
    """
    known = Y != 0.0
    weights = np.abs(Y)
    total = weights.sum(axis=0)
    centred = np.sign(Y) - known * (Y.sum(axis=0) / np.where(total > 0.0, total, 1.0))
    basis, size, _ = np.linalg.svd(np.sqrt(weights) * centred, full_matrices=False)
    of_sample = weights.max(axis=1)
    basis = np.sqrt(of_sample)[:, None] * basis[:, size > 1e-10 * size[0]]
    directions, size, _ = np.linalg.svd(np.asarray(A.T @ basis), full_matrices=False)
    rank = np.count_nonzero(size > 1e-10 * size.max(initial=0.0))
    # Class means may be equal, which leaves a direction of no meaning, and so may all samples be.
    Q = directions[:, : min(n_components, max(rank, 1))]
    square = np.average(np.asarray(A @ Q) ** 2, axis=0, weights=of_sample)
    Q = Q / np.sqrt(np.where(square > 0.0, square, 1.0))
    latent = np.asarray(A @ Q)
    weights = np.empty((1 + Q.shape[1], Y.shape[1]))
    patterns, pattern = np.unique(known, axis=1, return_inverse=True)
    for index, some in enumerate(patterns.T):
        rows = np.column_stack([np.ones(np.count_nonzero(some)), latent[some]])
        precision = rows.T @ (of_sample[some][:, None] * rows) + settings.weight_precision * np.eye(
            rows.shape[1]
        )
        own = pattern == index
        weights[:, own] = np.linalg.solve(precision, rows.T @ Y[some][:, own])
    return SubspaceState(projection=Q, weights=weights)


def fit_subspace(
    A: Whitened,
    Y: FloatArray,
    *,
    n_components: int,
    settings: Settings,
    start: SubspaceState | None = None,
    tol: float = TOL,
    max_iter: int = 2000,
) -> Result[SubspaceState]:
    """Maximise J by L-BFGS from ``start``, or else from `initial_state`.

    k is at most ``n_components``. ``tol`` is the gain of an iteration, relative to J, at which to
    stop. The trace is J before the first and after every iteration.
    """
    initial = initial_state(A, Y, n_components, settings) if start is None else start

    def negative(point: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(initial.unpack(point), A, Y, settings)
        return -value, -gradient.packed

    found = run_map(negative, [initial.packed], max_iter=max_iter, tol=tol, relative=True)
    ended = found.converged or found.interrupted
    return Result(
        posterior=initial.unpack(found.x),
        trace=-found.trace,
        converged=found.converged,
        interrupted=found.interrupted,
        advice="" if ended else advise(found.n_iter, max_iter),
    )


def weight_covariance(
    state: SubspaceState, A: Whitened, Y: FloatArray, settings: Settings
) -> FloatArray:
    r"""Covariance of each column of H given Q, (K, 1 + k, 1 + k).

    It is that of the conjugate factor q(h_c) at the maximum, with :math:`w = 1 / (C D)`:

    .. math::
        S_c = (\nu I + C^2 \sum_n w_{nc} \{\tilde z_n \tilde z_n^\top
            + \sigma^2 \operatorname{diag}(0, 1, \dots, 1)\})^{-1} .

    For the hinge of all classes it is that of Laplace, with :math:`C p (1 - p)` for :math:`C^2 w`.
    The uncertainty of Q and of :math:`1/\lambda` is neglected; the latter makes the tails of the
    pseudo-posterior heavier than normal.
    """
    Z = state.latent(A)
    k = len(state.weights) - 1
    own = curvature(state, A, Y, settings)
    rows = np.column_stack([np.ones(len(Z)), Z])
    precision = np.stack([(rows * each[:, None]).T @ rows for each in own.T])
    precision += settings.penalty(k, len(precision)).T[:, :, None] * np.eye(1 + k)
    spread = settings.latent_variance * own.sum(axis=0)
    precision[:, 1:, 1:] += spread[:, None, None] * np.eye(k)
    return inv_spd(precision, name="weight precision")[0]


def curvature(state: SubspaceState, A: Whitened, Y: FloatArray, settings: Settings) -> FloatArray:
    """C**2 w = C / D, or C p (1 - p): precision of each class score, (N, K)."""
    scores = state.scores(A)
    square = settings.latent_variance * np.sum(state.weights[1:] ** 2, axis=0)
    if settings.multiclass:
        slope = np.abs(multiclass_hinge(scores, np.sign(Y), square).slope)
        return settings.cost * np.abs(Y) * slope * (1.0 - slope)
    root = np.maximum(np.sqrt((1.0 - np.sign(Y) * scores) ** 2 + square), TINY_WIDTH)
    return settings.cost * np.abs(Y) / root


def projection_covariance(
    state: SubspaceState, A: Whitened, Y: FloatArray, settings: Settings
) -> FloatArray | None:
    r"""Conditional covariance of each column of Q, (R, B, B); None with too many axes.

    It is that of the conjugate factor at the maximum,
    :math:`(\rho I + C^2 \sum_{nc} w_{nc} h_{jc}^2 a_n a_n^\top)^{-1}`.
    """
    if A.shape[1] > MAX_AXES or not isinstance(A, np.ndarray):
        return None
    precisions = curvature(state, A, Y, settings)  # (N, K)
    weights = precisions @ (state.weights[1:] ** 2).T  # (N, R)
    eye = settings.projection_precision * np.eye(A.shape[1])
    stack = np.stack([eye + (A * own[:, None]).T @ A for own in weights.T])
    return inv_spd(stack, name="projection precision")[0]


# Signs and losses


def compares_classes(n_samples: int, n_features: int, n_components: int, n_scores: int) -> bool:
    """Whether the loss of a common subspace is the hinge of all classes.

    With few components no line need separate a class from all others, and with more samples than
    features the classes are seldom separable.
    """
    few = n_components < n_scores - 1
    return n_scores > 2 and (few or n_samples > n_features)


def signs_of(coded: IntArray, n_classes: int) -> FloatArray:
    """Signs (N, K) of classes (N,), or of zeros and ones of labels (N, K); 0 of those that are -1.

    Two classes have one column.
    """
    own = coded if coded.ndim == 2 else coded[:, None] == np.arange(n_classes == 2, n_classes)
    return np.where(coded.reshape(len(coded), -1) < 0, 0.0, 2.0 * own - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinge:
    """Weighted sum over the labelled entries, and slopes. N samples, K labels."""

    total: float  # Sum of the losses
    slope: FloatArray  # Minus its derivative by each class score, (N, K)
    variance_slope: FloatArray  # Twice its derivative by s, (K,)


def smooth_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """Sum of the losses of all labels, for Y (N, K), and s (K,)."""
    weights = np.abs(Y)
    u = 1.0 - np.sign(Y) * scores
    width = np.maximum(np.sqrt(u**2 + square), TINY_WIDTH)
    return Hinge(
        total=float(np.vdot(weights, u + width)),
        slope=Y * (1.0 + u / width),
        variance_slope=(weights / width).sum(axis=0),
    )


def multiclass_hinge(scores: FloatArray, Y: FloatArray, square: FloatArray) -> Hinge:
    """Sum over samples that have a class, of which one of sign 0 is no alternative."""
    labelled = (Y > 0.0).any(axis=1)
    f = scores[labelled]
    y = Y[labelled]
    own = y > 0.0
    weights = y[own][:, None]
    alternatives = np.where(y == 0.0, -np.inf, f + 0.5 * square + ~own)
    top = alternatives.max(axis=1, keepdims=True)
    share = np.exp(alternatives - top)
    mass = share.sum(axis=1, keepdims=True)
    share /= mass
    slope = np.zeros(scores.shape)
    slope[labelled] = weights * (own - share)
    return Hinge(
        total=float((weights * (top + np.log(mass) - f[own][:, None])).sum()),
        slope=slope,
        variance_slope=(weights * share).sum(axis=0),
    )
