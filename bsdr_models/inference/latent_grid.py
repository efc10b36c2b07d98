"""Class probabilities on a grid over one or two latent coordinates, for maps."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from bsdr_models.inference.dims import COMPONENT, GRID_X, GRID_Y, LABEL, OBS
from bsdr_models.numerics.arrays import FloatArray, IntArray

# Grid points along each axis.
RESOLUTION = 45
# Share of the samples that determines the axes.
CENTRAL = 0.96
# Part of their range by which axes may reach farther on each side.
REACH = 0.35
# Margin on each side, as a part of the range of the axes.
MARGIN = 0.05

VARIABLE = "class_probability"

type LogProbabilities = Callable[[FloatArray], FloatArray]


def axis_limits(latent: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends of the axes of a map, each (R,), for latent coordinates (M, R).

    At most 1.9 times the range of the central 96 % of the samples, so that single samples far from
    all others do not determine the axes.
    """
    tail = 0.5 * (1.0 - CENTRAL)
    first, last = np.quantile(latent, [tail, 1.0 - tail], axis=0)
    range_ = last - first
    low = np.maximum(latent.min(axis=0), first - REACH * range_)
    high = np.minimum(latent.max(axis=0), last + REACH * range_)
    size = high - low
    # All samples at one point.
    size = np.where(size > 0.0, size, np.maximum(np.abs(low), 1.0))
    return low - MARGIN * size, high + MARGIN * size


def add_class_probability(tree: xr.DataTree, group: str, log_proba: LogProbabilities) -> None:
    """Add class probabilities over the plane of a group, if it has at most two components."""
    dataset = tree[group].to_dataset()
    latent = dataset["latent_mean"].transpose(OBS, COMPONENT).values
    if latent.shape[1] <= 2:
        tree[group] = xr.DataTree(dataset.merge(evaluate_on_grid(latent, log_proba)))


def evaluate_on_grid(latent: FloatArray, log_proba: LogProbabilities) -> xr.Dataset:
    """Class probabilities on a grid that covers the map of samples (M, R), for R of 1 or 2.

    ``class_probability`` is (grid_x, outcome) or (grid_y, grid_x, outcome), with the latent
    coordinates of the grid; ``log_proba`` maps latent coordinates (G, R) to (G, K).
    """
    low, high = axis_limits(latent)
    axes = [np.linspace(*ends, RESOLUTION) for ends in zip(low, high, strict=True)]
    # The first coordinate varies fastest.
    points = np.stack(np.meshgrid(*reversed(axes), indexing="ij")[::-1], axis=-1)
    probability = np.exp(log_proba(points.reshape(-1, len(axes))))
    dims = (GRID_Y, GRID_X)[2 - len(axes) :]
    return xr.Dataset(
        {VARIABLE: ((*dims, LABEL), probability.reshape(*points.shape[:-1], -1))},
        coords=dict(zip(reversed(dims), axes, strict=True)),
    )


def class_at(probability: xr.DataArray, at: FloatArray) -> IntArray:
    """Most probable class at the grid points next to places (M, R): (M,)."""
    dims = (GRID_X, GRID_Y)[: at.shape[1]]
    places = {dim: xr.DataArray(values, dims=OBS) for dim, values in zip(dims, at.T, strict=True)}
    return np.asarray(probability.sel(places, method="nearest").argmax(LABEL))
