"""Plots of results: curves over components or rows, dots by task, ranks over data sets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from PIL import Image

from benchmarks.comparison import Ranking, cliques, rank
from benchmarks.rows import NAMES, Row, place, series, spread, values
from benchmarks.tables import Table, Task
from bsdr_models.plots._style import GREY, INK, PALETTE, STYLE, color, marker, name_lines

# Bytes of a picture in the repository.
MOST_BYTES = 60_000
# Label of the x-axis.
AXES = {
    "n_components": "components R",
    "rows": "training rows of a class",
    "C": "C",
    "weight": "weight of the discriminative prior",
}


def save(figure: Figure, path: Path) -> None:
    """Write a PNG of at most `MOST_BYTES`, with a palette.

    Raises
    ------
    ValueError
        If it cannot be made as small.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for dpi in (110, 90, 72):
        figure.savefig(path, dpi=dpi)
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            plt.close(figure)
            return
    raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {MOST_BYTES}")


def curves(rows: Sequence[Row], table: Table) -> Figure:
    """A panel for each set (and R, if the x-axis has sample sizes), a named line for each method.

    Bands are one standard deviation; only of this package's methods if the table names some, and
    none on a logarithmic scale.
    """
    panels = _panels(table)
    methods = table.drawn or table.methods
    names = list(dict.fromkeys(series(table, t, m) for t in table.tasks for m in methods))
    one_set = len({task.source for task in table.tasks}) == 1
    with mpl.rc_context(STYLE):
        size = (3.5 * len(panels) + 2.4, 3.6)
        figure, axes = plt.subplots(
            1, len(panels), figsize=size, squeeze=False, sharey=one_set, layout="constrained"
        )
        for ax, (title, tasks) in zip(axes[0], panels.items(), strict=True):
            for index, name in enumerate(names):
                _curve(ax, rows, table, tasks, name, index)
            ax.set(title=title, xlabel=_to_the_right(table))
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


def _panels(table: Table) -> dict[str, list[Task]]:
    """Tasks of each panel, by its title."""
    several = len({(t.source, t.n_components) for t in table.tasks}) > len(
        {t.source for t in table.tasks}
    )
    apart = table.curve == "rows" and several
    found: dict[str, list[Task]] = {}
    for task in table.tasks:
        title = f"{task.source}, R = {task.n_components}" if apart else task.source
        found.setdefault(title, []).append(task)
    return found


def _whole(table: Table) -> bool:
    """Whether training samples are counted over all classes."""
    return table.curve == "rows" and all(task.scheme == "first rows" for task in table.tasks)


def _to_the_right(table: Table) -> str:
    return "training rows" if _whole(table) else AXES[table.curve]


def _scales(ax: Axes, table: Table, tasks: Sequence[Task]) -> None:
    """Logarithmic scale if values differ by factors."""
    if table.curve == "weight":
        ax.set_xscale("log")
    if not _whole(table):
        return
    sizes = [task.sizes[0] for task in tasks]
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
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
    style["linewidth"] = 2.2 if name in table.ours else 1.3
    style["linestyle"] = "-" if index < len(PALETTE) else "--"
    ax.plot(x, mean, label=name, **style)
    if (name in table.ours or not table.ours) and not _whole(table):
        ax.fill_between(x, mean - deviation, mean + deviation, color=color(index), alpha=0.1, lw=0)


def dots(rows: Sequence[Row], table: Table) -> Figure:
    """A line for each task, on it a mark for each method; bars are one standard deviation."""
    tasks = [
        t for t in table.tasks if any(len(values(rows, t, m, table.dots)) for m in table.methods)
    ]
    with mpl.rc_context(STYLE):
        figure, ax = plt.subplots(figsize=(8.2, 1.2 + 0.5 * len(tasks)), layout="constrained")
        for index, method in enumerate(table.methods):
            own = method in table.ours
            points = []
            for line, task in enumerate(tasks):
                found = values(rows, task, method, table.dots)
                if len(found):
                    points.append((found.mean(), line, spread(found)))
            if not points:
                continue
            x, y, deviation = np.array(points).T
            offset = 0.6 * ((index + 0.5) / len(table.methods) - 0.5)
            ax.errorbar(
                x,
                y + offset,
                xerr=deviation,
                fmt=marker(index),
                color=color(index),
                markersize=8.0 if own else 5.0,
                linewidth=1.0,
                label=method,
                zorder=3 if own else 2,
            )
        ax.hlines(
            np.arange(len(tasks) - 1) + 0.5,
            0.0,
            1.0,
            transform=ax.get_yaxis_transform(),
            color=GREY,
            lw=0.5,
        )
        ax.set_yticks(range(len(tasks)), [str(task) for task in tasks])
        ax.set(ylim=(len(tasks) - 0.5, -0.5), xlabel=NAMES[table.dots])
        ax.grid(visible=False, axis="y")
        figure.legend(loc="outside right center")
    return figure


