r"""Mean-field variational inference for BSDR.

q factorises as q(projection_precision) q(projection) q(latent) q(weight_precision)
q(weights, bias) q(utilities), and q(noise_precision) for regression. Every ``update_*`` returns the
optimal factor with the others held fixed; ``step`` runs them once, in the order of the paper;
``elbo_terms`` is the exact bound, with all constants.

Letters: Q projection, Z latent coordinates, W and b weights and bias, T latent utilities, Phi, Psi,
lambda the precisions, v = latent_scale**2. The paper has samples in columns; here X is (N, D).
"""

from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from scipy.special import log_ndtr

from bsdr_models.numerics.arrays import FloatArray, Target
from bsdr_models.numerics.factors import LOG_2PI, Gamma
from bsdr_models.numerics.linalg import cholesky, inv_spd, standardise
from bsdr_models.options import StrOptions, check_parameters
from bsdr_models.papers import checks, orthant
from bsdr_models.papers.bsdr.design import (
    DenseDesign,
    Design,
    SpectralDesign,
    discriminant_scores,
    label_indicators,
)
from bsdr_models.papers.bsdr.priors import Priors, ProjectionPrior
from bsdr_models.papers.coordinate_ascent import Bound, Extrapolation
from bsdr_models.papers.factors import (
    NormalColumns,
    NormalRows,
    RidgeColumns,
    mean_log,
    negative_divergence,
)
from bsdr_models.papers.normal_tail import positive_mean

# Quadrature nodes of the moments of an argmax region: the bound is exact to rounding.
N_NODES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Samples and targets."""

    design: Design  # X as a linear operator, (N, D); in rotated coordinates if columnwise
    y: np.ndarray  # class indices (N,), bool (N, K) for "multilabel", float (N, K) for "regression"
    n_labels: int  # K
    target: Target = "multiclass"

    @property
    def n_samples(self) -> int:
        """Number of samples, N."""
        return len(self.design.X)

    @property
    def n_features(self) -> int:
        """D in the coordinates of the design."""
        return self.design.X.shape[1]


def make_data(
    X: FloatArray,
    y: np.ndarray,
    *,
    n_labels: int | None = None,
    target: Target = "multiclass",
    projection_prior: ProjectionPrior = "entrywise",
) -> Data:
    """Samples X (N, D) and classes 0 to K - 1 (N,), label sets or real outputs (N, K).

    ``projection_prior`` is that of the priors. A columnwise one is invariant to rotations of the
    features, so after one decomposition of X every sweep is element-wise.
    """
    choices = {"projection_prior": set(get_args(ProjectionPrior)), "target": set(get_args(Target))}
    check_parameters({k: [StrOptions(each)] for k, each in choices.items()}, locals(), "make_data")
    X = checks.read_samples(X)
    y, k = checks.read_targets(y, target, len(X))
    if n_labels not in (None, k):
        raise ValueError(f"n_labels={n_labels!r}, but y has {k} labels")
    design: Design = SpectralDesign.of(X) if projection_prior == "columnwise" else DenseDesign(X)
    return Data(design=design, y=y, n_labels=k, target=target)


def precision_shape(projection_prior: ProjectionPrior, d: int, r: int) -> tuple[int, int]:
    """Shape of the precisions Phi, with length 1 along an axis whose entries share them."""
    return {"entrywise": (d, r), "columnwise": (1, r), "rowwise": (d, 1)}[projection_prior]


def without_shared_axis(values: FloatArray, projection_prior: ProjectionPrior) -> FloatArray:
    """Draws of Phi, (S, D, R), (S, 1, R) or (S, D, 1), without the shared axis."""
    return values.squeeze({"entrywise": (), "columnwise": (1,), "rowwise": (2,)}[projection_prior])


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilities:
    """q(T): N(origin_n, I) truncated to the label of sample n; a point mass at y for regression."""

    mean: FloatArray  # E[T], (N, K)
    origin: FloatArray  # the untruncated means, (N, K)
    log_prob: float  # of the truncations under N(origin_n, I), summed over samples
    mode: FloatArray | None = None  # centres of the quadrature, (N,), where the next one begins


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All factors of q. N samples, D features, R components, K labels."""

    # Phi, (D, R) entrywise, (1, R) columnwise, (D, 1) rowwise.
    projection_precision: Gamma
    projection: RidgeColumns  # Q, one normal per component, (D, R)
    latent: NormalRows  # Z, one normal per sample: mean (N, R), cov (R, R) shared by all
    weight_precision: Gamma  # (1 + R, K): row 0 is lambda, of the bias, the rest Psi
    # [b; W] jointly per label: mean (1 + R, K), cov (K, 1 + R, 1 + R). Row 0 is the bias.
    weights: NormalColumns
    utilities: Utilities  # T, in units of the probit noise
    noise_precision: Gamma | None = None  # tau, (K,), of real targets


