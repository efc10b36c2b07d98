r"""Choices by held-out samples: the whitened features, and the temperature of class probabilities.

The posterior predictive distribution is the mean of the class probabilities over draws. On real
data draws of a linear predictor differ more than the data justify, and it is under-confident. Its
logarithm is therefore divided by a temperature T (temperature scaling [1]_),

.. math::
    p_T(k \mid x) = (1 - \epsilon) \frac{p(k \mid x)^{1/T}}{\sum_j p(j \mid x)^{1/T}}
    + \frac{\epsilon}{K},

which maximises the log score of held-out samples, penalised by a normal prior of :math:`\log T`.
T = 1 is the posterior predictive. The temperature affects predictions only, not the posterior.

Kernels and exponents of the prior covariance are compared by the same score, of fits that are
cheaper: the mode given a fixed scale of the projection. The evidence would not serve: it prefers
prior covariances that predict worse.

References
----------
.. [1] C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger (2017). On calibration of modern neural
       networks. ICML.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_ndtr, logsumexp

from bsdr_models.arrays import FloatArray, IntArray, Target
from bsdr_models.bsdr import probit_choice
from bsdr_models.bsdr.conjugate import fit_conjugate
from bsdr_models.bsdr.hmc import Sampled, continue_on
from bsdr_models.bsdr.kernels import Kernel
from bsdr_models.bsdr.posterior import Problem
from bsdr_models.bsdr.views import FeatureMap, learn_map
from bsdr_models.metrics import HeldOutScore, lack_of_signal
from bsdr_models.numerics.folds import assign_folds, sample_keys, stratified_subset

type Temperature = Literal["auto"] | float

# Folds; trajectories of each before and for its draws.
N_FOLDS, _N_WARM_UP, _N_KEPT = 5, 6, 8
# Mean and standard deviation of the prior of log T, from the best temperatures of new samples of
# nine data sets, and the range of T.
_LOG_T, _LOG_T_WIDTH, _RANGE = -0.5, 0.4, (0.1, 20.0)
# Exponents of the prior covariance that are compared, and the least gain in the held-out log score,
# in nats per sample, for anything but the first of all that are compared.
EXPONENTS, _LEAST_GAIN = (0.0, 0.5), 0.01
# Samples by which whitened features are compared, and iterations of the search for a mode.
_N_COMPARED, _MAX_ITER = 500, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MapChoice:
    """Kernels of the whitened features that were compared, their names, and held-out log scores."""

    kernels: tuple[Any, ...]
    names: tuple[str, ...]
    scores: tuple[float, ...]
    chosen: int

    @property
    def kernel(self) -> Any:
        """The kernel that was chosen."""
        return self.kernels[self.chosen]

    def attrs(self) -> dict[str, Any]:
        """Attributes of the tree."""
        return {
            "kernels_compared": list(self.names),
            "kernels_held_out_score": list(self.scores),
        }


def log_probabilities(eta: FloatArray, target: Target, lapse: float) -> FloatArray:
    """Log of the mean over draws of class probabilities, from eta (S, M, K): (M, K).

    Of label sets both outcomes of each label, (M, K, 2), the first that it is 1.
    """
    if target == "multiclass":
        return np.log(probit_choice.probabilities(eta, lapse).mean(axis=0))
    both = np.stack([log_ndtr(eta), log_ndtr(-eta)], axis=-1)
    both = np.logaddexp(math.log1p(-lapse) + both, math.log(lapse / 2.0))
    return np.asarray(logsumexp(both, axis=0) - math.log(len(eta)))


def temper(log_p: FloatArray, temperature: float, lapse: float) -> FloatArray:
    """Log probabilities (..., K) at a temperature, normalised, with the lapse as before.

    Examples
    --------
    >>> import numpy as np
    >>> from bsdr_models.bsdr.held_out import temper
    >>> np.exp(temper(np.log([[0.8, 0.2]]), 0.5, 0.003)).round(2).tolist()
    [[0.94, 0.06]]
    """
    if temperature == 1.0:
        return log_p
    scaled = log_p / temperature
    scaled -= logsumexp(scaled, axis=-1, keepdims=True)
    return np.logaddexp(math.log1p(-lapse) + scaled, math.log(lapse / log_p.shape[-1]))


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
    """Predictions of samples that were held out.

    temperature
        1 if no sample can be held out, and at least 1 if there is no signal.
    score
        At that temperature.
    log_proba
        Log probabilities of the classes at that temperature, (N, K), NaN of samples that were not
        held out; of each label, that it is 1.
    """

    temperature: float
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
    temperature, score = _score(log_p[known], problem.y[known], problem)
    log_bayes_factor = sampled.log_evidence - sampled.log_evidence_empty
    if lack_of_signal(score.attrs() | {"log_bayes_factor": log_bayes_factor}) is not None:
        temperature, score = _score(log_p[known], problem.y[known], problem, signal=False)
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
) -> tuple[float, HeldOutScore]:
    """Temperature and score of held-out predictions, as of :func:`log_probabilities`."""
    lapse = problem.priors.lapse
    # The first outcome of a label is 1.
    index = y if problem.target == "multiclass" else 1 - y.astype(np.int64)
    flat, flat_index = log_p.reshape(-1, log_p.shape[-1]), index.ravel()
    temperature = fit_temperature(flat, flat_index, lapse, signal=signal)
    score = temper(flat, temperature, lapse)[np.arange(len(flat)), flat_index].reshape(index.shape)
    return temperature, HeldOutScore.of(score, y)


def choose_map(
    X: FloatArray,
    y: np.ndarray,
    kernels: Sequence[Any],
    views: Sequence[tuple[str, IntArray]] | None,
    target: Target,
    build: Callable[[FeatureMap, IntArray], Problem],
) -> tuple[FeatureMap, MapChoice | None]:
    """Whitened features with the best score of held-out samples, and what was compared.

    Linear kernels are compared with each exponent of their prior covariance. Arguments are those of
    :func:`bsdr_models.bsdr.views.learn_map`, and ``build`` makes the problem of some samples.
    """
    candidates = []
    for kernel in kernels:
        linear = kernel == "linear" or (isinstance(kernel, Kernel) and kernel.name == "linear")
        for exponent in EXPONENTS if linear else (0.0,):
            candidates.append((kernel, exponent, learn_map(X, kernel, views, exponent)))
    if len(candidates) == 1:
        return candidates[0][2], None
    groups = y if target == "multiclass" else np.zeros(len(y), dtype=np.int64)
    index = stratified_subset(groups, _N_COMPARED)
    problems = [build(feature_map, index) for _, _, feature_map in candidates]
    if target == "regression":
        scores = [_leave_one_out(problem) for problem in problems]
    else:
        scores = compare(problems)
    chosen = int(np.argmax(scores))
    if scores[chosen] < scores[0] + _LEAST_GAIN:
        chosen = 0
    best = candidates[chosen][2]
    if len(kernels) == 1:
        return best, None
    names = tuple(
        f"linear, exponent {exponent:g}" if kernel.name == "linear" else kernel.label
        for kernel, exponent, _ in candidates
    )
    compared = tuple(kernel for kernel, _, _ in candidates)
    return best, MapChoice(kernels=compared, names=names, scores=tuple(scores), chosen=chosen)


def _leave_one_out(problem: Problem) -> float:
    """Mean leave-one-out log score of real outputs, which is exact; draws are not used."""
    return float(fit_conjugate(problem, n_draws=1, rng=np.random.default_rng(0)).log_score.mean())


def compare(problems: Sequence[Problem]) -> list[float]:
    """Held-out log score, per label, of the same samples with different whitened features."""
    folds = make_folds(problems[0])
    if folds.max() < 1:
        return [0.0] * len(problems)
    scores = []
    for problem in problems:
        log_p, y = [], []
        for fold in range(int(folds.max()) + 1):
            out = folds == fold
            mode = find_mode(problem.select(~out), math.log(problem.priors.scale))
            held_out = problem.select(out)
            eta = held_out.linear_predictor(mode[None])
            log_p.append(log_probabilities(eta, problem.target, problem.priors.lapse))
            y.append(held_out.y)
        scores.append(_score(np.concatenate(log_p), np.concatenate(y), problem)[1].score)
    return scores


def find_mode(problem: Problem, log_scale: float) -> FloatArray:
    """Parameters (P,) near the mode of the posterior density given log tau."""

    def negative(normal: FloatArray) -> tuple[float, FloatArray]:
        value, prior, gradient = problem.log_density(np.append(normal, log_scale)[None])
        return -float(value[0] + prior[0]), -gradient[0, :-1]

    start = np.zeros(problem.n_parameters - 1)
    options = {"maxiter": _MAX_ITER}
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    return np.append(found.x, log_scale)
