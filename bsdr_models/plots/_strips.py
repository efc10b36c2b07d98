"""Plots of one latent component: a strip of points, intervals and a density per class."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from scipy.stats import norm

from bsdr_models.arrays import FloatArray
from bsdr_models.plots._ellipses import spread_samples
from bsdr_models.plots._read import Target, Values
from bsdr_models.plots._style import GREY, POSITIVE, color, marker

N_DENSITY = 400  # grid points of a density curve
MAX_DENSITY_SAMPLES = 2000  # samples per density, spread evenly


def draw_strips(
    ax: Axes, mean: FloatArray, sd: FloatArray, target: Target, prob: float, max_bars: int
) -> FloatArray:
    """Draw coordinates N(mean_n, sd_n), both (N,), in a strip per class or against values.

    Returns where each sample is drawn, (N, 2).
    """
    reach = norm.ppf(0.5 + prob / 2.0) * sd
    if isinstance(target, Values):
        _draw_samples(ax, mean, target.values, reach, POSITIVE, "o", max_bars)
        ax.set_ylabel(target.title)
        return np.column_stack([mean, target.values])
    names: tuple[str, ...]
    if target is None:
        index, names, title = np.zeros(len(mean), np.int64), ("all samples",), ""
    else:
        index, names, title = target.index, target.names, target.title
    grid = np.linspace((mean - reach).min(), (mean + reach).max(), N_DENSITY)
    present = np.unique(index).tolist()
    densities = [_density(grid, mean[index == c], sd[index == c]) for c in present]
    # One scale for all classes, so that all curves enclose equal areas.
    scale = 0.62 / np.max(densities)
    at = np.column_stack([mean, index.astype(np.float64)])
    for c, density in zip(present, densities, strict=True):
        shade = color(c) if title else GREY
        ridge = np.where(density > 1e-3 * density.max(), c - scale * density, np.nan)
        ax.fill_between(grid, c, ridge, color=shade, alpha=0.25, linewidth=0.0, zorder=1)
        ax.plot(grid, ridge, color=shade, linewidth=1.2, zorder=2)
        of = index == c
        # Golden-ratio offsets: deterministic jitter.
        at[of, 1] += 0.08 + 0.2 * ((np.arange(of.sum()) * 0.618034) % 1.0)
        limit = max(max_bars // len(present), 1)
        _draw_samples(ax, mean[of], at[of, 1], reach[of], shade, marker(c), limit)
    lowest = min(int(index.min()), 0)  # -1 if some samples have no label
    if lowest < 0:
        ax.set_yticks(range(-1, len(names)), ("no label", *names))
    else:
        ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.6, lowest - 0.75)
    ax.grid(axis="y", visible=False)
    ax.set_ylabel(title)
    return at


def _density(grid: FloatArray, mean: FloatArray, sd: FloatArray) -> FloatArray:
    some = spread_samples(np.zeros(len(mean), np.int64), MAX_DENSITY_SAMPLES)
    return np.asarray(norm.pdf(grid[:, None], mean[some], sd[some]).mean(axis=1))


def _draw_samples(
    ax: Axes,
    x: FloatArray,
    y: FloatArray,
    reach: FloatArray,
    shade: str,
    symbol: str,
    max_bars: int,
) -> None:
    """Points, and the intervals of at most `max_bars` of them."""
    some = spread_samples(np.zeros(len(x), np.int64), max_bars)
    ends = [np.column_stack([x + side * reach, y])[some] for side in (-1.0, 1.0)]
    bars = LineCollection(list(np.stack(ends, axis=1)), colors=shade, linewidths=0.8, alpha=0.4)
    bars.set(zorder=2.5, gid="obs-bars")
    ax.add_collection(bars)
    ax.scatter(x, y, s=14, c=shade, marker=symbol, edgecolors="white", linewidths=0.4, zorder=3)