def init(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    rng: np.random.Generator,
    at_random: bool = False,
) -> State:
    """Initial state: latent coordinates in discriminant directions or random, vague weights."""
    check_parameters({"priors": [Priors]}, locals(), "init")
    n = data.n_samples
    d = data.n_features
    r = n_components
    k = data.n_labels
    latent = _start_coordinates(data, r, rng, at_random)
    shape = precision_shape(priors.projection_prior, d, r)
    n_tied = d * r / np.prod(shape)
    precision = Gamma(
        shape=np.full(shape, priors.projection_shape + 0.5 * n_tied),
        rate=np.full(shape, priors.projection_rate + 0.05 * n_tied),
    )
    ones = np.ones(k)
    state = State(
        projection_precision=precision,
        projection=data.design.ridge(latent, precision.mean, priors.latent_scale**2),
        latent=NormalRows(mean=latent, cov=np.eye(r), log_det=0.0),
        weight_precision=Gamma(shape=np.ones((1 + r, k)), rate=np.ones((1 + r, k))),
        weights=NormalColumns(
            mean=np.zeros((1 + r, k)),
            cov=np.tile(0.01 * np.eye(1 + r), (k, 1, 1)),
            log_det=np.full(k, (1 + r) * np.log(0.01)),
        ),
        utilities=Utilities(mean=np.zeros((n, k)), origin=np.zeros((n, k)), log_prob=0.0),
        noise_precision=Gamma(shape=ones, rate=ones) if data.target == "regression" else None,
    )
    return replace(state, utilities=update_utilities(state, data))


def _start_coordinates(data: Data, r: int, rng: np.random.Generator, at_random: bool) -> FloatArray:
    """Scores of shrunken discriminant directions, the others small; or standard normals: (N, R)."""
    mean = 0.1 * rng.standard_normal((data.n_samples, r))
    if at_random:
        return 10.0 * mean
    multiclass = data.target == "multiclass"
    Y = label_indicators(data.y, data.n_labels) if multiclass else standardise(1.0 * data.y)
    scores = standardise(discriminant_scores(data.design, Y, r))
    live = scores.any(axis=0)
    mean[:, : scores.shape[1]][:, live] = scores[:, live]
    return mean


def update_projection_precision(state: State, priors: Priors) -> Gamma:
    """Optimal q(Phi), Eq. (4), and its columnwise and rowwise forms (Section II-C, II-D)."""
    shape = state.projection_precision.shape.shape
    tied = tuple(axis for axis in (0, 1) if shape[axis] == 1)
    square = state.projection.mean_square.sum(axis=tied, keepdims=True)
    n_tied = state.projection.mean.size / square.size
    return Gamma(
        shape=np.full_like(square, priors.projection_shape + 0.5 * n_tied),
        rate=priors.projection_rate + 0.5 * square,
    )


def update_projection(state: State, data: Data, priors: Priors) -> RidgeColumns:
    r"""Optimal q(Q), Eq. (5).

    .. math::
        \Sigma_s = (\operatorname{diag} E[\phi_s] + X^\top X / v)^{-1}, \qquad
        \mu_s = \Sigma_s X^\top E[z_s] / v
    """
    precision = state.projection_precision.mean
    return data.design.ridge(state.latent.mean, precision, priors.latent_scale**2)


