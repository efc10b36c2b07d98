r"""Mean-field variational inference for BM2PCA.

q approximates Eq. (4) of the paper and factorises as q(t) q(W) q(r) q(tau), one such set per
view, and q(Z) q(eta) q(nu) q(lambda).
Every ``update_*`` returns the optimal factor with the others held fixed; ``step`` runs them once.
``bound_terms`` is the exact bound of the pseudo-posterior, with all constants. The margin factors
are no likelihood of the labels, so the bound never compares costs.

One outcome, K = 1, is the paper's model; several share one subspace. Unlabelled samples contribute
their features alone. The paper numbers Eq. (1) to (5); the updates after Eq. (5) have no number.

The printed updates can lower the bound; ``docs/derivations/bm2pca.md`` has the departures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.factor_model import FactorModel, principal_scores, side_by_side
from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.bm2pca.views import Moments, View, ViewState, make_view, split_views
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.factors import LOG_2PI, Gamma
from bsdr_models.numerics.linalg import cholesky, inv_spd
from bsdr_models.options import TOLERANCE, check_number, check_parameters
from bsdr_models.papers import checks
from bsdr_models.papers.bm2pca.loss_augmentation import Margins, margins_of
from bsdr_models.papers.coordinate_ascent import Bound, Extrapolation
from bsdr_models.papers.factors import NormalColumns, mean_log, negative_divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewData:
    """Samples and margin factors."""

    X: FloatArray  # (N, D)
    views: tuple[View, ...]
    margins: Margins
    columns: tuple[IntArray | None, ...] = (None,)  # of X, by view; None for all


def make_data(
    X: FloatArray,
    y: FloatArray,
    cost: float,
    epsilon: float | None = None,
    *,
    columns: Sequence[IntArray | None] = (None,),
) -> ViewData:
    """Samples X (N, D), NaN if missing, and signs y (N, K), 0 without a label.

    With ``epsilon`` they are real outputs, NaN if missing. A view has some columns, by default all.
    """
    check_number("cost", cost)
    X = checks.read_samples(X, missing=True)
    if epsilon is None:
        y = checks.read_signs(y, len(X))
    else:
        check_number("epsilon", epsilon, TOLERANCE)
        y = checks.read_outputs(y, len(X), missing=True)
    return ViewData(
        X=X,
        views=tuple(map(make_view, split_views(X, columns))),
        margins=margins_of(y, cost, epsilon),
        columns=tuple(columns),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """q(Z): one normal per sample."""

    mean: FloatArray  # (N, R)
    cov: FloatArray  # (N, R, R)
    log_det: FloatArray  # log |cov|, (N,)
    moments: tuple[Moments, ...]  # Sufficient statistics for each view


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorState:
    """All factors of q. N samples, R components, K outcomes."""

    views: tuple[ViewState, ...]  # t, W, r, tau of each view
    latent: Latent  # Z
    # eta, jointly per outcome: mean (1 + R, K), cov (K, 1 + R, 1 + R). Row 0 is the bias.
    weights: NormalColumns
    weight_precision: Gamma  # nu, Gammas (K,)
    slack: FloatArray  # s of q(lambda) of each hinge, (S, N, K)


def init(
    data: ViewData, priors: BM2PCAPriors, *, n_components: int, rng: np.random.Generator
) -> FactorState:
    """Initial state with R = ``n_components``.

    The leading latent coordinates are from the targets, if there are any, and the next ones from
    principal axes, less what the targets explain. Those beyond the rank of both are standard
    normal.
    """
    check_parameters({"priors": [BM2PCAPriors]}, locals(), "init")
    n, k = data.margins.y.shape
    r = n_components
    first = 0
    observed = data.margins.observed
    typical = np.sum(data.margins.y * observed, axis=0) / np.maximum(observed.sum(axis=0), 1)
    targets = np.where(observed, data.margins.y, typical)
    mean = rng.standard_normal((n, r))
    labelled = observed.any(axis=1)
    if labelled.any():
        found = _target_coordinates(targets, data.views)[:, :r]
        first = found.shape[1]
        mean[:, :first] = found
    if first < r:
        found = principal_scores(data.views, r - first)
        centred = mean[:, :first] - mean[:, :first].mean(axis=0)
        found = found - centred @ (np.linalg.pinv(centred) @ found)
        mean[:, first : first + found.shape[1]] = found
    if labelled.any():  # the others begin at the mean
        mean[~labelled, first:] = 0.0
    cov = np.tile(np.eye(r), (n, 1, 1))
    weights = _ridge_weights(mean, targets)
    return FactorState(
        views=tuple(views.initial_state(view, n_components=r) for view in data.views),
        latent=make_latent(mean, cov, np.zeros(n), data),
        weights=weights,
        weight_precision=Gamma(shape=np.ones(k), rate=np.ones(k)),
        slack=data.margins.scales(*score_moments(mean, cov, weights)),
    )


def _target_coordinates(y: FloatArray, parts: Sequence[View]) -> FloatArray:
    """Targets as latent coordinates: y itself, or axes of several, (N, <= K).

    Axes of targets of equal variance, such as classes of equal size, are defined by the features:
    those which explain most of them come first.
    """
    if y.shape[1] == 1:
        return y
    u, s, _ = np.linalg.svd(y - y.mean(axis=0), full_matrices=False)
    u = u[:, s > 1e-9 * s[0]]
    rotation, _, _ = np.linalg.svd((side_by_side(parts).T @ u).T, full_matrices=False)
    return np.asarray(u @ rotation * np.sqrt(len(y)))


def _ridge_weights(mean: FloatArray, y: FloatArray) -> NormalColumns:
    """Ridge regression of the targets (N, K) on latent coordinates."""
    full = with_ones(mean)
    k = y.shape[1]
    q = full.shape[1]
    return NormalColumns(
        mean=np.linalg.solve(full.T @ full + np.eye(q), full.T @ y),
        cov=np.tile(0.01 * np.eye(q), (k, 1, 1)),
        log_det=np.full(k, q * np.log(0.01)),
    )


def with_ones(mean: FloatArray) -> FloatArray:
    """[1, z], (N, 1 + R)."""
    return np.column_stack([np.ones(len(mean)), mean])


def make_latent(mean: FloatArray, cov: FloatArray, log_det: FloatArray, data: ViewData) -> Latent:
    """q(Z) of `Latent` with its sufficient statistics for the views."""
    moments = tuple(views.latent_moments(mean, cov, view) for view in data.views)
    return Latent(mean=mean, cov=cov, log_det=log_det, moments=moments)


def update_views(state: FactorState, data: ViewData, priors: BM2PCAPriors) -> tuple[ViewState, ...]:
    """Optimal W, r, t and tau of every view, given the sufficient statistics of q(Z)."""
    return tuple(
        views.update(own, moments, view, priors) for own, moments, view in _by_view(state, data)
    )


def _by_view(state: FactorState, data: ViewData) -> Iterator[tuple[ViewState, Moments, View]]:
    return zip(state.views, state.latent.moments, data.views, strict=True)


def update_latent(state: FactorState, data: ViewData) -> Latent:
    r"""Optimal q(Z), V(Z) after Eq. (5).

    With w the weights and g the linear terms of the margins,

    .. math::
        S_n^{-1} = I + \sum_v E[\tau_v] E[W_v^\top W_v] + \sum_c w_{nc} E[\eta_c \eta_c^\top],
        \quad
        m_n = S_n \{\sum_v E[\tau_v] M_v^\top (x_n - E[t_v])
        + \sum_c (g_{nc} E[\eta_c] - w_{nc} E[\eta_{c0} \eta_c])\}
    """
    w = data.margins.weights(state.slack)
    g = data.margins.linear_terms(state.slack)
    second = state.weights.second
    k, r = second.shape[0], second.shape[1] - 1
    of_margins = (w @ second[:, 1:, 1:].reshape(k, r * r)).reshape(-1, r, r)
    of_features, linear_of_features = views.latent_terms(state.views, data.views)
    slopes = np.concatenate([state.weights.mean[1:].T, -second[:, 0, 1:]])
    linear_term = np.column_stack([g, w]) @ slopes + linear_of_features
    cov, log_det = inv_spd(of_margins + of_features, name="latent precision")
    return make_latent(np.einsum("nrs,ns->nr", cov, linear_term), cov, log_det, data)


def update_weights(state: FactorState, data: ViewData) -> NormalColumns:
    r"""Optimal q(eta), V(eta) after Eq. (5); sums run over labelled samples.

    .. math::
        S_c^{-1} = E[\nu_c] I + \sum_n w_{nc} E[\tilde z_n \tilde z_n^\top], \qquad
        \mu_c = S_c \sum_n g_{nc} E[\tilde z_n]
    """
    w = data.margins.weights(state.slack)
    g = data.margins.linear_terms(state.slack)
    full = with_ones(state.latent.mean)  # (N, 1 + R)
    r = full.shape[1] - 1
    precision = state.weight_precision.mean[:, None, None] * np.eye(1 + r)
    precision[:, 1:, 1:] += (w.T @ state.latent.cov.reshape(-1, r * r)).reshape(-1, r, r)
    precision += np.stack([full.T @ (own[:, None] * full) for own in w.T])
    cov, log_det = inv_spd(precision, name="weight precision")
    mean = np.einsum("kqs,sk->qk", cov, full.T @ g)
    return NormalColumns(mean=mean, cov=cov, log_det=log_det)


def update_weight_precision(state: FactorState, priors: BM2PCAPriors) -> Gamma:
    """Optimal q(nu), V(nu): Ga(a_nu + (R + 1) / 2, b_nu + tr E[eta eta'] / 2)."""
    square = np.einsum("kqq->k", state.weights.second)
    q = len(state.weights.mean)
    return Gamma(
        shape=np.full_like(square, priors.weight_shape + 0.5 * q),
        rate=priors.weight_rate + 0.5 * square,
    )


def update_slack(state: FactorState, data: ViewData) -> FloatArray:
    """Optimal q(lambda), V(lambda), given by s = sqrt E[u**2]."""
    return data.margins.scales(*_training_moments(state))


def _training_moments(state: FactorState) -> tuple[FloatArray, FloatArray]:
    return score_moments(state.latent.mean, state.latent.cov, state.weights)


def score_moments(
    mean: FloatArray, cov: FloatArray, weights: NormalColumns
) -> tuple[FloatArray, FloatArray]:
    """Mean and variance (M, K) of f = eta' [1; z], z ~ N(mean, cov), of cov (M or 1, R, R)."""
    full = with_ones(mean)
    second = weights.second[:, 1:, 1:]
    variance = cov.reshape(len(cov), -1) @ second.reshape(len(second), -1).T
    own = [np.einsum("mq,mq->m", full @ C, full) for C in weights.cov]
    return full @ weights.mean, variance + np.column_stack(own)


def sweep(state: FactorState, data: ViewData, priors: BM2PCAPriors) -> FactorState:
    """All updates once; the input is unchanged."""
    state = replace(state, views=update_views(state, data, priors))
    state = replace(state, latent=update_latent(state, data))
    state = replace(state, weights=update_weights(state, data))
    state = replace(state, weight_precision=update_weight_precision(state, priors))
    return replace(state, slack=update_slack(state, data))


def step(state: FactorState, data: ViewData, priors: BM2PCAPriors) -> tuple[FactorState, Bound]:
    """One sweep of coordinate ascent, which never lowers the bound."""
    state = sweep(state, data, priors)
    return state, Bound(bound_terms(state, data, priors))


def bound_terms(state: FactorState, data: ViewData, priors: BM2PCAPriors) -> dict[str, float]:
    """Terms of the bound by factor, expected log density plus entropy, in nats."""
    terms: dict[str, float] = {}
    for own, moments, view in _by_view(state, data):
        for name, value in view_terms(own, moments, view, priors).items():
            terms[name] = terms.get(name, 0.0) + value
    z = state.latent
    eta = state.weights
    nu = state.weight_precision
    square = np.sum(z.mean**2) + np.einsum("nrr->", z.cov)
    each = len(eta.mean) * (mean_log(nu) + 1.0) + eta.log_det
    each = each - nu.mean * np.einsum("kqq->k", eta.second)
    divergence = negative_divergence(nu, priors.weight_shape, priors.weight_rate)
    return terms | {
        "latent": 0.5 * float(z.log_det.sum() + z.mean.size - square),
        "weights": 0.5 * float(each.sum()),
        "weight_precision": float(divergence.sum()),
        "margins": data.margins.bound(*_training_moments(state), state.slack),
    }


def draw(
    state: FactorState,
    data: ViewData,
    priors: BM2PCAPriors | None = None,
    *,
    rng: np.random.Generator,
    n_draws: int = 500,
    latent: bool = True,
) -> dict[str, FloatArray]:
    """Draws from q by the names of the PyMC model, (S, ...), with or without those of Z.

    Of several views only coefficients and intercepts. Priors, which the function of BSDR needs, do
    not matter.
    """
    model = FactorModel.of(state.views, data.views, data.columns)
    return draw_from(state, model, n_draws, rng, latent=latent)


def draw_from(
    state: FactorState,
    model: FactorModel,
    n_draws: int,
    rng: np.random.Generator,
    *,
    latent: bool,
) -> dict[str, FloatArray]:
    """The same, with the views of a state as a model of the features."""
    half = cholesky(state.weights.cov, name="weight covariance")  # (K, 1 + R, 1 + R)
    noise = rng.standard_normal((n_draws, *half.shape[:-1]))
    eta = state.weights.mean + np.einsum("kqs,dks->dqk", half, noise)
    drawn = [_draw_view(own, n_draws, rng) for own in model.states]
    W, t, tau = (model.concatenate_views(each, axis=1) for each in zip(*drawn, strict=True))
    # `FactorModel.effects` of each draw.
    scaled = tau * W
    coef = scaled @ np.linalg.solve(scaled.mT @ W + np.eye(W.shape[2]), eta[:, 1:])
    draws = {"coef": coef, "intercept": eta[:, 0] - (t[:, None] @ coef)[:, 0]}
    if len(drawn) > 1:
        return draws
    draws |= {
        "weights": eta[:, 1:].copy(),  # in C order, as in a model loaded from a file
        "bias": eta[:, 0].copy(),
        "loadings": W,
        "offset": t,
        "noise_precision": tau[:, 0, 0],
    }
    for name, gamma in (
        ("loading_precision", model.states[0].loading_precision),
        ("weight_precision", state.weight_precision),
    ):
        draws[name] = rng.gamma(gamma.shape, size=(n_draws, gamma.shape.size)) / gamma.rate
    if latent:
        z = state.latent
        half = cholesky(z.cov, name="latent covariance")  # (N, R, R)
        noise = rng.standard_normal((n_draws, *z.mean.shape))
        draws["latent"] = z.mean + np.einsum("nrs,dns->dnr", half, noise)
    return draws


def _draw_view(
    state: ViewState, n_draws: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draws from q of a view: W (S, d, R), t (S, d) and tau, the same for all, (S, d, 1)."""
    loadings = state.loadings
    half = cholesky(loadings.cov, name="loading covariance")
    noise = rng.standard_normal((n_draws, *loadings.mean.shape, 1))
    W = loadings.mean + (half @ noise)[..., 0]
    offset = state.offset
    t = offset.mean + np.sqrt(offset.variance) * rng.standard_normal(W.shape[:2])
    gamma = state.noise_precision
    tau = rng.gamma(gamma.shape, size=(n_draws, 1, 1)) / gamma.rate
    return W, t, np.broadcast_to(tau, (*W.shape[:2], 1))


def view_terms(
    state: ViewState, moments: Moments, view: View, priors: BM2PCAPriors
) -> dict[str, float]:
    """Terms of the bound from the view."""
    W = state.loadings
    t = state.offset
    r = state.loading_precision
    tau = state.noise_precision
    d = view.n_features
    copies = view.copies
    delta = priors.offset_precision
    centre = np.sum(t.mean**2) + copies * t.variance.sum()
    each = d * (mean_log(r) + 1.0) - r.mean * np.diagonal(W.second)
    misfit = tau.mean * views.residual(state, moments, view)
    r_divergence = negative_divergence(r, priors.loading_shape, priors.loading_rate)
    tau_divergence = negative_divergence(tau, priors.noise_shape, priors.noise_rate)
    terms = {
        "features": 0.5 * view.n_observed * (mean_log(tau) - LOG_2PI) - 0.5 * misfit,
        "offset": 0.5 * d * (np.log(delta) + 1.0)
        - 0.5 * delta * centre
        + 0.5 * copies * np.log(t.variance).sum(),
        "loadings": 0.5 * each.sum() + 0.5 * copies * W.log_det.sum(),
        "loading_precision": r_divergence.sum(),
        "noise_precision": tau_divergence,
    }
    return {name: float(value) for name, value in terms.items()}


def extrapolation(data: ViewData) -> Extrapolation[FactorState]:
    """The acceleration of `papers.maximise`."""
    return Extrapolation(pack=pack, unpack=partial(unpack, data=data))


def pack(state: FactorState) -> FloatArray:
    """Parameters of the state as a vector, for extrapolation; positive numbers by their log.

    Left out are the shapes of Gammas, which are constant after the first sweep, and what the next
    one recomputes: loadings and covariances.
    """
    return np.concatenate([part.ravel() for part in _packed_arrays(state)])


def _packed_arrays(state: FactorState) -> list[FloatArray]:
    parts = [state.latent.mean, state.weights.mean]
    parts += [np.log(state.weight_precision.rate), np.log(state.slack)]
    for own in state.views:
        parts.append(own.offset.mean)
        parts += [np.log(own.loading_precision.rate), np.log(own.noise_precision.rate)]
    return parts


def unpack(vector: FloatArray, state: FactorState, data: ViewData) -> FactorState:
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
