"""Relevance of components and of views."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from bsdr_models.dims import CHAIN, COMPONENT, DRAW, VIEW
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._read import check_prob, read
from bsdr_models.plots._style import INK, PALE, POSITIVE, axes_or_new, set_title, styled


@styled
def plot_relevance(tree: xr.DataTree, *, ax: Axes | None = None) -> Axes:
    """Plot the relevance of each component.

    Relevance is the component's share of the between-sample variance of latent coordinates times
    weights. Components below one per cent count as switched off by the prior.

    Parameters
    ----------
    tree
        Needs `fit/relevance` (component,).
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    plot_views : shares of views and kernels.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_relevance(model.idata_)
    """
    fit = read(tree, "fit", "relevance")
    relevance = fit["relevance"].values
    order = np.argsort(-relevance, kind="stable")
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


@styled
def plot_views(tree: xr.DataTree, *, prob: float = 0.9, ax: Axes | None = None) -> Axes:
    """Plot the share of each view, or kernel, in the variance of the class scores.

    A line is the central interval with probability `prob`, its thick part that with 50 %, the point
    the median over the posterior draws.

    Parameters
    ----------
    tree
        Needs `posterior/view_share` (chain, draw, view), of a fit of BSDR with several views or
        kernels.
    prob
        Probability of the longer interval.
    ax
        Axes to draw on; a new figure by default.

    Raises
    ------
    ValueError
        If the tree has no shares of views, or `prob` is not between 0 and 1.

    See Also
    --------
    plot_relevance : shares of components.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True)
    >>> views = {"acids": range(5), "phenols": range(5, 9), "colour": range(9, 13)}
    >>> model = BSDRClassifier(views=views, random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_views(model.idata_)
    """
    check_prob(prob)
    share = read(tree, "posterior", "view_share")["view_share"].stack(sample=(CHAIN, DRAW))
    share = share.transpose("sample", VIEW)
    order = np.argsort(np.median(share.values, axis=0), kind="stable")
    tail = 0.5 - prob / 2.0
    low, q25, middle, q75, high = np.quantile(
        share.values[:, order], [tail, 0.25, 0.5, 0.75, 1.0 - tail], axis=0
    )
    ax = axes_or_new(ax, width=5.4, height=1.5 + 0.36 * len(order))
    place = np.arange(len(order))
    ax.hlines(place, low, high, color=POSITIVE, linewidth=1.2)
    ax.hlines(place, q25, q75, color=POSITIVE, linewidth=4.0)
    ax.plot(middle, place, "o", color="white", markeredgecolor=POSITIVE, markersize=6)
    ax.set_yticks(place, [str(name) for name in share[VIEW].values[order]])
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.6, len(order) - 0.4), xlabel="share of the variance")
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(axis="y", visible=False)
    note = f"Median, 50 % and {prob:.0%} intervals of the share in the variances of class scores."
    set_title(ax, "Views", note)
    return ax
