"""Laplace's method for the hierarchical model: a normal approximation for many samples.

The likelihood depends only on a product of projection, weights and scale, so that for many samples
their joint posterior is far from normal. The approximation is therefore of identified parameters:
loadings F and weights V (:mod:`~bsdr_models.bsdr.laplace_sums`), biases and noise. Rotations,
stretches and the scale are integrated out of the prior and drawn given the rest
(:mod:`~bsdr_models.bsdr.laplace_prior`).

The scale of loadings is estimated from their expected square, since the mode of loadings that the
data do not determine is zero: in the density that is maximised, the spread of F (the sum of the
covariances of its rows) is added to F'F, and the spread is that of the approximation at its mode.

The mode is found by L-BFGS and refined by Newton steps, so that it does not depend on the order of
summation over samples. Each evaluation is one sum over samples, which may be in memory, on disk, or
on the workers of a cluster. Importance ratios of the draws diagnose the approximation.
"""

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtri

from bsdr_models.arrays import FloatArray, Target
from bsdr_models.bsdr.laplace_prior import ProductPrior
from bsdr_models.bsdr.laplace_sums import (
    Coefficients,
    DataSums,
    Response,
    sum_data,
    sum_gradient,
    sum_hessian,
    sum_log_likelihood,
)
from bsdr_models.bsdr.posterior import Metric, Problem
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.checkpoint import SavedPoint
from bsdr_models.inference.sample_blocks import Block, InProcess, SampleBlocks
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.scaling import Scaler

# Initial values where the rank is below the number of contrasts, and there may be several modes.
N_STARTS = 3
# L-BFGS ends when an iteration gains less than this many nats, and restarts with a new basis after
# so many iterations; Newton steps end when another would gain less than this per parameter.
_GAIN, _ROUND, _LEAST_GAIN = 1e-3, 50, 1e-14
# Gain at which rounding errors end Newton steps, and gain per parameter since the last Hessian
# below which it is not computed again.
_ROUNDING, _UNCHANGED = 1e-8, 1e-10
_MAX_ROUNDS, _MAX_CHORDS, _MAX_HALVINGS, _MEMORY = 40, 12, 30, 30
# Eigenvalues of the precision are at least this share of the largest.
_MIN_EIGENVALUE = 1e-10
# Scales are sampled where the prior has this share of the precision in some direction, in so many
# Gibbs sweeps, for at most so many loadings.
_PRIOR_SHARE, _N_SWEEPS, _MAX_SAMPLED = 0.05, 3, 1000
# Largest number of loadings, since their precision is a matrix of that width.
MOST_LOADINGS = 10_000
# Ridge for whitening the features, as a share of their mean variance.
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Normal distribution of (F, A, b, noise): mean (P,), precision (P, P), rank r.

    basis
        Rows of V_0, then of V_perp, (J, J).
    """

    basis: FloatArray
    mean: FloatArray
    precision: FloatArray
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace:
    """Normal approximation of the posterior, and draws from it.

    mode
        Parameters of :class:`~bsdr_models.bsdr.posterior.Problem`, (P,); those that are not
        identified are a draw.
    draws, log_likelihood
        (S, P) and (S,).
    log_evidence
        In nats, of the new samples alone if there is a ``previous``: the mean of the importance
        ratios of the draws.
    pareto_k
        Of the importance ratios, unreliable above 0.7; NaN with fewer than 25 draws.
    normal
        The approximation, the ``previous`` of further samples.
    converged
        Whether the search ended at a mode.
    n_evaluations
        Sums over all samples.
    interrupted
        Whether the user stopped the search; results are those of its best parameters.
    """

    mode: FloatArray
    draws: FloatArray
    log_likelihood: FloatArray
    log_evidence: float
    pareto_k: float
    normal: Normal
    converged: bool
    n_evaluations: int
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Response, metric and sufficient statistics of scaled samples, for the search.

    metric
        None if samples are whitened.
    """

    response: Response
    metric: Metric | None
    sums: DataSums


