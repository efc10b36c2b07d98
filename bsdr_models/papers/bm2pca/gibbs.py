r"""Gibbs sampling of Eq. (4) of the paper from full conditionals, chains in parallel.

Each ``sample_*`` draws one block given the others, for C chains along the first axis of every
array. ``step``, a sweep, draws weights and slack scales with Z integrated out: given each
other they are so strongly correlated that one independent draw of coef would take a thousand
sweeps.

Labels do not bound class scores from above, so posterior moments of the weights exist only below
order 2 weight_shape, as under the prior. Under the paper's hyper-parameters (0.1) coef has no
posterior mean; only its direction and the signs of the scores are meaningful.

Given the slack scales, the margins of one sample and label are a normal factor
:math:`\exp(g f - h f^2 / 2)` of the class score.

References
----------
.. [1] J. R. Michael, W. R. Schucany, R. W. Haas (1976). Generating random variates using
       transformations with multiple roots. The American Statistician 30(2).
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.linalg import inv_spd
from bsdr_models.options import check_parameters
from bsdr_models.papers.bm2pca import soft_margin_draws
from bsdr_models.papers.bm2pca.loss_augmentation import Margins
from bsdr_models.papers.bm2pca.mean_field import ViewData
from bsdr_models.papers.factors import draw_normal, gamma_log_density, normal_log_density

SAMPLING = BM2PCAPriors(
    loading_shape=2.0,
    loading_rate=2.0,
    noise_shape=2.0,
    noise_rate=1.0,
    weight_shape=2.0,
    weight_rate=2.0,
    offset_precision=1.0,
)
"""Default of the samplers, for features of unit variance: finite prior moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginGibbsState:
    """One value of every variable in each chain. C chains, N samples, d features, k components."""

    offset: FloatArray  # t, (C, d)
    loading_precision: FloatArray  # r, (C, k)
    loadings: FloatArray  # W, (C, d, k)
    noise_precision: FloatArray  # tau, (C,)
    latent: FloatArray  # Z, (C, N, k)
    weight_precision: FloatArray  # nu, (C, K)
    weights: FloatArray  # [e_0; eta], (C, 1 + k, K). Row 0 is the bias
    slack_scale: FloatArray  # lambda of each hinge, (C, S, N, K). Unused without a target


def init(
    data: ViewData,
    priors: BM2PCAPriors,
    *,
    n_components: int,
    n_chains: int,
    rng: np.random.Generator,
) -> MarginGibbsState:
    """Dispersed initial states: Z is a random projection of X with unit variance."""
    check_parameters({"priors": [BM2PCAPriors]}, locals(), "init")
    c = n_chains
    k = n_components
    n, d = data.X.shape
    n_labels = data.margins.y.shape[-1]
    centred = data.X - data.X.mean(axis=0)
    Z = centred @ rng.standard_normal((c, d, k)) + 1e-3 * rng.standard_normal((c, n, k))
    variance = np.mean(centred**2)
    state = MarginGibbsState(
        offset=np.zeros((c, d)),
        loading_precision=np.ones((c, k)),
        loadings=np.zeros((c, d, k)),
        noise_precision=np.full(c, 1.0 / variance if variance > 0.0 else 1.0),
        latent=Z / np.sqrt(np.mean(Z**2, axis=1, keepdims=True)),
        weight_precision=np.ones((c, n_labels)),
        weights=rng.standard_normal((c, 1 + k, n_labels)),
        slack_scale=np.ones((c, 1, n, n_labels)),
    )
    state = sample_offset_and_loadings(state, data, priors, rng=rng)
    return replace(state, slack_scale=sample_slack(data.margins, _scores(state), rng=rng))


def sample_slack(margins: Margins, scores: FloatArray, *, rng: np.random.Generator) -> FloatArray:
    r"""Slack scales (C, S, N, K) given scores: :math:`1/\lambda \sim IG(1/|u|, 1)`."""
    return np.swapaxes(draw_slack_scale(margins.scales(scores, np.zeros(())), rng=rng), 0, 1)


def draw_slack_scale(s: FloatArray, *, rng: np.random.Generator) -> FloatArray:
    r"""One draw of lambda from GIG(1/2, 1, s**2) for each element of s, from 0 to 1e150.

    Its reciprocal is inverse Gaussian, of mean 1 / s and shape 1. With Y a squared standard normal,
    lambda is one of the roots of :math:`\lambda + s^2 / \lambda = 2 s + Y`: the larger with
    probability lambda / (lambda + s) [1]_. The larger root is a sum of positive terms and the
    smaller s**2 over it, so neither loses digits, unlike ``Generator.wald`` for the reciprocal.
    """
    half = 0.5 * rng.standard_normal(s.shape) ** 2
    larger = s + half + np.sqrt(half * (2.0 * s + half))
    keep = rng.random(s.shape) * (larger + s) <= larger
    return np.where(keep, larger, s * (s / np.maximum(larger, 1e-300)))


