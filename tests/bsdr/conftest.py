"""Toy problems for BSDR, an independent joint density, and the three checks of a mean field.

Nothing here uses the algebra of the package: the projection carries its full covariance, the
joint is written with SciPy densities, and moments of truncated utilities come from fine grids. The
fixture ``lab`` has all of this.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from bsdr_models.papers.bsdr import mean_field as mf
from bsdr_models.papers.bsdr.design import DenseDesign, SpectralDesign
from bsdr_models.papers.bsdr.mean_field import Data
from bsdr_models.papers.bsdr.priors import Priors
from bsdr_models.papers.factors import NormalColumns, NormalRows, RidgeColumns
from tests import mean_field_lab as shared

# All hyper-parameters differ, and none is its own inverse.
PRIORS = Priors(
    projection_shape=2.5,
    projection_rate=0.7,
    weight_shape=1.6,
    weight_rate=2.2,
    bias_shape=3.1,
    bias_rate=0.4,
    noise_shape=1.7,
    noise_rate=2.9,
    latent_scale=0.6,
)
# N, D, R, K; with R + 1 all different. Wide problems use the N x N form of the ridge.
SIZES = {"tall": (11, 5, 2, 4), "wide": (5, 13, 3, 2), "binary": (12, 6, 3, 2)}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Data in working coordinates ``X``, (N, D), as the joint density sees them."""

    kind: str
    target: str
    n_components: int
    X: np.ndarray
    data: Data
    priors: Priors

    @property
    def precision_shape(self):
        d, r = self.X.shape[1], self.n_components
        return {"entrywise": (d, r), "columnwise": (1, r), "rowwise": (d, 1)}[self.kind]

    def bound(self, state):
        return sum(mf.elbo_terms(state, self.data, self.priors).values())


def make_problem(kind, target, size="tall", *, spectral=False, priors=PRIORS, seed=0):
    """Random samples, targets of every type, all labels present."""
    n, d, r, k = SIZES[size]
    assert len({n, d, r, r + 1, k}) == 5
    rng = np.random.default_rng([17, seed])
    X = rng.standard_normal((n, d)) + rng.standard_normal(d)
    design = SpectralDesign.of(X) if spectral else DenseDesign(X)
    y = {
        "multiclass": rng.permutation(np.arange(n) % k),
        "multilabel": rng.random((n, k)) < 0.5,
        "regression": 2.0 * rng.standard_normal((n, k)) + 1.0,
    }[target]
    data = Data(design=design, y=y, n_labels=k, target=target)
    X = design.X if spectral else X
    return Problem(kind=kind, target=target, n_components=r, X=X, data=data, priors=priors)


# --------------------------------------------------------------------------------- the joint


def log_joint(problem, draws):
    """Log density of y and of all unknowns, (S,), from the definition of the model."""
    p, X, y = problem.priors, problem.X, problem.data.y
    phi, Q, Z = draws["projection_precision"], draws["projection"], draws["latent"]
    psi, W, T = draws["weight_precision"], draws["weights"], draws["utilities"]

    def normal(x, mean, scale):
        return stats.norm.logpdf(x, mean, scale)

    eta = Z @ W[:, 1:] + W[:, :1]
    parts = [
        shared.log_gamma(phi, p.projection_shape, p.projection_rate),
        normal(Q, 0.0, np.broadcast_to(phi, Q.shape) ** -0.5),
        normal(Z, X @ Q, p.latent_scale),
        shared.log_gamma(psi[:, :1], p.bias_shape, p.bias_rate),
        shared.log_gamma(psi[:, 1:], p.weight_shape, p.weight_rate),
        normal(W, 0.0, psi**-0.5),
    ]
    if problem.target == "regression":
        tau = draws["noise_precision"]
        parts += [
            shared.log_gamma(tau, p.noise_shape, p.noise_rate),
            normal(y, eta, tau[:, None] ** -0.5),
        ]
    else:
        possible = T.argmax(axis=2) == y if problem.target == "multiclass" else (T > 0) == y
        assert possible.all()
        parts.append(normal(T, eta, 1.0))
    return sum(part.reshape(len(Q), -1).sum(axis=1) for part in parts)


