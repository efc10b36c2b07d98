"""Layers of a map of samples: background, points, their own uncertainty, strips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Polygon
from scipy.ndimage import zoom
from scipy.stats import chi2, gaussian_kde

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.dims import GRID_X, GRID_Y, LABEL
from bsdr_models.latent_grid import axis_limits
from bsdr_models.numerics.folds import evenly_spaced
from bsdr_models.plots._read import Classes, Target, Values
from bsdr_models.plots._style import (
    GREY,
    HALO,
    INK,
    SHADES,
    add_legend,
    axes_or_new,
    color,
    figure_of,
    marker,
)

# Steps of the probability of the predicted class, and the opacity above each of them; the one below
# which a prediction is doubtful.
STEPS, OPACITY = (0.5, 0.7, 0.9), (0.0, 0.16, 0.32, 0.5)
SURE = STEPS[1]
# Samples of an outline are few enough to be told apart; probability that it holds, and the standard
# deviations from the middle to its ends in one dimension and in two.
MAX_OUTLINES, OUTLINE, REACH = 200, 0.5, {1: 0.6745, 2: 1.1774}
N_VERTICES = 73  # of an ellipse: one every five degrees, the first repeated
# Pixels of a grid cell of the background along each axis.
SHARPEN = 8
# Class names up to this length are drawn in place of points, if there are many classes and not too
# many samples.
SHORT, MANY, MOST_WRITTEN = 2, 5, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Places (M, 2), target, and, if known, class probabilities (M, K) and groups."""

    at: FloatArray
    target: Target
    probability: FloatArray | None = None
    groups: Classes | None = None

    @property
    def doubtful(self) -> BoolArray:
        """Whether the largest probability of a sample is small, (M,)."""
        if self.probability is None:
            return np.zeros(len(self.at), dtype=bool)
        return np.asarray(self.probability.max(axis=1) < SURE)

    @property
    def wrong(self) -> BoolArray:
        """Whether the predicted class is not the true one, (M,)."""
        target = self.target
        if self.probability is None or not isinstance(target, Classes) or target.title != "class":
            return np.zeros(len(self.at), dtype=bool)
        return (self.probability.argmax(axis=1) != target.index) & (target.index >= 0)


def class_colors(
    target: Target, palette: Sequence[Any] | Mapping[Any, Any] | None = None
) -> list[Any]:
    """Colour of each class."""
    names = target.names if isinstance(target, Classes) else ()
    if palette is None:
        return [color(c) for c in range(len(names))]
    if isinstance(palette, Mapping):
        by_name = {str(name): shade for name, shade in palette.items()}
        if missing := [name for name in names if name not in by_name]:
            raise ValueError(f"palette has no colour for {missing}")
        return [by_name[name] for name in names]
    if len(palette) < len(names):
        raise ValueError(f"palette has {len(palette)} colours for {len(names)} classes")
    return list(palette)


def tint(shade: Any, opacity: float) -> FloatArray:
    return 1.0 - opacity * (1.0 - np.array(to_rgb(shade)))


def draw_points(
    ax: Axes | None, at: FloatArray, target: Target, *, alpha: float = 1.0, **size: float
) -> Axes:
    """Draw points (N, 2) by class or value, and a legend; in new Axes if none are given."""
    names = target.names if isinstance(target, Classes) else ()
    ax = axes_or_new(ax, n_names=len(names), **size)
    others = len(ax.collections)
    draw_samples(ax, Samples(at=at, target=target), class_colors(target))
    for points in ax.collections[others:]:
        points.set_alpha(alpha)
    if isinstance(target, Classes):
        add_legend(ax, title=target.title)
    return ax


