"""Samples in the latent space, with the uncertainty of their coordinates."""

from collections.abc import Hashable
from functools import partial
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize, to_rgba_array

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import COMPONENT, COMPONENT_AUX, OBS
from bsdr_models.plots._ellipses import mixture_moments, outline, spread_samples
from bsdr_models.plots._read import (
    TOO_NARROW,
    Classes,
    Target,
    Values,
    caveats,
    check_prob,
    component_coordinates,
    read,
    read_target,
)
from bsdr_models.plots._strips import draw_strips
from bsdr_models.plots._style import (
    GREY,
    HALO,
    INK,
    PALETTE,
    SHADES,
    add_legend,
    axes_or_new,
    color,
    figure_of,
    marker,
    set_title,
    styled,
)


@styled
def plot_map(
    tree: xr.DataTree,
    *,
    group: Literal["fit", "predictions"] = "fit",
    components: int | tuple[int, ...] = (0, 1),
    prob: float = 0.9,
    ellipses: Literal["obs", "class", "both"] | None = "both",
    max_ellipses: int = 200,
    label: Hashable | None = None,
    outside: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot samples at their posterior-mean latent coordinates, with credible ellipses.

    A thin ellipse holds `prob` of the posterior of *one sample's* coordinates, N(latent_mean_n,
    latent_cov_n); a thick dashed one holds `prob` of *a class*, a normal with the mean and
    covariance of its samples,

    .. math::
        \Sigma_c = \operatorname{mean}_{n \in c} \Sigma_n + \operatorname{cov}_{n \in c}(\mu_n).

    With one component a strip per class is drawn: points, the interval of each sample, and the
    density of the class (a mixture of the normals of its samples).

    Parameters
    ----------
    tree
        Needs `latent_mean` (obs, component) and `latent_cov` (obs, component, component_aux).
    group
        "fit" for the training samples, "predictions" for new ones.
    components
        Indices of one or two components.
    prob
        Probability of an ellipse or interval.
    ellipses
        Which to draw; a class ellipse needs classes.
    max_ellipses
        Largest number of samples whose ellipses are drawn, spread evenly over the classes.
    label
        Which of several outputs (multi-label, regression) colours the samples.
    outside
        Ring outliers, samples whose `tail_probability` in `group` is below this, for example 0.01;
        their latent coordinates are not reliable.
    ax
        Axes to draw on; a new figure by default.
    """
    check_prob(prob)
    if ellipses not in ("obs", "class", "both", None):
        raise ValueError(f"ellipses must be 'obs', 'class', 'both' or None, got {ellipses!r}")
    if max_ellipses < 1:
        raise ValueError(f"max_ellipses must be at least 1, got {max_ellipses}; see ellipses=None")
    needed = ("latent_mean", "latent_cov") + ("tail_probability",) * (outside is not None)
    dataset = read(tree, group, *needed)
    chosen, names = component_coordinates(dataset, components)
    mean = dataset["latent_mean"].transpose(OBS, COMPONENT).values[:, chosen]
    cov = dataset["latent_cov"].transpose(OBS, COMPONENT, COMPONENT_AUX).values
    cov = cov[:, chosen][:, :, chosen]
    target = read_target(tree, group, label)
    if ellipses == "class" and not isinstance(target, Classes):
        raise ValueError(f"class ellipses need classes, and group {group!r} has none")

    n_classes = len(target.names) if isinstance(target, Classes) else 0
    if len(chosen) == 1:
        ax = axes_or_new(ax, height=max(4.8, 1.4 + 0.36 * n_classes))
        at = draw_strips(ax, mean[:, 0], np.sqrt(cov[:, 0, 0]), target, prob, max_ellipses)
        note = f"Bars: {prob:.0%} credible intervals; curves: density of each class."
    else:
        ax = axes_or_new(ax, width=7.2, height=5.2, n_names=n_classes)
        note = _draw_plane(ax, mean, cov, target, prob, ellipses, max_ellipses)
        ax.set_ylabel(names[1])
        at = mean
    if outside is not None:
        note += _ring(ax, at[dataset["tail_probability"].values < outside], len(mean), outside)
    ax.set_xlabel(names[0])
    title = "Training samples" if group == "fit" else "New samples"
    what = "intervals" if len(chosen) == 1 else "ellipses" if ellipses else None
    note += caveats(tree, what and TOO_NARROW.format(what))
    set_title(ax, f"{title} in the latent space", note)
    return ax


def _ring(ax: Axes, at: FloatArray, n_samples: int, outside: float) -> str:
    """Draw rings around samples (M, 2), and return their caption."""
    ax.scatter(
        at[:, 0],
        at[:, 1],
        s=110,
        facecolors="none",
        edgecolors=INK,
        linewidths=1.2,
        zorder=5,
        gid="outside",
    )
    return f" Rings: {len(at)} of {n_samples} samples are outliers (tail below {outside:g})."


def draw_points(ax: Axes, mean: FloatArray, target: Target) -> None:
    """Draw points (N, 2) with the colour and marker of their class, or the shade of their value."""
    size = float(np.clip(12000.0 / len(mean), 10.0, 34.0))
    scatter = partial(ax.scatter, s=size, edgecolors="white", linewidths=0.014 * size, zorder=3)
    match target:
        case Classes(index=index):
            for c in np.unique(index).tolist():
                points = mean[index == c]
                scatter(*points.T, color=color(c), marker=marker(c), label=target.name(c))
        case Values(values=values, title=title):
            points = scatter(*mean.T, c=values, cmap=SHADES)
            figure_of(ax).colorbar(points, ax=ax, label=title, pad=0.02)
        case None:
            scatter(*mean.T, color=GREY)


def sample_colors(target: Target, n_samples: int) -> FloatArray:
    """Colour of every sample, (N, 4)."""
    match target:
        case Classes(index=index):
            return to_rgba_array([color(int(c)) for c in index])
        case Values(values=values):
            shades = colormaps[SHADES]
            return np.asarray(shades(Normalize(values.min(), values.max())(values)))
        case None:
            return to_rgba_array([GREY] * n_samples)


def _draw_plane(
    ax: Axes,
    mean: FloatArray,
    cov: FloatArray,
    target: Target,
    prob: float,
    ellipses: str | None,
    max_ellipses: int,
) -> str:
    group = target.index if isinstance(target, Classes) else np.zeros(len(mean), dtype=np.int64)
    draw_points(ax, mean, target)
    note = "Points: posterior means."
    if ellipses in ("obs", "both"):
        some = spread_samples(group, max_ellipses)
        vertices = outline(mean[some], cov[some], prob=prob)
        _draw_sample_ellipses(ax, vertices, sample_colors(target, len(mean))[some])
        drawn = f" ({len(some)} of {len(mean)} samples)" if len(some) < len(mean) else ""
        note += f" Thin: {prob:.0%} credible ellipses{drawn}."
    if ellipses in ("class", "both") and isinstance(target, Classes):
        _draw_class_ellipses(ax, mean, cov, target, prob)
        note += f" Dashed: {prob:.0%} of each class."
    if isinstance(target, Classes):
        add_legend(ax, title=target.title)
    return note


def _draw_sample_ellipses(ax: Axes, vertices: FloatArray, colors: FloatArray) -> None:
    # Lower opacity for many overlapping ellipses.
    fill = float(np.clip(3.0 / len(vertices), 0.01, 0.12))
    ax.add_collection(
        PolyCollection(
            list(vertices),
            facecolors=to_rgba_array(colors, alpha=fill),
            edgecolors=to_rgba_array(colors, alpha=0.3),
            linewidths=0.7,
            zorder=1.5,
            gid="obs-ellipses",
        )
    )
    ax.autoscale_view()


def _draw_class_ellipses(
    ax: Axes, mean: FloatArray, cov: FloatArray, target: Classes, prob: float
) -> None:
    present = np.unique(target.index[target.index >= 0]).tolist()
    moments = [mixture_moments(mean[target.index == c], cov[target.index == c]) for c in present]
    centres = np.stack([centre for centre, _ in moments])
    vertices = outline(centres, np.stack([total for _, total in moments]), prob=prob)
    ax.add_collection(
        PolyCollection(
            list(vertices),
            facecolors="none",
            edgecolors=[color(c) for c in present],
            linewidths=2.0,
            linestyles=[(0, (4, 2))],
            zorder=4,
            gid="class-ellipses",
            path_effects=HALO,
        )
    )
    ax.autoscale_view()
    if len(target.names) > len(PALETTE):  # colours repeat, so names are written
        write = partial(ax.text, fontsize=7.5, ha="center", va="center", zorder=5)
        for c, (x, y) in zip(present, centres, strict=True):
            write(x, y, target.names[c], path_effects=HALO)
