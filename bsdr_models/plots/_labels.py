"""Names beside points, none over another."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from bsdr_models.plots._style import GREY, HALO, INK, figure_of
from bsdr_models.typing import FloatArray

TEXT_SIZE = 8.0
# Where a name may stand, seen from its point: how far (in points), and how far turned (degrees).
DISTANCES = (3.0, 10.0, 18.0, 28.0, 40.0)
TURNS = (0.0, 20.0, -20.0, 45.0, -45.0, 75.0, -75.0, 110.0, -110.0, 180.0)
APART = 1.0  # pixels between two names


def place_names(
    ax: Axes, points: FloatArray, names: Sequence[str], *, centre: tuple[float, float]
) -> None:
    """Write names outwards of points (M, 2), the first ones first, as far as there is room.

    To be called last: it measures the Axes as they will be drawn. In a corner it says how many
    names found no room.
    """
    figure = figure_of(ax)
    figure.draw_without_rendering()
    inside = ax.get_window_extent()
    scale = figure.dpi / 72.0
    origin = ax.transData.transform(centre)
    taken: list[Bbox] = []
    for point, name in zip(points, names, strict=True):
        at = ax.transData.transform(point)
        outward = np.arctan2(*(at - origin)[::-1])
        text = ax.annotate(
            name,
            xy=point,
            xytext=(0.0, 0.0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=TEXT_SIZE,
            color=INK,
            zorder=6,
            path_effects=HALO,
            gid="name",
        )
        own = text.get_window_extent()
        half = np.array([own.width, own.height]) / 2.0 + APART
        for distance, turn in ((d, t) for d in DISTANCES for t in TURNS):
            way = np.array([np.cos(outward + np.radians(turn)), np.sin(outward + np.radians(turn))])
            # From the point to the border of the box along that way, and so much further.
            border = np.min(half / np.maximum(np.abs(way), 1e-9))
            middle = at + way * (border + distance * scale)
            box = Bbox([middle - half, middle + half])
            if _contains(inside, box) and not any(box.overlaps(other) for other in taken):
                text.set_position(tuple((middle - at) / scale))
                taken.append(box)
                if distance > DISTANCES[1]:
                    ax.annotate(
                        "",
                        xy=point,
                        xytext=tuple((middle - at - way * border) / scale),
                        textcoords="offset points",
                        arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6},
                        zorder=5.5,
                    )
                break
        else:
            text.remove()
    if left := len(names) - len(taken):
        ax.text(
            0.99,
            0.01,
            f"{left} of {len(names)} names found no room",
            transform=ax.transAxes,
            ha="right",
            fontsize=TEXT_SIZE,
            color=GREY,
            zorder=6,
            path_effects=HALO,
        )


def _contains(outer: Bbox, inner: Bbox) -> bool:
    return bool(np.all(inner.min >= outer.min) and np.all(inner.max <= outer.max))
