r"""Gibbs sampling for BSDR from the full conditionals of the augmented model.

Each ``sample_*`` draws one block given all others, for C chains along the leading axis. The blocks
are those of the paper [1]_, Appendix A, but Q and Z are one, with Z integrated out of the
conditionals of Q, and a sweep ends with an exact move of the common scale of T, W and b, in which
the paper's sweep mixes slowly.

On separable classes the conditionals of W and Z given the utilities, and of Q given these, are far
narrower than the posterior, and the sampler mixes poorly; NUTS on the marginal PyMC model does not.

Letters: Q projection, Z latent coordinates, W and b weights and bias, T latent utilities, Phi, Psi,
lambda, tau the precisions, v = latent_scale**2. The paper has samples in columns; here X is (N, D).

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
       IEEE Transactions on Cybernetics 43(6).
"""

from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.arrays import FloatArray, ProjectionPrior
from bsdr_models.bsdr.paper.mean_field import Data, drop_tied, precision_shape
from bsdr_models.bsdr.priors import Priors
from bsdr_models.numerics.design import DenseDesign
from bsdr_models.numerics.linalg import cholesky, draw_normal
from bsdr_models.numerics.normal_tail import draw_above
from bsdr_models.numerics.orthant import draw_argmax


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsState:
    """Values of all variables. C chains, N samples, D features, R components, K labels."""

    # Phi, (C, D, R) entrywise, (C, 1, R) columnwise, (C, D, 1) rowwise.
    projection_precision: FloatArray
    projection: FloatArray  # Q, (C, D, R)
    latent: FloatArray  # Z, (C, N, R)
    weight_precision: FloatArray  # Psi, (C, R, K)
    weights: FloatArray  # W, (C, R, K)
    bias_precision: FloatArray  # lambda, (C, K)
    bias: FloatArray  # b, (C, K)
    utilities: FloatArray | None = None  # T, (C, N, K); of labels
    noise_precision: FloatArray | None = None  # tau, (C, K); of real targets


def init(
    data: Data,
    priors: Priors,
    *,
    n_components: int,
    n_chains: int,
    rng: np.random.Generator,
) -> GibbsState:
    """Overdispersed random states of C chains: Q X of unit variance, standard normal weights.

    The design is dense, since draws are over the features.
    """
    design = _dense(data)
    c, n, d, r, k = n_chains, data.n_samples, data.n_features, n_components, data.n_labels
    Q = rng.standard_normal((c, d, r))
    Z = design.X @ Q
    size = np.sqrt(np.mean(Z**2, axis=1, keepdims=True))
    size[size == 0.0] = 1.0
    state = GibbsState(
        projection_precision=np.ones((c, *precision_shape(priors.projection_prior, d, r))),
        projection=Q / size,
        latent=Z / size + priors.latent_scale * rng.standard_normal((c, n, r)),
        weight_precision=np.ones((c, r, k)),
        weights=rng.standard_normal((c, r, k)),
        bias_precision=np.ones((c, k)),
        bias=np.zeros((c, k)),
    )
    return _sample_response(state, data, priors, rng)


