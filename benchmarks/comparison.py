"""Comparison of methods: differences on the same splits, ranks over data sets."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
N_RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def paired(differences: np.ndarray) -> Interval:
    """Mean of differences on the same splits, (S,), and its t interval; none for a single split.

    Splits share samples, so that the interval is somewhat too narrow.
    """
    n, mean = len(differences), float(np.mean(differences))
    half = np.nan
    if n > 1:
        error = float(np.std(differences, ddof=1)) / np.sqrt(n)
        half = float(stats.t.ppf(0.5 + LEVEL / 2.0, n - 1)) * error
    return Interval(mean=mean, low=mean - half, high=mean + half)


def mean_ranks(losses: np.ndarray) -> list[Interval]:
    """Mean rank of each of L methods over B data sets, 1 the best, ties shared.

    Parameters
    ----------
    losses : (B, L) or (B, T, L)
        Smaller is better; ranks are within the last axis. The T tasks of a set stay together.

    Returns
    -------
    list of Interval
        Percentile intervals of the bootstrap over data sets.
    """
    ranks = stats.rankdata(losses, axis=-1)
    ranks = ranks.reshape(len(ranks), -1, ranks.shape[-1]).mean(axis=1)  # (B, L)
    drawn = np.random.default_rng(0).integers(len(ranks), size=(N_RESAMPLES, len(ranks)))
    low, high = np.quantile(
        ranks[drawn].mean(axis=1), [0.5 - LEVEL / 2.0, 0.5 + LEVEL / 2.0], axis=0
    )
    return [
        Interval(mean=float(m), low=float(a), high=float(b))
        for m, a, b in zip(ranks.mean(axis=0), low, high, strict=True)
    ]