def ranking_of(rows: Sequence[Row], table: Table) -> tuple[Ranking, list[str], int] | None:
    """Ranks of the methods with a result on every set, and the number of sets.

    None if fewer than three methods or two sets remain. Sets are those with any result.
    """
    sign = -1.0 if table.ranks in ("accuracy", "map") else 1.0
    found = {
        (task, method): values(rows, task, method, table.ranks)
        for task in table.tasks
        for method in table.methods
    }
    tasks = [t for t in table.tasks if any(len(found[t, m]) for m in table.methods)]
    methods = [m for m in table.methods if all(len(found[t, m]) for t in tasks)]
    if len(tasks) < 2 or len(methods) < 3:
        return None
    losses = np.array([[sign * found[t, m].mean() for m in methods] for t in tasks])
    return rank(losses), methods, len(tasks)


def critical_difference(ranking: Ranking, methods: Sequence[str], note: str) -> Figure:
    """Mean ranks on a line; a bar joins methods that Nemenyi's test does not distinguish."""
    order = np.argsort(ranking.average, kind="stable")
    half = (len(methods) + 1) // 2
    runs = cliques(ranking.average, ranking.critical)
    with mpl.rc_context(STYLE):
        height = 1.5 + 0.12 * len(runs) + 0.24 * half
        figure, ax = plt.subplots(figsize=(7.6, height), layout="constrained")
        low, high = 1.0, float(len(methods))
        top = 0.5 + 0.35 * len(runs)
        for level, (first, last) in enumerate(runs):
            y = -0.4 - 0.35 * level
            ax.plot([first - 0.06, last + 0.06], [y, y], color=INK, lw=3.0, solid_capstyle="round")
        margin = 0.03 * (high - low)
        for position, index in enumerate(order):
            left = position < half
            row = position if left else len(methods) - 1 - position
            x, y = ranking.average[index], -top - 0.62 * (row + 0.5)
            end = low - margin if left else high + margin
            ax.plot([x, x, end], [0.0, y, y], color=GREY, lw=0.9)
            ax.plot(x, 0.0, marker="o", color=INK, markersize=3.5)
            text = f"{methods[index]}  {x:.2f}" if left else f"{x:.2f}  {methods[index]}"
            side = "right" if left else "left"
            ax.annotate(
                text,
                (end, y),
                xytext=(-4 if left else 4, 0),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=9,
            )
        ax.plot([low, low + ranking.critical], [1.15, 1.15], color=INK, lw=1.4, marker="|")
        ax.annotate(
            f"critical difference {ranking.critical:.2f}",
            (low + ranking.critical, 1.15),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
        ax.set(xlim=(low - 0.45 * (high - low), high + 0.45 * (high - low)))
        ax.set_ylim(-top - 0.62 * (half + 0.2), 1.5)
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.set_yticks([])
        ticks = np.arange(1, len(methods) + 1)
        ax.hlines(0.0, low, high, color=INK, lw=1.0)
        ax.vlines(ticks, 0.0, 0.16, color=INK, lw=1.0)
        for tick in ticks:
            ax.annotate(f"{tick}", (tick, 0.22), ha="center", va="bottom", fontsize=8.5)
        ax.set_xticks([])
        ax.grid(visible=False)
        ax.set_title("Mean rank, 1 is best", fontsize=11)
        ax.annotate(
            note,
            (0.0, 0.0),
            xycoords="axes fraction",
            xytext=(0, -4),
            textcoords="offset points",
            va="top",
            fontsize=8.5,
            color="#666666",
        )
    return figure
