"""Relevance of components and of views."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dims import CHAIN, COMPONENT, DRAW, VIEW
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._read import check_prob, read
from bsdr_models.plots._style import INK, PALE, POSITIVE, axes_or_new, set_title, styled


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


def _plot_evidence(tree: xr.DataTree, relevance: FloatArray, ax: Axes | None) -> Axes:
    """Log evidence of every number of components compared, relative to the largest."""
    number = np.atleast_1d(tree.attrs["components_compared"])
    evidence = np.atleast_1d(tree.attrs["components_log_evidence"])
    number, evidence = number[np.argsort(number)], evidence[np.argsort(number)]
    below = evidence - evidence.max()
    ax = axes_or_new(ax, width=5.4, height=3.8)
    ax.plot(number, below, "o-", color=POSITIVE, linewidth=1.6, markersize=6)
    error = float(tree.attrs.get("components_error", 0.0))
    best = [int(np.argmax(below >= -error))]
    ax.scatter(number[best], below[best], s=130, facecolors="none", edgecolors=INK, zorder=4)
    ax.set_xticks(number)
    ax.margins(y=0.12)
    ax.set(xlabel="number of components", ylabel="log evidence below the largest (nats)")
    shares = ", ".join(f"{share:.0%}" for share in sorted(relevance, reverse=True))
    note = f"Ring: fewest within {error:.1f} nats, one standard error. Shares of the variance: "
    title = f"{number[best][0]} of up to {number[-1]} components by their evidence"
    set_title(ax, title, f"{note}{shares}.")
    return ax


def _largest(size: FloatArray, limit: int) -> IntArray:
    """Indices of the largest entries, in descending order; ties keep their order."""
    return np.argsort(-size, kind="stable")[:limit]