def draw_q(problem, state, cov, *, size, rng):
    """Draws of every factor and their log density under q, (S,); cov (R, D, D) is that of Q."""
    q = shared.Draws(size, rng)
    found = {
        "projection_precision": q.gamma(state.projection_precision),
        "weight_precision": q.gamma(state.weight_precision),
        "projection": q.normals(state.projection.mean.T, cov).swapaxes(1, 2),
        "latent": q.normals(state.latent.mean, state.latent.cov),
        "weights": q.normals(state.weights.mean.T, state.weights.cov).swapaxes(1, 2),
        "utilities": None,
    }
    if problem.target == "regression":
        found["noise_precision"] = q.gamma(state.noise_precision)
    else:
        origin = state.utilities.origin
        found["utilities"] = draw_utilities(origin, problem, size=size, rng=rng)
        q.add(stats.norm.logpdf(found["utilities"], origin))
        q.log_q -= truncated_moments(origin, problem)[0].sum()
    return found, q.log_q


def draw_utilities(origin, problem, *, size, rng):
    """N(origin, I) given the targets, (S, N, K), by inverting distribution functions.

    For a class, first u = t_y - origin_y from its marginal, which has density proportional to
    phi(u) prod_j Phi(u + origin_y - origin_j); the other utilities are then normals below t_y.
    """
    y = problem.data.y
    below = np.log(1.0 - rng.random((size, *origin.shape)))
    if problem.target == "multilabel":
        sign = np.where(y, 1.0, -1.0)
        return origin - sign * ndtri_exp(below + log_ndtr(sign * origin))
    out = np.empty((size, *origin.shape))
    grid = np.linspace(-12.0, 12.0, 20_001)
    for n, (mean, label) in enumerate(zip(origin, y, strict=True)):
        others = np.delete(mean, label)
        log_f = stats.norm.logpdf(grid) + log_ndtr(grid[:, None] + mean[label] - others).sum(axis=1)
        cdf = np.cumsum(np.exp(log_f - log_f.max()))
        top = mean[label] + np.interp(rng.random(size) * cdf[-1], cdf, grid)
        out[:, n] = mean + ndtri_exp(below[:, n] + log_ndtr(top[:, None] - mean))
        out[:, n, label] = top
    return out


def truncated_moments(origin, problem):
    """Log probability (N,) and mean (N, K) of N(origin, I) given the targets.

    The trapezoidal rule on smooth integrands that vanish at both ends is exact to rounding.
    """
    y = problem.data.y
    if problem.target == "multilabel":
        sign = np.where(y, 1.0, -1.0)
        log_prob = stats.norm.logcdf(sign * origin)
        return log_prob.sum(axis=1), origin + sign * np.exp(stats.norm.logpdf(origin) - log_prob)
    u = np.linspace(-14.0, 14.0, 561)
    rows = np.arange(len(y))
    difference = u[:, None, None] + origin[rows, y][:, None] - origin  # (U, N, K)
    log_cdf = log_ndtr(difference)
    log_cdf[:, rows, y] = 0.0
    log_f = stats.norm.logpdf(u)[:, None] + log_cdf.sum(axis=2) + np.log(u[1] - u[0])
    log_prob = logsumexp(log_f, axis=0)
    hazard = np.exp(stats.norm.logpdf(difference) - log_ndtr(difference))
    hazard[:, rows, y] = 0.0
    shift = -np.einsum("un,unk->nk", np.exp(log_f - log_prob), hazard)
    shift[rows, y] = -shift.sum(axis=1)
    return log_prob, origin + shift


# --------------------------------------------------------------------------------- the states


def summaries(mean, cov, X):
    """`RidgeColumns` of normals with full covariances (R, D, D)."""
    return RidgeColumns(
        mean=mean,
        variance=np.einsum("rdd->dr", cov).copy(),
        log_det=shared.log_dets(cov),
        gram_trace=np.einsum("nd,rde,ne->r", X, cov, X),
        fitted=X @ mean,
    )


def updates(problem):
    """Factor by name -> its single update, state -> state."""
    data, priors = problem.data, problem.priors
    table = {
        "projection_precision": lambda s: mf.update_projection_precision(s, priors),
        "projection": lambda s: mf.update_projection(s, data, priors),
        "latent": lambda s: mf.update_latent(s, priors),
        "weight_precision": lambda s: mf.update_weight_precision(s, priors),
        "weights": lambda s: mf.update_weights(s),
        "utilities": lambda s: mf.update_utilities(s, data),
    }
    if problem.target == "regression":
        table["noise_precision"] = lambda s: mf.update_noise_precision(s, priors)
    return table


def updated(problem, state, name):
    return replace(state, **{name: updates(problem)[name](state)})


def ridge_cov(problem, state):
    """S_s that an update of the projection from this state has, (R, D, D), by dense inverses."""
    d, r = problem.X.shape[1], problem.n_components
    phi = np.broadcast_to(state.projection_precision.mean, (d, r))
    gram = problem.X.T @ problem.X / problem.priors.latent_scale**2
    return np.array([np.linalg.inv(np.diag(column) + gram) for column in phi.T])


