r"""Gibbs sampling for BSDR from the full conditionals of the augmented model.

Each ``sample_*`` draws one block given all others, for C chains along the leading axis. The blocks
are those of the paper, Appendix A, but Q and Z are one, with Z integrated out of the
conditionals of Q.

On separable classes the conditionals of W and Z given the utilities, and of Q given these, are far
narrower than the posterior, so that these blocks alone mix poorly. A sweep of labels has a
Hamiltonian trajectory of Z, Q, W and b given the precisions, without utilities.

Letters: Q projection, Z latent coordinates, W and b weights and bias, T latent utilities, Phi, Psi,
lambda, tau the precisions, v = latent_scale**2. The paper has samples in columns; here X is (N, D).

References
----------
.. [1] A. Beskos, F. J. Pinski, J. M. Sanz-Serna, A. M. Stuart (2011). Hybrid Monte Carlo on Hilbert
       spaces. Stochastic Processes and their Applications 121(10).
.. [2] G. O. Roberts, J. S. Rosenthal (2007). Coupling and ergodicity of adaptive Markov chain Monte
       Carlo algorithms. Journal of Applied Probability 44(2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr

from bsdr_models.bsdr.problem import label_log_likelihood
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.linalg import cholesky
from bsdr_models.options import check_parameters
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.bsdr.mean_field import Data, precision_shape, without_shared_axis
from bsdr_models.papers.bsdr.priors import Priors
from bsdr_models.papers.factors import draw_normal, gamma_log_density, normal_log_density
from bsdr_models.papers.normal_tail import draw_above
from bsdr_models.papers.orthant import draw_argmax, moments
from bsdr_models.papers.sampler import arrays_of

# Acceptance of trajectories at which the step size aims.
ACCEPTANCE = 0.75
# Standard deviation of the log step size between trajectories.
JITTER = 0.2
# Angle by which a trajectory rotates normal coordinates.
ANGLE = 2.0
# Most steps of a trajectory.
MAX_STEPS = 40
# Lapse rate of the force, which needs it to be finite far out. The energy has none.
_LAPSE = 1e-12


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
    # Of the trajectories: the step size, how often it was adapted, and the last acceptance, (C,).
    step_size: float = 0.1
    n_adapted: int = 0
    acceptance_rate: FloatArray | None = None


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
    check_parameters({"priors": [Priors]}, locals(), "init")
    design = _dense(data)
    c = n_chains
    n = data.n_samples
    d = data.n_features
    r = n_components
    k = data.n_labels
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
    rate = priors.projection_rate + 0.5 * squares
    return rng.gamma(priors.projection_shape + 0.5 * entries, 1.0 / rate)


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
    Q = state.projection.copy()
    phi = state.projection_precision
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
    return rng.gamma(priors.weight_shape + 0.5, 1.0 / (priors.weight_rate + 0.5 * state.weights**2))


def sample_bias_precision(
    state: GibbsState, priors: Priors, *, rng: np.random.Generator
) -> FloatArray:
    r"""Lambda given b: :math:`Ga(a + 1/2, b + b_c^2/2)`."""
    return rng.gamma(priors.bias_shape + 0.5, 1.0 / (priors.bias_rate + 0.5 * state.bias**2))


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
    rate = priors.noise_rate + 0.5 * squares
    return rng.gamma(priors.noise_shape + 0.5 * data.n_samples, 1.0 / rate)


def sample_utilities(state: GibbsState, data: Data, *, rng: np.random.Generator) -> FloatArray:
    """T given Z, W, b, y: exact draws from the argmax region, or from a half-line per label."""
    eta = _eta(state)
    if data.target == "multiclass":
        return draw_argmax(eta, data.y, rng=rng)
    sign = np.where(data.y, 1.0, -1.0)
    return sign * draw_above(sign * eta, 0.0, rng=rng)


def sample_trajectory(
    state: GibbsState, data: Data, priors: Priors, *, rng: np.random.Generator
) -> GibbsState:
    r"""Hamiltonian move of Z - X Q, Q, W and b given their precisions, with T integrated out.

    In units of their prior standard deviations, x, the flow of the prior is a rotation, which is
    solved exactly; steps are of the likelihood only [1]_. The energy is

    .. math:: (|x|^2 + |v|^2) / 2 - \log p(y \mid Z W + b) .

    The step size adapts to the acceptance, ever less [2]_. T has to be drawn next.
    """
    X = _dense(data).X
    Q = state.projection
    parts = (state.latent - X @ Q, Q, state.weights, state.bias[:, None])
    precisions = (
        np.full_like(parts[0], priors.latent_scale**-2),
        np.broadcast_to(state.projection_precision, Q.shape),
        state.weight_precision,
        state.bias_precision,
    )
    sd = 1.0 / np.sqrt(_pack(precisions))
    cuts = np.cumsum([part[0].size for part in parts])[:-1]

    def unpack(x: FloatArray) -> tuple[FloatArray, ...]:
        pieces = zip(np.split(sd * x, cuts, axis=1), parts, strict=True)
        offset, Q, W, b = (piece.reshape(part.shape) for piece, part in pieces)
        return X @ Q + offset, Q, W, b

    def force(x: FloatArray) -> FloatArray:
        Z, _, W, b = unpack(x)
        by_eta = _slope(Z @ W + b, data)
        by_latent = by_eta @ W.mT
        return sd * _pack((by_latent, X.T @ by_latent, Z.mT @ by_eta, by_eta.sum(axis=1)))

    def energy(x: FloatArray, v: FloatArray) -> FloatArray:
        Z, _, W, b = unpack(x)
        return 0.5 * np.sum(x**2 + v**2, axis=1) - _log_likelihood(Z @ W + b, data)

    start = x = _pack(parts) / sd
    v = rng.standard_normal(x.shape)
    before = energy(x, v)
    push = force(x)
    h = state.step_size * np.exp(JITTER * rng.standard_normal((len(x), 1)))
    for _ in range(min(int(np.ceil(ANGLE / state.step_size)), MAX_STEPS)):
        v = v + 0.5 * h * push
        x, v = np.cos(h) * x + np.sin(h) * v, np.cos(h) * v - np.sin(h) * x
        push = force(x)
        v = v + 0.5 * h * push
    change = before - energy(x, v)
    accepted = change > -rng.standard_exponential(len(x))
    Z, Q, W, b = unpack(np.where(accepted[:, None], x, start))
    gain = (accepted.mean() - ACCEPTANCE) / np.sqrt(1.0 + state.n_adapted)
    return replace(
        state,
        projection=Q,
        latent=Z,
        weights=W,
        bias=b[:, 0],
        step_size=min(state.step_size * float(np.exp(gain)), 1.0),
        n_adapted=state.n_adapted + 1,
        acceptance_rate=np.exp(np.minimum(np.nan_to_num(change, nan=-np.inf), 0.0)),
    )


def step(state: GibbsState, data: Data, priors: Priors, *, rng: np.random.Generator) -> GibbsState:
    """One sweep: precisions, a trajectory and utilities of labels, Q and Z as a block, W and b.

    Real outputs need no trajectory: their likelihood is not flat.
    """
    state = replace(state, projection_precision=sample_projection_precision(state, priors, rng=rng))
    state = replace(state, bias_precision=sample_bias_precision(state, priors, rng=rng))
    state = replace(state, weight_precision=sample_weight_precision(state, priors, rng=rng))
    if data.target != "regression":
        state = sample_trajectory(state, data, priors, rng=rng)
    state = _sample_response(state, data, priors, rng)
    state = replace(state, projection=sample_projection_collapsed(state, data, priors, rng=rng))
    state = replace(state, latent=sample_latent(state, data, priors, rng=rng))
    bias, weights = sample_weights(state, data, rng=rng)
    return replace(state, bias=bias, weights=weights)


def log_density(state: GibbsState, data: Data, priors: Priors) -> FloatArray:
    """Log joint density of the augmented model at the state of each chain, in nats, (C,)."""
    T, tau = _response(state, data)
    Z_error = state.latent - _dense(data).X @ state.projection
    total = normal_log_density(Z_error, np.full_like(Z_error, priors.latent_scale**-2))
    total += normal_log_density(T - _eta(state), tau)
    return total + log_prior(state, priors)


def log_prior(state: GibbsState, priors: Priors) -> FloatArray:
    """Log density of the parameters of each chain, latent coordinates apart, in nats, (C,)."""
    total = normal_log_density(state.projection, state.projection_precision)
    total += normal_log_density(state.weights, state.weight_precision)
    total += normal_log_density(state.bias, state.bias_precision)
    for name in ("projection", "weight", "bias", "noise"):
        if (precision := getattr(state, f"{name}_precision")) is not None:
            shape, rate = (getattr(priors, f"{name}_{which}") for which in ("shape", "rate"))
            total += gamma_log_density(precision, shape, rate)
    return total


def sample_stats(state: GibbsState, data: Data, priors: Priors) -> dict[str, FloatArray]:
    """Statistics of a sweep of each chain by their names in ArviZ, (C,) each."""
    stats = {"lp": log_density(state, data, priors), "log_prior": log_prior(state, priors)}
    if (rate := state.acceptance_rate) is not None:
        stats |= {"acceptance_rate": rate, "step_size": np.full_like(rate, state.step_size)}
    return stats


def _log_likelihood(eta: FloatArray, data: Data) -> FloatArray:
    """Log probability of the labels, (C,), from eta (C, N, K)."""
    if data.target == "multilabel":
        return log_ndtr(np.where(data.y, eta, -eta)).sum(axis=(1, 2))
    y = np.broadcast_to(data.y, eta.shape[:2])
    log_p = moments(eta.reshape(-1, eta.shape[2]), y.ravel()).log_prob
    return log_p.reshape(y.shape).sum(axis=1)


def _slope(eta: FloatArray, data: Data) -> FloatArray:
    """Its gradient, (C, N, K), by a fast rule that is zero far out."""
    shape = eta.shape if data.target == "multilabel" else eta.shape[:2]
    y = np.broadcast_to(data.y, shape).reshape(-1, *shape[2:])
    flat = eta.reshape(1, -1, eta.shape[2])
    return label_log_likelihood(flat, y, data.target, _LAPSE)[1].reshape(eta.shape)


def _pack(parts: Sequence[FloatArray]) -> FloatArray:
    """Arrays (C, ...) side by side, (C, P)."""
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def _sample_response(
    state: GibbsState, data: Data, priors: Priors, rng: np.random.Generator
) -> GibbsState:
    """The state with new noise precisions of real targets, or utilities of labels."""
    if data.target == "regression":
        return replace(state, noise_precision=sample_noise_precision(state, data, priors, rng=rng))
    return replace(state, utilities=sample_utilities(state, data, rng=rng))


def to_variables(state: GibbsState, priors: Priors) -> dict[str, FloatArray]:
    """Values with the names and shapes of the augmented PyMC model, and a leading chain axis."""
    values = arrays_of(replace(state, acceptance_rate=None))
    phi = without_shared_axis(state.projection_precision, priors.projection_prior)
    return values | {"projection_precision": phi}


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
