r"""Cross-validation of settings and softmax temperature.

The candidate with the smallest held-out log loss is chosen, each at its own best temperature.
This rule was selected on faces, tumours and news (2 to 5 samples per class, on splits that no
published figure uses). Accuracy instead loses up to 2 points, being too coarse for few held-out
samples; averaging neighbouring numbers of sweeps loses 1 more. The fewest sweeps within one
standard error of the best gain 1 to 2 points on two of four data sets and nothing on the others.

The two variants need different folds.

- The paper's variant overfits with the number of sweeps, and how fast depends on the size of the
  classes. A fold should keep the class sizes equal, so there are as many folds as a class has
  samples (`balanced_folds`). Five folds for classes of two samples choose too many sweeps, and
  lose 1.6 points on ORL.
- The within-class metric of the label-free variant needs two samples of one class. Five folds
  with one sample of a class in each leave some classes whole. Its cost matters
  only if samples outnumber features: with classes that are barely separable, or barely not, a
  cost of 10 overfits (digits, one-vs-rest: log loss 0.42, or 0.17 with the cost chosen).

At most `MAX_SAMPLES` are used, and folds are skipped once `ENOUGH_SAMPLES` have been held out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit, log_softmax

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.metrics import HeldOutScore
from bsdr_models.numerics.temperature import fit_temperature

N_FOLDS = 5
# Most labelled samples of a cross-validation.
MAX_SAMPLES = 1250
# With so many held-out samples the standard error of the mean log loss is about 0.05.
ENOUGH_SAMPLES = 500

type Scorer = Callable[[IntArray, IntArray], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Result of the cross-validation of G candidates.

    best
        Index of the chosen candidate.
    accuracy, log_loss
        Of held-out samples, (G,); the loss is at the best temperature.
    temperature
        Softmax temperature of the chosen candidate.
    held_out
        Log score of the chosen candidate at that temperature, both chosen by the same samples.
    """

    best: int
    accuracy: FloatArray
    log_loss: FloatArray
    temperature: float
    held_out: HeldOutScore


def subsample(groups: IntArray, keys: IntArray) -> IntArray:
    """Stratified subsample of at most `MAX_SAMPLES` of the labelled samples, and all others.

    ``groups`` (N,) is the class of each sample, -1 without; ``keys`` (N,) are
    :func:`~bsdr_models.numerics.folds.sample_keys`.
    """
    rank = np.full(len(groups), -1.0)
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        rank[members[np.argsort(keys[members], kind="stable")]] = np.arange(len(members))
        rank[members] /= len(members)
    grouped = np.flatnonzero(groups >= 0)
    kept = grouped[np.argsort(rank[grouped], kind="stable")[:MAX_SAMPLES]]
    return np.sort(np.concatenate([kept, np.flatnonzero(groups < 0)]))


def balanced_folds(groups: IntArray) -> int:
    """As many folds as the median class has samples, from 2 to `N_FOLDS`."""
    sizes = np.bincount(groups[groups >= 0])
    return int(np.clip(np.median(sizes[sizes > 0]), 2, N_FOLDS))


def select(
    scorer: Scorer,
    signs: FloatArray,
    fold: IntArray,
    *,
    exclusive: bool,
    n_jobs: int | None = 1,
    on_done: Callable[[FloatArray], object] = lambda scores: None,
) -> Selection | None:
    """Compare candidates on held-out samples; None if no sample can be held out.

    Parameters
    ----------
    scorer : callable
        ``scorer(train, test)`` -> held-out class scores of every candidate, (G, M, K).
    signs : (N, K)
        Targets in {-1, 0, 1}.
    fold : (N,) of int
        From :func:`~bsdr_models.numerics.folds.assign_folds`.
    exclusive : bool
        Whether classes exclude each other; False for several labels.
    n_jobs : int, optional
        Folds that run in parallel.
    on_done : callable
        Called with the class scores of each fold.

    Raises
    ------
    KeyboardInterrupt
        If the user stops the comparison.
    """
    rows: list[IntArray] = []
    for number in np.unique(fold[fold >= 0]):
        rows.append(np.flatnonzero(fold == number))
        if sum(map(len, rows)) >= ENOUGH_SAMPLES:
            break
    if not rows:
        return None

    def held_out(test: IntArray) -> FloatArray:
        return scorer(np.flatnonzero(fold != fold[test[0]]), test)

    outcome = run_tasks(held_out, rows, n_jobs=n_jobs, what="folds", on_done=on_done)
    if outcome.interrupted:
        raise KeyboardInterrupt
    scores = np.concatenate(list(outcome.results.values()), axis=1)
    truth = signs[np.concatenate([rows[number] for number in outcome.results])]
    temperature = np.empty(len(scores))
    scored: list[HeldOutScore] = []
    for index, each in enumerate(scores):
        temperature[index] = temperature_of(each, truth, exclusive=exclusive)
        log_p = log_probabilities(each / temperature[index], exclusive=exclusive)
        scored.append(_held_out_score(log_p, truth, exclusive=exclusive))
    log_loss = np.array([-each.score for each in scored])
    best = int(log_loss.argmin())
    return Selection(
        best=best,
        accuracy=np.array([_accuracy(each, truth, exclusive=exclusive) for each in scores]),
        log_loss=log_loss,
        temperature=float(temperature[best]),
        held_out=scored[best],
    )


def _accuracy(scores: FloatArray, signs: FloatArray, *, exclusive: bool) -> float:
    """Accuracy over samples, or over the entries of several labels."""
    if exclusive and scores.shape[1] > 1:
        return float(np.mean(scores.argmax(axis=1) == signs.argmax(axis=1)))
    known = signs != 0.0
    return float(np.mean((scores * signs)[known] > 0.0))


def temperature_of(scores: FloatArray, signs: FloatArray, *, exclusive: bool) -> float:
    """Temperature of the smallest log loss."""
    if exclusive and scores.shape[1] > 1:
        return fit_temperature(scores, signs.argmax(axis=1))
    known = signs != 0.0
    return fit_temperature(scores[known][:, None], (signs[known] > 0.0).astype(np.int64))


def log_probabilities(scores: FloatArray, *, exclusive: bool) -> FloatArray:
    """Log probabilities of the classes (two columns for one score), or of each label."""
    if exclusive and scores.shape[1] == 1:
        return np.column_stack([log_expit(-scores[:, 0]), log_expit(scores[:, 0])])
    found: FloatArray = log_softmax(scores, axis=1) if exclusive else log_expit(scores)
    return found


def _held_out_score(log_p: FloatArray, signs: FloatArray, *, exclusive: bool) -> HeldOutScore:
    """Log score of the observed targets."""
    if exclusive:
        truth = signs.argmax(axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0.0).astype(int)
        return HeldOutScore.of(log_p[np.arange(len(truth)), truth], truth)
    with np.errstate(divide="ignore"):
        off = np.log(-np.expm1(np.minimum(log_p, -1e-300)))
    each = np.where(signs > 0.0, log_p, off)
    return HeldOutScore.of(np.where(signs != 0.0, each, np.nan), signs)