def update_latent(state: State, priors: Priors) -> NormalRows:
    r"""Optimal q(Z), Eq. (6).

    .. math::
        \Sigma_z = (I / v + \sum_c E[\tau_c] E[w_c w_c^\top])^{-1}, \qquad
        \mu_n = \Sigma_z \{E[Q]^\top x_n / v
                + \sum_c E[\tau_c] (E[w_c] E[t_{nc}] - E[w_c b_c])\}

    The noise precisions tau are 1 for labels. E[w_c b_c] includes the covariance of weights and
    bias.
    """
    tau = noise_mean(state)
    v = priors.latent_scale**2
    second = state.weights.second  # (K, 1 + R, 1 + R)
    precision = np.einsum("k,krs->rs", tau, second[:, 1:, 1:])
    precision += np.eye(len(precision)) / v
    cov, log_det = inv_spd(precision, name="latent precision")
    linear_term = state.projection.fitted / v
    linear_term += (state.utilities.mean * tau) @ state.weights.mean[1:].T
    linear_term -= np.einsum("k,kr->r", tau, second[:, 1:, 0])
    return NormalRows(mean=linear_term @ cov, cov=cov, log_det=float(log_det))


def update_weight_precision(state: State, priors: Priors) -> Gamma:
    """Optimal q(lambda) and q(Psi), Eqs. (7) and (8)."""
    return weight_gamma(state.weights.mean**2 + state.weights.variance, priors)


def weight_gamma(square: FloatArray, priors: Priors) -> Gamma:
    """Gammas of bias (row 0) and weights, given E[b~**2], (1 + R, K)."""
    shape, rate = weight_prior(priors, len(square))
    return Gamma(shape=np.full_like(square, shape + 0.5), rate=rate + 0.5 * square)


def weight_prior(priors: Priors, n_rows: int) -> tuple[FloatArray, FloatArray]:
    """Shapes and rates of the priors of bias (row 0) and weights, (1 + R, 1) each."""
    shape = np.full((n_rows, 1), priors.weight_shape)
    rate = np.full((n_rows, 1), priors.weight_rate)
    shape[0] = priors.bias_shape
    rate[0] = priors.bias_rate
    return shape, rate


def update_weights(state: State) -> NormalColumns:
    """Optimal q(b, W), jointly per label, Eq. (9)."""
    z = state.latent.mean
    t = state.utilities.mean
    tau = noise_mean(state)
    psi = state.weight_precision.mean.T  # (K, 1 + R)
    precision = tau[:, None, None] * latent_moment(state.latent)
    precision = precision + psi[:, :, None] * np.eye(psi.shape[1])
    cov, log_det = inv_spd(precision, name="weight precision")
    linear_term = np.vstack([t.sum(axis=0), z.T @ t])
    return NormalColumns(
        mean=np.einsum("kpq,qk->pk", cov, linear_term * tau), cov=cov, log_det=log_det
    )


def update_utilities(state: State, data: Data) -> Utilities:
    """Optimal q(T), Eq. (10), with exact moments instead of the paper's Monte Carlo."""
    return make_utilities(linear_predictor_mean(state), data, start=state.utilities.mode)


def make_utilities(origin: FloatArray, data: Data, *, start: FloatArray | None = None) -> Utilities:
    """q(T) for given untruncated means, (N, K)."""
    if data.target == "multiclass":
        moments = orthant.moments(origin, data.y, n_nodes=N_NODES, start=start)
        total = float(moments.log_prob.sum())
        return Utilities(mean=moments.mean, origin=origin, log_prob=total, mode=moments.mode)
    if data.target == "multilabel":
        sign = np.where(data.y, 1.0, -1.0)
        total = float(log_ndtr(sign * origin).sum())
        return Utilities(mean=sign * positive_mean(sign * origin), origin=origin, log_prob=total)
    return Utilities(mean=data.y, origin=origin, log_prob=0.0)


