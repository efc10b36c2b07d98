r"""The mean-field bound with most factors maximised out, for L-BFGS.

The bound of :mod:`bsdr_models.bsdr.mean_field` is a function of all factors. Here only three
of their means stay free,

.. math:: M = E[Z], \qquad B = E[b, W], \qquad \ell = \log E[\Phi],

and every other factor is put at its optimum: q(Q) by its ridge, q(T) by its moments, and the
covariances of Z and of (b, W) with their precisions by a small fixed point. By the envelope
theorem the gradient of the maximised bound is the partial derivative of the bound at that
optimum, so one evaluation costs one sweep. Coordinate ascent crawls along the valley in which
Q, Z and W scale together; a quasi-Newton method walks it in tens of evaluations.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from bsdr_models.bsdr import mean_field
from bsdr_models.bsdr.mean_field import Info, State
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import Data
from bsdr_models.numerics.factors import Gamma, NormalColumns, NormalRows
from bsdr_models.typing import FloatArray

# Quadrature nodes while climbing; the sweeps that follow use more.
N_NODES = 16
# Rounds of the fixed point for the covariances, and the relative change that ends it sooner.
N_INNER, INNER_TOL = 30, 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """Derivatives of the collapsed bound.

    latent
        In E[Z], (N, R).
    weights
        In E[b, W], (1 + R, K).
    log_precision
        In log E[Phi], shaped as the precisions.
    """

    latent: FloatArray
    weights: FloatArray
    log_precision: FloatArray


def complete(
    state: State,
    data: Data,
    priors: Priors,
    *,
    latent: FloatArray,
    weights: FloatArray,
    log_precision: FloatArray,
    n_nodes: int = N_NODES,
) -> State:
    """The state with the given means and every other factor at its optimum.

    Parameters
    ----------
    state : State
        Where the fixed points start; not modified.
    data : Data
    priors : Priors
    latent : (N, R)
    weights : (1 + R, K)
    log_precision : as the precisions of the projection
    n_nodes : int
        Quadrature nodes of the cone moments.
    """
    shape = state.projection_precision.shape
    phi = Gamma(shape=shape, rate=shape * np.exp(-log_precision))
    tau = mean_field.noise_mean(state)
    noise = state.noise_precision
    z = replace(state.latent, mean=latent)
    w = replace(state.weights, mean=weights)
    square = weights**2
    variance = w.variance
    mean = latent @ weights[1:] + weights[0]
    residual = np.sum((state.scores.mean - mean) ** 2, axis=0)
    size = np.sum(mean**2, axis=0)
    for _ in range(N_INNER):
        second = mean_field.second_moment(w)
        cov, log_det = mean_field.latent_cov(second, tau, priors)
        z = NormalRows(mean=latent, cov=cov, log_det=log_det)
        psi = mean_field.weight_gamma(square + variance, priors)
        moment = mean_field.latent_moment(z)
        w_cov, w_log_det = mean_field.weights_cov(moment, psi, tau)
        w = NormalColumns(mean=weights, cov=w_cov, log_det=w_log_det)
        if noise is not None:
            spread = np.einsum("kpq,pq->k", mean_field.second_moment(w), moment) - size
            noise = mean_field.noise_gamma(residual + spread, latent.shape[0], priors)
            tau = noise.mean
        change = np.max(np.abs(w.variance / variance - 1.0))
        variance = w.variance
        if change < INNER_TOL:
            break
    psi = mean_field.weight_gamma(square + variance, priors)
    state = replace(
        state,
        projection_precision=phi,
        projection=data.design.ridge(latent, phi.mean, priors.latent_scale**2),
        latent=z,
        weight_precision=psi,
        weights=w,
        noise_precision=noise,
    )
    return replace(state, scores=mean_field.update_scores(state, data, n_nodes=n_nodes))


def gradient(state: State, priors: Priors) -> Gradient:
    """Partial derivatives of the bound at a state made by :func:`complete`."""
    tau = mean_field.noise_mean(state)
    phi, z, w = state.projection_precision, state.latent, state.weights
    slope = tau * (state.scores.mean - mean_field.score_mean(state))  # (N, K)
    cov = np.einsum("k,kpq->pq", tau, w.cov)
    latent = (state.projection.fitted - z.mean) / priors.latent_scale**2
    latent = latent + slope @ w.mean[1:].T - z.mean @ cov[1:, 1:] - cov[0, 1:]
    weights = np.vstack([slope.sum(axis=0), z.mean.T @ slope])
    weights = weights - state.weight_precision.mean * w.mean
    weights[1:] -= z.mean.shape[0] * (z.cov @ w.mean[1:]) * tau
    rate = priors.projection_rate + 0.5 * mean_field.tied_square(state)
    log_precision = phi.shape - phi.mean * rate
    return Gradient(latent=latent, weights=weights, log_precision=log_precision)


def maximise(
    state: State,
    data: Data,
    priors: Priors,
    *,
    max_evaluations: int,
    on_step: Callable[[State, Info], bool | None] | None = None,
) -> tuple[State, Info]:
    """Climb the collapsed bound by L-BFGS from a state.

    The variables are whitened by the covariances of the starting state, so a long climb is best
    cut into several calls.

    Parameters
    ----------
    state : State
    data : Data
    priors : Priors
    max_evaluations : int
        Limit on evaluations of bound and gradient, each about one sweep.
    on_step : callable, optional
        Called with the state and its bound after every accepted step; a true value stops.

    Returns
    -------
    state : State
        The best one seen.
    info : Info
        Its exact bound, with all quadrature nodes.
    """
    frame = _Frame.at(state)
    best, best_info = state, Info(elbo=-np.inf, terms={})

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, best_info
        latent, weights, log_precision = frame.unpack(x)
        got = complete(
            best, data, priors, latent=latent, weights=weights, log_precision=log_precision
        )
        bound = mean_field.info(got, data, priors)
        if bound.elbo > best_info.elbo:
            best, best_info = got, bound
        return -bound.elbo, -frame.pull(gradient(got, priors))

    def after_step(intermediate_result: object) -> None:
        if on_step is not None and on_step(best, best_info):
            raise StopIteration

    minimize(
        objective,
        frame.pack(),
        jac=True,
        method="L-BFGS-B",
        callback=after_step,
        options={
            "maxcor": 20,
            "maxfun": max_evaluations,
            "maxiter": max_evaluations,
            "ftol": 1e-12,
            "gtol": 1e-6,
        },
    )
    best = replace(best, scores=mean_field.update_scores(best, data))
    return best, mean_field.info(best, data, priors)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Coordinates in which the posterior of the free means is about spherical.

    The reference point and, for each block, what one unit along its coordinates means: Cholesky
    factors of Cov(z) (R, R) and Cov(b, w_c) (K, 1+R, 1+R), and 1 / sqrt(shape) for log E[Phi].
    """

    latent: FloatArray
    weights: FloatArray
    log_precision: FloatArray
    latent_factor: FloatArray
    weights_factor: FloatArray
    precision_scale: FloatArray

    @classmethod
    def at(cls, state: State) -> "_Frame":
        """Frame at a state."""
        phi = state.projection_precision
        return cls(
            latent=state.latent.mean,
            weights=state.weights.mean,
            log_precision=np.log(phi.mean),
            latent_factor=np.linalg.cholesky(state.latent.cov),
            weights_factor=np.linalg.cholesky(state.weights.cov),
            precision_scale=1.0 / np.sqrt(phi.shape),
        )

    def pack(self) -> FloatArray:
        """Coordinates of the reference point."""
        z = solve_triangular(self.latent_factor, self.latent.T, lower=True)
        w = np.linalg.solve(self.weights_factor, self.weights.T[..., None])
        return np.concatenate(
            [z.ravel(), w.ravel(), (self.log_precision / self.precision_scale).ravel()]
        )

    def _split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        n, r = self.latent.shape
        p, k = self.weights.shape
        z, w, ell = np.split(x, [n * r, n * r + p * k])
        return z.reshape(r, n), w.reshape(k, p, 1), ell.reshape(self.log_precision.shape)

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E[Z], E[b, W] and log E[Phi] at coordinates x."""
        z, w, ell = self._split(x)
        latent = np.ascontiguousarray((self.latent_factor @ z).T)
        return latent, (self.weights_factor @ w)[..., 0].T, ell * self.precision_scale

    def pull(self, grad: Gradient) -> FloatArray:
        """Gradient in the coordinates."""
        z = self.latent_factor.T @ grad.latent.T
        w = np.swapaxes(self.weights_factor, 1, 2) @ grad.weights.T[..., None]
        ell = grad.log_precision * self.precision_scale
        return np.concatenate([z.ravel(), w.ravel(), ell.ravel()])
