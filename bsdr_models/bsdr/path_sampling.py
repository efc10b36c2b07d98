r"""Path sampling: the evidence of BSDR, and the posterior of the scale of the projection.

Chains start where the features hardly matter, :math:`\tau \le e^{-3.5}`, and pass through
increasing values of :math:`\tau`. The mean derivative of the log likelihood in
:math:`u = \log \tau` along the path integrates to the evidence [1]_,

.. math::
    \log Z(u) = \log Z_0 + \int_{-\infty}^{u} E\Bigl[\frac{\partial \log p(y \mid \theta, v)}
    {\partial v} \Bigm| v \Bigr] dv,

where :math:`Z_0` is the evidence of the model without features. With the prior this is the
posterior of :math:`\tau`.

References
----------
.. [1] A. Gelman, X.-L. Meng (1998). Simulating normalizing constants: from importance sampling to
       bridge sampling to path sampling. Statistical Science 13(2).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from scipy.special import logsumexp, wrightomega

from bsdr_models.bsdr.problem import (
    LOG_SQRT_2PI,
    Problem,
    label_derivatives,
    label_log_likelihood,
    log_prior_scale,
)
from bsdr_models.bsdr.trajectory import States, Whitening, adapt_step, move
from bsdr_models.numerics.arrays import FloatArray, IntArray

# Largest first node of log tau on the path, where few samples hardly matter.
_FIRST_NODE = -3.5
# Number c of `first_node`, from a curvature of 0.3 and a squared gradient of 0.2 of a sample.
_FIRST = 3.0
# Distance between the nodes, for quadrature on a steep path.
_NODE_STEP = 0.45
# Trajectories at each node after the first one.
_PER_NODE = 4
# The path ends where the posterior density has fallen by so many nats.
_ENOUGH = 5.0
# Scores, samples times contrasts, below which the nodes have more trajectories.
_FEW_SCORES = 200
# Factor of the trajectories there, for a precise evidence.
_MORE = 2
# Step size before adaptation.
_FIRST_STEP = 0.3
# Angle of a trajectory on the path, whose states need not be independent.
_PATH_ANGLE = 1.8
# Draws of importance sampling for the evidence without features.
_N_IMPORTANCE = 4000
# Degrees of freedom of their distribution, whose tails are heavier than those of the posterior.
_DEGREES = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Chains at U increasing values of log tau, and its posterior on a grid."""

    nodes: FloatArray  # values of log tau, (U,)
    steps: FloatArray  # step sizes, (U,)
    theta: FloatArray  # (U, C, P)
    grid: FloatArray  # (G,)
    log_bayes_factor: FloatArray  # log Z(u) / Z_0 by the halves of each chain at a node, (G, 2, C)
    log_density: FloatArray  # with the prior and the distance of the grid, (G,)

    def error(self, u: float) -> float:
        """Standard error of log Z(u) / Z_0, in nats.

        Of the spread between chains, and of half the difference between the first and the second
        half of the trajectories at the nodes: after each node all chains lag alike.
        """
        found = self.log_bayes_factor[np.abs(self.grid - u).argmin()]
        chains = found.mean(axis=0)
        spread = chains.std(ddof=1) / np.sqrt(len(chains))
        lag = 0.5 * (found[1] - found[0]).mean()
        return float(np.hypot(spread, lag))


def first_node(problem: Problem) -> float:
    r"""Log tau below which :math:`\log Z(u) - \log Z_0` is proportional to :math:`e^{2 u}`.

    With S the largest sum of squares of a whitened feature, it is :math:`\tau^2 |g|^2 / 2` for a
    gradient g of at most :math:`0.2 N S`, but for a share :math:`0.3 \tau^2 S` by the curvature.
    The difference is below 0.1 nats for :math:`\tau^4 < c / S^2 N`.
    """
    square = float(np.sum(problem.X**2, axis=0).max())
    return min(_FIRST_NODE, 0.25 * np.log(_FIRST / (square**2 * len(problem.X))))


