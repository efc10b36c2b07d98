"""Settings chosen inside the training rows: scores of held-out rows, and what they are worth."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit, log_softmax

from bsdr_models.numerics.temperature import fit_temperature
from bsdr_models.typing import FloatArray, IntArray

N_FOLDS = 5
# Rows that a cross-validation holds out in all: more would cost time and decide nothing.
MAX_HELD_OUT = 3000

type Scorer = Callable[[IntArray, IntArray], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What cross-validation says of G candidates.

    best
        Index of the chosen one.
    accuracy, log_loss
        Of held-out rows, (G,); the loss is at the best temperature.
    temperature
        Of the chosen candidate: divides scores before they become probabilities.
    """

    best: int
    accuracy: FloatArray
    log_loss: FloatArray
    temperature: float


def deal_folds(groups: IntArray, rng: np.random.Generator, *, n_folds: int = N_FOLDS) -> IntArray:
    """Fold of each row, (N,); -1 for rows that are never held out.

    Rows of a group are dealt out in turn, beginning at a random fold. A group of few rows so
    loses one row at a time, which leaves differences between rows of one class to learn from; a
    row that is alone in its group, or has none (-1), stays in the training rows.

    Parameters
    ----------
    groups : (N,) of int
        Class of each row, -1 without.
    rng : numpy.random.Generator
    n_folds : int
    """
    fold = np.full(len(groups), -1, dtype=np.int64)
    for group in np.unique(groups[groups >= 0]):
        rows = rng.permutation(np.flatnonzero(groups == group))
        if len(rows) > 1:
            fold[rows] = (rng.integers(n_folds) + np.arange(len(rows))) % n_folds
    return fold


def select(
    scorer: Scorer, signs: FloatArray, fold: IntArray, *, exclusive: bool, rng: np.random.Generator
) -> Selection | None:
    """Compare candidates on rows that they did not see; None where no row can be held out.

    The most accurate candidate wins; among equals the one with the smallest log loss.

    Parameters
    ----------
    scorer : callable
        ``scorer(train, test)`` -> scores of the test rows under every candidate, (G, M, K).
    signs : (N, K)
        Targets in {-1, 0, 1}.
    fold : (N,) of int
        From :func:`deal_folds`.
    exclusive : bool
        Whether the outcomes of a row exclude each other (classes) or not (labels).
    rng : numpy.random.Generator
        Thins the held-out rows where they are very many.
    """
    held = np.flatnonzero(fold >= 0)
    if not len(held):
        return None
    chosen = rng.permutation(held)[:MAX_HELD_OUT]
    tested = np.zeros(len(fold), dtype=bool)
    tested[chosen] = True
    pieces, rows = [], []
    for number in np.unique(fold[chosen]):
        test = np.flatnonzero(tested & (fold == number))
        train = np.flatnonzero(fold != number)
        pieces.append(scorer(train, test))
        rows.append(test)
    scores, truth = np.concatenate(pieces, axis=1), signs[np.concatenate(rows)]
    accuracy = np.array([hit_rate(each, truth, exclusive=exclusive) for each in scores])
    log_loss, temperature = np.full(len(scores), np.inf), np.ones(len(scores))
    for index in np.flatnonzero(accuracy >= accuracy.max() - 1e-12):
        temperature[index] = temperature_of(scores[index], truth, exclusive=exclusive)
        log_p = log_probabilities(scores[index] / temperature[index], exclusive=exclusive)
        log_loss[index] = -_log_likelihood(log_p, truth, exclusive=exclusive)
    best = int(log_loss.argmin())
    return Selection(
        best=best, accuracy=accuracy, log_loss=log_loss, temperature=float(temperature[best])
    )


def hit_rate(scores: FloatArray, signs: FloatArray, *, exclusive: bool) -> float:
    """Share of rows (or of labels) that the scores put on the right side."""
    if exclusive and scores.shape[1] > 1:
        return float(np.mean(scores.argmax(axis=1) == signs.argmax(axis=1)))
    known = signs != 0.0
    return float(np.mean((scores * signs)[known] > 0.0))


def temperature_of(scores: FloatArray, signs: FloatArray, *, exclusive: bool) -> float:
    """Temperature under which held-out scores make the best probabilities."""
    if exclusive and scores.shape[1] > 1:
        return fit_temperature(scores, signs.argmax(axis=1))
    known = signs != 0.0
    return fit_temperature(scores[known][:, None], (signs[known] > 0.0).astype(np.int64))


def log_probabilities(scores: FloatArray, *, exclusive: bool) -> FloatArray:
    """Log probabilities of the classes (two columns for one score), or of each label being on."""
    if exclusive and scores.shape[1] == 1:
        return np.column_stack([log_expit(-scores[:, 0]), log_expit(scores[:, 0])])
    found: FloatArray = log_softmax(scores, axis=1) if exclusive else log_expit(scores)
    return found


def _log_likelihood(log_p: FloatArray, signs: FloatArray, *, exclusive: bool) -> float:
    """Mean log probability of what was observed."""
    if exclusive:
        truth = signs.argmax(axis=1) if signs.shape[1] > 1 else (signs[:, 0] > 0.0).astype(int)
        return float(log_p[np.arange(len(truth)), truth].mean())
    with np.errstate(divide="ignore"):
        off = np.log(-np.expm1(np.minimum(log_p, -1e-300)))
    return float(np.where(signs > 0.0, log_p, off)[signs != 0.0].mean())
