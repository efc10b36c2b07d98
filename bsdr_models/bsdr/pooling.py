r"""Class probabilities of one sample pooled over the draws of a posterior.

.. math::
    p_a(k \mid x) \propto \Bigl\{ \frac1S \sum_s p_s(k \mid x)^a \Bigr\}^{1/a},
    \qquad p_0(k \mid x) \propto \exp \frac1S \sum_s \log p_s(k \mid x).

With a = 1 (linear pooling) this is the posterior predictive distribution, which is correct if the
model is. With a = 0 (logarithmic pooling, Genest & Zidek [1]_) disagreement between draws flattens
the distribution less. On real data the draws of a linear projection disagree more than the data
justify, and a power below one is better calibrated; on data from the model it is overconfident. The
power affects predictions only, not the posterior.

References
----------
.. [1] C. Genest, J. V. Zidek (1986). Combining probability distributions: a critique and an
       annotated bibliography. Statistical Science 1(1).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import log_ndtr, logsumexp

from bsdr_models.arrays import BoolArray, FloatArray, IntArray, Target
from bsdr_models.bsdr import probit_choice
from bsdr_models.bsdr.posterior import Problem, regression_log_likelihood
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.inference.tempering import Moves, run_tempering
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.folds import assign_folds, sample_keys

type Pooling = Literal["auto", "linear", "log"] | float

# Powers that are weighted by held-out samples.
POWERS = (1.0, 0.5, 0.25, 0.0)
# Folds, sufficient number of held-out samples to weight powers of pooling, particles of a fold.
N_FOLDS, _ENOUGH, _FOLD_PARTICLES = 5, 100, 24


def pool(log_p: FloatArray, power: float) -> FloatArray:
    """Pool the log probabilities of posterior draws into one distribution.

    Parameters
    ----------
    log_p : (S, ..., K)
        Log probabilities of each draw, finite.
    power : float
        a, from 0 to 1.

    Returns
    -------
    (..., K)

    See Also
    --------
    bsdr_models.BSDRClassifier : chooses the power by held-out samples.

    Examples
    --------
    >>> import numpy as np
    >>> from bsdr_models.bsdr.pooling import pool
    >>> log_p = np.log([[0.9, 0.1], [0.5, 0.5]])
    >>> np.exp(pool(log_p, 1.0)).round(2).tolist()
    [0.7, 0.3]
    >>> np.exp(pool(log_p, 0.0)).round(2).tolist()
    [0.75, 0.25]
    """
    pooled = log_p.mean(axis=0) if power == 0.0 else logsumexp(power * log_p, axis=0) / power
    normaliser = np.logaddexp.reduce(pooled, axis=-1, keepdims=True)
    return np.asarray(pooled - normaliser)


def weigh_powers(log_scores: Sequence[float]) -> float:
    """Mean of :data:`POWERS`, weighted by the likelihood of held-out labels.

    Parameters
    ----------
    log_scores : sequence of float
        Log probability of all held-out labels under each power, in nats.

    Returns
    -------
    float
        An average over powers that held-out samples hardly distinguish.
    """
    scores = np.asarray(log_scores)
    weights = np.exp(scores - logsumexp(scores))
    return float(weights @ np.array(POWERS))


def as_power(pooling: Pooling) -> float | None:
    """Power of a setting; None if it is chosen by held-out samples."""
    known = {"auto": None, "linear": 1.0, "log": 0.0}
    return known[pooling] if isinstance(pooling, str) else float(pooling)


def pool_labels(eta: FloatArray, target: Target, lapse: float, power: float) -> FloatArray:
    """Pooled log probabilities of classes, or of labels being 1, from eta (S, M, K)."""
    if target == "multiclass":
        return pool(np.log(probit_choice.probabilities(eta, lapse)), power)
    both = np.stack([log_ndtr(eta), log_ndtr(-eta)], axis=-1)
    both = np.logaddexp(np.log1p(-lapse) + both, np.log(lapse / 2.0))
    return pool(both, power)[..., 0]


def make_folds(problem: Problem) -> IntArray:
    """Fold of each sample, (N,), stratified by class; -1 for the only sample of a class.

    There are at most as many folds as samples in the smallest class with two or more.
    """
    n = len(problem.y)
    groups = problem.y if problem.target == "multiclass" else np.zeros(n, dtype=np.int64)
    sizes = np.bincount(groups)
    n_folds = min(N_FOLDS, int(sizes[sizes > 1].min(initial=n)))
    return assign_folds(groups, sample_keys(problem.X), n_folds=n_folds)


def choose_power(
    problem: Problem, *, rng: np.random.Generator, n_jobs: int | None = 1
) -> tuple[float, HeldOutScore]:
    """Power of pooling from held-out samples, and their log score at that power.

    Folds are held out in turn until there are :data:`_ENOUGH` samples. Features are whitened as for
    all samples, which does not use labels.

    Returns
    -------
    power : float
        1 if no sample can be held out, and for real outputs.
    held_out : HeldOutScore
        Of real outputs only the score.
    """
    streams, folds = rng.spawn(N_FOLDS), make_folds(problem)
    n_folds = int(folds.max()) + 1
    if n_folds < 2:
        return 1.0, HeldOutScore()
    sizes = np.cumsum(np.bincount(folds[folds >= 0]))
    held_out = range(min(int(np.searchsorted(sizes, _ENOUGH)) + 1, n_folds))

    def log_probabilities(fold: int) -> list[FloatArray]:
        return _held_out_log_probabilities(problem, folds == fold, streams[fold])

    outcome = run_tasks(log_probabilities, held_out, n_jobs=n_jobs, what="folds")
    if outcome.interrupted:
        raise KeyboardInterrupt("before the power of pooling was chosen")
    if problem.target == "regression":
        score = np.concatenate([each[0] for each in outcome.results.values()])
        return 1.0, HeldOutScore(score=float(score.mean()))
    by_power = [np.concatenate(each) for each in zip(*outcome.results.values(), strict=True)]
    power = weigh_powers([float(each.sum()) for each in by_power])
    # Linear between the two powers beside it.
    shares = [np.interp(power, POWERS[::-1], unit[::-1]) for unit in np.eye(len(POWERS))]
    log_p = np.tensordot(shares, by_power, axes=1)
    y = np.concatenate([problem.y[folds == fold] for fold in outcome.results])
    return power, HeldOutScore.of(log_p, y)


def _held_out_log_probabilities(
    problem: Problem, out: BoolArray, rng: np.random.Generator
) -> list[FloatArray]:
    """Log probability of each held-out label under each power."""
    others = replace(problem, X=np.ascontiguousarray(problem.X[~out]), y=problem.y[~out])
    found = run_tempering(
        others.log_likelihood,
        others.n_parameters,
        Moves(n_particles=_FOLD_PARTICLES, kept_share=0.5),
        rng=rng,
        jump=others.rescale,
        align=others.align,
    )
    draws = others.parameters(found.draws, rng=rng)
    eta = draws.linear_predictor(problem.X[out])
    y = problem.y[out]
    if problem.target == "regression":
        assert draws.noise_scale is not None
        log_density = regression_log_likelihood(eta, y, draws.noise_scale)
        return [logsumexp(log_density, axis=0) - np.log(len(eta))]
    out_by_power = []
    for power in POWERS:
        log_p = pool_labels(eta, problem.target, problem.priors.lapse, power)
        if problem.target == "multiclass":
            out_by_power.append(log_p[np.arange(len(y)), y])
        else:
            off = np.log(-np.expm1(np.minimum(log_p, -1e-15)))
            out_by_power.append(np.where(y, log_p, off))
    return out_by_power
