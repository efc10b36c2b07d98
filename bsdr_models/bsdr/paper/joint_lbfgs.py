r"""Joint L-BFGS search of the mean-field bound, with Cov(Q) held fixed.

The bound of :mod:`bsdr_models.bsdr.paper.mean_field` is maximised over three means,

.. math:: A = E[Q], \qquad M = E[Z], \qquad B = E[b, W].

The covariances S_s of the projection are held fixed at the values of the last sweep; every other
factor is profiled out. By the envelope theorem the gradient of the profiled bound is the partial
derivative of the bound at that optimum, so an evaluation takes products with X and no
factorisation. Sweeps between two searches update S_s.

The preconditioned variables are close to independent and of unit scale. With v = latent_scale**2,
S_z = Cov(z) and the utilities held fixed, the bound is quadratic in (A, M), and completing the
square in M gives

.. math:: M = X A S_z / v + E, \qquad
          -\nabla^2_A = \operatorname{diag}\phi + X^\top X \otimes (I / v - S_z / v^2),

with no cross term between A and E. One decomposition of X for the whole fit whitens A: with the
precisions phi_s of a component replaced by their geometric mean, both terms are diagonal together.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from bsdr_models.arrays import FloatArray
from bsdr_models.bsdr.paper import mean_field
from bsdr_models.bsdr.paper.data import Data
from bsdr_models.bsdr.paper.mean_field import Info, State
from bsdr_models.bsdr.priors import Priors
from bsdr_models.numerics.design import Design
from bsdr_models.numerics.factors import NormalColumns, NormalRows
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.numerics.whitening import Whitener

# Quadrature nodes of a search; sweeps use more.
N_NODES = 16
# Iterations of the fixed point for the covariances, and the relative change that ends it.
N_INNER, INNER_TOL = 30, 1e-6
# Memory of L-BFGS.
MEMORY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """Derivatives of the profiled bound.

    projection
        In E[Q] with X E[Q] held fixed, (D, R).
    fitted
        In X E[Q], (N, R).
    latent, weights
        In E[Z], (N, R), and E[b, W], (1 + R, K).
    """

    projection: FloatArray
    fitted: FloatArray
    latent: FloatArray
    weights: FloatArray


def complete(
    state: State,
    data: Data,
    priors: Priors,
    *,
    projection: FloatArray,
    fitted: FloatArray,
    latent: FloatArray,
    weights: FloatArray,
    n_nodes: int = N_NODES,
) -> State:
    """State with given means and the Cov(Q) of ``state``, all other factors at their optimum.

    The means are E[Q] (D, R), X E[Q] (N, R), E[Z] (N, R) and E[b, W] (1 + R, K); ``state`` has the
    initial values of the fixed point.
    """
    tau = mean_field.noise_mean(state)
    noise = state.noise_precision
    w = replace(state.weights, mean=weights)
    square, variance = weights**2, w.variance
    fixed = mean_field.latent_moment(
        NormalRows(mean=latent, cov=np.zeros_like(state.latent.cov), log_det=0.0)
    )
    if noise is not None:
        residual = np.sum((state.utilities.mean - latent @ weights[1:] - weights[0]) ** 2, axis=0)
        explained = np.einsum("pk,pq,qk->k", weights, fixed, weights)
    for _ in range(N_INNER):
        second = mean_field.second_moment(w)
        cov, log_det = mean_field.latent_cov(second, tau, priors)
        moment = fixed.copy()
        moment[1:, 1:] += len(latent) * cov
        psi = mean_field.weight_gamma(square + variance, priors)
        w_cov, w_log_det = mean_field.weights_cov(moment, psi, tau)
        w = NormalColumns(mean=weights, cov=w_cov, log_det=w_log_det)
        if noise is not None:
            spread = np.einsum("kpq,pq->k", mean_field.second_moment(w), moment) - explained
            noise = mean_field.noise_gamma(residual + spread, len(latent), priors)
            tau = noise.mean
        change = np.max(np.abs(w.variance / variance - 1.0))
        variance = w.variance
        if change < INNER_TOL:
            break
    state = replace(
        state,
        projection=replace(state.projection, mean=projection, fitted=fitted),
        latent=NormalRows(mean=latent, cov=cov, log_det=log_det),
        weight_precision=mean_field.weight_gamma(square + variance, priors),
        weights=w,
        noise_precision=noise,
    )
    phi = mean_field.update_projection_precision(state, priors)
    state = replace(state, projection_precision=phi)
    return replace(state, utilities=mean_field.update_utilities(state, data, n_nodes=n_nodes))


def gradient(state: State, priors: Priors) -> Gradient:
    """Partial derivatives of the bound at a state made by :func:`complete`."""
    tau = mean_field.noise_mean(state)
    q, z, w = state.projection, state.latent, state.weights
    slope = tau * (state.utilities.mean - state.utilities.origin)  # (N, K)
    cov = np.einsum("k,kpq->pq", tau, w.cov)
    fitted = (z.mean - q.fitted) / priors.latent_scale**2
    latent = slope @ w.mean[1:].T - fitted - z.mean @ cov[1:, 1:] - cov[0, 1:]
    weights = -state.weight_precision.mean * w.mean
    weights[0] += slope.sum(axis=0)
    weights[1:] += z.mean.T @ slope - z.mean.shape[0] * (z.cov @ w.mean[1:]) * tau
    projection = -state.projection_precision.mean * q.mean
    return Gradient(projection=projection, fitted=fitted, latent=latent, weights=weights)


def maximise(
    state: State,
    data: Data,
    priors: Priors,
    *,
    max_evaluations: int,
    on_step: Callable[[State, Info], bool | None] | None = None,
) -> tuple[State, Info]:
    """Maximise the bound by L-BFGS from a state, with Cov(Q) held fixed.

    The preconditioner is that of the initial state, so several short searches, with a sweep before
    each, are faster than a long one.
    ``on_step`` is called with the state and its bound after every step; a true value stops. Returns
    the best state, and its exact bound with all quadrature nodes.
    """
    best = complete(
        state,
        data,
        priors,
        projection=state.projection.mean,
        fitted=state.projection.fitted,
        latent=state.latent.mean,
        weights=state.weights.mean,
    )
    preconditioner = _Preconditioner.at(best, data.design, priors)
    best_info = Info(elbo=-np.inf, terms={})

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, best_info
        projection, fitted, latent, weights = preconditioner.unpack(x)
        found = complete(
            best,
            data,
            priors,
            projection=projection,
            fitted=fitted,
            latent=latent,
            weights=weights,
        )
        bound = mean_field.info(found, data, priors)
        if bound.elbo > best_info.elbo:
            best, best_info = found, bound
        return -bound.elbo, -preconditioner.gradient(gradient(found, priors))

    def after_step(intermediate_result: object) -> None:
        if on_step is not None and on_step(best, best_info):
            raise StopIteration

    minimize(
        objective,
        preconditioner.pack(),
        jac=True,
        method="L-BFGS-B",
        callback=after_step,
        options={
            "maxcor": MEMORY,
            "maxfun": max_evaluations,
            "maxiter": max_evaluations,
            "ftol": 1e-12,
            "gtol": 1e-6,
        },
    )
    best = replace(best, utilities=mean_field.update_utilities(best, data))
    return best, mean_field.info(best, data, priors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preconditioner:
    """Linear map to variables in which the bound is nearly spherical.

    With phi_s the geometric mean of column s and g_j, u_j the eigenpairs of the R x R matrix
    phi^-1/2 (I / v - S_z / v^2) phi^-1/2, the projection is

        sum_j F_j theta_j (phi^-1/2 u_j)',   F_j F_j' = (I + g_j X'X)^-1.

    whitener, axes
        F, and the columns phi^-1/2 u_j, (R, R).
    regression
        S_z / v, (R, R): regression of E[Z] on X E[Q].
    latent_factor, weights_factor
        Cholesky factors of Cov(z) (R, R) and Cov(b, w_c) (K, 1+R, 1+R).
    """

    start: State
    whitener: Whitener
    axes: FloatArray
    regression: FloatArray
    latent_factor: FloatArray
    weights_factor: FloatArray

    @classmethod
    def at(cls, state: State, design: Design, priors: Priors) -> "_Preconditioner":
        """Preconditioner of a state."""
        v = priors.latent_scale**2
        r = state.latent.mean.shape[1]
        regression = state.latent.cov / v
        log_phi = np.log(state.projection_precision.mean).mean(axis=0)  # (R,) or (1,)
        scale = np.exp(-0.5 * np.broadcast_to(log_phi, r))
        value, vector = np.linalg.eigh(scale[:, None] * (np.eye(r) - regression) * scale / v)
        return cls(
            start=state,
            whitener=design.whitener(np.maximum(value, 0.0)),
            axes=scale[:, None] * vector,
            regression=regression,
            latent_factor=cholesky(state.latent.cov, name="latent covariance"),
            weights_factor=cholesky(state.weights.cov, name="weight covariance"),
        )

    def pack(self) -> FloatArray:
        """Variables of the initial state."""
        q = self.start.projection
        theta = self.whitener.coordinates(np.linalg.solve(self.axes, q.mean.T).T)
        rest = self.start.latent.mean - q.fitted @ self.regression
        z = solve_triangular(self.latent_factor, rest.T, lower=True)
        w = np.linalg.solve(self.weights_factor, self.start.weights.mean.T[..., None])
        return np.concatenate([theta.ravel(), z.ravel(), w.ravel()])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """E[Q], X E[Q], E[Z] and E[b, W] of variables x."""
        d, r = self.start.projection.mean.shape
        n = self.start.latent.mean.shape[0]
        p, k = self.start.weights.mean.shape
        theta, z, w = np.split(x, [d * r, d * r + n * r])
        turned, turned_fit = self.whitener.unfold(theta.reshape(d, r))
        projection, fitted = turned @ self.axes.T, turned_fit @ self.axes.T
        latent = fitted @ self.regression + (self.latent_factor @ z.reshape(r, n)).T
        weights = (self.weights_factor @ w.reshape(k, p, 1))[..., 0].T
        return projection, fitted, latent, weights

    def gradient(self, grad: Gradient) -> FloatArray:
        """Gradient in the variables."""
        fitted = grad.fitted + grad.latent @ self.regression
        theta = self.whitener.fold(grad.projection @ self.axes, fitted @ self.axes)
        z = self.latent_factor.T @ grad.latent.T
        w = np.swapaxes(self.weights_factor, 1, 2) @ grad.weights.T[..., None]
        return np.concatenate([theta.ravel(), z.ravel(), w.ravel()])
