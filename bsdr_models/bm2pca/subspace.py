r"""One low-dimensional max-margin subspace for all labels, in the nuisance metric.

The latent position of a row is :math:`q(z_n) = N(Q^\top a_n, \sigma^2 I_k)`, with a_n its place in
the metric of :mod:`bsdr_models.bm2pca.within_class_metric`: it depends on no label, so training rows and new
rows have it alike. With :math:`\tilde z = [1; Q^\top a]`, :math:`f = H^\top \tilde z` and
:math:`\eta_c` the rows of H below the bias, Q and H are the maximum of

.. math::
    J(Q, H) = -C \sum_{y_{nc} \ne 0} (u_{nc} + D_{nc})
        - \tfrac{\rho}{2} |Q|^2 - \tfrac{\nu}{2} |H|^2, \qquad
    u = 1 - y f, \qquad D = \sqrt{u^2 + \sigma^2 |\eta_c|^2} .

J is the bound of the hinge pseudo-likelihood [1]_ with Q and H point estimates and everything
else at its optimum: :math:`u + D \approx 2 \max(0, u)`, smoothed by the latent's own variance. It
is maximised by L-BFGS from discriminant directions, without a random start.

``A`` is all of the rows that is needed: an (N, R) array, or an operator with ``A @ Q`` and
``A.T @ G``.

References
----------
.. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin principal
       component analysis. AAAI.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.linalg import inv_spd
from bsdr_models.numerics.smooth_hinge import TINY_WIDTH, smooth_hinge


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Numbers of the objective.

    cost
        C.
    latent_variance
        sigma**2: of the position of a row, in units in which positions have variance one.
    projection_precision
        rho.
    weight_precision
        nu.

    Notes
    -----
    A wider latent generalises better until labels are given up: D has a kink at eta_c = 0, and
    there a label stays whose rows weigh too little (a few of many classes at a variance of 1e-2,
    many at 1e-1 or at a cost of 1). With tens of rows of a class a cost of 0.3 is better by one
    or two points. A cost of 30 with a variance of 5e-3 was 1 to 2 points better on faces, on the
    rows by which it was found.
    """

    cost: float = 10.0
    latent_variance: float = 1e-3
    projection_precision: float = 1.0
    weight_precision: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The maximum, k components and K labels.

    projection
        Q, (R, k), over metric coordinates.
    weights
        H = [bias; weights], (1 + k, K). Row 0 is the bias.
    """

    projection: FloatArray
    weights: FloatArray

    def latent(self, A: Any) -> FloatArray:
        """Mean positions Q'a, (N, k)."""
        return np.asarray(A @ self.projection)

    def scores(self, A: Any) -> FloatArray:
        """f, (N, K)."""
        return self.latent(A) @ self.weights[1:] + self.weights[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Where the climb ended.

    state
        The maximum.
    objective
        J before the first and after every iteration, (1 + n_iter,).
    converged
        Whether the gain of an iteration fell below the tolerance.
    interrupted
        Whether the user stopped the climb; the state is that after the last iteration.
    """

    state: State
    objective: FloatArray
    converged: bool
    interrupted: bool = False


def objective(
    state: State, A: Any, Y: FloatArray, settings: Settings
) -> tuple[float, FloatArray, FloatArray]:
    r"""J and its gradients in Q and H.

    With :math:`G = y\,C (1 + u/D)` (zero where there is no label),

    .. math::
        \partial J/\partial H = \tilde Z^\top G - \nu H
            - C \sigma^2 [0; \eta] \operatorname{diag}(\textstyle\sum_n 1/D_{nc}), \qquad
        \partial J/\partial Q = A^\top G \eta^\top - \rho Q .

    Parameters
    ----------
    state : State
    A : (N, R)
    Y : (N, K)
        Signs; 0 where there is no label.
    settings : Settings

    Returns
    -------
    value : float
    projection_slope : (R, k)
    weight_slope : (1 + k, K)
    """
    Q, H, C = state.projection, state.weights, settings.cost
    eta, v = H[1:], settings.latent_variance
    Z = state.latent(A)
    hinge = smooth_hinge(Z @ eta + H[0], Y, v * np.sum(eta**2, axis=0))
    value = -C * hinge.total
    value -= 0.5 * settings.projection_precision * float(np.vdot(Q, Q))
    value -= 0.5 * settings.weight_precision * float(np.vdot(H, H))
    G = hinge.slope
    G *= C
    weight_slope = np.vstack([G.sum(axis=0), Z.T @ G]) - settings.weight_precision * H
    weight_slope[1:] -= C * v * eta * hinge.inverse_width
    projection_slope = np.asarray(A.T @ (G @ eta.T)) - settings.projection_precision * Q
    return value, projection_slope, weight_slope


def _gap_and_width(
    scores: FloatArray, eta: FloatArray, Y: FloatArray, variance: float
) -> tuple[FloatArray, FloatArray]:
    """u and D, (N, K)."""
    gap = 1.0 - Y * scores
    square = gap**2 + variance * np.sum(eta**2, axis=0)
    return gap, np.maximum(np.sqrt(square), TINY_WIDTH)


def start(A: Any, Y: FloatArray, n_components: int, settings: Settings) -> State:
    """Discriminant directions of the metric, and the ridge regression of Y on positions there.

    Q are the leading right singular directions of the rows fitted by [1, Y], less their mean
    (of the centred class means, where classes are of one size), each scaled to mean square
    position one. There are at most as many as that has rank: K - 1 for classes.
    """
    labelled = (Y != 0.0).any(axis=1)
    centred = np.where(labelled[:, None], Y - Y[labelled].mean(axis=0), 0.0)
    basis, size, _ = np.linalg.svd(centred, full_matrices=False)
    basis = basis[:, size > 1e-10 * max(size[0], 1.0)]
    directions, size, _ = np.linalg.svd(np.asarray(A.T @ basis), full_matrices=False)
    rank = np.count_nonzero(size > 1e-10 * size.max(initial=0.0))
    Q = directions[:, : min(n_components, rank)]
    Z = np.asarray(A @ Q)[labelled]
    Q = Q / np.sqrt(np.mean(Z**2, axis=0))
    rows = np.column_stack([np.ones(len(Z)), np.asarray(A @ Q)[labelled]])
    precision = rows.T @ rows + settings.weight_precision * np.eye(rows.shape[1])
    return State(projection=Q, weights=np.linalg.solve(precision, rows.T @ Y[labelled]))


def fit(
    A: Any,
    Y: FloatArray,
    *,
    n_components: int,
    settings: Settings | None = None,
    tol: float = 1e-8,
    max_iter: int = 2000,
) -> Fit:
    """Maximise J by L-BFGS from `start`.

    Parameters
    ----------
    A : (N, R)
        Rows in metric coordinates.
    Y : (N, K)
        Signs; 0 where there is no label.
    n_components : int
        k at most; fewer if the labels do not span as many discriminant directions.
    settings : Settings, optional
    tol : float
        Gain of an iteration, relative to J, at which to stop.
    max_iter : int
    """
    settings = Settings() if settings is None else settings
    first = start(A, Y, n_components, settings)
    shape, size = first.projection.shape, first.projection.size

    def unpack(point: FloatArray) -> State:
        return State(
            projection=point[:size].reshape(shape),
            weights=point[size:].reshape(first.weights.shape),
        )

    def negative(point: FloatArray) -> tuple[float, FloatArray]:
        value, *slopes = objective(unpack(point), A, Y, settings)
        return -value, -np.concatenate([slope.ravel() for slope in slopes])

    begin = np.concatenate([first.projection.ravel(), first.weights.ravel()])
    trace, point, converged = [objective(first, A, Y, settings)[0]], begin, False

    def watch(intermediate_result: Any) -> None:
        nonlocal point
        point = np.array(intermediate_result.x)
        trace.append(-float(intermediate_result.fun))

    interrupted = False
    try:
        result = minimize(
            negative,
            begin,
            jac=True,
            method="L-BFGS-B",
            callback=watch,
            options={"gtol": 1e-9, "ftol": tol, "maxiter": max_iter, "maxfun": 10 * max_iter},
        )
        point, converged = np.array(result.x), bool(result.success)
    except KeyboardInterrupt:
        interrupted = True
    return Fit(
        state=unpack(point),
        objective=np.array(trace),
        converged=converged,
        interrupted=interrupted,
    )


def weight_covariance(state: State, A: Any, Y: FloatArray, settings: Settings) -> FloatArray:
    r"""Covariance of each column of H given Q, (K, 1 + k, 1 + k).

    That of the conjugate factor q(h_c) at the maximum, with :math:`w = 1 / (C D)`:

    .. math::
        S_c = (\nu I + C^2 \sum_n w_{nc} \{\tilde z_n \tilde z_n^\top
            + \sigma^2 \operatorname{diag}(0, 1, \dots, 1)\})^{-1} .

    It leaves out that Q is itself uncertain, and that of :math:`1/\lambda`, whose spread makes
    the tails of the pseudo-posterior longer than normal.
    """
    k = state.projection.shape[1]
    Z = state.latent(A)
    own = curvature(state, A, Y, settings)
    rows = np.column_stack([np.ones(len(Z)), Z])
    precision = np.einsum("nc,np,nq->cpq", own, rows, rows, optimize=True)
    precision += settings.weight_precision * np.eye(1 + k)
    spread = settings.latent_variance * own.sum(axis=0)
    precision[:, 1:, 1:] += spread[:, None, None] * np.eye(k)
    return inv_spd(precision, name="weight precision")[0]


def curvature(state: State, A: Any, Y: FloatArray, settings: Settings) -> FloatArray:
    """C**2 w = C / D at a state: precision that a label gives to its score, (N, K)."""
    gap_and_width = _gap_and_width(state.scores(A), state.weights[1:], Y, settings.latent_variance)
    return np.where(Y != 0.0, settings.cost / gap_and_width[1], 0.0)


def score_variance(state: State, A: Any, covariance: FloatArray, settings: Settings) -> FloatArray:
    r"""Variance of the scores of rows, (M, K), under q(z) and q(H) for the point Q.

    .. math::
        \operatorname{var} f_c = \sigma^2 |\eta_c|^2 + \tilde z^\top S_c \tilde z
            + \sigma^2 \operatorname{tr} S_{c,\eta\eta}
    """
    rows = np.column_stack([np.ones(A.shape[0]), state.latent(A)])
    spread = np.sum(state.weights[1:] ** 2, axis=0) + np.einsum("cpp->c", covariance[:, 1:, 1:])
    quadratic = np.einsum("np,cpq,nq->nc", rows, covariance, rows, optimize=True)
    return quadratic + settings.latent_variance * spread
