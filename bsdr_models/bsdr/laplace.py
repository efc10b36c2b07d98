r"""Laplace's method: a normal approximation of the posterior for many samples.

For loadings :math:`\beta = \tau\, \mathrm{vec}\, \theta`, (B J,), of whitened features the log
likelihood is replaced by its second-order expansion at the mode, in which the biases are integrated
out in closed form:

.. math::
    \log p(y \mid \beta) \approx c + h^\top \beta - \tfrac12 \beta^\top M \beta, \qquad
    \beta \mid \tau \sim N(0, \tau^2 I).

In the eigenvectors of :math:`M = Q \operatorname{diag}(m) Q^\top`, the positive semidefinite part
of the curvature, the evidence of the scale and the loadings given it are

.. math::
    \log p(y \mid \tau) = c + \tfrac12 \sum_i \Bigl\{ \frac{\tau^2 h_i^2}{1 + \tau^2 m_i}
        - \log(1 + \tau^2 m_i) \Bigr\}, \qquad
    \beta_i \mid \tau, y \sim N\Bigl( \frac{h_i}{m_i + \tau^{-2}}, \frac{1}{m_i + \tau^{-2}}
        \Bigr).

The expansion is at the mode for that :math:`\tau` whose log has the highest posterior density given
the expansion, a fixed point [1]_. The expansion is the same for all :math:`\tau`, which are drawn
from their marginal density on a grid: their uncertainty is in the draws of the loadings. The
importance ratio of a draw is that of the likelihood to its expansion, and the tail of these ratios
[2]_ tells whether the approximation can be used.

The mode is found by L-BFGS in coordinates in which a sample of average curvature would have unit
curvature, then by Newton steps, so that it does not depend on the order of summation over samples.
Every evaluation is one sum over the samples, which may be in memory, on disk, or on the workers of
a cluster.

Letters: n samples of a block, D features, B of them after whitening, K labels, J contrasts, S
draws. Matrices (D + 1, J) or (B + 1, J) are of loadings, with the biases in the last row.

References
----------
.. [1] D. J. C. MacKay (1992). The evidence framework applied to classification networks. Neural
       Computation 4(5).
.. [2] A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry (2024). Pareto smoothed importance
       sampling. Journal of Machine Learning Research 25(72).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.posterior import (
    Metric,
    Problem,
    label_derivatives,
    label_log_likelihood,
    log_prior_scale,
    make_contrasts,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.sample_blocks import Block, InProcess, SampleBlocks
from bsdr_models.numerics.scaling import Scaler

# Largest number of loadings, whose precision is a matrix of that width.
MOST_LOADINGS = 10_000
# Samples processed at once, and numbers in an array of their features or second derivatives.
_CHUNK, _ENTRIES = 8192, 2**22
# L-BFGS ends when an iteration gains less than this many nats. Newton steps end when another would
# gain less than this per parameter and the log scale changes by less.
_GAIN, _LEAST_GAIN, _LEAST_CHANGE = 1e-3, 1e-13, 1e-7
# Steps that gain less are not checked, because of rounding errors.
_ROUNDING = 1e-8
_MEMORY, _MAX_HESSIANS, _MAX_STEPS, _MAX_HALVINGS = 30, 30, 12, 30
# Log scales relative to that of the prior among which the mode is sought; standard deviations and
# points of the grid of the marginal density.
_LOG_SCALES = np.linspace(-8.0, 4.0, 121)
_N_SD, _N_POINTS = 8.0, 401
# Fewest draws for a Pareto k.
_FEWEST = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace:
    """Draws from a normal approximation of the posterior.

    theta, mode
        Vectors of parameters of :class:`~bsdr_models.bsdr.posterior.Problem`, (S, P) and (P,).
    log_likelihood
        (S,).
    log_evidence
        In nats.
    pareto_k
        Of the importance ratios, unreliable above 0.7; NaN with fewer than 25 draws.
    converged
        Whether the search ended at a mode.
    n_evaluations
        Sums over all samples.
    interrupted
        Whether the user stopped the search; results are those of its best parameters.
    metric
        Of samples in blocks, whose whitened features have the loadings; None in memory.
    """

    theta: FloatArray
    mode: FloatArray
    log_likelihood: FloatArray
    log_evidence: float
    pareto_k: float
    converged: bool
    n_evaluations: int
    interrupted: bool
    metric: Metric | None = None


def fit_laplace(
    problem: Problem,
    *,
    rng: np.random.Generator,
    n_draws: int = 200,
    max_iter: int = 500,
    on_evaluation: Callable[[int, float], object] = lambda count, value: None,
) -> Laplace:
    """Laplace's method for samples in memory, without views.

    Parameters
    ----------
    n_draws : int
        S. Their log likelihood costs S evaluations without gradients.
    max_iter : int
        Iterations of L-BFGS.
    on_evaluation : callable
        Called with the number of evaluations and the log posterior density, up to a constant.

    Raises
    ------
    ValueError
        If there are more loadings than :data:`MOST_LOADINGS`.
    KeyboardInterrupt
        If the user stops the search before its first evaluation.
    """
    check_size(problem.X.shape[1], len(problem.contrasts))
    response = Response(
        target=problem.target, contrasts=problem.contrasts, lapse=problem.priors.lapse
    )
    search = _Search(
        blocks=InProcess([Block(X=problem.X, y=problem.y, begin=0)]),
        response=response,
        priors=problem.priors,
        metric=None,
        squares=np.einsum("nb,nb->b", problem.X, problem.X),
        on_evaluation=on_evaluation,
    )
    return search.fit(max_iter, n_draws, rng)


def fit_laplace_blocks(
    blocks: SampleBlocks,
    scaler: Scaler | None,
    *,
    n_labels: int,
    target: Target,
    priors: HierarchicalPriors,
    rng: np.random.Generator,
    n_draws: int = 200,
    max_iter: int = 500,
    on_evaluation: Callable[[int, float], object] = lambda count, value: None,
) -> Laplace:
    """Laplace's method for samples in blocks, with the metric of ridge regression.

    Parameters
    ----------
    blocks : SampleBlocks
        Arrays, with targets as in :class:`~bsdr_models.bsdr.posterior.Problem`.
    scaler : Scaler, optional
        None for samples that are already centred and scaled.
    n_draws, max_iter, on_evaluation
        As for :func:`fit_laplace`, and so are the errors.
    """
    contrasts = make_contrasts(n_labels, target)
    check_size(blocks.n_features, len(contrasts))
    response = Response(target=target, contrasts=contrasts, lapse=priors.lapse, scaler=scaler)
    metric, squares = prepare(blocks, response)
    search = _Search(
        blocks=blocks,
        response=response,
        priors=priors,
        metric=metric,
        squares=squares,
        on_evaluation=on_evaluation,
    )
    return search.fit(max_iter, n_draws, rng)


def check_size(n_features: int, n_contrasts: int) -> None:
    """Raise a ValueError if the precision matrix would be too large."""
    if n_features * n_contrasts > MOST_LOADINGS:
        raise ValueError(
            f"{n_features} features times {n_contrasts} contrasts of classes exceed "
            f"{MOST_LOADINGS}, the limit of Laplace's method: give fewer features"
        )


# ------------------------------------------------------------------------------- sums over samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Type of the targets, their contrasts C (J, K), lapse rate, and scaler of the samples."""

    target: Target
    contrasts: FloatArray
    lapse: float
    scaler: Scaler | None = None

    def chunks(self, block: Block) -> Iterator[tuple[FloatArray, np.ndarray]]:
        """Scaled samples with a constant feature, (n, D + 1), and their targets."""
        assert block.y is not None
        width = max(block.X.shape[1] + 1, self.contrasts.shape[1] ** 2)
        size = max(1, min(_CHUNK, _ENTRIES // width))
        for begin in range(0, len(block.X), size):
            X, y = block.X[begin : begin + size], block.y[begin : begin + size]
            if self.scaler is not None:
                X = self.scaler.transform(X)
            yield np.column_stack([X, np.ones(len(X))]), y


def prepare(blocks: SampleBlocks, response: Response) -> tuple[Metric, FloatArray]:
    """Metric of the features and sums of squares of whitened features (B,), by one pass."""
    moments = blocks.reduce(_sum_moments, shared=response)
    d = blocks.n_features
    gram = moments[:-1].reshape(d + 1, d + 1)
    metric = Metric.from_sums(gram[:d, :d], float(moments[-1]), round(float(gram[d, d])))
    return metric, np.sum(metric.slopes * (gram[:d, :d] @ metric.slopes), axis=0)


def _sum_moments(block: Block, response: Response) -> FloatArray:
    """Sums of x x' with a constant feature, (D + 1, D + 1), and of ``|x|**4``, raveled."""
    d = block.X.shape[1]
    gram, fourth = np.zeros((d + 1, d + 1)), 0.0
    for X, _ in response.chunks(block):
        gram += X.T @ X
        fourth += float(np.sum(np.sum(X[:, :d] ** 2, axis=1) ** 2))
    return np.append(gram, fourth)


def _sum_gradient(block: Block, shared: tuple[Response, FloatArray]) -> FloatArray:
    """Log likelihood and its gradient in the loadings (D + 1, J), raveled."""
    response, loadings = shared
    value, gradient = 0.0, np.zeros_like(loadings)
    for X, y in response.chunks(block):
        eta = X @ loadings @ response.contrasts
        each, slope = label_log_likelihood(eta[None], y, response.target, response.lapse)
        value += float(each.sum())
        gradient += X.T @ (slope[0] @ response.contrasts.T)
    return np.append(value, gradient)


def _sum_hessian(block: Block, shared: tuple[Response, FloatArray]) -> FloatArray:
    """Negative Hessian of the log likelihood, (J, J, D + 1, D + 1): weighted Gram matrices."""
    response, loadings = shared
    C, (d, j) = response.contrasts, loadings.shape
    out = np.zeros((j, j, d, d))
    for X, y in response.chunks(block):
        second = label_derivatives(X @ loadings @ C, y, response.target, response.lapse)[1]
        weights = np.ascontiguousarray((C @ second @ C.T).transpose(1, 2, 0))
        for a in range(j):
            for b in range(a + 1):
                if weights[a, b].any():  # zero between two labels of a set
                    out[a, b] -= X.T @ (weights[a, b][:, None] * X)
    for a in range(j):
        out[:a, a] = out[a, :a]
    return out


def _sum_log_likelihood(block: Block, shared: tuple[Response, FloatArray]) -> FloatArray:
    """Log likelihood of draws of the loadings (S, D + 1, J), (S,)."""
    response, draws = shared
    total = np.zeros(len(draws))
    for X, y in response.chunks(block):
        for s, loadings in enumerate(draws):
            eta = X @ loadings @ response.contrasts
            each = label_log_likelihood(eta[None], y, response.target, response.lapse)[0]
            total[s] += each.sum()
    return total


# ------------------------------------------------------------------------------------ the expansion


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expansion:
    """Log likelihood and log prior of the biases, expanded to second order at a point.

    vectors, curvature, linear
        Q, m and Q'h of the loadings, (B J, B J), (B J,) and (B J,).
    root
        Cholesky factor of the precision of the biases given the loadings, (J, J).
    cross
        Decrease of the mean of the biases for each loading, (J, B J).
    at
        The point, (B + 1, J).
    bias
        Mean of the biases given its loadings, (J,).
    constant
        Of the log likelihood, c but for the determinant of ``root``.
    """

    vectors: FloatArray
    curvature: FloatArray
    root: FloatArray
    cross: FloatArray
    at: FloatArray
    linear: FloatArray
    bias: FloatArray
    constant: float

    @classmethod
    def learn(
        cls, at: FloatArray, value: float, gradient: FloatArray, hessian: FloatArray
    ) -> "_Expansion":
        """From the log likelihood, its gradient (B + 1, J), and its negative Hessian."""
        j = at.shape[1]
        value_of, vectors = np.linalg.eigh(hessian[-j:, -j:])
        root = np.linalg.cholesky((vectors * np.maximum(value_of, 0.0)) @ vectors.T + np.eye(j))
        cross = cho_solve((root, True), hessian[-j:, :-j])
        curvature, vectors = np.linalg.eigh(hessian[:-j, :-j] - hessian[:-j, -j:] @ cross)
        empty = np.empty(0)
        return cls(
            vectors=vectors,
            curvature=np.maximum(curvature, 0.0),
            root=root,
            cross=cross,
            at=at,
            linear=empty,
            bias=empty,
            constant=0.0,
        ).moved(at, value, gradient)

    def moved(self, at: FloatArray, value: float, gradient: FloatArray) -> "_Expansion":
        """The expansion at another point with the same Hessian."""
        bias, by_bias = at[-1], gradient[-1] - at[-1]
        step = cho_solve((self.root, True), by_bias)
        own = at[:-1].ravel() @ self.vectors
        slope = (gradient[:-1].ravel() - by_bias @ self.cross) @ self.vectors
        linear = slope + self.curvature * own
        constant = value - 0.5 * float(bias @ bias - by_bias @ step)
        return replace(
            self,
            at=at,
            linear=linear,
            bias=bias + step,
            constant=constant - float(own @ (linear - 0.5 * self.curvature * own)),
        )

    def log_evidence(self, log_scale: FloatArray) -> FloatArray:
        """log p(y | tau) at values of log tau (T,)."""
        square = np.exp(2.0 * log_scale)[:, None]
        ratio = 1.0 + square * self.curvature
        each = 0.5 * np.sum(self.linear**2 * square / ratio - np.log(ratio), axis=1)
        return np.asarray(each + self.constant - np.sum(np.log(np.diag(self.root))))

    def slope(self, log_scale: float, scale: float) -> float:
        """Derivative of the log posterior density of log tau, half-normal with a given scale."""
        square = math.exp(2.0 * log_scale)
        ratio = 1.0 + square * self.curvature
        each = square * ((self.linear / ratio) ** 2 - self.curvature / ratio)
        return float(each.sum()) + 1.0 - square / scale**2

    def best_log_scale(self, scale: float) -> float:
        """Mode of log tau."""
        grid = math.log(scale) + _LOG_SCALES
        density = self.log_evidence(grid) + log_prior_scale(grid, scale)
        peak = int(np.clip(density.argmax(), 1, len(grid) - 2))
        low, high = float(grid[peak - 1]), float(grid[peak + 1])
        if self.slope(low, scale) <= 0.0 or self.slope(high, scale) >= 0.0:
            return float(grid[density.argmax()])
        return float(brentq(self.slope, low, high, args=(scale,), xtol=1e-12))

    def marginal(self, mode: float, scale: float) -> tuple[FloatArray, FloatArray]:
        """Grid of log tau around its mode, and its log density there with that of y."""
        h = 1e-4
        curvature = (self.slope(mode - h, scale) - self.slope(mode + h, scale)) / (2.0 * h)
        width = _N_SD / math.sqrt(max(curvature, 0.1))
        grid = mode + np.linspace(-width, width, _N_POINTS)
        return grid, self.log_evidence(grid) + log_prior_scale(grid, scale)

    def draw(
        self, log_scale: FloatArray, normal: FloatArray, normal_bias: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Loadings and biases from log tau and standard normals, and the expansion there.

        By symmetric roots, which do not depend on the signs of eigenvectors.

        Parameters
        ----------
        log_scale, normal, normal_bias : (S,), (S, B J), (S, J)

        Returns
        -------
        (S, B + 1, J), (S,)
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


# --------------------------------------------------------------------------------------- the search


class _Search:
    """Search for the mode of loadings and biases (B + 1, J) of whitened features, and of log tau.

    Biases are standard normal a priori.
    """

    def __init__(
        self,
        *,
        blocks: SampleBlocks,
        response: Response,
        priors: HierarchicalPriors,
        metric: Metric | None,
        squares: FloatArray,
        on_evaluation: Callable[[int, float], object],
    ) -> None:
        self.blocks, self.response, self.priors, self.metric = blocks, response, priors, metric
        self.squares, self.on_evaluation = squares, on_evaluation
        self.at = np.zeros((len(squares) + 1, len(response.contrasts)))
        self.log_scale = math.log(priors.scale)
        self.n_evaluations = 0

    def fit(self, max_iter: int, n_draws: int, rng: np.random.Generator) -> Laplace:
        """Mode, and draws around it."""
        expansion, interrupted = None, False
        try:
            self.lbfgs(max_iter)
            expansion = self.newton()
        except KeyboardInterrupt:
            if self.n_evaluations == 0:
                raise
            interrupted = True
        converged = expansion is not None
        if expansion is None:
            expansion = _Expansion.learn(self.at, *self.evaluate(self.at), self.hessian(self.at))
            self.log_scale = expansion.best_log_scale(self.priors.scale)
        d = self.blocks.n_features
        j = self.at.shape[1]
        normal = rng.standard_normal((n_draws, d, j))
        if self.metric is not None:
            normal = self.metric.axes.T @ normal
        grid, density = expansion.marginal(self.log_scale, self.priors.scale)
        share = np.exp(density - logsumexp(density))
        log_scale = np.interp(rng.random(n_draws), np.cumsum(share) - 0.5 * share, grid)
        draws, expected = expansion.draw(
            log_scale, normal.reshape(n_draws, -1), rng.standard_normal((n_draws, j))
        )
        by_feature = np.stack([self.in_features(each) for each in draws])
        log_likelihood = self.blocks.reduce(
            _sum_log_likelihood, shared=(self.response, by_feature)
        )
        exact = log_likelihood - 0.5 * np.sum(draws[:, -1] ** 2, axis=1)
        mode = expansion.mode(self.log_scale)
        return Laplace(
            theta=_vectors(draws, log_scale),
            mode=_vectors(mode[None], np.array([self.log_scale]))[0],
            log_likelihood=log_likelihood,
            log_evidence=float(logsumexp(density) + np.log(grid[1] - grid[0])),
            pareto_k=_pareto_k(exact - expected),
            converged=converged,
            n_evaluations=self.n_evaluations,
            interrupted=interrupted,
            metric=self.metric,
        )

    def in_features(self, loadings: FloatArray) -> FloatArray:
        """Loadings and biases of scaled features (D + 1, J) from (B + 1, J)."""
        inside = loadings[:-1] if self.metric is None else self.metric.slopes @ loadings[:-1]
        return np.concatenate([inside, self.priors.bias_scale * loadings[-1:]])

    def in_whitened(self, gradient: FloatArray) -> FloatArray:
        """Gradients (B + 1, c) in whitened features from those in scaled ones (D + 1, c)."""
        inside = gradient[:-1] if self.metric is None else self.metric.slopes.T @ gradient[:-1]
        return np.concatenate([inside, self.priors.bias_scale * gradient[-1:]])

    def evaluate(self, at: FloatArray) -> tuple[float, FloatArray]:
        """Log likelihood and its gradient (B + 1, J), by one pass over the samples."""
        features = self.in_features(at)
        total = self.blocks.reduce(_sum_gradient, shared=(self.response, features))
        value = float(total[0])
        self.n_evaluations += 1
        self.on_evaluation(self.n_evaluations, value + self.log_prior(at))
        return value, self.in_whitened(total[1:].reshape(features.shape))

    def hessian(self, at: FloatArray) -> FloatArray:
        """Negative Hessian of the log likelihood, by one pass over the samples."""
        total = self.blocks.reduce(_sum_hessian, shared=(self.response, self.in_features(at)))
        j, _, d, _ = total.shape
        total = total.transpose(2, 0, 3, 1).reshape(d * j, d * j)
        for _ in range(2):  # rows, then columns
            total = self.in_whitened(total.reshape(d, -1)).reshape(at.size, -1).T
        return total

    def precision(self) -> FloatArray:
        """Prior precision of each row of the loadings and biases, (B + 1, 1)."""
        each = np.full((len(self.at), 1), math.exp(-2.0 * self.log_scale))
        each[-1] = 1.0
        return each

    def log_prior(self, at: FloatArray) -> float:
        """Log prior density given tau, up to a constant."""
        return -0.5 * float(np.sum(self.precision() * at**2))

    def lbfgs(self, max_iter: int) -> None:
        """Towards the mode given the scale of the prior, from zero."""
        k = self.response.contrasts.shape[1]
        y = np.arange(k) if self.response.target == "multiclass" else np.ones((1, k), dtype=bool)
        zero = np.zeros((len(y), k))
        second = label_derivatives(zero, y, self.response.target, self.response.lapse)[1]
        mean = -float(np.trace(second.mean(axis=0))) / len(self.response.contrasts)
        squares = np.append(self.squares, sum(self.blocks.sizes) * self.priors.bias_scale**2)
        size = 1.0 / np.sqrt(mean * squares[:, None] + self.precision())
        best = -np.inf

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            nonlocal best
            at = size * x.reshape(self.at.shape)
            value, gradient = self.evaluate(at)
            value += self.log_prior(at)
            if value > best:
                best, self.at = value, at
            return -value, -(size * (gradient - self.precision() * at)).ravel()

        first = abs(objective(self.at.ravel())[0])
        options = {"maxiter": max_iter, "maxcor": _MEMORY, "ftol": _GAIN / (1.0 + first)}
        minimize(objective, self.at.ravel(), jac=True, method="L-BFGS-B", options=options)

    def newton(self) -> _Expansion | None:
        """Newton steps, several for each Hessian; the expansion at the mode if it was found."""
        value, gradient = self.evaluate(self.at)
        for _ in range(_MAX_HESSIANS):
            expansion = _Expansion.learn(self.at, value, gradient, self.hessian(self.at))
            before = np.inf
            for count in range(_MAX_STEPS):
                expansion = expansion.moved(self.at, value, gradient)
                log_scale = expansion.best_log_scale(self.priors.scale)
                change, self.log_scale = abs(log_scale - self.log_scale), log_scale
                step = expansion.mode(log_scale) - self.at
                gain = float(np.sum(step * (gradient - self.precision() * self.at)))
                if gain < _LEAST_GAIN * step.size and change < _LEAST_CHANGE:
                    if count == 0:
                        return expansion
                    break
                if gain > 0.25 * before:
                    break
                before = gain
                there = self.advance(step, value, gain)
                if there is None:
                    return None
                value, gradient = there
        return None

    def advance(
        self, step: FloatArray, value: float, gain: float
    ) -> tuple[float, FloatArray] | None:
        """Move along a step, halved until the density grows: log likelihood and its gradient."""
        density = value + self.log_prior(self.at)
        for halvings in range(_MAX_HALVINGS):
            at = self.at + 0.5**halvings * step
            value, gradient = self.evaluate(at)
            if gain < _ROUNDING or value + self.log_prior(at) > density - 1e-12 * abs(density):
                self.at = at
                return value, gradient
        return None


def _vectors(draws: FloatArray, log_scale: FloatArray) -> FloatArray:
    """Vectors of parameters (S, P) from loadings and biases (S, B + 1, J) and log tau (S,)."""
    standard = draws.copy()
    standard[:, :-1] *= np.exp(-log_scale)[:, None, None]
    return np.column_stack([standard.reshape(len(draws), -1), log_scale])


def _pareto_k(log_ratio: FloatArray) -> float:
    """Pareto k of importance ratios."""
    from arviz_stats.base import array_stats

    if len(log_ratio) < _FEWEST:
        return np.nan
    if not np.isfinite(log_ratio).all():
        return np.inf
    # As for leave-one-out weights, psislw takes negative log ratios.
    return float(np.asarray(array_stats.psislw(-log_ratio, r_eff=1.0, axis=-1)[1]))
