"""Biplot of samples and features, and the circle of correlations."""

from collections.abc import Hashable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import COMPONENT, FEATURE, OBS
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._names import Names
from bsdr_models.plots._read import (
    Classes,
    caveats,
    component_coordinates,
    read,
    read_target,
)
from bsdr_models.plots._style import (
    GREY,
    INK,
    PALE,
    POSITIVE,
    add_legend,
    axes_or_new,
    set_title,
    styled,
)
from bsdr_models.plots.map import draw_points

REACH = 0.8  # length of the longest arrow, as a fraction of the radius of the samples


def correlation_table(tree: xr.DataTree) -> xr.DataArray:
    """Correlation of every feature with every component over the training samples.

    Parameters
    ----------
    tree
        Needs `X` (obs, feature) in group "constant_data" and `fit/latent_mean` (obs, component).

    Returns
    -------
    DataArray
        (feature, component), in [-1, 1]; 0 for a constant feature. Missing values are left out.

    See Also
    --------
    plot_correlation_circle : the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> plots.correlation_table(model.idata_).shape
    (13, 2)
    """
    data = read(tree, "constant_data", "X")["X"].transpose(OBS, FEATURE)
    latent = read(tree, "fit", "latent_mean")["latent_mean"].transpose(OBS, COMPONENT)
    X, z = data.values, latent.values
    seen = ~np.isnan(X)
    count = np.maximum(seen.sum(axis=0), 1)[:, None]
    X = np.where(seen, X - np.nanmean(np.where(seen.any(axis=0), X, 0.0), axis=0), 0.0)
    z = z - z.mean(axis=0)
    weight = seen.T.astype(np.float64)
    middle = weight @ z / count  # mean of z over the samples where the feature is observed
    cross = X.T @ z  # X sums to zero over these samples
    spread = np.sqrt(np.maximum(weight @ z**2 - count * middle**2, 0.0))
    size = np.sqrt(np.sum(X**2, axis=0))[:, None] * spread
    values = np.divide(cross, size, out=np.zeros_like(cross), where=size > 0.0)
    coords = {FEATURE: data[FEATURE].values, COMPONENT: latent[COMPONENT].values}
    return xr.DataArray(values.clip(-1.0, 1.0), coords=coords, name="correlation")


@styled
def plot_correlation_circle(
    tree: xr.DataTree,
    *,
    components: tuple[int, int] = (0, 1),
    n_features: int = 15,
    ax: Axes | None = None,
) -> Axes:
    """Plot the correlation of each feature with two components, and name the strongest.

    Circles have radii 1 and 1/2. If the components are uncorrelated, a feature on the outer circle
    is a linear combination of them; otherwise it may lie beyond. The caption gives their
    correlation.

    Parameters
    ----------
    tree
        As for :func:`correlation_table`.
    components
        Indices of two components.
    n_features
        Number of features to name, the farthest from the origin.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    correlation_table : the numbers.
    plot_biplot : loadings.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_correlation_circle(model.idata_, n_features=5)
    """
    table = correlation_table(tree)
    chosen, names = _plane(table.to_dataset(), components, "a correlation circle")
    at = table.values[:, chosen]
    together = np.corrcoef(
        read(tree, "fit", "latent_mean")["latent_mean"].transpose(COMPONENT, OBS).values[chosen, :]
    )[0, 1]
    top = np.argsort(-np.hypot(*at.T), kind="stable")[:n_features]
    ax = axes_or_new(ax, width=5.6, height=6.3)
    for radius in (0.5, 1.0):
        ax.add_patch(Circle((0.0, 0.0), radius, fill=False, edgecolor=GREY, linewidth=0.9))
    ax.axhline(0.0, color=PALE, linewidth=0.9, zorder=1)
    ax.axvline(0.0, color=PALE, linewidth=0.9, zorder=1)
    rest = np.setdiff1d(np.arange(len(at)), top)
    ax.scatter(at[rest, 0], at[rest, 1], s=9, color=PALE, zorder=2)
    lines = [np.stack([np.zeros(2), point]) for point in at[top]]
    ax.add_collection(LineCollection(lines, colors=POSITIVE, linewidths=0.9, alpha=0.6, zorder=2.5))
    ax.scatter(
        at[top, 0], at[top, 1], s=22, color=POSITIVE, edgecolors="white", linewidths=0.5, zorder=3
    )
    limit = 1.12 * max(1.0, float(np.hypot(*at.T).max()))
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit), xlabel=names[0], ylabel=names[1])
    ax.set_aspect("equal")
    note = f"Circles: 1 and 1/2. Correlation of the two components: {together:.2f}."
    if len(rest):
        note += f" Named: the {len(top)} strongest of {len(at)} features."
    approximate = "latent coordinates are approximate"
    set_title(ax, "Correlation of features and components", note + caveats(tree, approximate))
    named = _names(table[FEATURE].values[top])
    Names(ax, at[top], named, centre=np.zeros(2), avoid=at, lines=lines)
    return ax


