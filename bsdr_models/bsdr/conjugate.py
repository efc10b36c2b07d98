r"""Exact posterior of the regression model of BSDR.

Given :math:`\tau` and the noise scales, outputs are independent, and the projection and biases
integrate out. With X (N, B) the whitened features,

.. math::
    y_k \mid \tau, \sigma_k \sim N(0, \Sigma_k), \qquad
    \Sigma_k = \sigma_k^2 I + \tau^2 X X^\top + s_b^2 1 1^\top .

Let :math:`X = U S V^\top`, and complete U by the part of the constant 1 orthogonal to it. In this
basis :math:`\sigma^2 I + \tau^2 X X^\top` is diagonal and the formula of Sherman and Morrison adds
the bias. Outside the basis there is only noise, which needs a sum of squares. The posterior of
:math:`\log\tau` and :math:`\log\sigma_k`, and its integral, the evidence, are sums over equally
spaced nodes; for smooth integrands that vanish at both ends the error is exponentially small in
their number [1]_. The scales, and projection and bias given both [2]_, are drawn independently.

The leave-one-out density of a sample given the hyper-parameters :math:`h = (\tau, \sigma)` is
normal with mean :math:`y_n - [\Sigma^{-1} y]_n / [\Sigma^{-1}]_{nn}` and variance
:math:`1 / [\Sigma^{-1}]_{nn}` [3]_. Since :math:`p(h \mid y_{-n}) \propto p(h \mid y) /
p(y_n \mid y_{-n}, h)`, :math:`1 / p(y_n \mid y_{-n}) = E(1 / p(y_n \mid y_{-n}, h) \mid y)`.
Without an outlier h lies elsewhere: its density is the ratio of two evidences,
:math:`p(y) / p(y_{-n})`.

Relative scales of views are those of the largest marginal posterior density, which are then taken
as known (empirical Bayes).

Samples of one group may have weights below one: exponents of their densities. The sums of squares
are those of samples, outputs and constants times the roots of the weights, and the noise is that of
as many samples as the sum of the weights.

References
----------
.. [1] L. N. Trefethen, J. A. C. Weideman (2014). The exponentially convergent trapezoidal rule.
       SIAM Review 56(3).
.. [2] A. Bhattacharya, A. Chakraborty, B. K. Mallick (2016). Fast sampling with Gaussian scale
       mixture priors in high-dimensional regression. Biometrika 103(4).
.. [3] S. Sundararajan, S. S. Keerthi (2001). Predictive approaches for choosing hyperparameters in
       Gaussian processes. Neural Computation 13(5).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import Akima1DInterpolator
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.utils import gen_batches

from bsdr_models.bsdr.posterior import Parameters
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import LOG_SQRT_2PI, BSDRProblem, log_prior_scale
from bsdr_models.numerics.arrays import FloatArray

# Log scales are between minus this and this.
_FARTHEST = 30.0
# From so many samples leave-one-out densities use every fourth node of either grid.
_MANY = 1000
# Leave-one-out densities so many nats below the median are those of outliers, at most so many.
_OUTLIER = 4.0
_MOST_OUTLIERS = 20
# Numbers in the largest temporary array.
_CHUNK = 250_000

# Nodes of a grid.
_NODES = 81
# Densities are negligible so many nats below the maximum.
_NEGLIGIBLE = 20.0
# Nodes of each of the coarser grids that find where densities matter.
_SEARCHED = 25
# Most of these grids.
_ROUNDS = 16
# Parts into which quantiles divide a cell of a grid.
_PARTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Conjugate:
    """Independent draws of the exact posterior; of views, given their relative scales."""

    draws: Parameters
    log_likelihood: FloatArray  # of each draw, (S,)
    log_prior: FloatArray  # of standard normals, log tau and log sigma, (S,)
    log_evidence: float
    log_score: FloatArray  # leave-one-out log predictive density, (N,); NaN with weights
    log_score_empty: FloatArray  # that without features, (N,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Samples in an orthonormal basis of features and constant; biases are standard normals."""

    basis: FloatArray  # (N, Q)
    axes: FloatArray  # right singular vectors of X, (B, R), R the rank
    singular: FloatArray  # singular values, and 0 for the constant outside X, (Q,)
    y: FloatArray  # coordinates of the outputs, (Q, K)
    one: FloatArray  # and of the constant times the scale of the biases, (Q,)
    residual: FloatArray  # outputs outside the basis, (N, K); 0 if there are no more dimensions
    rest: FloatArray  # their squared norms, (K,)
    total: float  # sum of the weights of the samples, by default their number

    @classmethod
    def learn(
        cls, X: FloatArray, y: FloatArray, bias_scale: float, weights: FloatArray | None = None
    ) -> "Statistics":
        """From features (N, B), outputs (N, K), and weights (N,)."""
        one = np.ones(len(X)) if weights is None else np.sqrt(weights)
        X = X * one[:, None]
        y = y * one[:, None]
        U, s, axes = np.linalg.svd(X, full_matrices=False)
        kept = s > np.finfo(float).eps * max(X.shape) * s.max(initial=0.0)
        U = U[:, kept]
        s = s[kept]
        axes = axes[kept].T
        constant = one - U @ (U.T @ one)
        constant -= U @ (U.T @ constant)
        size = np.linalg.norm(constant)
        if size > 1e-7 * np.linalg.norm(one):
            U = np.column_stack([U, constant / size])
            s = np.append(s, 0.0)
        inside = U.T @ y
        residual = (y - U @ inside) * (len(X) > len(s))
        # Rounding errors are a lower bound of the noise.
        rest = np.maximum(np.sum(residual**2, axis=0), 1e-30 * np.sum(y**2, axis=0))
        return cls(
            basis=U,
            axes=axes,
            singular=s,
            y=inside,
            one=bias_scale * (U.T @ one),
            residual=residual,
            rest=rest * (len(X) > len(s)),
            total=float(one @ one),
        )

    @property
    def n_rest(self) -> float:
        """Number of dimensions outside the basis; with weights it may be negative."""
        return self.total - len(self.one)

    def scaled(self, tau: FloatArray, sigma: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Inverse of Sigma without the bias, (..., Q), and what it does to the constant."""
        inverse = 1.0 / (sigma[..., None] ** 2 + (tau[..., None] * self.singular) ** 2)
        return inverse, inverse * self.one

    def solve(
        self, tau: FloatArray, sigma: FloatArray, y: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Inverse of Sigma times y (..., Q), and the mean of the bias given y (...)."""
        inverse, constant = self.scaled(tau, sigma)
        bias = np.sum(constant * y, axis=-1) / (1.0 + constant @ self.one)
        return inverse * (y - bias[..., None] * self.one), bias

    def log_marginal(self, k: int, tau: FloatArray, sigma: FloatArray) -> FloatArray:
        """Log density of output k given tau and sigma (P,), parameters integrated out, (P,)."""
        inverse = self.scaled(tau, sigma)[0]
        # The bias that explains the part along the constant, whose squares would cancel.
        mean = self.y[-1, k] / self.one[-1] if len(self.one) > self.axes.shape[1] else 0.0
        centred = self.y[:, k] - mean * self.one
        square = inverse @ centred**2
        cross = inverse @ (centred * self.one)
        constant = inverse @ self.one**2
        total = 1.0 + constant
        square += self.rest[k] / sigma**2
        square += (mean * (2.0 * cross + mean * constant) - cross**2) / total
        log_det = 2.0 * self.n_rest * np.log(sigma) - np.log(inverse).sum(axis=1) + np.log(total)
        return -0.5 * (square + log_det) - self.total * LOG_SQRT_2PI


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Log joint densities at nodes of the scales."""

    scale: FloatArray  # nodes of log tau, (T,)
    density: FloatArray  # log p(y, log tau), (T,)
    noise: FloatArray  # nodes of log sigma for each log tau, (T, K, G)
    noise_density: FloatArray  # log p(y_k, log sigma | tau), (T, K, G)

    @property
    def log_evidence(self) -> float:
        """Log marginal likelihood of the output, log p(y)."""
        return float(log_integral(self.scale, self.density))

    def draw(self, n_draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Independent log tau (S,) and log sigma (S, K).

        Log sigma given log tau is that of one of both neighbouring nodes, by distance.
        """
        log_tau = quantile(self.scale, self.density, rng.random(n_draws))
        place = (log_tau - self.scale[0]) / (self.scale[1] - self.scale[0])
        near = np.minimum(np.floor(place + rng.random(n_draws)), len(self.scale) - 1).astype(int)
        log_sigma = rng.random((n_draws, self.noise.shape[1]))
        for t in np.unique(near):
            draws = np.flatnonzero(near == t)
            for k, level in enumerate(log_sigma[draws].T):
                log_sigma[draws, k] = quantile(self.noise[t, k], self.noise_density[t, k], level)
        return log_tau, log_sigma


def fit_conjugate(problem: BSDRProblem, *, n_draws: int, rng: np.random.Generator) -> Conjugate:
    """Exact posterior of a problem with real outputs."""
    priors = problem.priors
    X = problem.X
    y = problem.y
    views = None if problem.views is None else fit_views(problem)
    size = np.ones(X.shape[1]) if views is None else _column_scale(problem, views)
    statistics = Statistics.learn(X * size, y, priors.bias_scale, problem.weights)
    grid = integrate(statistics, priors)
    score = np.full((2, len(X)), np.nan)
    if problem.weights is None:
        empty = Statistics.learn(X[:, :0], y, priors.bias_scale)
        score[0] = score_left_out(X * size, y, priors, statistics, grid)
        score[1] = score_left_out(X[:, :0], y, priors, empty, integrate(empty, priors))
    log_tau, log_sigma = grid.draw(n_draws, rng)
    tau = np.exp(log_tau)
    sigma = np.exp(log_sigma)
    normal, bias = draw_loadings(statistics, tau, sigma, rng)
    prior = log_prior_scale(log_tau, priors.scale) + _log_prior_noise(log_sigma, priors).sum(axis=1)
    prior += _log_normal(normal.reshape(n_draws, -1)).sum(axis=1)
    prior += _log_normal(bias).sum(axis=1)
    view_scale = None
    if views is not None:
        prior += _log_normal(views).sum()
        view_scale = np.tile(np.exp(priors.view_width * views), (n_draws, 1))
    return Conjugate(
        draws=Parameters(
            projection=normal * (tau[:, None] * size)[:, None],
            scale=tau,
            weights=np.broadcast_to(problem.contrasts, (n_draws, *problem.contrasts.shape)),
            bias=priors.bias_scale * bias,
            noise_scale=sigma,
            outside=rng.standard_normal((n_draws, y.shape[1])),
            view_scale=view_scale,
        ),
        log_likelihood=_log_likelihood(statistics, tau, sigma, normal, bias),
        log_prior=prior,
        log_evidence=grid.log_evidence,
        log_score=score[0],
        log_score_empty=score[1],
    )


def integrate(statistics: Statistics, priors: HierarchicalPriors) -> Grid:
    """Posterior of log tau, and of each log sigma given it."""

    def log_density(log_tau: FloatArray) -> FloatArray:
        by_output = log_integral(*_noise_grid(statistics, priors, np.exp(log_tau)))
        return by_output.sum(axis=1) + log_prior_scale(log_tau, priors.scale)

    scale, density = make_grid(log_density, np.array(-_FARTHEST), np.array(_FARTHEST))
    noise, noise_density = _noise_grid(statistics, priors, np.exp(scale))
    return Grid(scale=scale, density=density, noise=noise, noise_density=noise_density)


def draw_loadings(
    statistics: Statistics, tau: FloatArray, sigma: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Standard normals of loadings (S, K, B) and biases (S, K) given tau (S,), sigma (S, K).

    Draws of the prior, moved by the regression of parameters on outputs.
    """
    b, r = statistics.axes.shape
    normal, bias = rng.standard_normal((*sigma.shape, b)), rng.standard_normal(sigma.shape)
    y = sigma[..., None] * rng.standard_normal((*sigma.shape, len(statistics.one)))
    y += bias[..., None] * statistics.one
    size = tau[:, None, None] * statistics.singular[:r]
    y[..., :r] += size * (normal @ statistics.axes)
    scale = np.broadcast_to(tau[:, None], sigma.shape)
    solved, move = statistics.solve(scale, sigma, statistics.y.T - y)
    normal += (size * solved[..., :r]) @ statistics.axes.T
    return normal, bias + move


def leave_one_out(
    statistics: Statistics, k: int, samples: slice, tau: FloatArray, sigma: FloatArray
) -> FloatArray:
    """Log density of output k of some samples given all others, tau and sigma (P,), (M, P)."""
    basis = statistics.basis[samples]
    outside = np.maximum(1.0 - np.sum(basis**2, axis=1), 0.0) * (statistics.n_rest > 0)
    inverse, constant = statistics.scaled(tau, sigma)
    solved, _ = statistics.solve(tau, sigma, statistics.y[:, k])
    precision = basis**2 @ inverse.T + outside[:, None] / sigma**2
    rounding = np.finfo(np.float64).eps * precision
    precision -= (basis @ constant.T) ** 2 / (1.0 + constant @ statistics.one)
    precision = np.maximum(precision, rounding)  # a sample that alone determines an axis
    scaled = basis @ solved.T + statistics.residual[samples, k, None] / sigma**2
    return 0.5 * (np.log(precision) - scaled**2 / precision) - LOG_SQRT_2PI


def score_left_out(
    X: FloatArray,
    y: FloatArray,
    priors: HierarchicalPriors,
    statistics: Statistics,
    grid: Grid,
) -> FloatArray:
    """Log density of outputs (N, K) given whitened features (N, B) and all other samples, (N,).

    ``statistics`` and ``grid`` are of all samples; outliers are left out of both.
    """
    score = average_leave_one_out(statistics, grid)
    lowest = np.argsort(score)[:_MOST_OUTLIERS]
    for sample in lowest[score[lowest] < np.median(score) - _OUTLIER]:
        rest = np.delete(X, sample, axis=0), np.delete(y, sample, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):  # of a fit without residuals
            without = integrate(Statistics.learn(*rest, priors.bias_scale), priors)
            refit = grid.log_evidence - without.log_evidence
        if np.isfinite(refit):
            score[sample] = refit
    return score


def average_leave_one_out(statistics: Statistics, grid: Grid) -> FloatArray:
    """Log density of samples given all others, averaged over the grid, (N,)."""
    n_samples = len(statistics.basis)
    some = slice(None, None, 1 if n_samples < _MANY else 4)
    tau = np.exp(grid.scale[some])
    density = grid.density[some]
    sigma = np.exp(grid.noise[some, :, some])
    noise_density = grid.noise_density[some, :, some]
    weight = noise_density - logsumexp(noise_density, axis=2, keepdims=True)
    shape = len(tau), sigma.shape[2]
    scale = np.repeat(tau, shape[1])
    score = np.empty(n_samples)
    for part in gen_batches(n_samples, max(1, _CHUNK // len(scale))):
        total = density - logsumexp(density)
        for k in range(sigma.shape[1]):
            each = leave_one_out(statistics, k, part, scale, sigma[:, k].ravel())
            total = total + logsumexp(weight[:, k] - each.reshape(-1, *shape), axis=2)
        score[part] = -logsumexp(total, axis=1)
    return score


def fit_views(problem: BSDRProblem) -> FloatArray:
    """Standard normals of the log relative scales of the largest posterior density, (V,)."""

    def objective(views: FloatArray) -> float:
        X = problem.X * _column_scale(problem, views)
        bias_scale = problem.priors.bias_scale
        statistics = Statistics.learn(X, problem.y, bias_scale, problem.weights)
        log_evidence = integrate(statistics, problem.priors).log_evidence
        return float(0.5 * views @ views) - log_evidence

    found = minimize(objective, np.zeros(problem.n_views), method="L-BFGS-B")
    if not np.isfinite(found.fun):
        raise FloatingPointError("the evidence is not finite: look for extreme values in X and y")
    return np.asarray(found.x)


def _column_scale(problem: BSDRProblem, views: FloatArray) -> FloatArray:
    """Relative scale of the view of each whitened feature, (B,)."""
    return np.exp(problem.priors.view_width * views[problem.views])


def _noise_grid(
    statistics: Statistics, priors: HierarchicalPriors, tau: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Nodes of log sigma (T, K, G) for each tau (T,), and ``log p(y_k, log sigma | tau)``."""

    def log_density(nodes: FloatArray) -> FloatArray:
        value = _log_prior_noise(nodes, priors)
        size = max(1, _CHUNK // (nodes.shape[2] * len(statistics.one)))
        for k in range(nodes.shape[1]):
            for part in gen_batches(len(tau), size):
                sigma = np.exp(nodes[part, k])
                scale = np.broadcast_to(tau[part, None], sigma.shape)
                each = statistics.log_marginal(k, scale.ravel(), sigma.ravel())
                value[part, k] += each.reshape(sigma.shape)
        return value

    end = np.full((len(tau), statistics.y.shape[1]), _FARTHEST)
    return make_grid(log_density, -end, end)


def _log_likelihood(
    statistics: Statistics, tau: FloatArray, sigma: FloatArray, normal: FloatArray, bias: FloatArray
) -> FloatArray:
    """Log likelihood of standard normal loadings (S, K, B) and biases (S, K), (S,)."""
    r = statistics.axes.shape[1]
    residual = statistics.y.T - bias[..., None] * statistics.one
    residual[..., :r] -= tau[:, None, None] * statistics.singular[:r] * (normal @ statistics.axes)
    square = (np.sum(residual**2, axis=2) + statistics.rest) / sigma**2
    return np.sum(-0.5 * square - statistics.total * (np.log(sigma) + LOG_SQRT_2PI), axis=1)


def _log_prior_noise(log_sigma: FloatArray, priors: HierarchicalPriors) -> FloatArray:
    """Log prior density of log sigma."""
    standard = (log_sigma - priors.noise_location) / priors.noise_width
    return _log_normal(standard) - np.log(priors.noise_width)


def _log_normal(x: FloatArray) -> FloatArray:
    """Log density of standard normals."""
    return -0.5 * x**2 - LOG_SQRT_2PI


# Densities of one variable on equally spaced nodes


def make_grid(
    log_density: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Nodes (..., G) between bounds (...) where densities are not negligible, and their log."""
    for _ in range(_ROUNDS):
        nodes = np.linspace(low, high, _SEARCHED, axis=-1)
        value = log_density(nodes)
        matters = value > value.max(axis=-1, keepdims=True) - _NEGLIGIBLE
        first = np.maximum(matters.argmax(axis=-1) - 1, 0)
        last = np.minimum(_SEARCHED - matters[..., ::-1].argmax(axis=-1), _SEARCHED - 1)
        ends = (np.take_along_axis(nodes, end[..., None], axis=-1) for end in (first, last))
        low, high = (end[..., 0] for end in ends)
        if (3 * (last - first) >= 2 * _SEARCHED).all():
            break
    nodes = np.linspace(low, high, _NODES, axis=-1)
    return nodes, log_density(nodes)


def log_integral(nodes: FloatArray, log_density: FloatArray) -> FloatArray:
    """Log of the integral over equally spaced nodes (..., G), (...)."""
    step = np.log(nodes[..., 1] - nodes[..., 0])
    return np.asarray(logsumexp(log_density, axis=-1) + step)


def quantile(nodes: FloatArray, log_density: FloatArray, level: FloatArray) -> FloatArray:
    """Quantiles (S,) of a density on nodes (G,), interpolated; draws if levels are uniform."""
    fine = np.linspace(nodes[0], nodes[-1], 1 + _PARTS * (len(nodes) - 1))
    least = log_density.max() - 2.0 * _NEGLIGIBLE
    log_density = Akima1DInterpolator(nodes, np.maximum(log_density, least))(fine)
    share = np.exp(log_density - logsumexp(log_density))
    return np.interp(level, np.cumsum(share) - 0.5 * share, fine)