def draw_samples(ax: Axes, samples: Samples, colors: list[Any], *, may_write: bool = False) -> bool:
    """Draw the points; whether class names were written in place of them.

    The colour is that of the class or value, the marker that of the class or, if given, the group.
    """
    at, target, doubtful = samples.at, samples.target, samples.doubtful
    index = target.index if isinstance(target, Classes) else np.full(len(at), -1)
    if may_write and samples.groups is None and isinstance(target, Classes):
        short = max(map(len, target.names)) <= SHORT and len(target.names) > MANY
        if short and len(at) <= MOST_WRITTEN:
            _write_points(ax, samples, target, colors)
            _ring(ax, samples, 75.0)
            return True
    size = float(np.clip(26.0 * (150.0 / max(len(at), 1)) ** 0.35, 10.0, 32.0))
    signs = index if samples.groups is None else samples.groups.index
    labelled = set()
    for c, sign, hollow in np.unique(np.column_stack([index, signs, doubtful]), axis=0).tolist():
        which = (index == c) & (signs == sign) & (doubtful == hollow)
        shade, symbol = GREY if c < 0 else colors[c], marker(sign)
        area = size * (1.5 if symbol in "PX*" else 1.0)
        points = ax.scatter(at[which, 0], at[which, 1], s=area, marker=symbol)
        points.set(
            facecolors="white" if hollow else shade,
            edgecolors=shade if hollow else "white",
            linewidths=1.3 if hollow else 0.5,
            zorder=4 + hollow,
            gid="doubtful" if hollow else "sure",
        )
        if isinstance(target, Values):
            ends = np.nanmin(target.values), np.nanmax(target.values)
            points.set(array=target.values[which], cmap=SHADES, clim=ends)
        elif isinstance(target, Classes) and samples.groups is None and c not in labelled:
            points.set_label(target.name(c))
        labelled.add(c)
    if isinstance(target, Values):
        figure_of(ax).colorbar(points, ax=ax, label=target.title, pad=0.02)
    _ring(ax, samples, 2.9 * size)
    return False


def ring_style(doubtful: BoolArray) -> dict[str, Any]:
    """Rings of wrong predictions (M,), thin and grey around doubtful ones."""
    return {
        "edgecolors": np.where(doubtful, GREY, "black").tolist(),
        "linewidths": np.where(doubtful, 0.6, 1.1).tolist(),
    }


def _ring(ax: Axes, samples: Samples, size: float) -> None:
    """Rings around wrong predictions."""
    if (wrong := samples.wrong).any():
        (x, y), style = samples.at[wrong].T, ring_style(samples.doubtful[wrong])
        ax.scatter(x, y, s=size, facecolors="none", zorder=6, gid="wrong", **style)


def _write_points(ax: Axes, samples: Samples, target: Classes, colors: list[Any]) -> None:
    """Class names as points; pale if doubtful."""
    style: dict[str, Any] = {"fontsize": 7.0, "ha": "center", "va": "center", "zorder": 5}
    style |= {"clip_on": True, "path_effects": HALO}
    for (x, y), c, doubtful in zip(samples.at, target.index, samples.doubtful, strict=True):
        shade = 0.6 * np.array(to_rgb(colors[c] if c >= 0 else GREY))
        text = ax.text(x, y, target.name(int(c)) if c >= 0 else "·", **style)
        text.set(
            color=1.3 * shade if doubtful else shade,
            fontweight="normal" if doubtful else "bold",
            gid="doubtful" if doubtful else "sure",
        )


def draw_background(ax: Axes, probability: xr.DataArray, colors: list[Any]) -> None:
    """Colour of the most probable class, in steps of its probability."""
    dims = [dim for dim in (GRID_Y, GRID_X) if dim in probability.dims]
    values, x = probability.transpose(*dims, LABEL).values, probability[GRID_X].values
    if plane := len(dims) == 2:
        low, high = probability[GRID_Y].values[[0, -1]]
    else:
        values, (low, high) = np.repeat(values[None], 2, axis=0), (0.0, 1.0)
    # Probabilities are smooth and boundaries are not: interpolate first, then take the largest.
    fine = zoom(values, (SHARPEN if plane else 1, SHARPEN, 1), order=1, mode="nearest")
    best, step = fine.argmax(axis=-1), np.digitize(fine.max(axis=-1), STEPS)
    tints = np.array([[tint(shade, opacity) for opacity in OPACITY] for shade in colors])
    limits = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
    ax.imshow(
        tints[best, step],
        origin="lower",
        extent=(x[0], x[-1], low, high),
        aspect="auto",
        interpolation="bilinear",
        zorder=0,
        gid="background",
        transform=ax.transData if plane else ax.get_xaxis_transform(),
    )
    ax.set(**limits)
    if not plane and values.shape[-1] == 2:
        _probability_scale(ax, x, values[0, :, 1], str(probability[LABEL].values[1]))