def update_noise_precision(state: State, priors: Priors) -> Gamma | None:
    """Optimal q(tau) of real targets; None for labels."""
    if state.noise_precision is None:
        return None
    residual = squared_residual(state)
    n = len(state.latent.mean)
    shape = np.full_like(residual, priors.noise_shape + 0.5 * n)
    return Gamma(shape=shape, rate=priors.noise_rate + 0.5 * residual)


def step(state: State, data: Data, priors: Priors) -> tuple[State, Bound]:
    """One sweep of coordinate ascent, which never lowers the bound."""
    state = replace(state, projection_precision=update_projection_precision(state, priors))
    state = replace(state, projection=update_projection(state, data, priors))
    state = replace(state, latent=update_latent(state, priors))
    state = replace(state, weight_precision=update_weight_precision(state, priors))
    state = replace(state, weights=update_weights(state))
    state = replace(state, noise_precision=update_noise_precision(state, priors))
    state = replace(state, utilities=update_utilities(state, data))
    return state, Bound(elbo_terms(state, data, priors))


def extrapolation(data: Data) -> Extrapolation[State]:
    """The acceleration of `papers.maximise`."""
    return Extrapolation(pack=pack, unpack=unpack)


def pack(state: State) -> FloatArray:
    """Vector of the values that the next sweep reads, for extrapolation."""
    q = state.projection
    z = state.latent
    w = state.weights
    t = state.utilities
    values = (np.log(q.mean_square), z.mean, w.mean, t.mean)
    return np.concatenate([value.ravel() for value in values])


def unpack(vector: FloatArray, state: State) -> State:
    """State with the values of :func:`pack`, consistent after the next sweep."""
    q = state.projection
    z = state.latent
    w = state.weights
    t = state.utilities
    ends = np.cumsum([q.mean.size, z.mean.size, w.mean.size])
    log_square, latent, weights, utilities = np.split(vector, ends)
    square = np.exp(log_square).reshape(q.mean.shape)
    return replace(
        state,
        projection=replace(q, mean=np.zeros_like(q.mean), variance=square),
        latent=replace(z, mean=latent.reshape(z.mean.shape)),
        weights=replace(w, mean=weights.reshape(w.mean.shape)),
        utilities=replace(t, mean=utilities.reshape(t.mean.shape)),
    )


def draw(
    state: State,
    data: Data,
    priors: Priors,
    *,
    rng: np.random.Generator,
    n_draws: int = 500,
    latent: bool = True,
) -> dict[str, FloatArray]:
    """Draws from q by the names of the PyMC model, (S, ...), with or without those of Z."""
    n, r = state.latent.mean.shape
    k = data.n_labels

    def gammas(q: Gamma) -> FloatArray:
        return rng.gamma(q.shape, size=(n_draws, *q.shape.shape)) / q.rate

    half = cholesky(state.weights.cov, name="weight covariance")  # (K, 1 + R, 1 + R)
    noise = rng.standard_normal((n_draws, k, 1 + r))
    weights = state.weights.mean + np.einsum("kpq,skq->spk", half, noise)
    phi = state.projection_precision
    zero = np.zeros((1, n, n_draws))
    scale = np.array([priors.latent_scale**-2.0])
    columns = np.broadcast_to(phi.mean, (len(phi.mean), r)).T
    design = DenseDesign(data.design.samples)
    deviations = [design.draw(zero, each[None], scale, rng=rng)[0] for each in columns]  # (D, S)
    psi = gammas(state.weight_precision)
    mean = data.design.loadings(state.projection.mean)
    draws = {
        "projection": mean + np.stack(deviations, axis=2).swapaxes(0, 1),
        "weights": weights[:, 1:],
        "bias": weights[:, 0],
        "projection_precision": without_shared_axis(gammas(phi), priors.projection_prior),
        "weight_precision": psi[:, 1:],
        "bias_precision": psi[:, 0],
    }
    if state.noise_precision is not None:
        draws["noise_precision"] = gammas(state.noise_precision)
    if latent:
        root = cholesky(state.latent.cov, name="latent covariance")
        draws["latent"] = state.latent.mean + rng.standard_normal((n_draws, n, r)) @ root.T
    return draws


