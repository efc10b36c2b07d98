r"""Mean-field variational inference for BM2PCA.

q factorises as q(t) q(W) q(r) q(tau), one such set per view, and q(Z) q(eta) q(nu) q(lambda).
Every ``update_*`` returns the optimal factor with the others held fixed; ``step`` runs them once.
``bound_terms`` is the exact bound of the pseudo-posterior, with all constants. The margin factors
are no likelihood of the labels, so the bound never compares costs.

P problems with the same samples are fitted at once: one per class for one-vs-rest, or several
costs in a cross-validation. Each has K outcomes; K = 1 is the paper's model, K > 1 shares one
subspace. Unlabelled samples contribute their features alone.

The printed updates [1]_ can lower the bound. Here the argument of q(lambda) is E[(1 - y f)**2],
not (1 - y E[f])**2; the linear term of a label in q(z) is C (1 + C E[1/lambda]) y; the moment
E[eta_0 eta] includes their covariance; the shape of q(nu) gains (R + 1) / 2.

References
----------
.. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin principal
       component analysis. AAAI.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import initial_values, views
from bsdr_models.bm2pca.paper.loss_augmentation import Margins
from bsdr_models.bm2pca.paper.views import Moments, View, ViewState
from bsdr_models.bm2pca.spec import Priors
from bsdr_models.inference.coordinate_ascent import Bound
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.linalg import cholesky, inv_spd

Start = Literal["label", "pca"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Samples and targets (P, N, K) of P problems."""

    views: tuple[View, ...]
    margins: Margins

    @property
    def n_samples(self) -> int:
        """N."""
        return self.margins.y.shape[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """q(Z): one normal per sample."""

    mean: FloatArray  # (P, N, R)
    # cov, log_det: S_n, (P, N, R, R), and log |S_n|, (P, N).
    cov: FloatArray
    log_det: FloatArray
    moments: tuple[Moments, ...]  # Sufficient statistics of q(Z) for each view
    second: FloatArray  # Sum of E[z z'] over all samples, (P, R, R)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """q(eta): one normal per outcome over [bias; weights].

    Shapes are mean (P, 1 + R, K), cov (P, K, 1 + R, 1 + R), log |cov| (P, K).
    """

    mean: FloatArray
    cov: FloatArray
    log_det: FloatArray

    @property
    def second(self) -> FloatArray:
        """E[eta eta'], (P, K, 1 + R, 1 + R)."""
        mean = np.swapaxes(self.mean, 1, 2)
        return self.cov + mean[..., :, None] * mean[..., None, :]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All factors of q. P problems, N samples, R components, K outcomes."""

    views: tuple[ViewState, ...]  # t, W, r, tau of each view
    latent: Latent  # Z
    weights: Weights  # eta, bias first
    weight_precision: Gamma  # nu, Gammas (P, K)
    slack: FloatArray  # s of q(lambda), (P, N, K); for real targets (2, P, N, K)


def init(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    rng: np.random.Generator,
    start: Start = "label",
) -> State:
    """Initial state with R = ``n_components``.

    ``start`` takes the leading latent coordinates from the targets and the next ones from principal
    axes, less what the targets explain; or all from principal axes. Those beyond the rank of both
    are standard normal.
    """
    (p, n, k), r = data.margins.y.shape, n_components
    mean = np.tile(rng.standard_normal((n, n_components)), (p, 1, 1))
    first = 0
    if start == "label":
        found = initial_values.target_coordinates(
            initial_values.complete_targets(data.margins), data.views
        )[..., :n_components]
        first = found.shape[-1]
        mean[..., :first] = found
    if first < n_components:
        found = initial_values.principal_scores(data.views, n_components - first)
        found = initial_values.residual(found, mean[..., :first])
        mean[..., first : first + found.shape[-1]] = found
    labelled = data.margins.observed.any(axis=(0, 2))
    if labelled.any():  # the others begin at the mean
        mean[:, ~labelled, first:] = 0.0
    cov = np.tile(np.eye(r), (p, n, 1, 1))
    state = State(
        views=tuple(views.initial_state(view, n_problems=p, n_components=r) for view in data.views),
        latent=make_latent(mean, cov, np.zeros((p, n)), data),
        weights=_ridge_weights(mean, initial_values.complete_targets(data.margins)),
        weight_precision=Gamma(shape=np.ones((p, k)), rate=np.ones((p, k))),
        slack=np.ones((p, n, k)),
    )
    return replace(state, slack=update_slack(state, data))


def _ridge_weights(mean: FloatArray, y: FloatArray) -> Weights:
    """Ridge regression of the targets (P, N, K) on latent coordinates."""
    full = with_ones(mean)
    across, (p, k), q = np.swapaxes(full, 1, 2), (len(y), y.shape[-1]), full.shape[-1]
    return Weights(
        mean=np.linalg.solve(across @ full + np.eye(q), across @ y),
        cov=np.tile(0.01 * np.eye(q), (p, k, 1, 1)),
        log_det=np.full((p, k), q * np.log(0.01)),
    )


def with_ones(mean: FloatArray) -> FloatArray:
    """[1, z], (..., N, 1 + R)."""
    return np.concatenate([np.ones((*mean.shape[:-1], 1)), mean], axis=-1)


def _flat(matrices: FloatArray) -> FloatArray:
    """Matrices (P, N, R, R) as rows, (P, N, R R)."""
    return matrices.reshape(*matrices.shape[:2], -1)


def make_latent(mean: FloatArray, cov: FloatArray, log_det: FloatArray, data: Data) -> Latent:
    """q(Z) of `Latent` with its sufficient statistics for the views."""
    total, second = mean.sum(axis=1), np.swapaxes(mean, 1, 2) @ mean + cov.sum(axis=1)
    found: list[Moments] = []
    for view in data.views:
        cross = view.project_back(mean)
        if view.mask is None:
            found.append(Moments(total=total[:, None], second=second[:, None], cross=cross))
            continue
        p, n, r = mean.shape
        each = (mean[..., :, None] * mean[..., None, :] + cov).reshape(p, n, r * r)
        found.append(
            Moments(
                total=view.mask.T @ mean,
                second=(view.mask.T @ each).reshape(p, -1, r, r),
                cross=cross,
            )
        )
    return Latent(mean=mean, cov=cov, log_det=log_det, moments=tuple(found), second=second)


def update_views(state: State, data: Data, priors: Priors) -> State:
    """Update W, r, t and tau of every view, given the sufficient statistics of q(Z)."""
    updated = [
        views.update(own, moments, view, priors) for own, moments, view in _by_view(state, data)
    ]
    return replace(state, views=tuple(updated))


def _by_view(state: State, data: Data) -> Iterator[tuple[ViewState, Moments, View]]:
    return zip(state.views, state.latent.moments, data.views, strict=True)


def update_latent(state: State, data: Data) -> Latent:
    r"""Optimal q(Z).

    With w the weights and g the linear terms of the margins,

    .. math::
        S_n^{-1} = I + \sum_v E[\tau_v] E[W_v^\top W_v] + \sum_c w_{nc} E[\eta_c \eta_c^\top],
        \quad
        m_n = S_n \{\sum_v E[\tau_v] M_v^\top (x_n - E[t_v])
        + \sum_c (g_{nc} E[\eta_c] - w_{nc} E[\eta_{c0} \eta_c])\}
    """
    weights, linear_terms = _margin_terms(state, data)
    second = state.weights.second
    forms, crossed = second[..., 1:, 1:], second[..., 0, 1:]  # (P, K, R, R), (P, K, R)
    sides = np.concatenate([linear_terms, weights], axis=-1)
    linear_term = sides @ np.concatenate(
        [np.swapaxes(state.weights.mean[:, 1:], 1, 2), -crossed], axis=1
    )
    (p, n, k), r = weights.shape, forms.shape[-1]
    # Precision of z_n given its features: (P, 1, R, R), or (P, N, R, R) with missing values.
    base: FloatArray = np.eye(r) + sum(
        views.latent_precision(own, view) for own, view in zip(state.views, data.views, strict=True)
    )
    for own, view in zip(state.views, data.views, strict=True):
        linear_term += views.latent_linear_term(own, view)
    if base.shape[1] == 1 and k == 1:
        cov, log_det = inverse_pencils(base[:, 0], forms[:, 0], weights[..., 0])
    else:
        precision = (weights @ forms.reshape(p, k, r * r)).reshape(p, n, r, r) + base
        cov, log_det = inv_spd(precision, name="latent precision")
    return make_latent(np.einsum("pnrs,pns->pnr", cov, linear_term), cov, log_det, data)


def inverse_pencils(
    A: FloatArray, B: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Inverses of A + w_n B, (P, N, R, R), and their log determinants (P, N), by one eigenbasis.

    With A = L L', positive definite, and :math:`L^{-1} B L^{-\top} = U \Omega U^\top` they are
    :math:`V (I + w_n \Omega)^{-1} V^\top`, :math:`V = L^{-\top} U`; A and B are (P, R, R), w
    (P, N).
    """
    half = np.linalg.inv(cholesky(A, name="latent precision"))
    half_t = np.swapaxes(half, -1, -2)
    values, vectors = np.linalg.eigh(half @ B @ half_t)
    axes = (half_t @ vectors)[:, None]
    scales = 1.0 / (1.0 + weights[..., None] * np.maximum(values, 0.0)[:, None])
    log_det = 2.0 * np.log(np.einsum("pii->pi", half)).sum(axis=-1)[:, None]
    return (axes * scales[..., None, :]) @ np.swapaxes(axes, -1, -2), log_det + np.log(scales).sum(
        axis=-1
    )


def _margin_terms(state: State, data: Data) -> tuple[FloatArray, FloatArray]:
    """Weights and linear terms of the margins, each (P, N, K)."""
    return data.margins.weights(state.slack), data.margins.linear_terms(state.slack)


def update_weights(state: State, data: Data) -> Weights:
    r"""Optimal q(eta); sums run over labelled samples.

    .. math::
        S_c^{-1} = E[\nu_c] I + \sum_n w_{nc} E[\tilde z_n \tilde z_n^\top], \qquad
        \mu_c = S_c \sum_n g_{nc} E[\tilde z_n]
    """
    weights, linear_terms = _margin_terms(state, data)
    full = with_ones(state.latent.mean)  # (P, N, 1 + R)
    full_t = np.swapaxes(full, 1, 2)
    outer = [full_t @ (weights[..., c, None] * full) for c in range(weights.shape[-1])]
    precision = state.weight_precision.mean[..., None, None] * np.eye(full.shape[-1])
    precision[..., 1:, 1:] += (np.swapaxes(weights, 1, 2) @ _flat(state.latent.cov)).reshape(
        precision[..., 1:, 1:].shape
    )
    precision += np.stack(outer, axis=1)
    cov, log_det = inv_spd(precision, name="weight precision")
    return Weights(
        mean=np.einsum("pkqs,psk->pqk", cov, full_t @ linear_terms), cov=cov, log_det=log_det
    )


def update_weight_precision(state: State, priors: Priors) -> Gamma:
    """Optimal q(nu): Ga(a_nu + (R + 1) / 2, b_nu + tr E[eta eta'] / 2)."""
    square = np.einsum("pkqq->pk", state.weights.second)
    q = state.weights.mean.shape[1]
    return Gamma(
        shape=np.full_like(square, priors.weight_shape + 0.5 * q),
        rate=priors.weight_rate + 0.5 * square,
    )


def update_slack(state: State, data: Data) -> FloatArray:
    """Optimal q(lambda), given by s = sqrt E[u**2]."""
    return data.margins.scales(*score_moments(state))


def score_moments(state: State) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of f under q, each (P, N, K)."""
    weights, latent = state.weights, state.latent
    full = with_ones(latent.mean)
    variance = _flat(latent.cov) @ np.swapaxes(_flat(weights.second[..., 1:, 1:]), 1, 2)
    for c in range(variance.shape[-1]):
        variance[..., c] += np.einsum("pnq,pnq->pn", full @ weights.cov[:, c], full)
    return full @ weights.mean, variance


def sweep(state: State, data: Data, priors: Priors) -> State:
    """All updates once; the input is unchanged."""
    state = update_views(state, data, priors)
    state = replace(state, latent=update_latent(state, data))
    state = replace(state, weights=update_weights(state, data))
    state = replace(state, weight_precision=update_weight_precision(state, priors))
    return replace(state, slack=update_slack(state, data))


def step(state: State, data: Data, priors: Priors) -> tuple[State, Bound]:
    """One sweep of coordinate ascent, which never lowers the bound."""
    state = sweep(state, data, priors)
    return state, info(state, data, priors)


def info(state: State, data: Data, priors: Priors) -> Bound:
    """The exact bound at any state."""
    terms = {name: float(v.sum()) for name, v in bound_terms(state, data, priors).items()}
    return Bound(terms)


def bound_terms(state: State, data: Data, priors: Priors) -> dict[str, FloatArray]:
    """Terms of the bound by factor, expected log density plus entropy, in nats, (P,)."""
    terms: dict[str, FloatArray] = {}
    for own, moments, view in _by_view(state, data):
        for name, value in views.bound_terms(own, moments, view, priors).items():
            terms[name] = terms.get(name, 0.0) + value
    latent, weights, nu = state.latent, state.weights, state.weight_precision
    entropy = 0.5 * latent.log_det.sum(axis=1)
    square = np.einsum("prr->p", latent.second)
    terms["latent"] = entropy + 0.5 * data.n_samples * latent.second.shape[-1] - 0.5 * square
    each = weights.mean.shape[1] * (nu.mean_log + 1.0) + weights.log_det
    each = each - nu.mean * np.einsum("pkqq->pk", weights.second)
    terms["weights"] = 0.5 * each.sum(axis=1)
    terms["weight_precision"] = nu.negative_divergence(priors.weight_shape, priors.weight_rate).sum(
        axis=1
    )
    terms["margins"] = data.margins.bound(*score_moments(state), state.slack)
    return terms


def pack(state: State) -> FloatArray:
    """Parameters of the state as a vector, for extrapolation; positive numbers by their log.

    The next sweep recomputes what is left out: loadings and covariances.
    """
    return np.concatenate([part.ravel() for part in _packed_arrays(state)])


def _packed_arrays(state: State) -> list[FloatArray]:
    latent = state.latent
    parts = [latent.mean, state.weights.mean, np.log(state.weight_precision.mean)]
    parts.append(np.log(state.slack))
    for own in state.views:
        parts.append(own.offset.mean)
        parts += [np.log(own.loading_precision.mean), np.log(own.noise_precision.mean)]
    return parts


def unpack(vector: FloatArray, state: State, data: Data) -> State:
    """Inverse of :func:`pack`; the next sweep makes the state consistent."""
    old = _packed_arrays(state)
    pieces = np.split(vector, np.cumsum([part.size for part in old])[:-1])
    parts = iter([piece.reshape(part.shape) for piece, part in zip(pieces, old, strict=True)])
    mean = next(parts)
    weights = replace(state.weights, mean=next(parts))
    weight_precision = _with_log_mean(state.weight_precision, next(parts))
    slack = np.exp(next(parts))
    return State(
        views=tuple(
            replace(
                own,
                offset=replace(own.offset, mean=next(parts)),
                loading_precision=_with_log_mean(own.loading_precision, next(parts)),
                noise_precision=_with_log_mean(own.noise_precision, next(parts)),
            )
            for own in state.views
        ),
        latent=make_latent(mean, state.latent.cov, state.latent.log_det, data),
        weights=weights,
        weight_precision=weight_precision,
        slack=slack,
    )


def _with_log_mean(factor: Gamma, log_mean: FloatArray) -> Gamma:
    return Gamma(shape=factor.shape, rate=factor.shape / np.exp(log_mean))
