"""Layers of a map of samples: background, points, their own uncertainty, strips."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from scipy.ndimage import zoom
from scipy.spatial import cKDTree

from bsdr_models.inference.dims import GRID_X, GRID_Y, LABEL
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray
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
    fix_layout,
    literal,
    marker,
)

# Steps of the probability of the predicted class.
STEPS = (0.5, 0.7, 0.9)
# Opacity below the first step and above each of them.
OPACITY = (0.0, 0.16, 0.32, 0.5)
SURE = STEPS[1]
# Standard deviations from the middle to the ends of what holds probability 0.5 in one dimension and
# in two.
REACH = {1: 0.6745, 2: float(np.sqrt(2.0 * np.log(2.0)))}
GOLDEN = 0.6180339887498949  # its multiples fill the unit interval evenly
DARKER = 0.55  # edges of points and names of classes, relative to the colour of the class
# Markers whose area is smaller than that of a circle of the same size, and by how much.
AREA = {"^": 1.3, "v": 1.3, "<": 1.3, ">": 1.3, "P": 1.5, "X": 1.5, "*": 2.0}
# Distance of markers that are moved apart, relative to their diameter: an edge of each is seen.
APART = 0.6
N_MOVES = 100  # rounds, of which a pile of 500 samples needs about 80
MOST_MOVED = 2000  # samples; more overlap anyway
# Pixels of a grid cell of the background along each axis.
SHARPEN = 8
# Candidate places of a name: distance of its edge from the point (points of 1/72 inch), and degrees
# from the direction outwards.
DISTANCES = (5.0, 10.0, 18.0, 28.0, 40.0, 55.0, 75.0, 100.0)
TURNS = (0.0, 20.0, -20.0, 45.0, -45.0, 75.0, -75.0, 110.0, -110.0, 180.0)
NEAR = 9.0  # distance beyond which a line leads from a name to its point
LEADER = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0.0, "shrinkB": 3.0}


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
    def truth(self) -> IntArray:
        """True class of each sample, (M,), -1 without one, or without probabilities."""
        target = self.target
        if self.probability is None or not isinstance(target, Classes) or target.title != "class":
            return np.full(len(self.at), -1)
        return target.index

    @property
    def wrong(self) -> BoolArray:
        """Whether the predicted class is not the true one, (M,)."""
        if self.probability is None:
            return np.zeros(len(self.at), dtype=bool)
        return (self.truth >= 0) & (self.probability.argmax(axis=1) != self.truth)


def marker_size(n_samples: int) -> float:
    """Area of a marker, in square points."""
    return float(np.clip(34.0 * (150.0 / max(n_samples, 1)) ** 0.35, 16.0, 40.0))


def move_apart(ax: Axes, at: FloatArray) -> FloatArray:
    """Places (M, 2) of samples, moved just so far that no marker hides another."""
    if len(at) > MOST_MOVED:
        return at
    fix_layout(figure_of(ax))
    points = 72.0 / figure_of(ax).dpi
    low, high = points * ax.get_window_extent().get_points()
    # Samples at exactly the same place start in different directions.
    turn = 2.0 * np.pi * GOLDEN * np.arange(len(at))
    place = points * ax.transData.transform(at) + 1e-3 * np.stack([np.cos(turn), np.sin(turn)], 1)
    distance = APART * np.sqrt(marker_size(len(at)))
    for _ in range(N_MOVES):
        pairs = cKDTree(place).query_pairs(distance, output_type="ndarray")
        if not len(pairs):
            break
        one, other = pairs.T
        gap = place[one] - place[other]
        push = gap * (distance / np.linalg.norm(gap, axis=1, keepdims=True) - 1.0)
        times = np.bincount(pairs.ravel(), minlength=len(at))[:, None]
        shift = np.zeros_like(place)
        np.add.at(shift, one, push)
        np.add.at(shift, other, -push)
        place = np.clip(place + 0.5 * shift / np.sqrt(np.maximum(times, 1)), low, high)
    return np.asarray(ax.transData.inverted().transform(place / points))


def tint(shade: str, opacity: float) -> FloatArray:
    return 1.0 - opacity * (1.0 - np.array(to_rgb(shade)))


def draw_points(
    ax: Axes | None, at: FloatArray, target: Target, *, alpha: float | None = None, **size: float
) -> Axes:
    """Draw points (N, 2) by class or value, and a legend; in new Axes if none are given."""
    names = target.names if isinstance(target, Classes) else ()
    ax = axes_or_new(ax, n_names=len(names), **size)
    draw_samples(ax, Samples(at=at, target=target), alpha=alpha)
    if isinstance(target, Classes):
        add_legend(ax, class_handles(target), title=target.title)
    return ax


def draw_samples(ax: Axes, samples: Samples, *, alpha: float | None = None) -> None:
    """Draw the points, hollow if doubtful, and rings around those predicted wrongly.

    The colour is that of the class or value, the marker that of the class or, if given, the group.
    """
    at = samples.at
    target = samples.target
    doubtful = samples.doubtful
    index = target.index if isinstance(target, Classes) else np.full(len(at), -1)
    size = marker_size(len(at))
    shades = np.array([to_rgb(color(each)) for each in index.tolist()]).reshape(-1, 3)
    signs = index if samples.groups is None else samples.groups.index
    symbols = np.array([marker(sign) for sign in signs.tolist()])
    for symbol, hollow in product(np.unique(symbols).tolist(), (False, True)):
        which = (symbols == symbol) & (doubtful == hollow)
        if not which.any():
            continue
        x, y = at[which].T
        points = ax.scatter(x, y, s=size * AREA.get(symbol, 1.0), marker=symbol)
        points.set(
            facecolors="white" if hollow else shades[which],
            edgecolors=shades[which] if hollow else DARKER * shades[which],
            linewidths=1.3 if hollow else 0.6,
            alpha=alpha,
            zorder=4 + hollow,
            gid="doubtful" if hollow else "sure",
        )
        if isinstance(target, Values):
            ends = np.nanmin(target.values), np.nanmax(target.values)
            points.set(array=target.values[which], cmap=SHADES, clim=ends)
    if isinstance(target, Values):
        figure_of(ax).colorbar(points, ax=ax, label=literal(target.title), pad=0.02)
    if (wrong := samples.wrong).any():
        x, y = at[wrong].T
        rings = ax.scatter(x, y, s=2.9 * size, facecolors="none", gid="wrong")
        rings.set(edgecolors="black", linewidths=0.9, zorder=6)


def class_handles(target: Classes) -> list[Artist]:
    """Entries of a legend for the classes of the samples."""
    return [
        Line2D([], [], linestyle="none", marker=marker(c), color=color(c), label=target.name(c))
        for c in np.unique(target.index).tolist()
    ]


def class_names(
    at: FloatArray, target: Target
) -> tuple[FloatArray, list[str], list[dict[str, Any]]]:
    """Medians of the samples (M, 2) of each class that has some, its name and style of the text."""
    if not isinstance(target, Classes):
        return np.empty((0, 2)), [], []
    # Smaller if there are many.
    size = float(np.clip(13.0 - 1.6 * np.log(len(target.names)), 7.0, 11.0))
    some = np.unique(target.index[target.index >= 0]).tolist()
    middle = np.array([np.median(at[target.index == c], axis=0) for c in some]).reshape(-1, 2)
    shades = [DARKER * np.array(to_rgb(color(c))) for c in some]
    style: dict[str, Any] = {"fontsize": size, "fontweight": "bold", "gid": "class"}
    return middle, [target.names[c] for c in some], [style | {"color": shade} for shade in shades]


class Names(Artist):
    """Names of points (M, 2), the first ones first, outwards from the middle of points (A, 2).

    A name covers neither another nor the artists beside. Without room one after the first
    ``required`` is left out, and those cover a few points. They are placed at drawing time, because
    layouts resize the Axes until then.
    """

    def __init__(
        self,
        ax: Axes,
        points: FloatArray,
        names: Sequence[str],
        *,
        avoid: FloatArray,
        beside: Sequence[Artist] = (),
        required: int = 0,
        styles: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__()
        self.dots = np.concatenate([points, avoid])
        self.beside = beside
        self.required = required
        self.texts = []
        for number, name in enumerate(map(literal, names)):
            style: dict[str, Any] = {"fontsize": 7.5, "color": INK}
            style |= dict(*styles[number : number + 1])
            style |= {"ha": "center", "va": "center", "path_effects": HALO, "zorder": 13.0}
            text = ax.annotate(name, points[number], (0.0, 0.0), textcoords="offset points",
                               arrowprops=LEADER, in_layout=False, **style)  # fmt: skip
            self.texts.append(text)
        self.set(in_layout=False, zorder=0.0)
        ax.add_artist(self)

    def draw(self, renderer: RendererBase) -> None:
        """Place the texts, which are drawn after this artist."""
        assert isinstance(self.axes, Axes)
        scale = figure_of(self.axes).dpi / 72.0
        inside = self.axes.get_window_extent()
        dots = self.axes.transData.transform(self.dots)
        middle = dots[len(self.texts) :].mean(axis=0)
        taken = [artist.get_window_extent() for artist in self.beside]
        for number, (text, dot) in enumerate(zip(self.texts, dots, strict=False)):
            size = Text.get_window_extent(text, renderer)
            half = np.array([size.width, size.height]) / 2.0 + 1.0
            outward = np.arctan2(*(dot - middle)[::-1])
            places = []
            for distance, turn in product(DISTANCES, np.radians(TURNS)):
                way = np.array([np.cos(outward + turn), np.sin(outward + turn)])
                shift = (np.min(half / np.maximum(np.abs(way), 1e-9)) + distance * scale) * way
                box = Bbox(dot + shift + np.outer([-1.0, 1.0], half))
                if inside.count_contains(box.corners()) == 4 and not box.count_overlaps(taken):
                    covered = box.padded(3.5 * scale).count_contains(dots)
                    places.append((covered, distance, shift, box))
            places = [place for place in places if not place[0] or number < self.required]
            text.set_visible(bool(places) and inside.contains(*dot))
            if text.get_visible():
                _, distance, shift, box = min(places, key=lambda place: place[0])
                taken.append(box)
                text.set_position(tuple(shift / scale))
                if text.arrow_patch is not None:
                    text.arrow_patch.set_visible(distance > NEAR)


def draw_background(ax: Axes, probability: xr.DataArray) -> None:
    """Colour of the most probable class, in steps of its probability."""
    plane = GRID_Y in probability.dims
    if not plane:
        probability = probability.expand_dims({GRID_Y: [0.0, 1.0]})
    values = probability.transpose(GRID_Y, GRID_X, LABEL).values
    low, high = probability[GRID_Y].values[[0, -1]]
    left, right = probability[GRID_X].values[[0, -1]]
    # Probabilities are smooth and boundaries are not: interpolate first, then take the largest.
    fine = zoom(values, (SHARPEN, SHARPEN, 1), order=1, mode="nearest")
    best = fine.argmax(axis=-1)
    step = np.digitize(fine.max(axis=-1), STEPS)
    classes = range(fine.shape[-1])
    tints = np.array([[tint(color(c), opacity) for opacity in OPACITY] for c in classes])
    limits = {"xlim": ax.get_xlim(), "ylim": ax.get_ylim()}
    ax.imshow(
        tints[best, step],
        origin="lower",
        extent=(left, right, low, high),
        aspect="auto",
        interpolation="bilinear",
        zorder=0,
        gid="background",
        transform=ax.transData if plane else ax.get_xaxis_transform(),
    )
    ax.set(**limits)


def draw_own(ax: Axes, at: FloatArray, cov: FloatArray, gid: str = "own") -> None:
    """Uncertainty (M, R, R) of samples at places (M, 2), as ellipses or bars of probability 0.5."""
    style: dict[str, Any] = {"linewidths": 0.8, "alpha": 0.7, "zorder": 3, "gid": gid}
    if cov.shape[1] == 1:
        reach = REACH[1] * np.sqrt(cov[:, 0, 0])
        ax.hlines(at[:, 1], at[:, 0] - reach, at[:, 0] + reach, colors=INK, **style)
        return
    values, vectors = np.linalg.eigh(cov)
    widths, heights = 2.0 * REACH[2] * np.sqrt(np.clip(values, 0.0, None)).T
    angles = np.degrees(np.arctan2(vectors[:, 1, 0], vectors[:, 0, 0]))
    style |= {"offsets": at, "offset_transform": ax.transData, "facecolors": "none"}
    shapes = EllipseCollection(widths, heights, angles, units="xy", edgecolors=INK, **style)
    ax.add_collection(shapes, autolim=False)


def draw_typical(ax: Axes, cov: FloatArray) -> list[Artist]:
    """Typical own uncertainty (R, R) in the lower right corner, at scale, and its name."""
    n_axes = len(cov)
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    width = np.array([right - left, top - bottom])
    reach = np.zeros(2)
    reach[:n_axes] = np.sqrt(np.diag(cov)) * REACH[n_axes]
    if not 0.0 < np.max(reach / np.abs(width)) < 0.22:
        return []  # too large to be drawn at scale
    margin = reach * np.sign(width) + 0.04 * width
    centre = np.array([right - margin[0], bottom + margin[1]])
    draw_own(ax, centre[None], cov[None], "typical")
    style: dict[str, Any] = {"fontsize": 7.0, "color": INK, "path_effects": HALO, "zorder": 8}
    place = (centre[0] - reach[0] - 0.01 * width[0], centre[1])
    return [ax.text(*place, "one sample, 50 %", ha="right", va="center", **style)]


def mark_beyond(ax: Axes, samples: Samples) -> int:
    """Triangles at the edge for samples beyond the axes; returns their number."""
    ends = np.sort([ax.get_xlim(), ax.get_ylim()]).T
    outside = ((samples.at < ends[0]) | (samples.at > ends[1])).any(axis=1)
    if not outside.any():
        return 0
    x, y = np.clip(samples.at[outside], *(ends + 0.012 * np.diff(ends, axis=0) * [[1.0], [-1.0]])).T
    shades: str | list[str] = GREY
    if isinstance(samples.target, Classes):
        shades = [color(c) for c in samples.target.index[outside]]
    ax.scatter(x, y, c=shades, marker="^", s=50.0, edgecolors="black", zorder=8, gid="beyond")
    return len(x)


def spread_strips(x: FloatArray, target: Target) -> FloatArray:
    """Points of one coordinate (M,) spread over the height of a strip for each class, (M, 2).

    Values of a regression are the height instead.
    """
    if isinstance(target, Values):
        return np.column_stack([x, target.values])
    index = target.index if target is not None else np.zeros(len(x))
    return np.column_stack([x, index + 0.6 * (np.arange(len(x)) * GOLDEN % 1.0 - 0.5)])


def label_strips(ax: Axes, target: Target) -> None:
    if isinstance(target, Values):
        ax.set_ylabel(literal(target.title))
        return
    if target is None:
        ax.set(yticks=[], ylim=(0.5, -0.8))
        return
    lowest = min(int(target.index.min()), 0)
    names = [literal(target.name(c)) for c in range(lowest, len(target.names))]
    ax.set_yticks(range(lowest, len(target.names)), names)
    ax.set(ylim=(len(target.names) - 0.4, lowest - 0.8), ylabel=literal(target.title))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
