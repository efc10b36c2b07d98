"""Comparison of methods: differences on the same splits, ranks over data sets."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean over splits, its t interval, and on how many splits it was above zero.

    The interval assumes independent splits. They share samples, so it is somewhat too narrow.
    """

    mean: float
    low: float
    high: float
    above: int
    n: int


def paired(differences: np.ndarray) -> Difference:
    """Summary of differences on the same splits, (S,); no interval for a single split."""
    n, mean = len(differences), float(np.mean(differences))
    half = np.nan
    if n > 1:
        error = float(np.std(differences, ddof=1)) / np.sqrt(n)
        half = float(stats.t.ppf(0.5 + LEVEL / 2.0, n - 1)) * error
    above = int(np.sum(differences > 0.0))
    return Difference(mean=mean, low=mean - half, high=mean + half, above=above, n=n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Ranks of L methods over B data sets, 1 the best, ties shared.

    average
        Mean rank of each method, (L,).
    p_value
        Of Friedman's test of equal methods.
    critical
        Smallest difference of mean ranks that is significant by Nemenyi's test at 5 %.
    """

    average: np.ndarray
    p_value: float
    critical: float


def rank(losses: np.ndarray) -> Ranking:
    """Rank methods by a score, smaller is better, (B, L), after Demsar (2006).

    Raises
    ------
    ValueError
        If there are fewer than three methods or two data sets.
    """
    n_sets, n_methods = losses.shape
    if n_methods < 3 or n_sets < 2:
        raise ValueError(f"ranks need 3 methods and 2 sets, got {n_methods} and {n_sets}")
    ranks = stats.rankdata(losses, axis=1)
    q = stats.studentized_range.ppf(LEVEL, n_methods, np.inf) / np.sqrt(2.0)
    return Ranking(
        average=ranks.mean(axis=0),
        p_value=float(stats.friedmanchisquare(*losses.T).pvalue),
        critical=float(q * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_sets))),
    )


def cliques(average: np.ndarray, critical: float) -> list[tuple[float, float]]:
    """Longest runs of mean ranks without significant differences, as (first, last)."""
    ordered = np.sort(average)
    runs: list[tuple[float, float]] = []
    for first in ordered:
        last = ordered[ordered <= first + critical].max()
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((float(first), float(last)))
    return runs