def _probability_scale(ax: Axes, x: FloatArray, probability: FloatArray, name: str) -> None:
    """Scale on top of a strip of two classes: where the second one has which probability."""
    if probability[-1] < probability[0]:
        x, probability = x[::-1], probability[::-1]
    # Levels too close to be told apart are left out, from the outside.
    levels = [p for p in (0.5, 0.1, 0.9, 0.01, 0.99) if probability[0] < p < probability[-1]]
    places = np.interp(levels, np.maximum.accumulate(probability), x)
    size, across = abs(np.diff(ax.get_xlim()).item()), ax.get_xaxis_transform()
    text: dict[str, Any] = {"fontsize": 7.5, "va": "top", "color": INK, "path_effects": HALO}
    drawn: list[float] = []
    for level, place in zip(levels, places, strict=True):
        if all(abs(place - other) > 0.07 * size for other in drawn):
            drawn.append(place)
            ax.plot([place] * 2, [0.975, 1.0], color=INK, linewidth=0.8, transform=across)
            ax.text(place, 0.965, f"{level:g}", ha="center", transform=across, **text)
    ax.set_xlabel(f"{ax.get_xlabel()}; on top: probability of {name}")


def draw_contours(ax: Axes, samples: Samples, colors: list[Any], share: float) -> None:
    """Highest-density regions of the points of each class that hold a share of them."""
    if not isinstance(samples.target, Classes):
        raise ValueError("contour needs classes, and the samples have none")
    x, y = (np.linspace(*ends, 120) for ends in (ax.get_xlim(), ax.get_ylim()))
    grid = np.stack(np.meshgrid(x, y)).reshape(2, -1)
    for c, shade in enumerate(colors):
        at = samples.at[samples.target.index == c]
        if len(at) < 3 or np.linalg.matrix_rank(at - at.mean(axis=0)) < 2:
            continue
        density = gaussian_kde(at.T)
        level = np.quantile(density(at.T), 1.0 - share)
        height = density(grid).reshape(len(y), len(x))
        lines = ax.contour(x, y, height, levels=[level], colors=[shade], linewidths=1.6)
        lines.set(zorder=3, gid="contour")


def outline(mean: FloatArray, cov: FloatArray, *, prob: float) -> FloatArray:
    """Vertices (M, 73, 2) of the ellipses of highest density that hold `prob` of N(mean, cov)."""
    angle = np.linspace(0.0, 2.0 * np.pi, N_VERTICES)
    circle = np.sqrt(chi2.ppf(prob, df=2)) * np.column_stack([np.cos(angle), np.sin(angle)])
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))[:, None, :]  # root @ root.T = cov
    return np.asarray(mean[:, None, :] + np.einsum("mij,pj->mpi", root, circle))


def spread_samples(group: IntArray, limit: int) -> IntArray:
    """At most `limit` sorted sample indices, spread evenly over the groups, (<= limit,)."""
    return np.sort(np.argsort(group, kind="stable")[evenly_spaced(len(group), limit)])


def draw_outlines(ax: Axes, samples: Samples, cov: FloatArray, index: IntArray) -> None:
    """Own uncertainty of samples, as ellipses or bars."""
    if isinstance(samples.target, Classes):
        index = index[spread_samples(samples.target.index[index], MAX_OUTLINES)]
    index = index[:MAX_OUTLINES]
    if not len(index):
        return
    style: dict[str, Any] = {"linewidths": 0.7, "alpha": 0.6, "zorder": 3, "gid": "own"}
    if cov.shape[1] == 1:
        reach = REACH[1] * np.sqrt(cov[index, 0, 0])
        x, y = samples.at[index].T
        ax.hlines(y, x - reach, x + reach, colors=INK, **style)
        return
    vertices = outline(samples.at[index], cov[index], prob=OUTLINE)
    shapes = PolyCollection(list(vertices), facecolors="none", edgecolors=INK, **style)
    ax.add_collection(shapes, autolim=False)


