r"""Pseudo-marginal Hamiltonian Monte Carlo for BSDR: latents averaged over, precisions integrated.

The paper's sweeps creep where classes are (nearly) separable, because the scores T and the latent
positions Z pin the size of W and Q. Here neither is kept, nor any precision. What remains is
:math:`\theta = (Q, W, b)` and, for each row, M points :math:`v_m = (\epsilon_m, u_m)` of the noise,

.. math::
    \pi(\theta, v) \propto p(\theta) \prod_n \Big\{ \prod_m N(v_{nm}; 0, I) \Big\}
        \frac1M \sum_m l_{nm}, \qquad
    l_{nm} = \prod_{j \ne y_n} \Phi(u_{nm} + \eta_{y_n} - \eta_j), \qquad
    \eta = b + W^\top (Q^\top x_n + \sigma \epsilon_{nm}) .

The mean of :math:`l_{nm}` over N(0, I) is :math:`p(y_n \mid x_n, \theta)` with Z and T integrated
out [1]_, so the marginal of :math:`\theta` is the posterior for every M, exactly [2]_. The prior of
each entry is Student-t with :math:`2 a` degrees of freedom and squared scale rate / a, and
multivariate t over entries that share a precision.

``step`` is one sweep, all chains at once: a trajectory in the coordinates
:math:`\operatorname{asinh}(w / \mathrm{scale})`, in which heavy tails have ordinary width; a move
of common scales; fresh points (all but one of a row, which is kept with probability proportional
to its l); a rotation of two components and a translation of all classes, to which the likelihood is
blind. The step size is tuned in the warm-up and then held fixed.

References
----------
.. [1] M. Gönen (2013). Bayesian supervised dimensionality reduction.
       IEEE Transactions on Cybernetics 43(6).
.. [2] C. Andrieu, G. O. Roberts (2009). The pseudo-marginal approach for efficient Monte Carlo
       computations. The Annals of Statistics 37(2).
.. [3] C. Andrieu, A. Doucet, R. Holenstein (2010). Particle Markov chain Monte Carlo methods.
       Journal of the Royal Statistical Society B 72(3).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from bsdr_models.bsdr import averaged_target as target
from bsdr_models.bsdr import gibbs
from bsdr_models.bsdr.averaged_target import Problem
from bsdr_models.bsdr.priors import Priors
from bsdr_models.numerics import hmc, slice_draws
from bsdr_models.typing import FloatArray, IntArray, ProjectionPrior

# Points of a row. Fewer cost less and stick more often: with four a chain was seen to stray far
# into the tail, with eight never.
N_POINTS = 8
# Leapfrogs are drawn from 1 to this many.
MAX_STEPS = 120
# Where the search for the step size begins.
FIRST_STEP = 0.05
# Jitter of the log step size.
_JITTER = 0.1
# Width of the bracket of a log scale; affects speed only.
_SCALE_WIDTH = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One value of everything in each chain.

    entries
        Q, W and b in units of their prior scales, (C, P).
    points
        epsilon, then u, standard normal a priori: (C, M, R + 1, N). The first of each row is a
        draw given y; the others are as under their prior.
    search
        For the step size of the trajectories.
    """

    entries: FloatArray
    points: FloatArray
    search: hmc.DualAveraging


def init(problem: Problem, start: gibbs.State, *, rng: np.random.Generator) -> State:
    """Q, W and b of a state of `gibbs`, and points that are drawn afresh."""
    blocks = (start.projection, start.weights, start.bias)
    return State(
        entries=target.join(blocks) / problem.unit,
        points=_fresh_points(problem, len(start.bias), rng),
        search=hmc.DualAveraging(centre=math.log(FIRST_STEP)),
    )


def move_trajectory(
    state: State, problem: Problem, step_size: float, *, rng: np.random.Generator
) -> tuple[State, float]:
    """Q, W and b given the points, by one trajectory; and its mean acceptance probability."""
    x, acceptance = hmc.draw(
        np.arcsinh(state.entries),
        lambda x: target.log_density(x, state.points, problem),
        step_size=step_size * math.exp(_JITTER * rng.standard_normal()),
        n_steps=int(rng.integers(1, MAX_STEPS + 1)),
        rng=rng,
    )
    return replace(state, entries=np.sinh(x)), float(acceptance.mean())


