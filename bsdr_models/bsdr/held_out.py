r"""Choices by held-out samples: the whitened features, and the temperature of class probabilities.

The temperature (:mod:`bsdr_models.bsdr.draws`) maximises the log score of held-out samples,
penalised by a normal prior of :math:`\log T`.

Kernels and exponents of the prior covariance are compared by the same score, of fits that are
cheaper: the mode given a fixed scale of the projection. The evidence would not serve: it prefers
prior covariances that predict worse.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from bsdr_models.arrays import FloatArray, IntArray, Target
from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.draws import log_probabilities, temper
from bsdr_models.bsdr.feature_map import FeatureMap, learn_map
from bsdr_models.bsdr.hmc import Sampled, continue_on
from bsdr_models.bsdr.kernels import Kernel, as_kernel
from bsdr_models.bsdr.posterior import Problem
from bsdr_models.metrics import HeldOutScore, lack_of_signal
from bsdr_models.numerics.folds import assign_folds, sample_keys, stratified_subset

# Widths of ``"matern"`` that ``kernel="auto"`` compares.
WIDTHS = (1.0, 2.0, 4.0)
# Folds; trajectories of each before and for its draws.
N_FOLDS, _N_WARM_UP, _N_KEPT = 5, 6, 12
# Mean and standard deviation of the prior of log T, from the best temperatures of new samples of
# nine data sets, and the range of T.
_LOG_T, _LOG_T_WIDTH, _RANGE = -0.5, 0.4, (0.1, 20.0)
# Exponents of the prior covariance that are compared; least gain in nats per sample for another one
# than the first, or another kernel than the linear one, and standard errors that this has to gain.
EXPONENTS, _LEAST_GAIN, _N_STANDARD_ERRORS = (0.0, 0.5), 0.01, 1.645
# Samples by which whitened features are compared, iterations of the search for a mode, and typical
# curvature of the log likelihood of a sample.
_N_COMPARED, _MAX_ITER, _CURVATURE = 500, 30, 0.05


def fit_temperature(log_p: FloatArray, y: IntArray, lapse: float, *, signal: bool = True) -> float:
    """Temperature from log probabilities (M, K) of held-out samples and their classes (M,).

    Without a signal it is at least one, and has no prior.
    """

    def loss(log_t: float) -> float:
        score = temper(log_p, math.exp(log_t), lapse)[np.arange(len(y)), y].sum()
        penalty = 0.5 * ((log_t - _LOG_T) / _LOG_T_WIDTH) ** 2 if signal else 0.0
        return penalty - float(score)

    bounds = math.log(_RANGE[0]) if signal else 0.0, math.log(_RANGE[1])
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)


def make_folds(problem: Problem) -> IntArray:
    """Fold of each sample, (N,), stratified by class; -1 for the only sample of a class.

    There are at most as many folds as samples in the smallest class with two or more.
    """
    n = len(problem.y)
    groups = problem.y if problem.target == "multiclass" else np.zeros(n, dtype=np.int64)
    sizes = np.bincount(groups)
    n_folds = min(N_FOLDS, int(sizes[sizes > 1].min(initial=n)))
    return assign_folds(groups, sample_keys(problem.X), n_folds=n_folds)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Predictions of held-out samples at their temperature.

    ``log_proba`` are log probabilities of the classes, or of each label that it is 1, (N, K); NaN
    of samples that were not held out.
    """

    temperature: float  # 1 if no sample can be held out, at least 1 without a signal
    score: HeldOutScore
    log_proba: FloatArray


def choose_temperature(problem: Problem, sampled: Sampled, *, rng: np.random.Generator) -> HeldOut:
    """Temperature by folds of the samples, and their held-out predictions at it.

    The chains of each fold start from the last states of those of all samples, and forget the
    held-out labels within a few trajectories. Features are whitened as for all samples, which does
    not use labels. As of new samples, directions that no other sample has are left out.
    """
    folds, lapse = make_folds(problem), problem.priors.lapse
    shape = len(folds), problem.contrasts.shape[1]
    log_p = np.full(shape if problem.target == "multiclass" else (*shape, 2), np.nan)
    if folds.max() < 1:
        return HeldOut(
            temperature=1.0, score=HeldOutScore(), log_proba=log_p.reshape(*shape, -1)[..., 0]
        )
    for fold, stream in enumerate(rng.spawn(int(folds.max()) + 1)):
        out = folds == fold
        theta = continue_on(
            problem.select(~out), sampled, n_warm_up=_N_WARM_UP, n_draws=_N_KEPT, rng=stream
        )
        held_out = _in_span(problem.select(out), problem.X[~out])
        log_p[out] = log_probabilities(held_out.linear_predictor(theta), problem.target, lapse)
    known = folds >= 0
    evidence = {"log_bayes_factor": sampled.log_evidence - sampled.log_evidence_empty}
    for signal in (True, False):
        temperature, each = _score(log_p[known], problem.y[known], problem, signal=signal)
        score = HeldOutScore.of(each, problem.y[known])
        if lack_of_signal(score.attrs() | evidence) is None:
            break
    log_p[known] = temper(log_p[known], temperature, lapse)
    if problem.target != "multiclass":
        log_p = log_p[..., 0]
    return HeldOut(temperature=temperature, score=score, log_proba=log_p)


