"""Loadings, and relevance of components and features."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dims import COMPONENT, FEATURE
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._read import (
    TOO_NARROW,
    caveats,
    component_coordinates,
    read,
)
from bsdr_models.plots._style import (
    GREY,
    INK,
    NEGATIVE,
    PALE,
    POSITIVE,
    axes_or_new,
    name_features,
    set_title,
    styled,
)
from bsdr_models.plots.tables import loadings_table


@styled
def plot_loadings(
    tree: xr.DataTree,
    component: int = 0,
    *,
    n_features: int = 20,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot the largest loadings on a component by absolute posterior mean, with intervals.

    The interval is mean +/- z sd; a feature whose interval contains zero is pale. For a nonlinear
    map, loadings are mean slopes and intervals show their spread over the training samples.

    Parameters
    ----------
    tree
        Needs `fit/projection_mean` and `fit/projection_sd`, both (feature, component).
    component
        Index of the component.
    n_features
        Number of features to show at most.
    prob
        Probability of an interval.
    ax
        Axes to draw on; a new figure by default.
    """
    table = loadings_table(tree, prob=prob)
    (position,), (name,) = component_coordinates(table, component)
    one = table.isel({COMPONENT: position})
    mean, low, high = (one[end].values for end in ("mean", "low", "high"))
    known = np.isfinite(low)  # some fits have no posterior sd of loadings
    top = _largest(np.abs(mean), n_features)
    ax = axes_or_new(ax, width=6.0, height=1.5 + 0.22 * len(top))
    for rank, f in enumerate(top):
        sign = POSITIVE if mean[f] > 0.0 else NEGATIVE
        shade = PALE if low[f] <= 0.0 <= high[f] else sign
        if known[f]:
            ax.hlines(rank, low[f], high[f], color=shade, linewidth=2.2)
        ax.plot(mean[f], rank, "o", color=shade, markersize=6, markeredgecolor="white")
    ax.axvline(0.0, color=GREY, linewidth=1.0, zorder=1)
    name_features(ax, one[FEATURE].values[top])
    ax.set_xlabel(f"loading on {name}")
    if table["sd"].attrs.get("over") == "rows":
        note = f"Mean slopes; bars: {prob:.0%} of the slopes at training samples, no uncertainty."
        caveat = caveats(tree, "slopes are approximate")
    elif known.any():
        note = f"{prob:.0%} credible intervals; pale: contains zero."
        caveat = caveats(tree, TOO_NARROW.format("intervals"))
    else:
        note = "This fit has no intervals."
        caveat = caveats(tree, "loadings are approximate")
    if len(top) < len(mean):
        note = f"The {len(top)} largest of {len(mean)} features. " + note
    set_title(ax, f"Loadings of {name}", note + caveat)
    return ax


@styled
def plot_relevance(tree: xr.DataTree, *, ax: Axes | None = None) -> Axes:
    """Plot the relevance of each component, or the evidence by number of components.

    Relevance is the component's share of the between-sample variance of latent coordinates times
    weights. Components below one per cent count as switched off by the prior. A fit with
    ``n_components="auto"`` shows the log evidence of every number of components that it compared.

    Parameters
    ----------
    tree
        Needs `fit/relevance` (component,), or the root attributes `components_compared` and
        `components_log_evidence`.
    ax
        Axes to draw on; a new figure by default.
    """
    fit = read(tree, "fit", "relevance")
    relevance = fit["relevance"].values
    if "components_compared" in tree.attrs:
        return _plot_evidence(tree, relevance, ax)
    order = _largest(relevance, len(relevance))
    alive = relevance[order] >= ALIVE
    ax = axes_or_new(ax, width=max(4.6, 1.8 + 0.32 * len(order)), height=3.6)
    shades = np.where(alive, POSITIVE, PALE)
    bars = ax.bar(range(len(order)), relevance[order], color=shades, width=0.6)
    if len(order) <= 15:
        text = [f"{share:.0%}" if share >= ALIVE else f"<{ALIVE:.0%}" for share in relevance[order]]
        ax.bar_label(bars, text, padding=4, fontsize=8.5)
    ax.margins(y=0.12)
    ax.axhline(ALIVE, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    ax.set_xticks(range(len(order)), [str(name) for name in fit[COMPONENT].values[order]])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="component", ylabel="share of the variance")
    note = f"Variance of latent × weights between samples; below {ALIVE:.0%} (dashed) switched off."
    set_title(ax, f"{alive.sum()} of {len(order)} components in use", note)
    return ax


def _plot_evidence(tree: xr.DataTree, relevance: FloatArray, ax: Axes | None) -> Axes:
    """Log evidence of every number of components compared, relative to the largest."""
    number = np.atleast_1d(tree.attrs["components_compared"])
    evidence = np.atleast_1d(tree.attrs["components_log_evidence"])
    number, evidence = number[np.argsort(number)], evidence[np.argsort(number)]
    below = evidence - evidence.max()
    ax = axes_or_new(ax, width=5.4, height=3.8)
    ax.plot(number, below, "o-", color=POSITIVE, linewidth=1.6, markersize=6)
    best = below == 0.0
    ax.scatter(number[best], below[best], s=130, facecolors="none", edgecolors=INK, zorder=4)
    ax.set_xticks(number)
    ax.margins(y=0.12)
    ax.set(xlabel="number of components", ylabel="log evidence below the largest (nats)")
    shares = ", ".join(f"{share:.0%}" for share in sorted(relevance, reverse=True))
    note = f"Ring: largest, {evidence.max():.1f} nats. Shares of the variance of its components: "
    title = f"{number[best][0]} of up to {number[-1]} components have the largest evidence"
    set_title(ax, title, f"{note}{shares}.")
    return ax


@styled
def plot_feature_relevance(
    tree: xr.DataTree, *, n_features: int = 20, ax: Axes | None = None
) -> Axes:
    """Plot the most relevant features over all components.

    Relevance is the feature's share of the squared coefficients, projection times weights. It suits
    the rowwise prior, which switches whole features off.

    Parameters
    ----------
    tree
        Needs `fit/feature_relevance` (feature,).
    n_features
        Number of features to show at most.
    ax
        Axes to draw on; a new figure by default.
    """
    fit = read(tree, "fit", "feature_relevance")
    relevance = fit["feature_relevance"].values
    top = _largest(relevance, n_features)
    ax = axes_or_new(ax, width=6.0, height=1.3 + 0.22 * len(top))
    ax.hlines(range(len(top)), 0.0, relevance[top], color=PALE, linewidth=2.0)
    ax.plot(relevance[top], range(len(top)), "o", color=POSITIVE, markersize=6)
    ax.set_xlim(left=0.0)
    name_features(ax, fit[FEATURE].values[top])
    ax.set_xlabel("share of the squared coefficients")
    note = f"The {len(top)} largest of {len(relevance)} features." * (len(top) < len(relevance))
    set_title(ax, "Relevance of the features", note)
    return ax


def _largest(size: FloatArray, limit: int) -> IntArray:
    """Indices of the largest entries, in descending order; ties keep their order."""
    return np.argsort(-size, kind="stable")[:limit]