def scale_exponents(problem: Problem, *, rng: np.random.Generator) -> FloatArray:
    """Which entries a move of scale multiplies by g, and which by 1/g: +1, -1 or 0, (P,).

    One of: W and b; Q and b; Q against W; a column of Q against its row of W.
    """
    blocks = [np.zeros((1, *shape)) for shape in problem.shapes]
    Q, W, b = blocks
    kind = rng.integers(4)
    if kind == 0:
        W[:], b[:] = 1.0, 1.0
    elif kind == 1:
        Q[:], b[:] = 1.0, 1.0
    elif kind == 2:
        Q[:], W[:] = 1.0, -1.0
    else:
        s = rng.integers(problem.shapes[0][1])
        Q[:, :, s], W[:, s] = 1.0, -1.0
    return target.join((Q, W, b))[0]


def move_scale(state: State, problem: Problem, *, rng: np.random.Generator) -> State:
    r"""Multiply some entries by g and others by 1/g, with t = log g by a slice.

    With the measure dg / g the density along the orbit is that of the entries times
    :math:`e^{S t}`, S the sum of the exponents.
    """
    exponents = scale_exponents(problem, rng=rng)

    def moved(t: FloatArray) -> FloatArray:
        return state.entries * np.exp(t[:, None] * exponents)

    def log_along(t: FloatArray) -> FloatArray:
        entries = moved(t)
        likelihood, _, _ = target.log_likelihood(
            entries, state.points, problem, with_gradient=False
        )
        value = likelihood + target.log_prior(entries, problem)[0] + orbit_measure(t, exponents)
        return np.where(target.is_inside(entries), value, -np.inf)

    t = slice_draws.draw(log_along, _SCALE_WIDTH, n_chains=len(state.entries), rng=rng)
    return replace(state, entries=moved(t))


def orbit_measure(t: FloatArray, exponents: FloatArray) -> FloatArray:
    """Log of the Jacobian of a move of scale, (C,)."""
    return t * exponents.sum()


def refresh_points(state: State, problem: Problem, *, rng: np.random.Generator) -> State:
    """Points given Q, W, b: one of each row is kept, in proportion to its l, the others drawn [3]_.

    Given which one carries the likelihood, the others are as under their prior.
    """
    _, _, share = target.log_likelihood(state.entries, state.points, problem, with_gradient=False)
    points = _fresh_points(problem, len(state.entries), rng, n_points=state.points.shape[1])
    kept = choose_points(share, rng=rng)[:, None, None, :]
    points[:, :1] = np.take_along_axis(state.points, kept, axis=1)
    return replace(state, points=points)


def choose_points(share: FloatArray, *, rng: np.random.Generator) -> IntArray:
    """One point of each row, with the probabilities ``share`` (C, M, N): (C, N)."""
    reached = np.cumsum(share, axis=1)
    level = rng.random(share[:, 0].shape) * reached[:, -1]
    return np.sum(reached[:, :-1] <= level[:, None], axis=1)


def rotate(state: State, problem: Problem, *, rng: np.random.Generator) -> State:
    """Turn two components: columns of Q, rows of W and epsilon alike. Scores stay as they are."""
    n_components = problem.shapes[0][1]
    if n_components < 2:
        return state
    pair = rng.choice(n_components, 2, replace=False)

    def turned(angle: FloatArray) -> FloatArray:
        return turn_entries(state.entries, angle, pair, problem)

    def log_along(angle: FloatArray) -> FloatArray:
        entries = turned(angle)
        return np.where(target.is_inside(entries), target.log_prior(entries, problem)[0], -np.inf)

    angle = slice_draws.draw(log_along, 2.0 * np.pi, n_chains=len(state.entries), rng=rng)
    points = turn_points(state.points, angle, pair)
    return replace(state, entries=turned(angle), points=points)


def turn_entries(
    entries: FloatArray, angle: FloatArray, pair: IntArray, problem: Problem
) -> FloatArray:
    """Entries (C, P) with a pair of components turned by an angle (C,)."""
    out = entries.copy()
    Q, W, _ = target.split(out, problem)
    Q[:, :, pair] = _turned(np.swapaxes(Q, 1, 2), angle, pair).swapaxes(1, 2)
    W[:, pair] = _turned(W, angle, pair)
    return out


