"""The latent space, shaded by how sure the model is of the features of a row there."""

from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.ticker import MaxNLocator

from bsdr_models.dims import COMPONENT, GRID_X, GRID_Y, LABEL, OBS
from bsdr_models.plots._read import Classes, Target, read, read_target
from bsdr_models.plots._style import (
    GREY,
    INK,
    add_legend,
    axes_or_new,
    figure_of,
    marker,
    set_title,
    styled,
)
from bsdr_models.plots.scores import draw_points, row_colors
from bsdr_models.typing import FloatArray

# Light is sure, dark is not, but never so dark that the colours of the classes drown.
FOG = LinearSegmentedColormap.from_list("fog", [to_rgb("#5d6878"), to_rgb("#b4bbc5"), (1, 1, 1)])
N_LEVELS = 6  # about so many lines of equal precision
ROOM = 0.45  # under a curve, for the rows, as a share of its height
TITLE = "How sure the model is of the features"
Rows = dict[str, tuple[FloatArray, Target]]


@styled
def plot_landscape(
    tree: xr.DataTree,
    *,
    show: Literal["training", "predictions", "both"] | None = "training",
    predictions: xr.DataTree | None = None,
    borders: bool = True,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot the precision of the features over the latent space, and the rows in it.

    Light where the model is sure of the features of a row at that place, dark where it is not:

    .. math::
        -\tfrac{D}{2} \log \sigma^2(x) - \max_{x'} \big( -\tfrac{D}{2} \log \sigma^2(x') \big)

    in nats, whatever the units of the features. What is far from all training rows is dark. With
    one component it is a curve, and the rows lie under it in a strip for each class.

    Parameters
    ----------
    tree
        Needs group "landscape" with `log_precision` (grid_x, grid_y), or (grid_x,) for one
        component, and coordinates of these names; for training rows `fit/latent_mean`.
    show
        Which rows to draw: training rows are full, new rows hollow.
    predictions
        Tree that holds the new rows in its group "predictions"; by default it is `tree`.
    borders
        Draw where the most probable class changes, if the group has `probability_at` (grid_x,
        grid_y, outcome).
    ax
        Axes to draw on; a new figure by default.
    """
    if show not in ("training", "predictions", "both", None):
        raise ValueError(f"show must be 'training', 'predictions', 'both' or None, got {show!r}")
    landscape = read(tree, "landscape", "log_precision")
    dims = (GRID_X, GRID_Y)[: landscape["log_precision"].ndim]
    height = landscape["log_precision"].transpose(*dims).values
    axes = [landscape[dim].values.astype(np.float64) for dim in dims]
    rows: Rows = {}
    if show in ("training", "both"):
        rows["training"] = _read_rows(tree, "fit", len(dims))
    if show in ("predictions", "both"):
        rows["new"] = _read_rows(predictions or tree, "predictions", len(dims))
    classes = [target for _, target in rows.values() if isinstance(target, Classes)]

    ax = axes_or_new(ax, width=7.6, height=5.2, n_names=len(classes[0].names) if classes else 1)
    probability = landscape["probability_at"] if borders and "probability_at" in landscape else None
    lead = None if probability is None else _lead(probability.transpose(*dims, LABEL).values)
    draw = _draw_plane if len(dims) == 2 else _draw_curve
    note = draw(ax, axes, height - height.max(), lead, rows)
    ax.set_xlabel("component 0")
    if len(rows) == 2:
        note += " Full: training rows; hollow: new rows."
    outside = sum(_n_outside(latent, axes) for latent, _ in rows.values())
    if outside:
        note += f" {outside} rows lie outside the picture."
    if classes:
        add_legend(ax, title=classes[0].title)
    set_title(ax, TITLE, note)
    return ax


def _read_rows(tree: xr.DataTree, group: str, n_axes: int) -> tuple[FloatArray, Target]:
    """Positions (N, R) and what colours them."""
    latent = read(tree, group, "latent_mean")["latent_mean"].transpose(OBS, COMPONENT).values
    if latent.shape[1] != n_axes:
        raise ValueError(
            f"the landscape has {n_axes} axes, the rows of group {group!r} have "
            f"{latent.shape[1]} components"
        )
    return latent, read_target(tree, group)


def _lead(probability: FloatArray) -> FloatArray:
    """By how much each class leads the best of the others: (..., K), of which one is positive."""
    ordered = np.sort(probability, axis=-1)
    rival = np.where(probability == ordered[..., -1:], ordered[..., -2:-1], ordered[..., -1:])
    return np.asarray(probability - rival)


def _n_outside(latent: FloatArray, axes: list[FloatArray]) -> int:
    low, high = [axis.min() for axis in axes], [axis.max() for axis in axes]
    return int(np.sum(np.any((latent < low) | (latent > high), axis=1)))


def _draw_plane(
    ax: Axes, axes: list[FloatArray], height: FloatArray, lead: FloatArray | None, rows: Rows
) -> str:
    """Shades over (G_x, G_y), lines of equal precision, borders and rows."""
    across, up = axes
    mesh = ax.pcolormesh(across, up, height.T, shading="gouraud", cmap=FOG, zorder=0)
    mesh.set(rasterized=True, gid="landscape")
    bar = figure_of(ax).colorbar(mesh, ax=ax, pad=0.02, aspect=30)
    bar.set_label("log precision below the highest (nats)")
    bar.outline.set_visible(False)
    levels = np.asarray(MaxNLocator(N_LEVELS).tick_values(float(height.min()), 0.0))
    levels = levels[(levels > height.min()) & (levels < 0.0)]
    line: dict[str, Any] = {"colors": INK, "linestyles": "solid"}
    if len(levels):
        ax.contour(across, up, height.T, levels, linewidths=0.5, alpha=0.35, zorder=1, **line)
    note = "Light: sure; dark: not."
    if lead is not None:
        for c in range(lead.shape[-1]):
            if lead[..., c].min() < 0.0 < lead[..., c].max():
                border = ax.contour(
                    across, up, lead[..., c].T, [0.0], linewidths=1.4, zorder=2, **line
                )
                border.set_gid("border")
        note += " Bold lines: where the most probable class changes."
    ax.grid(visible=False)
    for name, (latent, target) in rows.items():
        if name == "training":
            draw_points(ax, latent, target)
        else:
            _draw_hollow(ax, latent, target, named="training" not in rows)
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]], ylabel="component 1")
    return note


def _draw_hollow(ax: Axes, at: FloatArray, target: Target, *, named: bool) -> None:
    """Open markers at (M, 2), with the colours of the classes or values."""
    shades = row_colors(target, len(at))
    index = target.index if isinstance(target, Classes) else np.zeros(len(at), dtype=np.int64)
    for c in np.unique(index).tolist():
        of = index == c
        ax.scatter(
            at[of, 0],
            at[of, 1],
            s=float(np.clip(14000.0 / len(at), 14.0, 40.0)),
            marker=marker(c),
            facecolors="white",
            edgecolors=shades[of],
            linewidths=1.3,
            zorder=3.5,
            gid="new-rows",
            label=target.name(c) if named and isinstance(target, Classes) else None,
        )


def _draw_curve(
    ax: Axes, axes: list[FloatArray], height: FloatArray, lead: FloatArray | None, rows: Rows
) -> str:
    """Precision over (G,), and under it a strip of rows for every class."""
    (across,) = axes
    low = float(height.min())
    span = -low if low < 0.0 else 1.0
    ax.plot(across, height, color=INK, linewidth=1.8, zorder=2, gid="landscape")
    ax.fill_between(across, low, height, color=GREY, alpha=0.18, linewidth=0.0, zorder=1)
    ticks = np.asarray(MaxNLocator(5).tick_values(low, 0.0))
    ax.set_yticks(ticks[(ticks >= low - 1e-9 * span) & (ticks <= 0.0)])
    note = "High: sure; low: not."
    if lead is not None:
        best = lead.argmax(axis=-1)
        for i in np.nonzero(np.diff(best))[0]:
            a, b = lead[i, best[i]], -lead[i + 1, best[i]]
            x = across[i] + (across[i + 1] - across[i]) * a / max(a + b, 1e-300)
            ax.axvline(x, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2, gid="border")
        note += " Dashed: where the most probable class changes."
    n_strips = max((int(_strips(target).max()) + 1 for _, target in rows.values()), default=0)
    step = ROOM * span / max(n_strips, 1)
    for name, (latent, target) in rows.items():
        strip = _strips(target, len(latent))
        # Golden-ratio offsets: spread like random jitter, and the same each time.
        spread = (np.arange(len(latent)) * 0.618034) % 1.0
        y = low - step * (strip + 0.3 + 0.5 * spread)
        points = np.column_stack([latent[:, 0], y])
        if name == "training":
            draw_points(ax, points, target)
        else:
            _draw_hollow(ax, points, target, named="training" not in rows)
    ax.axhline(low, color=GREY, linewidth=0.8, zorder=1)
    bottom = low - step * (n_strips + 0.25) if rows else low
    ax.set(xlim=across[[0, -1]], ylim=(bottom, 0.06 * span))
    ax.set_ylabel("log precision below the highest (nats)")
    return note


def _strips(target: Target, n_rows: int = 1) -> np.ndarray:
    """Strip of each row, from the top; rows without a label have the one below the classes."""
    if not isinstance(target, Classes):
        return np.zeros(n_rows, dtype=np.int64)
    return np.where(target.index < 0, len(target.names), target.index)
