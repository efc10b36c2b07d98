"""Kernel and calibration of class probabilities, by samples that are held out.

Kernels are compared by the same score as probabilities, of fits that are cheaper: the mode given a
fixed scale of the projection. Each fold learns its whitened features without the held-out samples,
whose labels the metric would otherwise know.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.feature_map import FeatureMap, MapLearner
from bsdr_models.bsdr.hmc import Sampled, continue_on
from bsdr_models.bsdr.kernels import Kernel
from bsdr_models.bsdr.posterior import link_of, log_probabilities
from bsdr_models.bsdr.problem import Problem, regression_log_likelihood
from bsdr_models.data.training import Training
from bsdr_models.estimators.calibration import Judged, TemperaturePrior, judge
from bsdr_models.inference.parallel import run_in_threads
from bsdr_models.numerics.arrays import FloatArray, IntArray

# Widths of ``"matern"`` that ``kernel="auto"`` compares.
WIDTHS = (1.0, 2.0, 4.0)
# Trajectories of each fold before its draws.
_N_WARM_UP = 6
# Trajectories of each fold that are its draws.
_N_KEPT = 12
# Prior of log T, from the best temperatures of new samples of nine data sets.
LOG_T = TemperaturePrior(mean=-0.7, sd=0.4)
# Gain over the linear kernel, in nats per sample, that another kernel needs.
_LEAST_GAIN = 0.01
# Standard errors of the gain that it must exceed.
_N_STANDARD_ERRORS = 1.645
# Draws of the posterior of each fold of real outputs.
_N_DRAWS = 500
# Held-out samples by which kernels are compared.
_N_COMPARED = 500
# Most iterations of the search for a mode.
_MAX_ITER = 30
# Typical curvature of the log likelihood of a sample, which scales this search.
_CURVATURE = 0.05

# Problem of some training samples, by their indices, with the features of a map.
type Build = Callable[[FeatureMap, IntArray], Problem]


def judge_folds(
    problem: Problem,
    sampled: Sampled,
    learner: MapLearner,
    build: Build,
    *,
    rng: np.random.Generator,
) -> Judged | None:
    """Calibration by the folds of one division; None if no sample can be held out.

    The chains of each fold start from the last states of those of all samples, in the whitened
    features of the fold, and forget the held-out labels within a few trajectories. As of new
    samples, directions that no other sample has are left out.
    """
    training = learner.training
    if training.n_folds < 2:
        return None
    lapse = problem.priors.lapse
    shape = len(training.keys), problem.n_labels
    log_p = np.full(shape if problem.target == "multiclass" else (*shape, 2), np.nan)
    streams = rng.spawn(training.n_folds)

    def predict(fold: int) -> None:
        out = training.out((0, fold))
        train, held_out = _split(learner, build, fold)
        theta = continue_on(
            problem.select(~out),
            train,
            sampled,
            n_warm_up=_N_WARM_UP,
            n_draws=_N_KEPT,
            rng=streams[fold],
        )
        log_p[out] = log_probabilities(held_out.linear_predictor(theta), problem.target, lapse)

    run_in_threads(predict, range(training.n_folds))
    return _judge(log_p, problem, training)


def _judge(log_p: FloatArray, problem: Problem, training: Training) -> Judged:
    """Calibration by held-out log probabilities (N, K), or (N, T, 2)."""
    return judge(
        [log_p],
        problem.y.astype(np.int64),
        training.divisions[:1],
        link_of(problem.priors.lapse),
        LOG_T,
        groups=training.groups,
        share=training.share,
    )


def _split(learner: MapLearner, build: Build, fold: int) -> tuple[Problem, Problem]:
    """Problems of the samples that are not in a fold, and of those in it, by the same features."""
    feature_map = learner.learn(fold)
    out = learner.training.out((0, fold))
    return build(feature_map, np.flatnonzero(~out)), build(feature_map, np.flatnonzero(out))


def choose_kernel(learner: MapLearner, build: Build) -> MapLearner:
    """With the kernel of an argument, or for ``"auto"`` of the best score of held-out samples.

    A kernel other than the linear one must be better by more than chance.
    """
    if not (isinstance(learner.kernel, str) and learner.kernel == "auto"):
        return learner
    kernels = [Kernel("linear"), *(Kernel("matern", width) for width in WIDTHS)]
    learners = [replace(learner, kernel=kernel) for kernel in kernels]
    score = _score_outputs if learner.training.classes is None else score_kernel
    scores = np.stack([score(each, build) for each in learners])
    best = 1 + int(np.argmax(scores[1:].mean(axis=1)))
    gain = scores[best] - scores[0]
    error = np.std(gain, ddof=1) / math.sqrt(len(gain))
    enough = gain.mean() >= max(_LEAST_GAIN, _N_STANDARD_ERRORS * error)
    return learners[best if enough else 0]


def score_kernel(learner: MapLearner, build: Build) -> FloatArray:
    """Log scores of M held-out samples at the mode given the rest, means over labels, (M,)."""
    training = learner.training
    found: FloatArray | None = None
    fold = np.full(len(training.keys), -1)
    for number in range(training.n_folds):
        problem, held_out = _split(learner, build, number)
        mode = find_mode(problem, math.log(problem.priors.scale))
        eta = held_out.linear_predictor(mode[None])
        own = log_probabilities(eta, problem.target, problem.priors.lapse)
        if found is None:
            found = np.full((len(fold), *own.shape[1:]), np.nan)
        out = training.out((0, number))
        found[out] = own
        fold[out] = number
        if np.count_nonzero(fold >= 0) >= _N_COMPARED:
            break
    if found is None:
        return np.zeros(len(fold))
    assert training.classes is not None
    judged = judge([found], training.classes, [fold], link_of(problem.priors.lapse), LOG_T)
    return judged.each[fold >= 0]


def _score_outputs(learner: MapLearner, build: Build) -> FloatArray:
    """Log densities (N,) of real outputs that are left out one by one, or by groups."""
    rng = np.random.default_rng(0)
    if learner.training.groups is not None:
        return score_folds(learner, build, rng)[0]
    problem = build(learner.learn(), np.arange(len(learner.training.keys)))
    return fit_conjugate(problem, n_draws=1, rng=rng).log_score


def score_folds(
    learner: MapLearner, build: Build, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Log densities (N,) of real outputs that are held out by folds, and those without features."""
    training = learner.training
    score, empty = np.full((2, len(training.keys)), np.nan)
    for fold in range(training.n_folds):
        train, new = _split(learner, build, fold)
        for values, size in ((score, 1.0), (empty, 0.0)):
            given = replace(train, X=size * train.X)
            draws = fit_conjugate(given, n_draws=_N_DRAWS, rng=rng).draws
            assert draws.noise_scale is not None
            eta = draws.linear_predictor(size * new.X)
            each = regression_log_likelihood(eta, new.y, draws.noise_scale)
            values[training.out((0, fold))] = logsumexp(each, axis=0) - math.log(_N_DRAWS)
    return score, empty


def find_mode(problem: Problem, log_scale: float) -> FloatArray:
    """Parameters (P,) near the mode of the posterior density given log tau."""
    # The search is in units of approximate posterior standard deviations.
    n = problem.n_loadings
    j = len(problem.contrasts)
    size = np.ones(problem.n_parameters - 1)
    squares = np.exp(2.0 * log_scale) * np.sum(problem.X**2, axis=0)
    size[:n] = np.repeat(1.0 / np.sqrt(1.0 + _CURVATURE * squares), j)
    total = len(problem.X) * problem.priors.bias_scale**2
    size[n : n + j] = 1.0 / np.sqrt(1.0 + _CURVATURE * total)

    def negative(z: FloatArray) -> tuple[float, FloatArray]:
        value, prior, gradient = problem.log_density(np.append(size * z, log_scale)[None])
        return -float(value[0] + prior[0]), -size * gradient[0, :-1]

    options = {"maxiter": _MAX_ITER}
    start = np.zeros(len(size))
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    return np.append(size * found.x, log_scale)
