"""Laplace's method for the hierarchical model: a normal approximation for many samples.

A normal distribution of projection, weights and scale would be of no use: the likelihood fixes a
product of the three, and for many samples their posterior is a thin curved sheet. So what is
normal here is what the likelihood sees, the loadings F and the weights V of
:mod:`~bsdr_models.bsdr.laplace_sums`, the biases and the noise. Rotations, stretchings and the
scale are integrated out of the prior and drawn given the rest
(:mod:`~bsdr_models.bsdr.laplace_prior`): no direction is flat, and no orbit has a volume to account
for.

The scale of loadings that are known from the prior alone must not be learned from their most
probable value, which is zero, but from their expected square. So the mode is that of the density
in which F'F has the spread of F added, and the spread is that of the normal distribution around
this mode.

The mode is found by L-BFGS and ended by Newton steps, so that it does not depend on the order in
which samples are added up. Each evaluation is one sum over samples: samples may be in memory, on
disk, or on the workers of a cluster. Importance ratios of the draws say whether to trust it.
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
    DataSums,
    Point,
    Response,
    sum_curvature,
    sum_data,
    sum_log_likelihood,
    sum_slope,
)
from bsdr_models.bsdr.posterior import Metric, Problem
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.checkpoint import SavedPoint
from bsdr_models.inference.sample_blocks import Block, InProcess, SampleBlocks
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.scaling import Scaler

# Starts where the weights are of lower rank than the contrasts, and there may be several modes.
N_STARTS = 3
# L-BFGS ends when an iteration gains less than this many nats, and begins again in new coordinates
# after so many iterations; Newton steps end when another would gain less than this per parameter.
_GAIN, _ROUND, _LEAST_GAIN = 1e-3, 50, 1e-14
# What rounding leaves where that cannot be had, and when the curvature at the mode is that of a
# point before it.
_ROUNDING, _SAME = 1e-8, 1e-10
_MAX_ROUNDS, _MAX_CHORDS, _MAX_HALVINGS, _MEMORY = 40, 12, 30, 30
# Below this share of the largest eigenvalue minus the curvature is none: not at a mode.
_FLAT = 1e-10
# Draws are mixed over the scale of the loadings where the prior has this share of the precision
# somewhere, in so many sweeps, and unless so many loadings make them dear.
_FELT, _N_SWEEPS, _MOST_MIXED = 0.05, 3, 1000
# Loadings of a normal approximation, at most: its precision is a matrix of that width.
MOST_LOADINGS = 10_000
# Share of the mean variance that is added before whitening the features for the search.
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """A normal distribution of (F, A, b, noise), and the basis that they are relative to.

    basis
        Rows of V_0, then of V_perp, (J, J).
    mean
        (P,).
    precision
        (P, P).
    rank
        r.
    """

    basis: FloatArray
    mean: FloatArray
    precision: FloatArray
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace:
    """A normal approximation of the posterior, and draws from it.

    mode
        Parameters as of :class:`~bsdr_models.bsdr.posterior.Problem`, (P,), with a draw of what
        the likelihood does not see.
    draws
        (S, P).
    log_likelihood
        Of the draws, (S,).
    log_evidence
        In nats, of the new samples alone if there was a ``previous``: the mean of the importance
        ratios of the draws, which Laplace's formula takes for a constant.
    pareto_k
        Of the ratios of the density to that which the draws come from: above .7 the approximation
        is not to be trusted. Not a number with fewer than 25 draws.
    normal
        The approximation itself, the ``previous`` of further samples.
    converged
        Whether the search has ended at a mode.
    n_evaluations
        Sums over all samples that the search has made.
    interrupted
        Whether the user stopped the search; it is the best point until then.
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
    """What is known of all samples before the search.

    response
        Kind of the targets, priors, and how the samples of a block enter.
    metric
        Whitens scaled samples; None if they are whitened.
    sums
        Over scaled samples.
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
    problem : Problem
    rng : numpy.random.Generator
    n_draws : int
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
    """Read all samples once, for the metric of the features and the start of the search.

    Parameters
    ----------
    blocks : SampleBlocks
        With targets as in :class:`~bsdr_models.bsdr.posterior.Problem`; a class may be -1 where
        there is no label, and such samples are not looked at.
    scaler : Scaler, optional
        Centre and scale of the samples; None for samples that need none.
    n_labels : int
    target : {"multiclass", "multilabel", "regression"}
    priors : HierarchicalPriors

    Returns
    -------
    Prepared
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
    blocks : SampleBlocks
    prepared : Prepared
        Of these samples; with ``previous`` of those that it was first fitted to.
    n_components : int
        R.
    rng : numpy.random.Generator
        Of the starts beyond the first, and of the draws.
    n_draws : int
        S. Their log likelihood is one more pass over the blocks, which costs as much as S
        evaluations without their slopes.
    n_starts : int, optional
        The first is by least squares, the others have random weights. If None there is one where
        the rank is full or the fit has a checkpoint, else :data:`N_STARTS`.
    max_iter : int
        Iterations of L-BFGS per start.
    previous : Normal, optional
        The posterior of other samples, in place of the prior.
    checkpoint : path, optional
        Folder to which the best point is written, and from which the search goes on.
    every : int
        Evaluations from one writing to the next.
    on_evaluation : callable
        Called with the number of evaluations and the log posterior density reached.

    Returns
    -------
    Laplace

    Raises
    ------
    ValueError
        If there are fewer features than the rank of the weights, more loadings than
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
    of_starts, of_draws = rng.spawn(2)  # draws do not depend on where a search has begun
    starts = _find_starts(search, prepared.sums, previous, n_starts, of_starts)
    interrupted = converged = False
    try:
        for start in starts:
            search.begin(start)
            search(search.at)
            if previous is None:
                search.climb(max_iter)
        search.begin(search.best)
        converged = search.polish()
    except KeyboardInterrupt:
        if search.n_evaluations == 0:
            raise
        interrupted = True
    search.begin(search.best)
    if not converged:
        search.curve()
    return _finish(search, n_draws, of_draws, converged=converged, interrupted=interrupted)