def follow_path(
    problem: Problem, n_chains: int, rng: np.random.Generator, on_step: Callable[[float], object]
) -> Path:
    """Chains through increasing values of log tau, until its posterior density is negligible."""
    begin = problem.n_loadings
    end = problem.n_loadings + len(problem.contrasts)
    theta = rng.standard_normal((n_chains, problem.n_parameters))
    theta[:, begin:end] *= 0.1
    theta[:, end:] = 0.0
    n_scores = len(problem.y) * len(problem.contrasts)
    per_node = _PER_NODE * (_MORE if n_scores <= _FEW_SCORES else 1)
    step = _FIRST_STEP
    nodes = list[float]()
    steps = list[float]()
    derivatives = list[FloatArray]()
    kept = list[FloatArray]()
    for u in count(first_node(problem), _NODE_STEP):
        n_warm_up = max(per_node // 3, 1) if nodes else 2 * per_node
        theta = theta.copy()
        theta[:, -1] = u
        whitening = Whitening.learn(problem, theta, sd_log_scale=0.0)
        states = States.at(problem, theta)
        visited = []
        for i in range(n_warm_up + per_node):
            trajectory = move(problem, whitening, states, step, rng, _PATH_ANGLE)
            states = trajectory.states
            step = adapt_step(step, trajectory.acceptance)
            if i < n_warm_up:
                states = fit_views(problem, states)
            else:
                visited.append(states)
        theta = states.theta
        nodes.append(u)
        steps.append(step)
        derivatives.append(_derivative(problem, visited))
        kept.append(theta)
        on_step(min(len(nodes) / 18.0, 1.0))
        if len(nodes) > 7:
            grid = np.linspace(nodes[0], u, 1 + 20 * (len(nodes) - 1))
            # Below the first node the derivative is proportional to exp(2 u).
            integral = CubicSpline(nodes, np.stack(derivatives)).antiderivative()
            ratio = 0.5 * derivatives[0] + integral(grid)
            log_p = ratio.mean(axis=(1, 2)) + log_prior_scale(grid, problem.priors.scale)
            if log_p[-1] < log_p.max() - _ENOUGH:
                break
    return Path(
        nodes=np.array(nodes),
        steps=np.array(steps),
        theta=np.stack(kept),
        grid=grid,
        log_bayes_factor=ratio,
        log_density=log_p + np.log(grid[1] - grid[0]),
    )


def _derivative(problem: Problem, visited: list[States]) -> FloatArray:
    """Derivative of the log likelihood in log tau, mean of both halves of visited states, (2, C).

    With control variates: by Stein's identity the mean of theta' times the gradient of the log
    density is less the number of parameters, for loadings and for biases.
    """
    theta = np.stack([each.theta for each in visited])  # (T, C, P)
    gradient = np.stack([each.gradient for each in visited])
    n = problem.n_loadings
    j = len(problem.contrasts)
    product = theta * gradient
    controls = np.stack([product[..., :n].sum(axis=2), product[..., n : n + j].sum(axis=2)], axis=2)
    derivative = np.sum(product[..., :n] + theta[..., :n] ** 2, axis=2)
    centred = (controls - controls.mean(axis=(0, 1))).reshape(-1, 2)
    coefficients = np.linalg.lstsq(centred, derivative.ravel(), rcond=1e-6)[0]
    each = derivative - np.add(controls, (n, j)) @ coefficients
    return np.asarray(each.reshape(2, -1, each.shape[1]).mean(axis=1))


def log_evidence_empty(problem: Problem, *, rng: np.random.Generator) -> float:
    """Log evidence of the biases alone, in nats, by importance sampling around the mode.

    Sufficient statistics are the counts of classes; each label of a set is a problem with two.
    """
    if problem.target == "multiclass":
        labels, counts = np.unique(problem.y, return_counts=True)
        return _log_evidence_of_counts(problem, problem.contrasts, labels, counts, rng)
    on = problem.y.sum(axis=0)
    labels = np.array([[True], [False]])
    counts = np.stack([on, len(problem.y) - on], axis=1)
    return sum(_log_evidence_of_counts(problem, np.eye(1), labels, pair, rng) for pair in counts)


def _log_evidence_of_counts(
    problem: Problem,
    contrasts: FloatArray,
    labels: np.ndarray,
    counts: IntArray,
    rng: np.random.Generator,
) -> float:
    """Log evidence of counts of labels that all have the same linear predictor."""
    from scipy.stats import multivariate_t

    map_ = problem.priors.bias_scale * contrasts
    j = len(contrasts)
    target = problem.target
    lapse = problem.priors.lapse

    def log_density(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        eta = np.repeat((theta @ map_)[:, None], len(labels), axis=1)
        each, gradient = label_log_likelihood(eta, labels, target, lapse)
        value = each @ counts - 0.5 * np.sum(theta**2, axis=1) - j * LOG_SQRT_2PI
        return value, np.einsum("snk,n->sk", gradient, counts) @ map_.T - theta

    def negative(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = log_density(theta[None])
        return -float(value[0]), -gradient[0]

    mode = minimize(negative, np.zeros(j), jac=True, method="L-BFGS-B").x
    eta = np.repeat((mode @ map_)[None], len(labels), axis=0)
    second = np.tensordot(counts, label_derivatives(eta, labels, target, lapse)[1], 1)
    covariance = np.linalg.inv(np.eye(j) - map_ @ second @ map_.T)
    # Its tails are heavier than those of the posterior.
    proposal = multivariate_t(mode, covariance, df=_DEGREES, seed=rng)
    theta = proposal.rvs(_N_IMPORTANCE).reshape(-1, j)
    log_weight = log_density(theta)[0] - proposal.logpdf(theta)
    return float(logsumexp(log_weight) - np.log(_N_IMPORTANCE))


def fit_views(problem: Problem, states: States) -> States:
    r"""States with log relative scales that fit the loadings of all chains, which stay as they are.

    A step of expectation maximisation of their marginal posterior density: log lambda solves
    :math:`q \lambda^{-2} = n + w^{-2} \log \lambda`, with q the mean square of the n loadings of a
    view before they are divided by lambda, and w the prior standard deviation of log lambda.
    """
    if problem.views is None:
        return states
    theta = states.theta.copy()
    n = problem.n_loadings
    j = len(problem.contrasts)
    width = problem.priors.view_width
    ends = np.searchsorted(problem.views, np.arange(problem.n_views + 1)) * j
    for v in range(problem.n_views):
        columns, index = slice(*ends[v : v + 2]), n + j + v
        size = columns.stop - columns.start
        start = theta[0, index]
        twice = 2.0 * width**2
        square = np.mean(np.sum(theta[:, columns] ** 2, axis=1))
        log_q = np.log(square) + 2.0 * width * start
        root = wrightomega(np.log(twice) + log_q + twice * size) / twice  # n + log lambda / w^2
        theta[:, index] = width * (root - size)
        theta[:, columns] *= np.exp(width * (start - theta[0, index]))
    return States.at(problem, theta)
