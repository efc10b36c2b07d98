r"""Optimal linear change of the latent basis: a parameter expansion [1]_ [2]_.

A change of basis z -> R z, W -> W R^-1, eta -> R^-T eta, R invertible, changes neither
reconstructions nor class scores under q, but the agreement of the factors with their priors. Plain
sweeps converge slowly along such changes. The closed form that is best without classifiers and with
b_r = 0 whitens the latent coordinates and makes the columns of the loadings orthogonal; it is taken
where the exact bound rises. It costs O(R^3).

References
----------
.. [1] A. Qi, T. Jaakkola (2007). Parameter expanded variational Bayesian methods. NIPS 19.
.. [2] J. Luttinen, A. Ilin (2010). Transformations in variational Bayesian factor analysis to
       speed up learning. Neurocomputing 73.
"""

from dataclasses import replace

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import mean_field
from bsdr_models.bm2pca.paper.mean_field import Data, Latent, State, Weights
from bsdr_models.bm2pca.paper.views import Moments, ViewState
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.linalg import cholesky


def _transpose(matrix: FloatArray) -> FloatArray:
    return np.swapaxes(matrix, -1, -2)


def principal_basis(state: State, data: Data) -> FloatArray:
    """R that whitens latent coordinates and makes columns of loadings orthogonal, (P, R, R)."""
    half = cholesky(state.latent.second / data.n_samples, name="latent second moment")
    second = sum(
        own.noise_precision.mean[:, None, None] * own.loadings.second(view)
        for own, view in zip(state.views, data.views, strict=True)
    )
    _, vectors = np.linalg.eigh(_transpose(half) @ second @ half)
    return _transpose(vectors) @ np.linalg.inv(half)


def rotate(state: State, data: Data, priors: Priors) -> State:
    """Change the basis of problems whose bound rises by it, with q(r) and q(nu) updated."""
    basis = principal_basis(state, data)
    found = _update_precisions(transform(state, basis), data, priors)
    rises = _bounds(found, data, priors) >= _bounds(state, data, priors)
    if rises.all():
        return found
    basis = np.where(rises[:, None, None], basis, np.eye(basis.shape[-1]))
    return _update_precisions(transform(state, basis), data, priors)


def _update_precisions(state: State, data: Data, priors: Priors) -> State:
    state = replace(state, views=mean_field.update_loading_precision(state, data, priors))
    return replace(state, weight_precision=mean_field.update_weight_precision(state, priors))


def _bounds(state: State, data: Data, priors: Priors) -> FloatArray:
    """Bound of each problem, (P,)."""
    return np.sum(list(mean_field.bound_terms(state, data, priors).values()), axis=0)


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
