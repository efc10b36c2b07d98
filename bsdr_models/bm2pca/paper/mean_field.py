r"""Mean-field variational inference for BM2PCA.

q approximates Eq. (4) of the paper [1]_ and factorises as q(t) q(W) q(r) q(tau), one such set per
view, and q(Z) q(eta) q(nu) q(lambda).
Every ``update_*`` returns the optimal factor with the others held fixed; ``step`` runs them once.
``bound_terms`` is the exact bound of the pseudo-posterior, with all constants. The margin factors
are no likelihood of the labels, so the bound never compares costs.

P problems with the same samples are fitted at once: one per class for one-vs-rest, or several
costs in a cross-validation. Each has K outcomes; K = 1 is the paper's model, K > 1 shares one
subspace. Unlabelled samples contribute their features alone.

The printed updates [1]_ can lower the bound; ``docs/derivations/bm2pca.md`` has the departures.

References
----------
.. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin principal
       component analysis. AAAI.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.factor_model import principal_scores
from bsdr_models.bm2pca.paper import initial_values
from bsdr_models.bm2pca.paper.loss_augmentation import Margins, margins_of
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.bm2pca.views import Moments, View, ViewState, make_view
from bsdr_models.inference.coordinate_ascent import Bound
from bsdr_models.numerics.factors import Gamma
from bsdr_models.numerics.linalg import inv_spd
from bsdr_models.numerics.row_space import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Samples, and margin factors of P problems."""

    views: tuple[View, ...]
    margins: Margins


def make_data(
    views: Sequence[Rows], y: FloatArray, cost: FloatArray, epsilon: float | None = None
) -> Data:
    """Features of each view, (N, d), and signs or real targets y (P, N, K) of costs (P, 1, 1)."""
    return Data(views=tuple(map(make_view, views)), margins=margins_of(y, cost, epsilon))


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """q(Z): one normal per sample."""

    mean: FloatArray  # (P, N, R)
    cov: FloatArray  # (P, N, R, R)
    log_det: FloatArray  # log |cov|, (P, N)
    moments: tuple[Moments, ...]  # Sufficient statistics for each view


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """q(eta): one normal per outcome over [bias; weights]."""

    mean: FloatArray  # (P, 1 + R, K)
    cov: FloatArray  # (P, K, 1 + R, 1 + R)
    log_det: FloatArray  # log |cov|, (P, K)

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
    slack: FloatArray  # s of q(lambda) of each hinge, (S, P, N, K)


def init(data: Data, priors: Priors, *, n_components: int, rng: np.random.Generator) -> State:
    """Initial state with R = ``n_components``.

    The leading latent coordinates are from the targets, if there are any, and the next ones from
    principal axes, less what the targets explain. Those beyond the rank of both are standard
    normal.
    """
    p, n, k = data.margins.y.shape
    r = n_components
    first = 0
    targets = initial_values.complete_targets(data.margins)
    mean = np.tile(rng.standard_normal((n, r)), (p, 1, 1))
    labelled = data.margins.observed.any(axis=(0, 2))
    if labelled.any():
        found = initial_values.target_coordinates(targets, data.views)[..., :r]
        first = found.shape[-1]
        mean[..., :first] = found
    if first < r:
        found = principal_scores(data.views, r - first)
        found = initial_values.residual(found, mean[..., :first])
        mean[..., first : first + found.shape[-1]] = found
    if labelled.any():  # the others begin at the mean
        mean[:, ~labelled, first:] = 0.0
    cov = np.tile(np.eye(r), (p, n, 1, 1))
    weights = _ridge_weights(mean, targets)
    return State(
        views=tuple(views.initial_state(view, n_problems=p, n_components=r) for view in data.views),
        latent=make_latent(mean, cov, np.zeros((p, n)), data),
        weights=weights,
        weight_precision=Gamma(shape=np.ones((p, k)), rate=np.ones((p, k))),
        slack=data.margins.scales(*score_moments(mean, cov, weights)),
    )


