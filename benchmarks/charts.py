"""Curves of results over components, samples, or an argument of the methods."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from PIL import Image
from scipy.optimize import isotonic_regression

from benchmarks.rows import NAMES, Row, place, series, spread, values
from benchmarks.tables import Table, Task
from bsdr_models.plots._style import NOTE_SIZE, PALETTE, STYLE, color, figure_of, fix_layout, marker

# Bytes of a picture in the repository.
MOST_BYTES = 60_000
# Lines of a panel up to which each has a band.
MOST_BANDS = 3
# Label of the x-axis.
AXES = {
    "n_components": "components R",
    "samples": "training samples of a class",
    "C": "C",
    "weight": "weight of the discriminative prior",
}


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of at most `MOST_BYTES`, with a palette."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for dpi in (110, 90, 72):
        figure.savefig(path, dpi=dpi)
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            plt.close(figure)
            return
    raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {MOST_BYTES}")


def curves(rows: Sequence[Row], table: Table) -> Figure:
    """A panel for each set (and R, if the x-axis has sample sizes), a named line for each method.

    Bands are one standard deviation, of few lines and on a linear scale only.
    """
    panels = _panels(table)
    names = list(dict.fromkeys(series(table, t, m) for t in table.tasks for m in table.methods))
    one_set = len({task.source for task in table.tasks}) == 1
    with mpl.rc_context(STYLE):
        size = (3.5 * len(panels) + 2.4, 3.6)
        figure, axes = plt.subplots(
            1, len(panels), figsize=size, squeeze=False, sharey=one_set, layout="constrained"
        )
        for ax, (title, tasks) in zip(axes[0], panels.items(), strict=True):
            for index, name in enumerate(names):
                _curve(ax, rows, table, tasks, name, index)
            right = "training samples" if _whole(table) else AXES[table.curve]
            ax.set(title=title, xlabel=right)
            _scales(ax, table, tasks)
        axes[0, 0].set_ylabel(NAMES[table.score])
        name_ends(axes[0])
    return figure


def name_ends(panels: Sequence[Axes]) -> None:
    """Name each line at its end, in the last panel that has it."""
    known: set[str] = set()
    for ax in reversed(panels):
        handles, names = ax.get_legend_handles_labels()
        found = {h: n for h, n in zip(handles, names, strict=True) if n not in known}
        name_lines(ax, found)
        known |= set(names)


def name_lines(ax: Axes, names: Mapping[Line2D, str]) -> None:
    """Name lines to the right of their last points, in their colours, without overlap.

    Call it after limits and scales are set.
    """
    fix_layout(figure_of(ax))
    points = {line: np.column_stack(line.get_data()) for line in names}
    points = {line: at[np.isfinite(at).all(axis=1)] for line, at in points.items()}
    lines = [line for line, at in points.items() if len(at)]
    if not lines:
        return
    ends = np.stack([points[line][-1] for line in lines])
    frame = ax.get_window_extent()
    height = (ax.transData.transform(ends)[:, 1] - frame.y0) / frame.height
    step = 1.25 * NOTE_SIZE * figure_of(ax).dpi / 72.0 / frame.height
    for line, high in zip(lines, _apart(height.clip(0.0, 1.0), step), strict=True):
        ax.annotate(
            names[line],
            xy=(1.0, high),
            xycoords="axes fraction",
            xytext=(6.0, 0.0),
            textcoords="offset points",
            va="center",
            color=darker(line.get_color()),
            fontsize=NOTE_SIZE,
            annotation_clip=False,
        )


def _apart(height: np.ndarray, step: float) -> np.ndarray:
    """Heights moved as little as necessary to be `step` apart, in the same order."""
    order = np.argsort(height, kind="stable")
    ramp = step * np.arange(len(height))
    spread = isotonic_regression(height[order] - ramp).x + ramp
    spread += max(-spread[0], 0.0) - max(spread[-1] - max(1.0, ramp[-1]), 0.0)
    return spread[np.argsort(order)]


def darker(shade: Any) -> tuple[float, ...]:
    """The colour, dark enough to be read as text on white."""
    return tuple(0.72 * part for part in to_rgb(shade))


def _panels(table: Table) -> dict[str, list[Task]]:
    """Tasks of each panel, by its title."""
    several = len({(t.source, t.n_components) for t in table.tasks}) > len(
        {t.source for t in table.tasks}
    )
    apart = table.curve == "samples" and several
    found: dict[str, list[Task]] = {}
    for task in table.tasks:
        title = f"{task.source}, R = {task.n_components}" if apart else task.source
        found.setdefault(title, []).append(task)
    return found


def _whole(table: Table) -> bool:
    """Whether training samples are counted over all classes."""
    return table.curve == "samples" and all(task.scheme == "first samples" for task in table.tasks)


def _scales(ax: Axes, table: Table, tasks: Sequence[Task]) -> None:
    """Logarithmic scale if values differ by factors."""
    if table.curve == "weight":
        ax.set_xscale("log")
    if not _whole(table):
        return
    sizes = [task.sizes[0] for task in tasks]
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    plain_ticks(ax, subs=(1.0, 2.0, 3.0, 5.0))


def plain_ticks(ax: Axes, subs: Sequence[float]) -> None:
    """Plain numbers at multiples ``subs`` of powers of ten on a logarithmic axis of values."""
    ax.yaxis.set_major_locator(LogLocator(subs=subs))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())


def _curve(
    ax: Axes, rows: Sequence[Row], table: Table, tasks: Sequence[Task], name: str, index: int
) -> None:
    """One line of a panel; nothing where there are no results."""
    points = []
    for task in tasks:
        for method in table.methods:
            at = place(table, task, method)
            if at is None or series(table, task, method) != name:
                continue
            found = values(rows, task, method, table.score)
            if len(found):
                points.append((at, found.mean(), spread(found)))
    if not points:
        return
    x, mean, deviation = np.array(sorted(points)).T
    style: dict[str, Any] = {"color": color(index), "marker": marker(index), "markersize": 4.5}
    style["linewidth"] = 2.2 if index == 0 else 1.3
    style["linestyle"] = "-" if index < len(PALETTE) else "--"
    ax.plot(x, mean, label=name, **style)
    if len(table.methods) <= MOST_BANDS and not _whole(table):
        ax.fill_between(x, mean - deviation, mean + deviation, color=color(index), alpha=0.1, lw=0)