def sample_latent(
    state: MarginGibbsState, data: ViewData, *, rng: np.random.Generator
) -> FloatArray:
    r"""Z given all else: :math:`z_n \sim N(P_n^{-1} l_n, P_n^{-1})`.

    .. math::
        P_n = I + \tau W^\top W + \sum_c h_{nc} \eta_c \eta_c^\top, \qquad
        l_n = \tau W^\top (x_n - t) + \sum_c (g_{nc} - h_{nc} e_{0c}) \eta_c
    """
    linear, A = _feature_terms(state, data)
    h, g = _margin_terms(state, data)
    eta = state.weights[:, 1:]
    linear = linear + (g - h * state.weights[:, :1]) @ eta.mT
    precision = _sample_precisions(A, eta, h)
    column = linear[..., None]
    return draw_normal(precision, column, name="latent precision", rng=rng)[..., 0]


def sample_weights_and_slack(
    state: MarginGibbsState, data: ViewData, priors: BM2PCAPriors, *, rng: np.random.Generator
) -> MarginGibbsState:
    r"""Weights, their precision and the slack scales, label by label, with Z integrated out.

    Without label c, z_n is normal, with the precision and linear term of `sample_latent` less
    those of c, and so is the score of c. So eta_c and nu_c are drawn from their marginal
    (`soft_margin_draws`), and scores and slack scales given them. Z must be drawn next.
    """
    linear, A = _feature_terms(state, data)
    n_labels = state.weights.shape[2]
    for c in range(n_labels):
        own = np.arange(n_labels) == c
        precision = A[:, None]
        linear_term = linear
        if n_labels > 1:
            h, g = (np.where(own, 0.0, term) for term in _margin_terms(state, data))
            eta = state.weights[:, 1:]
            precision = _sample_precisions(A, eta, h)
            linear_term = linear + (g - h * state.weights[:, :1]) @ eta.mT
        cov = inv_spd(precision, name="latent precision")[0]
        margins = data.margins.of_label(c)
        weights, nu, scores = soft_margin_draws.draw_soft_margin(
            state.weights[:, :, c],
            state.weight_precision[:, c],
            soft_margin_draws.Scores(
                mean=np.einsum("cnij,cnj->cni", cov, linear_term),
                cov=cov,
                sign=np.where(margins.observed, margins.y, 0.0)[..., 0],
                cost=margins.cost,
            ),
            shape=priors.weight_shape,
            rate=priors.weight_rate,
            rng=rng,
        )
        slack = sample_slack(margins, scores[..., None], rng=rng)
        state = replace(
            state,
            weights=np.where(own, weights[..., None], state.weights),
            weight_precision=np.where(own, nu[:, None], state.weight_precision),
            slack_scale=np.where(own, slack, state.slack_scale),
        )
    return state