def check_size(n_features: int, rank: int) -> None:
    """A ValueError if the precision of a normal approximation would not fit into memory."""
    if n_features * rank > MOST_LOADINGS:
        raise ValueError(
            f"Laplace's method holds a matrix as wide as {n_features} features times {rank} "
            f"components, and at most {MOST_LOADINGS} are allowed: give fewer features or "
            "components, or fit samples in memory by inference='smc'"
        )


class Place(NamedTuple):
    """Coordinates: a basis of contrasts, (F, A, b, noise) and the spread of F."""

    basis: FloatArray
    at: FloatArray
    spread: FloatArray


class _Search:
    """The log posterior density in the coordinates of a basis of contrasts, and its best point."""

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
                f"there are {self.n_inside} features that vary independently, and "
                f"{self.rank} components of the weights: at most as many can be fitted"
            )
        sizes = self.n_inside, n_components, self.n_contrasts, response.priors
        self.prior = ProductPrior(*sizes)
        self.on_evaluation = on_evaluation
        self.saved: SavedPoint | None = None
        self.n_evaluations = 0
        # What the noise of so many samples is like, to begin with.
        self.spread = self.n_inside / max(sum(blocks.sizes), 1) * np.eye(self.rank)
        self.basis, self.at = np.eye(self.n_contrasts), np.zeros(0)
        self.best, self.best_value = Place(self.basis, self.at, self.spread), -np.inf
        self.second = self.precision = np.zeros((0, 0))
        self.gram = self.in_whitened(self.in_whitened(sums.gram).T) / sums.n_samples
        value, vector = np.linalg.eigh(self.gram)
        size = 1.0 / np.sqrt(np.maximum(value, 0.0) + _RIDGE * value.mean())
        self.whitener = (vector * size) @ vector.T

    def begin(self, place: Place) -> None:
        """Go on there."""
        self.basis, self.at, self.spread = place.basis, place.at.copy(), place.spread

    def in_features(self, inside: FloatArray) -> FloatArray:
        """Columns over whitened features (B, r) as columns over scaled ones, (D, r)."""
        if self.metric is None:
            return inside
        return self.metric.axes @ (self.metric.size[:, None] * inside)

    def in_whitened(self, cross: FloatArray) -> FloatArray:
        """Sums over scaled features (D, c) as sums over whitened ones, (B, c)."""
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

    def point(self, x: FloatArray) -> Point:
        """What the likelihood sees."""
        F, A, b, noise = self.split(x)
        return Point(loadings=self.in_features(F), weights=self.weights(A), bias=b, noise=noise)

    def log_prior(self, x: FloatArray) -> tuple[float, FloatArray]:
        """What the search adds to the log likelihood, and its slope."""
        if self.previous is not None:
            return self.density(x), self.previous.precision @ (self.previous.mean - x)
        F, A, b, noise = self.split(x)
        value, by_f, by_a = self.prior.height(F, A, self.spread)
        rest = np.concatenate([b, noise])
        value -= 0.5 * float(rest @ rest) + 0.5 * len(rest) * LOG_2PI
        return value, np.concatenate([by_f.ravel(), by_a.ravel(), -rest])

    def density(self, x: FloatArray) -> float:
        """Log density before these samples."""
        if self.previous is not None:
            gap = x - self.previous.mean
            log_det = float(np.linalg.slogdet(self.previous.precision)[1])
            return 0.5 * float(log_det - len(x) * LOG_2PI - gap @ self.previous.precision @ gap)
        F, A, b, noise = self.split(x)
        rest = np.concatenate([b, noise])
        return self.prior.density(F, A) - 0.5 * float(rest @ rest) - 0.5 * len(rest) * LOG_2PI

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Log posterior density up to the evidence, and its slope: one pass."""
        found = self.blocks.reduce(sum_slope, shared=(self.response, self.point(x)))
        by_a = found.weights @ self.basis[self.rank :].T
        slope = [self.in_whitened(found.loadings).ravel(), by_a.ravel(), found.bias, found.noise]
        value, prior_slope = self.log_prior(x)
        value += found.value
        self.n_evaluations += 1
        if value > self.best_value:
            self.best, self.best_value = Place(self.basis, x.copy(), self.spread), value
        if self.saved is not None:
            self.saved.offer(self.best._asdict())
        self.on_evaluation(self.n_evaluations, self.best_value)
        return value, np.concatenate(slope) + prior_slope

    def curve(self) -> None:
        """Second derivatives of the log likelihood at the point: one pass."""
        self.recentre()
        shared = (self.response, self.point(self.at), self.basis[self.rank :])
        second = self.blocks.reduce(sum_curvature, shared=shared)
        # Columns of the loadings, then rows.
        d, r = self.blocks.n_features, self.rank
        for _ in range(2):
            inside = self.in_whitened(second[: d * r].reshape(d, -1))
            second = np.concatenate([inside.reshape(self.n_inside * r, -1), second[d * r :]]).T
        self.second = second
        self.curve_prior()

    def curve_prior(self) -> None:
        """Minus the second derivatives with those of the prior."""
        if self.previous is not None:
            self.precision = self.previous.precision - self.second
        else:
            self.precision = -self.second
            n = self.n_inside * self.rank + self.rank * (self.n_contrasts - self.rank)
            F = self.split(self.at)[0]
            self.precision[:n, :n] -= self.prior.curvature(F, self.spread)
            rest = np.arange(n, len(self.at))
            self.precision[rest, rest] += 1.0
        self.precision = 0.5 * (self.precision + self.precision.T)

    def renew_spread(self) -> None:
        """The spread of F that the curvature says."""
        size = self.n_inside * self.rank
        cov = _inverse(self.precision)[:size, :size]
        shape = self.n_inside, self.rank
        self.spread = np.einsum("bibj->ij", cov.reshape(*shape, *shape))
        self.best_value = -np.inf  # values are of one spread

    def recentre(self) -> None:
        """Make the weights part of the basis, A = 0, and F'F diagonal; the value is the same.

        Not relative to a ``previous``, which has a basis of its own.
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

    def climb(self, max_iter: int) -> None:
        """L-BFGS from the point, with features whitened; new coordinates now and then."""
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

    def polish(self) -> bool:
        """Newton steps, most with a curvature of before, to the mode; whether one was found."""
        least = _LEAST_GAIN * len(self.at)
        moved = np.inf
        for _ in range(_MAX_ROUNDS):
            if moved > _SAME * len(self.at):
                self.curve()
                moved = 0.0
            else:
                self.curve_prior()
            proper = _is_positive(self.precision)
            if not proper:
                self.precision = _made_positive(self.precision)
            elif self.previous is None:
                self.renew_spread()
                self.curve_prior()
                proper = _is_positive(self.precision)
            factor = cho_factor(self.precision if proper else _made_positive(self.precision))
            value, slope = self(self.at)
            before = np.inf
            for count in range(_MAX_CHORDS):
                step = cho_solve(factor, slope)
                gain = float(slope @ step)
                if proper and (gain < least or (gain > 0.5 * before and gain < _ROUNDING)):
                    if count == 0 and moved <= _SAME * len(self.at):
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
        """Go along a step as far as the value rises: value and slope there, and how far that is."""
        origin, length = self.at, 1.0
        for _ in range(_MAX_HALVINGS):
            found, slope = self(origin + length * step)
            if found >= value - 1e-12 * abs(value) or gain < _ROUNDING:
                self.at = origin + length * step
                return found, slope, length
            length *= 0.5
        return None


