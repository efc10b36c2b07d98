"""Slice sampling along a line, for many chains at once."""

from collections.abc import Callable

import numpy as np

from bsdr_models.arrays import FloatArray

# A bracket shrinks by a quarter or more in expectation, so this many steps reach rounding.
_MAX_SHRINKS = 500


def draw_slices(
    log_density: Callable[[FloatArray], FloatArray],
    width: float,
    *,
    n_chains: int,
    rng: np.random.Generator,
) -> FloatArray:
    """One slice sampling step of each chain along its line, from 0.

    A bracket of fixed width is placed at random around 0 and shrinks towards 0 at every point below
    the slice [1]_. With the angle of an ellipse and a width of 2 pi, this is elliptical slice
    sampling [2]_.

    Parameters
    ----------
    log_density : callable
        Of displacements, (C,) -> (C,), up to a constant per chain.
    width : float
        Of the bracket; affects only speed.
    n_chains : int
        C.
    rng : numpy.random.Generator

    Returns
    -------
    (C,)
        Displacements.

    References
    ----------
    .. [1] R. M. Neal (2003). Slice sampling. The Annals of Statistics 31(3).
    .. [2] I. Murray, R. P. Adams, D. J. C. MacKay (2010). Elliptical slice sampling. AISTATS.
    """
    level = log_density(np.zeros(n_chains)) - rng.standard_exponential(n_chains)
    low = -width * rng.random(n_chains)
    high = low + width
    found = np.zeros(n_chains)
    searching = np.ones(n_chains, dtype=bool)
    for _ in range(_MAX_SHRINKS):
        trial = np.where(searching, rng.uniform(low, high), found)
        accepted = searching & (log_density(trial) > level)
        found = np.where(accepted, trial, found)
        searching &= ~accepted
        if not searching.any():
            break
        low = np.where(searching & (trial < 0.0), trial, low)
        high = np.where(searching & (trial >= 0.0), trial, high)
    return found
