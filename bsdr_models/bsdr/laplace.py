r"""Laplace's method: a normal approximation of the posterior for many samples.

For loadings :math:`\beta = \tau\, \mathrm{vec}\, \theta`, (B J,), of whitened features the log
likelihood is expanded to second order at the mode, and the biases are integrated out:

.. math::
    \log p(y \mid \beta) \approx c + h^\top \beta - \tfrac12 \beta^\top M \beta, \qquad
    \beta \mid \tau \sim N(0, \tau^2 I).

In the eigenvectors of M, without its negative eigenvalues, which come from lapses, with
:math:`p_i = m_i + \tau^{-2}`,

.. math::
    \log p(y \mid \tau) = c + \tfrac12 \sum_i \bigl\{ h_i^2 / p_i - \log(\tau^2 p_i) \bigr\},
    \qquad \beta_i \mid \tau, y \sim N(h_i / p_i, 1 / p_i).

The expansion is at the mode of the loadings for that :math:`\tau` whose log is most probable given
the expansion, a fixed point [1]_. Draws are of log tau on a grid, then of the loadings. The tail of
the importance ratios of draws, of the likelihood to its expansion, tells whether the approximation
can be trusted [2]_. Every evaluation is one sum over samples, in memory or in the chunks of a Dask
array.

Letters: n samples of a part, D features, B of them after whitening, K labels, J contrasts, S
draws. Loadings are (D + 1, J) or (B + 1, J) with the biases in the last row.

References
----------
.. [1] D. J. C. MacKay (1992). The evidence framework applied to classification networks. Neural
       Computation 4(5).
.. [2] A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry (2024). Pareto smoothed importance
       sampling. Journal of Machine Learning Research 25(72).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.feature_map import Metric
from bsdr_models.bsdr.posterior import (
    Problem,
    label_derivatives,
    label_log_likelihood,
    log_prior_scale,
    make_contrasts,
)
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.chunks import Chunks, InMemory, Samples
from bsdr_models.numerics.scaling import Scaler

# Largest number of loadings, whose precision is a matrix of that width.
MOST_LOADINGS = 10_000
# Samples processed at once, and numbers in an array of their features or second derivatives.
_CHUNK, _ENTRIES = 8192, 2**22
# Curvature of the log likelihood of a typical sample, for the scales of L-BFGS, which ends when an
# iteration gains less than this share of the log density.
_CURVATURE, _GAIN, _MEMORY = 0.5, 1e-8, 30
# Newton steps end when another would gain less than this per parameter, and log tau changes by
# less. The density after steps that gain less than a rounding error is not compared.
_LEAST_GAIN, _LEAST_CHANGE, _ROUNDING = 1e-13, 1e-7, 1e-8
_MAX_ITER, _MAX_STEPS, _MAX_HALVINGS = 500, 30, 30
# Values of log tau, relative to the prior, between which the mode is sought; standard deviations
# and points of the grid of its marginal density.
_LOG_SCALES = np.linspace(-8.0, 4.0, 121)
_N_SD, _N_POINTS = 8.0, 401


@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace:
    """Draws from a normal approximation of the posterior, as vectors of parameters.

    If the user stops the search, results are those of its best parameters.
    """

    theta: FloatArray  # (S, P)
    mode: FloatArray  # (P,)
    log_likelihood: FloatArray  # (S,)
    log_evidence: float  # in nats
    pareto_k: float  # of importance ratios, unreliable above 0.7; NaN below 25 draws
    converged: bool  # whether the search ended at a mode
    trace: FloatArray  # log posterior density, up to a constant, at each evaluation
    interrupted: bool
    metric: Metric | None = None  # of chunks; None in memory


def fit_laplace(
    problem: Problem,
    *,
    rng: np.random.Generator,
    n_draws: int = 200,
    on_evaluation: Callable[[int, float], object] = lambda count, value: None,
) -> Laplace:
    """Laplace's method for samples in memory, without views.

    ``on_evaluation`` is called with the number of evaluations and the log posterior density, up to
    a constant. ValueError if there are more loadings than :data:`MOST_LOADINGS`; KeyboardInterrupt
    if the user stops the search before its first evaluation.
    """
    assert problem.views is None
    check_size(problem.X.shape[1], len(problem.contrasts))
    search = _Search(
        samples=InMemory(problem.X, problem.y),
        response=Response(
            target=problem.target, contrasts=problem.contrasts, lapse=problem.priors.lapse
        ),
        priors=problem.priors,
        metric=None,
        squares=np.einsum("nb,nb->b", problem.X, problem.X),
        on_evaluation=on_evaluation,
    )
    return search.fit(n_draws, rng)


def fit_laplace_chunks(
    samples: Chunks,
    scaler: Scaler | None,
    *,
    n_labels: int,
    target: Target,
    priors: HierarchicalPriors,
    rng: np.random.Generator,
    n_draws: int = 200,
    on_evaluation: Callable[[int, float], object] = lambda count, value: None,
) -> Laplace:
    """As :func:`fit_laplace` for chunks of samples, with the metric of ridge regression.

    Without a scaler samples are already centred and scaled.
    """
    contrasts = make_contrasts(n_labels, target)
    check_size(samples.shape[1], len(contrasts))
    response = Response(target=target, contrasts=contrasts, lapse=priors.lapse, scaler=scaler)
    metric, squares = prepare(samples, response)
    search = _Search(
        samples=samples,
        response=response,
        priors=priors,
        metric=metric,
        squares=squares,
        on_evaluation=on_evaluation,
    )
    return search.fit(n_draws, rng)


def check_size(n_features: int, n_contrasts: int) -> None:
    """Raise a ValueError if the precision matrix would be too large."""
    if n_features * n_contrasts > MOST_LOADINGS:
        raise ValueError(
            f"{n_features} features times {n_contrasts} contrasts of classes exceed "
            f"{MOST_LOADINGS}, the limit of Laplace's method: give fewer features"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """Type of the targets, their contrasts C (J, K), lapse rate, and scaler of the samples."""

    target: Target
    contrasts: FloatArray
    lapse: float
    scaler: Scaler | None = None

    def parts(self, X: FloatArray, y: np.ndarray) -> Iterator[tuple[FloatArray, np.ndarray]]:
        """Scaled samples with a constant feature, (n, D + 1), and their targets."""
        width = max(X.shape[1] + 1, self.contrasts.shape[1] ** 2)
        size = max(1, min(_CHUNK, _ENTRIES // width))
        for begin in range(0, len(X), size):
            part = X[begin : begin + size]
            if self.scaler is not None:
                part = self.scaler.transform(part)
            yield np.column_stack([part, np.ones(len(part))]), y[begin : begin + size]


def prepare(samples: Samples, response: Response) -> tuple[Metric, FloatArray]:
    """Metric of the features and sums of squares of whitened features (B,), by one pass."""
    moments, d = samples.sum(_sum_moments, response), samples.shape[1]
    gram = moments[:-1].reshape(d + 1, d + 1)
    metric = Metric.from_sums(gram[:d, :d], float(moments[-1]), round(float(gram[d, d])))
    return metric, np.sum(metric.mean_gradient * (gram[:d, :d] @ metric.mean_gradient), axis=0)


def _sum_moments(X: FloatArray, y: np.ndarray, response: Response) -> FloatArray:
    """Sums of x x' with a constant feature, (D + 1, D + 1), and of ``|x|**4``, raveled."""
    d = X.shape[1]
    gram, fourth = np.zeros((d + 1, d + 1)), 0.0
    for part, _ in response.parts(X, y):
        gram += part.T @ part
        fourth += float(np.sum(np.sum(part[:, :d] ** 2, axis=1) ** 2))
    return np.append(gram, fourth)