def _find_starts(
    search: _Search,
    sums: DataSums,
    previous: Normal | None,
    n_starts: int | None,
    rng: np.random.Generator,
) -> list[Place]:
    """Places: a checkpoint, the mean so far, or least squares and random weights."""
    saved = None if search.saved is None else search.saved.read()
    if saved is not None:
        return [Place(**saved)]
    if previous is not None:
        return [Place(previous.basis, previous.mean, search.spread)]
    j, r = search.n_contrasts, search.rank
    M, b, noise = _least_squares(search, sums)
    if r == j:
        return [Place(np.eye(j), np.concatenate([M.ravel(), b, noise]), search.spread)]
    if n_starts is None:
        n_starts = N_STARTS if search.saved is None else 1
    basis = np.linalg.svd(np.linalg.solve(search.whitener, M))[2]
    starts = []
    for _ in range(n_starts):
        F = M @ basis[:r].T
        at = np.concatenate([F.ravel(), np.zeros(r * (j - r)), b, noise])
        starts.append(Place(basis, at, search.spread))
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
    # A unit of utility moves a probability by at most .4.
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
    """Draws around the point of the search, and what their ratios say."""
    at, precision = search.at, search.precision.copy()
    if search.previous is None:  # of the density, at the maximum of what does not need the basis
        begin = search.n_inside * search.rank
        aside = begin + np.arange(search.rank * (search.n_contrasts - search.rank))
        precision[aside, aside] -= 2.0 * search.prior.measure
    if not _is_positive(precision):
        precision, converged = _made_positive(precision), False
    root = np.linalg.cholesky(precision)
    half_log_det = float(np.sum(np.log(np.diag(root))))
    normal = rng.standard_normal((n_draws, len(at)))
    inside = at + solve_triangular(root.T, normal.T).T
    points = [search.point(x) for x in inside]
    log_likelihood = search.blocks.reduce(sum_log_likelihood, shared=(search.response, points))
    density = log_likelihood + [search.density(x) for x in inside]
    ratio = density + 0.5 * np.sum(normal**2, axis=1) + 0.5 * len(at) * LOG_2PI - half_log_det
    log_evidence = float(logsumexp(ratio)) - math.log(n_draws)
    if converged and search.previous is None and _is_prior_felt(search, precision):
        # No draws are mixed where the likelihood itself is no normal density.
        with suppress(np.linalg.LinAlgError):
            inside, expected = _mix(search, inside, precision, rng)
            shared = search.response, [search.point(x) for x in inside]
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


