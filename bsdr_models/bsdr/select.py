r"""Choices by held-out samples: the kernel, and the temperature of class probabilities.

The temperature (:mod:`bsdr_models.bsdr.posterior`) maximises the log score of held-out samples,
penalised by a normal prior of :math:`\log T`. Kernels are compared by the same score, of fits that
are cheaper: the mode given a fixed scale of the projection. Each fold learns its whitened features
without the held-out samples, whose labels the metric would otherwise know.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.feature_map import FeatureMap, MapLearner
from bsdr_models.bsdr.hmc import Sampled, continue_on
from bsdr_models.bsdr.kernels import Kernel
from bsdr_models.bsdr.posterior import log_probabilities, temper
from bsdr_models.bsdr.problem import Problem, regression_log_likelihood
from bsdr_models.inference.parallel import run_in_threads
from bsdr_models.metrics import HeldOutScore, lack_of_signal

# Widths of ``"matern"`` that ``kernel="auto"`` compares.
WIDTHS = (1.0, 2.0, 4.0)
# Trajectories of each fold before its draws.
_N_WARM_UP = 6
# Trajectories of each fold that are its draws.
_N_KEPT = 12
# Mean and standard deviation of the prior of log T, from the best temperatures of new samples of
# nine data sets.
_LOG_T = -0.5
_LOG_T_WIDTH = 0.4
# Range of T.
_RANGE = (0.1, 20.0)
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


def fit_temperature(log_p: FloatArray, y: IntArray, lapse: float, *, signal: bool = True) -> float:
    """Temperature from log probabilities (..., K) of held-out samples and their outcomes (...).

    Without a signal it is at least one, and has no prior.
    """
    log_p = log_p.reshape(-1, log_p.shape[-1])
    y = y.ravel()

    def loss(log_t: float) -> float:
        score = temper(log_p, math.exp(log_t), lapse)[np.arange(len(y)), y].sum()
        penalty = 0.5 * ((log_t - _LOG_T) / _LOG_T_WIDTH) ** 2 if signal else 0.0
        return penalty - float(score)

    bounds = math.log(_RANGE[0]) if signal else 0.0, math.log(_RANGE[1])
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def choose_temperature(
    problem: Problem,
    sampled: Sampled,
    learner: MapLearner,
    build: Build,
    *,
    rng: np.random.Generator,
) -> tuple[float, HeldOutScore, FloatArray | None]:
    """Temperature by folds of the samples, and predictions of each at that of all other folds.

    The predictions are their score, and log probabilities of the classes, or of each label that it
    is 1, (N, K); NaN of samples that were not held out, and None if none was. The temperature is
    then 1, and at least 1 without a signal. The chains of each fold start from the last states of
    those of all samples, in the whitened features of the fold, and forget the held-out labels
    within a few trajectories. As of new samples, directions that no other sample has are left out.
    """
    folds = learner.fold
    if folds.max() < 1:
        return 1.0, HeldOutScore(), None
    lapse = problem.priors.lapse
    shape = len(folds), problem.n_labels
    log_p = np.full(shape if problem.target == "multiclass" else (*shape, 2), np.nan)
    streams = rng.spawn(int(folds.max()) + 1)

    def predict(fold: int) -> None:
        out = folds == fold
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

    run_in_threads(predict, range(len(streams)))
    index = _outcomes(problem)
    known = folds >= 0
    groups = None if learner.groups is None else learner.groups[known]
    for signal in (True, False):
        tempered = _temper_folds(log_p[known], index[known], folds[known], lapse, signal=signal)
        each = np.take_along_axis(tempered, index[known][..., None], axis=-1)[..., 0]
        score = HeldOutScore.of(each, problem.y[known], groups=groups)
        if lack_of_signal(score.attrs()) is None:
            break
    temperature = fit_temperature(log_p[known], index[known], lapse, signal=signal)
    log_p[known] = tempered
    if problem.target != "multiclass":
        log_p = log_p[..., 0]
    return temperature, score, log_p


def _split(learner: MapLearner, build: Build, fold: int) -> tuple[Problem, Problem]:
    """Problems of the samples that are not in a fold, and of those in it, by the same features."""
    feature_map = learner.learn(fold)
    out = learner.fold == fold
    return build(feature_map, np.flatnonzero(~out)), build(feature_map, np.flatnonzero(out))


def _outcomes(problem: Problem) -> IntArray:
    """Classes (M,), or for each label (M, T) 0 if it is 1 and 1 otherwise."""
    return problem.y if problem.target == "multiclass" else 1 - problem.y.astype(np.int64)


def _temper_folds(
    log_p: FloatArray, index: IntArray, folds: IntArray, lapse: float, *, signal: bool = True
) -> FloatArray:
    """Log probabilities of each fold at the temperature of the others."""
    tempered = np.empty_like(log_p)
    for fold in np.unique(folds):
        own = folds == fold
        temperature = fit_temperature(log_p[~own], index[~own], lapse, signal=signal)
        tempered[own] = temper(log_p[own], temperature, lapse)
    return tempered


def choose_kernel(learner: MapLearner, build: Build) -> MapLearner:
    """With the kernel of an argument, or for ``"auto"`` of the best score of held-out samples.

    A kernel other than the linear one must be better by more than chance.
    """
    if not (isinstance(learner.kernel, str) and learner.kernel == "auto"):
        return learner
    kernels = [Kernel("linear"), *(Kernel("matern", width) for width in WIDTHS)]
    learners = [replace(learner, kernel=kernel) for kernel in kernels]
    score = _score_outputs if learner.classes is None else score_kernel
    scores = np.stack([score(each, build) for each in learners])
    best = 1 + int(np.argmax(scores[1:].mean(axis=1)))
    gain = scores[best] - scores[0]
    error = np.std(gain, ddof=1) / math.sqrt(len(gain))
    enough = gain.mean() >= max(_LEAST_GAIN, _N_STANDARD_ERRORS * error)
    return learners[best if enough else 0]


def score_kernel(learner: MapLearner, build: Build) -> FloatArray:
    """Log scores of M held-out samples at the mode given the rest, means over labels, (M,)."""
    log_p = []
    y = []
    n_known = 0
    for fold in range(int(learner.fold.max()) + 1):
        problem, held_out = _split(learner, build, fold)
        mode = find_mode(problem, math.log(problem.priors.scale))
        eta = held_out.linear_predictor(mode[None])
        log_p.append(log_probabilities(eta, problem.target, problem.priors.lapse))
        y.append(_outcomes(held_out))
        n_known += len(held_out.y)
        if n_known >= _N_COMPARED:
            break
    if len(y) < 2:
        return np.zeros(len(learner.fold))
    folds = np.repeat(np.arange(len(y)), [len(own) for own in y])
    index = np.concatenate(y)
    tempered = _temper_folds(np.concatenate(log_p), index, folds, problem.priors.lapse)
    each = np.take_along_axis(tempered, index[..., None], axis=-1)
    return np.asarray(each.reshape(len(each), -1).mean(axis=1))


def _score_outputs(learner: MapLearner, build: Build) -> FloatArray:
    """Log densities (N,) of real outputs that are left out one by one, or by groups."""
    rng = np.random.default_rng(0)
    if learner.groups is not None:
        return score_folds(learner, build, rng)[0]
    problem = build(learner.learn(), np.arange(len(learner.X)))
    return fit_conjugate(problem, n_draws=1, rng=rng).log_score


def score_folds(
    learner: MapLearner, build: Build, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Log densities (N,) of real outputs that are held out by folds, and those without features."""
    score, empty = np.full((2, len(learner.fold)), np.nan)
    for fold in range(int(learner.fold.max()) + 1):
        train, new = _split(learner, build, fold)
        for values, size in ((score, 1.0), (empty, 0.0)):
            given = replace(train, X=size * train.X)
            draws = fit_conjugate(given, n_draws=_N_DRAWS, rng=rng).draws
            assert draws.noise_scale is not None
            eta = draws.linear_predictor(size * new.X)
            each = regression_log_likelihood(eta, new.y, draws.noise_scale)
            values[learner.fold == fold] = logsumexp(each, axis=0) - math.log(_N_DRAWS)
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
