r"""Laplace's method: a normal approximation of the posterior for many samples.

For loadings :math:`\beta = \tau\, \mathrm{vec}\, \theta`, (B J,), of whitened features the log
likelihood is expanded to second order at the mode, and the biases are integrated out:

.. math::
    \log p(y \mid \beta) \approx c + h^\top \beta - \tfrac12 \beta^\top M \beta, \qquad
    \beta \mid \tau \sim N(0, \tau^2 I).

In the eigenvectors of M, with :math:`p_i = m_i + \tau^{-2}`,

.. math::
    \log p(y \mid \tau) = c + \tfrac12 \sum_i \bigl\{ h_i^2 / p_i - \log(\tau^2 p_i) \bigr\},
    \qquad \beta_i \mid \tau, y \sim N(h_i / p_i, 1 / p_i).

Where labels may be lapses the Hessian has eigenvalues of both signs. M has their absolute values,
as in saddle-free Newton steps [3]_: with negative or zero :math:`m_i` the linear term :math:`h_i`
would let the expansion grow without bound with :math:`\tau`, but the log likelihood is bounded.

The expansion is at the mode of the loadings for that :math:`\tau` whose log is most probable given
the expansion, a fixed point [1]_ of Newton's method; a step changes log tau by a limited amount.
Draws are of log tau on a grid, then of the loadings. The tail of the importance ratios of draws, of
the likelihood to its expansion, tells whether the approximation can be trusted [2]_. Every
evaluation is one sum over samples, in memory or in the chunks of a Dask
array.

Letters: n samples of a part, D features, B of them after whitening, K labels, J contrasts, S
draws. Loadings are (B + 1, J) with the biases, standard normal a priori, in the last row.

References
----------
.. [1] D. J. C. MacKay (1992). The evidence framework applied to classification networks. Neural
       Computation 4(5).
.. [2] A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry (2024). Pareto smoothed importance
       sampling. Journal of Machine Learning Research 25(72).
.. [3] Y. N. Dauphin et al. (2014). Identifying and attacking the saddle point problem in
       high-dimensional non-convex optimization. NIPS.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import brentq

from bsdr_models.bsdr.conjugate import make_grid, quantile
from bsdr_models.bsdr.engines import MOST_LOADINGS
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.bsdr.problem import label_derivatives, label_log_likelihood, log_prior_scale
from bsdr_models.large.chunks import Samples
from bsdr_models.learned_metric.metric import Metric
from bsdr_models.numerics.arrays import FloatArray, Target
from bsdr_models.numerics.scaling import Scaler

# Samples processed at once, whose arrays should stay in the cache.
_CHUNK = 2048
# Numbers in an array of their features or second derivatives.
_ENTRIES = 2**22
# Newton steps end when another would gain less than this per parameter,
_LEAST_GAIN = 1e-13
# and log tau changes by less than this.
_LEAST_CHANGE = 1e-7
# A step changes log tau by at most this, and half of it after each reversal, which ends cycles: the
# expansion does not hold far away.
_LONGEST = 0.5
# The density after steps that gain less is not compared: differences are rounding errors.
_ROUNDING = 1e-8
# Most Newton steps.
_MAX_STEPS = 50
# Most halvings of a step that lowers the density.
_MAX_HALVINGS = 30
# Samples whose mode is where the search begins, if there are several times as many: the Hessian of
# all samples is then needed near their mode only.
_SOME = 50_000
_SEVERAL = 3
# With more than `_SOME` samples, draws by whose exact likelihood Pareto k is estimated: a sum over
# samples for each takes longer than the search.
_N_EXACT = 64
# Log tau is between minus this and this.
_FARTHEST = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace:
    """Draws from a normal approximation of the posterior, as vectors of parameters.

    If the user stops the search, the approximation is that of its last step.
    """

    theta: FloatArray  # (S, P)
    mode: FloatArray  # (P,)
    log_likelihood: FloatArray  # (S,), by the expansion beyond `_N_EXACT` draws of many samples
    pareto_k: float  # of importance ratios, unreliable above 0.7; NaN below 25 draws
    converged: bool  # whether the search ended at a mode
    trace: FloatArray  # log posterior density, up to a constant, at each step
    interrupted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Type of the targets, contrasts C (J, K), priors, and what whitens samples that are not."""

    target: Target
    contrasts: FloatArray
    priors: HierarchicalPriors
    scaler: Scaler | None = None
    metric: Metric | None = None

    def parts(
        self, X: FloatArray, y: np.ndarray, weights: FloatArray | None = None
    ) -> Iterator[tuple[FloatArray, np.ndarray, FloatArray]]:
        """Whitened features and the scale of the biases, (n, B + 1), targets and weights."""
        weights = np.ones(len(X)) if weights is None else weights
        width = max(X.shape[1] + 1, self.contrasts.shape[1] ** 2)
        size = max(1, min(_CHUNK, _ENTRIES // width))
        for begin in range(0, len(X), size):
            # Samples from a message may not be aligned.
            part = np.require(X[begin : begin + size], requirements=["A", "C"])
            if self.scaler is not None:
                part = self.scaler.transform(part)
            if self.metric is not None:
                part = self.metric.whiten(part)
            constant = np.full(len(part), self.priors.bias_scale)
            own = slice(begin, begin + size)
            yield np.column_stack([part, constant]), y[own], weights[own]


def fit_laplace(
    samples: Samples,
    response: Response,
    *,
    rng: np.random.Generator,
    n_draws: int = 200,
    on_step: Callable[[int, float], object] = lambda count, value: None,
) -> Laplace:
    """Laplace's method, without views.

    ``on_step`` is called with the number of Newton steps and the log posterior density, up to a
    constant. ValueError if there are more loadings than :data:`MOST_LOADINGS`; KeyboardInterrupt if
    the user stops the search before its first step.
    """
    priors = response.priors
    j = len(response.contrasts)
    check_size(samples.shape[1], j)
    step: _Step | None = None
    trace = list[float]()
    interrupted = False
    try:
        for step in _search(samples, response):
            trace.append(step.log_density)
            on_step(len(trace), step.log_density)
    except KeyboardInterrupt:
        if step is None:
            raise
        interrupted = True
    assert step is not None
    expansion = step.expansion
    log_scale = step.log_scale
    grid, log_p = expansion.marginal(priors.scale)
    log_scales = quantile(grid, log_p, rng.random(n_draws))
    normal = rng.standard_normal((n_draws, expansion.linear.size))
    draws, expected = expansion.draw(log_scales, normal, rng.standard_normal((n_draws, j)))
    log_likelihood = expected + 0.5 * np.sum(draws[:, -1] ** 2, axis=1)
    some = slice(_N_EXACT if samples.shape[0] > _SOME else None)
    log_ratio = samples.sum(_sum_log_likelihood, (response, draws[some])) - log_likelihood[some]
    log_likelihood[some] += log_ratio
    mode = expansion.mode(log_scale)
    return Laplace(
        theta=_vectors(draws, log_scales),
        mode=_vectors(mode[None], np.array([log_scale]))[0],
        log_likelihood=log_likelihood,
        pareto_k=_pareto_k(log_ratio),
        converged=step.converged and not interrupted,
        trace=np.array(trace),
        interrupted=interrupted,
    )


def check_size(n_features: int, n_contrasts: int) -> None:
    """Raise a ValueError if the precision matrix would be too large."""
    if n_features * n_contrasts > MOST_LOADINGS:
        raise ValueError(
            f"{n_features} features times {n_contrasts} contrasts of classes exceed "
            f"{MOST_LOADINGS}, the limit of Laplace's method: give fewer features"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A point of the search: the expansion there, and the log tau most probable given it."""

    expansion: "_Expansion"
    log_scale: float
    log_density: float  # at the point given log tau, up to a constant
    converged: bool  # whether it is the mode


def _search(samples: Samples, response: Response) -> Iterator[_Step]:
    """Newton's method for the loadings, and log tau, from zero or the mode of some samples."""
    width = samples.shape[1] if response.metric is None else response.metric.width
    at = np.zeros((width + 1, len(response.contrasts)))
    log_scale = math.log(response.priors.scale)
    if samples.shape[0] >= _SEVERAL * _SOME:
        n = samples.shape[0]
        some = np.sort(np.random.default_rng(0).choice(n, _SOME, replace=False))
        for step in _search(samples.select(some), response):
            at = step.expansion.at
            log_scale = step.log_scale
    longest = _LONGEST
    change = 0.0
    value, gradient, hessian = derivatives(samples, response, at)
    for _ in range(_MAX_STEPS):
        expansion = _Expansion.learn(at, value, gradient, hessian)
        before = change
        change = expansion.best_log_scale(response.priors.scale) - log_scale
        if before * change < 0.0:
            longest *= 0.5
        log_scale += float(np.clip(change, -longest, longest))
        precision = np.full((len(at), 1), math.exp(-2.0 * log_scale))
        precision[-1] = 1.0
        move = expansion.mode(log_scale) - at
        gain = float(np.sum(move * (gradient - precision * at)))
        converged = gain < _LEAST_GAIN * at.size and abs(change) < _LEAST_CHANGE
        density = value - 0.5 * float(np.sum(precision * at**2))
        yield _Step(
            expansion=expansion, log_scale=log_scale, log_density=density, converged=converged
        )
        if converged:
            return
        for halvings in range(_MAX_HALVINGS):
            there = at + 0.5**halvings * move
            value, gradient, hessian = derivatives(samples, response, there)
            if gain < _ROUNDING or value - 0.5 * np.sum(precision * there**2) >= density:
                break
        else:
            return
        at = there


def derivatives(
    samples: Samples, response: Response, at: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Log likelihood, its gradient (B + 1, J), and negative Hessian, of the loadings raveled."""
    total = samples.sum(_sum_derivatives, (response, at))
    n = at.size
    return float(total[0]), total[1 : n + 1].reshape(at.shape), total[n + 1 :].reshape(n, n)


def _sum_derivatives(
    X: FloatArray,
    y: np.ndarray,
    shared: tuple[Response, FloatArray],
    weights: FloatArray | None = None,
) -> FloatArray:
    """Log likelihood, gradient and negative Hessian, sums of weighted Gram matrices, raveled."""
    response, loadings = shared
    C = response.contrasts
    d, j = loadings.shape
    n = loadings.size
    target = response.target
    lapse = response.priors.lapse
    total = np.zeros(1 + n + n**2)
    gradient = total[1 : n + 1].reshape(d, j)
    hessian = total[n + 1 :].reshape(d, j, d, j)
    for part, labels, own in response.parts(X, y, weights):
        eta = part @ loadings @ C
        total[0] += (label_log_likelihood(eta[None], labels, target, lapse)[0] * own).sum()
        slope, second = label_derivatives(eta, labels, target, lapse)
        gradient += part.T @ (own[:, None] * (slope @ C.T))
        curved = np.ascontiguousarray((C @ second @ C.T).transpose(1, 2, 0)) * own
        for a in range(j):
            for b in range(a + 1):
                if curved[a, b].any():  # zero between two labels of a set
                    hessian[:, a, :, b] -= part.T @ (curved[a, b][:, None] * part)
    for a in range(j):
        for b in range(a):
            hessian[:, b, :, a] = hessian[:, a, :, b]
    return total


def _sum_log_likelihood(
    X: FloatArray,
    y: np.ndarray,
    shared: tuple[Response, FloatArray],
    weights: FloatArray | None = None,
) -> FloatArray:
    """Log likelihood of draws of the loadings (S, B + 1, J), (S,)."""
    response, draws = shared
    total = np.zeros(len(draws))
    for part, labels, own in response.parts(X, y, weights):
        for s, loadings in enumerate(draws):
            eta = (part @ loadings @ response.contrasts)[None]
            each = label_log_likelihood(eta, labels, response.target, response.priors.lapse)[0]
            total[s] += (each * own).sum()
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expansion:
    """Log likelihood and log prior of the biases, expanded to second order at a point."""

    vectors: FloatArray  # Q, (B J, B J)
    curvature: FloatArray  # m, (B J,)
    root: FloatArray  # Cholesky factor of the precision of the biases, (J, J)
    cross: FloatArray  # decrease of their mean for each loading, (J, B J)
    at: FloatArray  # the point, (B + 1, J)
    linear: FloatArray  # Q'h, (B J,)
    bias: FloatArray  # mean of the biases given its loadings, (J,)
    constant: float  # c, but for the determinant of root

    @classmethod
    def learn(
        cls, at: FloatArray, value: float, gradient: FloatArray, hessian: FloatArray
    ) -> "_Expansion":
        """From the log likelihood, its gradient (B + 1, J), and its negative Hessian."""
        j = at.shape[1]
        eigenvalues, vectors = np.linalg.eigh(hessian[-j:, -j:])
        root = np.linalg.cholesky((vectors * np.abs(eigenvalues)) @ vectors.T + np.eye(j))
        cross = cho_solve((root, True), hessian[-j:, :-j])
        curvature, vectors = np.linalg.eigh(hessian[:-j, :-j] - hessian[:-j, -j:] @ cross)
        curvature = np.abs(curvature)
        by_bias = gradient[-1] - at[-1]
        step = cho_solve((root, True), by_bias)
        rotated = at[:-1].ravel() @ vectors
        linear = (gradient[:-1].ravel() - by_bias @ cross) @ vectors + curvature * rotated
        peak = value - 0.5 * float(at[-1] @ at[-1] - by_bias @ step)
        return cls(
            vectors=vectors,
            curvature=curvature,
            linear=linear,
            root=root,
            cross=cross,
            at=at,
            bias=at[-1] + step,
            constant=peak - float(rotated @ (linear - 0.5 * curvature * rotated)),
        )

    def log_evidence(self, log_scale: FloatArray) -> FloatArray:
        """log p(y | tau) at values of log tau (T,)."""
        precision = self.curvature + np.exp(-2.0 * log_scale)[:, None]
        each = self.linear**2 / precision - np.log(precision) - 2.0 * log_scale[:, None]
        return 0.5 * each.sum(axis=1) + self.constant - np.log(np.diag(self.root)).sum()

    def slope(self, log_scale: float, scale: float) -> float:
        """Derivative of the log posterior density of log tau, half-normal with a given scale."""
        prior = math.exp(-2.0 * log_scale)
        precision = self.curvature + prior
        each = (prior * self.linear**2 / precision - self.curvature) / precision
        return float(each.sum()) + 1.0 - 1.0 / (prior * scale**2)

    def marginal(self, scale: float) -> tuple[FloatArray, FloatArray]:
        """Grid of log tau, and its log density there with that of y."""

        def log_density(log_scale: FloatArray) -> FloatArray:
            return self.log_evidence(log_scale) + log_prior_scale(log_scale, scale)

        return make_grid(log_density, np.array(-_FARTHEST), np.array(_FARTHEST))

    def best_log_scale(self, scale: float) -> float:
        """Mode of log tau."""
        grid, density = self.marginal(scale)
        peak = int(np.clip(density.argmax(), 1, len(grid) - 2))
        low = float(grid[peak - 1])
        high = float(grid[peak + 1])
        if self.slope(low, scale) <= 0.0 or self.slope(high, scale) >= 0.0:
            return float(grid[density.argmax()])
        return float(brentq(self.slope, low, high, args=(scale,), xtol=1e-12))

    def draw(
        self, log_scale: FloatArray, normal: FloatArray, normal_bias: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Loadings and biases (S, B + 1, J), and the expansion there, (S,).

        From log tau (S,) and standard normals (S, B J) and (S, J), by symmetric roots, which do not
        depend on the signs of eigenvectors.
        """
        precision = self.curvature + np.exp(-2.0 * log_scale)[:, None]
        rotated = self.linear / precision + (normal @ self.vectors) / np.sqrt(precision)
        loadings = rotated @ self.vectors.T
        bias = self.bias - (loadings - self.at[:-1].ravel()) @ self.cross.T
        bias += solve_triangular(self.root.T, normal_bias.T).T
        value = self.constant + rotated @ self.linear - 0.5 * rotated**2 @ self.curvature
        value -= 0.5 * np.sum(normal_bias**2, axis=1)
        draws = np.concatenate([loadings, bias], axis=1)
        return draws.reshape(len(draws), *self.at.shape), value

    def mode(self, log_scale: float) -> FloatArray:
        """Mode of loadings and biases given log tau, (B + 1, J)."""
        none = np.zeros((1, self.linear.size)), np.zeros((1, self.bias.size))
        return self.draw(np.array([log_scale]), *none)[0][0]


def _vectors(draws: FloatArray, log_scale: FloatArray) -> FloatArray:
    """Vectors of parameters (S, P) from loadings and biases (S, B + 1, J) and log tau (S,)."""
    standard = draws.copy()
    standard[:, :-1] *= np.exp(-log_scale)[:, None, None]
    return np.column_stack([standard.reshape(len(draws), -1), log_scale])


def _pareto_k(log_ratio: FloatArray) -> float:
    """Pareto k of importance ratios."""
    from arviz_stats.base import array_stats

    if len(log_ratio) < 25:
        return np.nan
    if not np.isfinite(log_ratio).all():
        return np.inf
    # As for leave-one-out weights, psislw takes negative log ratios.
    return float(np.asarray(array_stats.psislw(-log_ratio, r_eff=1.0, axis=-1)[1]))