def scrambled(problem, rng):
    """A state of random, mutually inconsistent factors; and Cov(Q)."""
    n, d = problem.X.shape
    r, k = problem.n_components, problem.data.n_labels
    cov = shared.random_covs(rng, r, d)
    cov_z = shared.random_covs(rng, r)
    cov_w = shared.random_covs(rng, k, 1 + r)
    start = mf.init(
        problem.data,
        replace(problem.priors, projection_prior=problem.kind),
        n_components=r,
        rng=rng,
        at_random=True,
    )
    state = replace(
        start,
        projection_precision=shared.random_gammas(rng, *problem.precision_shape),
        projection=summaries(0.5 * rng.standard_normal((d, r)), cov, problem.X),
        latent=NormalRows(
            mean=rng.standard_normal((n, r)), cov=cov_z, log_det=shared.log_dets(cov_z)
        ),
        weight_precision=shared.random_gammas(rng, 1 + r, k),
        weights=NormalColumns(
            mean=rng.standard_normal((1 + r, k)), cov=cov_w, log_det=shared.log_dets(cov_w)
        ),
        utilities=mf.make_utilities(0.7 * rng.standard_normal((n, k)), problem.data),
    )
    if problem.target == "regression":
        state = replace(state, noise_precision=shared.random_gammas(rng, k))
    return state, cov


def unfinished(problem, rng):
    """A state in the middle of a fit, with factors updated in random order; and Cov(Q).

    Factors were updated at different states: the origin of the utilities, for one, is not E[eta].
    """
    state, cov = scrambled(problem, rng)
    for name in rng.permutation(2 * list(updates(problem))):
        if name == "projection":
            cov = ridge_cov(problem, state)
        state = updated(problem, state, name)
    return state, cov


# --------------------------------------------------------------------------------- the checks


def check_monte_carlo(problem, *, seed, size=12_000, max_error=0.1):
    rng = np.random.default_rng([23, seed])
    state, cov = unfinished(problem, rng)

    def draw():
        draws, log_q = draw_q(problem, state, cov, size=size, rng=rng)
        return log_joint(problem, draws) - log_q

    shared.check_monte_carlo(problem.bound(state), draw, max_error=max_error)


def check_monotone(problem, *, seed, n_updates=30):
    """No single update lowers the bound, in any order, from any state."""
    rng = np.random.default_rng([29, seed])
    state, _ = scrambled(problem, rng)
    names = rng.choice(list(updates(problem)), n_updates)
    shared.check_monotone(problem.bound, state, partial(updated, problem), names)


def check_stationary(problem, *, seed):
    """Along every parameter."""
    rng = np.random.default_rng([31, seed])
    state, _ = unfinished(problem, rng)
    for name in updates(problem):
        best = updated(problem, state, name)
        moved = moves_of(problem, best, ridge_cov(problem, state), name)
        shared.check_stationary(name, problem.bound, best, moved, unit_vectors)


def unit_vectors(what, shape):
    """All; of covariances those of lower triangles, which reach every covariance."""
    every = np.eye(math.prod(shape)).reshape(-1, *shape)
    return [vector for vector in every if what != "cov" or np.tril(vector).any()]


def moves_of(problem, state, cov, name):
    """Parameters of one factor, as `moves` has them, of the state; cov (R, D, D) is that of Q.

    Truncated normals move by their untruncated mean.
    """
    factor = getattr(state, name)

    def utilities(origin):
        log_prob, mean = truncated_moments(origin, problem)
        return replace(factor, origin=origin, mean=mean, log_prob=log_prob.sum())

    if name == "projection":
        X = problem.X
        mean = factor.mean
        each = [
            ("mean", mean.shape, lambda step: summaries(mean + step, cov, X)),
            ("cov", cov.shape, lambda step: summaries(mean, shared.stretched(cov, step), X)),
        ]
    elif name != "utilities":
        each = shared.moves(factor)
    elif problem.target != "regression":
        each = [("origin", factor.origin.shape, lambda step: utilities(factor.origin + step))]
    else:
        each = []
    for what, shape, move in each:
        yield what, shape, lambda step, move=move: replace(state, **{name: move(step)})


@pytest.fixture(scope="session")
def lab():
    """Everything above by name."""
    return SimpleNamespace(**{k: v for k, v in globals().items() if callable(v)}, PRIORS=PRIORS)
