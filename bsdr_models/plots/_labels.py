"""Names beside points, placed without overlap."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from bsdr_models.arrays import FloatArray
from bsdr_models.plots._style import GREY, HALO, INK, figure_of

TEXT_SIZE = 8.0
# Candidate positions of a name relative to its point: distance (points) and rotation (degrees).
DISTANCES = (3.0, 10.0, 18.0, 28.0, 40.0)
TURNS = (0.0, 20.0, -20.0, 45.0, -45.0, 75.0, -75.0, 110.0, -110.0, 180.0)
NEAR = 10.0  # distance beyond which a leader line is drawn
APART = 1.0  # margin around a name, in pixels
MARKER = 2.0  # radius of a point that a name should not cover, in points


class Names(Artist):
    """Names of points, placed outwards from a centre where they do not overlap.

    They are placed at drawing time, because layouts resize the Axes until then. A text in the
    corner counts the names that did not fit.

    Parameters
    ----------
    points, names
        (M, 2), in data coordinates, in order of priority; M names.
    centre
        (2,), in data coordinates.
    avoid
        (A, 2), points in data coordinates that names leave free where they can.
    """

    def __init__(
        self,
        ax: Axes,
        points: FloatArray,
        names: Sequence[str],
        *,
        centre: FloatArray,
        avoid: FloatArray | None = None,
    ) -> None:
        super().__init__()
        self.points, self.centre = points, centre
        self.avoid = points if avoid is None else np.concatenate([points, avoid])
        self.texts = [
            Text(0.0, 0.0, name, ha="center", va="center", fontsize=TEXT_SIZE, color=INK)
            for name in names
        ]
        self.left = Text(0.0, 0.0, "", ha="right", va="bottom", fontsize=TEXT_SIZE, color=GREY)
        for text in (*self.texts, self.left):
            text.set_figure(figure_of(ax))
            text.set_path_effects(HALO)
        self.set(in_layout=False, zorder=6.0)
        ax.add_artist(self)

    def draw(self, renderer: RendererBase) -> None:
        """Place and draw."""
        if not self.get_visible() or not isinstance(self.axes, Axes):
            return
        placed = 0
        for text, line in self.place(self.axes):
            if line is not None:
                line.draw(renderer)
            text.draw(renderer)
            placed += 1
        if placed < len(self.texts):
            corner = self.axes.get_window_extent()
            self.left.set_position((corner.x1 - 3.0, corner.y0 + 3.0))
            self.left.set_text(f"{len(self.texts) - placed} names not shown")
            self.left.draw(renderer)
        self.stale = False

    def place(self, ax: Axes) -> Iterator[tuple[Text, Line2D | None]]:
        """Yield names that fit, placed in pixels, and their leader lines."""
        inside, scale = ax.get_window_extent(), figure_of(ax).dpi / 72.0
        origin = ax.transData.transform(self.centre)
        avoid = ax.transData.transform(self.avoid)
        taken: list[Bbox] = []
        for point, text in zip(ax.transData.transform(self.points), self.texts, strict=True):
            outward = np.arctan2(point[1] - origin[1], point[0] - origin[0])
            own = text.get_window_extent()
            half = np.array([own.width, own.height]) / 2.0 + APART
            places = []
            for distance, turn in ((d, t) for d in DISTANCES for t in TURNS):
                angle = outward + np.radians(turn)
                way = np.array([np.cos(angle), np.sin(angle)])
                border = np.min(half / np.maximum(np.abs(way), 1e-9))
                middle = point + way * (border + distance * scale)
                box = Bbox([middle - half, middle + half])
                if _holds(inside, box) and not any(box.overlaps(other) for other in taken):
                    covered = box.padded(MARKER * scale).count_contains(avoid)
                    leader = _leader(point, middle - way * border) if distance > NEAR else None
                    places.append((covered, middle, box, leader))
                    if not covered:
                        break
            if places:
                _, middle, box, leader = min(places, key=lambda place: place[0])
                taken.append(box)
                text.set_position((middle[0], middle[1]))
                yield text, leader


def _leader(start: FloatArray, end: FloatArray) -> Line2D:
    return Line2D(*np.stack([start, end], axis=1), color=GREY, linewidth=0.6)


def _holds(outer: Bbox, inner: Bbox) -> bool:
    return bool(np.all(inner.min >= outer.min) and np.all(inner.max <= outer.max))