def _is_prior_felt(search: _Search, precision: FloatArray) -> bool:
    """Whether it gives some direction of the loadings a share of the precision that counts."""
    size = search.n_inside * search.rank
    if size > _MOST_MIXED:
        return False
    prior = search.prior.precision(search.split(search.at)[0], search.spread)
    root = np.kron(np.eye(search.n_inside), np.linalg.cholesky(prior))
    return bool(np.linalg.eigvalsh(root.T @ _inverse(precision)[:size, :size] @ root)[-1] > _FELT)


def _mix(
    search: _Search, inside: FloatArray, precision: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Draws under the prior itself and a normal likelihood, and what that says of each.

    Given T loadings are normal a priori, and given loadings T is drawn as in
    :meth:`~bsdr_models.bsdr.laplace_prior.ProductPrior.draw_scale`: a few sweeps of both from the
    draws of the normal distribution. Directions that the samples hardly tell get the heavier
    tails of a scale that is not known.

    Returns
    -------
    inside : (S, P)
    expected : (S,)
        Log likelihood up to a constant, with what the prior of A differs from a normal one.
    """
    at, r, size = search.at, search.rank, search.n_inside * search.rank
    F, A, b, noise = search.split(at)
    mean_precision = search.prior.precision(F, search.spread)
    base = precision.copy()
    base[:size, :size] = -search.second[:size, :size]
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
            push = np.zeros(len(at))
            push[:size] = (F @ (mean_precision - by_prior)).ravel()
            half = solve_triangular(root, push, lower=True) + rng.standard_normal(len(at))
            x = at + solve_triangular(root.T, half)
        out[s] = x
    gap = out - at
    slope = np.concatenate([(F @ mean_precision).ravel(), np.zeros(A.size), b, noise])
    expected = gap @ slope + 0.5 * np.sum((gap @ search.second) * gap, axis=1)
    if A.size:
        aside = slice(size, size + A.size)
        normal = -(precision + search.second)[aside, aside]
        for s, x in enumerate(out):
            own_f, own_a, _, _ = search.split(x)
            exact = search.prior.density(own_f, own_a) - search.prior.density(own_f, 0.0 * own_a)
            expected[s] -= exact - 0.5 * float(own_a.ravel() @ normal @ own_a.ravel())
    return out, expected


def _complete(search: _Search, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Parameters of the model, (P,), with a draw of what the likelihood does not see."""
    F, A, b, noise = search.split(x)
    projection, weights, log_scale = search.prior.complete(F, A, search.weights(A), rng=rng)
    return np.concatenate([projection.ravel(), weights.ravel(), b, [log_scale], noise])


def _pareto_k(log_ratio: FloatArray) -> float:
    """Shape of the tail of importance ratios."""
    from arviz_stats.base import array_stats

    if len(log_ratio) < 25:
        return np.nan
    if not np.isfinite(log_ratio).all():
        return np.inf
    # As for leave-one-out weights, what goes in are negative log ratios.
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


def _made_positive(precision: FloatArray) -> FloatArray:
    """The matrix with eigenvalues of its own size that are positive."""
    value, vector = np.linalg.eigh(precision)
    value = np.maximum(np.abs(value), _FLAT * np.abs(value).max())
    made: FloatArray = (vector * value) @ vector.T
    return made
