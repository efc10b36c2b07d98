"""The recommended configuration: several latent scales and the empty model, stacked.

No single latent scale is right: separable classes want a small one, noise wants a large one or no
model at all, and the variational bound does not tell which. Cross-validation on the training rows
does: a grid of scales and a model that ignores the features are mixed with the weights that
maximise the out-of-fold log score.

Each scale is fitted twice, because a bound that is climbed further does not predict better
throughout: once by sweeps that stop where they slow down or at a hundred, which holds the weights
back when few rows are separable, and once to the top, where the fits of different scales err
differently and their mixture is better than any of them. Sweeps end on all rows where they end in
a fold, whatever ``max_iter`` allows: what has been scored is what is fitted.

With at least as many features as rows each fit gives two candidates, with and without the prior
variance of a position in directions that no training row has.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from bsdr_models.bsdr import predict
from bsdr_models.bsdr.fit import fit_mean_field
from bsdr_models.bsdr.mean_field import State
from bsdr_models.bsdr.predict import MeanFieldPosterior, NoFeatures, Posterior
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import Data, make_data
from bsdr_models.inference.callbacks import ProgressBar, watched_climb
from bsdr_models.inference.coordinate_ascent import FitResult
from bsdr_models.inference.restarts import n_workers, run_tasks
from bsdr_models.numerics.stacking import stack_weights
from bsdr_models.typing import BoolArray, FloatArray, IntArray, ProjectionPrior, Target

logger = logging.getLogger(__name__)

# Latent scales that are tried, with more rows than features and with fewer.
SCALES, SCALES_FEW_ROWS = (0.03, 0.1, 0.3, 1.0), (0.01, 0.03, 0.1)
# The two climbs: whether L-BFGS goes ahead of the sweeps, and iterations of the climb in a fold.
# On all rows sweeps end there too; L-BFGS goes on to the top, which the weights do not need.
CLIMBS = {False: 100, True: 200}
# Folds at most.
N_FOLDS = 5
# Above this many rows one held-out fold is enough to tell the scales apart.
MANY_ROWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One fit on all training rows.

    posterior
        For prediction.
    result
        Of the driver: bound, restarts, convergence.
    """

    latent_scale: float
    posterior: MeanFieldPosterior
    result: FitResult[State]

    def reached(self, max_iter: int) -> bool:
        """Whether the user's limit has stopped it, and not its rest or where it is meant to end."""
        return not self.result.converged and len(self.result.elbo) >= max_iter


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Predictive mixture of fits.

    fits
        One or two per latent scale, the one to look at first.
    components
        What is mixed, in the order of ``weights``; the last ignores the features.
    weights
        (C,), on the simplex.
    log_scores
        Mean out-of-fold log score of each component, (C,); NaN where none was computed.
    log_score
        That of the mixture; a little flattered, since the weights have seen these rows.
    interrupted
        Whether the user has stopped the fits before all that have weight were there.
    """

    fits: tuple[Fit, ...]
    components: tuple[Posterior, ...]
    weights: FloatArray
    log_scores: FloatArray
    log_score: float = np.nan
    interrupted: bool = False

    @classmethod
    def of_one(cls, fit: Fit, guess: NoFeatures) -> "Mixture":
        """One fit with all the weight, and none for the guess that ignores the features."""
        return cls(
            fits=(fit,),
            components=(fit.posterior, guess),
            weights=np.array([1.0, 0.0]),
            log_scores=np.full(2, np.nan),
            interrupted=fit.result.interrupted,
        )

    def log_average(self, log_prob: Callable[[Posterior], FloatArray]) -> FloatArray:
        """Log of the weighted mean over components of exp(log_prob(component))."""
        live = [
            log_prob(component) + np.log(weight)
            for component, weight in zip(self.components, self.weights, strict=True)
            if weight > 0.0
        ]
        return logsumexp(live, axis=0)

    def reached(self, max_iter: int) -> bool:
        """Whether the user's limit has stopped any of the fits."""
        return any(fit.reached(max_iter) for fit in self.fits)

    @property
    def no_features_weight(self) -> float:
        """Weight of the component that ignores the features."""
        return float(self.weights[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything that a fit on any subset of the training rows needs.

    X
        (N, P), scaled.
    y
        As in :class:`bsdr_models.data.Data`.
    options
        Keyword arguments of :func:`bsdr_models.bsdr.fit.fit_mean_field`.
    """

    X: FloatArray
    y: np.ndarray
    n_labels: int
    target: Target
    projection_prior: ProjectionPrior
    priors: Priors
    options: dict[str, Any]

    def data(self, rows: IntArray | slice = slice(None)) -> Data:
        """Some rows, ready for an engine."""
        return make_data(
            self.X[rows],
            self.y[rows],
            n_labels=self.n_labels,
            target=self.target,
            projection_prior=self.projection_prior,
        )

    def fit(self, data: Data, latent_scale: float, rng: np.random.Generator, **more: Any) -> Fit:
        """One fit."""
        priors = replace(self.priors, latent_scale=latent_scale)
        options = {**self.options, **more}
        result = fit_mean_field(
            data, priors, projection_prior=self.projection_prior, rng=rng, **options
        )
        posterior = MeanFieldPosterior(state=result.state, data=data, latent_scale=latent_scale)
        return Fit(latent_scale=latent_scale, posterior=posterior, result=result)

    def fold_limit(self, quasi_newton: bool) -> int:
        """Iterations of a climb in a fold, at most."""
        return min(CLIMBS[quasi_newton], int(self.options["max_iter"]))

    @property
    def few_rows(self) -> bool:
        """Whether there are at least as many features as rows."""
        return self.X.shape[1] >= self.X.shape[0]


def fold_index(y: np.ndarray, target: Target, rng: np.random.Generator) -> IntArray:
    """Fold of each row, (N,), stratified by class; with fewer folds where a class is small.

    A class of a single row cannot be held out and learnt from at once, so only classes of two or
    more rows set the number of folds.
    """
    n = len(y)
    if target != "multiclass":
        return rng.permutation(np.arange(n) % min(N_FOLDS, n))
    counts = np.bincount(y)
    counts = counts[counts > 1]
    n_folds = min(N_FOLDS, int(counts.min())) if counts.size else 1
    fold = np.empty(n, dtype=np.int64)
    begin = 0
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        fold[rows] = (begin + np.arange(len(rows))) % n_folds
        begin += len(rows)
    return fold


def fit_single(
    problem: Problem,
    latent_scale: float,
    rng: np.random.Generator,
    *,
    progressbar: bool = False,
    n_jobs: int | None = 1,
) -> Mixture:
    """One latent scale and nothing else; several restarts run side by side."""
    watched = watched_climb(
        "BSDR, mean field",
        n_restarts=problem.options["n_restarts"],
        max_iter=problem.options["max_iter"],
        n_jobs=n_jobs,
        enabled=progressbar,
    )
    with watched as options:
        fit = problem.fit(problem.data(), latent_scale, rng, **options)
    return Mixture.of_one(fit, NoFeatures.learn(problem.y, problem.n_labels, problem.target))


def fit_mixture(
    problem: Problem,
    rng: np.random.Generator,
    *,
    scales: Sequence[float] | None = None,
    select: bool = False,
    progressbar: bool = False,
    n_jobs: int | None = 1,
) -> Mixture:
    """Stack a grid of latent scales and the empty model, or select the best fit.

    Parameters
    ----------
    problem : Problem
    rng : numpy.random.Generator
    scales : sequence of float, optional
        Grid of sigma_z; by default :data:`SCALES` or, with few rows, :data:`SCALES_FEW_ROWS`.
    select : bool
        Put all weight on the fit with the best out-of-fold log score.
    progressbar : bool
    n_jobs : int, optional
        Folds, then fits on all rows, that run side by side.

    Returns
    -------
    Mixture

    Raises
    ------
    KeyboardInterrupt
        If the user stops the fit before there is one on all rows.
    """
    if scales is None:
        scales = SCALES_FEW_ROWS if problem.few_rows else SCALES
    grid = [(scale, quasi_newton) for scale in scales for quasi_newton in CLIMBS]
    outside = (False, True) if problem.few_rows else (True,)
    fold_rng, fit_rng = rng.spawn(2)
    folds = fold_index(problem.y, problem.target, fold_rng)
    n_folds = int(folds.max()) + 1
    if n_folds < 2:  # nothing to choose by: the scale that claims least
        logger.info("too few rows to hold some out: no stack, but the latent scale %g", max(scales))
        return fit_single(problem, max(scales), fit_rng, progressbar=progressbar, n_jobs=n_jobs)
    held_out = range(n_folds) if len(folds) <= MANY_ROWS else range(1)
    streams = fit_rng.spawn(len(held_out))

    with ProgressBar((len(held_out) + 1) * len(grid), "BSDR, fits", enabled=progressbar) as bar:
        # A bar stays in its process: it sees each fit in this one, whole folds in others.
        parallel = n_workers(n_jobs, len(held_out)) > 1
        on_fit = None if parallel else bar.update

        def score(fold: int) -> FloatArray:
            return _held_out_scores(problem, folds == fold, grid, outside, streams[fold], on_fit)

        outcome = run_tasks(
            score,
            held_out,
            n_jobs=n_jobs,
            what="folds",
            on_done=lambda scores: bar.update(len(grid) if parallel else 0),
        )
        if outcome.interrupted:
            raise KeyboardInterrupt("before there was a fit on all rows")
        log_prob = np.concatenate(list(outcome.results.values()), axis=1)  # (C, rows tested)
        log_scores = log_prob.mean(axis=1)
        if select:
            weights = np.zeros(len(log_scores))
            weights[np.argmax(log_scores[:-1])] = 1.0
        else:
            weights = stack_weights(log_prob)

        # Every fit of the mixture is one of the grid with weight; the best fit is there to be
        # looked at even if the empty model has it all.
        by_fit = weights[:-1].reshape(len(grid), -1).sum(axis=1)
        best = log_scores[:-1].reshape(len(grid), -1).max(axis=1).argmax()
        order = [int(i) for i in np.argsort(-by_fit, kind="stable") if by_fit[i] > 0.0]
        order = order or [int(best)]
        data, fit_streams = problem.data(), fit_rng.spawn(len(grid))
        bar.total = bar.count + len(order)

        def fit(number: int) -> Fit:
            scale, quasi_newton = grid[number]
            to_the_top = problem.options["max_iter"]
            return problem.fit(
                data,
                scale,
                fit_streams[number],
                max_iter=to_the_top if quasi_newton else problem.fold_limit(quasi_newton),
                quasi_newton=quasi_newton,
            )

        fitted = run_tasks(
            fit,
            order,
            n_jobs=n_jobs,
            what="fits",
            stopped=lambda found: found.result.interrupted,
            on_done=lambda found: bar.update(),
        )
    fits = tuple(fitted.results.values())
    first = np.array([[order[i]] for i in fitted.results]) * len(outside)
    kept = np.append(first + np.arange(len(outside)), len(weights) - 1)
    with np.errstate(divide="ignore"):
        log_score = float(np.mean(logsumexp(log_prob + np.log(weights)[:, None], axis=0)))
    logger.debug("stack: held-out log score %.4g, %d fits with weight", log_score, len(fits))
    return Mixture(
        fits=fits,
        components=(
            *(replace(fit.posterior, outside=flag) for fit in fits for flag in outside),
            NoFeatures.learn(problem.y, problem.n_labels, problem.target),
        ),
        weights=weights[kept] / weights[kept].sum(),
        log_scores=log_scores[kept],
        log_score=log_score,
        interrupted=fitted.interrupted,
    )


def _held_out_scores(
    problem: Problem,
    out: BoolArray,
    grid: Sequence[tuple[float, bool]],
    outside: Sequence[bool],
    rng: np.random.Generator,
    on_fit: Callable[[], object] | None,
) -> FloatArray:
    """Log scores of the rows that are out under fits to the others, (C, rows out)."""
    train, test = np.flatnonzero(~out), np.flatnonzero(out)
    if problem.target == "multiclass":  # a label that no training row has is not scored
        known = np.isin(problem.y[test], problem.y[train])
        if not known.all():
            logger.debug("%d held-out rows of unknown classes are not scored", np.sum(~known))
        test = test[known]
    data = problem.data(train)
    components: list[Posterior] = []
    for (scale, quasi_newton), stream in zip(grid, rng.spawn(len(grid)), strict=True):
        fit = problem.fit(
            data,
            scale,
            stream,
            n_restarts=1,
            max_iter=problem.fold_limit(quasi_newton),
            quasi_newton=quasi_newton,
        )
        if fit.result.interrupted:
            raise KeyboardInterrupt
        components += [replace(fit.posterior, outside=flag) for flag in outside]
        if on_fit is not None:
            on_fit()
    components.append(NoFeatures.learn(problem.y[train], problem.n_labels, problem.target))
    rows, y = problem.X[test], problem.y[test]
    return np.stack([predict.log_predictive(part, rows, y) for part in components])
