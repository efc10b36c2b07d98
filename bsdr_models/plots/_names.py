"""Names of points, placed without overlap."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.plots._style import GREY, HALO, INK, figure_of

TEXT_SIZE = 7.5
# Candidate positions of a name relative to its point: distance (points) and rotation (degrees).
DISTANCES = (5.0, 10.0, 18.0, 28.0, 40.0, 55.0, 75.0, 100.0)
TURNS = (0.0, 20.0, -20.0, 45.0, -45.0, 75.0, -75.0, 110.0, -110.0, 180.0)
NEAR = 9.0  # distance beyond which a leader line is drawn
APART = 1.0  # margin around a name, in pixels
MARKER = 3.5  # radius of a point that a name should not cover, in points


class Names(Artist):
    """Names of points (M, 2), in order of priority, placed outwards from a centre (2,).

    They overlap neither each other, nor lines (L, 2, 2), nor artists `beside`, and leave points
    `avoid` (A, 2) free where they can; names after the first `required` are left out if they
    cannot. `styles` are properties of the first texts. Names are placed at drawing time, because
    layouts resize the Axes until then. A text in the corner counts those that are left out.
    """

    def __init__(
        self,
        ax: Axes,
        points: FloatArray,
        names: Sequence[str],
        *,
        centre: FloatArray,
        avoid: FloatArray | None = None,
        lines: Sequence[FloatArray] = (),
        beside: Sequence[Artist] = (),
        required: int | None = None,
        styles: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__()
        self.required = len(names) if required is None else required
        self.points = points
        self.centre = centre
        self.lines = lines
        self.beside = beside
        self.avoid = points if avoid is None else np.concatenate([points, avoid])
        self.texts = [
            Text(0.0, 0.0, name, ha="center", va="center", fontsize=TEXT_SIZE, color=INK)
            for name in names
        ]
        self.left = Text(0.0, 0.0, "", va="bottom", fontsize=TEXT_SIZE, color=GREY)
        for text in (*self.texts, self.left):
            text.set_figure(figure_of(ax))
            text.set_path_effects(HALO)
        for text, style in zip(self.texts, styles, strict=False):
            text.set(**style)
        self.set(in_layout=False, zorder=13.0, gid="names")
        ax.add_artist(self)

    def draw(self, renderer: RendererBase) -> None:
        """Place and draw."""
        if not self.get_visible() or not isinstance(self.axes, Axes):
            return
        inside = self.axes.get_window_extent()
        left = sum(inside.contains(*at) for at in self.axes.transData.transform(self.points))
        for text, line in self.place(self.axes):
            if line is not None:
                line.draw(renderer)
            text.draw(renderer)
            left -= 1
        if left:
            self.left.set_position((inside.x0 + 3.0, inside.y0 + 3.0))
            self.left.set_text(f"{left} name{'s' if left > 1 else ''} not shown")
            self.left.draw(renderer)
        self.stale = False

    def place(self, ax: Axes) -> Iterator[tuple[Text, Line2D | None]]:
        """Yield names that fit, placed in pixels, and their leader lines."""
        inside = ax.get_window_extent()
        scale = figure_of(ax).dpi / 72.0
        origin = ax.transData.transform(self.centre)
        avoid = ax.transData.transform(self.avoid)
        lines = [Path(ax.transData.transform(ends)) for ends in self.lines]
        taken = [artist.get_window_extent() for artist in self.beside]
        points = ax.transData.transform(self.points)
        for number, (point, text) in enumerate(zip(points, self.texts, strict=True)):
            if not inside.contains(*point):
                continue
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
                if inside.count_contains(box.corners()) < 4:
                    continue
                if any(box.overlaps(other) for other in taken):
                    continue
                if any(line.intersects_bbox(box, filled=False) for line in lines):
                    continue
                leader = np.stack([point + way * 3.0 * scale, middle - way * border])
                cost = box.padded(MARKER * scale).count_contains(avoid)
                drawn = None
                if distance > NEAR:
                    cost += sum(line.intersects_path(Path(leader)) for line in lines)
                    drawn = Line2D(*leader.T, color=GREY, linewidth=0.6)
                places.append((cost, middle, box, drawn))
                if not cost:
                    break
            if not places:
                continue
            cost, middle, box, drawn = min(places, key=lambda place: place[0])
            if cost == 0 or number < self.required:
                taken.append(box)
                text.set_position((middle[0], middle[1]))
                yield text, drawn