def elbo_terms(state: State, data: Data, priors: Priors) -> dict[str, float]:
    r"""Terms of the bound, Eq. (3): for each factor E[log p(it | parents)] plus entropy.

    Utilities and labels share a term. With m the origin of q(T) and mu = E[eta],

    .. math::
        \sum_n \{\log Z(m_n) + E[t_n]^\top (\mu_n - m_n) + \tfrac12 |m_n|^2
        - \tfrac12 E|\eta_n|^2\}

    Returns nats by factor name, whose sum is the bound.
    """
    v = priors.latent_scale**2
    phi = state.projection_precision
    q = state.projection
    z = state.latent
    psi = state.weight_precision
    w = state.weights
    tau = state.noise_precision
    n, r = z.mean.shape
    residual = z.mean - q.fitted
    distance = float(np.vdot(residual, residual)) + n * float(np.trace(z.cov))
    distance += float(q.gram_trace.sum())
    phi_terms = negative_divergence(phi, priors.projection_shape, priors.projection_rate)
    psi_terms = negative_divergence(psi, *weight_prior(priors, 1 + r))
    log_prior_q = 0.5 * np.sum(mean_log(phi) - LOG_2PI - phi.mean * q.mean_square)
    log_prior_w = 0.5 * np.sum(mean_log(psi) - LOG_2PI - psi.mean * (w.mean**2 + w.variance))
    terms = {
        "projection_precision": float(phi_terms.sum()),
        "projection": float(log_prior_q) + q.entropy(),
        "latent": -0.5 * (n * r * (LOG_2PI + np.log(v)) + distance / v) + z.entropy(),
        "bias_precision": float(psi_terms[0].sum()),
        "weight_precision": float(psi_terms[1:].sum()),
        "weights": float(log_prior_w) + w.entropy(),
    }
    if tau is None:
        t = state.utilities
        cross = np.vdot(t.mean, linear_predictor_mean(state) - t.origin)
        square = 0.5 * (np.vdot(t.origin, t.origin) - expected_square(state).sum())
        terms["utilities"] = t.log_prob + float(cross + square)
    else:
        log_prior_y = n * (mean_log(tau) - LOG_2PI) - tau.mean * squared_residual(state)
        terms["utilities"] = 0.5 * float(log_prior_y.sum())
        divergence = negative_divergence(tau, priors.noise_shape, priors.noise_rate)
        terms["noise_precision"] = float(divergence.sum())
    return terms


def linear_predictor_mean(state: State) -> FloatArray:
    """E[eta] = E[Z] E[W] + E[b], (N, K)."""
    return state.latent.mean @ state.weights.mean[1:] + state.weights.mean[0]


def latent_moment(latent: NormalRows) -> FloatArray:
    """Sum over samples of E[z~ z~'] with z~ = [1; z], (1+R, 1+R)."""
    z = latent.mean
    moment = np.full((1 + z.shape[1], 1 + z.shape[1]), float(len(z)))
    moment[0, 1:] = moment[1:, 0] = z.sum(axis=0)
    moment[1:, 1:] = z.T @ z + len(z) * latent.cov
    return moment


def expected_square(state: State) -> FloatArray:
    """E sum_n eta_nc**2, (K,)."""
    return np.einsum("kpq,pq->k", state.weights.second, latent_moment(state.latent))


def squared_residual(state: State) -> FloatArray:
    """E sum_n (y_nc - eta_nc)**2 of real targets, (K,)."""
    y = state.utilities.mean
    return np.sum(y * (y - 2.0 * linear_predictor_mean(state)), axis=0) + expected_square(state)


def noise_mean(state: State) -> FloatArray:
    """E[tau], (K,); ones for labels."""
    if state.noise_precision is None:
        return np.ones(state.weights.mean.shape[1])
    return state.noise_precision.mean
