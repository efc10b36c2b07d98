"""Densities of one variable on equally spaced nodes, between which they are found by a search."""

from collections.abc import Callable

import numpy as np
from scipy.interpolate import Akima1DInterpolator
from scipy.special import logsumexp

from bsdr_models.numerics.arrays import FloatArray

# Nodes of a grid.
_NODES = 81
# Densities are negligible so many nats below the maximum.
_NEGLIGIBLE = 20.0
# Nodes of each of the coarser grids that find where densities matter.
_SEARCHED = 25
# Most of these grids.
_ROUNDS = 16
# Parts into which quantiles divide a cell of a grid.
_PARTS = 8


def make_grid(
    log_density: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Nodes (..., G) between bounds (...) where densities are not negligible, and their log."""
    for _ in range(_ROUNDS):
        nodes = np.linspace(low, high, _SEARCHED, axis=-1)
        value = log_density(nodes)
        matters = value > value.max(axis=-1, keepdims=True) - _NEGLIGIBLE
        first = np.maximum(matters.argmax(axis=-1) - 1, 0)
        last = np.minimum(_SEARCHED - matters[..., ::-1].argmax(axis=-1), _SEARCHED - 1)
        ends = (np.take_along_axis(nodes, end[..., None], axis=-1) for end in (first, last))
        low, high = (end[..., 0] for end in ends)
        if (3 * (last - first) >= 2 * _SEARCHED).all():
            break
    nodes = np.linspace(low, high, _NODES, axis=-1)
    return nodes, log_density(nodes)


def log_integral(nodes: FloatArray, log_density: FloatArray) -> FloatArray:
    """Log of the integral over equally spaced nodes (..., G), (...)."""
    step = np.log(nodes[..., 1] - nodes[..., 0])
    return np.asarray(logsumexp(log_density, axis=-1) + step)


def quantile(nodes: FloatArray, log_density: FloatArray, level: FloatArray) -> FloatArray:
    """Quantiles (S,) of a density on nodes (G,), interpolated; draws if levels are uniform."""
    fine = np.linspace(nodes[0], nodes[-1], 1 + _PARTS * (len(nodes) - 1))
    least = log_density.max() - 2.0 * _NEGLIGIBLE
    log_density = Akima1DInterpolator(nodes, np.maximum(log_density, least))(fine)
    share = np.exp(log_density - logsumexp(log_density))
    return np.interp(level, np.cumsum(share) - 0.5 * share, fine)
