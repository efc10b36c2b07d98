"""One style for every plot, applied locally: global settings are restored.

References
----------
.. [1] M. A. Petroff (2021), Accessible color sequences for data visualization, arXiv:2107.02270.
"""

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import Normal, Stroke
from matplotlib.text import Text

# Ten colours that remain distinct under common colour blindness [1].
PALETTE = (
    "#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#94a4a2", "#a96b59", "#e76300", "#92dadd",
    "#717581", "#b9ac70",
)  # fmt: skip
# Markers encode the class too, so that colour is never the only cue.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
INK = "#333333"
GREY = "#757575"  # letters in it can be read on white
PALE = "#d0d0d0"
PALER = "#e8e8e8"
POSITIVE = PALETTE[0]
NOTE_SIZE = 8.5
LETTER = 0.58  # width of a letter relative to the size of a text
MAX_NAMES = 18  # per legend column
HALO = [Stroke(linewidth=3.0, foreground="white", alpha=0.8), Normal()]
SHADES = "viridis"

STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.facecolor": "white",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.size": 9.5,
    "grid.color": "#ececec",
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.title_fontsize": 9,
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
}


def styled[**P, T](plot: Callable[P, T]) -> Callable[P, T]:
    """Run `plot` in the style of the package, then restore the user's settings.

    An error closes the figures that were opened. Only these keys are restored: the first figure may
    load a notebook's backend, which sets others.
    """

    @wraps(plot)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        before = {name: rcParams[name] for name in STYLE}
        figures = {*plt.get_fignums()}
        rcParams.update(STYLE)
        try:
            return plot(*args, **kwargs)
        except BaseException:
            for number in {*plt.get_fignums()} - figures:
                plt.close(number)
            raise
        finally:
            rcParams.update(before)

    return wrapper


def literal(name: object) -> str:
    """A name as Matplotlib draws it unchanged: text between dollars would be a formula."""
    return str(name).replace("$", r"\$")


def axes_or_new(
    ax: Axes | None, *, width: float = 6.4, height: float = 4.8, n_names: int = 1
) -> Axes:
    """Return `ax`, or a new one of that size in inches, wider for a legend of many names."""
    if ax is not None:
        if getattr(ax, "name", None) != "rectilinear":
            raise ValueError(f"ax must be plane Axes of Matplotlib, got {type(ax).__name__}")
        return ax
    width += 1.6 * (_n_columns(n_names) - 1)
    figure, ax = plt.subplots(figsize=(width, height), layout="constrained")
    # Dark styles make files black, whatever the colour of the figure.
    figure.add_artist(Rectangle((0.0, 0.0), 1.0, 1.0, color="white", zorder=-1.0))
    return ax


def figure_of(ax: Axes) -> Figure:
    """Return the top-level figure of `ax`."""
    figure = ax.get_figure(root=True)
    if figure is None:
        raise ValueError("ax has no figure: it was removed")
    return figure


def color(index: int) -> str:
    """Colour of class `index`, repeated after ten; grey below zero."""
    return GREY if index < 0 else PALETTE[index % len(PALETTE)]


def marker(index: int) -> str:
    """Marker of class `index`; pairs of colour and marker are unique up to 100 classes."""
    return "o" if index < 0 else MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]


def name_features(ax: Axes, names: np.ndarray) -> None:
    """Name features on the y axis, the first on top."""
    ax.set_yticks(range(len(names)), [literal(name) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_ylabel("feature")


def set_title(
    ax: Axes, title: str, note: str = "", *, verdict: tuple[str, str] | None = None
) -> None:
    """Bold title, and under it a small grey caption wrapped to the width of the Axes.

    A title set later, at any place, replaces this one and sits above the caption. A verdict is a
    last line in bold and its colour: (text, colour).
    """
    points = width_in_points(ax)
    height = 4.0
    line = 1.3 * NOTE_SIZE
    parts = [(wrap(note, points), "#666666", "normal")]
    if verdict is not None:
        text, shade = verdict
        parts.insert(0, (wrap(text, points / 1.08), shade, "bold"))  # bold letters are wider
    style: dict[str, Any] = {"va": "bottom", "fontsize": NOTE_SIZE, "linespacing": 1.15}
    for lines, shade, weight in parts:
        ax.annotate("\n".join(lines), (0.0, 1.0), (0.0, height), "axes fraction", "offset points",
                    color=shade, fontweight=weight, **style)  # fmt: skip
        height += line * len(lines)
    heading = ax.set_title(title, pad=2.0 + height)
    place = heading.get_transform()

    def keep_above(text: Artist) -> None:
        """Undo the shift that `Axes.set_title` gives to a title, which ignores the caption."""
        if text.get_transform() is not place:
            text.set_transform(place)
        if text is not heading and isinstance(text, Text) and text.get_text():
            heading.set_text("")

    right = ax.set_title(ax.get_title("right"), loc="right")
    for other in (heading, ax.title, right):
        other.add_callback(keep_above)
        other.set_transform(place)


def width_in_points(ax: Axes) -> float:
    """Width of the Axes after layout."""
    figure = figure_of(ax)
    fix_layout(figure)
    return ax.get_window_extent().width * 72.0 / figure.dpi


def fix_layout(figure: Figure) -> None:
    """Run the layout, if any, so that sizes can be measured."""
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)


def wrap(text: str, points: float) -> list[str]:
    """Lines of at most about that width."""
    return textwrap.wrap(text, max(int(points / (LETTER * NOTE_SIZE)), 1), break_long_words=False)


def add_legend(ax: Axes, handles: Sequence[Artist], *, title: str | None = None) -> None:
    """Legend beside the Axes if a layout engine makes room, else inside."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    if figure_of(ax).get_layout_engine() is None:
        place = {"loc": "upper right", "frameon": True}
    place |= {"ncols": _n_columns(len(handles)), "alignment": "left"}
    labels = [literal(handle.get_label()) for handle in handles]
    ax.legend(handles, labels, title=None if title is None else literal(title), **place)


def _n_columns(n_names: int) -> int:
    return 1 + max(n_names - 1, 0) // MAX_NAMES
