"""Places for the names of classes and samples in a map."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.textpath import TextPath

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.latent_grid import class_at
from bsdr_models.plots._read import Classes
from bsdr_models.plots._style import HALO, INK, figure_of

# Font sizes of names of classes (few, many) and samples, in points.
CLASS_SIZES, SAMPLE_SIZE = (10.5, 8.0), 7.3
FEW_CLASSES = 10
# Distances of a name from its sample, in units of the text height.
DISTANCES = (1.3, 2.2, 3.4, 4.8)
# Cost of meeting another name: one that cannot avoid it is left out.
MEETING = 5.0

type Box = FloatArray  # left, bottom, right, top in fractions of the axes


def name_classes(
    ax: Axes,
    at: FloatArray,
    target: Classes,
    colors: Sequence[Any],
    probability: xr.DataArray | None,
) -> list[Box]:
    """Write each class name near its samples (M, 2), where it covers few points.

    With class probabilities over the plane, in the region of the class if it has one. Returns the
    boxes of the names.
    """
    size = CLASS_SIZES[len(target.names) > FEW_CLASSES]
    points = _fractions(ax, at)
    grid = np.linspace(0.05, 0.95, 37)
    places = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    best = None
    if probability is not None:
        ends = np.array([ax.get_xlim(), ax.get_ylim()])
        best = class_at(probability, ends[:, 0] + places * (ends[:, 1] - ends[:, 0]))
    boxes: list[Box] = []
    counts = np.bincount(target.index[target.index >= 0], minlength=len(target.names))
    for c in np.argsort(-counts, kind="stable").tolist():
        if not counts[c]:
            continue
        half = 0.5 * _extent(ax, target.names[c], size, "bold")
        box = np.column_stack([places - half, places + half])
        centre = np.median(points[target.index == c], axis=0)
        cost = 1.6 * np.linalg.norm(places - centre, axis=1) + _crowding(box, points, boxes)
        if best is not None:
            cost += 0.12 * (best != c)
        chosen = int(cost.argmin())
        boxes.append(box[chosen])
        ax.text(
            places[chosen, 0],
            places[chosen, 1],
            target.names[c],
            transform=ax.transAxes,
            color=0.6 * np.array(to_rgb(colors[c])),
            fontsize=size,
            fontweight="bold",
            ha="center",
            va="center",
            zorder=12,
            path_effects=HALO,
            gid="class",
        )
    return boxes


def name_samples(
    ax: Axes, at: FloatArray, names: np.ndarray, index: IntArray, boxes: Sequence[Box]
) -> None:
    """Write names of some samples (M, 2) beside them where there is room, with a line to each."""
    points, taken = _fractions(ax, at), list(boxes)
    angles = 0.4 + 0.25 * np.pi * np.arange(8)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    for n in index:
        if np.any((points[n] < 0.0) | (points[n] > 1.0)):
            continue
        extent = _extent(ax, str(names[n]), SAMPLE_SIZE, "normal")
        steps = np.array(DISTANCES)[:, None, None] * directions * extent[1]
        places = (points[n] + steps + 0.5 * directions * extent).reshape(-1, 2)
        box = np.column_stack([places - 0.5 * extent, places + 0.5 * extent])
        cost = _crowding(box, points, taken) + 0.05 * np.repeat(DISTANCES, len(directions))
        chosen = int(cost.argmin())
        if cost[chosen] >= MEETING:
            continue
        taken.append(box[chosen])
        ax.annotate(
            str(names[n]),
            xy=at[n],
            xytext=places[chosen],
            textcoords="axes fraction",
            fontsize=SAMPLE_SIZE,
            color=INK,
            ha="center",
            va="center",
            zorder=13,
            path_effects=HALO,
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#555555", "shrinkB": 3.0},
            gid="name",
        )


def _fractions(ax: Axes, at: FloatArray) -> FloatArray:
    """Fractions of the axes of points in data coordinates, (M, 2)."""
    ends = np.array([ax.get_xlim(), ax.get_ylim()])
    return np.asarray((at - ends[:, 0]) / (ends[:, 1] - ends[:, 0]))


def _extent(ax: Axes, text: str, size: float, weight: str) -> FloatArray:
    """Width and height of a text, in fractions of the axes."""
    box = ax.get_window_extent()
    points = 72.0 / figure_of(ax).dpi * np.array([box.width, box.height])
    outline = TextPath((0.0, 0.0), text or " ", size=size)
    wider = 1.2 if weight == "bold" else 1.1
    width = wider * float(outline.vertices[:, 0].max(initial=0.0)) + 2.0
    return np.array([width, 1.35 * size]) / points


def _crowding(box: FloatArray, points: FloatArray, taken: Sequence[Box]) -> FloatArray:
    """Cost of boxes (P, 4): points that they cover, other boxes that they meet, edges crossed."""
    low, high = box[:, None, :2], box[:, None, 2:]
    cost = 0.08 * np.sum(((points > low) & (points < high)).all(axis=2), axis=1)
    cost += 10.0 * ((box[:, :2] < 0.0).any(axis=1) | (box[:, 2:] > 1.0).any(axis=1))
    for other in taken:
        meet = (box[:, :2] < other[2:]).all(axis=1) & (box[:, 2:] > other[:2]).all(axis=1)
        cost += MEETING * meet
    return np.asarray(cost)
