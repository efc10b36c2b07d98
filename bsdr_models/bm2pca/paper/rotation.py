r"""Optimal linear change of the latent basis: a parameter expansion [1]_ [2]_.

A change of basis z -> R z, W -> W R^-1, eta -> R^-T eta, R invertible, changes neither
reconstructions nor class scores under q, but the agreement of the factors with their priors. Plain
sweeps converge slowly along such changes. With q(r) and q(nu) profiled out the bound is, up to a
constant,

.. math::
    J(R) = (N - \textstyle\sum_v d_v - K) \log |\det R| - \tfrac12 \operatorname{tr} R A R^\top
    - \sum_v (a_r + \tfrac{d_v}{2}) \sum_i
      \log (b_r + \tfrac12 [R^{-\top} B_v R^{-1}]_{ii}) \\
    - (a_\nu + \tfrac{R + 1}{2}) \sum_c
      \log (b_\nu + \tfrac12 E[\eta_{c0}^2] + \tfrac12 \operatorname{tr} R^{-\top} E_c R^{-1})

with A = sum E[z z'], B_v = E[W_v'W_v], E_c = E[eta_c eta_c']. It costs O(R^3).

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
from bsdr_models.bm2pca.paper import mean_field
from bsdr_models.bm2pca.paper.mean_field import Data, Latent, State, Weights
from bsdr_models.bm2pca.paper.views import Moments, ViewState
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.linalg import cholesky

# L-BFGS steps after the closed form, which neglects the classifiers and b_r.
N_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The function J. P problems, R components, K outcomes.

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
        inverse = np.linalg.inv(matrix)
        transformed = matrix @ self.latent @ _transpose(matrix)
        value = self.multiplicity * np.linalg.slogdet(matrix)[1]
        value = value - 0.5 * np.einsum("prr->p", transformed)
        relative = self.multiplicity * np.eye(matrix.shape[-1]) - transformed  # gradient times R'
        for second, shape in zip(self.loadings, self.loading_shapes, strict=True):
            transformed = _transpose(inverse) @ second @ inverse
            rate = self.loading_rate + 0.5 * np.einsum("prr->pr", transformed)
            value = value - shape * np.log(rate).sum(axis=1)
            relative = relative + transformed * (shape / rate)[:, None]
        transformed = _transpose(inverse)[:, None] @ self.weights @ inverse[:, None]
        rate = self.weight_rates + 0.5 * np.einsum("pkrr->pk", transformed)
        value = value - self.weight_shape * np.log(rate).sum(axis=1)
        relative = relative + np.einsum("pk,pkrs->prs", self.weight_shape / rate, transformed)
        return value, relative @ _transpose(inverse)


def _transpose(matrix: FloatArray) -> FloatArray:
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


def principal_basis(state: State, data: Data) -> FloatArray:
    """R that whitens latent coordinates and makes columns of loadings orthogonal, (P, R, R).

    It maximises J for one view, b_r = 0 and no classifier.
    """
    half = cholesky(state.latent.second / data.n_samples, name="latent second moment")
    second = sum(
        own.noise_precision.mean[:, None, None] * own.loadings.second(view)
        for own, view in zip(state.views, data.views, strict=True)
    )
    _, vectors = np.linalg.eigh(_transpose(half) @ second @ half)
    return _transpose(vectors) @ np.linalg.inv(half)


def best_basis(state: State, data: Data, priors: Priors, *, n_steps: int = N_STEPS) -> FloatArray:
    """R of higher J than the identity, (P, R, R); the identity if none was found."""
    value = profile(state, data, priors)
    identity = np.tile(np.eye(state.latent.second.shape[-1]), (len(state.latent.second), 1, 1))
    current = value(identity)[0]
    start = principal_basis(state, data)
    start = np.where((value(start)[0] > current)[:, None, None], start, identity)

    def loss(vector: FloatArray) -> tuple[float, FloatArray]:
        now, gradient = value(vector.reshape(start.shape) @ start)
        return float((current - now).sum()), -(gradient @ _transpose(start)).ravel()

    try:
        with np.errstate(all="ignore"):
            step = minimize(
                loss, identity.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": n_steps}
            ).x
            found = step.reshape(start.shape) @ start
            improved = value(found)[0] > value(start)[0]
    except np.linalg.LinAlgError:  # singular R in the line search
        return start
    return np.where(improved[:, None, None], found, start)


def rotate(state: State, data: Data, priors: Priors) -> State:
    """Change the basis, then update q(r) and q(nu). The bound never falls."""
    state = transform(state, best_basis(state, data, priors))
    state = replace(state, views=mean_field.update_loading_precision(state, data, priors))
    return replace(state, weight_precision=mean_field.update_weight_precision(state, priors))


def transform(state: State, matrix: FloatArray) -> State:
    """Express q in coordinates R z, except q(r) and q(nu); ``matrix`` is R, (P, R, R)."""
    log_det = np.linalg.slogdet(matrix)[1]
    return replace(
        state,
        views=tuple(_transform_view(own, matrix, log_det) for own in state.views),
        latent=_transform_latent(state.latent, matrix),
        weights=_transform_weights(state.weights, matrix, log_det),
    )


def _transform_view(own: ViewState, matrix: FloatArray, log_det: FloatArray) -> ViewState:
    inverse, old = np.linalg.inv(matrix), own.loadings
    loadings = replace(
        old,
        mean=old.mean @ inverse,
        cov=_transpose(inverse)[:, None] @ old.cov @ inverse[:, None],
        log_det=old.log_det - 2.0 * log_det[:, None],
    )
    return replace(own, loadings=loadings)


def _transform_latent(latent: Latent, matrix: FloatArray) -> Latent:
    transposed = _transpose(matrix)
    moments = tuple(
        Moments(
            total=each.total @ transposed,
            second=matrix[:, None] @ each.second @ transposed[:, None],
            cross=each.cross @ transposed,
        )
        for each in latent.moments
    )
    return Latent(
        mean=latent.mean @ transposed,
        cov=latent.cov.transformed(matrix),
        moments=moments,
        second=matrix @ latent.second @ transposed,
    )


def _transform_weights(weights: Weights, matrix: FloatArray, log_det: FloatArray) -> Weights:
    p, q = weights.mean.shape[:2]
    full = np.zeros((p, q, q))  # the bias stays
    full[:, 0, 0] = 1.0
    full[:, 1:, 1:] = _transpose(np.linalg.inv(matrix))
    return Weights(
        mean=full @ weights.mean,
        cov=full[:, None] @ weights.cov @ _transpose(full)[:, None],
        log_det=weights.log_det - 2.0 * log_det[:, None],
    )