def turn_points(points: FloatArray, angle: FloatArray, pair: IntArray) -> FloatArray:
    """Points with their epsilon turned as `turn_entries` turns components."""
    out = points.copy()
    by_component = np.swapaxes(points, 1, 2)  # (C, R + 1, M, N)
    out[:, :, pair] = _turned(by_component, angle, pair).swapaxes(1, 2)
    return out


def _turned(values: FloatArray, angle: FloatArray, pair: IntArray) -> FloatArray:
    """The pair of components (C, R, ...), turned."""
    shape = (-1, *(1,) * (values.ndim - 2))
    cos, sin = np.cos(angle).reshape(shape), np.sin(angle).reshape(shape)
    first, second = values[:, pair[0]], values[:, pair[1]]
    return np.stack([cos * first + sin * second, cos * second - sin * first], axis=1)


def translate(state: State, problem: Problem, *, rng: np.random.Generator) -> State:
    """Add one number to a row of W, or to b, for all classes: every row by a slice of its own.

    The bracket is as wide as the row is, which the move does not change.
    """
    out = state.entries.copy()
    _, W, b = target.split(out, problem)
    c, r, k = W.shape
    rows = np.concatenate([W, b[:, None]], axis=1).reshape(-1, k)
    start, _ = problem.stops
    dof = np.tile(problem.dof[start::k][: r + 1], c)[:, None]
    width = 1.0 + np.ptp(rows, axis=1)

    def log_along(t: FloatArray) -> FloatArray:
        shifted = rows + (width * t)[:, None]
        value = -0.5 * np.sum((dof + 1.0) * np.log(dof + shifted**2), axis=1)
        return np.where(target.is_inside(shifted), value, -np.inf)

    shift = width * slice_draws.draw(log_along, 2.0, n_chains=len(rows), rng=rng)
    moved = (rows + shift[:, None]).reshape(c, r + 1, k)
    W[:], b[:] = moved[:, :r], moved[:, r]
    return replace(state, entries=out)


def step(state: State, problem: Problem, *, tune: int, rng: np.random.Generator) -> State:
    """One sweep; the input is not modified.

    The first ``tune`` sweeps of a run also move the step size. Afterwards it is fixed, as it has
    to be for the posterior to stay invariant.
    """
    tuning = state.search.count < tune
    step_size = state.search.step_size if tuning else state.search.final
    state, acceptance = move_trajectory(state, problem, step_size, rng=rng)
    state = move_scale(state, problem, rng=rng)
    state = refresh_points(state, problem, rng=rng)
    state = rotate(state, problem, rng=rng)
    state = translate(state, problem, rng=rng)
    return replace(state, search=state.search.after(acceptance)) if tuning else state


def to_variables(
    state: State, problem: Problem, priors: Priors, *, rng: np.random.Generator
) -> dict[str, FloatArray]:
    """Draws by the names of the model, with a leading chain axis, after a `step`.

    The latent position of a row is that of its first point; precisions are drawn given the rest.
    """
    Q, W, b = target.split(state.entries * problem.unit, problem)
    eps = np.swapaxes(state.points[:, 0, :-1], 1, 2)  # (C, N, R)
    axis = problem.tied_axis
    phi = np.ones_like(Q if axis is None else Q.take([0], axis=axis))
    whole = gibbs.State(
        projection_precision=phi,
        projection=Q,
        latent=problem.columns.T @ Q + problem.latent_scale * eps,
        weight_precision=np.ones_like(W),
        weights=W,
        bias_precision=np.ones_like(b),
        bias=b,
    )
    whole = replace(
        whole,
        projection_precision=gibbs.sample_projection_precision(whole, priors, rng=rng),
        weight_precision=gibbs.sample_weight_precision(whole, priors, rng=rng),
        bias_precision=gibbs.sample_bias_precision(whole, priors, rng=rng),
    )
    kind: ProjectionPrior = "columnwise" if axis == 1 else "rowwise" if axis == 2 else "entrywise"
    return gibbs.to_variables(whole, kind)


def _fresh_points(
    problem: Problem, n_chains: int, rng: np.random.Generator, *, n_points: int = N_POINTS
) -> FloatArray:
    """Standard normals (C, M, R + 1, N)."""
    (_, r), _, _ = problem.shapes
    n_rows = problem.columns.shape[1]
    return rng.standard_normal((n_chains, n_points, r + 1, n_rows))