def sample_projection_precision(
    state: GibbsState, priors: Priors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Phi given Q: :math:`Ga(a + n/2, b + |q|^2/2)` over the n entries that share a precision."""
    shape = state.projection_precision.shape
    shared = tuple(axis for axis, length in enumerate(shape) if length == 1)
    squares = np.sum(state.projection**2, axis=shared, keepdims=True).reshape(shape)
    entries = state.projection.size // state.projection_precision.size
    return _gamma(
        priors.projection_shape + 0.5 * entries, priors.projection_rate + 0.5 * squares, rng
    )


def sample_projection_collapsed(
    state: GibbsState, data: Data, priors: Priors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Q given T, with Z integrated out, one column after the other.

    With :math:`t_n \sim N(W^\top Q^\top x_n + b,\; \operatorname{diag}(1/\tau) + v W^\top W)` and
    :math:`M = W \operatorname{diag}(\tau) W^\top`, the likelihood of Q has the precision
    :math:`X^\top X \otimes A` and the linear term :math:`X^\top L`,

    .. math::
        A = M (I + v M)^{-1}, \qquad L = (T - b) \operatorname{diag}(\tau) W^\top (I + v M)^{-1}.

    Z has to be drawn next, given this Q.
    """
    design = _dense(data)
    T, tau = _response(state, data)
    W_tau = tau * state.weights
    M = W_tau @ state.weights.mT  # (C, R, R)
    shrink = np.linalg.inv(np.eye(M.shape[-1]) + priors.latent_scale**2 * M)
    A = M @ shrink
    linear = (T - state.bias[:, None, :]) @ (W_tau.mT @ shrink)  # (C, N, R)
    Q, phi = state.projection.copy(), state.projection_precision
    fitted = design.X @ Q
    for s in range(Q.shape[2]):
        others = A[:, s] * (np.arange(Q.shape[2]) != s)
        column = design.draw(
            linear[:, :, s, None] - fitted @ others[:, :, None],
            phi[:, :, min(s, phi.shape[2] - 1)],
            A[:, s, s],
            rng=rng,
        )
        Q[:, :, s, None] = column
        fitted[:, :, s, None] = design.X @ column
    return Q


def sample_latent(
    state: GibbsState, data: Data, priors: Priors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Z given Q, W, b, T: rows :math:`N(S_z l_n, S_z)`.

    .. math::
        S_z = (I/v + W \operatorname{diag}(\tau) W^\top)^{-1}, \qquad
        l_n = Q^\top x_n / v + W \operatorname{diag}(\tau) (t_n - b)
    """
    variance = priors.latent_scale**2
    T, tau = _response(state, data)
    W_tau = tau * state.weights
    precision = W_tau @ state.weights.mT + np.eye(state.weights.shape[1]) / variance
    linear = (_dense(data).X @ state.projection) / variance
    linear += (T - state.bias[:, None, :]) @ W_tau.mT
    half = np.linalg.inv(cholesky(precision, name="latent precision"))  # S_z = half' half
    return (linear @ half.mT + rng.standard_normal(linear.shape)) @ half


def sample_weight_precision(
    state: GibbsState, priors: Priors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Psi given W: :math:`Ga(a + 1/2, b + w^2/2)`."""
    return _gamma(priors.weight_shape + 0.5, priors.weight_rate + 0.5 * state.weights**2, rng)


def sample_bias_precision(
    state: GibbsState, priors: Priors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Lambda given b: :math:`Ga(a + 1/2, b + b_c^2/2)`."""
    return _gamma(priors.bias_shape + 0.5, priors.bias_rate + 0.5 * state.bias**2, rng)


def sample_weights(
    state: GibbsState, data: Data, *, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    r"""b and W given Z, T: one normal for each label, of precision P_c.

    .. math::
        (b_c, w_c) \sim N(P_c^{-1} \tau_c \tilde Z^\top t_c,\; P_c^{-1}), \qquad
        P_c = \operatorname{diag}(\lambda_c, \psi_c) + \tau_c \tilde Z^\top \tilde Z,
        \qquad \tilde Z = [1, Z]
    """
    T, tau = _response(state, data)
    Z = np.concatenate([np.ones_like(state.latent[:, :, :1]), state.latent], axis=2)
    prior = np.concatenate([state.bias_precision[:, None, :], state.weight_precision], axis=1)
    tau = tau.mT[..., None]  # (C, K, 1, 1)
    precision = tau * (Z.mT @ Z)[:, None]  # (C, K, 1 + R, 1 + R)
    np.einsum("ckii->cki", precision)[...] += prior.mT
    linear = tau * (Z.mT @ T).mT[..., None]  # (C, K, 1 + R, 1)
    draw = draw_normal(precision, linear, name="weight precision", rng=rng)
    return draw[:, :, 0, 0], np.ascontiguousarray(draw[:, :, 1:, 0].mT)


def sample_noise_precision(
    state: GibbsState, data: Data, priors: Priors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Tau given Z, W, b, for regression: :math:`Ga(a + N/2, b + |y_c - \eta_c|^2/2)`."""
    squares = np.sum((data.y - _eta(state)) ** 2, axis=1)
    return _gamma(priors.noise_shape + 0.5 * data.n_samples, priors.noise_rate + 0.5 * squares, rng)


def sample_utilities(state: GibbsState, data: Data, *, rng: np.random.Generator) -> FloatArray:
    """T given Z, W, b, y: exact draws from the argmax region, or from a half-line per label."""
    eta = _eta(state)
    if data.target == "multiclass":
        return draw_argmax(eta, data.y, rng=rng)
    sign = np.where(data.y, 1.0, -1.0)
    return sign * draw_above(sign * eta, 0.0, rng=rng)


def sample_scale(state: GibbsState, *, rng: np.random.Generator) -> GibbsState:
    r"""Scale T, W and b by a common factor g, which leaves the likelihood unchanged.

    With the Haar measure dg/g and d scaled entries,

    .. math::
        g^2 \sim Ga(d/2, S/2), \qquad
        S = |T - Z W - b|^2 + \sum \psi w^2 + \sum \lambda b^2 .
    """
    assert state.utilities is not None
    W, b, T = state.weights, state.bias, state.utilities
    S = np.sum((T - _eta(state)) ** 2, axis=(1, 2))
    S += np.sum(state.weight_precision * W**2, axis=(1, 2))
    S += np.sum(state.bias_precision * b**2, axis=1)
    n_scaled = (T.size + W.size + b.size) // len(T)
    g = np.sqrt(_gamma(0.5 * n_scaled, 0.5 * S, rng))[:, None]
    return replace(state, weights=g[:, None] * W, bias=g * b, utilities=g[:, None] * T)


def step(state: GibbsState, data: Data, priors: Priors, *, rng: np.random.Generator) -> GibbsState:
    """One sweep with Q and Z as a block, and the scale move."""
    state = replace(state, projection_precision=sample_projection_precision(state, priors, rng=rng))
    state = replace(state, projection=sample_projection_collapsed(state, data, priors, rng=rng))
    state = replace(state, latent=sample_latent(state, data, priors, rng=rng))
    state = replace(state, bias_precision=sample_bias_precision(state, priors, rng=rng))
    state = replace(state, weight_precision=sample_weight_precision(state, priors, rng=rng))
    bias, weights = sample_weights(state, data, rng=rng)
    state = _sample_response(replace(state, bias=bias, weights=weights), data, priors, rng)
    return state if state.utilities is None else sample_scale(state, rng=rng)


def _sample_response(
    state: GibbsState, data: Data, priors: Priors, rng: np.random.Generator
) -> GibbsState:
    """The state with new noise precisions of real targets, or utilities of labels."""
    if data.target == "regression":
        return replace(state, noise_precision=sample_noise_precision(state, data, priors, rng=rng))
    return replace(state, utilities=sample_utilities(state, data, rng=rng))


def to_variables(state: GibbsState, projection_prior: ProjectionPrior) -> dict[str, FloatArray]:
    """Values with the names and shapes of the augmented PyMC model, and a leading chain axis."""
    values = {name: getattr(state, name) for name in GibbsState.__dataclass_fields__}
    values["projection_precision"] = drop_tied(state.projection_precision, projection_prior)
    return {name: value for name, value in values.items() if value is not None}


def _dense(data: Data) -> DenseDesign:
    if not isinstance(data.design, DenseDesign):
        raise TypeError("Gibbs sampling draws over the features: it needs a DenseDesign")
    return data.design


def _response(state: GibbsState, data: Data) -> tuple[FloatArray, FloatArray]:
    """Normal response given eta, T or y, (C, N, K), and its precision, (C, 1, K)."""
    if state.utilities is not None:
        return state.utilities, np.ones_like(state.bias[:, None, :])
    assert state.noise_precision is not None
    y = np.broadcast_to(data.y, (*state.latent.shape[:2], data.n_labels))
    return y, state.noise_precision[:, None]


def _eta(state: GibbsState) -> FloatArray:
    """Linear predictors Z W + b, (C, N, K)."""
    return state.latent @ state.weights + state.bias[:, None, :]


def _gamma(shape: float, rate: FloatArray, rng: np.random.Generator) -> FloatArray:
    return rng.gamma(shape, 1.0 / rate)
