"""How good class probabilities are, with the uncertainty of saying so from few rows.

Averages over rows come with intervals from the Bayesian bootstrap [1]_: rows get random weights,
independent exponentials divided by their sum.

References
----------
.. [1] D. B. Rubin (1981). The Bayesian bootstrap. Annals of Statistics 9(1).
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from bsdr_models.arrays import BoolArray, FloatArray, IntArray

# Random weights of rows: how many sets of them, and how many numbers are held at once.
N_RESAMPLES, BLOCK = 1000, 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What some rows give for a number, and an interval for what all rows would give."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def expected_calibration_error(
    probability: ArrayLike, y_index: ArrayLike, *, n_bins: int = 10
) -> float:
    """Mean gap between how sure the predictions are and how often they are right.

    Rows are put into bins of equal width by the probability of their most probable class.

    Parameters
    ----------
    probability : array-like of shape (n_samples, n_classes)
    y_index : array-like of shape (n_samples,)
        Column of the true class.
    n_bins : int

    Returns
    -------
    float
        Between 0 and 1.
    """
    sure, right, bins = _most_probable(np.asarray(probability), np.asarray(y_index), n_bins)
    gap = np.bincount(bins, weights=sure - right, minlength=n_bins)
    return float(np.abs(gap).sum() / len(sure))


def score_probabilities(
    probability: ArrayLike,
    y_index: ArrayLike,
    *,
    n_bins: int = 10,
    prob: float = 0.9,
    rng: np.random.Generator,
) -> dict[str, Estimate]:
    """Log loss, Brier score and calibration error of class probabilities, with intervals.

    Smaller is better in all three. The first two are proper scores; the third alone does not
    tell good probabilities from the frequencies of the classes.

    Parameters
    ----------
    probability : array-like of shape (n_samples, n_classes)
    y_index : array-like of shape (n_samples,)
        Column of the true class.
    n_bins : int
        Bins of equal width, for the calibration error.
    prob : float
        Probability that an interval holds.
    rng : numpy.random.Generator
        Of the random weights.

    Returns
    -------
    dict of str to Estimate
        ``log_loss`` (nats), ``brier`` and ``calibration_error``.
    """
    probability, y_index = np.asarray(probability, dtype=np.float64), np.asarray(y_index)
    sure, right, bins = _most_probable(probability, y_index, n_bins)
    return {
        "log_loss": mean_of_samples(log_losses(probability, y_index), prob=prob, rng=rng),
        "brier": mean_of_samples(brier_scores(probability, y_index), prob=prob, rng=rng),
        "calibration_error": calibration_error(
            sure[:, None], right[:, None], bins[:, None], prob=prob, rng=rng
        ),
    }


def log_losses(probability: FloatArray, y_index: IntArray) -> FloatArray:
    """Minus the log probability of each row's class, (N,), in nats.

    As in scikit-learn's ``log_loss``, which is their mean, zero counts as the machine's precision.
    """
    given = probability[np.arange(len(y_index)), y_index]
    return -np.log(np.maximum(given, np.finfo(np.float64).eps))


def brier_scores(probability: FloatArray, y_index: IntArray) -> FloatArray:
    """Squared distance of each row's probabilities from certainty of its class, (N,).

    For two classes half of it, as in scikit-learn's ``brier_score_loss``, which is their mean.
    """
    k = probability.shape[1]
    square = np.sum((probability - np.eye(k)[y_index]) ** 2, axis=1)
    return square / 2.0 if k == 2 else square


def mean_of_samples(values: FloatArray, *, prob: float, rng: np.random.Generator) -> Estimate:
    """Mean of independent rows, (N,), between the quantiles of its resampled values."""
    low, high = np.quantile(_resampled_means(values[:, None], rng)[:, 0], _tails(prob))
    return Estimate(value=float(values.mean()), low=float(low), high=float(high))


def calibration_error(
    stated: FloatArray,
    happened: BoolArray,
    bins: IntArray,
    *,
    prob: float,
    rng: np.random.Generator,
) -> Estimate:
    r"""Expected calibration error of J statements in each of N rows, with an interval.

    Chance alone makes gaps, so that the error e which is seen is too large, and resampled ones
    :math:`e^*` once more so: their quantiles would never hold the zero of perfect probabilities.
    The interval is reflected below, from :math:`2e - e^*_{high}`, or from zero unless e is more
    than perfect probabilities show by chance, for which the gap of a bin is taken as normal; and
    it ends as far above e as resampled errors reach beyond their median. In simulations of 60 to
    1000 rows, intervals asked to hold in 90 % of the cases held in 89 to 96 %.

    Parameters
    ----------
    stated, happened, bins : (N, J)
        Probabilities, outcomes, and the bin of each statement, from 0.
    prob : float
        Probability that the interval holds.
    rng : numpy.random.Generator
    """
    n, j = stated.shape
    n_bins = int(bins.max()) + 1
    place = (np.arange(n)[:, None] * n_bins + bins).ravel()
    gaps = np.bincount(place, weights=(stated - happened).ravel() / j, minlength=n * n_bins)
    gaps = gaps.reshape(n, n_bins)
    error = float(np.abs(gaps.mean(axis=0)).sum())
    _, high = _tails(prob)
    resampled = np.abs(_resampled_means(gaps, rng)).sum(axis=1)
    middle, top = np.quantile(resampled, [0.5, high])
    variance = np.bincount(bins.ravel(), weights=(stated * (1.0 - stated)).ravel())
    chance = np.sqrt(variance) * rng.standard_normal((N_RESAMPLES, n_bins)) / (n * j)
    by_chance = error <= np.quantile(np.abs(chance).sum(axis=1), high)
    least = 0.0 if by_chance else max(2.0 * error - float(top), 0.0)
    return Estimate(value=error, low=least, high=error + float(top - middle))


def area_under_curve(score: FloatArray, positive: BoolArray, *, prob: float) -> Estimate:
    r"""Area under the ROC curve, with an interval that is wide even where the area is one.

    The area A is the share of pairs of a positive and a negative row in which the positive one has
    the larger score, ties counting one half. The interval are the A with
    :math:`|A - \hat A| \le z \sqrt{V(A)}`,

    .. math::
        V(A) = \frac{A (1 - A)}{m n} \left[
            1 + N^* \frac{1 - A}{2 - A} + N^* \frac{A}{1 + A} \right],
        \qquad N^* = \frac{m + n}{2} - 1

    [1]_: as for a proportion, the variance is that of the end of the interval.

    Parameters
    ----------
    score : (N,)
    positive : (N,)
        Which rows are positive: m of them, n of the others, none of the two zero.
    prob : float
        Probability that the interval holds.

    References
    ----------
    .. [1] R. G. Newcombe (2006). Confidence intervals for an effect size measure based on the
           Mann-Whitney statistic. Part 2: asymptotic methods and evaluation. Statistics in
           Medicine 25(4), 559-573. Method 5.
    """
    above, below = score[positive], np.sort(score[~positive])
    m, n = len(above), len(below)
    if not m or not n:
        raise ValueError(f"an area needs rows of both kinds, got {m} positive and {n} others")
    smaller = np.searchsorted(below, above, side="left") + np.searchsorted(below, above, "right")
    area = float(smaller.mean()) / (2.0 * n)
    z, mean_size = NormalDist().inv_cdf(0.5 + prob / 2.0), (m + n) / 2.0 - 1.0

    def beyond(a: float) -> bool:
        """Whether an end at a would be too far out."""
        extra = mean_size * ((1.0 - a) / (2.0 - a) + a / (1.0 + a))
        return (a - area) ** 2 > z**2 * a * (1.0 - a) * (1.0 + extra) / (m * n)

    ends = []
    for border in (0.0, 1.0):
        inner, outer = area, border
        for _ in range(60):
            middle = 0.5 * (inner + outer)
            inner, outer = (inner, middle) if beyond(middle) else (middle, outer)
        ends.append(inner)
    return Estimate(value=area, low=ends[0], high=ends[1])


def _most_probable(
    probability: FloatArray, y_index: IntArray, n_bins: int
) -> tuple[FloatArray, BoolArray, IntArray]:
    """How sure each row's prediction is, whether it is right, and in which bin, (N,) each."""
    sure = probability.max(axis=1)
    bins = np.minimum((sure * n_bins).astype(np.int64), n_bins - 1)
    return sure, probability.argmax(axis=1) == y_index, bins


def _tails(prob: float) -> tuple[float, float]:
    """Levels of the two quantiles between which that probability lies."""
    return 0.5 - 0.5 * prob, 0.5 + 0.5 * prob


def _resampled_means(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Means of the rows (N, C) under random weights, (S, C)."""
    out = np.empty((N_RESAMPLES, rows.shape[1]))
    size = max(1, BLOCK // len(rows))
    for begin in range(0, N_RESAMPLES, size):
        weights = rng.standard_exponential((min(size, N_RESAMPLES - begin), len(rows)))
        out[begin : begin + size] = (weights @ rows) / weights.sum(axis=1, keepdims=True)
    return out
