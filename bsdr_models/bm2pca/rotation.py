r"""The best coordinates of the latent space, in closed form but for a few steps.

A change of coordinates z -> R z, W -> W R^-1, eta -> R^-T eta, R invertible, changes neither the
rows nor the scores under q, but it changes how well the factors agree with their priors. Sweeps
crawl along such changes; a parameter expansion [1]_ [2]_ takes them in one stride. With q(r) and
q(nu) at their optima the bound is, up to a constant,

.. math::
    J(R) = (N - \textstyle\sum_v d_v - K) \log |\det R| - \tfrac12 \operatorname{tr} R A R^\top
    - \sum_v (a_r + \tfrac{d_v}{2}) \sum_i
      \log (b_r + \tfrac12 [R^{-\top} B_v R^{-1}]_{ii}) \\
    - (a_\nu + \tfrac{R + 1}{2}) \sum_c
      \log (b_\nu + \tfrac12 E[\eta_{c0}^2] + \tfrac12 \operatorname{tr} R^{-\top} E_c R^{-1})

with A = sum E[z z'], B_v = E[W_v'W_v], E_c = E[eta_c eta_c']. It costs O(R^3), whatever the rows.

References
----------
.. [1] A. Qi, T. Jaakkola (2007). Parameter expanded variational Bayesian methods. NIPS 19.
.. [2] J. Luttinen, A. Ilin (2010). Transformations in variational Bayesian factor analysis to
       speed up learning. Neurocomputing 73.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import mean_field
from bsdr_models.bm2pca.mean_field import Data, Latent, State, Weights
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.views import Moments, ViewState
from bsdr_models.numerics.linalg import cholesky

# Quasi-Newton steps after the closed form, which neglects the classifiers and b_r.
N_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """J and what it depends on. P problems, R components, K outcomes.

    multiplicity
        N - sum of d_v - K.
    latent
        A, (P, R, R).
    loadings
        B_v, (P, R, R) each.
    loading_shapes
        a_r + d_v / 2.
    loading_rate
        b_r.
    weights
        E_c, (P, K, R, R).
    weight_shape
        a_nu + (R + 1) / 2.
    weight_rates
        b_nu + E[eta_c0**2] / 2, (P, K).
    """

    multiplicity: float
    latent: FloatArray
    loadings: tuple[FloatArray, ...]
    loading_shapes: tuple[float, ...]
    loading_rate: float
    weights: FloatArray
    weight_shape: float
    weight_rates: FloatArray

    def __call__(self, matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
        """J and its gradient at R: (P, R, R) -> (P,), (P, R, R)."""
        back = np.linalg.inv(matrix)
        moved = matrix @ self.latent @ _t(matrix)
        value = self.multiplicity * np.linalg.slogdet(matrix)[1]
        value = value - 0.5 * np.einsum("prr->p", moved)
        relative = self.multiplicity * np.eye(matrix.shape[-1]) - moved  # gradient times R'
        for second, shape in zip(self.loadings, self.loading_shapes, strict=True):
            moved = _t(back) @ second @ back
            rate = self.loading_rate + 0.5 * np.einsum("prr->pr", moved)
            value = value - shape * np.log(rate).sum(axis=1)
            relative = relative + moved * (shape / rate)[:, None]
        moved = _t(back)[:, None] @ self.weights @ back[:, None]
        rate = self.weight_rates + 0.5 * np.einsum("pkrr->pk", moved)
        value = value - self.weight_shape * np.log(rate).sum(axis=1)
        relative = relative + np.einsum("pk,pkrs->prs", self.weight_shape / rate, moved)
        return value, relative @ _t(back)


def _t(matrix: FloatArray) -> FloatArray:
    return np.swapaxes(matrix, -1, -2)


def profile(state: State, data: Data, priors: Priors) -> Profile:
    """J at a state."""
    k = data.margins.y.shape[2]
    sizes = [view.n_features for view in data.views]
    second = state.weights.second
    return Profile(
        multiplicity=float(data.n_samples - sum(sizes) - k),
        latent=state.latent.second,
        loadings=tuple(
            own.loadings.second(view) for own, view in zip(state.views, data.views, strict=True)
        ),
        loading_shapes=tuple(priors.loading_shape + 0.5 * d for d in sizes),
        loading_rate=priors.loading_rate,
        weights=second[..., 1:, 1:],
        weight_shape=priors.weight_shape + 0.5 * second.shape[-1],
        weight_rates=priors.weight_rate + 0.5 * second[..., 0, 0],
    )


def principal(state: State, data: Data) -> FloatArray:
    """R that makes latent positions white and columns of loadings orthogonal, (P, R, R).

    It maximises J for one view, b_r = 0 and no classifier.
    """
    half = cholesky(state.latent.second / data.n_samples, name="second moment of the positions")
    second = sum(
        own.noise_precision.mean[:, None, None] * own.loadings.second(view)
        for own, view in zip(state.views, data.views, strict=True)
    )
    _, vectors = np.linalg.eigh(_t(half) @ second @ half)
    return _t(vectors) @ np.linalg.inv(half)


def best(state: State, data: Data, priors: Priors, *, n_steps: int = N_STEPS) -> FloatArray:
    """R at which J is higher than where we are, (P, R, R); the identity where none was found."""
    value = profile(state, data, priors)
    stay = np.tile(np.eye(state.latent.second.shape[-1]), (len(state.latent.second), 1, 1))
    here = value(stay)[0]
    start = principal(state, data)
    start = np.where((value(start)[0] > here)[:, None, None], start, stay)

    def loss(vector: FloatArray) -> tuple[float, FloatArray]:
        now, slope = value(vector.reshape(start.shape) @ start)
        return float((here - now).sum()), -(slope @ _t(start)).ravel()

    try:
        with np.errstate(all="ignore"):
            turn = minimize(
                loss, stay.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": n_steps}
            ).x
            found = turn.reshape(start.shape) @ start
            higher = value(found)[0] > value(start)[0]
    except np.linalg.LinAlgError:  # a step of the search was singular
        return start
    return np.where(higher[:, None, None], found, start)


def rotate(state: State, data: Data, priors: Priors) -> State:
    """State in better coordinates, with q(r) and q(nu) to match. The bound never falls."""
    state = transform(state, best(state, data, priors))
    state = replace(state, views=mean_field.update_loading_precision(state, data, priors))
    return replace(state, weight_precision=mean_field.update_weight_precision(state, priors))


def transform(state: State, matrix: FloatArray) -> State:
    """The same q in coordinates R z of the latent space, but for q(r) and q(nu).

    Parameters
    ----------
    state : State
    matrix : (P, R, R)
        R, invertible.
    """
    log_det = np.linalg.slogdet(matrix)[1]
    return replace(
        state,
        views=tuple(_transform_view(own, matrix, log_det) for own in state.views),
        latent=_transform_latent(state.latent, matrix, log_det),
        weights=_transform_weights(state.weights, matrix, log_det),
    )


def _transform_view(own: ViewState, matrix: FloatArray, log_det: FloatArray) -> ViewState:
    back, old = np.linalg.inv(matrix), own.loadings
    loadings = replace(
        old,
        mean=old.mean @ back,
        cov=_t(back)[:, None] @ old.cov @ back[:, None],
        log_det=old.log_det - 2.0 * log_det[:, None],
    )
    return replace(own, loadings=loadings)


def _transform_latent(latent: Latent, matrix: FloatArray, log_det: FloatArray) -> Latent:
    across, pooled = _t(matrix), latent.pooled
    if pooled is not None:
        pooled = replace(
            pooled,
            map=matrix @ pooled.map,
            shift=np.einsum("prs,ps->pr", matrix, pooled.shift),
            cov=matrix @ pooled.cov @ across,
            log_det=pooled.log_det + 2.0 * log_det,
        )
    moments = tuple(
        Moments(
            total=each.total @ across,
            second=matrix[:, None] @ each.second @ across[:, None],
            cross=each.cross @ across,
        )
        for each in latent.moments
    )
    return Latent(
        mean=latent.mean @ across,
        cov=latent.cov.transformed(matrix),
        pooled=pooled,
        moments=moments,
        second=matrix @ latent.second @ across,
    )


def _transform_weights(weights: Weights, matrix: FloatArray, log_det: FloatArray) -> Weights:
    p, q = weights.mean.shape[:2]
    whole = np.zeros((p, q, q))  # the bias stays
    whole[:, 0, 0] = 1.0
    whole[:, 1:, 1:] = _t(np.linalg.inv(matrix))
    return Weights(
        mean=whole @ weights.mean,
        cov=whole[:, None] @ weights.cov @ _t(whole)[:, None],
        log_det=weights.log_det - 2.0 * log_det[:, None],
    )