def _ridge_weights(mean: FloatArray, y: FloatArray) -> Weights:
    """Ridge regression of the targets (P, N, K) on latent coordinates."""
    full = with_ones(mean)
    across = np.swapaxes(full, 1, 2)
    p = len(y)
    k = y.shape[-1]
    q = full.shape[-1]
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
    moments = tuple(views.latent_moments(mean, cov, view) for view in data.views)
    return Latent(mean=mean, cov=cov, log_det=log_det, moments=moments)


def update_views(state: State, data: Data, priors: Priors) -> tuple[ViewState, ...]:
    """Optimal W, r, t and tau of every view, given the sufficient statistics of q(Z)."""
    return tuple(
        views.update(own, moments, view, priors) for own, moments, view in _by_view(state, data)
    )


def _by_view(state: State, data: Data) -> Iterator[tuple[ViewState, Moments, View]]:
    return zip(state.views, state.latent.moments, data.views, strict=True)


def update_latent(state: State, data: Data) -> Latent:
    r"""Optimal q(Z) [1]_, Eq. (5) and the next one.

    With w the weights and g the linear terms of the margins,

    .. math::
        S_n^{-1} = I + \sum_v E[\tau_v] E[W_v^\top W_v] + \sum_c w_{nc} E[\eta_c \eta_c^\top],
        \quad
        m_n = S_n \{\sum_v E[\tau_v] M_v^\top (x_n - E[t_v])
        + \sum_c (g_{nc} E[\eta_c] - w_{nc} E[\eta_{c0} \eta_c])\}
    """
    weights, linear_terms = _margin_terms(state, data)
    second = state.weights.second
    forms = second[..., 1:, 1:]  # (P, K, R, R)
    crossed = second[..., 0, 1:]  # (P, K, R)
    slopes = np.concatenate([np.swapaxes(state.weights.mean[:, 1:], 1, 2), -crossed], axis=1)
    linear_term = np.concatenate([linear_terms, weights], axis=-1) @ slopes
    margins = (weights @ _flat(forms)).reshape(*weights.shape[:2], *forms.shape[2:])
    of_features, linear_of_features = views.latent_terms(state.views, data.views)
    linear_term += linear_of_features
    cov, log_det = inv_spd(margins + of_features, name="latent precision")
    return make_latent(np.einsum("pnrs,pns->pnr", cov, linear_term), cov, log_det, data)


def _margin_terms(state: State, data: Data) -> tuple[FloatArray, FloatArray]:
    """Weights and linear terms of the margins, each (P, N, K)."""
    return data.margins.weights(state.slack), data.margins.linear_terms(state.slack)


def update_weights(state: State, data: Data) -> Weights:
    r"""Optimal q(eta), V(eta) after Eq. (5) of [1]_; sums run over labelled samples.

    .. math::
        S_c^{-1} = E[\nu_c] I + \sum_n w_{nc} E[\tilde z_n \tilde z_n^\top], \qquad
        \mu_c = S_c \sum_n g_{nc} E[\tilde z_n]
    """
    weights, linear_terms = _margin_terms(state, data)
    full = with_ones(state.latent.mean)  # (P, N, 1 + R)
    full_t = np.swapaxes(full, 1, 2)
    outer = [full_t @ (weights[..., c, None] * full) for c in range(weights.shape[-1])]
    precision = state.weight_precision.mean[..., None, None] * np.eye(full.shape[-1])
    spread = np.swapaxes(weights, 1, 2) @ _flat(state.latent.cov)
    precision[..., 1:, 1:] += spread.reshape(precision[..., 1:, 1:].shape)
    precision += np.stack(outer, axis=1)
    cov, log_det = inv_spd(precision, name="weight precision")
    mean = np.einsum("pkqs,psk->pqk", cov, full_t @ linear_terms)
    return Weights(mean=mean, cov=cov, log_det=log_det)


