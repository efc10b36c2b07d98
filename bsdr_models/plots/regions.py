"""Decision regions in a plane of the latent space."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from scipy.ndimage import zoom
from scipy.special import softmax

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import CHAIN, COMPONENT, DRAW, LABEL, OBS
from bsdr_models.numerics.orthant import label_log_probs
from bsdr_models.plots._ellipses import spread_samples
from bsdr_models.plots._read import (
    Classes,
    caveats,
    component_coordinates,
    read,
    read_target,
)
from bsdr_models.plots._style import INK, add_legend, axes_or_new, color, set_title, styled
from bsdr_models.plots.map import draw_points

MAX_OPACITY = 0.6
SHARPEN = 8  # pixels per grid cell, along each axis


@styled
def plot_decision_regions(
    tree: xr.DataTree,
    *,
    components: tuple[int, int] = (0, 1),
    n_draws: int = 25,
    resolution: int = 40,
    margin: float = 0.08,
    ax: Axes | None = None,
) -> Axes:
    r"""Plot the most probable class at every point of a latent plane.

    The colour is the most probable class, its opacity that class's probability. At point z

    .. math::
        P(y = c \mid z) = \operatorname{mean}_s P(\arg\max_k t_k = c), \qquad
        t \sim N(z W_s + b_s, I)

    over posterior draws s. For a model without a class likelihood it is softmax(f / T) of the class
    scores f, with the temperature T of the tree. It is conditional on the latent coordinates, whose
    uncertainty `plot_map` shows.

    Parameters
    ----------
    tree
        Needs `weights` and `bias` in group "posterior", in the coordinates of `fit/latent_mean`,
        and `fit/y_index`.
    components
        The two components that span the plane. Others are fixed at the mean of the training
        samples.
    n_draws
        Number of posterior draws averaged over, spread evenly.
    resolution
        Grid points per axis.
    margin
        Fraction of the range of the training samples that is added on each side.
    ax
        Axes to draw on; a new figure by default.
    """
    fit = read(tree, "fit", "latent_mean", "y_index")
    chosen, names = component_coordinates(fit, components)
    if len(chosen) != 2:
        raise ValueError("decision regions need a plane: two components")
    target = read_target(tree, "fit")
    assert isinstance(target, Classes)
    latent = fit["latent_mean"].transpose(OBS, COMPONENT).values
    plane = latent[:, chosen]

    low, high = plane.min(axis=0), plane.max(axis=0)
    low, high = low - margin * (high - low), high + margin * (high - low)
    across, up = (np.linspace(low[i], high[i], resolution) for i in (0, 1))
    grid = np.tile(latent.mean(axis=0), (resolution**2, 1))
    grid[:, chosen] = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    probability = class_probability(tree, grid, n_draws=n_draws)

    ax = axes_or_new(ax, width=7.2, height=5.2, n_names=len(target.names))
    _draw_shades(ax, probability.reshape(resolution, resolution, -1), low, high)
    draw_points(ax, plane, target)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xlabel=names[0], ylabel=names[1])
    ax.grid(visible=False)
    add_legend(ax, title=target.title)
    note = "Opacity: probability above chance. Lines: 90% and (dotted) 50%."
    note += " Points: training samples."
    if latent.shape[1] > 2:
        note += " Other components at their mean."
    set_title(ax, "Most probable class", note + caveats(tree, "probabilities are approximate"))
    return ax


def class_probability(tree: xr.DataTree, latent: FloatArray, *, n_draws: int) -> FloatArray:
    """Posterior-mean probability of every class at latent coordinates (M, R): (M, K)."""
    posterior = read(tree, "posterior", "weights", "bias")
    weights = posterior["weights"].transpose(CHAIN, DRAW, COMPONENT, LABEL).values
    bias = posterior["bias"].transpose(CHAIN, DRAW, LABEL).values
    weights, bias = weights.reshape(-1, *weights.shape[2:]), bias.reshape(-1, bias.shape[-1])
    if tree.attrs.get("link") == "softmax":  # T is calibrated on mean class scores
        scores = latent @ weights.mean(axis=0) + bias.mean(axis=0)
        return np.asarray(softmax(scores / tree.attrs["temperature"], axis=1))
    draws = spread_samples(np.zeros(len(bias), dtype=np.int64), n_draws)
    total = np.zeros((len(latent), bias.shape[1]))
    for s in draws:
        eta = latent @ weights[s] + bias[s]
        total += np.exp(label_log_probs(eta, np.ones_like(eta)))
    return total / len(draws)


def _draw_shades(ax: Axes, probability: FloatArray, low: FloatArray, high: FloatArray) -> None:
    """Image of probabilities (G, G, K), white where all classes are equally probable."""
    # Probabilities are smooth and boundaries are not: interpolate first, then take the largest.
    fine = zoom(probability, (SHARPEN, SHARPEN, 1), order=3, mode="nearest").clip(0.0, 1.0)
    chance = 1.0 / probability.shape[-1]
    best, largest = fine.argmax(axis=-1), fine.max(axis=-1)
    opacity = MAX_OPACITY * (largest - chance) / (1.0 - chance)
    shades = np.array([to_rgb(color(c)) for c in range(probability.shape[-1])])[best]
    image = 1.0 - opacity[..., None] * (1.0 - shades)
    extent = (low[0], high[0], low[1], high[1])
    ax.imshow(image.clip(0.0, 1.0), origin="lower", extent=extent, aspect="auto", zorder=0)
    for level, line in ((0.5, "dotted"), (0.9, "solid")):
        if largest.min() < level < largest.max():
            style: dict[str, Any] = {"colors": INK, "linewidths": 0.7, "alpha": 0.6, "zorder": 1}
            ax.contour(largest, levels=[level], linestyles=line, extent=extent, **style)