def sample_weight_precision(
    state: MarginGibbsState, priors: BM2PCAPriors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Nu given eta: :math:`Ga(a + (k + 1) / 2, b + |\eta_c|^2 / 2)`."""
    shape = priors.weight_shape + 0.5 * state.weights.shape[1]
    rate = priors.weight_rate + 0.5 * np.sum(state.weights**2, axis=1)
    return rng.gamma(shape, 1.0 / rate)


def sample_offset_and_loadings(
    state: MarginGibbsState, data: ViewData, priors: BM2PCAPriors, *, rng: np.random.Generator
) -> MarginGibbsState:
    r"""T and W given Z: rows :math:`(t_j, W_j) \sim N(P^{-1} \tau \tilde Z^\top x_j, P^{-1})`.

    .. math:: P = \operatorname{diag}(\delta, r) + \tau \tilde Z^\top \tilde Z
    """
    Z = np.insert(state.latent, 0, 1.0, axis=2)
    tau = state.noise_precision[:, None, None]
    precision = tau * (Z.mT @ Z)
    prior = np.insert(state.loading_precision, 0, priors.offset_precision, axis=1)
    np.einsum("cii->ci", precision)[...] += prior
    linear = tau * (Z.mT @ data.X)
    both = draw_normal(precision, linear, name="loading precision", rng=rng)
    return replace(state, offset=both[:, 0], loadings=np.ascontiguousarray(both[:, 1:].mT))


def sample_loading_precision(
    state: MarginGibbsState, priors: BM2PCAPriors, *, rng: np.random.Generator
) -> FloatArray:
    r"""R given W: :math:`Ga(a + d / 2, b + |W_i|^2 / 2)`."""
    shape = priors.loading_shape + 0.5 * state.loadings.shape[1]
    rate = priors.loading_rate + 0.5 * np.sum(state.loadings**2, axis=1)
    return rng.gamma(shape, 1.0 / rate)


def sample_noise_precision(
    state: MarginGibbsState, data: ViewData, priors: BM2PCAPriors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Tau given Z, W, t: :math:`Ga(a + N d / 2, b + |X - 1 t^\top - Z W^\top|^2 / 2)`."""
    residual = state.latent @ state.loadings.mT
    residual += state.offset[:, None]
    residual -= data.X
    squares = np.einsum("cnd,cnd->c", residual, residual)
    shape = priors.noise_shape + 0.5 * residual[0].size
    return rng.gamma(shape, 1.0 / (priors.noise_rate + 0.5 * squares))


def step(
    state: MarginGibbsState, data: ViewData, priors: BM2PCAPriors, *, rng: np.random.Generator
) -> MarginGibbsState:
    """One sweep, weights and slack scales with Z integrated out; the input is not modified."""
    state = sample_weights_and_slack(state, data, priors, rng=rng)
    state = replace(state, latent=sample_latent(state, data, rng=rng))
    state = replace(state, weight_precision=sample_weight_precision(state, priors, rng=rng))
    state = sample_offset_and_loadings(state, data, priors, rng=rng)
    state = replace(state, loading_precision=sample_loading_precision(state, priors, rng=rng))
    return replace(state, noise_precision=sample_noise_precision(state, data, priors, rng=rng))


def log_density(state: MarginGibbsState, data: ViewData, priors: BM2PCAPriors) -> FloatArray:
    """Log joint density of each chain, slack scales integrated out, in nats, (C,)."""
    tau = state.noise_precision[:, None, None]
    residual = data.X - state.offset[:, None] - state.latent @ state.loadings.mT
    total = normal_log_density(residual, tau) + data.margins.log_factors(_scores(state))
    total += normal_log_density(state.latent, np.ones_like(state.latent))
    total += normal_log_density(state.offset, np.full_like(state.offset, priors.offset_precision))
    total += normal_log_density(state.loadings, state.loading_precision[:, None])
    total += normal_log_density(state.weights, state.weight_precision[:, None])
    for name in ("loading", "noise", "weight"):
        shape, rate = (getattr(priors, f"{name}_{which}") for which in ("shape", "rate"))
        total += gamma_log_density(getattr(state, f"{name}_precision"), shape, rate)
    return total


def sample_stats(
    state: MarginGibbsState, data: ViewData, priors: BM2PCAPriors
) -> dict[str, FloatArray]:
    """Statistics of a sweep of each chain by their names in ArviZ, (C,) each."""
    return {"lp": log_density(state, data, priors)}


def to_variables(
    state: MarginGibbsState, priors: BM2PCAPriors | None = None
) -> dict[str, FloatArray]:
    """Values by the names and dims of the specification, with a leading chain axis.

    Slack scales of signs are the ``hinge_scale`` (C, N, K) of the augmented PyMC model.

    Priors, which the function of BSDR needs, do not matter.
    """
    values = {f.name: getattr(state, f.name) for f in fields(state) if f.name != "slack_scale"}
    bias = state.weights[:, 0]
    eta = state.weights[:, 1:]
    scaled = state.noise_precision[:, None, None] * state.loadings
    coef = scaled @ np.linalg.solve(_prior_precision(state), eta)
    return values | {
        "bias": bias,
        "weights": eta,
        "scores": _scores(state),
        "hinge_scale": state.slack_scale[:, 0],
        "coef": coef,
        "intercept": bias - np.einsum("cdk,cd->ck", coef, state.offset),
    }


def _scores(state: MarginGibbsState) -> FloatArray:
    """Class scores F of each chain, (C, N, K)."""
    return state.latent @ state.weights[:, 1:] + state.weights[:, :1]


def _margin_terms(state: MarginGibbsState, data: ViewData) -> tuple[FloatArray, FloatArray]:
    """Precision h and linear term g of f from the margins, each (C, N, K)."""
    slack = np.moveaxis(state.slack_scale, 1, 0)
    return data.margins.weights(slack), data.margins.linear_terms(slack)


def _prior_precision(state: MarginGibbsState) -> FloatArray:
    """Precision I + tau W'W of a latent given its features alone, (C, k, k)."""
    W = state.loadings
    return np.eye(W.shape[2]) + state.noise_precision[:, None, None] * (W.mT @ W)


def _feature_terms(state: MarginGibbsState, data: ViewData) -> tuple[FloatArray, FloatArray]:
    """Linear terms tau W'(x - t) of Z from the features, (C, N, k), and I + tau W'W."""
    W = state.loadings
    linear = data.X @ W - state.offset[:, None] @ W
    return state.noise_precision[:, None, None] * linear, _prior_precision(state)


def _sample_precisions(A: FloatArray, eta: FloatArray, h: FloatArray) -> FloatArray:
    """A + sum_c h_nc eta_c eta_c' for every sample, (C, N, k, k)."""
    n_chains, k, n_labels = eta.shape
    outer = np.einsum("cik,cjk->ckij", eta, eta).reshape(n_chains, n_labels, k * k)
    return (h @ outer).reshape(n_chains, -1, k, k) + A[:, None]