def _sum_gradient(X: FloatArray, y: np.ndarray, shared: tuple[Response, FloatArray]) -> FloatArray:
    """Log likelihood and its gradient in the loadings (D + 1, J), raveled."""
    response, loadings = shared
    value, gradient = 0.0, np.zeros_like(loadings)
    for part, labels in response.parts(X, y):
        eta = part @ loadings @ response.contrasts
        each, slope = label_log_likelihood(eta[None], labels, response.target, response.lapse)
        value += float(each.sum())
        gradient += part.T @ (slope[0] @ response.contrasts.T)
    return np.append(value, gradient)


def _sum_hessian(X: FloatArray, y: np.ndarray, shared: tuple[Response, FloatArray]) -> FloatArray:
    """Negative Hessian of the log likelihood, (J, J, D + 1, D + 1): weighted Gram matrices."""
    response, loadings = shared
    C, (d, j) = response.contrasts, loadings.shape
    out = np.zeros((j, j, d, d))
    for part, labels in response.parts(X, y):
        eta = part @ loadings @ C
        second = label_derivatives(eta, labels, response.target, response.lapse)[1]
        weights = np.ascontiguousarray((C @ second @ C.T).transpose(1, 2, 0))
        for a in range(j):
            for b in range(a + 1):
                if weights[a, b].any():  # zero between two labels of a set
                    out[a, b] -= part.T @ (weights[a, b][:, None] * part)
    for a in range(j):
        out[:a, a] = out[a, :a]
    return out