def fit_laplace(
    problem: Problem,
    *,
    rng: np.random.Generator,
    n_draws: int = 200,
    **options: Any,
) -> Laplace:
    """Laplace's method for samples in memory.

    Parameters
    ----------
    **options
        Of :func:`fit_laplace_blocks`.
    """
    response = Response(
        target=problem.target, n_labels=problem.contrasts.shape[1], priors=problem.priors
    )
    blocks = InProcess([Block(X=problem.X, y=problem.y, begin=0)])
    sums = blocks.reduce(sum_data, shared=response)
    return fit_laplace_blocks(
        blocks,
        Prepared(response=response, metric=None, sums=sums),
        n_components=problem.n_components,
        rng=rng,
        n_draws=n_draws,
        **options,
    )


def prepare(
    blocks: SampleBlocks,
    scaler: Scaler | None,
    *,
    n_labels: int,
    target: Target,
    priors: HierarchicalPriors,
) -> Prepared:
    """Read all samples once, for the metric of the features and the initial values.

    Parameters
    ----------
    blocks : SampleBlocks
        With targets as in :class:`~bsdr_models.bsdr.posterior.Problem`; samples of class -1 have
        no label and are ignored.
    scaler : Scaler, optional
        None for samples that are already scaled.
    """
    response = Response(target=target, n_labels=n_labels, priors=priors, scaler=scaler)
    sums = blocks.reduce(sum_data, shared=response)
    metric = Metric.from_sums(sums.gram, sums.fourth, sums.n_samples)
    return Prepared(response=response, metric=metric, sums=sums)


def fit_laplace_blocks(
    blocks: SampleBlocks,
    prepared: Prepared,
    *,
    n_components: int,
    rng: np.random.Generator,
    n_draws: int = 200,
    n_starts: int | None = None,
    max_iter: int = 500,
    previous: Normal | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 10,
    on_evaluation: Callable[[int, float], object] = lambda count, value: None,
) -> Laplace:
    """Laplace's method for samples in blocks.

    Parameters
    ----------
    prepared : Prepared
        Of these samples; with ``previous``, of the first ones.
    n_components : int
        R.
    rng : numpy.random.Generator
        For random initial values and draws.
    n_draws : int
        S. Their log likelihood costs S evaluations without gradients.
    n_starts : int, optional
        Number of initial values: least squares first, then random weights. Default one if the rank
        is full or there is a checkpoint, else :data:`N_STARTS`.
    max_iter : int
        Iterations of L-BFGS per initial value.
    previous : Normal, optional
        Posterior of other samples, in place of the prior.
    checkpoint : path, optional
        Folder to which the best parameters are written, and from which the search resumes.
    every : int
        Evaluations between two writes.
    on_evaluation : callable
        Called with the number of evaluations and the highest log posterior density.

    Raises
    ------
    ValueError
        If there are fewer features than the rank of the weights, or more loadings than
        :data:`MOST_LOADINGS`, or the checkpoint is of another fit.
    KeyboardInterrupt
        If the user stops the search before its first evaluation.
    """
    search = _Search(blocks, prepared, n_components, previous, on_evaluation)
    if checkpoint is not None:
        settings = {
            "target": prepared.response.target,
            "n_components": n_components,
            "priors": repr(prepared.response.priors),
            "previous": None if previous is None else float(np.sum(previous.mean)),
        }
        search.saved = SavedPoint(checkpoint, blocks, every=every, settings=settings)
    start_rng, draw_rng = rng.spawn(2)  # draws do not depend on the initial values
    starts = _initial_states(search, prepared.sums, previous, n_starts, start_rng)
    interrupted = converged = False
    try:
        for start in starts:
            search.move_to(start)
            search(search.at)
            if previous is None:
                search.lbfgs(max_iter)
        search.move_to(search.best)
        converged = search.newton()
    except KeyboardInterrupt:
        if search.n_evaluations == 0:
            raise
        interrupted = True
    search.move_to(search.best)
    if not converged:
        search.update_hessian()
    return _finish(search, n_draws, draw_rng, converged=converged, interrupted=interrupted)