@styled
def plot_biplot(
    tree: xr.DataTree,
    *,
    components: tuple[int, int] = (0, 1),
    n_features: int = 10,
    label: Hashable | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot training samples at their posterior-mean coordinates, and loadings as arrows.

    An arrow is a feature's loading times a factor common to all, given in the caption, and begins
    at the mean of the samples: it shows how an increase of that scaled feature by the factor moves
    a sample. Both axes have the same scale, so directions are correct.

    Parameters
    ----------
    tree
        Needs `latent_mean` (obs, component) and `projection_mean` (feature, component) in "fit".
    components
        Indices of two components.
    n_features
        Number of arrows to draw, the longest ones.
    label
        Which of several outputs (multi-label, regression) colours the samples.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    plot_correlation_circle : correlations in place of loadings.
    plot_features : effects with intervals.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_biplot(model.idata_, n_features=5)
    """
    fit = read(tree, "fit", "latent_mean", "projection_mean")
    chosen, names = _plane(fit, components, "a biplot")
    mean = fit["latent_mean"].transpose(OBS, COMPONENT).values[:, chosen]
    loadings = fit["projection_mean"].transpose(FEATURE, COMPONENT).values[:, chosen]
    top = np.argsort(-np.hypot(*loadings.T), kind="stable")[:n_features]
    centre, factor = mean.mean(axis=0), _factor(mean, loadings[top])
    tips = centre + factor * loadings[top]

    target = read_target(tree, "fit", label)
    # Room for names around the arrows, which autoscaling ignores.
    everything = np.concatenate([mean, tips])
    low, high = everything.min(axis=0), everything.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    low, high = low - 0.09 * width, high + 0.09 * width
    ax = axes_or_new(
        ax,
        width=7.2,
        height=1.2 + float(np.clip(4.8 * width[1] / width[0], 2.6, 4.4)),
        n_names=len(target.names) if isinstance(target, Classes) else 1,
    )
    draw_points(ax, mean, target)
    for points in ax.collections:
        points.set_alpha(0.55)  # behind the arrows
    for tip in tips:
        ax.annotate(
            "",
            xy=tip,
            xytext=(centre[0], centre[1]),
            arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.1, "shrinkB": 0.0},
            zorder=4,
        )
    ax.set_xlim(low[0], high[0], auto=True)  # may grow to keep the aspect
    ax.set_ylim(low[1], high[1], auto=True)
    ax.set(xlabel=names[0], ylabel=names[1])
    ax.set_aspect("equal", adjustable="datalim")
    if isinstance(target, Classes):
        add_legend(ax, title=target.title)
    longest = f"the {len(top)} longest of {len(loadings)}" if len(top) < len(loadings) else "all"
    note = (
        f"Points: posterior means. Arrows ({longest}): loadings times {factor:.2g}, the effect of "
        f"a rise by {factor:.2g} scaled units."
    )
    if width.min() < ALIVE * width.max():
        note += f" Nearly switched off: {names[int(width.argmin())]}."
    approximate = "latent coordinates and loadings are approximate"
    set_title(ax, "Samples and features", note + caveats(tree, approximate))
    lines = [np.stack([centre, tip]) for tip in tips]
    named = _names(fit[FEATURE].values[top])
    Names(ax, tips, named, centre=centre, avoid=mean, lines=lines)
    return ax


def _plane(
    dataset: xr.Dataset, components: tuple[int, int], what: str
) -> tuple[list[int], list[str]]:
    """Indices of two components, and their names."""
    chosen, names = component_coordinates(dataset, components)
    if len(chosen) != 2:
        raise ValueError(f"{what} needs two components; plot_features shows one by one")
    return list(chosen), names


def _factor(mean: FloatArray, loadings: FloatArray) -> float:
    """Factor, to two digits, by which the longest arrow nearly reaches the outer samples."""
    far = np.quantile(np.hypot(*(mean - mean.mean(axis=0)).T), 0.95)
    longest = np.hypot(*loadings.T).max()
    return float(f"{REACH * far / longest:.2g}") if longest > 0.0 else 1.0


def _names(features: np.ndarray) -> list[str]:
    number = np.issubdtype(features.dtype, np.number)
    return [f"feature {name}" if number else str(name) for name in features]