def _sum_log_likelihood(
    X: FloatArray, y: np.ndarray, shared: tuple[Response, FloatArray]
) -> FloatArray:
    """Log likelihood of draws of the loadings (S, D + 1, J), (S,)."""
    response, draws = shared
    total = np.zeros(len(draws))
    for part, labels in response.parts(X, y):
        for s, loadings in enumerate(draws):
            eta = part @ loadings @ response.contrasts
            each = label_log_likelihood(eta[None], labels, response.target, response.lapse)[0]
            total[s] += each.sum()
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
        root = np.linalg.cholesky((vectors * np.maximum(eigenvalues, 0.0)) @ vectors.T + np.eye(j))
        cross = cho_solve((root, True), hessian[-j:, :-j])
        curvature, vectors = np.linalg.eigh(hessian[:-j, :-j] - hessian[:-j, -j:] @ cross)
        curvature = np.maximum(curvature, 0.0)
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


@dataclass(kw_only=True)
class _Search:
    """Search for the mode of loadings and biases (B + 1, J) of whitened features, and of log tau.

    Biases are standard normal a priori. ``squares`` are sums over samples of squared whitened
    features, (B,).
    """

    samples: Samples
    response: Response
    priors: HierarchicalPriors
    metric: Metric | None
    squares: FloatArray
    on_evaluation: Callable[[int, float], object]

    def __post_init__(self) -> None:
        self.at = np.zeros((len(self.squares) + 1, len(self.response.contrasts)))
        self.log_scale = math.log(self.priors.scale)
        self.trace: list[float] = []

    def fit(self, n_draws: int, rng: np.random.Generator) -> Laplace:
        """Mode, and draws around it."""
        expansion, interrupted = None, False
        try:
            self.lbfgs()
            expansion = self.newton()
        except KeyboardInterrupt:
            if not self.trace:
                raise
            interrupted = True
        converged = expansion is not None
        if expansion is None:
            expansion = self.expand(*self.evaluate(self.at))
        grid, density = expansion.marginal(self.log_scale, self.priors.scale)
        share = np.exp(density - logsumexp(density))
        log_scale = np.interp(rng.random(n_draws), np.cumsum(share) - 0.5 * share, grid)
        j = self.at.shape[1]
        normal = rng.standard_normal((n_draws, self.samples.shape[1], j))
        if self.metric is not None:
            normal = self.metric.axes.T @ normal
        normal_bias = rng.standard_normal((n_draws, j))
        draws, expected = expansion.draw(log_scale, normal.reshape(n_draws, -1), normal_bias)
        shared = self.response, np.stack([self.in_features(each) for each in draws])
        log_likelihood = self.samples.sum(_sum_log_likelihood, shared)
        exact = log_likelihood - 0.5 * np.sum(draws[:, -1] ** 2, axis=1)
        mode = expansion.mode(self.log_scale)
        return Laplace(
            theta=_vectors(draws, log_scale),
            mode=_vectors(mode[None], np.array([self.log_scale]))[0],
            log_likelihood=log_likelihood,
            log_evidence=float(logsumexp(density) + np.log(grid[1] - grid[0])),
            pareto_k=_pareto_k(exact - expected),
            converged=converged,
            trace=np.array(self.trace),
            interrupted=interrupted,
            metric=self.metric,
        )

    def in_features(self, loadings: FloatArray) -> FloatArray:
        """Loadings and biases of scaled features (D + 1, J) from (B + 1, J)."""
        inside = loadings[:-1] if self.metric is None else self.metric.mean_gradient @ loadings[:-1]
        return np.concatenate([inside, self.priors.bias_scale * loadings[-1:]])

    def in_whitened(self, gradient: FloatArray) -> FloatArray:
        """Gradients (B + 1, c) in whitened features from those in scaled ones (D + 1, c)."""
        inside = (
            gradient[:-1] if self.metric is None else self.metric.mean_gradient.T @ gradient[:-1]
        )
        return np.concatenate([inside, self.priors.bias_scale * gradient[-1:]])

    def evaluate(self, at: FloatArray) -> tuple[float, FloatArray]:
        """Log likelihood and its gradient (B + 1, J), by one pass over the samples."""
        features = self.in_features(at)
        total = self.samples.sum(_sum_gradient, (self.response, features))
        value = float(total[0])
        self.trace.append(value + self.log_prior(at))
        self.on_evaluation(len(self.trace), self.trace[-1])
        return value, self.in_whitened(total[1:].reshape(features.shape))

    def hessian(self) -> FloatArray:
        """Negative Hessian of the log likelihood, by one pass over the samples."""
        shared = self.response, self.in_features(self.at)
        total = self.samples.sum(_sum_hessian, shared)
        j, _, d, _ = total.shape
        total = total.transpose(2, 0, 3, 1).reshape(d * j, d * j)
        for _ in range(2):  # rows, then columns
            total = self.in_whitened(total.reshape(d, -1)).reshape(self.at.size, -1).T
        return total

    def expand(self, value: float, gradient: FloatArray) -> _Expansion:
        """Expansion at the current point, for whose mode of log tau the search goes on."""
        expansion = _Expansion.learn(self.at, value, gradient, self.hessian())
        self.log_scale = expansion.best_log_scale(self.priors.scale)
        return expansion

    def precision(self) -> FloatArray:
        """Prior precision of each row of the loadings and biases, (B + 1, 1)."""
        each = np.full((len(self.at), 1), math.exp(-2.0 * self.log_scale))
        each[-1] = 1.0
        return each

    def log_prior(self, at: FloatArray) -> float:
        """Log prior density given tau, up to a constant."""
        return -0.5 * float(np.sum(self.precision() * at**2))

    def lbfgs(self) -> None:
        """Towards the mode given the scale of the prior, from zero."""
        squares = np.append(self.squares, self.samples.shape[0] * self.priors.bias_scale**2)
        size = 1.0 / np.sqrt(_CURVATURE * squares[:, None] + self.precision())
        best = -np.inf

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            nonlocal best
            at = size * x.reshape(self.at.shape)
            value, gradient = self.evaluate(at)
            value += self.log_prior(at)
            if value > best:
                best, self.at = value, at
            return -value, -(size * (gradient - self.precision() * at)).ravel()

        options = {"maxiter": _MAX_ITER, "maxcor": _MEMORY, "ftol": _GAIN}
        minimize(objective, self.at.ravel(), jac=True, method="L-BFGS-B", options=options)

    def newton(self) -> _Expansion | None:
        """Newton steps, in the loadings given tau; the expansion at the mode if it was found."""
        value, gradient = self.evaluate(self.at)
        for _ in range(_MAX_STEPS):
            before, expansion = self.log_scale, self.expand(value, gradient)
            change = abs(self.log_scale - before)
            step = expansion.mode(self.log_scale) - self.at
            gain = float(np.sum(step * (gradient - self.precision() * self.at)))
            if gain < _LEAST_GAIN * step.size and change < _LEAST_CHANGE:
                return expansion
            density = value + self.log_prior(self.at)
            for halvings in range(_MAX_HALVINGS):
                there = self.at + 0.5**halvings * step
                value, gradient = self.evaluate(there)
                if gain < _ROUNDING or value + self.log_prior(there) >= density:
                    break
            else:
                return None
            self.at = there
        return None


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