def _in_span(problem: Problem, X: FloatArray) -> Problem:
    """The problem with the parts of its samples that lie in the span of others, X (N, B)."""
    if problem.views is not None or len(X) >= X.shape[1]:
        return problem
    basis = np.linalg.qr(X.T)[0]
    return replace(problem, X=problem.X @ basis @ basis.T)


def _score(
    log_p: FloatArray, y: np.ndarray, problem: Problem, *, signal: bool = True
) -> tuple[float, FloatArray]:
    """Temperature, and log scores at it of held-out labels y, (M,) or (M, K)."""
    lapse = problem.priors.lapse
    # The first outcome of a label is 1.
    index = y if problem.target == "multiclass" else 1 - y.astype(np.int64)
    flat, flat_index = log_p.reshape(-1, log_p.shape[-1]), index.ravel()
    temperature = fit_temperature(flat, flat_index, lapse, signal=signal)
    score = temper(flat, temperature, lapse)[np.arange(len(flat)), flat_index]
    return temperature, score.reshape(index.shape)


def choose_map(
    X: FloatArray,
    y: np.ndarray,
    kernel: Any,
    views: Sequence[tuple[str, IntArray]] | None,
    target: Target,
    build: Callable[[FeatureMap, IntArray], Problem],
) -> tuple[FeatureMap, Any]:
    """Whitened features with the best score of held-out samples, and their kernel.

    ``kernel`` is an argument of estimators, and ``build`` makes the problem of some samples. Linear
    kernels are compared with each exponent of their prior covariance, and another kernel must be
    better by more than chance.
    """
    automatic = isinstance(kernel, str) and kernel == "auto"
    if automatic:
        candidates = [(Kernel("linear"), exponent) for exponent in EXPONENTS]
        candidates += [(Kernel("matern", width), 0.0) for width in WIDTHS]
    else:
        linear = as_kernel(kernel).name == "linear"
        candidates = [(kernel, exponent) for exponent in (EXPONENTS if linear else EXPONENTS[:1])]
    maps = [learn_map(X, each, views, exponent) for each, exponent in candidates]
    if len(maps) == 1:
        return maps[0], kernel
    groups = y if target == "multiclass" else np.zeros(len(y), dtype=np.int64)
    index = stratified_subset(groups, _N_COMPARED)
    problems = [build(feature_map, index) for feature_map in maps]
    if target == "regression":
        exact = (fit_conjugate(p, n_draws=1, rng=np.random.default_rng(0)) for p in problems)
        scores = np.stack([each.log_score for each in exact])  # leave-one-out
    else:
        scores = compare(problems)
    mean = scores.mean(axis=1)
    best = int(mean[0] + _LEAST_GAIN <= mean[1])
    if not automatic:
        return maps[best], kernel
    other = len(EXPONENTS) + int(np.argmax(mean[len(EXPONENTS) :]))
    gain = scores[other] - scores[best]
    error = np.std(gain, ddof=1) / math.sqrt(len(gain))
    if gain.mean() >= max(_LEAST_GAIN, _N_STANDARD_ERRORS * error):
        best = other
    return maps[best], candidates[best][0]


def compare(problems: Sequence[Problem]) -> FloatArray:
    """Held-out log scores of M samples, means over labels, with C sets of features: (C, M)."""
    folds = make_folds(problems[0])
    if folds.max() < 1:
        return np.zeros((len(problems), len(folds)))
    scores = []
    for problem in problems:
        log_p, y = [], []
        for fold in range(int(folds.max()) + 1):
            out = folds == fold
            mode = find_mode(problem.select(~out), math.log(problem.priors.scale))
            eta = problem.select(out).linear_predictor(mode[None])
            log_p.append(log_probabilities(eta, problem.target, problem.priors.lapse))
            y.append(problem.y[out])
        scores.append(_score(np.concatenate(log_p), np.concatenate(y), problem)[1])
    return np.reshape(scores, (*np.shape(scores)[:2], -1)).mean(axis=2)


def find_mode(problem: Problem, log_scale: float) -> FloatArray:
    """Parameters (P,) near the mode of the posterior density given log tau."""
    # The search is in units of approximate posterior standard deviations.
    n, j = problem.n_loadings, len(problem.contrasts)
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