def draw_typical(ax: Axes, cov: FloatArray) -> list[Artist]:
    """Typical own uncertainty in the lower right corner, at scale, and its name."""
    n_axes = len(cov)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    width = np.array([right - left, top - bottom])
    reach = np.sqrt(np.diag(cov)) * REACH[n_axes]
    part = np.abs(reach / width[:n_axes])
    if not np.all((part > 0.0) & (part < 0.22)):
        return []  # too large to be drawn at scale
    name = "one sample, 50 %"
    text: dict[str, Any] = {"fontsize": 7.0, "color": INK, "path_effects": HALO, "zorder": 8}
    text["ha"] = "right"
    if n_axes == 1:
        end, y = right - 0.02 * width[0], bottom + 0.06 * width[1]
        style: dict[str, Any] = {"color": INK, "capsize": 2.5, "linewidth": 1.0, "zorder": 8}
        ax.errorbar(end - reach[0], y, xerr=reach[0], gid="own", **style)
        return [ax.annotate(name, (end, y), (0, 5), textcoords="offset points", **text)]
    centre = np.array([right, bottom]) + np.array([-1.0, 1.0]) * (reach + 0.02 * width)
    (vertices,) = outline(centre[None], cov[None], prob=OUTLINE)
    shape = Polygon(vertices, fill=False, edgecolor=INK, linewidth=0.9, zorder=7, gid="typical")
    ax.add_patch(shape)
    beside = (right - 2.0 * reach[0] - 0.03 * width[0], bottom + 0.015 * width[1])
    return [shape, ax.text(*beside, name, va="bottom", **text)]


def mark_beyond(ax: Axes, samples: Samples, colors: list[Any]) -> int:
    """Arrowheads at the edge for samples beyond the axes; returns their number."""
    ends = np.array([ax.get_xlim(), ax.get_ylim()]).T
    low, high = ends.min(axis=0), ends.max(axis=0)
    outside = np.flatnonzero(((samples.at < low) | (samples.at > high)).any(axis=1))
    edge = 0.012 * (high - low)
    style: dict[str, Any] = {"markersize": 8.0, "markeredgecolor": "black", "markeredgewidth": 0.6}
    for n in outside:
        at = np.clip(samples.at[n], low + edge, high - edge)
        way = (samples.at[n] - at) / (ends[1] - ends[0])
        angle = float(np.degrees(np.arctan2(way[1], way[0]))) - 90.0
        c = samples.target.index[n] if isinstance(samples.target, Classes) else -1
        shade = colors[c] if c >= 0 else GREY
        ax.plot(*at, marker=(3, 0, angle), color=shade, zorder=8, gid="beyond", **style)
    return len(outside)


def stack_strips(x: FloatArray, target: Target) -> FloatArray:
    """Points of one coordinate, (M,), stacked as in a dot plot in a strip for each class: (M, 2).

    Values of a regression are the height instead.
    """
    if isinstance(target, Values):
        return np.column_stack([x, target.values])
    index = target.index if target is not None else np.zeros(len(x), dtype=np.int64)
    low, high = axis_limits(x[:, None])
    step = (high[0] - low[0]) / 80.0
    bins = np.round((x - low[0]) / step).astype(np.int64)
    at = np.column_stack([low[0] + step * bins, index.astype(np.float64)])
    deepest, depth = 1, np.zeros(len(x))
    for c, b in np.unique(np.column_stack([index, bins]), axis=0):
        stacked = np.flatnonzero((index == c) & (bins == b))
        depth[stacked[np.argsort(x[stacked], kind="stable")]] = np.arange(len(stacked))
        deepest = max(deepest, len(stacked))
    at[:, 1] -= depth * min(0.06, 0.8 / deepest) - 0.32
    return at


def label_strips(ax: Axes, target: Target) -> None:
    if isinstance(target, Values):
        ax.set_ylabel(target.title)
        return
    if target is None:
        ax.set(yticks=[], ylim=(0.5, -0.8))
        return
    lowest = min(int(target.index.min()), 0)
    names = [target.name(c) for c in range(lowest, len(target.names))]
    ax.set_yticks(range(lowest, len(target.names)), names)
    ax.set(ylim=(len(target.names) - 0.4, lowest - 0.8), ylabel=target.title)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
