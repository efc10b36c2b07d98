"""The latent space, shaded by the predictive precision of the features."""

from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.ticker import MaxNLocator
from scipy.ndimage import zoom

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import COMPONENT, GRID_X, GRID_Y, LABEL, OBS
from bsdr_models.plots._read import Classes, Target, read, read_target
from bsdr_models.plots._style import (
    GREY,
    INK,
    add_legend,
    axes_or_new,
    color,
    figure_of,
    marker,
    set_title,
    styled,
)
from bsdr_models.plots.map import sample_colors

# Light is precise; dark is imprecise, but light enough to see the colours of the classes.
FOG = LinearSegmentedColormap.from_list("fog", [to_rgb("#5d6878"), to_rgb("#b4bbc5"), (1, 1, 1)])
N_LEVELS = 6  # approximate number of contour lines
# Heights below a curve of one strip of samples and of all strips, relative to the curve's height.
STRIP, ROOM = 0.15, 1.0
SHARPEN = 4  # grid points of a class boundary per grid point of the landscape, along each axis
TITLE = "Predictive precision of the features"
Samples = dict[str, tuple[FloatArray, Target]]


@styled
def plot_landscape(
    tree: xr.DataTree,
    *,
    show: Literal["training", "predictions", "both"] | None = "training",
    predictions: xr.DataTree | None = None,
    borders: bool = True,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot the predictive precision of the features over the latent space, and samples in it.

    Light where the predictive precision is high, dark where it is low:

    .. math::
        -\tfrac{D}{2} \log \sigma^2(x) - \max_{x'} \big( -\tfrac{D}{2} \log \sigma^2(x') \big)

    in nats, independent of the units of the features. Regions far from training samples are dark.
    With one component it is a curve, with samples in a strip per class below.

    Parameters
    ----------
    tree
        Needs group "landscape" with `log_precision` (grid_x, grid_y), or (grid_x,) for one
        component, and coordinates of these names; for training samples `fit/latent_mean`.
    show
        Which samples to draw: training samples are filled, new samples hollow.
    predictions
        Tree with the new samples in its group "predictions"; `tree` by default.
    borders
        Draw class boundaries, if the group has `probability_at` (grid_x, grid_y, outcome).
    ax
        Axes to draw on; a new figure by default.
    """
    if show not in ("training", "predictions", "both", None):
        raise ValueError(f"show must be 'training', 'predictions', 'both' or None, got {show!r}")
    landscape = read(tree, "landscape", "log_precision")
    dims = (GRID_X, GRID_Y)[: landscape["log_precision"].ndim]
    height = landscape["log_precision"].transpose(*dims).values
    axes = [landscape[dim].values.astype(np.float64) for dim in dims]
    samples: Samples = {}
    if show in ("training", "both"):
        samples["training"] = _read_samples(tree, "fit", len(dims))
    if show in ("predictions", "both"):
        samples["new"] = _read_samples(predictions or tree, "predictions", len(dims))
    classes = [target for _, target in samples.values() if isinstance(target, Classes)]

    ax = axes_or_new(
        ax,
        width=7.2,
        height=(4.8, 6.0)[len(dims) - 1],
        n_names=len(classes[0].names) if classes else 1,
    )
    probability = landscape["probability_at"] if borders and "probability_at" in landscape else None
    chance = None if probability is None else probability.transpose(*dims, LABEL).values
    draw = _draw_plane if len(dims) == 2 else _draw_curve
    note = draw(ax, axes, height - height.max(), chance, samples)
    ax.set_xlabel("component 0")
    said = {"training": "filled: training samples", "new": "hollow: new samples"}
    if classes and classes[-1].title != classes[0].title:
        said["new"] += f" by {classes[-1].title}"
    if samples:
        note += f" {'; '.join(said[name] for name in samples).capitalize()}."
    outside = sum(_n_outside(latent, axes) for latent, _ in samples.values())
    if outside:
        note += f" {outside} samples lie outside the plot."
    if classes:
        add_legend(ax, title=classes[0].title)
    set_title(ax, TITLE, note)
    return ax


def _read_samples(tree: xr.DataTree, group: str, n_axes: int) -> tuple[FloatArray, Target]:
    """Latent coordinates (N, R) and what colours them."""
    latent = read(tree, group, "latent_mean")["latent_mean"].transpose(OBS, COMPONENT).values
    if latent.shape[1] != n_axes:
        raise ValueError(
            f"the landscape has {n_axes} axes, the samples of group {group!r} have "
            f"{latent.shape[1]} components"
        )
    return latent, read_target(tree, group)


def _n_outside(latent: FloatArray, axes: list[FloatArray]) -> int:
    low, high = [axis.min() for axis in axes], [axis.max() for axis in axes]
    return int(np.sum(np.any((latent < low) | (latent > high), axis=1)))


def _draw_plane(
    ax: Axes,
    axes: list[FloatArray],
    height: FloatArray,
    chance: FloatArray | None,
    samples: Samples,
) -> str:
    """Shades over (G_x, G_y), contours, class boundaries and samples."""
    across, up = axes
    mesh = ax.pcolormesh(across, up, height.T, shading="gouraud", cmap=FOG, zorder=0)
    mesh.set(rasterized=True, gid="landscape")
    # Below, since the legend is on the right.
    bar = figure_of(ax).colorbar(mesh, ax=ax, location="bottom", pad=0.02, aspect=45)
    bar.set_label("log precision relative to the maximum (nats)")
    bar.outline.set_visible(False)
    levels = np.asarray(MaxNLocator(N_LEVELS).tick_values(float(height.min()), 0.0))
    levels = levels[(levels > height.min()) & (levels < 0.0)]
    line: dict[str, Any] = {"colors": INK, "linestyles": "solid"}
    if len(levels):
        ax.contour(across, up, height.T, levels, linewidths=0.5, alpha=0.35, zorder=1, **line)
    note = ""
    if chance is not None:
        # Probabilities are smooth and boundaries are not: interpolate first, then compare.
        fine = zoom(chance, (SHARPEN, SHARPEN, 1), order=3, mode="nearest")
        x, y = (
            np.interp(np.linspace(0, 1, SHARPEN * len(a)), np.linspace(0, 1, len(a)), a)
            for a in axes
        )
        for c in range(fine.shape[-1]):
            lead = fine[..., c] - np.delete(fine, c, axis=-1).max(axis=-1)
            if lead.min() < 0.0 < lead.max():
                border = ax.contour(x, y, lead.T, [0.0], linewidths=1.4, zorder=2, **line)
                border.set_gid("border")
        note = "Bold: class boundaries."
    ax.grid(visible=False)
    for name, (latent, target) in samples.items():
        _draw_points(ax, latent, target, hollow=name == "new")
    ax.set(xlim=across[[0, -1]], ylim=up[[0, -1]], ylabel="component 1")
    return note


def _draw_points(ax: Axes, at: FloatArray, target: Target, *, hollow: bool) -> None:
    """Markers at (M, 2), filled with a dark edge or hollow, in the colours of the classes."""
    shades = sample_colors(target, len(at))
    index = target.index if isinstance(target, Classes) else np.zeros(len(at), dtype=np.int64)
    known = ax.get_legend_handles_labels()[1]
    for c in np.unique(index).tolist():
        of = index == c
        label = target.name(c) if isinstance(target, Classes) else None
        ax.scatter(
            at[of, 0],
            at[of, 1],
            s=float(np.clip(12000.0 / len(at), 14.0, 38.0)),
            marker=marker(c),
            facecolors="white" if hollow else shades[of],
            edgecolors=shades[of] if hollow else INK,
            linewidths=1.3 if hollow else 0.5,
            zorder=3.5 if hollow else 3.0,
            gid="new-samples" if hollow else "training-samples",
            label=None if label in known else label,
        )


def _draw_curve(
    ax: Axes,
    axes: list[FloatArray],
    height: FloatArray,
    chance: FloatArray | None,
    samples: Samples,
) -> str:
    """Precision over (G,), and below it a strip of samples per class."""
    (across,) = axes
    low = float(height.min())
    span = -low if low < 0.0 else 1.0
    ax.plot(across, height, color=INK, linewidth=1.8, zorder=2, gid="landscape")
    if chance is None:
        ax.fill_between(across, low, height, color=GREY, alpha=0.18, linewidth=0.0, zorder=1)
    ticks = np.asarray(MaxNLocator(5).tick_values(low, 0.0))
    ax.set_yticks(ticks[(ticks >= low - 1e-9 * span) & (ticks <= 0.0)])
    note = ""
    if chance is not None:
        best = chance.argmax(axis=-1)
        for c in np.unique(best).tolist():
            under = {"where": best == c, "color": color(c), "alpha": 0.3, "linewidth": 0.0}
            ax.fill_between(across, low, height, zorder=1, gid="class", **under)
        for i in np.nonzero(np.diff(best))[0]:
            x = 0.5 * (across[i] + across[i + 1])
            ax.axvline(x, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2, gid="border")
        note = "Colour under the curve: most probable class."
    n_strips = max((int(_strips(target).max()) + 1 for _, target in samples.values()), default=0)
    step = span * min(STRIP, ROOM / max(n_strips, 1))
    for name, (latent, target) in samples.items():
        strip = _strips(target, len(latent))
        spread = (np.arange(len(latent)) * 0.618034) % 1.0  # golden ratio: deterministic jitter
        # If both kinds are shown, new samples take the lower half of a strip.
        begin, width = (0.25, 0.6) if len(samples) == 1 else (0.15 + 0.42 * (name == "new"), 0.33)
        y = low - step * (strip + begin + width * spread)
        points = np.column_stack([latent[:, 0], y])
        _draw_points(ax, points, target, hollow=name == "new")
    ax.axhline(low, color=GREY, linewidth=0.8, zorder=1)
    bottom = low - step * (n_strips + 0.25) if samples else low
    ax.set(xlim=across[[0, -1]], ylim=(bottom, 0.06 * span))
    ax.set_ylabel("log precision relative to the maximum (nats)")
    return note


def _strips(target: Target, n_samples: int = 1) -> np.ndarray:
    """Strip of each sample from the top; samples without a label come last."""
    if not isinstance(target, Classes):
        return np.zeros(n_samples, dtype=np.int64)
    return np.where(target.index < 0, len(target.names), target.index)
