"""Samples and features in one plane: loadings as arrows, or correlations in the unit circle."""

from collections.abc import Hashable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import COMPONENT, FEATURE, OBS
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._layers import draw_points
from bsdr_models.plots._names import Names
from bsdr_models.plots._read import (
    Target,
    caveats,
    component_coordinates,
    correlations,
    read,
    read_target,
)
from bsdr_models.plots._style import (
    GREY,
    INK,
    PALE,
    POSITIVE,
    axes_or_new,
    set_title,
    styled,
)

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
    plot_biplot : the plot, with ``circle=True``.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> model = BSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True, as_frame=True))
    >>> plots.correlation_table(model.idata_).shape
    (13, 2)
    """
    X = read(tree, "constant_data", "X")["X"].transpose(OBS, FEATURE)
    latent = read(tree, "fit", "latent_mean")["latent_mean"].transpose(OBS, COMPONENT)
    coords = {FEATURE: X[FEATURE].values, COMPONENT: latent[COMPONENT].values}
    return xr.DataArray(correlations(X.values, latent.values), coords, name="correlation")


@styled
def plot_biplot(
    tree: xr.DataTree,
    *,
    circle: bool = False,
    components: tuple[int, int] = (0, 1),
    n_features: int = 10,
    label: Hashable | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot training samples and loadings of features, or the correlations of features.

    Samples are at their posterior-mean coordinates. An arrow is a feature's loading times a factor
    common to all, given in the caption, and begins at the mean of the samples: it shows how an
    increase of that scaled feature by the factor moves a sample. Both axes have the same scale, so
    directions are correct.

    With `circle`, features are at their correlations with the two components, and the strongest are
    named. If the components are uncorrelated, see the caption, a feature on the outer circle is a
    linear combination of them; otherwise it may lie beyond.

    Parameters
    ----------
    tree
        Needs `latent_mean` (obs, component) and `projection_mean` (feature, component) in "fit";
        with `circle` what :func:`correlation_table` needs.
    circle
        Whether to show correlations in place of samples and loadings.
    components
        Indices of two components.
    n_features
        Number of features to name: the longest arrows, or the farthest from the origin.
    label
        Which of several outputs (multi-label, regression) colours the samples.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    correlation_table : the numbers of the circle.
    plot_features : effects with intervals.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> model = BSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True, as_frame=True))
    >>> ax = plots.plot_biplot(model.idata_, n_features=5)
    """
    values = correlation_table(tree) if circle else None
    fit = read(tree, "fit", "latent_mean", *([] if circle else ["projection_mean"]))
    chosen, names = component_coordinates(fit, components)
    if len(chosen) != 2:
        raise ValueError("a biplot needs two components; plot_features shows one by one")
    mean = fit["latent_mean"].transpose(OBS, COMPONENT).values[:, chosen]
    if values is None:
        values = fit["projection_mean"].transpose(FEATURE, COMPONENT)
    at = values.values[:, chosen]
    top = np.argsort(-np.hypot(*at.T), kind="stable")[:n_features]
    features = values[FEATURE].values[top]
    number = np.issubdtype(features.dtype, np.number)
    named = [f"feature {name}" if number else str(name) for name in features]
    if circle:
        centre, tips, avoid = np.zeros(2), at[top], at
        ax = _draw_circle(ax, at, top)
        together = np.corrcoef(mean.T)[0, 1]
        note = f"Circles: 1 and 1/2. Correlation of the two components: {together:.2f}."
        if len(top) < len(at):
            note += f" Named: the {len(top)} strongest of {len(at)} features."
        title, approximate = "Correlation of features and components", "latent coordinates are"
    else:
        centre, factor = mean.mean(axis=0), _factor(mean, at[top])
        tips, avoid = centre + factor * at[top], mean
        width = np.ptp(np.concatenate([mean, tips]), axis=0)
        ax = _draw_arrows(ax, mean, read_target(tree, "fit", label), centre, tips)
        longest = f"the {len(top)} longest of {len(at)}" if len(top) < len(at) else "all"
        note = (
            f"Points: posterior means. Arrows ({longest}): loadings times {factor:.2g}, the effect "
            f"of a rise by {factor:.2g} scaled units."
        )
        if width.min() < ALIVE * width.max():
            note += f" Nearly switched off: {names[int(width.argmin())]}."
        title, approximate = "Samples and features", "latent coordinates and loadings are"
    ax.set(xlabel=names[0], ylabel=names[1])
    set_title(ax, title, note + caveats(tree, f"{approximate} approximate"))
    lines = [np.stack([centre, tip]) for tip in tips]
    Names(ax, tips, named, centre=centre, avoid=avoid, lines=lines)
    return ax


def _draw_circle(ax: Axes | None, at: FloatArray, top: np.ndarray) -> Axes:
    """Points of all features (D, 2), and lines to the named ones."""
    ax = axes_or_new(ax, width=5.6, height=5.95)
    for radius in (0.5, 1.0):
        ax.add_patch(Circle((0.0, 0.0), radius, fill=False, edgecolor=GREY, linewidth=0.9))
    ax.axhline(0.0, color=PALE, linewidth=0.9, zorder=1)
    ax.axvline(0.0, color=PALE, linewidth=0.9, zorder=1)
    x, y = at.T
    ax.scatter(np.delete(x, top), np.delete(y, top), s=9, color=PALE, zorder=2)
    lines = [np.stack([np.zeros(2), point]) for point in at[top]]
    ax.add_collection(LineCollection(lines, colors=POSITIVE, linewidths=0.9, alpha=0.6, zorder=2.5))
    ax.scatter(x[top], y[top], s=22, color=POSITIVE, edgecolors="white", linewidths=0.5, zorder=3)
    limit = 1.12 * max(1.0, float(np.hypot(*at.T).max()))
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
    return ax


def _draw_arrows(
    ax: Axes | None, mean: FloatArray, target: Target, centre: FloatArray, tips: FloatArray
) -> Axes:
    """Samples (N, 2), and arrows from the centre to the tips (D, 2)."""
    width = np.ptp(np.concatenate([mean, tips]), axis=0)
    slope = width[1] / width[0] if width[0] > 0.0 else np.inf
    height = 1.2 + float(np.clip(4.8 * slope, 2.6, 4.4))
    ax = draw_points(ax, mean, target, width=7.2, height=height, alpha=0.55)  # behind the arrows
    style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.1, "shrinkB": 0.0}
    for tip in tips:
        ax.annotate("", xy=tip, xytext=(centre[0], centre[1]), arrowprops=style, zorder=4)
    ax.update_datalim(tips)  # which annotations leave
    ax.margins(0.09)
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def _factor(mean: FloatArray, loadings: FloatArray) -> float:
    """Factor, to two digits, by which the longest arrow nearly reaches the outer samples."""
    far = np.quantile(np.hypot(*(mean - mean.mean(axis=0)).T), 0.95)
    longest = np.hypot(*loadings.T).max()
    return float(f"{REACH * far / longest:.2g}") if longest > 0.0 else 1.0