def check_size(n_features: int, rank: int) -> None:
    """Raise a ValueError if the precision matrix would be too large."""
    if n_features * rank > MOST_LOADINGS:
        raise ValueError(
            f"{n_features} features times {rank} components exceed {MOST_LOADINGS}, the limit of "
            "Laplace's method: give fewer features or components, or use inference='smc'"
        )


class SearchState(NamedTuple):
    """Basis of contrasts, parameters (F, A, b, noise) and spread of F, as in a checkpoint."""

    basis: FloatArray
    at: FloatArray
    spread: FloatArray


class _Search:
    """Search for the mode of the log posterior density of (F, A, b, noise)."""

    def __init__(
        self,
        blocks: SampleBlocks,
        prepared: Prepared,
        n_components: int,
        previous: Normal | None,
        on_evaluation: Callable[[int, float], object],
    ) -> None:
        response, metric, sums = prepared.response, prepared.metric, prepared.sums
        contrasts = response.contrasts
        self.blocks, self.response, self.previous = blocks, response, previous
        self.n_contrasts, self.n_components = len(contrasts), n_components
        self.rank = min(n_components, self.n_contrasts)
        self.n_noise = contrasts.shape[1] if response.target == "regression" else 0
        self.metric = metric
        self.n_inside = blocks.n_features if metric is None else len(metric.size)
        check_size(self.n_inside, self.rank)
        if self.n_inside < self.rank:
            raise ValueError(
                f"there are only {self.n_inside} features that vary independently, "
                f"fewer than the {self.rank} components"
            )
        sizes = self.n_inside, n_components, self.n_contrasts, response.priors
        self.prior = ProductPrior(*sizes)
        self.on_evaluation = on_evaluation
        self.saved: SavedPoint | None = None
        self.n_evaluations = 0
        # Initially that of the noise of so many samples.
        self.spread = self.n_inside / max(sum(blocks.sizes), 1) * np.eye(self.rank)
        self.basis, self.at = np.eye(self.n_contrasts), np.zeros(0)
        self.best, self.best_value = SearchState(self.basis, self.at, self.spread), -np.inf
        self.hessian = self.precision = np.zeros((0, 0))
        self.gram = self.in_whitened(self.in_whitened(sums.gram).T) / sums.n_samples
        value, vector = np.linalg.eigh(self.gram)
        size = 1.0 / np.sqrt(np.maximum(value, 0.0) + _RIDGE * value.mean())
        self.whitener = (vector * size) @ vector.T

    def move_to(self, state: SearchState) -> None:
        """Continue the search from a state."""
        self.basis, self.at, self.spread = state.basis, state.at.copy(), state.spread

    def in_features(self, inside: FloatArray) -> FloatArray:
        """Loadings of scaled features (D, r) from those of whitened features (B, r)."""
        if self.metric is None:
            return inside
        return self.metric.axes @ (self.metric.size[:, None] * inside)

    def in_whitened(self, cross: FloatArray) -> FloatArray:
        """Sums over whitened features (B, c) from those over scaled features (D, c)."""
        if self.metric is None:
            return cross
        return self.metric.size[:, None] * (self.metric.axes.T @ cross)

    def split(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """F, A, b and noise."""
        r, j = self.rank, self.n_contrasts
        ends = np.cumsum([self.n_inside * r, r * (j - r), j])
        F, A, b, noise = np.split(x, ends)
        return F.reshape(-1, r), A.reshape(r, j - r), b, noise

    def weights(self, A: FloatArray) -> FloatArray:
        """V, (r, J)."""
        return self.basis[: self.rank] + A @ self.basis[self.rank :]

    def parameters(self, x: FloatArray) -> Coefficients:
        """Parameters of the likelihood."""
        F, A, b, noise = self.split(x)
        return Coefficients(
            loadings=self.in_features(F), weights=self.weights(A), bias=b, noise=noise
        )

    def log_prior(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Log prior of the search up to a constant, and its gradient."""
        if self.previous is not None:
            return self.density(x), self.previous.precision @ (self.previous.mean - x)
        F, A, b, noise = self.split(x)
        value, by_f, by_a = self.prior.log_kernel(F, A, self.spread)
        rest = np.concatenate([b, noise])
        value -= 0.5 * float(rest @ rest) + 0.5 * len(rest) * LOG_2PI
        return value, np.concatenate([by_f.ravel(), by_a.ravel(), -rest])

    def density(self, x: FloatArray) -> float:
        """Log prior density, or log density of ``previous``."""
        if self.previous is not None:
            difference = x - self.previous.mean
            log_det = float(np.linalg.slogdet(self.previous.precision)[1])
            square = difference @ self.previous.precision @ difference
            return 0.5 * float(log_det - len(x) * LOG_2PI - square)
        F, A, b, noise = self.split(x)
        rest = np.concatenate([b, noise])
        return self.prior.density(F, A) - 0.5 * float(rest @ rest) - 0.5 * len(rest) * LOG_2PI

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Unnormalised log posterior density and its gradient, by one pass over the samples."""
        found = self.blocks.reduce(sum_gradient, shared=(self.response, self.parameters(x)))
        by_a = found.weights @ self.basis[self.rank :].T
        slope = [self.in_whitened(found.loadings).ravel(), by_a.ravel(), found.bias, found.noise]
        value, prior_slope = self.log_prior(x)
        value += found.value
        self.n_evaluations += 1
        if value > self.best_value:
            self.best, self.best_value = SearchState(self.basis, x.copy(), self.spread), value
        if self.saved is not None:
            self.saved.offer(self.best._asdict())
        self.on_evaluation(self.n_evaluations, self.best_value)
        return value, np.concatenate(slope) + prior_slope

    def update_hessian(self) -> None:
        """Hessian of the log likelihood at the current parameters, by one pass over the samples."""
        self.recentre()
        shared = (self.response, self.parameters(self.at), self.basis[self.rank :])
        second = self.blocks.reduce(sum_hessian, shared=shared)
        # Whiten the columns of the loadings, then the rows.
        d, r = self.blocks.n_features, self.rank
        for _ in range(2):
            inside = self.in_whitened(second[: d * r].reshape(d, -1))
            second = np.concatenate([inside.reshape(self.n_inside * r, -1), second[d * r :]]).T
        self.hessian = second
        self.update_precision()

    def update_precision(self) -> None:
        """Precision: minus the Hessian of the log posterior density."""
        if self.previous is not None:
            self.precision = self.previous.precision - self.hessian
        else:
            self.precision = -self.hessian
            n = self.n_inside * self.rank + self.rank * (self.n_contrasts - self.rank)
            F = self.split(self.at)[0]
            self.precision[:n, :n] -= self.prior.curvature(F, self.spread)
            rest = np.arange(n, len(self.at))
            self.precision[rest, rest] += 1.0
        self.precision = 0.5 * (self.precision + self.precision.T)

    def update_spread(self) -> None:
        """Spread of F given the precision."""
        size = self.n_inside * self.rank
        cov = _inverse(self.precision)[:size, :size]
        shape = self.n_inside, self.rank
        self.spread = np.einsum("bibj->ij", cov.reshape(*shape, *shape))
        self.best_value = -np.inf  # values of different spreads do not compare

    def recentre(self) -> None:
        """Change the basis so that A = 0 and F'F is diagonal, with the same density.

        With a ``previous`` its basis is used.
        """
        r, j = self.rank, self.n_contrasts
        if self.previous is not None or r == j:
            return
        F, A, b, noise = self.split(self.at)
        M = F @ self.weights(A)
        left, size, right = np.linalg.svd(M, full_matrices=False)
        V = right[:r]
        sign = np.sign(V[np.arange(r), np.abs(V).argmax(axis=1)])
        V = V * sign[:, None]
        turn = self.weights(A) @ V.T
        self.spread = turn.T @ self.spread @ turn
        aside = np.linalg.svd(V)[2][r:]
        aside = aside * np.sign(aside[np.arange(j - r), np.abs(aside).argmax(axis=1)])[:, None]
        self.basis = np.concatenate([V, aside])
        F = left[:, :r] * (size[:r] * sign)
        self.at = np.concatenate([F.ravel(), np.zeros(r * (j - r)), b, noise])

    def lbfgs(self, max_iter: int) -> None:
        """L-BFGS with whitened features, and a new basis every :data:`_ROUND` iterations."""
        n = self.n_inside * self.rank

        def scaled(x: FloatArray, by: FloatArray) -> FloatArray:
            return np.concatenate([(by @ x[:n].reshape(-1, self.rank)).ravel(), x[n:]])

        def objective(y: FloatArray) -> tuple[float, FloatArray]:
            value, slope = self(scaled(y, self.whitener))
            return -value, -scaled(slope, self.whitener)

        colour = np.linalg.inv(self.whitener)
        done = 0
        while done < max_iter:
            self.recentre()
            found = minimize(
                objective,
                scaled(self.at, colour),
                jac=True,
                method="L-BFGS-B",
                options={
                    "maxiter": min(_ROUND, max_iter - done),
                    "maxcor": _MEMORY,
                    "ftol": _GAIN / (1.0 + abs(self.best_value)) if done else 1e-6,
                    "gtol": 0.0,
                },
            )
            self.at = scaled(found.x, self.whitener)
            done += max(int(found.nit), 1)
            if found.status != 1 and done > found.nit:
                break

    def newton(self) -> bool:
        """Newton steps, several for each Hessian; whether a mode was found."""
        least = _LEAST_GAIN * len(self.at)
        moved = np.inf
        for _ in range(_MAX_ROUNDS):
            if moved > _UNCHANGED * len(self.at):
                self.update_hessian()
                moved = 0.0
            else:
                self.update_precision()
            proper = _is_positive(self.precision)
            if not proper:
                self.precision = _with_positive_eigenvalues(self.precision)
            elif self.previous is None:
                self.update_spread()
                self.update_precision()
                proper = _is_positive(self.precision)
            factor = cho_factor(
                self.precision if proper else _with_positive_eigenvalues(self.precision)
            )
            value, slope = self(self.at)
            before = np.inf
            for count in range(_MAX_CHORDS):
                step = cho_solve(factor, slope)
                gain = float(slope @ step)
                if proper and (gain < least or (gain > 0.5 * before and gain < _ROUNDING)):
                    if count == 0 and moved <= _UNCHANGED * len(self.at):
                        return True
                    break
                if count and (gain > 0.25 * before or not proper):
                    break
                before = gain
                found = self._advance(step, value, gain)
                if found is None:
                    return False
                value, slope, length = found
                moved += gain
                if length < 1.0:
                    break
        return False

    def _advance(
        self, step: FloatArray, value: float, gain: float
    ) -> tuple[float, FloatArray, float] | None:
        """Backtracking line search along a step: value, gradient and step length."""
        origin, length = self.at, 1.0
        for _ in range(_MAX_HALVINGS):
            found, slope = self(origin + length * step)
            if found >= value - 1e-12 * abs(value) or gain < _ROUNDING:
                self.at = origin + length * step
                return found, slope, length
            length *= 0.5
        return None


def _initial_states(
    search: _Search,
    sums: DataSums,
    previous: Normal | None,
    n_starts: int | None,
    rng: np.random.Generator,
) -> list[SearchState]:
    """From a checkpoint, the mean of ``previous``, or least squares and random weights."""
    saved = None if search.saved is None else search.saved.read()
    if saved is not None:
        return [SearchState(**saved)]
    if previous is not None:
        return [SearchState(previous.basis, previous.mean, search.spread)]
    j, r = search.n_contrasts, search.rank
    M, b, noise = _least_squares(search, sums)
    if r == j:
        return [SearchState(np.eye(j), np.concatenate([M.ravel(), b, noise]), search.spread)]
    if n_starts is None:
        n_starts = N_STARTS if search.saved is None else 1
    basis = np.linalg.svd(np.linalg.solve(search.whitener, M))[2]
    starts = []
    for _ in range(n_starts):
        F = M @ basis[:r].T
        at = np.concatenate([F.ravel(), np.zeros(r * (j - r)), b, noise])
        starts.append(SearchState(basis, at, search.spread))
        basis = np.linalg.qr(rng.standard_normal((j, j)))[0]
    return starts


def _least_squares(search: _Search, sums: DataSums) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Loadings of all contrasts (B, J) by ridge regression, biases and noise."""
    response, priors, n = search.response, search.response.priors, sums.n_samples
    mean = sums.target_total / n
    cross = (sums.cross - np.outer(sums.total, mean)) / n
    slope = search.whitener @ (search.whitener @ search.in_whitened(cross))
    if response.target == "regression":
        fitted = np.einsum("bk,bc,ck->k", slope, search.gram, slope)
        variance = np.maximum(sums.target_square / n - mean**2 - fitted, 1e-6)
        noise = (0.5 * np.log(variance) - priors.noise_location) / priors.noise_width
        return slope, mean / priors.bias_scale, noise
    # A unit of the linear predictor changes a probability by at most .4.
    share = (sums.target_total + 1.0) / (n + 2.0)
    bias = response.contrasts @ ndtri(share) / priors.bias_scale
    return 2.5 * slope @ response.contrasts.T, bias, np.zeros(0)


def _finish(
    search: _Search,
    n_draws: int,
    rng: np.random.Generator,
    *,
    converged: bool,
    interrupted: bool,
) -> Laplace:
    """Draws around the mode, and their importance ratios."""
    at, precision = search.at, search.precision.copy()
    if search.previous is None:  # the search leaves out the power of |E| in the density
        begin = search.n_inside * search.rank
        aside = begin + np.arange(search.rank * (search.n_contrasts - search.rank))
        precision[aside, aside] -= 2.0 * search.prior.det_power
    if not _is_positive(precision):
        precision, converged = _with_positive_eigenvalues(precision), False
    root = np.linalg.cholesky(precision)
    half_log_det = float(np.sum(np.log(np.diag(root))))
    normal = rng.standard_normal((n_draws, len(at)))
    inside = at + solve_triangular(root.T, normal.T).T
    draws = [search.parameters(x) for x in inside]
    log_likelihood = search.blocks.reduce(sum_log_likelihood, shared=(search.response, draws))
    density = log_likelihood + [search.density(x) for x in inside]
    ratio = density + 0.5 * np.sum(normal**2, axis=1) + 0.5 * len(at) * LOG_2PI - half_log_det
    log_evidence = float(logsumexp(ratio)) - math.log(n_draws)
    if converged and search.previous is None and _is_prior_influential(search, precision):
        # Skipped where the likelihood alone has no positive definite precision.
        with suppress(np.linalg.LinAlgError):
            inside, expected = _sample_scales(search, inside, precision, rng)
            shared = search.response, [search.parameters(x) for x in inside]
            log_likelihood = search.blocks.reduce(sum_log_likelihood, shared=shared)
            ratio = log_likelihood - expected
    return Laplace(
        mode=_complete(search, at, rng),
        draws=np.stack([_complete(search, x, rng) for x in inside]),
        log_likelihood=log_likelihood,
        log_evidence=log_evidence,
        pareto_k=_pareto_k(ratio),
        normal=Normal(basis=search.basis, mean=at, precision=precision, rank=search.rank),
        converged=converged,
        n_evaluations=search.n_evaluations,
        interrupted=interrupted,
    )


def _is_prior_influential(search: _Search, precision: FloatArray) -> bool:
    """Whether its share of the precision exceeds :data:`_PRIOR_SHARE` in some direction."""
    size = search.n_inside * search.rank
    if size > _MAX_SAMPLED:
        return False
    prior = search.prior.precision(search.split(search.at)[0], search.spread)
    root = np.kron(np.eye(search.n_inside), np.linalg.cholesky(prior))
    return bool(
        np.linalg.eigvalsh(root.T @ _inverse(precision)[:size, :size] @ root)[-1] > _PRIOR_SHARE
    )


def _sample_scales(
    search: _Search, inside: FloatArray, precision: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draws under the exact prior of the loadings and a normal likelihood.

    A few Gibbs sweeps alternate between loadings, which are normal given T, and T given loadings
    (:meth:`~bsdr_models.bsdr.laplace_prior.ProductPrior.draw_scale`). Directions that the data
    hardly determine get heavier tails.

    Returns
    -------
    inside : (S, P)
    expected : (S,)
        Normal log likelihood up to a constant, corrected for the prior of A.
    """
    at, r, size = search.at, search.rank, search.n_inside * search.rank
    F, A, b, noise = search.split(at)
    mean_precision = search.prior.precision(F, search.spread)
    base = precision.copy()
    base[:size, :size] = -search.hessian[:size, :size]
    own = np.arange(search.n_inside)
    out = np.empty_like(inside)
    for s, x in enumerate(inside):
        for _ in range(_N_SWEEPS):
            loadings = x[:size].reshape(-1, r)
            T = search.prior.draw_scale(loadings.T @ loadings, rng=rng)
            by_prior = np.linalg.inv(T)
            given = base.copy()
            given[:size, :size].reshape(len(own), r, len(own), r)[own, :, own] += by_prior
            root = np.linalg.cholesky(given)
            linear = np.zeros(len(at))
            linear[:size] = (F @ (mean_precision - by_prior)).ravel()
            half = solve_triangular(root, linear, lower=True) + rng.standard_normal(len(at))
            x = at + solve_triangular(root.T, half)
        out[s] = x
    difference = out - at
    slope = np.concatenate([(F @ mean_precision).ravel(), np.zeros(A.size), b, noise])
    square = np.sum((difference @ search.hessian) * difference, axis=1)
    expected = difference @ slope + 0.5 * square
    if A.size:
        aside = slice(size, size + A.size)
        normal = -(precision + search.hessian)[aside, aside]
        for s, x in enumerate(out):
            own_f, own_a, _, _ = search.split(x)
            exact = search.prior.density(own_f, own_a) - search.prior.density(own_f, 0.0 * own_a)
            expected[s] -= exact - 0.5 * float(own_a.ravel() @ normal @ own_a.ravel())
    return out, expected


def _complete(search: _Search, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Parameters of the model, (P,), with a draw of those that are not identified."""
    F, A, b, noise = search.split(x)
    projection, weights, log_scale = search.prior.complete(F, A, search.weights(A), rng=rng)
    return np.concatenate([projection.ravel(), weights.ravel(), b, [log_scale], noise])


def _pareto_k(log_ratio: FloatArray) -> float:
    """Pareto k of importance ratios."""
    from arviz_stats.base import array_stats

    if len(log_ratio) < 25:
        return np.nan
    if not np.isfinite(log_ratio).all():
        return np.inf
    # As for leave-one-out weights, psislw takes negative log ratios.
    return float(np.asarray(array_stats.psislw(-log_ratio, r_eff=1.0, axis=-1)[1]))


def _is_positive(precision: FloatArray) -> bool:
    try:
        np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        return False
    return True


def _inverse(precision: FloatArray) -> FloatArray:
    inverse: FloatArray = cho_solve(cho_factor(precision), np.eye(len(precision)))
    return inverse


def _with_positive_eigenvalues(precision: FloatArray) -> FloatArray:
    """The matrix with its eigenvalues replaced by their absolute values."""
    value, vector = np.linalg.eigh(precision)
    value = np.maximum(np.abs(value), _MIN_EIGENVALUE * np.abs(value).max())
    positive: FloatArray = (vector * value) @ vector.T
    return positive