def update_weight_precision(state: State, priors: Priors) -> Gamma:
    """Optimal q(nu), V(nu) of [1]_: Ga(a_nu + (R + 1) / 2, b_nu + tr E[eta eta'] / 2)."""
    square = np.einsum("pkqq->pk", state.weights.second)
    q = state.weights.mean.shape[1]
    return Gamma(
        shape=np.full_like(square, priors.weight_shape + 0.5 * q),
        rate=priors.weight_rate + 0.5 * square,
    )


def update_slack(state: State, data: Data) -> FloatArray:
    """Optimal q(lambda), V(lambda) of [1]_, given by s = sqrt E[u**2]."""
    return data.margins.scales(*_training_moments(state))


def _training_moments(state: State) -> tuple[FloatArray, FloatArray]:
    return score_moments(state.latent.mean, state.latent.cov, state.weights)


def score_moments(
    mean: FloatArray, cov: FloatArray, weights: Weights
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance, each (P, M, K), of f = eta' [1; z] with z ~ N(mean, cov), eta ~ q.

    The mean is (P, M, R), the covariance (P, M, R, R), or (P, 1, R, R) if all samples share it.
    """
    full = with_ones(mean)
    variance = _flat(cov) @ np.swapaxes(_flat(weights.second[..., 1:, 1:]), 1, 2)
    own = [np.einsum("pmq,pmq->pm", full @ C, full) for C in np.swapaxes(weights.cov, 0, 1)]
    return full @ weights.mean, variance + np.stack(own, axis=-1)


def sweep(state: State, data: Data, priors: Priors) -> State:
    """All updates once; the input is unchanged."""
    state = replace(state, views=update_views(state, data, priors))
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
    z = state.latent
    weights = state.weights
    nu = state.weight_precision
    square = np.sum(z.mean**2, axis=(1, 2)) + np.einsum("pnrr->p", z.cov)
    terms["latent"] = 0.5 * (z.log_det.sum(axis=1) + z.mean[0].size - square)
    each = weights.mean.shape[1] * (nu.mean_log + 1.0) + weights.log_det
    each = each - nu.mean * np.einsum("pkqq->pk", weights.second)
    terms["weights"] = 0.5 * each.sum(axis=1)
    divergence = nu.negative_divergence(priors.weight_shape, priors.weight_rate)
    terms["weight_precision"] = divergence.sum(axis=1)
    terms["margins"] = data.margins.bound(*_training_moments(state), state.slack)
    return terms


def pack(state: State) -> FloatArray:
    """Parameters of the state as a vector, for extrapolation; positive numbers by their log.

    Left out are the shapes of Gammas, which are constant after the first sweep, and what the next
    one recomputes: loadings and covariances.
    """
    return np.concatenate([part.ravel() for part in _packed_arrays(state)])


def _packed_arrays(state: State) -> list[FloatArray]:
    parts = [state.latent.mean, state.weights.mean]
    parts += [np.log(state.weight_precision.rate), np.log(state.slack)]
    for own in state.views:
        parts.append(own.offset.mean)
        parts += [np.log(own.loading_precision.rate), np.log(own.noise_precision.rate)]
    return parts


def unpack(vector: FloatArray, state: State, data: Data) -> State:
    """Inverse of :func:`pack`; the next sweep makes the state consistent."""
    old = _packed_arrays(state)
    pieces = np.split(vector, np.cumsum([part.size for part in old])[:-1])
    parts = iter([piece.reshape(part.shape) for piece, part in zip(pieces, old, strict=True)])
    # Keyword arguments are evaluated in the order of `_packed_arrays`.
    return replace(
        state,
        latent=make_latent(next(parts), state.latent.cov, state.latent.log_det, data),
        weights=replace(state.weights, mean=next(parts)),
        weight_precision=replace(state.weight_precision, rate=np.exp(next(parts))),
        slack=np.exp(next(parts)),
        views=tuple(
            replace(
                own,
                offset=replace(own.offset, mean=next(parts)),
                loading_precision=replace(own.loading_precision, rate=np.exp(next(parts))),
                noise_precision=replace(own.noise_precision, rate=np.exp(next(parts))),
            )
            for own in state.views
        ),
    )
